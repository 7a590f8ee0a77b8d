"""The fast paths beside the plain one, forward and backward."""

import copy
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from tiny import SENTENCES, encode, random_model, tiny_config
from torch.testing import assert_close

from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoModel,
    ElmoState,
    batch_to_ids,
    fast_paths,
    modeling_elmo,
    modeling_elmo_words,
    products,
    recurrence,
)
from hf_elmo.fast_paths import (
    WordCache,
    different_rows,
    groups_of_similar_length,
    highest_scores,
    plain_path,
)
from hf_elmo.recurrence import DifferentiableLstm
from hf_elmo.threads import WithoutPython, one_thread

CLOSE = {"atol": 1e-6, "rtol": 1e-6}  # values without clips are larger than 1, and round in proportion
CONFIGS = {
    "as published": {},
    "tanh": {"char_cnn_activation": "tanh", "use_skip_connections": False, "num_hidden_layers": 3},
    "no clips": {"cell_clip": None, "projection_clip": None, "num_highway_layers": 0},
    "no projections": {"project_words": False, "project_cells": False, "projection_size": 16, "cell_size": 16},
    "filters that do not go together": {"char_cnn_filters": [[1, 20], [20, 1]]},
    "a filter as wide as a word": {"char_cnn_filters": [[2, 3], [50, 4]]},
    "words and characters": {"word_input": "both", "word_embedding_size": 5, "vocab_size": 9},
}


def inputs_for(model, sentences=SENTENCES) -> dict[str, torch.Tensor]:
    """With word ids that the small vocabulary of the model has."""
    inputs = dict(encode(sentences))
    inputs["input_ids"] = inputs["character_ids"].sum(dim=2) % (model.config.vocab_size - 1)
    return inputs


def results(model, **inputs) -> list[torch.Tensor]:
    outputs = model(**inputs, output_hidden_states=True, output_state=True)
    return [outputs.last_hidden_state, *outputs.hidden_states, *outputs.state]


def gradients(model, inputs) -> dict[str, torch.Tensor]:
    model.zero_grad()
    sum((value.sin() * number).sum() for number, value in enumerate(results(model, **inputs), start=1)).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.fixture(params=["its own tanh", "tanh by way of the sigmoid"])
def either_tanh(request, monkeypatch) -> None:
    """Large batches take another way to the tanh, on some processors."""
    monkeypatch.setattr(recurrence, "FEWEST_FOR_SIGMOID", 2**62)
    if request.param != "its own tanh":
        monkeypatch.setattr(recurrence, "FEWEST_FOR_SIGMOID", 0)


@pytest.fixture(params=[1, 4, None])
def some_words_at_a_time(request, monkeypatch) -> None:
    """With a gradient, long batches are read in pieces, of at least one step."""
    if request.param is not None:
        monkeypatch.setattr(recurrence, "WORDS_PER_GRADIENT", request.param)


@pytest.fixture
def by_mkl(monkeypatch) -> None:
    monkeypatch.setattr(products, "MKL_IS_BEHIND", False)


@pytest.fixture
def by_onednn(monkeypatch) -> None:
    """All products, those of one row, too, as on AMD's processors with AVX-512."""
    monkeypatch.setattr(products, "MKL_IS_BEHIND", True)
    monkeypatch.setattr(products, "FEWEST_ROWS_FOR_ONEDNN", 1)


WAYS = {
    "by MKL": ["by_mkl"],
    "by oneDNN": ["by_onednn"],
    "in parts": ["by_mkl"],
    "in parts by oneDNN": ["by_onednn"],
    "in blocks": ["by_mkl"],
    "packed": ["by_onednn"],
    "some rows at once": ["by_mkl"],
    "by Python": [],
}


