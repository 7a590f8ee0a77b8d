# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Old weights in, contextual vectors and neighbours out.

The weights are real but tiny: those of AllenNLP's own tests, with the vectors that the original TensorFlow program
computed from them. They show that everything works and that the numbers are right; they are too small to know much
about words.
"""

import json
import logging
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

import hf_elmo  # noqa: F401  # makes the Auto classes know ELMo
from hf_elmo.conversion import convert_allennlp
from hf_elmo.conversion.hdf5 import read_hdf5
from hf_elmo.scripts.original_wheels import allennlp_fixtures

TEXTS = [
    "She sat on the bank of the river and watched the boats.",
    "They moored the boat to the bank, where the river was calm.",
    "The bank raised its interest rate again, Mr. O'Neill said.",
    "He didn't trust the bank with all of his savings ($1,000.50).",
]
WORD = "bank"


def main() -> None:
    transformers_logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    print("1. Weights from the AllenNLP 0.9.0 wheel, converted to a Hub folder")
    source = allennlp_fixtures() / "elmo"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "elmo-tiny"
        report = convert_allennlp(source / "options.json", source / "lm_weights.hdf5", folder)
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
        files = sorted(path.name for path in folder.iterdir())
    print(f"   {report.num_parameters:,} weights; {', '.join(files)}")
    print(f"   parity: {report.parity}")

    print("\n2. The vectors that TensorFlow computed in 2018, computed again")
    print(f"   {compare_with_tensorflow(source, tokenizer, model)}")

    print("\n3. Text in, one vector a word out")
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    words = [tokenizer.tokenize(text) for text in TEXTS]
    with torch.no_grad():
        outputs = model(**batch, output_hidden_states=True)
    for number, text in enumerate(TEXTS):
        print(f"   {text}\n   -> {' '.join(words[number])}")
    vectors = outputs.last_hidden_state
    print(f"   {tuple(vectors.shape)}: sentences, words with <S> and </S>, dimensions")
    weights, gamma = model.layer_weights()
    shares = [round(weight, 3) for weight in weights.tolist()]
    print(f"   mixed from {len(weights)} layers with the weights {shares}, gamma {gamma:.1f}")

    print(f"\n4. Neighbours of '{WORD}' in the first sentence among all words of all sentences: cosine, by layer")
    for number, layer in enumerate((*outputs.hidden_states, vectors)):
        name = ["characters", "LSTM 1", "LSTM 2", "ELMo mix"][number]
        print(f"   {name:>10}   {neighbours(layer, words)}")
    print("   Without context (characters) the four 'bank' are one and the same; with context each is another.")

    print("\n5. The same sentence alone and among others")
    alone = model(**tokenizer(TEXTS[1], return_tensors="pt")).last_hidden_state[0]
    print(f"   largest difference: {(alone - vectors[1, : len(alone)]).abs().max():.1e}")


@torch.no_grad()
def compare_with_tensorflow(source: Path, tokenizer, model) -> str:  # type: ignore[no-untyped-def]
    """Reads the stored sentences as the original did, in batches of three with carried state."""
    lists = json.loads((source / "sentences.json").read_text())
    width = model.config.projection_size
    stored = [
        read_hdf5(
            source / f"lm_embeddings_{k}.hdf5",
            {str(i): (2, len(text.split()), width) for i, text in enumerate(texts)},
        )
        for k, texts in enumerate(lists)
    ]
    state, largest, values = None, 0.0, 0
    for i, texts in enumerate(zip(*lists, strict=True)):
        words = [text.split() for text in texts]
        batch = tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt")
        outputs = model(**batch, initial_state=state, output_state=True, output_hidden_states=True)
        state = outputs.state
        for k, sentence in enumerate(words):
            expected = np.concatenate(stored[k][str(i)], axis=1)  # (words, both directions)
            found = outputs.hidden_states[-1][k, 1 : len(sentence) + 1].numpy()
            largest = max(largest, float(np.abs(found - expected).max()))
            values += expected.size
    return f"30 sentences, {values:,} values of the top layer: largest difference {largest:.1e}"


def neighbours(layer: torch.Tensor, words: list[list[str]], count: int = 5) -> str:
    """The words nearest to WORD of the first sentence, each with the number of its sentence and the cosine."""
    places = [(row, column) for row, sentence in enumerate(words) for column in range(len(sentence))]
    vectors = torch.stack([layer[row, column + 1] for row, column in places])  # the first position is <S>
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    query = places.index((0, words[0].index(WORD)))
    cosines = vectors @ vectors[query]
    cosines[query] = -torch.inf
    best = cosines.topk(count)
    named = [f"{words[row][column]}({row + 1})" for row, column in (places[i] for i in best.indices.tolist())]
    return "  ".join(f"{name} {cosine:.2f}" for name, cosine in zip(named, best.values.tolist(), strict=True))


if __name__ == "__main__":
    main()
