# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The vectors of one model in the space of another, from a dictionary and text of both languages.

A word stands for itself by its anchor, the mean of its vectors over a text. Procrustes finds the rotation (or
reflection) that brings the anchors of words closest to those of their translations, and words that were held out tell
how good it is. Vectors x of the model then become x M^T (`ElmoModel` with `use_alignment`).

Shape letters: K words, D width of a vector, S words of the source, T words of the target.
"""

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from .configuration_elmo import ElmoConfig
from .modeling_elmo import ElmoModel
from .text_files import open_text
from .tokenization_elmo import ElmoTokenizer

WORDS_PER_BATCH = 2048  # bounds the memory; the largest model takes about 300 MB for them
LONGEST_SENTENCE = 400  # words; longer ones are cut
NEIGHBOURS = 10  # that tell how crowded the space is around a word
ROWS_AT_ONCE = 1024  # of a table of all words by all words

Pair = tuple[str, str]


# --- The dictionary --------------------------------------------------------------------------------------------------


def read_dictionary(path: str | os.PathLike[str]) -> list[Pair]:
    """Reads pairs of words, one a line, the word and its translation with white space between, as MUSE has them.

    Args:
        path: The file, UTF-8; .gz, .xz and .zst are decompressed.

    Returns:
        The pairs in their order, each once. A word may have several translations.

    Raises:
        ValueError: If a line is not two words, or there is none; names the line.
        FileNotFoundError: If there is no such file.
    """
    pairs: dict[Pair, None] = {}
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                words = line.decode("utf-8-sig" if number == 1 else "utf-8").split()
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: line {number} is not UTF-8. Convert the dictionary.") from error
            if not words:
                continue
            if len(words) != 2:
                raise ValueError(
                    f"{path}: line {number} has {len(words)} words; a line must be a word and its translation, with a "
                    "space or a tab between."
                )
            pairs[words[0], words[1]] = None
    if not pairs:
        raise ValueError(f"{path} has no pairs of words.")
    return list(pairs)


def in_lower_case(pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs in lower case, each once."""
    return list(dict.fromkeys((source.lower(), target.lower()) for source, target in pairs))


# --- Anchors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Anchors:
    """The mean vectors of words.

    Args:
        words: The words.
        vectors: (K, D), float64 on the CPU; zero for words that do not occur.
        counts: How many occurrences each of them is the mean of.
    """

    words: list[str]
    vectors: Tensor
    counts: list[int]

    def times(self, matrix: Tensor) -> "Anchors":
        """The anchors of vectors x M^T."""
        return Anchors(self.words, self.vectors @ matrix.to(self.vectors).T, self.counts)

    def places(self, min_occurrences: int = 1) -> dict[str, int]:
        """The row of each word that occurs so often."""
        counted = enumerate(zip(self.words, self.counts, strict=True))
        return {word: row for row, (word, count) in counted if count >= min_occurrences}


class _Occurrence(NamedTuple):
    sentence: int  # of the batch
    position: int  # in the sentence
    word: int


@torch.no_grad()
def word_anchors(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    sentences: Iterable[Sequence[str]],
    words: Sequence[str],
    *,
    layer: int = 1,
    max_occurrences: int | None = None,
    ignore_case: bool = False,
    words_per_batch: int = WORDS_PER_BATCH,
) -> Anchors:
    """The mean vector of each of `words` over its occurrences in the sentences.

    The sentences are read one batch at a time, and those without any of the words are not computed at all.

    Args:
        model: The model, in evaluation mode.
        tokenizer: Its tokenizer.
        sentences: Lists of words; the text is read until it ends or all words have `max_occurrences`.
        words: Which words, each once.
        layer: Which layer of the model: 0 is the words by themselves, 1 the first LSTM layer.
        max_occurrences: How many occurrences of a word count, the first ones; by default all.
        ignore_case: Whether the words of the text are put into lower case before they are looked for.
        words_per_batch: A batch is computed when it has this many words.
    """
    check_layer(cast(ElmoConfig, model.config), layer)
    rows = {word: row for row, word in enumerate(words)}
    if len(rows) < len(words):
        raise ValueError(f"{len(words) - len(rows)} of the words occur more than once in the list of words.")
    sums = torch.zeros(len(words), model.config.hidden_size, dtype=torch.float64)
    counts = [0] * len(words)
    unfinished = len(words)
    batch: list[Sequence[str]] = []
    occurrences: list[_Occurrence] = []
    for sentence in _cut(sentences):
        if unfinished == 0:
            break
        before = len(occurrences)
        for position, word in enumerate(sentence):
            row = rows.get(word.lower() if ignore_case else word)
            if row is None or counts[row] == max_occurrences:
                continue
            counts[row] += 1
            unfinished -= counts[row] == max_occurrences
            occurrences.append(_Occurrence(len(batch), position, row))
        if len(occurrences) == before:
            continue
        batch.append(sentence)
        if sum(map(len, batch)) >= words_per_batch:
            _add_vectors(sums, model, tokenizer, batch, occurrences, layer)
            batch, occurrences = [], []
    if batch:
        _add_vectors(sums, model, tokenizer, batch, occurrences, layer)
    return Anchors(list(words), sums / torch.tensor(counts).clamp(min=1).unsqueeze(1), counts)