@pytest.fixture(params=WAYS)
def either_way(request, monkeypatch) -> Iterator[None]:
    """Many values are summed in parts, large weights are put in blocks or packed, or some rows of them are read at a
    time for a few words; and some day torch has no TorchScript."""
    for way in WAYS[request.param]:
        request.getfixturevalue(way)
    if request.param.startswith("in parts"):
        monkeypatch.setattr(recurrence, "VALUES_PER_SUM", 2)
    if request.param == "in blocks":
        for name in ("VALUES", "WORDS", "ROWS"):
            monkeypatch.setattr(recurrence, f"FEWEST_{name}_FOR_BLOCKS", 1)
        monkeypatch.setattr(recurrence, "VALUES_PER_BLOCK", 32)
        monkeypatch.setattr(recurrence, "_as_stored", None)
    if request.param == "packed":
        monkeypatch.setattr(recurrence, "FEWEST_STEPS_TO_PACK", 1)
    if request.param == "some rows at once":
        monkeypatch.setattr(recurrence, "FEWEST_VALUES_FOR_BLOCKS", 1)
        monkeypatch.setattr(recurrence, "ROWS_AT_ONCE", 3)
    if request.param == "by Python":
        monkeypatch.setattr(torch.jit, "script", None)
        for module, name in ((recurrence, "_go_through"), (modeling_elmo_words, "highest_sums")):
            monkeypatch.setattr(module, name, WithoutPython(getattr(module, name).function))
    with one_thread():
        yield


@pytest.fixture(params=["products", "sums"])
def either_scores(request, monkeypatch) -> None:
    """Of many words, windows of characters are scored by sums of what each character adds."""
    if request.param == "sums":
        monkeypatch.setattr(fast_paths, "FEWEST_WORDS_FOR_CHARACTER_SCORES", 1)
        monkeypatch.setattr(fast_paths, "CHARACTERS_PER_SCORE", 1)


@pytest.fixture
def linear_in_blocks(by_mkl, monkeypatch) -> list[torch.Size]:
    """Small layers take the way of large ones; what it gives has the shapes that are in the list."""
    monkeypatch.setattr(fast_paths, "FEWEST_VALUES_FOR_LINEAR_BLOCKS", 1)
    monkeypatch.setattr(fast_paths, "ROWS_PER_BLOCK", 4)
    monkeypatch.setattr(fast_paths, "WORDS_FOR_LINEAR_BLOCKS", range(1, 10))
    multiply, shapes = torch.baddbmm, []

    def watched(*tensors: torch.Tensor, **options) -> torch.Tensor:
        shapes.append(multiply(*tensors, **options).shape)
        return multiply(*tensors, **options)

    monkeypatch.setattr(torch, "baddbmm", watched)
    return shapes


# --- The whole model -------------------------------------------------------------------------------------------------


@pytest.mark.promise("N9")
@pytest.mark.usefixtures("either_tanh", "either_way", "either_scores")
@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_vectors(name):
    model = random_model(tiny_config(**CONFIGS[name]))
    inputs = inputs_for(model)
    with torch.no_grad():
        fast = results(model, **inputs)
        with plain_path():
            plain = results(model, **inputs)
    with_gradient = results(model, **inputs)
    for number, expected in enumerate(plain):
        assert_close(fast[number], expected, **CLOSE)
        assert_close(with_gradient[number].detach(), expected, **CLOSE)


@pytest.mark.promise("N9")
@pytest.mark.usefixtures("either_tanh", "some_words_at_a_time")
@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_gradients(name):
    model = random_model(tiny_config(**CONFIGS[name])).double()
    inputs = inputs_for(model)
    fast = gradients(model, inputs)
    with plain_path():
        plain = gradients(model, inputs)
    for parameter, expected in plain.items():
        assert_close(fast[parameter], expected, atol=1e-10, rtol=1e-9, msg=parameter)


@pytest.mark.promise("N9")
@pytest.mark.usefixtures("either_tanh", "some_words_at_a_time")
@pytest.mark.parametrize("way", ["by_mkl", "by_onednn"])
def test_the_same_gradients_in_single_precision(way, request):
    request.getfixturevalue(way)
    model = random_model()
    inputs = inputs_for(model)
    fast = gradients(model, inputs)
    with plain_path():
        plain = gradients(model, inputs)
    for parameter, expected in plain.items():
        assert (fast[parameter] - expected).abs().max() <= 1e-5 * expected.abs().max(), parameter


