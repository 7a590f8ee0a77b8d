# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares a finished model folder with an independent computation from the weights it was made of."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np
import torch

from hf_elmo.checked_loading import load_config as load_config
from hf_elmo.messages import reading_weights
from hf_elmo.modeling_elmo import ElmoModel, ElmoPreTrainedModel, ElmoState
from hf_elmo.tokenization_elmo import ElmoTokenizer

# In float64 a right model differs by rounding, far below this, and a wrong one by far more. In float32 there is no
# such line: how much rounding grows depends on the weights.
LIMIT = 1e-9

# Short and long, long words, other scripts, marks, an empty word, repeated words.
SENTENCES = [
    "The river bank was muddy after the storm , and nobody went there .".split(),
    ["Hi"],
    "« Ça va ? » — 안녕하세요 , Ελλάδα , мир , 世界 , नमस्ते 🙂 !".split(),
    ["Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft", "x" * 300, "", "<UNK>", "'s"],
    "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo .".split(),
    "It 's $ 3.50 ( about 3 % ) : \" isn 't it \" ?".split(),
]

# Makes the ids that the reference reads, (T, W) or (T,), of the words of a sentence; T has both boundaries.
ReferenceIds = Callable[[list[str]], np.ndarray]

# Computes all layers (L+1, T, 2P) of one sentence, given as such ids, and its final state h (L, 2P), c (L, 2C), from
# the state before it or None.
Reference = Callable[[np.ndarray, Any], tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]]

Model = TypeVar("Model", bound=ElmoPreTrainedModel)


@dataclass(frozen=True)
class Parity:
    """How far a model is from its source.

    Args:
        float32: Largest absolute difference of any value of any layer, computed in float32.
        float64: The same, computed in float64.
        layers: Number of layers compared.
        sentences: Number of sentences.
        tokens: Number of tokens in all of them, sentence boundaries included.
    """

    float32: float
    float64: float
    layers: int
    sentences: int
    tokens: int

    def __str__(self) -> str:
        return (
            f"max |difference| {self.float32:.1e} in float32, {self.float64:.1e} in float64 (limit {LIMIT:.0e}) over "
            f"{self.layers} layers, {self.sentences} sentences, {self.tokens} tokens, from zero and from carried "
            "state, against an independent float64 computation"
        )


def verify_folder(
    folder: str | os.PathLike[str],
    reference: Reference,
    reference_ids: ReferenceIds | None = None,
    more_sentences: Sequence[list[str]] = (),
) -> Parity:
    """Loads the folder as its users will and compares all layers of a few sentences with the reference.

    The sentences are read as one padded batch, once from zeros and once more from the state that is left.

    Args:
        folder: Folder with the model and the tokenizer.
        reference: The independent computation.
        reference_ids: The ids that it reads, of the words of a sentence without boundaries; by default their bytes, as
            in `character_rows`.
        more_sentences: Sentences to compare beside those that are always there, such as one of words in the
            vocabulary.

    Raises:
        ValueError: If the weights of the folder are not exactly those the model needs, or the difference is too large.
    """
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    sentences = [*SENTENCES, *more_sentences]
    batch = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    rows = list(map(reference_ids or bytes_of(tokenizer), sentences))
    first, second = [], []
    for ids in rows:
        layers, state = reference(ids, None)
        first.append(layers)
        second.append(reference(ids, state)[0])

    differences = {}
    for dtype in (torch.float64, torch.float32):
        found = layers_twice(load_exactly(folder, dtype), batch)
        differences[dtype] = max(
            largest_difference(ours, theirs) for ours, theirs in zip(found, (first, second), strict=True)
        )
    parity = Parity(
        float32=differences[torch.float32],
        float64=differences[torch.float64],
        layers=len(first[0]),
        sentences=len(rows),
        tokens=sum(map(len, rows)),
    )
    if not (parity.float64 <= LIMIT and np.isfinite(parity.float32)):
        raise ValueError(f"The converted model does not compute what its source does, so it was not kept: {parity}.")
    return parity


@overload
def load_exactly(folder: str | os.PathLike[str], dtype: torch.dtype) -> ElmoModel: ...


