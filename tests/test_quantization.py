"""Packed weights: how far the vectors are from the unpacked ones, and what such a model refuses."""

import copy
import warnings

import numpy as np
import pytest
import torch
from tiny import SENTENCES, encode, random_model, tiny_config, words_of

from hf_elmo import ElmoEmbedder, ElmoForTokenClassification, ElmoTokenizer, cli, is_quantized, quantize
from hf_elmo.quantization import Float16Product, Int8Product, PackedLstmLayer

# Bounds on the relative error of a layer, chosen with room: a tiny model leaves little to average out.
FARTHEST = {"int8": 0.06, "float16": 1e-3}


def layers_of(model, **options):
    with torch.no_grad():
        return model(**encode(SENTENCES), output_hidden_states=True, **options).hidden_states


def relative_error(found, expected):
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("to", FARTHEST)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"char_cnn_activation": "tanh"},
        {"project_cells": False, "cell_size": 6, "cell_clip": None},
        {"project_words": False, "projection_size": 16},
        {"cell_clip": None, "projection_clip": None, "use_skip_connections": False, "num_highway_layers": 0},
    ],
    ids=["usual", "tanh", "no projection", "no projection of words", "no clips"],
)
def test_vectors_are_near_those_of_the_unpacked_model(to, changes):
    model = random_model(tiny_config(**changes))
    expected = layers_of(model)
    packed = quantize(copy.deepcopy(model), to)
    found = layers_of(packed)
    errors = [relative_error(a, b) for a, b in zip(found, expected, strict=True)]
    assert max(errors) < FARTHEST[to], errors
    assert min(errors[1:]) > 0  # it is another computation
    assert is_quantized(packed)
    assert not is_quantized(model)


def test_words_from_a_table_and_characters():
    config = tiny_config(word_input="both", word_embedding_size=3, vocab_size=9)
    model = random_model(config)
    inputs = {**encode(SENTENCES)}
    inputs["input_ids"] = inputs["input_ids"] % 8
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
        assert relative_error(quantize(model)(**inputs).last_hidden_state, expected) < FARTHEST["int8"]


def test_a_model_of_words_keeps_its_table():
    model = random_model(tiny_config(word_input="words", word_embedding_size=3, vocab_size=9))
    ids = torch.arange(8).view(2, 4)
    with torch.no_grad():
        expected = model(ids, output_hidden_states=True).hidden_states
        found = quantize(model)(ids, output_hidden_states=True).hidden_states
    assert torch.equal(found[0], expected[0])
    assert 0 < relative_error(found[2], expected[2]) < FARTHEST["int8"]