@pytest.mark.promise("N9")
@pytest.mark.usefixtures("either_way")
def test_more_words_than_a_piece_or_a_chunk_holds():
    """Rows of many lengths, a step that alone is more than a piece, and more different words than a chunk."""
    model = random_model(tiny_config(num_highway_layers=1))
    generator = torch.Generator().manual_seed(0)
    rows, longest = 300, 12
    words = torch.randint(97, 123, (rows, longest, 7), generator=generator)
    sentences = [
        ["".join(map(chr, word)) for word in sentence[: 1 + row % longest].tolist()]
        for row, sentence in enumerate(words)
    ]
    characters = batch_to_ids(sentences)
    assert sum(map(len, sentences)) > 2 * modeling_elmo_words.WORDS_PER_CHUNK > rows > recurrence.WORDS_PER_PIECE
    with torch.no_grad():
        fast = results(model, character_ids=characters)
        with plain_path():
            plain = results(model, character_ids=characters)
    for found, expected in zip(fast, plain, strict=True):
        assert_close(found, expected, **CLOSE)


@pytest.mark.promise("N9")
@pytest.mark.parametrize("rows", [1, 4])
def test_long_sums_are_exact(rows):
    """As many cells as the original model has, with both paths; MKL may round a single row after each term."""
    layer = modeling_elmo.ElmoLstmLayer(ElmoConfig(projection_size=128, cell_size=4096))
    generator = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -0.1, 0.1, generator=generator)
    words, sizes = torch.randn(40, 128, generator=generator), [rows] * (40 // rows)
    state = torch.zeros(rows, 128), torch.zeros(rows, 4096)
    with torch.no_grad():
        fast, *_ = layer(words, sizes, *state)
        with plain_path():
            plain, *_ = layer(words, sizes, *state)
            exact, *_ = layer.double()(words.double(), sizes, *(part.double() for part in state))
    assert_close(fast.double(), exact, atol=1e-5, rtol=0)
    assert_close(plain.double(), exact, atol=1e-5, rtol=0)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="TorchScript ends with Python 3.13")
def test_torch_runs_the_steps_by_itself(recwarn):
    steps = WithoutPython(recurrence._go_through.function)
    assert isinstance(steps._scripted(), torch.jit.ScriptFunction)
    assert not recwarn


def test_python_runs_the_steps_where_torch_cannot(monkeypatch):
    monkeypatch.delattr(torch.jit, "script")
    steps = recurrence._go_through.function
    assert WithoutPython(steps)._scripted() is steps


# --- Blocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("N9")
@pytest.mark.parametrize("words", [1, 2, 9])
def test_a_linear_layer_in_blocks(linear_in_blocks, words):
    layer = torch.nn.Linear(6, 12).requires_grad_(False)
    inputs = torch.randn(words, 6)
    assert_close(fast_paths.linear(layer, inputs), layer(inputs), **CLOSE)
    assert linear_in_blocks == [(3, 4, words)]


@pytest.mark.usefixtures("linear_in_blocks")
def test_highways_in_blocks():
    model = random_model(tiny_config(char_cnn_filters=[[1, 4], [2, 8]], num_highway_layers=2))
    with torch.no_grad(), one_thread():
        fast = results(model, **inputs_for(model))
        with plain_path():
            plain = results(model, **inputs_for(model))
    for found, expected in zip(fast, plain, strict=True):
        assert_close(found, expected, **CLOSE)