@overload
def load_exactly(folder: str | os.PathLike[str], dtype: torch.dtype, model_class: type[Model]) -> Model: ...


def load_exactly(folder: str | os.PathLike[str], dtype: torch.dtype, model_class: Any = ElmoModel) -> Any:
    """Loads a model whose folder has every weight the model needs, in its shape, finite, and no other.

    Raises:
        ValueError: If that is not so; names the weights. transformers itself would load such a folder.
    """
    with reading_weights(folder):  # what is missing is told here
        loaded: Any = model_class.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, ignore_mismatched_sizes=True, output_loading_info=True
        )
    model, loading = loaded
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if loading[kind]:
            names = [_with_shapes(*key) if isinstance(key, tuple) else key for key in loading[kind]]
            raise ValueError(
                f"{folder}: {kind.replace('_', ' ')} in the weights: {_listed(names)}. Get the folder again, or the "
                "config that belongs to it."
            )
    broken = [name for name, weight in model.state_dict().items() if not bool(weight.isfinite().all())]
    if broken:
        raise ValueError(f"{folder}: the weights {_listed(broken)} hold NaN or infinite values. Get the folder again.")
    return model.eval()


def bytes_of(tokenizer: ElmoTokenizer) -> ReferenceIds:
    """Character ids (T, W) of the words of sentences, in the width that the tokenizer has."""
    width = tokenizer.max_characters_per_token
    return lambda sentence: character_rows(["<S>", *sentence, "</S>"], width)


def character_rows(words: Iterable[str], width: int) -> np.ndarray:
    """Character ids (words, width), written down a second time so that the tokenizer is verified, too."""
    markers = {"<S>": [256], "</S>": [257]}
    rows = []
    for word in words:
        spelling = markers.get(word) or list(word.encode("utf-8", "ignore"))[: width - 2]
        row = [258, *spelling, 259]
        rows.append(row + [260] * (width - len(row)))
    return np.array(rows) + 1


def words_of_lines(vocabulary: str | os.PathLike[str]) -> list[str]:
    """The words of a vocabulary by id, read a second time, so that the ids of the tokenizer are verified, too."""
    with open(vocabulary, encoding="utf-8", newline="\n") as file:
        words = [line.rstrip("\r\n") for line in file]
    return [word for word in words if word != "!!!MAXTERMID"]


def numbers_of(words: Sequence[str]) -> ReferenceIds:
    """Word ids (T,) of the words of sentences: their places among these words, or that of `<UNK>`."""
    ids = {word: number for number, word in enumerate(words)}
    return lambda sentence: np.array([ids.get(word, ids["<UNK>"]) for word in ("<S>", *sentence, "</S>")])


def sentence_of(words: Sequence[str], length: int = 50) -> list[str]:
    """A sentence of words from all parts of a vocabulary, the first and the last among them."""
    places = np.linspace(0, len(words) - 1, min(length, len(words))).round().astype(int)
    return [words[place] for place in places]


@torch.no_grad()
def layers_twice(model: ElmoModel, batch: Any) -> list[list[np.ndarray]]:
    """All layers of each sentence, from zeros and from the state that is left then."""
    passes = []
    state: ElmoState | None = None
    for _ in range(2):
        outputs = model(**batch, initial_state=state, output_hidden_states=True, output_state=True)
        state = outputs.state
        layers = torch.stack(outputs.hidden_states, dim=1)  # (B, L+1, T, 2P)
        lengths = batch["attention_mask"].sum(dim=1).tolist()
        passes.append([sentence[:, :length].numpy() for sentence, length in zip(layers, lengths, strict=True)])
    return passes


def largest_difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """The largest difference; infinite if shapes differ or a value is not a number."""
    if [one.shape for one in ours] != [other.shape for other in theirs]:
        return float("inf")
    largest = max(float(np.abs(one - other).max()) for one, other in zip(ours, theirs, strict=True))
    return largest if np.isfinite(largest) else float("inf")


def _with_shapes(name: str, found: Iterable[int], needed: Iterable[int]) -> str:
    return f"{name} (shape {tuple(found)}, not {tuple(needed)})"


def _listed(names: Iterable[Any]) -> str:
    ordered = sorted(map(str, names))
    return ", ".join(ordered[:5]) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "")
