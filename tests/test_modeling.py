"""The promises about the model's numbers that need no other program to check."""

import math

import pytest
import torch
from tiny import SENTENCES, encode, random_model, tiny_config, words_of
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

from hf_elmo import ElmoModel, ElmoState, batch_to_ids
from hf_elmo.modeling_elmo import ElmoLstmLayer, PackedWords

RANDOM_BATCHES, CALLS = 200, 100
EXACT = {"atol": 1e-6, "rtol": 0.0}


@pytest.fixture(scope="module")
def model() -> ElmoModel:
    return random_model()


@torch.no_grad()
def all_layers(model: ElmoModel, **inputs) -> torch.Tensor:
    """(L + 2, B, T, D): the layers and the mix."""
    outputs = model(**inputs, output_hidden_states=True)
    return torch.stack([*outputs.hidden_states, outputs.last_hidden_state])


def alone(model: ElmoModel, sentence: str) -> torch.Tensor:
    return all_layers(model, **encode([sentence]))[:, 0]


def pad(inputs, left: int, right: int, garbage: int = 0) -> dict[str, torch.Tensor]:
    """The same batch with more padding on both sides, whose characters may be anything once it is masked."""
    padded = {}
    for name, value in inputs.items():
        rows, _, *rest = value.shape
        fill = 0 if name == "attention_mask" else garbage
        before, after = (value.new_full((rows, n, *rest), fill) for n in (left, right))
        padded[name] = torch.cat([before, value, after], dim=1)
    return padded


# --- The same sentence, the same vectors -----------------------------------------------------------------------------


def test_the_random_model_clips_cells_and_projections(model):
    """Otherwise the tests below would say nothing about the clips."""
    inputs = encode(SENTENCES)
    clipped = all_layers(model, **inputs)
    for name in ("cell_clip", "projection_clip"):
        layers = [layer for layer in model.modules() if isinstance(layer, ElmoLstmLayer)]
        for layer in layers:
            setattr(layer, name, None)
        unclipped = all_layers(model, **inputs)
        for layer in layers:
            setattr(layer, name, getattr(model.config, name))
        assert (clipped - unclipped).abs().max() > 1e-2, name


@pytest.mark.promise("N2")
@pytest.mark.parametrize("garbage", [0, 65])
@pytest.mark.parametrize(("left", "right"), [(0, 1), (1, 0), (0, 64), (64, 0), (3, 5)])
def test_padding_changes_nothing(model, left, right, garbage):
    inputs = encode(SENTENCES)
    expected = all_layers(model, **inputs)
    found = all_layers(model, **pad(inputs, left, right, garbage))
    assert_close(found[:, :, left : left + expected.shape[2]], expected, **EXACT)
    assert found[:, :, :left].abs().sum() == 0
    assert found[:, :, left + expected.shape[2] :].abs().sum() == 0


def test_left_padding_by_the_tokenizer(model):
    for sentence, row in zip(
        SENTENCES, all_layers(model, **encode(SENTENCES, padding_side="left")).unbind(1), strict=True
    ):
        expected = alone(model, sentence)
        assert_close(row[:, -expected.shape[1] :], expected, **EXACT)


@pytest.mark.promise("N3", n=RANDOM_BATCHES)
def test_batch_mates_and_order_change_nothing(model):
    """200 random batches of 2 to 32 sentences."""
    generator = torch.Generator().manual_seed(1)
    words = [word for sentence in SENTENCES for word in sentence.split()]
    pool = []
    for length in torch.randint(1, 30, (50,), generator=generator).tolist():
        pool.append(" ".join(words[i] for i in torch.randint(len(words), (length,), generator=generator).tolist()))
    expected = [alone(model, sentence) for sentence in pool]
    for _ in range(RANDOM_BATCHES):
        size = int(torch.randint(2, 33, (), generator=generator))
        chosen = torch.randint(len(pool), (size,), generator=generator).tolist()
        found = all_layers(model, **encode([pool[i] for i in chosen]))
        for row, number in enumerate(chosen):
            length = expected[number].shape[1]
            assert_close(found[:, row, :length], expected[number], **EXACT)
            assert found[:, row, length:].abs().sum() == 0


