"""What a sentence starts from: zeros, a stored state, or what the sentence before left."""

import json
import random
import subprocess
import sys
import warnings

import h5py
import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from tiny import SENTENCES, encode, random_model, tiny_config, words_of
from torch.testing import assert_close
from transformers import AutoModel
from transformers.utils import logging

from hf_elmo import (
    ElmoConfig,
    ElmoEmbedder,
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoState,
    ElmoTokenizer,
    FeatureCache,
)
from hf_elmo.alignment import with_alignment
from hf_elmo.continuation import start_from
from hf_elmo.conversion import convert_allennlp, export_allennlp
from hf_elmo.packing import PackedWords, sentence_by_sentence
from hf_elmo.scripts.original_wheels import allennlp_fixtures

ALLENNLP_TOLERANCE = {"atol": 1e-6, "rtol": 1e-5}  # what AllenNLP's own tests ask for


def warm_model(model_class=ElmoModel, **overrides):
    """A random model with a random state."""
    model = random_model(tiny_config(initial_state="warm", **overrides), model_class=model_class)
    encoder = getattr(model, "elmo", model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        encoder.warm_hidden.copy_(0.2 * torch.randn(encoder.warm_hidden.shape, generator=generator))
        encoder.warm_cell.copy_(0.4 * torch.randn(encoder.warm_cell.shape, generator=generator))
    return model


def zero_twin(model, model_class=ElmoModel):
    """The same weights, started from zeros."""
    twin = model_class(ElmoConfig.from_dict(model.config.to_dict() | {"initial_state": "zero"}))
    weights = {name: weight for name, weight in model.state_dict().items() if "warm_" not in name}
    twin.load_state_dict(weights, strict=True)
    return twin.eval()


def stored(model, rows: int) -> ElmoState:
    """The stored state for a batch, written down once more."""
    hidden, cell = model.warm_hidden, model.warm_cell
    return ElmoState(hidden=torch.stack([hidden] * rows, dim=1), cell=torch.stack([cell] * rows, dim=1))


def ragged(count: int, longest: int, seed: int = 0) -> list[list[str]]:
    """Sentences of different lengths, empty ones among them."""
    choose = random.Random(seed)
    return [[f"w{choose.randrange(50)}" for _ in range(choose.randrange(longest + 1))] for _ in range(count)]


def assert_equal_bits(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one, other)


# --- The model -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_warm_model_starts_every_sentence_from_its_state():
    model, inputs = warm_model(), encode(SENTENCES)
    twin = zero_twin(model)
    found = model(**inputs, output_hidden_states=True, output_state=True)
    expected = twin(**inputs, initial_state=stored(model, 5), output_hidden_states=True, output_state=True)
    assert torch.equal(found.last_hidden_state, expected.last_hidden_state)
    assert torch.equal(found.state.hidden, expected.state.hidden)
    from_zeros = twin(**inputs, output_hidden_states=True)
    top = (found.hidden_states[-1] - from_zeros.hidden_states[-1]).abs()[:, 1:-1]
    assert top.amax() > 0.05  # both directions start from it
    assert top[..., :6].amax() > 0.01
    assert top[..., 6:].amax() > 0.01
    zeros = ElmoState.zeros(model.config, 5, model.warm_hidden)
    assert torch.equal(model(**inputs, initial_state=zeros).last_hidden_state, from_zeros.last_hidden_state)


@torch.no_grad()
def test_language_model_starts_sentences_from_it_and_streams_from_zeros():
    model = warm_model(ElmoForPreTraining, vocab_size=20)
    twin = zero_twin(model, ElmoForPreTraining)
    inputs = encode(SENTENCES)
    labels = torch.where(inputs["attention_mask"].bool(), torch.arange(inputs["input_ids"].shape[1]) % 19, -100)
    arguments = {"character_ids": inputs["character_ids"], "input_ids": inputs["input_ids"].clamp(max=18)}
    found = model(**arguments, attention_mask=inputs["attention_mask"], labels=labels)
    expected = twin(
        **arguments,
        attention_mask=inputs["attention_mask"],
        labels=labels,
        initial_state=stored(model.elmo, 5),
    )
    assert found.loss == expected.loss
    characters = inputs["character_ids"][:3, :4]
    targets = torch.ones(3, 4, dtype=torch.long)
    streams = [one.forward_stream(characters, targets, characters, targets).loss for one in (model, twin)]
    assert streams[0] == streams[1]


@torch.no_grad()
def test_heads_and_their_feature_cache_start_from_it(tmp_path):
    model = warm_model(ElmoForTokenClassification, num_labels=3)
    inputs = encode(SENTENCES)
    expected = model(**inputs).logits
    assert not torch.allclose(expected, zero_twin(model, ElmoForTokenClassification)(**inputs).logits, atol=1e-3)
    with FeatureCache(tmp_path) as cache:
        layers = cache.layers(model.elmo, inputs["character_ids"], inputs["attention_mask"].bool())
        model.elmo.warm_cell.add_(0.1)
        changed = cache.layers(model.elmo, inputs["character_ids"], inputs["attention_mask"].bool())
        model.config.initial_state = "zero"
        zero = cache.layers(model.elmo, inputs["character_ids"], inputs["attention_mask"].bool())
        assert cache.statistics.misses == 15
    assert (layers[-1] - changed[-1]).abs().amax() > 1e-3
    assert (zero[-1] - changed[-1]).abs().amax() > 1e-3


def test_fresh_state_is_zero_also_without_memory_for_it():
    model = ElmoModel(tiny_config(initial_state="warm"))
    assert model.warm_hidden.shape == (2, 12)
    assert model.warm_cell.shape == (2, 20)
    assert not model.warm_hidden.any()
    assert not model.warm_cell.any()
    with torch.device("meta"):
        model = ElmoModel(tiny_config(initial_state="warm"))
    assert model.warm_cell.is_meta
    assert not hasattr(ElmoModel(tiny_config()), "warm_hidden")


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_state_goes_along_to_another_precision(dtype):
    model, inputs = warm_model(), encode(SENTENCES)
    expected = model(**inputs).last_hidden_state
    converted = warm_model().to(dtype)
    assert converted.warm_hidden.dtype == dtype
    found = converted(**inputs, output_state=True)
    assert found.state.cell.dtype == dtype
    assert_close(found.last_hidden_state.float(), expected, atol=0.05 if dtype != torch.float64 else 1e-6, rtol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(model(**inputs).last_hidden_state.float(), expected, atol=0.05, rtol=0)


@torch.no_grad()
def test_compiled_model_starts_from_it():
    model, inputs = warm_model(), encode(SENTENCES)
    compiled = torch.compile(model, backend="eager")
    assert_close(compiled(**inputs).last_hidden_state, model(**inputs).last_hidden_state, atol=1e-6, rtol=0)


def test_unknown_choice_is_refused():
    with pytest.raises(StrictDataclassError, match="initial_state"):
        tiny_config(initial_state="hot")


@torch.no_grad()
def test_state_set_without_buffers_is_an_error():
    model = random_model()
    model.config.initial_state = "warm"
    with pytest.raises(ValueError, match="was set after this model was made, so it has no stored state"):
        model(**encode(SENTENCES))


# --- Folders ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A warm language model with its tokenizer."""
    place = tmp_path_factory.mktemp("warm")
    (place / "vocab.txt").write_text("".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", "the", "cat", "."]))
    tokenizer = ElmoTokenizer(place / "vocab.txt")
    warm_model(ElmoForPreTraining, vocab_size=len(tokenizer)).save_pretrained(place / "model")
    tokenizer.save_pretrained(place / "model")
    return place / "model"


@pytest.fixture
def log(capfd):
    """What transformers says while it loads."""
    before = logging.get_verbosity()
    logging.set_verbosity_warning()
    yield lambda: "".join(capfd.readouterr())
    logging.set_verbosity(before)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_saved_state_is_loaded(folder, tmp_path, dtype):
    model = ElmoForPreTraining.from_pretrained(folder).to(dtype)
    model.save_pretrained(tmp_path)
    loaded = ElmoForPreTraining.from_pretrained(tmp_path, dtype="auto")
    assert loaded.elmo.warm_hidden.dtype == dtype
    assert torch.equal(loaded.elmo.warm_hidden, model.elmo.warm_hidden)
    assert model.elmo.warm_hidden.any()
    assert torch.equal(loaded.elmo.warm_cell, model.elmo.warm_cell)
    assert torch.equal(ElmoModel.from_pretrained(folder).warm_cell, warm_model().warm_cell)


@torch.no_grad()
@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
def test_warm_folder_loads_from_zero_without_a_word_about_it(folder, log, model_class):
    model, report = model_class.from_pretrained(folder, initial_state="zero", output_loading_info=True)
    assert not any("warm" in name for name in report["unexpected_keys"])
    assert "warm_" not in log()
    encoder = getattr(model, "elmo", model)
    assert not hasattr(encoder, "warm_hidden")
    batch = ElmoTokenizer.from_pretrained(folder)("the cat .", return_tensors="pt")
    expected = zero_twin(ElmoModel.from_pretrained(folder))(**batch).last_hidden_state
    assert torch.equal(encoder.eval()(**batch).last_hidden_state, expected)


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification, AutoModel])
def test_folder_without_a_state_cannot_be_warm(tmp_path, model_class):
    random_model(tiny_config(vocab_size=20), model_class=ElmoForPreTraining).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"initial_state='warm' needs a stored state, and .* hf-elmo warm-state"):
        model_class.from_pretrained(tmp_path, initial_state="warm")


