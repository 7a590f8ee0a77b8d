"""The programs for TensorFlow, simple_elmo and bilm-tf, run as they are: their vectors, scores and perplexities."""

import json

import numpy as np
import pytest
import torch
from measure_migration import PROGRAMS, RESULTS
from tensorflow_python import needs_tensorflow

from hf_elmo import ElmoForPreTraining, ElmoTokenizer

pytestmark = [pytest.mark.slow, needs_tensorflow]


@pytest.mark.parametrize("program", ["simple_elmo", "bilm-tf"])
def test_vectors_of_the_original_program(tmp_path, program):
    """All layers and their combinations, with the state carried as there, of characters and of token embeddings."""
    figures = PROGRAMS[program](tmp_path)
    assert figures.keys() == json.loads(RESULTS.read_text(encoding="utf-8"))["figures"][program].keys()
    assert max(figures.values()) < 1e-5, figures


def test_language_models_of_the_original_program(tmp_path):
    """Trained, tested and dumped by bilm-tf, of characters and of words: scores, perplexities, weights."""
    program = "bilm-tf's language models"
    figures = PROGRAMS[program](tmp_path)
    assert figures.keys() == json.loads(RESULTS.read_text(encoding="utf-8"))["figures"][program].keys()
    assert max(figures.values()) < 1e-5, figures
    check_substitutes(tmp_path)


@torch.inference_mode()
def check_substitutes(place):
    """What simple_elmo calls substitutes are the scores after each word alone, without the words before it."""
    theirs = np.load(place / "training-characters" / "found.npz")
    folder = place / "training-characters" / "converted"
    model, tokenizer = ElmoForPreTraining.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    words = ["<S>", *(place / "first.txt").read_text(encoding="utf-8").split()]
    alone = tokenizer(
        [[word] for word in words[:-1]], is_split_into_words=True, add_special_tokens=False, return_tensors="pt"
    )
    ours = model(**alone, output_logits=True).forward_logits[:, 0].numpy()
    ranked = np.take_along_axis(ours, theirs["substitutes"], axis=1)
    np.testing.assert_allclose(ranked, theirs["substitute_scores"], atol=6e-5)  # theirs are rounded
    in_context = tokenizer([words[1:]], is_split_into_words=True, return_tensors="pt")
    read = model(**in_context, output_logits=True).forward_logits[0, : len(ours)].numpy()
    assert np.abs(read[0] - ours[0]).max() < 1e-5
    assert np.abs(read[1:] - ours[1:]).max() > 1e-3