@pytest.mark.promise("N4", n=CALLS)
def test_nothing_is_remembered_between_calls(model):
    first = alone(model, SENTENCES[0])
    for number in range(CALLS):
        all_layers(model, **encode([SENTENCES[number % len(SENTENCES)], "other text in between"]))
        assert torch.equal(alone(model, SENTENCES[0]), first)


def test_train_and_eval_mode_differ_by_dropout_only():
    model = random_model(tiny_config(dropout=0.0))
    expected = alone(model, SENTENCES[0])
    assert torch.equal(alone(model.train(), SENTENCES[0]), expected)
    with_dropout = random_model(tiny_config(dropout=0.5)).train()
    words, first, *_ = alone(with_dropout, SENTENCES[0])
    assert torch.equal(words, expected[0])
    assert not torch.allclose(first, expected[1])


@pytest.mark.promise("N5")
def test_nan_stays_in_its_sentence():
    """A sentence whose state is NaN leaves the others as they are, to the bit."""
    model = random_model()
    inputs = encode(SENTENCES)
    rows = len(SENTENCES)
    state = ElmoState(hidden=torch.zeros(2, rows, 12), cell=torch.zeros(2, rows, 20))
    expected = model(**inputs, initial_state=state).last_hidden_state
    state.hidden[:, 2] = math.nan
    found = model(**inputs, initial_state=state).last_hidden_state
    assert found[2].isnan().any()
    others = [row for row in range(rows) if row != 2]
    assert torch.equal(found[others], expected[others])


@pytest.mark.promise("N7")
def test_a_mask_with_holes_leaves_the_words_out(model):
    inputs = encode(["The cat sat on the mat ."])
    inputs["attention_mask"][0, [2, 5]] = 0
    found = all_layers(model, **inputs)[:, 0]
    expected = alone(model, "The sat on mat .")
    kept = inputs["attention_mask"][0].bool()
    assert_close(found[:, kept], expected, **EXACT)
    assert found[:, ~kept].abs().sum() == 0


# --- Little or nothing to read ---------------------------------------------------------------------------------------


@pytest.mark.promise("N6")
@pytest.mark.parametrize("rows", [["", "", ""], ["", "a b c", ""], ["a"], [""]])
def test_empty_and_short_sentences(rows):
    model = random_model()
    inputs = encode(rows, add_special_tokens=False)
    outputs = model(**inputs, output_hidden_states=True, output_state=True)
    for value in (*outputs.hidden_states, outputs.last_hidden_state, *outputs.state):
        assert value.isfinite().all()
    assert outputs.last_hidden_state.shape == (len(rows), inputs["input_ids"].shape[1], 12)
    empty = [row for row, sentence in enumerate(rows) if not sentence]
    assert outputs.last_hidden_state[empty].abs().sum() == 0
    assert outputs.state.hidden[:, empty].abs().sum() == 0
    outputs.last_hidden_state.pow(2).sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.promise("N6")
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0)])
def test_batches_without_words(model, shape):
    characters = torch.zeros(*shape, 50, dtype=torch.long)
    ids = torch.zeros(shape, dtype=torch.long)
    assert model(ids, characters).last_hidden_state.shape == (*shape, 12)
    assert model(characters).last_hidden_state.shape == (*shape, 12)


@pytest.mark.promise("N6")
def test_fully_masked_rows_are_zero_and_keep_their_state(model):
    inputs = encode(["a b", "c d"])
    inputs["attention_mask"][1] = 0
    state = ElmoState(hidden=torch.randn(2, 2, 12), cell=torch.randn(2, 2, 20))
    outputs = model(**inputs, initial_state=state, output_state=True)
    assert outputs.last_hidden_state[1].abs().sum() == 0
    assert torch.equal(outputs.state.hidden[:, 1], state.hidden[:, 1])
    assert torch.equal(outputs.state.cell[:, 1], state.cell[:, 1])
    assert not torch.equal(outputs.state.cell[:, 0], state.cell[:, 0])


