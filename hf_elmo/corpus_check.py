# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Looks through a corpus before it is trained on: what is in it, and what a run of days would stumble over.

One pass, over files or a data set. Each part of the text gives figures and places that add up; `check_corpus` turns
the sums into problems, each with a severity (`note`: good to know; `warning`: look at it; `fatal`: training makes no
sense) and places to look at. Of a streamed data set, the first rows are looked at.
"""

import dataclasses
import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from transformers.utils import logging

from .corpus_pieces import FirstRows, Piece, RowPart, blocks_of_part, cut_rows_into_parts, row_pieces, text_pieces
from .data_set_rows import check_column, is_data_set, number_of_rows
from .text_files import (
    ErrorPolicy,
    Part,
    check_error_policy,
    cut_into_parts,
    find_files,
    map_parts,
)
from .vocabulary import RESERVED_WORDS, WordCounts
from .word_splitting import character_normalizer, word_splitter

Severity: TypeAlias = Literal["note", "warning", "fatal"]
SEVERITIES = ("fatal", "warning", "note")

PART_BYTES = 2**25
PIECE_BYTES = 2**22  # whose words are in memory at the same time
PLACES_OF_A_PART = 5
PLACES_OF_A_PROBLEM = 20
SHOWN_PLACES = 3
SHOWN_CHARACTERS = 60

STREAMED_ROWS = 100_000  # of a streamed data set that are looked at,
STREAMED_BYTES = 2**28  # or fewer, if there is as much text in them

LONG_SENTENCE = 2000  # words
SAMPLED_SENTENCES = 20_000  # that are cut by Moses' rules for comparison
COMPARED_BYTES = 2**28  # in larger corpora, a share of the lines is looked up for repetitions

# Shares from which on something is a warning, or fatal. Of words:
CUTS_NOTED, CUTS_WARNED = 0.01, 0.03  # text cut by Moses' rules has nearly none, raw English has about 0.15
UNKNOWN_WARNED, UNKNOWN_FATAL = 0.05, 0.5
LONG_WORDS_WARNED = 0.01
MARKUP_WARNED = CONTROL_WARNED = 0.0001
SPACED_WARNED, SPACED_FATAL = 0.01, 0.5
# Of sentences:
REPEATED_NOTED, REPEATED_WARNED = 0.01, 0.1
UNDECODABLE_FATAL = 0.05
MISSING_FATAL = 0.5  # of the rows of a data set

# These are searched in the different words of a piece of text, one a line.
MARKUP = re.compile(r"^.*(?:</?[A-Za-z][\w-]*/?>|</?[A-Za-z]\w*$|&(?:[a-z]{2,6}|#x?[0-9A-Fa-f]+);).*$", re.MULTILINE)
CONTROL = re.compile("^.*[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\ufffd\ufffe\uffff].*$", re.MULTILINE)
GLUED = re.compile(r"^.*\w(?:[,;:!?]|[.,!?][\"')\]]+)$|^[\"(\[]\w.*$", re.MULTILINE)
CONTRACTION = re.compile(r"^[A-Za-z]+['\u2019](?:[a-z]|re|ve|ll)$", re.MULTILINE)
# `it 's` and `do n't`: the rules, made for raw text, would cut at these apostrophes once more.
CUT_CONTRACTION = re.compile(r"(?<=\w) (?=(?:n't|'[A-Za-z]+)(?!\S))")
ODD_SPACE = re.compile("[\t\x0b\x0c\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]|\r(?!\n)")


class Place(NamedTuple):
    """Somewhere in the corpus. Lines count from 1, and rows of a data set from 0, as in `dataset[0]`."""

    file: str  # or data set
    line: int | None = None  # of the file, or of a row that has several
    text: str = ""
    row: int | None = None

    def __str__(self) -> str:
        where = self.file
        if self.row is not None:
            where += f", row {self.row}" + ("" if self.line is None else f", line {self.line}")
        elif self.line is not None:
            where += f":{self.line}"
        return f"{where}: {self.text}" if self.text else where


@dataclass(frozen=True)
class Problem:
    """Something that was found.

    Args:
        severity: `"note"`, `"warning"` or `"fatal"`.
        kind: A short name.
        message: What it is and what to do.
        count: How often.
        places: The first of the places.
    """

    severity: Severity
    kind: str
    message: str
    count: int
    places: list[Place] = field(default_factory=list)


@dataclass(frozen=True)
class CorpusReport:
    """What `check_corpus` found. If it is not `complete`, everything is said of the rows that were looked at."""

    files: int  # 0 for a data set
    bytes: int
    lines: int
    sentences: int
    tokens: int
    longest_sentence: int
    seconds: float
    unknown_share: float | None  # of the words, for the vocabulary
    cut_share: float  # how often Moses' rules would cut again, for each word
    repeated_share: float  # of the sentences
    problems: list[Problem]
    steps_per_epoch: int | None = None
    seconds_per_epoch: float | None = None
    rows: int | None = None  # of a data set
    complete: bool = True  # whether all of the corpus was looked at
    counts: WordCounts | None = field(default=None, repr=False)  # if they were to be kept

    @property
    def fatal(self) -> list[Problem]:
        """Problems with which training makes no sense."""
        return [problem for problem in self.problems if problem.severity == "fatal"]

    def raise_if_fatal(self) -> None:
        """Raises an error that names the fatal problems and where they are, if there are any."""
        if self.fatal:
            sentences = [" ".join([problem.message, *map(str, problem.places[:1])]) for problem in self.fatal]
            raise ValueError(f"The corpus cannot be trained on. {' '.join(sentences)}")

    def to_dict(self) -> dict[str, Any]:
        """Everything but the counts of words, as something that JSON can hold."""
        content = dataclasses.asdict(dataclasses.replace(self, counts=None))
        del content["counts"]
        for problem, saved in zip(self.problems, content["problems"], strict=True):
            saved["places"] = [_saved_place(place) for place in problem.places]
        return content

    def to_json(self) -> str:
        """Everything, as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def __str__(self) -> str:
        rows = [("files", f"{self.files:,}")] if self.rows is None else [("rows", f"{self.rows:,}")]
        if not self.complete:
            rows = [("rows", f"the first {self.rows:,}; the others are not looked at, and not counted here")]
        rows += [
            ("bytes", f"{self.bytes:,}"),
            ("sentences", f"{self.sentences:,}"),
            ("tokens", f"{self.tokens:,}"),
            ("tokens a sentence", f"{self.tokens / max(self.sentences, 1):.1f}, at most {self.longest_sentence:,}"),
            ("repeated sentences", f"{self.repeated_share:.2%}"),
            ("cuts Moses would add", f"{self.cut_share:.2%} of the words"),
        ]
        if self.unknown_share is not None:
            rows.append(("unknown words", f"{self.unknown_share:.2%}"))
        if self.steps_per_epoch is not None:
            rows.append(("steps an epoch", f"{self.steps_per_epoch:,}"))
        elif not self.complete:
            rows.append(("steps an epoch", "unknown, as is the number of rows"))
        if self.seconds_per_epoch is not None:
            rows.append(("hours an epoch", f"{self.seconds_per_epoch / 3600:.2f}"))
        rows.append(("checked in", f"{self.seconds:.1f} s"))
        lines = [f"{name:<22}{value}" for name, value in rows]
        for problem in self.problems:
            lines.append(f"{problem.severity + ':':<9} {problem.message}")
            lines += [f"{'':<10}{place}" for place in problem.places[:SHOWN_PLACES]]
            if problem.count > SHOWN_PLACES and len(problem.places) > SHOWN_PLACES:
                lines.append(f"{'':<10}...")
        return "\n".join(lines)