def test_state_of_another_size_is_refused(folder):
    with pytest.raises(ValueError, match="initial_state='warm' needs a stored state"):
        ElmoModel.from_pretrained(folder, num_hidden_layers=1, ignore_mismatched_sizes=True)


def test_continued_model_starts_from_zeros(folder):
    start = start_from(folder)
    assert start.model.config.initial_state == "zero"
    assert "initial_state" in start.report.left_behind


@torch.no_grad()
def test_aligned_model_keeps_its_state():
    model = warm_model()
    aligned = with_alignment(model, 2 * torch.eye(12), layer=1)
    inputs = encode(SENTENCES)
    expected = 2 * model(**inputs, output_hidden_states=True).hidden_states[1]
    assert_close(aligned(**inputs).last_hidden_state, expected, atol=1e-6, rtol=0)


def test_export_leaves_the_state_out_and_says_so(tmp_path):
    warm_model(cell_clip=3.0, projection_clip=3.0).save_pretrained(tmp_path / "model")
    ElmoTokenizer().save_pretrained(tmp_path / "model")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export_allennlp(tmp_path / "model", tmp_path / "back")
    assert "The stored state that sentences start from is left out" in " ".join(str(one.message) for one in caught)
    assert not any("warm" in str(name) for name in h5py.File(tmp_path / "back" / "weights.hdf5", "r"))


