"""Elmo modules inside models that AllenNLP trained: layers and trained mixes against AllenNLP's own module."""

import json

import numpy as np
import pytest
import torch
from originals import elmo_options, original_elmo_module, write_random_weights
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoConfig, ElmoModel
from hf_elmo.conversion import allennlp_archive
from hf_elmo.conversion.allennlp_archive import CHARACTERS, DROPPED, convert_allennlp_archive, tensor_shapes
from hf_elmo.hub import verify_checksums

SENTENCES = [
    "Deep contextualized representations , computed character by character .".split(),
    ["Naïve", "한국어", "x" * 60],
    ["Hi"],
]
PREFIX = "text_field_embedder.token_embedder_elmo._elmo."


def original_elmo(folder, options=None, mixes=2, **settings):
    """AllenNLP's module with random weights and random mixes."""
    files = write_random_weights(folder / "bilm", options or elmo_options(), seed=5)
    elmo = original_elmo_module().Elmo(*map(str, files), mixes, dropout=0.0, keep_sentence_boundaries=True, **settings)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in elmo.named_parameters():
            if name.startswith("scalar_mix"):
                parameter.copy_(torch.randn(1, generator=generator))
    return elmo.eval()


def state_of(elmo, prefix=PREFIX, task=True):
    """The state dict of a model with this Elmo in it, and with other parts, one of them of whole numbers."""
    state = {f"{prefix}{name}": tensor.clone() for name, tensor in elmo.state_dict().items()}
    if task:
        state |= {"tagger.weight": torch.randn(3, 4), "crf._constraint_mask": torch.ones(5, 5, dtype=torch.long)}
    return state


def write_model(folder, state, elmo_settings=None, options=None):
    """weights.th, and the config.json that AllenNLP writes beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "weights.th", _use_new_zipfile_serialization=False)
    settings = {"type": "elmo_token_embedder", "options_file": "https://example.org/elmo_options.json"}
    embedders = {"token_embedders": {"elmo": settings | (elmo_settings or {})}}
    config = {
        "dataset_reader": {"type": "conll2003"},
        "model": {"type": "crf_tagger", "text_field_embedder": embedders},
    }
    (folder / "config.json").write_text(json.dumps(config))
    if options is not None:
        (folder / "fta").mkdir()
        name = "model.text_field_embedder.token_embedders.elmo.options_file"
        (folder / "fta" / name).write_text(json.dumps(options))
    return {"weights": folder / "weights.th", "config": folder / "config.json"}


@pytest.fixture
def source(tmp_path):
    return write_model(tmp_path / "source", state_of(original_elmo(tmp_path)))


def compare(elmo, folder):
    """The largest difference of any layer and of any mix, in float32, through the Auto classes."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    batch = tokenizer(SENTENCES, is_split_into_words=True, padding=True, return_tensors="pt")
    characters = original_elmo_module().batch_to_ids(SENTENCES)
    with torch.no_grad():
        elmo._elmo_lstm._elmo_lstm.reset_states()
        layers = elmo._elmo_lstm(characters)["activations"]
        elmo._elmo_lstm._elmo_lstm.reset_states()
        mixes = elmo(characters)["elmo_representations"]
        outputs = model(**batch, output_hidden_states=True)
    found = outputs.elmo_representations or (outputs.last_hidden_state,)
    assert (len(found), len(outputs.hidden_states)) == (len(mixes), len(layers))
    mask = batch["attention_mask"].bool()
    return (
        max(
            (ours - theirs)[mask].abs().max().item()
            for ours, theirs in zip(outputs.hidden_states, layers, strict=True)
        ),
        max((ours - theirs)[mask].abs().max().item() for ours, theirs in zip(found, mixes, strict=True)),
    )


# --- The numbers of AllenNLP -----------------------------------------------------------------------------------------

VARIANTS = {
    "two mixes": {},
    "one mix": {"mixes": 1},
    "three mixes": {"mixes": 3},
    "normalised": {"do_layer_norm": True},
    "one layer": {"options": elmo_options(layers=1)},
    "no highway": {"options": elmo_options(highway=0)},
    "tanh, other clips": {"options": elmo_options(activation="tanh", cell_clip=1.5, projection_clip=0.7)},
    "no clips": {"options": elmo_options(cell_clip=0, projection_clip=None)},
}


@pytest.mark.promise("S7")
@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_and_mixes_of_allennlp(tmp_path, variant):
    settings = VARIANTS[variant]
    elmo = original_elmo(tmp_path, **settings)
    norm = {"do_layer_norm": settings.get("do_layer_norm", False)}
    files = write_model(tmp_path / "source", state_of(elmo), norm, settings.get("options"))
    report = convert_allennlp_archive(**files, output=tmp_path / "out")
    layers, mixes = compare(elmo, tmp_path / "out")
    assert max(layers, mixes) <= 1e-5
    assert report.parity.mixes == settings.get("mixes", 2)
    assert report.parity.mixes_float64 < 1e-11
    verify_checksums(tmp_path / "out")
    config = ElmoConfig.from_pretrained(tmp_path / "out")
    assert config.num_output_representations == settings.get("mixes", 2)
    assert config.mix_layer_norm == ("batch" if norm["do_layer_norm"] else None)