# --- What may be given -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_keyword", [False, True])
def test_characters_alone_get_boundaries_that_are_left_out_again(model, by_keyword):
    sentences = [*SENTENCES, ""]
    characters = batch_to_ids(words_of(sentences))
    found = all_layers(model, **{"character_ids" if by_keyword else "input_ids": characters})
    for row, sentence in enumerate(sentences):
        length = len(sentence.split())
        assert_close(found[:, row, :length], alone(model, sentence)[:, 1:-1], **EXACT)
        assert found[:, row, length:].abs().sum() == 0


def test_characters_alone_that_have_boundaries_are_taken_as_they_are(model):
    inputs = encode(SENTENCES)
    assert_close(all_layers(model, input_ids=inputs["character_ids"]), all_layers(model, **inputs), **EXACT)


def test_characters_alone_with_a_mask(model):
    characters = batch_to_ids([["a", "b", "c"]])
    mask = torch.tensor([[1, 1, 0]])
    found = all_layers(model, input_ids=characters, attention_mask=mask)[:, 0]
    assert_close(found[:, :2], alone(model, "a b")[:, 1:-1], **EXACT)


@pytest.mark.promise("N5")
def test_inputs_that_do_not_fit_are_refused(model):
    inputs = encode(["a b c"])
    ids, characters, mask = inputs["input_ids"], inputs["character_ids"], inputs["attention_mask"]
    with pytest.raises(ValueError, match=r"character_ids is missing.*Pass all that the tokenizer returns"):
        model(ids)
    with pytest.raises(ValueError, match=r"character_ids is missing"):
        model(attention_mask=mask)
    with pytest.raises(ValueError, match=r"given twice"):
        model(characters, character_ids=characters)
    with pytest.raises(ValueError, match=r"shape \(1, 5, 40\), but this model reads \(batch, words, 50\)"):
        model(ids, characters[:, :, :40])
    with pytest.raises(ValueError, match=r"attention_mask has the shape \(1, 4\).*\(1, 5\)"):
        model(ids, characters, mask[:, :4])
    with pytest.raises(ValueError, match=r"input_ids has the shape \(1, 4\)"):
        model(ids[:, :4], characters)
    with pytest.raises(ValueError, match=r"has the value 262.*ids 0 to 261"):
        model(ids, characters.masked_fill(characters == 261, 262))
    with pytest.raises(ValueError, match=r"has the value -1"):
        model(ids, characters.masked_fill(characters == 261, -1))
    with pytest.raises(ValueError, match=r"Only 1 of the 2 sentences begin with <S>"):
        model(torch.cat([characters[:, :2], characters[:, 1:3]]))
    wrong = ElmoState(hidden=torch.zeros(2, 3, 12), cell=torch.zeros(2, 3, 20))
    with pytest.raises(ValueError, match=r"initial_state has the shapes.*\(2, 1, 12\).*for_batch\(1\)"):
        model(**inputs, initial_state=wrong)


def test_outputs_on_request(model):
    inputs = encode(SENTENCES)
    outputs = model(**inputs)
    assert list(outputs.keys()) == ["last_hidden_state"]
    outputs = model(**inputs, output_hidden_states=True, output_state=True)
    assert list(outputs.keys()) == ["last_hidden_state", "hidden_states", "state"]
    assert len(outputs.hidden_states) == 3
    as_tuple = model(**inputs, return_dict=False)
    assert isinstance(as_tuple, tuple)
    assert torch.equal(as_tuple[0], outputs.last_hidden_state)


# --- State -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("N8")
def test_forward_direction_in_chunks_is_the_same_as_in_one_pass(model):
    inputs = encode([SENTENCES[2]])
    whole = all_layers(model, **inputs)
    state, parts = None, []
    for start in range(0, whole.shape[2], 4):
        part = {name: value[:, start : start + 4] for name, value in inputs.items()}
        outputs = model(**part, initial_state=state, output_state=True, output_hidden_states=True)
        parts.append(torch.stack(outputs.hidden_states))
        state = outputs.state
    assert_close(torch.cat(parts, dim=2)[..., :6], whole[:-1, ..., :6], **EXACT)