class Doubled(torch.nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(inputs)


@pytest.mark.parametrize(
    "change",
    [
        "a gradient",
        "a hook",
        "another forward",
        "another class",
        "no bias",
        "no blocks",
        "many words",
        "half",
        "plain",
    ],
)
def test_linear_layers_that_are_called_as_they_are(linear_in_blocks, change):
    kind = Doubled if change == "another class" else torch.nn.Linear
    layer = kind(6, 10 if change == "no blocks" else 12, bias=change != "no bias")
    layer.requires_grad_(change == "a gradient")
    inputs = torch.randn(10 if change == "many words" else 2, 6)
    if change == "a hook":
        layer.register_forward_hook(lambda module, given, found: found + 1)
    if change == "another forward":
        layer.forward = lambda given: given.new_ones(2, 12)
    if change == "half":
        layer, inputs = layer.bfloat16(), inputs.bfloat16()
    expected = layer(inputs)
    if change == "plain":
        with plain_path():
            found = fast_paths.linear(layer, inputs)
    else:
        found = fast_paths.linear(layer, inputs)
    assert torch.equal(found, expected)
    assert found.requires_grad == (change == "a gradient")
    assert linear_in_blocks == []


@pytest.mark.parametrize(
    ("cell_size", "values", "width"), [(16, 8 * 16, 16), (16, 8 * 4, 4), (16, 8 * 5, 4), (7, 8 * 3, 7), (5, 1, 1)]
)
def test_blocks_are_equal_parts_of_a_gate(cell_size, values, width, monkeypatch):
    """As wide as they may be for so many values in 8 rows; a gate that has no such parts is one block."""
    monkeypatch.setattr(recurrence, "VALUES_PER_BLOCK", values)
    weight = torch.randn(8, 4 * cell_size)
    layer = recurrence.LstmWeights(weight, weight, weight[0], None, None, None)
    assert recurrence._width_of_blocks(layer) == width
    blocks = recurrence._in_blocks(layer, width).recurrent_weight
    assert blocks.shape == (4 * cell_size // width, 8, width)
    assert torch.equal(blocks[1], weight[:, width : 2 * width])


@pytest.mark.parametrize("name", ["original", "one row", "a few words", "a small model"])
def test_weights_are_in_blocks_for_many_words_if_they_are_large(name):
    sizes = {"original": [4] * 20, "one row": [1] * 80, "a few words": [4] * 19, "a small model": [32] * 20}[name]
    shape = (128, 4096) if name == "a small model" else (512, 16384)
    weight = torch.empty(shape, device="meta")
    layer = recurrence.LstmWeights(weight, weight, weight[0], None, None, None)
    inputs = torch.empty(sum(sizes), 1)
    assert recurrence._blocks_pay(layer, inputs, sizes) == (name == "original")


@pytest.mark.parametrize("words", [64, 65])
@pytest.mark.parametrize("shape", [(512, 16384), (128, 4096)])
def test_some_rows_at_once_are_for_a_few_words_and_large_weights(words, shape):
    weight = torch.empty(shape, device="meta")
    layer = recurrence.LstmWeights(weight, weight, weight[0], None, None, None)
    rows = recurrence._rows_at_once(layer, torch.empty(words, 1))
    assert rows == (64 if words == 64 and shape[0] == 512 else shape[0])


@pytest.mark.parametrize("state", [0.0, 1.0])
def test_nothing_is_multiplied_by_a_state_of_zeros(state):
    """The recurrent weights are not read in the first step, unless there is something to multiply them by."""
    layer = random_model().bilstm.forward_layers[0]
    size, cells = layer.projection_weight.shape[1], layer.cell_size
    with torch.no_grad():
        layer.recurrent_weight.fill_(torch.nan)
        hidden, cell = torch.full((3, size), state), torch.full((3, cells), state)
        first, _, _ = layer(torch.ones(3, size), [3], hidden, cell)
        both, _, _ = layer(torch.ones(5, size), [3, 2], hidden, cell)
    assert bool(first.isfinite().all()) == (state == 0)
    assert torch.equal(both[:3], first) or state == 1
    assert both[3:].isnan().all()


@pytest.mark.parametrize("watch", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_of_a_layer_is_called(watch):
    model, calls = random_model(), []
    layer = model.bilstm.backward_layers[1]
    hook = getattr(layer, watch)(lambda *_: calls.append(1))
    with torch.no_grad():
        watched = results(model, **inputs_for(model))
        assert calls == [1]
        hook.remove()
        alone = results(model, **inputs_for(model))
    assert calls == [1]
    for found, expected in zip(watched, alone, strict=True):
        assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("part", ["character_encoder", "bilstm", "mixes"])
def test_weights_that_are_kept_on_disk_are_brought(part, tmp_path):
    """Accelerate gives the modules a forward that brings their weights, and until then there are none."""
    model = random_model()
    model.save_pretrained(tmp_path / "model")
    places = {name: "disk" if name == part else "cpu" for name in ("character_encoder", "bilstm", "mixes")}
    offloaded = ElmoModel.from_pretrained(tmp_path / "model", device_map=places, offload_folder=tmp_path / "offloaded")
    assert {parameter.device.type for parameter in getattr(offloaded, part).parameters()} == {"meta"}
    with torch.no_grad():
        expected = results(model, **inputs_for(model))
        found = results(offloaded, **inputs_for(model))
    for ours, plain in zip(found, expected, strict=True):
        assert_close(ours, plain, **CLOSE)


def test_gradients_of_some_weights_only():
    model = random_model().double()
    chosen = ("bilstm.forward_layers.1.projection_weight", "character_encoder.convolutions.1.weight", "mixes.0.weight")
    inputs = inputs_for(model)
    expected = gradients(model, inputs)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in chosen)
        parameter.grad = None
    sum((value.sin() * number).sum() for number, value in enumerate(results(model, **inputs), start=1)).backward()
    for name, parameter in model.named_parameters():
        if name in chosen:
            assert_close(parameter.grad, expected[name])
        else:
            assert parameter.grad is None


def test_backward_twice_gives_the_same_twice():
    model = random_model()
    loss = model(**inputs_for(model)).last_hidden_state.pow(2).sum()
    loss.backward(retain_graph=True)
    once = model.bilstm.forward_layers[0].recurrent_weight.grad.clone()
    loss.backward()
    assert torch.equal(model.bilstm.forward_layers[0].recurrent_weight.grad, 2 * once)


@pytest.mark.promise("N9")
def test_a_stream_gives_the_same_losses_and_gradients():
    config = tiny_config(vocab_size=40, dropout=0.0)
    model = random_model(config, model_class=ElmoForPreTraining).train()
    characters = encode(SENTENCES)["character_ids"].flatten(0, 1)
    characters = characters[(characters > 0).any(dim=1)][:36].view(3, 12, 50)
    labels = torch.arange(36).view(3, 12)
    state = ElmoState(hidden=torch.randn(2, 3, 12) * 0.1, cell=torch.randn(2, 3, 20) * 0.1)

    def step() -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        model.zero_grad()
        loss = model.forward_stream(characters, labels, characters.flip(1), labels.flip(1), initial_state=state).loss
        loss.backward()
        return loss.detach(), [parameter.grad for parameter in model.parameters()]

    loss, found = step()
    with plain_path():
        expected_loss, expected = step()
    assert_close(loss, expected_loss, **CLOSE)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_precisions_and_autocast_go_the_plain_way(monkeypatch, dtype):
    def refuse(*_: object) -> None:
        raise AssertionError("the fast path was taken")

    model = random_model()
    monkeypatch.setattr(modeling_elmo_words, "different_rows", refuse)
    monkeypatch.setattr(modeling_elmo, "read_without_gradient", refuse)
    monkeypatch.setattr(modeling_elmo, "read_with_gradient", refuse)
    inputs = inputs_for(model)
    with pytest.raises(AssertionError, match="fast path was taken"):
        model(**inputs)
    with torch.autocast("cpu", dtype=dtype):
        model(**inputs)
    with plain_path():
        model(**inputs)
    with pytest.raises(AssertionError, match="fast path was taken"):
        model(**inputs)
    model.to(dtype)(**inputs)


@pytest.mark.parametrize("name", ["many words", "a few words", "many characters"])
def test_characters_are_scored_once_if_there_are_few_in_many_words(name):
    ids = torch.arange(96) % 48 + 3
    words = ids[: 95 if name == "a few words" else 96].unsqueeze(1).expand(-1, 50).clone()
    if name == "many characters":  # 48 others make 96, for each of which a window has four places
        words[:48, 0] = torch.arange(48) + 100
    found = fast_paths.few_characters(words, places=4)
    assert (found is not None) == (name == "many words")
    if found is not None:
        assert found.tolist() == list(range(3, 51))


@pytest.mark.parametrize("gradient", [False, True])
def test_many_words_are_scored_by_sums_without_a_gradient(gradient, monkeypatch):
    model, calls, sums = random_model(), [], modeling_elmo_words.highest_sums
    monkeypatch.setattr(modeling_elmo_words, "highest_sums", lambda *given: calls.append(1) or sums(*given))
    sentences = [[f"word{row}{place}" for place in range(10)] for row in range(12)]
    with torch.set_grad_enabled(gradient), one_thread():
        found = results(model, character_ids=batch_to_ids(sentences))
        assert bool(calls) != gradient
        with plain_path():
            expected = results(model, character_ids=batch_to_ids(sentences))
    for fast, plain in zip(found, expected, strict=True):
        assert_close(fast, plain, **CLOSE)


def test_the_switch_goes_back_after_an_error():
    number = torch.zeros(1)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), plain_path():
        torch.mm(torch.zeros(1, 2 - fast_paths.is_fast(number)), torch.zeros(1, 1))
    assert fast_paths.is_fast(number)


# --- Characters ------------------------------------------------------------------------------------------------------


def test_words_of_every_length_alone_and_together():
    """From none to more characters than fit; and rows that no tokenizer makes, padded inside or by nothing."""
    model = random_model(tiny_config(char_cnn_filters=[[1, 4], [3, 5], [7, 6]]))
    characters = batch_to_ids([["a" * length] for length in range(60)])[:, 0]
    strange = characters[:12].clone()
    strange[:, 4] = model.config.character_markers[-1]
    cut = characters[:12].clone()
    cut[:, 20:] = 0
    characters = torch.cat([characters, strange, cut])
    encoder = model.character_encoder
    with torch.no_grad():
        together = encoder(characters)
        with plain_path():
            expected = encoder(characters)
        assert_close(together, expected, **CLOSE)
        for row, one in enumerate(characters):
            assert_close(encoder(one.unsqueeze(0))[0], expected[row], **CLOSE)


def test_the_padding_of_a_word_takes_part():
    """Otherwise the test above would say nothing: a filter whose highest score is at padding only."""
    model = random_model()
    encoder = model.character_encoder
    characters = batch_to_ids([["abc"]])[0]
    with torch.no_grad():
        before = encoder(characters)
        encoder.embedding.weight[model.config.character_markers[-1] - 1] *= 3
        assert not torch.allclose(encoder(characters), before)


def test_groups_hold_each_word_once_and_similar_lengths_together():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 50, (400,), generator=generator)
    sizes = lengths.sort().values.tolist()
    groups = groups_of_similar_length(sizes)
    assert [number for group in groups for number in range(group.start, group.end)] == list(range(400))
    for group in groups:
        of_group = sizes[group.start : group.end]
        assert max(of_group) == group.length
        assert max(of_group) - min(of_group) <= fast_paths.LENGTHS_PER_GROUP
        assert len(of_group) * (min(of_group) + 1) <= fast_paths.WINDOWS_PER_PRODUCT