@pytest.mark.parametrize("prefix", ["", "_elmo.", "a.b._elmo.", PREFIX])
@pytest.mark.parametrize("legacy", [False, True])
def test_weights_alone_under_any_prefix(tmp_path, prefix, legacy):
    elmo = original_elmo(tmp_path, mixes=1)
    torch.save(state_of(elmo, prefix, task=prefix != ""), tmp_path / "w.th", _use_new_zipfile_serialization=not legacy)
    told = []
    report = convert_allennlp_archive(tmp_path / "w.th", tmp_path / "out", progress=told.append)
    assert max(compare(elmo, tmp_path / "out")) <= 1e-5
    assert report.num_parameters == sum(tensor.numel() for tensor in elmo.state_dict().values()) - 4  # character 0
    assert "no options file is there" in " ".join(told)
    assert "is assumed, as no config says it" in " ".join(told)


@pytest.mark.promise("S7")
def test_every_weight_is_taken_over_and_no_other(tmp_path, source):
    convert_allennlp_archive(**source, output=tmp_path / "out")
    model = ElmoModel.from_pretrained(tmp_path / "out")
    state = torch.load(source["weights"])
    for n in range(2):
        mix = [state[f"{PREFIX}scalar_mix_{n}.scalar_parameters.{layer}"].item() for layer in range(3)]
        assert model.mixes[n].weight.tolist() == mix
        assert model.mixes[n].gamma.item() == state[f"{PREFIX}scalar_mix_{n}.gamma"].item()
    theirs = [abs(state[name].numpy().ravel()) for name in state if name.startswith(PREFIX) and CHARACTERS not in name]
    theirs.append(abs(state[f"{PREFIX}{CHARACTERS}"][1:].numpy().ravel()))
    ours = [abs(weight.numpy().ravel()) for weight in model.state_dict().values()]
    np.testing.assert_array_equal(np.sort(np.concatenate(ours)), np.sort(np.concatenate(theirs)))


def test_card_says_what_is_known_and_what_not(tmp_path, source):
    convert_allennlp_archive(**source, output=tmp_path / "out", license="mit")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "are fresh" not in card
    assert "are those that were trained with the task of the source" in card
    assert "2 trained mixes" in card
    assert "those of all published models, as no options file is there" in card
    assert "as no config says it" not in card
    options = tmp_path / "options.json"
    options.write_text(json.dumps(elmo_options()))
    convert_allennlp_archive(**source, output=tmp_path / "sure", options=options)
    assert "published models, as no options" not in (tmp_path / "sure" / "README.md").read_text()


def test_cache_of_words_is_left_out(tmp_path):
    elmo = original_elmo(tmp_path, vocab_to_cache=["<pad>", "the", "river"])
    files = write_model(tmp_path / "source", state_of(elmo))
    told = []
    convert_allennlp_archive(**files, output=tmp_path / "out", progress=told.append)
    assert any(f"{DROPPED} is left out" in line for line in told)


def test_one_of_several_modules(tmp_path):
    first, second = original_elmo(tmp_path), original_elmo(tmp_path, mixes=1)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(0.5)
    torch.save(state_of(first, "a._elmo.") | state_of(second, "b._elmo."), tmp_path / "weights.th")
    with pytest.raises(ValueError, match=r"has 2 Elmo modules: 'a\._elmo\.', 'b\._elmo\.'\. Say which with --prefix"):
        convert_allennlp_archive(tmp_path / "weights.th", tmp_path / "out")
    with pytest.raises(ValueError, match=r"has no Elmo module 'c'; it has 'a\._elmo\.', 'b"):
        convert_allennlp_archive(tmp_path / "weights.th", tmp_path / "out", prefix="c")
    for prefix, elmo in (("a._elmo", first), ("b._elmo.", second)):
        convert_allennlp_archive(tmp_path / "weights.th", tmp_path / prefix, prefix=prefix)
        assert max(compare(elmo, tmp_path / prefix)) <= 1e-5


# --- Refusals --------------------------------------------------------------------------------------------------------


def without(name):
    return lambda state: state.pop(f"{PREFIX}{name}")


def put(name, tensor):
    return lambda state: state.update({f"{PREFIX}{name}": tensor})