# --- To the last bit -------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("sizes", [{}, {"projection_size": 16, "cell_size": 48}])
def test_sentence_has_the_same_bits_in_any_batch(sizes):
    model = warm_model(**sizes)
    model.cache_words(100)  # is not used
    sentences = [words for words in ragged(30, 25) if words]
    tokenizer = ElmoTokenizer()

    def layers(batch):
        inputs = tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")
        with sentence_by_sentence():
            outputs = model(**inputs, output_hidden_states=True, output_state=True)
        every = torch.stack([*outputs.hidden_states, outputs.last_hidden_state])
        for row, words in enumerate(batch):
            assert not every[:, row, len(words) + 2 :].any()
            yield every[:, row, : len(words) + 2].numpy(), outputs.state.hidden[:, row].numpy()

    expected = [next(layers([words])) for words in sentences]
    for seed in range(6):
        order = random.Random(seed).sample(range(len(sentences)), k=2 + seed * 4)
        found = list(layers([sentences[number] for number in order]))
        for part in range(2):
            assert_equal_bits([one[part] for one in found], [expected[number][part] for number in order])
    assert torch.get_num_threads() == 1
    assert len(model.character_encoder.cache) == 0


@torch.no_grad()
def test_sentences_by_themselves_are_those_of_a_batch_up_to_rounding():
    model, inputs = warm_model(), encode([*SENTENCES, ""])
    state = ElmoState(hidden=torch.randn(2, 6, 12), cell=torch.randn(2, 6, 20))
    mask = inputs["attention_mask"].clone()
    mask[1] = 0  # nothing is left of it
    arguments = {**inputs, "attention_mask": mask, "initial_state": state, "output_state": True}
    expected = model(**arguments)
    with sentence_by_sentence():
        found = model(**arguments)
        assert len(PackedWords.parts_of(mask.bool())) == 5
        nothing = model(**{**arguments, "attention_mask": torch.zeros_like(mask)})
    assert_close(found.last_hidden_state, expected.last_hidden_state, atol=1e-6, rtol=0)
    assert_close(found.state, expected.state, atol=1e-6, rtol=0)
    assert torch.equal(nothing.state.cell, state.cell)
    assert not nothing.last_hidden_state.any()


