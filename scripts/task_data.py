# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of tagging and classification tasks to plain lists: CoNLL columns, CoNLL-U, SST trees, tables, `datasets`.

A line that does not fit raises a ValueError that begins with the file and the line.
"""

import csv
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from hf_elmo.data_set_rows import load_data_set

PathLike: TypeAlias = str | os.PathLike[str]
Scheme: TypeAlias = Literal["BIO", "BIOES"]

DOCUMENT_START = "-DOCSTART-"
PREFIXES = {"BIO": "BI", "BIOES": "BIES"}
CONLLU_COLUMNS = 10
CONLLU_LABELS = {"upos": 3, "xpos": 4}
CONLLU_WORD = re.compile(r"[1-9][0-9]*")
CONLLU_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # 3-4 spans words that follow; 3.1 is not in the text
SST_LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
SST_TOKEN = re.compile(r"([()]|[^ \t()]+)")  # a word may contain a no-break space
TREEBANK_ESCAPES = {"-LRB-": "(", "-RRB-": ")"}
UNLABELED = -1  # how `datasets` writes that there is no label


@dataclass(frozen=True)
class TaggingData:
    """Sentences and a label for each word.

    Args:
        source: Where they come from, for messages.
        sentences: The words of each sentence.
        labels: The labels of each sentence, as many as it has words.
    """

    source: str
    sentences: list[list[str]]
    labels: list[list[str]]

    def describe(self) -> str:
        """One line of counts."""
        counts = Counter(label for labels in self.labels for label in labels)
        return f"{self.source}: {len(self.sentences):,} sentences, {counts.total():,} words, {len(counts)} labels"

    def words(self) -> set[str]:
        """The different words."""
        return {word for sentence in self.sentences for word in sentence}


@dataclass(frozen=True)
class ClassificationData:
    """Texts, or pairs of texts, with one label each.

    Args:
        source: Where they come from, for messages.
        texts: Strings, or lists of words if `is_split_into_words`.
        labels: The label of each text.
        second_texts: The other text of each pair, or `None` if there are single texts.
        is_split_into_words: Whether a text is a list of words.
        left_out: How many texts were not taken because they have no label of this task.
    """

    source: str
    texts: list[Any]
    labels: list[str]
    second_texts: list[Any] | None = None
    is_split_into_words: bool = False
    left_out: int = 0

    def describe(self) -> str:
        """One line of counts."""
        counts = Counter(self.labels)
        kind = "texts" if self.second_texts is None else "pairs"
        shown = ", ".join(f"{label} {counts[label]:,}" for label in sorted(counts)[:10])
        more = ", ..." if len(counts) > 10 else ""
        left_out = f"; {self.left_out:,} left out" if self.left_out else ""
        return f"{self.source}: {len(self.texts):,} {kind}, {len(counts)} labels ({shown}{more}){left_out}"


def label_names(data: TaggingData | ClassificationData, *others: TaggingData | ClassificationData) -> list[str]:
    """All labels in order, `O` first; warns of those that the first, which is to be trained on, does not have."""
    trained = _labels_of(data)
    names = set(trained)
    for other in others:
        only_there = sorted(_labels_of(other) - trained)
        if only_there:
            warnings.warn(
                f"{other.source} has labels that {data.source} does not have, so that no model can learn them: "
                f"{', '.join(map(repr, only_there[:10]))}. Do both have the same labels and label scheme?",
                stacklevel=2,
            )
        names.update(only_there)
    return sorted(names, key=lambda name: (name != "O", name))


def _labels_of(data: TaggingData | ClassificationData) -> set[str]:
    if isinstance(data, ClassificationData):
        return set(data.labels)
    return {label for labels in data.labels for label in labels}


# --- Labels of entities ----------------------------------------------------------------------------------------------


def iob1_to_bio(labels: Sequence[str]) -> list[str]:
    """Labels whose every entity begins with B-; IOB1 writes I- there unless the same type stands right before.

    BIO labels come out as they are, so there is no need to know which of the two a file has.

    Example:
        >>> iob1_to_bio(["I-PER", "I-PER", "B-PER", "O", "I-LOC"])
        ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC']
    """
    converted = []
    previous_type = None
    for position, label in enumerate(labels):
        prefix, type_ = split_label(label, "BIO", position)
        begins = prefix == "B" or (prefix == "I" and type_ != previous_type)
        converted.append(f"B-{type_}" if begins else label)
        previous_type = type_
    return converted


def bio_to_bioes(labels: Sequence[str]) -> list[str]:
    """BIO labels with E- at the last word of an entity, and S- at an entity of one word.

    Example:
        >>> bio_to_bioes(["B-PER", "I-PER", "O", "B-LOC"])
        ['B-PER', 'E-PER', 'O', 'S-LOC']
    """
    check_labels(labels, "BIO")
    converted = []
    for label, following in zip(labels, [*labels, "O"][1:], strict=True):
        goes_on = following == f"I-{label[2:]}"
        converted.append(label if label == "O" or goes_on else ("S" if label[0] == "B" else "E") + label[1:])
    return converted


def bioes_to_bio(labels: Sequence[str]) -> list[str]:
    """BIOES labels with B- in place of S-, and I- in place of E-.

    Example:
        >>> bioes_to_bio(["B-PER", "E-PER", "O", "S-LOC"])
        ['B-PER', 'I-PER', 'O', 'B-LOC']
    """
    check_labels(labels, "BIOES")
    plain = {"S": "B", "E": "I"}
    return [label if label == "O" else plain.get(label[0], label[0]) + label[1:] for label in labels]


def check_labels(labels: Sequence[str], scheme: Scheme) -> None:
    """Refuses labels of a sentence that do not follow each other as the scheme asks.

    Raises:
        LabelError: With the position of the first wrong one.
    """
    is_open, open_type = False, None  # whether an entity must (BIOES) or may (BIO) go on, and of what type
    for position, label in enumerate([*labels, "O"]):
        prefix, type_ = split_label(label, scheme, position)
        continues = prefix in ("I", "E")
        if continues and not (is_open and type_ == open_type):
            raise LabelError(position, f"{label!r} has no B-{type_} before it, which {scheme} asks for")
        if scheme == "BIOES" and is_open and not continues:
            before = "at the end of the sentence" if position == len(labels) else f"before {label!r}"
            raise LabelError(
                position - 1, f"the {open_type} entity has no E-{open_type} {before}, which BIOES asks for"
            )
        is_open, open_type = prefix in ("B", "I"), type_


def split_label(label: str, scheme: Scheme, position: int = 0) -> tuple[str, str | None]:
    """The prefix and the type of a label; `("O", None)` for O.

    Raises:
        LabelError: If it is not a label of the scheme.
    """
    if label == "O":
        return "O", None
    if len(label) < 3 or label[1] != "-" or label[0] not in PREFIXES[scheme]:
        allowed = ", ".join(f"{prefix}-TYPE" for prefix in PREFIXES[scheme])
        raise LabelError(position, f"{label!r} is not a label of {scheme}, which has O, {allowed}")
    return label[0], label[2:]


class LabelError(ValueError):
    """A wrong label at a position of a sentence."""

    def __init__(self, position: int, problem: str):
        super().__init__(f"{problem}.")
        self.position = position


def _convert(sentences: list[list[str]], scheme: Scheme, places: Callable[[int, int], str]) -> list[list[str]]:
    """The labels of all sentences, which are IOB1, BIO or BIOES, in the given scheme.

    `places` names the place of a position in a sentence.
    """
    if scheme not in PREFIXES:
        raise ValueError(f"scheme is {scheme!r}; labels can be converted to {' or '.join(map(repr, PREFIXES))}.")
    is_bioes = any(label.startswith(("S-", "E-")) for labels in sentences for label in labels)
    converted = []
    for number, labels in enumerate(sentences):
        try:
            bio = bioes_to_bio(labels) if is_bioes else iob1_to_bio(labels)
        except LabelError as error:
            raise ValueError(f"{places(number, error.position)}: {error}") from None
        converted.append(bio_to_bioes(bio) if scheme == "BIOES" else bio)
    return converted


# --- Tagging ---------------------------------------------------------------------------------------------------------


def read_conll(
    path: PathLike, label_column: int = -1, word_column: int = 0, scheme: Scheme | None = None
) -> TaggingData:
    """Reads columns, one word a line, with an empty line after each sentence, as in CoNLL-2003.

    Columns are parted by tabs, or by spaces in lines without tabs. Lines with `-DOCSTART-` are boundaries, not words.

    Args:
        path: The file, UTF-8.
        label_column: Which column has the labels, from 0, or from -1 backwards.
        word_column: Which column has the words.
        scheme: `"BIO"` or `"BIOES"` to convert the labels of entities, which may be IOB1, BIO or BIOES; `None` leaves
            labels as they are, which need not be those of entities then.
    """
    reader = _SentenceReader(path)
    columns = None
    for number, line in _lines(path):
        if not line.strip():
            reader.end_sentence()
            continue
        fields = line.split("\t") if "\t" in line else line.split(" ")
        if "\t" not in line:
            fields = [field for field in fields if field]
        if DOCUMENT_START in fields:
            reader.end_sentence()
            continue
        if columns is None:
            columns = len(fields)
            for name, column in (("label_column", label_column), ("word_column", word_column)):
                if not -columns <= column < columns:
                    raise ValueError(
                        f"{path}: {name}={column}, but line {number} has {columns} columns, 0 to {columns - 1}."
                    )
        if len(fields) != columns:
            raise ValueError(f"{path}: line {number} has {len(fields)} columns, but the lines before have {columns}.")
        reader.add(number, fields[word_column], fields[label_column])
    reader.end_sentence()
    return reader.finish(scheme)


def read_conllu(path: PathLike, column: Literal["upos", "xpos"] = "upos") -> TaggingData:
    """Reads the words and parts of speech of a Universal Dependencies file (CoNLL-U).

    Multiword tokens, whose words follow, and empty nodes, which are not in the text, are left out.

    Args:
        path: The file.
        column: `"upos"` for the universal tags, `"xpos"` for those of the language.
    """
    if column not in CONLLU_LABELS:
        raise ValueError(f"column is {column!r}; CoNLL-U has the tags {' and '.join(map(repr, CONLLU_LABELS))}.")
    reader = _SentenceReader(path)
    for number, line in _lines(path):
        if line.startswith("#"):
            continue
        if not line:
            reader.end_sentence()
            continue
        fields = line.split("\t")
        if len(fields) != CONLLU_COLUMNS:
            raise ValueError(
                f"{path}: line {number} has {len(fields)} columns between tabs, but CoNLL-U has {CONLLU_COLUMNS}."
            )
        if CONLLU_NO_WORD.fullmatch(fields[0]):
            continue
        expected = len(reader.words) + 1
        if not CONLLU_WORD.fullmatch(fields[0]) or int(fields[0]) != expected:
            raise ValueError(
                f"{path}: line {number} has the word number {fields[0]!r}, but {expected} comes next in this "
                "sentence. Is an empty line between sentences missing, or a word?"
            )
        label = fields[CONLLU_LABELS[column]]
        if label == "_":
            raise ValueError(
                f"{path}: line {number} has no {column} ('_'). Choose another column or complete the file."
            )
        reader.add(number, fields[1], label)
    reader.end_sentence()
    return reader.finish()


class _SentenceReader:
    """The sentences of a file so far, and the one that is being read."""

    def __init__(self, path: PathLike):
        self.path = path
        self.data = TaggingData(Path(path).name, [], [])
        self.words: list[str] = []
        self.labels: list[str] = []
        self.numbers: list[int] = []  # of the lines
        self.all_numbers: list[list[int]] = []

    def add(self, number: int, word: str, label: str) -> None:
        for name, value in (("word", word), ("label", label)):
            if not value.strip():
                raise ValueError(f"{self.path}: line {number} has an empty {name}.")
        self.words.append(word)
        self.labels.append(label)
        self.numbers.append(number)

    def end_sentence(self) -> None:
        if not self.words:
            return
        self.data.sentences.append(self.words)
        self.data.labels.append(self.labels)
        self.all_numbers.append(self.numbers)
        self.words, self.labels, self.numbers = [], [], []

    def finish(self, scheme: Scheme | None = None) -> TaggingData:
        if not self.data.sentences:
            raise ValueError(f"{self.path} holds no sentence.")
        if scheme is None:
            return self.data
        labels = _convert(
            self.data.labels, scheme, lambda sentence, word: f"{self.path}: line {self.all_numbers[sentence][word]}"
        )
        return replace(self.data, labels=labels)


# --- Classification --------------------------------------------------------------------------------------------------


def read_sst(path: PathLike, classes: Literal["five", "binary"] = "five", phrases: bool = False) -> ClassificationData:
    """Reads the trees of the Stanford Sentiment Treebank, one a line: `(3 (2 It) (4 works))`.

    Brackets and slashes come without the escapes of treebanks (`-LRB-`, `\\/`).

    Args:
        path: The file.
        classes: `"five"` from very negative to very positive, or `"binary"`, which leaves neutral ones out.
        phrases: Whether to take every phrase of a tree that has a label, not only the whole sentence.
    """
    if classes not in ("five", "binary"):
        raise ValueError(f"classes is {classes!r}; the trees can be read as 'five' or 'binary'.")
    texts: list[list[str]] = []
    labels = []
    left_out = 0
    for number, line in _lines(path):
        if not line.strip():
            continue
        found = _phrases(line, f"{path}: line {number}")
        for label, words in found if phrases else found[-1:]:
            if classes == "binary" and label == 2:
                left_out += 1
                continue
            texts.append(words)
            labels.append(SST_LABELS[label] if classes == "five" else ("negative" if label < 2 else "positive"))
    if not texts:
        raise ValueError(f"{path} holds no tree with a label.")
    return ClassificationData(Path(path).name, texts, labels, is_split_into_words=True, left_out=left_out)


def _phrases(line: str, place: str) -> list[tuple[int, list[str]]]:
    """Label and words of each phrase in a tree, the whole sentence last."""
    words: list[str] = []
    open_phrases: list[tuple[int, int]] = []  # label, and the position of the first word
    phrases: list[tuple[int, list[str]]] = []
    tokens = SST_TOKEN.findall(line)
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if phrases and not open_phrases:
            raise ValueError(f"{place}: the tree is complete before {token!r}. There must be one tree on each line.")
        if token == "(":
            label = tokens[position + 1] if position + 1 < len(tokens) else ""
            if label not in ("0", "1", "2", "3", "4"):
                raise ValueError(f"{place}: a phrase has the label {label!r}; the labels of SST are 0 to 4.")
            open_phrases.append((int(label), len(words)))
            position += 1
        elif not open_phrases:
            raise ValueError(f"{place}: {token!r} is outside of the tree, which begins with '('.")
        elif token == ")":
            label_number, start = open_phrases.pop()
            if start == len(words):
                raise ValueError(f"{place}: a phrase has no word.")
            phrases.append((label_number, words[start:]))
        else:
            words.append(TREEBANK_ESCAPES.get(token, token.replace("\\/", "/").replace("\\*", "*")))
        position += 1
    if open_phrases:
        raise ValueError(f"{place}: {len(open_phrases)} brackets are not closed.")
    return phrases


def read_table(
    path: PathLike,
    text_column: str | int = "text",
    label_column: str | int = "label",
    second_text_column: str | int | None = None,
) -> ClassificationData:
    """Reads texts and labels from a table: `.csv` with quotes as usual, any other as tab-separated without quotes.

    Args:
        path: The file, UTF-8.
        text_column: Name of the column in the first line; numbers from 0 for a table without a line of names.
        label_column: Likewise.
        second_text_column: Likewise, for pairs.
    """
    wanted = [text_column, label_column] + ([] if second_text_column is None else [second_text_column])
    by_number = all(isinstance(column, int) for column in wanted)
    if not by_number and any(isinstance(column, int) for column in wanted):
        raise ValueError(f"The columns {wanted!r} are names and numbers: give all by name, or all by number.")
    rows = _table_rows(path)
    if not rows:
        raise ValueError(f"{path} is empty.")
    width = len(rows[0][1])
    names = list(range(width)) if by_number else rows.pop(0)[1]
    places = [_column(path, names, column) for column in wanted]
    texts, labels, second_texts = [], [], []
    for number, fields in rows:
        if len(fields) != width:
            raise ValueError(f"{path}: line {number} has {len(fields)} columns, but the first has {width}.")
        for column, place in zip(wanted, places, strict=True):
            if not fields[place].strip():
                raise ValueError(f"{path}: line {number} has nothing in the column {column!r}.")
        texts.append(fields[places[0]])
        labels.append(fields[places[1]].strip())
        second_texts.append(fields[places[-1]])
    if not texts:
        raise ValueError(f"{path} holds names of columns, but no text.")
    return ClassificationData(
        Path(path).name, texts, labels, second_texts=None if second_text_column is None else second_texts
    )


def _table_rows(path: PathLike) -> list[tuple[int, list[str]]]:
    """The fields of each row, and the line where it ends."""
    lines = _lines(path)
    if Path(path).suffix != ".csv":
        return [(number, line.split("\t")) for number, line in lines if line]
    reader = csv.reader([f"{line}\n" for _, line in lines], strict=True)
    try:
        return [(reader.line_num, fields) for fields in reader if fields]
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num} is not CSV: {error}.") from error


def _column(path: PathLike, names: Sequence[str | int], wanted: str | int) -> int:
    found = [place for place, name in enumerate(names) if name == wanted]
    if len(found) != 1:
        listed = ", ".join(map(repr, names))
        raise ValueError(f"{path} has {len(found) or 'no'} columns {wanted!r}, but one is needed. It has: {listed}.")
    return found[0]


# --- The library `datasets` ------------------------------------------------------------------------------------------


def read_tagging_dataset(
    name_or_path: PathLike,
    split: str = "train",
    words_column: str = "tokens",
    labels_column: str = "ner_tags",
    config: str | None = None,
    scheme: Scheme | None = None,
) -> TaggingData:
    """Reads sentences from a data set of `datasets`: on the Hub, or a folder that `save_to_disk` wrote.

    Args:
        name_or_path: What `load_dataset` or `load_from_disk` takes.
        split: Which part.
        words_column: The column with lists of words.
        labels_column: The column with lists of labels, as strings or as numbers that the data set has names for.
        config: The configuration of the data set, if it has several.
        scheme: As in `read_conll`.
    """
    dataset, source = _load_dataset(name_or_path, split, config, [words_column, labels_column])
    names = _class_names(dataset, labels_column)
    sentences, all_labels = [], []
    rows = zip(_values(dataset, words_column), _values(dataset, labels_column), strict=True)
    for row, (words, labels) in enumerate(rows):
        place = f"{source}: row {row}"
        if not isinstance(words, list) or not isinstance(labels, list) or len(words) != len(labels):
            raise ValueError(
                f"{place}: {words_column!r} and {labels_column!r} must be lists of one length, but are "
                f"{words!r:.60} and {labels!r:.60}."
            )
        for word in words:
            if not isinstance(word, str) or not word.strip():
                raise ValueError(f"{place} has the word {word!r}: words must be text that is not empty.")
        if not words:
            raise ValueError(f"{place} has no words. Filter such rows out.")
        sentences.append(words)
        all_labels.append([_label(label, names, place) for label in labels])
    if not sentences:
        raise ValueError(f"{source} holds no sentence.")
    if scheme is not None:
        all_labels = _convert(all_labels, scheme, lambda row, word: f"{source}: row {row}, word {word}")
    return TaggingData(source, sentences, all_labels)


def read_classification_dataset(
    name_or_path: PathLike,
    split: str = "train",
    text_column: str = "text",
    label_column: str = "label",
    second_text_column: str | None = None,
    config: str | None = None,
) -> ClassificationData:
    """Reads texts from a data set of `datasets`; those with the label -1, which means none, are left out.

    Args:
        name_or_path: What `load_dataset` or `load_from_disk` takes.
        split: Which part.
        text_column: The column with texts.
        label_column: The column with labels, as strings or as numbers; the names that the data set has for them.
        second_text_column: The column with the other text of each pair.
        config: The configuration of the data set, if it has several.
    """
    columns = [text_column] + ([] if second_text_column is None else [second_text_column])
    dataset, source = _load_dataset(name_or_path, split, config, [*columns, label_column])
    names = _class_names(dataset, label_column)
    taken: list[tuple[list[str], str]] = []
    for row, values in enumerate(zip(*(_values(dataset, column) for column in [*columns, label_column]), strict=True)):
        *texts, label = values
        if label == UNLABELED and names is not None:
            continue
        for text in texts:
            if not isinstance(text, str) or not text.strip():
                raise ValueError(
                    f"{source}: row {row} has the text {text!r}: texts must be strings that are not empty."
                )
        taken.append((texts, _label(label, names, f"{source}: row {row}")))
    if not taken:
        raise ValueError(f"{source} holds no text with a label.")
    return ClassificationData(
        source,
        [texts[0] for texts, _ in taken],
        [label for _, label in taken],
        second_texts=None if second_text_column is None else [texts[1] for texts, _ in taken],
        left_out=len(dataset) - len(taken),
    )


def _load_dataset(name_or_path: PathLike, split: str, config: str | None, columns: Iterable[str]) -> tuple[Any, str]:
    """The part of the data set, and how to call it in messages."""
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            'Reading a data set by name needs the library datasets: pip install "hf-elmo[train]"'
        ) from error
    folder = Path(name_or_path)
    source = f"{folder.name if folder.is_dir() else os.fspath(name_or_path)} ({split})"
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        loaded = datasets.load_from_disk(os.fspath(folder))
        if isinstance(loaded, datasets.DatasetDict):
            if split not in loaded:
                raise ValueError(f"{folder} has no split {split!r}, only {', '.join(map(repr, loaded))}.")
            loaded = loaded[split]
    else:
        loaded = load_data_set(os.fspath(name_or_path), config, split)
    for column in columns:
        if column not in loaded.column_names:
            raise ValueError(f"{source} has no column {column!r}, only {', '.join(map(repr, loaded.column_names))}.")
    return loaded, source


def _values(dataset: Any, column: str) -> list[Any]:
    return dataset[column][:]  # a list in old and new versions of the library


def _class_names(dataset: Any, column: str) -> list[str] | None:
    """The names of the numbers in a column of labels or of lists of labels."""
    feature = dataset.features[column]
    feature = getattr(feature, "feature", feature)
    return getattr(feature, "names", None)


def _label(value: Any, names: list[str] | None, place: str) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{place} has no label.")
    if names is None or isinstance(value, str):
        return str(value)
    if not 0 <= value < len(names):
        raise ValueError(f"{place} has the label {value}, but there are names for 0 to {len(names) - 1} only.")
    return names[value]


# --- Lines -----------------------------------------------------------------------------------------------------------


def _lines(path: PathLike) -> list[tuple[int, str]]:
    """The lines of a UTF-8 file, numbered from 1. Only a line feed ends a line, with or without a carriage return."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}: line {number} is not UTF-8. Convert the file, for example with iconv.") from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, start=1)]