@pytest.mark.promise("N10")
def test_gradient_of_the_highest_scores():
    generator = torch.Generator().manual_seed(0)
    characters = torch.randn(3, 6, 2, dtype=torch.float64, generator=generator).requires_grad_()
    filters = torch.randn(3 * 2, 5, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(highest_scores, (characters, filters))


@pytest.mark.parametrize("collide", [False, True])
def test_different_rows(monkeypatch, collide):
    if collide:
        monkeypatch.setattr(fast_paths, "_multipliers", lambda width, device: torch.zeros(width, dtype=torch.long))
    rows = torch.randint(0, 3, (200, 4))
    first, places = different_rows(rows)
    assert torch.equal(rows[first][places], rows)
    assert len(first) == len(rows.unique(dim=0))
    assert all(int(number) == (rows == rows[number]).all(dim=1).int().argmax() for number in first)


# --- The recurrence --------------------------------------------------------------------------------------------------


@pytest.mark.promise("N10")
@pytest.mark.usefixtures("either_tanh")
@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("clips", [(0.3, 0.2), (None, None)])
def test_gradient_of_the_recurrence(projected, clips):
    """All inputs, the state among them, with both clips active, and sentences that end at different steps."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    size = 2 if projected else 3
    batch_sizes = [3, 3, 2, 1]
    tensors = [normal(9, size), normal(3, size), normal(3, 3), normal(size, 12), normal(size, 12), normal(12)]
    if projected:
        tensors.append(normal(3, size))

    def read(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        projection = values[6] if projected else None
        return DifferentiableLstm.apply(*values[:6], projection, *clips, batch_sizes)

    outputs, _, cell = read(*tensors)
    if clips[0]:
        assert 0.1 < (cell.abs() == clips[0]).double().mean() < 0.9
    if clips[0] and projected:
        assert 0.1 < (outputs.abs() == clips[1]).double().mean() < 0.9
    assert torch.autograd.gradcheck(read, tensors)


# --- A cache of words ------------------------------------------------------------------------------------------------


@pytest.fixture
def cached_model() -> ElmoModel:
    model = random_model()
    model.cache_words(100)
    return model


@torch.no_grad()
def test_a_cache_changes_nothing_and_is_bounded(cached_model):
    plain = random_model()
    cached_model.cache_words(7)
    for sentence in SENTENCES * 2:
        inputs = encode([sentence])
        assert_close(cached_model(**inputs).last_hidden_state, plain(**inputs).last_hidden_state, **CLOSE)
        assert 0 < len(cached_model.character_encoder.cache) <= 7


@torch.no_grad()
def test_words_that_are_known_are_not_spelled_again(cached_model, monkeypatch):
    inputs, more = encode(["The cat sat ."]), encode(["The cat sat up ."])
    first = cached_model(**inputs).last_hidden_state
    spelled = []
    spell = cached_model.character_encoder._encode_different
    monkeypatch.setattr(
        cached_model.character_encoder, "_encode_different", lambda ids: spelled.append(len(ids)) or spell(ids)
    )
    assert torch.equal(cached_model(**inputs).last_hidden_state, first)
    cached_model(**more)
    assert spelled == [1]


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight.mul_(1.5),
        lambda weight: weight.data.mul_(1.5),
        lambda weight: setattr(weight, "data", weight.data * 1.5),
    ],
    ids=["in place", "unseen by torch", "other memory"],
)
@torch.no_grad()
def test_a_cache_forgets_when_weights_change(cached_model, change):
    inputs = encode(SENTENCES)
    before = cached_model(**inputs).last_hidden_state
    change(cached_model.character_encoder.projection.weight)
    after = cached_model(**inputs).last_hidden_state
    assert not torch.allclose(after, before)
    cached_model.cache_words(None)
    assert torch.equal(cached_model(**inputs).last_hidden_state, after)


def test_a_cache_is_not_used_where_a_gradient_is_needed(cached_model):
    inputs = inputs_for(cached_model)
    expected = gradients(random_model(), inputs)
    with torch.no_grad():
        cached_model(**inputs)
    for name, gradient in gradients(cached_model, inputs).items():
        assert_close(gradient, expected[name], **CLOSE)


def test_vectors_cached_in_inference_mode_can_be_used_in_training(cached_model):
    inputs = inputs_for(cached_model)
    with torch.inference_mode():
        cached_model(**inputs)
    cached_model.requires_grad_(False)
    cached_model.mixes.requires_grad_(True)
    cached_model(**inputs).last_hidden_state.sum().backward()
    assert cached_model.mixes[0].weight.grad.abs().sum() > 0


@torch.no_grad()
def test_copies_of_a_model_have_a_cache_of_their_own(cached_model, tmp_path):
    cached_model(**encode(SENTENCES))
    other = copy.deepcopy(cached_model).character_encoder.cache
    assert other.size == 100
    assert len(other) == 0
    assert len(cached_model.character_encoder.cache) > 0
    cached_model.save_pretrained(tmp_path)
    assert ElmoModel.from_pretrained(tmp_path).character_encoder.cache is None


def test_threads_share_a_cache(cached_model):
    cached_model.cache_words(5)
    plain = random_model()
    wrong = []

    @torch.no_grad()
    def read(sentence: str) -> None:
        for _ in range(20):
            found = cached_model(**encode([sentence])).last_hidden_state
            if not torch.allclose(found, plain(**encode([sentence])).last_hidden_state, atol=1e-6):
                wrong.append(sentence)

    threads = [threading.Thread(target=read, args=(sentence,)) for sentence in SENTENCES[:4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_word_read_longest_ago_is_forgotten_first():
    cache = WordCache(2)
    vectors = torch.arange(3.0).unsqueeze(1)
    cache.get([b"a"], ("weights",))
    cache.put([b"a", b"b"], vectors[:2], ("weights",))
    cache.get([b"a"], ("weights",))
    cache.put([b"c"], vectors[2:], ("weights",))
    assert [None if one is None else float(one) for one in cache.get([b"a", b"b", b"c"], ("weights",))] == [0, None, 2]
    cache.put([b"b"], vectors[:1], ("older weights",))
    assert len(cache) == 2
    assert cache.get([b"a"], ("other weights",)) == [None]


def test_a_cache_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"cache of 0 words is not possible.*at least 1"):
        random_model().cache_words(0)