def test_state_follows_the_row_of_its_sentence(model):
    """Rows are sorted by length inside the model, which must not show."""
    sentences = ["a", "a b c d", "", "a b", "a b c"]
    inputs = encode(sentences, add_special_tokens=False)
    start = ElmoState(hidden=torch.randn(2, 5, 12), cell=torch.randn(2, 5, 20))
    together = model(**inputs, initial_state=start, output_state=True)
    for row, sentence in enumerate(sentences):
        one = ElmoState(hidden=start.hidden[:, row : row + 1], cell=start.cell[:, row : row + 1])
        single = model(**encode([sentence], add_special_tokens=False), initial_state=one, output_state=True)
        assert_close(together.state.hidden[:, row], single.state.hidden[:, 0], atol=1e-5, rtol=0)
        assert_close(together.state.cell[:, row], single.state.cell[:, 0], atol=1e-5, rtol=0)


def test_state_for_other_batch_sizes():
    state = ElmoState(hidden=torch.randn(2, 3, 12), cell=torch.randn(2, 3, 20))
    smaller, larger = state.for_batch(2), state.for_batch(5)
    assert torch.equal(smaller.hidden, state.hidden[:, :2])
    assert torch.equal(larger.cell[:, :3], state.cell)
    assert larger.cell[:, 3:].abs().sum() == 0
    newer = ElmoState(hidden=torch.randn(2, 1, 12), cell=torch.randn(2, 1, 20))
    updated = state.updated(newer)
    assert torch.equal(updated.hidden, torch.cat([newer.hidden, state.hidden[:, 1:]], dim=1))
    assert torch.equal(updated.cell, torch.cat([newer.cell, state.cell[:, 1:]], dim=1))


def test_gradient_flows_through_the_state_until_it_is_detached(model):
    inputs = encode(["a b"])
    state = model(**inputs, output_state=True).state
    assert state.hidden.requires_grad
    assert not state.detach().hidden.requires_grad
    assert not state.detach().cell.requires_grad


# --- Layers to one vector --------------------------------------------------------------------------------------------


def test_a_fresh_mix_is_uniform():
    model = ElmoModel(tiny_config()).eval()
    weights, gamma = model.layer_weights()
    assert_close(weights, torch.full((3,), 1 / 3))
    assert gamma == 1
    *layers, mix = all_layers(model, **encode(SENTENCES))
    assert_close(mix, torch.stack(layers).mean(0))


def test_the_mix_follows_its_weights(model):
    weights, gamma = model.layer_weights()
    assert_close(weights.sum(), torch.tensor(1.0))
    *layers, mix = all_layers(model, **encode(SENTENCES))
    assert_close(mix, gamma * sum(w * layer for w, layer in zip(weights, layers, strict=True)))


@pytest.mark.parametrize(("combination", "layer"), [("top", 2), (0, 0), (1, 1), (2, 2)])
def test_one_layer_as_the_vector(combination, layer):
    model = random_model(tiny_config(layer_combination=combination))
    *layers, vector = all_layers(model, **encode(SENTENCES))
    assert torch.equal(vector, layers[layer])
    assert model.layer_weights().weights.tolist() == [float(number == layer) for number in range(3)]


def test_average_as_the_vector():
    model = random_model(tiny_config(layer_combination="average"))
    *layers, vector = all_layers(model, **encode(SENTENCES))
    assert_close(vector, torch.stack(layers).mean(0))
    assert_close(model.layer_weights().weights, torch.full((3,), 1 / 3))


def test_several_mixes_with_weights_of_their_own():
    model = random_model(tiny_config(num_output_representations=3))
    outputs = model(**encode(SENTENCES), output_hidden_states=True)
    assert len(outputs.elmo_representations) == 3
    assert torch.equal(outputs.elmo_representations[0], outputs.last_hidden_state)
    for number, representation in enumerate(outputs.elmo_representations):
        weights, gamma = model.layer_weights(number)
        expected = gamma * sum(w * layer for w, layer in zip(weights, outputs.hidden_states, strict=True))
        assert_close(representation, expected)