def _cut(sentences: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
    for sentence in sentences:
        for start in range(0, len(sentence), LONGEST_SENTENCE):
            yield sentence[start : start + LONGEST_SENTENCE]


def _add_vectors(
    sums: Tensor,
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    batch: list[Sequence[str]],
    occurrences: list[_Occurrence],
    layer: int,
) -> None:
    """Adds the vectors of the occurrences to the sums of their words."""
    encoded = tokenizer(list(map(list, batch)), is_split_into_words=True, padding=True, return_tensors="pt")
    begins = [encoded.word_ids(sentence).index(0) for sentence in range(len(batch))]  # of the words, after <S>
    outputs = model(**encoded.to(model.device), output_hidden_states=True, return_dict=True)
    sentences = torch.tensor([one.sentence for one in occurrences])
    positions = torch.tensor([begins[one.sentence] + one.position for one in occurrences])
    vectors = outputs.hidden_states[layer].cpu()[sentences, positions]  # (occurrences, D)
    sums.index_add_(0, torch.tensor([one.word for one in occurrences]), vectors.double())


def check_layer(config: ElmoConfig, layer: int) -> None:
    """Refuses the number of a layer that the model does not have."""
    if not 0 <= layer <= config.num_hidden_layers:
        raise ValueError(
            f"layer={layer} is not possible: the model has the layers 0 (the words) to {config.num_hidden_layers} "
            "(the top)."
        )


# --- The matrix ------------------------------------------------------------------------------------------------------


def procrustes(source: Tensor, target: Tensor, center: bool = False) -> Tensor:
    """The orthogonal M (D, D) for which source M^T is closest to target: U V^T of the SVD of target^T source.

    Args:
        source: (K, D).
        target: (K, D), row by row what the source should become.
        center: Whether the mean of each of the two is taken off first, so that only what differs between words
            decides. The matrix is for vectors with their means all the same.

    Returns:
        The matrix, float64.
    """
    if source.shape != target.shape:
        raise ValueError(
            f"The source is {tuple(source.shape)} and the target {tuple(target.shape)}: an orthogonal matrix needs "
            "pairs of vectors of one width."
        )
    source, target = source.double(), target.double()
    if center:
        source, target = source - source.mean(dim=0), target - target.mean(dim=0)
    left, _, right = torch.linalg.svd(target.T @ source)
    return left @ right


def csls(queries: Tensor, targets: Tensor, sources: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """Cross-domain similarity local scaling, 2 cos(x, y) - r(x) - r(y), of all queries x and targets y.

    r is the mean cosine with the nearest vectors of the other side, which is large for those that are near to all, so
    that they do not become everyone's translation.

    Args:
        queries: (Q, D), in the space of the targets.
        targets: (T, D).
        sources: (S, D), in the space of the targets: all words of the queries' side.
        neighbours: How many vectors are the nearest ones.

    Returns:
        (Q, T).
    """
    cosines = cosine_table(queries, targets)
    crowd_of_queries = _mean_of_largest(cosines, neighbours)
    parts = [cosine_table(part, sources) for part in targets.split(ROWS_AT_ONCE)]
    crowd_of_targets = torch.cat([_mean_of_largest(part, neighbours) for part in parts])
    return 2 * cosines - crowd_of_queries.unsqueeze(1) - crowd_of_targets


def cosine_table(rows: Tensor, columns: Tensor) -> Tensor:
    """The cosine of each of `rows` (R, D) with each of `columns` (C, D), as (R, C)."""
    return torch.nn.functional.normalize(rows, dim=1) @ torch.nn.functional.normalize(columns, dim=1).T


def _mean_of_largest(table: Tensor, count: int) -> Tensor:
    return table.topk(min(count, table.shape[1]), dim=1).values.mean(dim=1)


# --- How good it is --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlignmentFigures:
    """How near words are to their translations.

    Args:
        mean_cosine: Of the pairs.
        nearest_precision: Share of the words whose nearest target word is a translation; `None` if none was held out.
        csls_precision: The same with `csls`.
    """

    mean_cosine: float
    nearest_precision: float | None = None
    csls_precision: float | None = None


@dataclass(frozen=True, kw_only=True)
class AlignmentReport:
    """What a matrix was made of and how good it is.

    Args:
        layer: The layer it is for.
        size: Width of the vectors, D.
        pairs: Pairs of the dictionary.
        missing_source: Of these, pairs whose source word is too rare in the source text.
        missing_target: Pairs whose target word is too rare in the target text.
        training_pairs: Pairs the matrix was made of.
        test_pairs: Pairs that were held out.
        test_words: Source words that were held out.
        candidates: Target words among which a translation was looked for.
        min_occurrences: How rare is too rare.
        center: Whether the means were taken off.
        seed: What chose the words that were held out.
        before: Figures of the pairs that were held out, or if there are none, of the training pairs, without the
            matrix.
        after: The same with the matrix.
    """

    layer: int
    size: int
    pairs: int
    missing_source: int
    missing_target: int
    training_pairs: int
    test_pairs: int
    test_words: int
    candidates: int
    min_occurrences: int
    center: bool
    seed: int
    before: AlignmentFigures
    after: AlignmentFigures

    def to_dict(self) -> dict[str, Any]:
        """All figures, as something that JSON can hold."""
        return asdict(self)

    def __str__(self) -> str:
        used = self.training_pairs + self.test_pairs
        lines = [
            f"pairs: {self.pairs:,} given, {used:,} used ({self.training_pairs:,} for the matrix, {self.test_pairs:,} "
            f"held out); {self.missing_source:,} missing in the source text, {self.missing_target:,} in the target "
            "text",
            f"mean cosine of a word and its translation{'' if self.test_pairs else ' (training pairs)'}: "
            f"{self.before.mean_cosine:.4f} before, {self.after.mean_cosine:.4f} after",
        ]
        if self.test_pairs:
            lines.append(
                f"precision@1 of {self.test_words:,} words among {self.candidates:,}: nearest neighbour "
                f"{self.before.nearest_precision:.2%} before, {self.after.nearest_precision:.2%} after; CSLS "
                f"{self.before.csls_precision:.2%} before, {self.after.csls_precision:.2%} after"
            )
        if self.training_pairs < self.size:
            lines.append(
                f"note: {self.training_pairs:,} pairs do not determine a matrix of {self.size} x {self.size}; give "
                "more text or a larger dictionary"
            )
        return "\n".join(lines)


def align_anchors(
    pairs: Sequence[Pair],
    source: Anchors,
    target: Anchors,
    *,
    layer: int = 1,
    min_occurrences: int = 1,
    held_out: float = 0.2,
    seed: int = 0,
    center: bool = False,
) -> tuple[Tensor, AlignmentReport]:
    """The matrix (D, D) from the space of the source to that of the target, and how good it is.

    Args:
        pairs: The dictionary.
        source: Anchors of its source words.
        target: Anchors of its target words.
        layer: The layer they are of, for the report.
        min_occurrences: Pairs with a word that occurs less often are left out.
        held_out: Share of the source words that the matrix is not made of but tried on; 0 for none.
        seed: Chooses them.
        center: As in `procrustes`.
    """
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out={held_out} is not possible: it must be at least 0 and below 1.")
    if min_occurrences < 1:
        raise ValueError(f"min_occurrences={min_occurrences} is not possible: it must be 1 or more.")
    sources, targets = source.places(min_occurrences), target.places(min_occurrences)
    used = [(sources[one], targets[other]) for one, other in pairs if one in sources and other in targets]
    if not used:
        raise ValueError(
            f"No pair of the dictionary has both words at least {min_occurrences} times in the texts, where "
            f"{len(sources):,} of its source words and {len(targets):,} of its target words are. Is it of these two "
            "languages, in this order, and spelled as in the texts? Dictionaries are often in lower case."
        )
    test_words = _held_out({one for one, _ in used}, held_out, seed)
    training = [pair for pair in used if pair[0] not in test_words]
    test = [pair for pair in used if pair[0] in test_words]
    matrix = procrustes(*_rows_of(training, source, target), center=center)
    trial = _Trial(training, test, list(sources.values()), list(targets.values()))
    report = AlignmentReport(
        layer=layer,
        size=matrix.shape[0],
        pairs=len(pairs),
        missing_source=sum(one not in sources for one, _ in pairs),
        missing_target=sum(other not in targets for _, other in pairs),
        training_pairs=len(training),
        test_pairs=len(test),
        test_words=len(test_words),
        candidates=len(targets),
        min_occurrences=min_occurrences,
        center=center,
        seed=seed,
        before=trial.figures(source, target),
        after=trial.figures(source.times(matrix), target),
    )
    return matrix, report


def _held_out(words: set[int], share: float, seed: int) -> set[int]:
    if share == 0:
        return set()
    if len(words) < 2:
        raise ValueError(
            f"held_out={share} leaves nothing to make a matrix of: only one word of the dictionary can be used. Give "
            "more text, or hold out none."
        )
    count = min(max(round(share * len(words)), 1), len(words) - 1)
    return set(random.Random(seed).sample(sorted(words), count))


def _rows_of(pairs: list[tuple[int, int]], source: Anchors, target: Anchors) -> tuple[Tensor, Tensor]:
    return source.vectors[[one for one, _ in pairs]], target.vectors[[other for _, other in pairs]]


class _Trial(NamedTuple):
    """Rows of anchors: the pairs of the matrix and those held out, and all words of either side."""

    training: list[tuple[int, int]]
    test: list[tuple[int, int]]
    sources: list[int]
    targets: list[int]

    def figures(self, source: Anchors, target: Anchors) -> AlignmentFigures:
        """Of the pairs that were held out, or else of the others."""
        cosine = torch.nn.functional.cosine_similarity(*_rows_of(self.test or self.training, source, target)).mean()
        if not self.test:
            return AlignmentFigures(mean_cosine=float(cosine))
        translations: dict[int, set[int]] = {}
        for one, other in self.test:
            translations.setdefault(one, set()).add(other)
        queries, candidates = source.vectors[list(translations)], target.vectors[self.targets]
        scores = {
            "nearest_precision": cosine_table(queries, candidates),
            "csls_precision": csls(queries, candidates, source.vectors[self.sources]),
        }
        precisions = {name: self._precision(table, list(translations.values())) for name, table in scores.items()}
        return AlignmentFigures(mean_cosine=float(cosine), **precisions)

    def _precision(self, scores: Tensor, translations: list[set[int]]) -> float:
        best = [self.targets[column] for column in scores.argmax(dim=1).tolist()]
        return sum(row in right for row, right in zip(best, translations, strict=True)) / len(translations)


# --- The model -------------------------------------------------------------------------------------------------------


def with_alignment(model: ElmoModel, matrix: Tensor, layer: int = 1) -> ElmoModel:
    """A model whose vectors are those of one layer times the matrix, x M^T.

    Mixes and an alignment that the model has are left out; all other weights are shared with it.

    Args:
        model: The model.
        matrix: M (D, D).
        layer: Which layer; see `word_anchors`.
    """
    check_layer(cast(ElmoConfig, model.config), layer)
    size = model.config.hidden_size
    matrix = matrix.detach().to(model.dtype)
    if tuple(matrix.shape) != (size, size):
        raise ValueError(f"The matrix is {tuple(matrix.shape)}, but the vectors of this model need ({size}, {size}).")
    if not bool(matrix.isfinite().all()):
        raise ValueError(f"The matrix has values that are NaN or infinite in {model.dtype}.")
    changes = {
        "layer_combination": layer,
        "num_output_representations": 1,
        "mix_layer_norm": None,
        "use_alignment": True,
    }
    left_out = ("mixes.", "alignment.")
    weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith(left_out)}
    with torch.device("meta"):
        aligned = ElmoModel(ElmoConfig.from_dict(model.config.to_dict() | changes))
    aligned.load_state_dict(weights | {"alignment.matrix": matrix.contiguous().clone()}, strict=True, assign=True)
    return aligned.eval()
