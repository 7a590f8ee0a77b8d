"""torch.export and torch.compile: one graph for batches of all shapes."""

import random
import warnings

import numpy as np
import pytest
import torch
from test_onnx import batch_of, random_shapes
from tiny import SENTENCES, encode, random_model, tiny_config
from torch._dynamo.testing import CompileCounter
from torch.testing import assert_close

from hf_elmo import (
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
)

READ = ("input_ids", "character_ids", "attention_mask")
BOTH = {"word_input": "both", "word_embedding_size": 3, "vocab_size": 20}
VECTORS = {"use_elmo": False, "word_vector_size": 3, "word_vector_vocab_size": 9}
CRF = {
    "use_crf": True,
    "crf_scheme": "BIO",
    "id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"},
    **VECTORS,
}


def tensors(config, shape, generator):
    names = (*READ, "word_vector_ids") if config.word_vector_size else READ
    arrays = batch_of(config, shape, generator)
    return {name: torch.from_numpy(arrays[name]) for name in names}


def exported(model, inputs, **options):
    """A graph for any number of sentences of any length, made with a batch of one shape."""
    batch, words = torch.export.Dim("batch"), torch.export.Dim("words")
    shapes = {name: {0: batch, 1: words} for name in inputs} | dict.fromkeys(options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about itself
        return torch.export.export(model.requires_grad_(False), (), inputs | options, dynamic_shapes=shapes).module()


def assert_same_at_any_shape(model, graph, **options):
    generator = np.random.default_rng(5)
    for shape in random_shapes(seed=11):
        inputs = tensors(model.config, shape, generator)
        with torch.no_grad():
            expected, found = model(**inputs, **options), graph(**inputs, **options)
        assert set(found) == set(expected)
        for name, right in expected.items():
            assert_close(found[name], right, atol=1e-5, rtol=0)


# Each LSTM takes seconds to export, so most of these have one layer.
@pytest.mark.promise("N9")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_class", "settings", "options"),
    [
        (ElmoModel, {}, {"output_hidden_states": True, "output_state": True}),
        (ElmoModel, {**BOTH, "num_hidden_layers": 1, "mix_layer_norm": "batch"}, {}),
        (ElmoForPreTraining, {"num_hidden_layers": 1}, {"output_logits": True}),
        (ElmoForTokenClassification, {"task_lstm_size": 5, **VECTORS}, {}),
        (ElmoForTokenClassification, CRF, {}),
        (ElmoForSequenceClassification, {"num_hidden_layers": 1, "pooling": "mean_max"}, {}),
    ],
)
def test_exported_graph_gives_the_same_at_any_shape(model_class, settings, options):
    model = random_model(tiny_config(**settings), model_class=model_class)
    inputs = tensors(model.config, (3, 7), np.random.default_rng(0))
    assert_same_at_any_shape(model, exported(model, inputs, **options), **options)


def test_what_cannot_be_exported_is_said():
    model = random_model()
    characters = {"character_ids": encode(SENTENCES)["character_ids"]}
    with pytest.raises(ValueError, match="input_ids is missing: whether sentences need boundaries cannot be told"):
        exported(model, characters)
    config = tiny_config(**CRF)
    model = random_model(config, model_class=ElmoForTokenClassification)
    inputs = tensors(config, (3, 7), np.random.default_rng(0))
    with pytest.raises(ValueError, match="a conditional random field for prediction only: give no labels"):
        exported(model, {**inputs, "labels": torch.zeros_like(inputs["input_ids"])})


def random_sentences(generator):
    return [" ".join(["cat"] * generator.randint(1, 30)) for _ in range(generator.randint(2, 8))]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch warns about itself when it compiles
def test_compiled_model_is_not_compiled_anew_for_each_length():
    torch._dynamo.reset()
    model = random_model(tiny_config(task_lstm_size=5), model_class=ElmoForTokenClassification)
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter)
    generator = random.Random(0)
    frames = []
    for _ in range(12):
        inputs = encode(random_sentences(generator))
        with torch.no_grad():
            assert_close(compiled(**inputs)[0], model(**inputs)[0], atol=1e-5, rtol=0)
        frames.append(counter.frame_count)
    assert frames[4] == frames[-1], f"compiled anew again and again: {frames}"
    torch._dynamo.reset()