def test_token_layer_norm_normalises_each_vector_by_itself():
    model = random_model(tiny_config(mix_layer_norm="token"))
    *layers, mix = all_layers(model, **encode(SENTENCES))
    weights, gamma = model.layer_weights()
    expected = sum(
        w * torch.nn.functional.layer_norm(x, (12,), eps=1e-12) for w, x in zip(weights, layers, strict=True)
    )
    mask = encode(SENTENCES)["attention_mask"].bool()
    assert_close(mix[mask], gamma * expected[mask], atol=1e-5, rtol=1e-5)
    assert_close(alone(model, SENTENCES[0])[-1], mix[0, : alone(model, SENTENCES[0]).shape[1]], atol=1e-5, rtol=0)


# --- Training --------------------------------------------------------------------------------------------------------


def test_every_parameter_gets_a_gradient():
    model = random_model().train()
    model(**encode(SENTENCES)).last_hidden_state.pow(2).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@pytest.mark.promise("N10")
def test_gradients_of_the_whole_model_in_double_precision():
    """With both clips active. At a clip or a tie of the maximum there is no derivative; random weights miss both."""
    config = tiny_config(
        char_cnn_filters=[[2, 3]], num_highway_layers=1, projection_size=2, cell_size=3, char_embedding_size=2
    )
    model = random_model(config, scale=0.9).double()
    inputs = encode(["ab c", "d"])
    names, parameters = zip(*model.named_parameters(), strict=True)

    def vectors(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), kwargs=dict(inputs)).to_tuple()

    embedding = names.index("character_encoder.embedding.weight")
    checked = [p.detach().requires_grad_(index != embedding) for index, p in enumerate(parameters)]
    assert torch.autograd.gradcheck(vectors, checked)


def test_initial_weights_are_the_originals():
    model = ElmoModel(
        tiny_config(char_cnn_filters=[[3, 400]], cell_size=200, projection_size=100, char_embedding_size=8)
    )
    encoder, layer = model.character_encoder, model.bilstm.forward_layers[1]

    def is_uniform(tensor, limit):
        assert tensor.abs().max() <= limit
        assert_close(tensor.std(), torch.tensor(limit / math.sqrt(3)), rtol=0.05, atol=0)

    def is_normal(tensor, deviation):
        assert_close(tensor.std(), torch.tensor(deviation), rtol=0.05, atol=0)
        assert tensor.abs().max() > 2.5 * deviation

    is_uniform(encoder.embedding.weight, 1.0)
    is_uniform(encoder.convolutions[0].weight, 0.05)
    is_normal(encoder.highways[0].carry.weight, 1 / math.sqrt(400))
    is_normal(encoder.highways[1].transform.weight, 1 / math.sqrt(400))
    is_normal(encoder.projection.weight, 1 / math.sqrt(400))
    is_uniform(layer.input_weight, math.sqrt(6 / (200 + 800)))
    is_uniform(layer.recurrent_weight, math.sqrt(6 / (200 + 800)))
    is_uniform(layer.projection_weight, math.sqrt(6 / (200 + 100)))
    assert (encoder.highways[0].carry.bias == -2).all()
    zeros = (encoder.highways[0].transform.bias, encoder.convolutions[0].bias, encoder.projection.bias, layer.bias)
    assert all((bias == 0).all() for bias in zeros)

    tanh = ElmoModel(tiny_config(char_cnn_activation="tanh", char_cnn_filters=[[3, 400]]))
    is_normal(tanh.character_encoder.convolutions[0].weight, 1 / math.sqrt(3 * 4))


# --- Where it runs ---------------------------------------------------------------------------------------------------


class NoStrayTensors(TorchFunctionMode):
    """Fails on any tensor that is made without saying on which device."""

    FACTORIES = ("arange", "tensor", "as_tensor", "zeros", "ones", "empty", "full", "eye", "linspace", "rand", "randn")

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") in self.FACTORIES and function in vars(torch).values():
            assert kwargs.get("device") is not None, f"torch.{function.__name__} was called without a device"
        return function(*args, **kwargs)