def test_embedder_gives_the_same_bits_alone_and_in_any_company():
    embedder = ElmoEmbedder(warm_model())
    assert embedder.state == "warm"
    assert embedder.batch_invariant
    sentences = ragged(25, 20)
    expected = [embedder.encode([words], "all")[0] for words in sentences]
    for seed, batch_tokens in enumerate((1, 40, 4096)):
        order = random.Random(seed).sample(range(25), k=25)
        found = embedder.encode([sentences[number] for number in order], "all", batch_tokens=batch_tokens)
        assert_equal_bits(found, [expected[number] for number in order])
    again = ElmoEmbedder(warm_model(), batch_invariant=False).encode(sentences, "all")
    for one, other in zip(again, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_long_text_has_the_same_bits_too(monkeypatch):
    monkeypatch.setattr("hf_elmo.embedder.BATCH_TOKENS", 16)
    embedder = ElmoEmbedder(warm_model())
    words = [f"w{number % 40}" for number in range(100)]
    found = embedder.encode([["short"], words, words[:50]], batch_tokens=64)
    assert_equal_bits(found[1:], embedder.encode([words, words[:50]], batch_tokens=7))
    plain = ElmoEmbedder(warm_model(), batch_invariant=False).encode([words])[0]
    np.testing.assert_allclose(found[1], plain, atol=1e-6)


OTHER_PROCESS = """
import sys, numpy, torch
from hf_elmo import ElmoEmbedder
from hf_elmo.packing import sentence_by_sentence
embedder = ElmoEmbedder.from_pretrained(sys.argv[1], device="cpu")
texts = [["some", "company"] * 20, "the cat sat on the mat .".split(), ["the"]]
inputs = embedder.tokenizer(texts, is_split_into_words=True, padding=True, return_tensors="pt")
with sentence_by_sentence(), torch.no_grad():
    rows = embedder.model(**inputs).last_hidden_state
threads = torch.get_num_threads()
numpy.savez(sys.argv[2], embedder=embedder.encode(texts)[1], model=rows[1, 1:8].numpy(), threads=threads)
"""


def test_other_process_gives_the_same_bits(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    command = [sys.executable, "-c", OTHER_PROCESS, str(folder), str(tmp_path / "vectors.npz")]
    child = subprocess.run(command, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    expected = ElmoEmbedder.from_pretrained(folder, device="cpu").encode(["the cat sat on the mat .".split()])
    found = np.load(tmp_path / "vectors.npz")
    assert found["threads"] == 2
    assert_equal_bits([found["embedder"], found["model"]], expected * 2)


# --- The embedder's three states -------------------------------------------------------------------------------------


def test_embedder_starts_as_it_is_told():
    model = warm_model()
    sentences = ragged(20, 15)
    twin = zero_twin(model)
    zeros = ElmoEmbedder(twin).encode(sentences)
    for state, batch_tokens in (("zero", 4096), ("zero", 8)):  # in batches, in pieces
        found = ElmoEmbedder(model, state=state).encode(sentences, batch_tokens=batch_tokens)
        for one, other in zip(found, zeros, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
    for batch_tokens in (4096, 8):
        warm = ElmoEmbedder(model, batch_invariant=False).encode(sentences, batch_tokens=batch_tokens)
        for words, vectors in zip(sentences, warm, strict=True):
            inputs = ElmoTokenizer()([words], is_split_into_words=True, return_tensors="pt")
            with torch.no_grad():
                expected = twin(**inputs, initial_state=stored(model, 1)).last_hidden_state[0, 1:-1]
            np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("carry_batch", [1, 4])
@pytest.mark.parametrize("batch_tokens", [4096, 20])  # the longer ones in pieces
@pytest.mark.parametrize("warm", [False, True])  # makes no difference
def test_carried_state_is_that_of_the_same_place_in_the_batch_before(carry_batch, batch_tokens, warm):
    model = warm_model()
    twin = zero_twin(model)
    sentences = ragged(18, 15)  # the last batch of four has two
    found = ElmoEmbedder(model if warm else twin, state="carry", carry_batch=carry_batch).encode(
        sentences, batch_tokens=batch_tokens
    )
    state = ElmoState.zeros(model.config, carry_batch, model.warm_hidden)
    for start in range(0, len(sentences), carry_batch):
        batch = sentences[start : start + carry_batch]
        inputs = ElmoTokenizer()(batch, is_split_into_words=True, padding=True, return_tensors="pt")
        with torch.no_grad():
            outputs = twin(**inputs, initial_state=state.for_batch(len(batch)), output_state=True)
        state = state.updated(outputs.state)
        for row, words in enumerate(batch):
            expected = outputs.last_hidden_state[row, 1 : len(words) + 1].numpy()
            np.testing.assert_allclose(found[start + row], expected, atol=1e-6)


@pytest.mark.parametrize("batch_tokens", [4096, 25])
def test_stored_vectors_of_the_original_come_out_with_carried_state(tmp_path, batch_tokens):
    """30 sentences in 10 batches of 3, written by the TensorFlow program; top layer, both directions."""
    fixtures = allennlp_fixtures() / "elmo"
    convert_allennlp(fixtures / "options.json", fixtures / "lm_weights.hdf5", tmp_path / "elmo")
    lists = json.loads((fixtures / "sentences.json").read_text())
    texts = [text.split() for batch in zip(*lists, strict=True) for text in batch]
    embedder = ElmoEmbedder.from_pretrained(tmp_path / "elmo", state="carry", carry_batch=3, device="cpu")
    found = embedder.encode(texts, "top", batch_tokens=batch_tokens)
    files = [h5py.File(fixtures / f"lm_embeddings_{number}.hdf5", "r") for number in range(3)]
    for number, vectors in enumerate(found):
        forward, backward = files[number % 3][str(number // 3)][...]  # (T, P) each
        np.testing.assert_allclose(vectors, np.concatenate([forward, backward], axis=1), **ALLENNLP_TOLERANCE)
    assert len(found) == 30


def test_every_call_begins_anew_and_other_options_hold():
    embedder = ElmoEmbedder(random_model(), state="carry", carry_batch=2)
    sentences = words_of(SENTENCES)
    first, second = embedder.encode(sentences, "all"), embedder.encode(sentences, "all")
    assert_equal_bits(first, second)
    pooled = embedder.encode(sentences, "top", "mean")
    np.testing.assert_allclose(pooled[3], first[3][-1].mean(axis=0), atol=1e-6)
    assert list(embedder.encode_stream([])) == []
    half = embedder.encode(sentences, dtype="float16")
    assert half[0].dtype == np.float16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "cold"}, r"state='cold' is not possible: it is 'zero', 'warm', 'carry'"),
        ({"state": "warm"}, r"state='warm' needs a model with a stored state .* hf-elmo warm-state FOLDER TEXT"),
        ({"state": "carry", "carry_batch": 0}, r"carry_batch=0 is not possible"),
        ({"state": "carry", "carry_batch": True}, r"carry_batch=True is not possible"),
        ({"carry_batch": 2}, r"carry_batch=2 is for state='carry', but the state is 'zero'"),
        ({"state": "carry", "batch_invariant": True}, r"batch_invariant=True is not possible with state='carry'"),
    ],
)
def test_what_the_embedder_cannot_do(options, message):
    with pytest.raises(ValueError, match=message):
        ElmoEmbedder(random_model(), **options)