LSTM = "_elmo_lstm._elmo_lstm"
BROKEN = {
    "missing tensor": (without(f"{LSTM}.backward_layer_1.state_linearity.bias"), "has no tensor '.*backward_layer_1"),
    "no mixes": (
        lambda state: [state.pop(name) for name in list(state) if "scalar_mix" in name],
        "has no tensor '.*scalar_mix_0.gamma', which every Elmo module has",
    ),
    "half a mix": (
        without("scalar_mix_1.scalar_parameters.2"),
        r"has no tensor '.*scalar_mix_1\.scalar_parameters\.2'",
    ),
    "surplus": (put("surplus", torch.zeros(3)), "has a tensor '.*surplus', which has no place in the model"),
    "another mix": (
        put("scalar_mix_4.gamma", torch.zeros(1)),
        "has a tensor '.*scalar_mix_4.gamma', which has no place",
    ),
    "wrong shape": (
        put(f"{LSTM}.forward_layer_1.input_linearity.weight", torch.zeros(48, 9)),
        r"input_linearity\.weight' has shape \(48, 9\); this model has \(48, 8\)",
    ),
    "wrong rank": (put(f"{LSTM}.forward_layer_0.state_projection.weight", torch.zeros(3)), "with 2 dimensions"),
    "characters": (put(CHARACTERS, torch.zeros(300, 4)), r"has shape \(300, 4\); this model has \(262, 4\)"),
    "nan": (put("scalar_mix_0.gamma", torch.tensor([float("nan")])), "NaN or infinite"),
    "half precision": (put("scalar_mix_0.gamma", torch.ones(1).half()), "holds float16; only float32 is read"),
    "no convolutions": (
        lambda state: [state.pop(name) for name in list(state) if "char_conv" in name],
        "filters is .* in the options",
    ),
    "a shape without bytes": (
        put(CHARACTERS, torch.zeros(1).expand(262, 2**22)),
        "but its weights need",
    ),
    "no Elmo": (without(CHARACTERS), "has no Elmo module: no tensor is called"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_weights_are_refused(tmp_path, kind):
    change, message = BROKEN[kind]
    state = state_of(original_elmo(tmp_path))
    change(state)
    files = write_model(tmp_path / "source", state)
    with pytest.raises(ValueError, match=rf"weights\.th.*{message}"):
        convert_allennlp_archive(**files, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (elmo_options(projection=7), r"lstm\.projection_dim is 7 in the options, but the tensors of .* make it 8"),
        (elmo_options(character_dim=5), r"char_cnn\.embedding is .* make it \{'dim': 4\}"),
        (elmo_options(highway=1), r"char_cnn\.n_highway is 1 .* make it 2"),
        (elmo_options(skip=False), r"lstm\.use_skip_connections must be true"),
        (elmo_options(activation="gelu"), r'char_cnn\.activation is "gelu"'),
        ({"lstm": 3}, r"lstm\.projection_dim is None"),
    ],
)
def test_options_of_another_model_are_refused(tmp_path, source, content, message):
    options = tmp_path / "options.json"
    options.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"options\.json: {message}"):
        convert_allennlp_archive(**source, output=tmp_path / "out", options=options)


def test_odd_configs_are_refused(tmp_path):
    state = state_of(original_elmo(tmp_path))
    files = write_model(tmp_path / "source", state, {"do_layer_norm": "yes"})
    with pytest.raises(ValueError, match=r"config\.json: do_layer_norm is 'yes'; it must be true or false"):
        convert_allennlp_archive(**files, output=tmp_path / "out")
    both = [{"options_file": "a", "do_layer_norm": norm} for norm in (True, False)]
    files["config"].write_text(json.dumps({"model": {"elmo": both}}))
    with pytest.raises(ValueError, match="do_layer_norm true for one Elmo module and false for another"):
        convert_allennlp_archive(**files, output=tmp_path / "out")
    (tmp_path / "source" / "fta").mkdir()
    for name in "ab":
        (tmp_path / "source" / "fta" / f"model.{name}.options_file").write_text(name)
    files["config"].write_text("{}")
    with pytest.raises(ValueError, match=r"has 2 different options files: .* Say which with --options"):
        convert_allennlp_archive(**files, output=tmp_path / "out")


def test_mixes_that_compute_something_else_are_not_kept(tmp_path, source, monkeypatch):
    original = allennlp_archive.Elmo.model

    def swapped(self, config):
        return original(allennlp_archive.Elmo(self.options, self.tensors, self.mixes[::-1]), config)

    monkeypatch.setattr(allennlp_archive.Elmo, "model", swapped)
    with pytest.raises(
        ValueError, match=r"does not compute what its source does, so it was not kept: .* 2 trained mix"
    ):
        convert_allennlp_archive(**source, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_table_has_the_names_and_shapes_of_allennlp(tmp_path):
    elmo = original_elmo(tmp_path)
    config = ElmoConfig(
        char_embedding_size=4,
        char_cnn_filters=[[1, 4], [2, 8], [3, 8]],
        projection_size=8,
        cell_size=12,
        num_output_representations=2,
    )
    assert tensor_shapes(config) == {name: tuple(tensor.shape) for name, tensor in elmo.state_dict().items()}