@pytest.mark.parametrize("only_characters", [False, True])
@pytest.mark.parametrize("layer_norm", [None, "token", "batch"])
def test_every_tensor_is_made_on_the_device_of_the_inputs(only_characters, layer_norm):
    model = random_model(tiny_config(mix_layer_norm=layer_norm, num_output_representations=2)).train()
    inputs = encode(SENTENCES)
    if only_characters:
        inputs = {"character_ids": batch_to_ids(words_of(SENTENCES))}
    with NoStrayTensors():
        outputs = model(**inputs, output_hidden_states=True, output_state=True)
        again = model(**inputs, initial_state=outputs.state.for_batch(len(SENTENCES)))
        again.last_hidden_state.sum().backward()
    for combination in ("top", "average", 1):
        fixed = random_model(tiny_config(layer_combination=combination))
        with NoStrayTensors():
            fixed(**inputs)
            fixed.layer_weights()


def test_the_device_test_can_fail():
    with NoStrayTensors(), pytest.raises(AssertionError, match="arange was called without a device"):
        torch.arange(3)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-5), (torch.bfloat16, 0.3), (torch.float16, 0.05)])
@pytest.mark.parametrize("layer_norm", [None, "token", "batch"])
def test_other_precisions(dtype, tolerance, layer_norm):
    config = tiny_config(mix_layer_norm=layer_norm)
    expected = random_model(config, scale=0.3)(**encode(SENTENCES)).last_hidden_state
    model = random_model(config, scale=0.3).to(dtype)
    found = model(**encode(SENTENCES)).last_hidden_state
    assert found.dtype == dtype
    assert_close(found.float(), expected, atol=tolerance, rtol=0)
    found.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.promise("N9")
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch warns about itself when it compiles
def test_compiled_model_gives_the_same_vectors():
    model = random_model()
    compiled = torch.compile(model)
    for sentences in (SENTENCES, SENTENCES[:2], ["One more sentence of another length"]):
        inputs = encode(sentences)
        with torch.no_grad():
            assert_close(compiled(**inputs).last_hidden_state, model(**inputs).last_hidden_state, atol=1e-5, rtol=0)
    compiled(**encode(SENTENCES)).last_hidden_state.sum().backward()
    assert model.bilstm.forward_layers[0].recurrent_weight.grad.abs().sum() > 0


def test_saved_and_loaded(tmp_path, model):
    model.save_pretrained(tmp_path)
    loaded, report = ElmoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert not loaded.training
    assert torch.equal(all_layers(loaded, **encode(SENTENCES)), all_layers(model, **encode(SENTENCES)))
    half = ElmoModel.from_pretrained(tmp_path, dtype=torch.float16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float16}


def test_missing_weights_are_initialised_on_loading(tmp_path):
    """A base model without a mix becomes one with a fresh mix; from_pretrained builds on the meta device."""
    random_model(tiny_config(layer_combination="top")).save_pretrained(tmp_path)
    model, report = ElmoModel.from_pretrained(tmp_path, layer_combination="mix", output_loading_info=True)
    assert report["missing_keys"] == {"mixes.0.weight", "mixes.0.gamma"}
    assert model.layer_weights().weights.tolist() == pytest.approx([1 / 3] * 3)
    assert all(not parameter.is_meta for parameter in model.parameters())


def test_the_embeddings_are_those_of_characters(model):
    assert model.get_input_embeddings() is model.character_encoder.embedding
    with pytest.raises(ValueError, match="no word embeddings to resize"):
        model.resize_token_embeddings(100)


# --- The order of the words without padding --------------------------------------------------------------------------


def test_packing_by_hand():
    mask = torch.tensor([[0, 1, 1], [0, 0, 0], [1, 1, 1], [1, 0, 0]], dtype=torch.bool)
    packing = PackedWords.from_mask(mask)
    #   step 1: rows 2, 0, 3   step 2: rows 2, 0   step 3: row 2
    assert packing.positions.tolist() == [6, 1, 9, 7, 2, 8]
    assert packing.batch_sizes == [3, 2, 1]
    assert packing.row_order.tolist() == [2, 0, 3, 1]
    assert packing.positions[packing.reverse].tolist() == [8, 2, 9, 7, 1, 6]
    padded = torch.arange(12.0).view(4, 3, 1)
    assert torch.equal(packing.unpack(packing.pack(padded), 4, 3), padded * mask.unsqueeze(2))
