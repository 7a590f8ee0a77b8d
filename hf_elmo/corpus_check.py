# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Looks through a corpus before it is trained on: what is in it, and what a run of days would stumble over.

One pass. Each part of the text gives figures and places that add up; `check_corpus` turns the sums into problems, each
with a severity (`note`: good to know; `warning`: look at it; `fatal`: training makes no sense) and places to look at.
"""

import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from .text_files import (
    ErrorPolicy,
    Lines,
    Part,
    PathLike,
    check_error_policy,
    cut_at_lines,
    cut_into_parts,
    find_files,
    find_lines,
    map_parts,
    read_blocks,
    without_lines,
)
from .vocabulary import RESERVED_WORDS
from .word_splitting import character_normalizer, word_splitter

Severity: TypeAlias = Literal["note", "warning", "fatal"]
SEVERITIES = ("fatal", "warning", "note")

PART_BYTES = 2**25
PIECE_BYTES = 2**22  # whose words are in memory at the same time
PLACES_OF_A_PART = 5
PLACES_OF_A_PROBLEM = 20
SHOWN_PLACES = 3
SHOWN_CHARACTERS = 60

LONG_SENTENCE = 2000  # words
SAMPLED_SENTENCES = 20_000  # that are cut by Moses' rules for comparison
COMPARED_BYTES = 2**28  # in larger corpora, a share of the lines is looked up for repetitions

# Shares from which on something is a warning, or fatal. Of words:
CUTS_NOTED, CUTS_WARNED = 0.01, 0.03  # text cut by Moses' rules has nearly none, raw English has about 0.15
UNKNOWN_WARNED, UNKNOWN_FATAL = 0.05, 0.5
LONG_WORDS_WARNED = 0.01
MARKUP_WARNED = CONTROL_WARNED = 0.0001
# Of sentences:
REPEATED_NOTED, REPEATED_WARNED = 0.01, 0.1
UNDECODABLE_FATAL = 0.05

# These are searched in the different words of a piece of text, one a line.
MARKUP = re.compile(r"^.*(?:</?[A-Za-z][\w-]*/?>|</?[A-Za-z]\w*$|&(?:[a-z]{2,6}|#x?[0-9A-Fa-f]+);).*$", re.MULTILINE)
CONTROL = re.compile("^.*[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\ufffd\ufffe\uffff].*$", re.MULTILINE)
GLUED = re.compile(r"^.*\w(?:[,;:!?]|[.,!?][\"')\]]+)$|^[\"(\[]\w.*$", re.MULTILINE)
CONTRACTION = re.compile(r"^[A-Za-z]+['\u2019](?:[a-z]|re|ve|ll)$", re.MULTILINE)
# `it 's` and `do n't`: the rules, made for raw text, would cut at these apostrophes once more.
CUT_CONTRACTION = re.compile(r"(?<=\w) (?=(?:n't|'[A-Za-z]+)(?!\S))")
ODD_SPACE = re.compile("[\t\x0b\x0c\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]|\r(?!\n)")


class Place(NamedTuple):
    """Somewhere in the corpus; lines count from 1."""

    file: str
    line: int | None = None
    text: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
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
    """What `check_corpus` found."""

    files: int
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
        """Everything, as something that JSON can hold."""
        content = asdict(self)
        for problem, saved in zip(self.problems, content["problems"], strict=True):
            saved["places"] = [place._asdict() for place in problem.places]
        return content

    def to_json(self) -> str:
        """Everything, as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def __str__(self) -> str:
        rows = [
            ("files", f"{self.files:,}"),
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


def check_corpus(
    inputs: PathLike | Iterable[PathLike],
    *,
    vocabulary: Collection[str] | None = None,
    max_characters_per_token: int = 50,
    batch_size: int | None = None,
    unroll_steps: int | None = None,
    words_per_second: float | None = None,
    errors: ErrorPolicy = "replace",
    processes: int | None = None,
) -> CorpusReport:
    """Looks through a corpus.

    Args:
        inputs: Files, folders and patterns.
        vocabulary: Words; with it, the share of unknown ones is found out.
        max_characters_per_token: Of the model; words with more bytes than this less two are cut.
        batch_size: Rows of all processes in one step of the optimizer; with it, the steps of an epoch are counted.
        unroll_steps: Words of a row in a step, if sentences follow each other in a row; by default, a row is a
            sentence.
        words_per_second: Speed of training, for an estimate of the time of an epoch.
        errors: What the reader will do with lines that are not UTF-8; with `"stop"` they are fatal.
        processes: That read at the same time; by default one for each processor.
    """
    check_error_policy(errors)
    started = time.perf_counter()
    files = find_files(inputs)
    parts = cut_into_parts(files, PART_BYTES)
    size = sum(part.bytes_on_disk for part in parts)
    check = partial(
        _check_part,
        errors=errors,
        longest_word=max_characters_per_token - 2,
        sample=min(max(SAMPLED_SENTENCES // max(len(parts), 1), 5), 500),
        compared=max(size // COMPARED_BYTES, 1),
    )
    words = None if vocabulary is None else frozenset(vocabulary)
    total = _Figures()
    keys = []
    sentences_of_file = Counter({str(path): 0 for path in files})
    lines_before: Counter[str] = Counter()
    for part, figures in zip(
        parts, map_parts(check, parts, processes, "checking the corpus", _prepare, (words,)), strict=True
    ):
        name = str(part.path)
        total.add(figures, name, lines_before[name])
        lines_before[name] += figures.lines
        sentences_of_file[name] += figures.sentences
        keys.append(figures.keys)
    repeated = _repeated_share(keys)
    empty = [name for name, sentences in sentences_of_file.items() if not sentences]
    positions = total.tokens + total.sentences  # a sentence of n words has n + 1 predictions in a direction
    steps = None
    if batch_size is not None:
        steps = -(-total.sentences // batch_size) if unroll_steps is None else positions // (batch_size * unroll_steps)
    report = CorpusReport(
        files=len(files),
        bytes=size,
        lines=total.lines,
        sentences=total.sentences,
        tokens=total.tokens,
        longest_sentence=total.longest_sentence,
        seconds=round(time.perf_counter() - started, 3),
        unknown_share=None if vocabulary is None else total.counts["unknown"] / max(total.tokens, 1),
        cut_share=total.counts["cuts"] / max(total.counts["sampled words"], 1),
        repeated_share=repeated,
        problems=[],
        steps_per_epoch=steps,
        seconds_per_epoch=None if words_per_second is None else total.tokens / words_per_second,
    )
    problems = _problems(report, total, empty, errors, max_characters_per_token)
    report.problems.extend(sorted(problems, key=lambda problem: SEVERITIES.index(problem.severity)))
    return report


# --- A part ----------------------------------------------------------------------------------------------------------


@dataclass
class _Figures:
    """What adds up."""

    lines: int = 0
    sentences: int = 0
    tokens: int = 0
    longest_sentence: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[Place]] = field(default_factory=dict)
    keys: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    def note(self, kind: str, line: int, text: str) -> None:
        """Remembers a place, if there are not many yet. Lines count from 0 here."""
        places = self.places.setdefault(kind, [])
        if len(places) < PLACES_OF_A_PART:
            places.append(Place("", line, _shown(text)))

    def add(self, part: "_Figures", file: str, lines_before: int) -> None:
        """Adds the figures of a part, which begins after so many lines of a file."""
        self.lines += part.lines
        self.sentences += part.sentences
        self.tokens += part.tokens
        self.longest_sentence = max(self.longest_sentence, part.longest_sentence)
        self.counts.update(part.counts)
        for kind, found in part.places.items():
            places = self.places.setdefault(kind, [])
            room = PLACES_OF_A_PROBLEM - len(places)
            places += [Place(file, lines_before + (place.line or 0) + 1, place.text) for place in found[:room]]


_vocabulary: frozenset[str] | None = None
_moses: Any = None


def _prepare(vocabulary: frozenset[str] | None) -> None:
    """Sets what all parts are checked with; once in each process, as vocabularies are large."""
    global _vocabulary, _moses
    _vocabulary = vocabulary
    _moses = (character_normalizer(), word_splitter("moses"))


def _check_part(part: Part, errors: ErrorPolicy, longest_word: int, sample: int, compared: int) -> _Figures:
    figures = _Figures()
    keys: list[np.ndarray] = []
    pieces = max(part.bytes_on_disk // PIECE_BYTES, 1)
    for block in read_blocks(part, PART_BYTES):
        for data in cut_at_lines(block, PIECE_BYTES):
            lines = find_lines(data)
            figures.counts["undecodable"] += len(lines.undecodable)
            for number in lines.undecodable[:PLACES_OF_A_PART].tolist():
                line = data[lines.starts[number] : lines.ends[number]]
                figures.note("undecodable", figures.lines + number, line.decode("utf-8", errors="replace"))
            if errors == "skip" and len(lines.undecodable):
                data = without_lines(data, lines.undecodable)
                lines = find_lines(data)
            text = data.decode("utf-8", errors="replace")
            _check_words(figures, text, longest_word)
            _check_spaces(figures, text)
            _check_sentences(figures, data, lines, -(-sample // pieces))
            keys.append(_line_keys(figures, data, lines, compared))
            figures.sentences += int((~lines.blank).sum())
            figures.lines += len(lines.starts)
    figures.keys = np.concatenate(keys) if keys else figures.keys
    return figures


def _check_words(figures: _Figures, text: str, longest_word: int) -> None:
    """Looks at each different word once, and for it in the text only if something is wrong."""
    counts = Counter(text.split())
    figures.tokens += counts.total()
    joined = "\n".join(counts)
    found = {
        "markup": MARKUP.findall(joined),
        "control": CONTROL.findall(joined),
        "reserved": [word for word in RESERVED_WORDS if word in counts],
        # A character has at most four bytes.
        "long": [word for word in counts if 4 * len(word) > longest_word and len(word.encode()) > longest_word],
    }
    reserved = set(found["reserved"])
    found["markup"] = [word for word in found["markup"] if word not in reserved]
    for kind, words in found.items():
        figures.counts[kind] += sum(counts[word] for word in words)
        for word in words[: PLACES_OF_A_PART - len(figures.places.get(kind, []))]:
            figures.note(kind, figures.lines + text.count("\n", 0, _find_word(text, word)), word)
    for kind, pattern in (("glued", GLUED), ("contraction", CONTRACTION)):
        figures.counts[kind] += sum(counts[word] for word in pattern.findall(joined))
    if _vocabulary is not None:
        figures.counts["unknown"] += sum(count for word, count in counts.items() if word not in _vocabulary)


def _find_word(text: str, word: str) -> int:
    """Where the word is that is in the text, as a word of its own."""
    start = text.index(word)
    while f" {text[max(start - 1, 0) : start + len(word) + 1]} ".split() != [word]:
        start = text.index(word, start + 1)
    return start


def _check_spaces(figures: _Figures, text: str) -> None:
    figures.counts["empty words"] += text.count("  ")
    figures.counts["carriage returns"] += text.count("\r\n")
    for number, match in enumerate(ODD_SPACE.finditer(text)):
        figures.counts["odd space"] += 1
        if number < PLACES_OF_A_PART:
            line = text.count("\n", 0, match.start())
            figures.note("odd space", figures.lines + line, f"U+{ord(match.group()):04X}")


def _check_sentences(figures: _Figures, data: bytes, lines: Lines, sample: int) -> None:
    # As many words as white space, line ends included; less where there is more than one between two words.
    spaces = np.frombuffer(data, dtype=np.uint8) <= ord(" ")
    most_words = np.add.reduceat(spaces, lines.starts, dtype=np.int64) + 1 if len(lines.starts) else lines.starts
    for number in np.flatnonzero(most_words > min(LONG_SENTENCE, most_words.max(initial=0) - 1)).tolist():
        words = len(_line(data, lines, number).split())
        figures.longest_sentence = max(figures.longest_sentence, words)
        if words > LONG_SENTENCE:
            figures.counts["long sentence"] += 1
            figures.note("long sentence", figures.lines + number, f"{words:,} words")
    sentences = np.flatnonzero(~lines.blank)
    normalizer, splitter = _moses
    for number in sentences[:: max(len(sentences) // sample, 1)][:sample].tolist():
        # A line that is no sentence is cut short here: it is looked at for the sake of a share.
        text = normalizer.normalize_str(_line(data, lines, number)[:5000])
        words = len(text.split())
        cuts = max(len(splitter.pre_tokenize_str(CUT_CONTRACTION.sub("", text))) - words, 0)
        figures.counts["sampled words"] += words
        figures.counts["cuts"] += cuts
        if cuts > 2 * CUTS_WARNED * words:
            figures.note("cuts", figures.lines + number, text)


def _line_keys(figures: _Figures, data: bytes, lines: Lines, compared: int) -> np.ndarray:
    """A number for each sentence, equal for equal ones, of about every `compared`-th different sentence."""
    numbers = np.flatnonzero(~lines.blank)
    starts, ends = lines.starts[numbers], lines.ends[numbers]
    checksums = [zlib.crc32(data[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    keys = np.array(checksums, dtype=np.uint64)
    keys |= (ends - starts).astype(np.uint64) << np.uint64(32)
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    if len(counts) and counts.max() > 1:
        most = int(counts.argmax())
        number = int(numbers[first[most]])
        figures.note("repeated", figures.lines + number, f"{counts[most]} times: {_line(data, lines, number)}")
    return keys[keys % np.uint64(compared) == 0]


def _repeated_share(keys: list[np.ndarray]) -> float:
    together = np.concatenate(keys) if keys else np.empty(0, dtype=np.uint64)
    return 1 - len(np.unique(together)) / len(together) if len(together) else 0.0


def _line(data: bytes, lines: Lines, number: int) -> str:
    return data[lines.starts[number] : lines.ends[number]].decode("utf-8", errors="replace")


def _shown(text: str) -> str:
    """A text that fits into a line of a report and cannot move the cursor."""
    text = " ".join(text[: 2 * SHOWN_CHARACTERS].split())
    text = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


# --- Problems --------------------------------------------------------------------------------------------------------


def _problems(
    report: CorpusReport, total: _Figures, empty: list[str], errors: ErrorPolicy, max_characters: int
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
    bad = counts["undecodable"]
    treatment = {"replace": "U+FFFD will stand for what is no text", "skip": "They will be left out", "stop": "Stop"}
    found(
        "undecodable",
        bad,
        "fatal" if errors == "stop" or bad / max(report.lines, 1) > UNDECODABLE_FATAL else "warning",
        f"{bad:,} lines ({bad / max(report.lines, 1):.3%}) are not UTF-8. {treatment[errors]}; better convert them.",
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
    _word_problems(found, report, counts, max_characters)
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


def _word_problems(found: Any, report: CorpusReport, counts: Counter[str], max_characters: int) -> None:
    tokens = max(report.tokens, 1)
    long_share = counts["long"] / tokens
    found(
        "long",
        counts["long"],
        "warning" if long_share > LONG_WORDS_WARNED else "note",
        f"{counts['long']:,} words ({long_share:.4%}) have more than {max_characters - 2} bytes; the model sees their "
        "begin only.",
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