@pytest.mark.parametrize("never_negative", [False, True])
def test_whole_numbers_are_multiplied_exactly(never_negative):
    """Where rounding changes nothing, the product is that of the numbers, however large their sums are."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(-127, 128, (40, 300), generator=generator).float()
    weight[:, 0] = 127
    lowest, highest = (0, 127) if never_negative else (-63, 63)
    inputs = torch.randint(lowest, highest + 1, (9, 300), generator=generator).float()
    inputs[:, 1:3], weight[:, 1:3] = highest, 127  # neighbours whose sum is the largest there is
    inputs[:, 0] = highest
    scales = torch.linspace(0.01, 100, 9).unsqueeze(1)
    found = Int8Product(weight, never_negative)(inputs * scales)
    torch.testing.assert_close(found, inputs @ weight.T * scales, rtol=1e-5, atol=1e-3)


def test_the_largest_sums_do_not_overflow():
    weight = torch.ones(8, 4096)
    assert torch.allclose(Int8Product(weight, True)(torch.ones(3, 4096)), torch.tensor(4096.0))
    assert torch.allclose(Int8Product(-weight)(torch.ones(3, 4096)), torch.tensor(-4096.0))


def test_zeros_stay_zero():
    assert not Int8Product(torch.zeros(4, 3))(torch.ones(2, 3)).any()
    assert not Int8Product(torch.ones(4, 3))(torch.zeros(2, 3)).any()
    assert not Float16Product(torch.zeros(4, 3))(torch.ones(2, 3)).any()


def test_a_sentence_does_not_depend_on_its_batch():
    """Each row has its own scale; what is left is the rounding of the convolutions."""
    model = quantize(random_model())
    with torch.no_grad():
        together = model(**encode(SENTENCES)).last_hidden_state
        for row, sentence in enumerate(SENTENCES):
            alone = model(**encode([sentence])).last_hidden_state[0]
            torch.testing.assert_close(together[row, : len(alone)], alone, rtol=0, atol=1e-6)


def test_state_is_carried():
    model = quantize(random_model())
    words = words_of(SENTENCES[2:3])[0]
    tokenizer = ElmoTokenizer()

    def read(part, state=None):
        batch = tokenizer([part], is_split_into_words=True, add_special_tokens=False, return_tensors="pt")
        with torch.no_grad():
            return model(**batch, initial_state=state, output_state=True, output_hidden_states=True)

    size = model.config.projection_size
    whole, first = read(words), read(words[:5])
    second = read(words[5:], first.state)
    torch.testing.assert_close(whole.hidden_states[2][:, 5:, :size], second.hidden_states[2][..., :size])
    torch.testing.assert_close(whole.state.cell[..., :10], second.state.cell[..., :10])


def test_many_words_are_read_in_pieces(monkeypatch):
    model = quantize(random_model())
    expected = layers_of(model)
    monkeypatch.setattr("hf_elmo.quantization.WORDS_PER_PIECE", 3)
    for found, layer in zip(layers_of(model), expected, strict=True):
        assert torch.equal(found, layer)


def test_packing_warns_of_nothing_and_changes_no_setting():
    engine = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantize(random_model())
    assert torch.backends.quantized.engine == engine


# --- Loading ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "elmo"
    random_model(tiny_config()).save_pretrained(path)
    ElmoTokenizer().save_pretrained(path)
    return path


@pytest.mark.parametrize("to", FARTHEST)
def test_embedder_loads_a_quantised_model(folder, to):
    texts = words_of(SENTENCES)
    expected = ElmoEmbedder.from_pretrained(folder).encode(texts, "all")
    embedder = ElmoEmbedder.from_pretrained(folder, quantize=to)
    assert is_quantized(embedder.model)
    for batch_tokens in (4096, 8):  # in one batch; in pieces
        found = embedder.encode(texts, "all", batch_tokens=batch_tokens)
        for a, b in zip(found, expected, strict=True):
            assert 0 < np.linalg.norm(a - b) / np.linalg.norm(b) < FARTHEST[to]


def test_weights_of_half_precision_are_quantised_in_single_precision(folder, tmp_path):
    random_model(tiny_config()).half().save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    embedder = ElmoEmbedder.from_pretrained(tmp_path, quantize="float16")
    assert embedder.model.dtype == torch.float32
    text = SENTENCES[0].split()
    found, expected = (one.encode([text])[0] for one in (embedder, ElmoEmbedder.from_pretrained(folder)))
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 2e-3


def test_the_command_embed(folder, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    command = ["embed", str(tmp_path / "text.txt"), "--model", str(folder), "--split-words", "--quiet"]
    assert cli.main([*command, "--output", str(tmp_path / "single.npz")]) == 0
    assert cli.main([*command, "--output", str(tmp_path / "int8.npz"), "--quantize", "int8"]) == 0
    expected, found = np.load(tmp_path / "single.npz"), np.load(tmp_path / "int8.npz")
    for name in map(str, range(len(SENTENCES))):
        assert 0 < np.linalg.norm(found[name] - expected[name]) / np.linalg.norm(expected[name]) < FARTHEST["int8"]


# --- What it refuses -------------------------------------------------------------------------------------------------


def test_saving_is_refused_and_leaves_nothing_wrong(tmp_path):
    model = quantize(random_model())
    with pytest.raises(ValueError, match=r"quantised model cannot be saved.*before it is quantised"):
        model.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))
    with pytest.raises(ValueError, match="quantised model cannot be saved"):
        model.state_dict()
    with pytest.raises(ValueError, match="Weights cannot be loaded into a quantised model"):
        model.load_state_dict(random_model().state_dict())


@pytest.mark.parametrize("change", [torch.nn.Module.half, torch.nn.Module.double, lambda model: model.to("meta")])
def test_it_stays_where_and_what_it_is(change):
    with pytest.raises(ValueError, match=r"stays on the CPU and in float32.*load the model again"):
        change(quantize(random_model()))
    quantize(random_model()).to("cpu", torch.float32).eval()


def test_models_that_cannot_be_quantised():
    with pytest.raises(ValueError, match=r"quantize='int4' is not possible: it is 'int8', 'float16'"):
        quantize(random_model(), "int4")
    with pytest.raises(ValueError, match="model is a Linear, but only ELMo models"):
        quantize(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"precision torch.float16, but torch.float32 is needed"):
        quantize(random_model().half())
    with pytest.raises(ValueError, match="on meta, but only models on the CPU"):
        quantize(random_model().to("meta"))
    with pytest.raises(ValueError, match="quantised already"):
        quantize(quantize(random_model()), "float16")
    broken = random_model()
    broken.bilstm.forward_layers[1].bias.data[3] = float("nan")
    with pytest.raises(ValueError, match=r"bilstm.forward_layers.1.bias has values that are not finite"):
        quantize(broken)


def test_processors_without_such_products_are_told(monkeypatch):
    monkeypatch.setattr("hf_elmo.quantization.ENGINE", "abacus")
    with pytest.raises(ValueError, match="no quantised products for this processor"):
        quantize(random_model())


def test_gradients_end_at_the_mix():
    model = quantize(random_model())
    model(**encode(SENTENCES)).last_hidden_state.sum().backward()
    assert model.mixes[0].weight.grad.any()
    layer = model.bilstm.forward_layers[0]
    assert isinstance(layer, PackedLstmLayer)
    with pytest.raises(ValueError, match=r"no gradient: call it under torch.no_grad"):
        layer(torch.zeros(1, 6, requires_grad=True), [1], torch.zeros(1, 6), torch.zeros(1, 10))


def test_a_task_learns_on_a_quantised_encoder():
    config = tiny_config(num_labels=3, elmo_dropout=0.0, task_dropout=0.0)
    model = quantize(random_model(config, model_class=ElmoForTokenClassification)).train()
    batch = encode(SENTENCES)
    labels = torch.arange(batch["input_ids"].numel()).view(batch["input_ids"].shape) % 3
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=0.05)
    losses = []
    for _ in range(5):
        loss = model(**batch, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_copy_reads_the_same():
    model = quantize(random_model())
    again = copy.deepcopy(model)
    assert torch.equal(layers_of(model)[2], layers_of(again)[2])