def _saved_place(place: Place) -> dict[str, Any]:
    return {name: value for name, value in place._asdict().items() if name != "row" or value is not None}


def check_corpus(
    inputs: Any,
    *,
    column: str = "text",
    name: str = "",
    max_rows: int = STREAMED_ROWS,
    vocabulary: Collection[str] | None = None,
    max_characters_per_token: int = 50,
    code_points: bool = False,
    batch_size: int | None = None,
    unroll_steps: int | None = None,
    words_per_second: float | None = None,
    errors: ErrorPolicy = "replace",
    processes: int | None = None,
    keep_counts: bool = False,
) -> CorpusReport:
    """Looks through a corpus.

    Args:
        inputs: Files, folders and patterns, or a data set of `datasets`, as `CorpusReader` takes them.
        column: Of a data set, with text (one sentence a line) or with lists of words.
        name: Of a data set, for the places.
        max_rows: Rows of a streamed data set that are looked at; others are looked at as a whole.
        vocabulary: Words; with it, the share of unknown ones is found out.
        max_characters_per_token: Of the model; words with more bytes than this less two are cut.
        code_points: Whether the model spells words with code points, and it is those that are counted.
        batch_size: Rows of all processes in one step of the optimizer; with it, the steps of an epoch are counted.
        unroll_steps: Words of a row in a step, if sentences follow each other in a row; by default, a row is a
            sentence.
        words_per_second: Speed of training, for an estimate of the time of an epoch.
        errors: What the reader will do with lines that are not UTF-8; with `"stop"` they are fatal. Also what it will
            do with rows of a data set that are no text.
        processes: That read at the same time; by default one for each processor.
        keep_counts: Whether to count the words one by one, too: the report has them as `counts`.
    """
    check_error_policy(errors)
    if max_rows < 1:
        raise ValueError(f"max_rows is {max_rows}; it must be 1 or more.")
    started = time.perf_counter()
    words = None if vocabulary is None else frozenset(vocabulary)
    rules = _Rules(errors, max_characters_per_token - 2, keep_counts, code_points)
    if not is_data_set(inputs):
        found = _check_files(find_files(inputs), rules, words, processes)
    else:
        check_column(inputs, column)
        where = f"data set {name}" if name else "data set"
        if number_of_rows(inputs) is None:
            found = _check_stream(inputs, column, where, max_rows, rules, words)
        else:
            found = _check_rows(inputs, column, where, rules, words, processes)
    total = found.total
    positions = total.tokens + total.sentences  # a sentence of n words has n + 1 predictions in a direction
    steps = None
    if batch_size is not None and found.complete:
        steps = -(-total.sentences // batch_size) if unroll_steps is None else positions // (batch_size * unroll_steps)
    report = CorpusReport(
        files=found.files,
        bytes=total.bytes if found.size is None else found.size,
        lines=total.lines,
        sentences=total.sentences,
        tokens=total.tokens,
        longest_sentence=total.longest_sentence,
        seconds=round(time.perf_counter() - started, 3),
        unknown_share=None if vocabulary is None else total.counts["unknown"] / max(total.tokens, 1),
        cut_share=total.counts["cuts"] / max(total.counts["sampled words"], 1),
        repeated_share=_repeated_share(found.keys),
        problems=[],
        steps_per_epoch=steps,
        seconds_per_epoch=total.tokens / words_per_second if words_per_second and found.complete else None,
        rows=total.rows if found.size is None else None,
        complete=found.complete,
        counts=_word_counts(total, found.files) if keep_counts else None,
    )
    problems = _problems(report, total, found.empty_files, errors, rules.limit)
    report.problems.extend(sorted(problems, key=lambda problem: SEVERITIES.index(problem.severity)))
    return report


def _word_counts(total: "_Figures", files: int) -> WordCounts:
    reserved = Counter({word: total.words.pop(word) for word in RESERVED_WORDS if word in total.words})
    return WordCounts(total.words, reserved, total.sentences, total.counts["undecodable"], files)


# --- Files, rows of a data set, a stream -----------------------------------------------------------------------------


@dataclass
class _Found:
    """The figures of all parts together."""

    total: "_Figures" = field(default_factory=lambda: _Figures())
    keys: list[np.ndarray] = field(default_factory=list)
    files: int = 0
    size: int | None = None  # of the files on disk
    empty_files: list[str] = field(default_factory=list)
    complete: bool = True


def _check_files(files: list[Any], rules: "_Rules", words: frozenset[str] | None, processes: int | None) -> _Found:
    parts = cut_into_parts(files, PART_BYTES)
    size = sum(part.bytes_on_disk for part in parts)
    check = partial(_check_part, rules=rules.for_parts(len(parts), size))
    found = _Found(files=len(files), size=size)
    sentences_of_file = Counter({str(path): 0 for path in files})
    lines_before: Counter[str] = Counter()
    for part, figures in zip(
        parts, map_parts(check, parts, processes, "checking the corpus", _prepare, (words,)), strict=True
    ):
        name = str(part.path)
        found.total.add(figures, name, lines_before[name])
        lines_before[name] += figures.lines
        sentences_of_file[name] += figures.sentences
        found.keys.append(figures.keys)
    found.empty_files = [name for name, sentences in sentences_of_file.items() if not sentences]
    return found


def _check_rows(
    dataset: Any, column: str, where: str, rules: "_Rules", words: frozenset[str] | None, processes: int | None
) -> _Found:
    parts = cut_rows_into_parts(dataset, column, PART_BYTES)
    if processes is None and not getattr(dataset, "cache_files", None):
        processes = 1  # what is not in files would be copied for each process
    check = partial(_check_row_part, rules=rules.for_parts(len(parts), sum(part.bytes_on_disk for part in parts)))
    found = _Found()
    for figures in map_parts(check, parts, processes, "checking the corpus", _prepare, (words, dataset, column)):
        found.total.add(figures, where)
        found.keys.append(figures.keys)
    return found


def _check_stream(
    dataset: Any, column: str, where: str, max_rows: int, rules: "_Rules", words: frozenset[str] | None
) -> _Found:
    _prepare(words)
    rows = FirstRows(dataset, column, max_rows, STREAMED_BYTES)
    found = _Found()
    rules = rules.for_parts(STREAMED_BYTES // PIECE_BYTES, STREAMED_BYTES)
    with logging.tqdm(desc="checking the corpus", unit="row", unit_scale=True, delay=1) as bar:
        for piece in row_pieces(rows, 0, PIECE_BYTES):
            figures = _check_pieces([piece], rules, rules.sample)
            found.total.add(figures, where)
            found.keys.append(figures.keys)
            bar.update(figures.rows)
    found.complete = rows.complete
    return found


# --- A part ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rules:
    """What parts are checked with."""

    errors: ErrorPolicy
    longest_word: int
    keep_counts: bool
    code_points: bool
    sample: int = 0  # sentences of a part that are cut by Moses' rules
    compared: int = 1  # about every how many-th different sentence is looked up for repetitions

    @property
    def limit(self) -> str:
        """How long words may be, in words."""
        return f"{self.longest_word} {'code points' if self.code_points else 'bytes'}"

    def is_long(self, word: str) -> bool:
        """Whether the model does not read all of the word."""
        if 4 * len(word) <= self.longest_word:  # a character has at most four bytes
            return False
        return len(word if self.code_points else word.encode()) > self.longest_word

    def for_parts(self, count: int, size: int) -> "_Rules":
        """The rules for so many parts, of so many bytes together."""
        sample = min(max(SAMPLED_SENTENCES // max(count, 1), 5), 500)
        return dataclasses.replace(self, sample=sample, compared=max(size // COMPARED_BYTES, 1))


@dataclass
class _Figures:
    """What adds up."""

    rows: int = 0
    bytes: int = 0
    lines: int = 0
    sentences: int = 0
    tokens: int = 0
    longest_sentence: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[Place]] = field(default_factory=dict)
    keys: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    words: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, piece: Piece, number: int, text: str) -> None:
        """Remembers a line of the next piece, if there are not many yet. Lines count from 0 here."""
        row, line = (None, self.lines + number) if piece.rows is None else piece.row_and_line(number)
        self.note_place(kind, Place("", line, _shown(text), row))

    def note_place(self, kind: str, place: Place) -> None:
        places = self.places.setdefault(kind, [])
        if len(places) < PLACES_OF_A_PART:
            places.append(place)

    def add(self, part: "_Figures", file: str, lines_before: int = 0) -> None:
        """Adds the figures of a part, which begins after so many lines of a file."""
        self.rows += part.rows
        self.bytes += part.bytes
        self.words.update(part.words)
        self.lines += part.lines
        self.sentences += part.sentences
        self.tokens += part.tokens
        self.longest_sentence = max(self.longest_sentence, part.longest_sentence)
        self.counts.update(part.counts)
        for kind, found in part.places.items():
            places = self.places.setdefault(kind, [])
            room = PLACES_OF_A_PROBLEM - len(places)
            for place in found[:room]:
                line = None if place.line is None else lines_before + place.line + 1
                places.append(place._replace(file=file, line=line))


_vocabulary: frozenset[str] | None = None
_moses: Any = None
_dataset: Any = None
_column = ""


def _prepare(vocabulary: frozenset[str] | None, dataset: Any = None, column: str = "") -> None:
    """Sets what all parts are checked with; once in each process, as vocabularies and data sets are large."""
    global _vocabulary, _moses, _dataset, _column
    _vocabulary = vocabulary
    _moses = (character_normalizer(), word_splitter("moses"))
    _dataset, _column = dataset, column


def _check_part(part: Part, rules: _Rules) -> _Figures:
    return _check_pieces(text_pieces(part, PART_BYTES, PIECE_BYTES), rules, _sample_of_a_piece(part, rules))


def _check_row_part(part: RowPart, rules: _Rules) -> _Figures:
    blocks = blocks_of_part(_dataset, _column, part)
    return _check_pieces(row_pieces(blocks, part.start, PIECE_BYTES), rules, _sample_of_a_piece(part, rules))


def _sample_of_a_piece(part: Part | RowPart, rules: _Rules) -> int:
    return -(-rules.sample // max(part.bytes_on_disk // PIECE_BYTES, 1))


def _check_pieces(pieces: Iterable[Piece], rules: _Rules, sample: int) -> _Figures:
    figures = _Figures()
    keys: list[np.ndarray] = []
    for piece in pieces:
        for kind, row, text in piece.left_out:
            figures.counts[kind] += 1
            figures.note_place(kind, Place("", None, _shown(text), row))
        undecodable = piece.lines.undecodable
        figures.counts["undecodable"] += len(undecodable)
        for number in undecodable[:PLACES_OF_A_PART].tolist():
            figures.note("undecodable", piece, number, piece.line(number))
        if rules.errors == "skip" and len(undecodable):
            piece = piece.without(undecodable)
        _check_words(figures, piece, rules)
        has_odd_spaces = piece.word_lists is None and _check_spaces(figures, piece) > 0
        _check_sentences(figures, piece, sample, has_odd_spaces)
        keys.append(_line_keys(figures, piece, rules.compared))
        figures.sentences += int((~piece.lines.blank).sum())
        figures.lines += len(piece.lines.starts)
        figures.rows += piece.num_rows
        figures.bytes += len(piece.data)
    figures.keys = np.concatenate(keys) if keys else figures.keys
    return figures


def _check_words(figures: _Figures, piece: Piece, rules: _Rules) -> None:
    """Looks at each different word once, and for it in the text only if something is wrong."""
    counts = piece.count_words()
    figures.tokens += counts.total()
    joined = "\n".join(counts)
    found = {
        "markup": MARKUP.findall(joined),
        "control": CONTROL.findall(joined),
        "reserved": [word for word in RESERVED_WORDS if word in counts],
        "long": list(filter(rules.is_long, counts)),
    }
    reserved = set(found["reserved"])
    found["markup"] = [word for word in found["markup"] if word not in reserved]
    if piece.word_lists is not None:  # only there can words be empty or have white space, or even line ends
        found = {kind: [word for word in words if word in counts] for kind, words in found.items()}
        found["empty in lists"] = [""] if "" in counts else []
        found["spaced"] = [word for word in counts if word and word.split() != [word]]
    for kind, words in found.items():
        figures.counts[kind] += sum(counts[word] for word in words)
        for word in words[: PLACES_OF_A_PART - len(figures.places.get(kind, []))]:
            figures.note(kind, piece, piece.find_word(word), word)
    for kind, pattern in (("glued", GLUED), ("contraction", CONTRACTION)):
        figures.counts[kind] += sum(counts[word] for word in pattern.findall(joined))
    if _vocabulary is not None:
        figures.counts["unknown"] += sum(count for word, count in counts.items() if word not in _vocabulary)
    if rules.keep_counts:
        figures.words.update(counts)


def _check_spaces(figures: _Figures, piece: Piece) -> int:
    """Counts spaces that are not between two words, and odd ones, which it also returns."""
    text, odd = piece.text, 0
    figures.counts["empty words"] += text.count("  ")
    figures.counts["carriage returns"] += text.count("\r\n")
    for match in ODD_SPACE.finditer(text):
        odd += 1
        if odd <= PLACES_OF_A_PART:
            line = text.count("\n", 0, match.start())
            figures.note("odd space", piece, line, f"U+{ord(match.group()):04X}")
    figures.counts["odd space"] += odd
    return odd


def _check_sentences(figures: _Figures, piece: Piece, sample: int, has_odd_spaces: bool) -> None:
    most_words = piece.most_words(has_odd_spaces)
    for number in np.flatnonzero(most_words > LONG_SENTENCE).tolist():
        words = piece.num_words(number)
        if words > LONG_SENTENCE:
            figures.counts["long sentence"] += 1
            figures.note("long sentence", piece, number, f"{words:,} words")
    for number in np.argsort(-most_words, kind="stable").tolist():
        if most_words[number] <= figures.longest_sentence:
            break
        figures.longest_sentence = max(figures.longest_sentence, piece.num_words(number))
    sentences = np.flatnonzero(~piece.lines.blank)
    normalizer, splitter = _moses
    for number in sentences[:: max(len(sentences) // sample, 1)][:sample].tolist():
        # A line that is no sentence is cut short here: it is looked at for the sake of a share.
        text = normalizer.normalize_str(piece.line(number)[:5000])
        words = len(text.split())
        cuts = max(len(splitter.pre_tokenize_str(CUT_CONTRACTION.sub("", text))) - words, 0)
        figures.counts["sampled words"] += words
        figures.counts["cuts"] += cuts
        if cuts > 2 * CUTS_WARNED * words:
            figures.note("cuts", piece, number, text)


def _line_keys(figures: _Figures, piece: Piece, compared: int) -> np.ndarray:
    """A number for each sentence, equal for equal ones, of about every `compared`-th different sentence."""
    data, lines = piece.data, piece.lines
    numbers = np.flatnonzero(~lines.blank)
    starts, ends = lines.starts[numbers], lines.ends[numbers]
    checksums = [zlib.crc32(data[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    keys = np.array(checksums, dtype=np.uint64)
    keys |= (ends - starts).astype(np.uint64) << np.uint64(32)
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    if len(counts) and counts.max() > 1:
        most = int(counts.argmax())
        number = int(numbers[first[most]])
        figures.note("repeated", piece, number, f"{counts[most]} times: {piece.line(number)}")
    return keys[keys % np.uint64(compared) == 0]


def _repeated_share(keys: list[np.ndarray]) -> float:
    together = np.concatenate(keys) if keys else np.empty(0, dtype=np.uint64)
    return 1 - len(np.unique(together)) / len(together) if len(together) else 0.0


def _shown(text: str) -> str:
    """A text that fits into a line of a report and cannot move the cursor."""
    text = " ".join(text[: 2 * SHOWN_CHARACTERS].split())
    text = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


# --- Problems --------------------------------------------------------------------------------------------------------


def _problems(
    report: CorpusReport, total: _Figures, empty: list[str], errors: ErrorPolicy, longest_word: str
) -> list[Problem]:
    counts, tokens, sentences = total.counts, max(report.tokens, 1), max(report.sentences, 1)
    problems: list[Problem] = []

    def found(kind: str, count: int, severity: Severity, message: str, places: list[Place] | None = None) -> None:
        if count:
            where = total.places.get(kind, []) if places is None else places
            problems.append(Problem(severity, kind.replace(" ", "_"), message, count, where))

    if not report.sentences:
        found("no text", 1, "fatal", "There is no sentence in the corpus.", [])
    elif report.steps_per_epoch == 0:
        found("too small", 1, "fatal", f"{report.tokens:,} words are too few for one batch. Use smaller batches.", [])
    found(
        "empty file",
        len(empty),
        "warning",
        f"{len(empty):,} files have no sentence.",
        [Place(name) for name in empty[:PLACES_OF_A_PROBLEM]],
    )
    _row_problems(found, report, counts, errors)
    bad = counts["undecodable"]
    too_many = errors == "stop" or bad / max(report.lines, 1) > UNDECODABLE_FATAL
    treatment = "U+FFFD will stand for what is no text" if errors == "replace" else "They will be left out"
    found(
        "undecodable",
        bad,
        "fatal" if too_many else "warning",
        f"{bad:,} lines ({bad / max(report.lines, 1):.3%}) are not UTF-8. "
        + ("Is the text in another encoding? Convert it." if too_many else f"{treatment}; better convert them."),
    )
    found(
        "control",
        counts["control"],
        "warning" if counts["control"] / tokens > CONTROL_WARNED else "note",
        f"{counts['control']:,} words have control or invisible characters, or U+FFFD from an earlier conversion.",
    )
    found(
        "markup",
        counts["markup"],
        "warning" if counts["markup"] / tokens > MARKUP_WARNED else "note",
        f"{counts['markup']:,} words ({counts['markup'] / tokens:.4%}) look like HTML or its entities.",
    )
    found(
        "reserved",
        counts["reserved"],
        "warning",
        f"{counts['reserved']:,} words are {', '.join(RESERVED_WORDS[:-1])} or the like, which the model takes for "
        "its own signs. The reader adds the boundaries of sentences; remove them from the text.",
    )
    _word_problems(found, report, counts, longest_word)
    found(
        "odd space",
        counts["odd space"],
        "note",
        f"{counts['odd space']:,} times, words are parted by other than a space (tab, no-break space, lone CR).",
    )
    found("empty words", counts["empty words"], "note", f"{counts['empty words']:,} spaces follow a space.", [])
    found(
        "long sentence",
        counts["long sentence"],
        "warning",
        f"{counts['long sentence']:,} lines have more than {LONG_SENTENCE:,} words. Put one sentence on a line.",
    )
    share = report.repeated_share
    found(
        "repeated",
        round(share * sentences) if share >= REPEATED_NOTED else 0,
        "warning" if share >= REPEATED_WARNED else "note",
        f"{share:.1%} of the sentences repeat another one. Held-out text may be among them, too.",
    )
    return problems


def _row_problems(found: Any, report: CorpusReport, counts: Counter[str], errors: ErrorPolicy) -> None:
    """What only a data set can have."""
    missing, rows = counts["missing"], max(report.rows or 0, 1)
    too_many = errors == "stop" or missing / rows > MISSING_FATAL
    found(
        "missing",
        missing,
        "fatal" if too_many else "warning",
        f"{missing:,} rows ({missing / rows:.3%}) have None for a text. "
        + ("Remove them, or choose another column." if too_many else "They will be left out."),
    )
    found(
        "not text",
        counts["not text"],
        "warning" if errors == "skip" else "fatal",
        f"{counts['not text']:,} rows have neither a text nor a list of words. "
        + (
            "They will be left out."
            if errors == "skip"
            else "Choose another column, or errors='skip' to leave them out."
        ),
    )
    found(
        "empty in lists",
        counts["empty in lists"],
        "warning",
        f"{counts['empty in lists']:,} words of lists are empty; the model reads them as words without letters.",
    )
    share = counts["spaced"] / max(report.tokens, 1)
    found(
        "spaced",
        counts["spaced"],
        "fatal" if share > SPACED_FATAL else "warning" if share > SPACED_WARNED else "note",
        f"{counts['spaced']:,} words of lists ({share:.3%}) have white space in them; each is read as one word. Are "
        "they lists of words, and not of sentences?",
    )


def _word_problems(found: Any, report: CorpusReport, counts: Counter[str], longest_word: str) -> None:
    tokens = max(report.tokens, 1)
    long_share = counts["long"] / tokens
    found(
        "long",
        counts["long"],
        "warning" if long_share > LONG_WORDS_WARNED else "note",
        f"{counts['long']:,} words ({long_share:.4%}) have more than {longest_word}; the model sees their begin only.",
    )
    if report.unknown_share is not None:
        share = report.unknown_share
        found(
            "unknown",
            counts["unknown"] if share >= UNKNOWN_WARNED else 0,
            "fatal" if share >= UNKNOWN_FATAL else "warning",
            f"{share:.1%} of the words are not in the vocabulary. Is it made from such text, cut and cased alike?",
            [],
        )
    found(
        "cuts",
        counts["cuts"] if report.cut_share >= CUTS_NOTED else 0,
        "warning" if report.cut_share >= CUTS_WARNED else "note",
        f"This looks like text that is not cut into words: the rules of Moses for English would cut again for "
        f"{report.cut_share:.1%} of the words; {counts['glued'] / tokens:.1%} have punctuation attached, "
        f"{counts['contraction'] / tokens:.1%} are contractions in one piece (don't).",
    )


__all__ = ["CorpusReport", "Place", "Problem", "check_corpus"]
