# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Text to a word vocabulary in bilm-tf's order: `<S>`, `</S>`, `<UNK>`, then words by falling count.

Sampling the softmax relies on that order. Words with equal counts stand in the order of their code points, so that the
same text gives the same file, however many processes count.
"""

import json
import os
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .text_files import (
    ErrorPolicy,
    Part,
    PathLike,
    check_error_policy,
    count_lines_before,
    cut_at_lines,
    cut_into_parts,
    find_files,
    find_lines,
    map_parts,
    read_blocks,
    without_lines,
)

SPECIAL_WORDS = ("<S>", "</S>", "<UNK>")
# Lines that would not be words of their own: padding, and a line that bilm-tf and the tokenizer skip.
RESERVED_WORDS = (*SPECIAL_WORDS, "<PAD>", "!!!MAXTERMID")

PART_BYTES = 2**25  # of text that a process counts before it hands over the result
PIECE_BYTES = 2**22  # whose words are in memory at the same time


@dataclass(frozen=True)
class WordCounts:
    """How often each word is in a text.

    Args:
        counts: Of the words, without `RESERVED_WORDS`.
        reserved: Of the words of `RESERVED_WORDS` that are in the text.
        sentences: Lines that are not blank.
        undecodable: Lines that are not UTF-8.
        files: Number of files.
    """

    counts: Counter[str]
    reserved: Counter[str]
    sentences: int
    undecodable: int
    files: int

    @property
    def tokens(self) -> int:
        """All words of the text, repetitions included."""
        return self.counts.total() + self.reserved.total()


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary, and how much of the text it was made from it covers.

    Args:
        words: `<S>`, `</S>`, `<UNK>` and the words by falling count.
        counts: What it was made from.
    """

    words: list[str]
    counts: WordCounts

    @property
    def kept(self) -> int:
        """Words without the three special ones."""
        return len(self.words) - len(SPECIAL_WORDS)

    @property
    def coverage(self) -> float:
        """Share of the tokens of the text that are in the vocabulary; the others are `<UNK>` to it."""
        known = sum(self.counts.counts[word] for word in self.words[len(SPECIAL_WORDS) :])
        return known / max(self.counts.tokens, 1)

    def save(self, path: PathLike, overwrite: bool = False) -> None:
        """Writes the words, one a line, completely or not at all."""
        _write(Path(path), "".join(f"{word}\n" for word in self.words), overwrite)

    def save_counts(self, path: PathLike, overwrite: bool = False) -> None:
        """Writes the figures and the counts of all words of the text, kept or not, as JSON."""
        counts = {word: self.counts.counts[word] for word in _by_count(self.counts.counts)}
        content = {**self.figures(), "reserved": dict(sorted(self.counts.reserved.items())), "counts": counts}
        _write(Path(path), json.dumps(content, ensure_ascii=False, indent=1) + "\n", overwrite)

    def figures(self) -> dict[str, Any]:
        """Tokens, types, words kept, the share of tokens they cover, and what the text is made of."""
        return {
            "files": self.counts.files,
            "sentences": self.counts.sentences,
            "undecodable_lines": self.counts.undecodable,
            "tokens": self.counts.tokens,
            "types": len(self.counts.counts),
            "kept": self.kept,
            "coverage": self.coverage,
        }

    def __str__(self) -> str:
        figures = self.figures()
        lines = [
            f"{figures['tokens']:,} tokens of {figures['types']:,} types in {figures['sentences']:,} sentences, "
            f"{figures['files']:,} files",
            f"{self.kept:,} words kept; they cover {self.coverage:.2%} of the tokens",
        ]
        if self.counts.reserved:
            found = ", ".join(f"{word} {count:,} times" for word, count in sorted(self.counts.reserved.items()))
            lines.append(f"not counted as words, as they have a meaning of their own: {found}")
        if self.counts.undecodable:
            lines.append(
                f"warning: {self.counts.undecodable:,} lines are not UTF-8: is the text in another encoding? "
                "Then convert it, and count again."
            )
        return "\n".join(lines)


def count_words(
    inputs: PathLike | Iterable[PathLike], processes: int | None = None, errors: ErrorPolicy = "replace"
) -> WordCounts:
    """Counts the words of text files.

    Memory grows with the number of different words, not with the text.

    Args:
        inputs: Files, folders and patterns; `.gz`, `.xz` and `.zst` are decompressed.
        processes: That count at the same time; by default one for each processor.
        errors: What to do with lines that are not UTF-8, as in `CorpusReader`.
    """
    check_error_policy(errors)
    files = find_files(inputs)
    counts: Counter[str] = Counter()
    sentences = undecodable = 0
    count = partial(_count_part, errors=errors)
    for words, lines, bad_lines in map_parts(count, cut_into_parts(files, PART_BYTES), processes, "counting words"):
        counts.update(words)
        sentences += lines
        undecodable += bad_lines
    reserved = Counter({word: counts.pop(word) for word in RESERVED_WORDS if word in counts})
    return WordCounts(counts, reserved, sentences, undecodable, len(files))


def _count_part(part: Part, errors: ErrorPolicy) -> tuple[Counter[str], int, int]:
    """Words, sentences and undecodable lines of a part."""
    counts: Counter[str] = Counter()
    sentences = undecodable = lines_before = 0
    for block in read_blocks(part, PART_BYTES):
        for data in cut_at_lines(block, PIECE_BYTES):
            lines = find_lines(data)
            if len(lines.undecodable) and errors == "stop":
                line = count_lines_before(part) + lines_before + int(lines.undecodable[0]) + 1
                raise ValueError(f"{part.path}, line {line}: this is not UTF-8. Convert the file, or allow errors.")
            if len(lines.undecodable) and errors == "skip":
                lines.blank[lines.undecodable] = True
                data = without_lines(data, lines.undecodable)
            sentences += int((~lines.blank).sum())
            undecodable += len(lines.undecodable)
            lines_before += len(lines.starts)
            # A line end is white space, so the words of the piece are the words of its lines.
            counts.update(data.decode("utf-8", errors="replace").split())
    return counts, sentences, undecodable


def build_vocabulary(counts: WordCounts, min_count: int = 3, max_words: int | None = None) -> Vocabulary:
    """The vocabulary of a text: its frequent words, in bilm-tf's order.

    Args:
        counts: Of the words of the text.
        min_count: How often a word must be in the text.
        max_words: How many words to keep at most, the three special ones not counted.
    """
    if min_count < 1:
        raise ValueError(f"The smallest count is {min_count}; it must be 1 or more.")
    if max_words is not None and max_words < 1:
        raise ValueError(f"The number of words is limited to {max_words}; it must be 1 or more.")
    frequent = {word: count for word, count in counts.counts.items() if count >= min_count}
    if not frequent:
        most = max(counts.counts.values(), default=0)
        raise ValueError(
            f"No word is in the text {min_count} times or more; the most frequent one of {len(counts.counts):,} is "
            f"there {most} times. Give more text or a smaller count."
        )
    return Vocabulary([*SPECIAL_WORDS, *_by_count(frequent)[:max_words]], counts)


def _by_count(counts: dict[str, int]) -> list[str]:
    return sorted(counts, key=lambda word: (-counts[word], word))


def _write(path: Path, content: str, overwrite: bool) -> None:
    check_output(path, overwrite)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_output(path: Path, overwrite: bool) -> None:
    """Raises if a file cannot be written there, which is better known before the work than after it."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Choose another name, or give --overwrite.")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path.parent} does not exist, so {path.name} cannot be written there. Make it first."
        )


__all__ = ["Vocabulary", "WordCounts", "build_vocabulary", "count_words"]
