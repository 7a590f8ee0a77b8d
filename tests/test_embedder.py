"""`ElmoEmbedder`: the same vectors as the model's, whatever the batch, the order, the length or the source."""

import itertools
import random
import warnings

import numpy as np
import pytest
import torch
from tiny import SENTENCES, random_model, tiny_config, words_of
from torch.testing import assert_close

from hf_elmo import ElmoConfig, ElmoForTokenClassification, ElmoTokenizer, embedder
from hf_elmo.embedder import ElmoEmbedder

LAYER_CHOICES = ["mix", "top", "average", "all", 0, 1, 2]


@pytest.fixture(scope="module")
def tiny() -> ElmoEmbedder:
    return ElmoEmbedder(random_model())


def ragged(count: int, longest: int, seed: int = 0) -> list[list[str]]:
    """Sentences of different lengths, empty ones among them."""
    choose = random.Random(seed)
    return [[f"w{choose.randrange(50)}" for _ in range(choose.randrange(longest + 1))] for _ in range(count)]


def one_by_one(model, sentences, layers="mix", keep_boundaries=False) -> list[np.ndarray]:
    """What the model gives for each sentence alone."""
    results = []
    for words in sentences:
        batch = ElmoTokenizer()([words], is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            outputs = model(**batch, output_hidden_states=True)
        stacked = torch.stack(outputs.hidden_states, dim=1)[0]
        chosen = {"mix": outputs.last_hidden_state[0], "top": stacked[-1], "average": stacked.mean(0), "all": stacked}
        vectors = stacked[layers] if isinstance(layers, int) else chosen[layers]
        results.append((vectors if keep_boundaries else vectors[..., 1:-1, :]).numpy())
    return results


def assert_same(ours, expected, atol=1e-6):
    assert len(ours) == len(expected)
    for one, other in zip(ours, expected, strict=True):
        assert one.shape == other.shape
        assert_close(torch.as_tensor(one), torch.as_tensor(other), atol=atol, rtol=0)


# --- The same as the model -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", LAYER_CHOICES)
@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])  # in pieces of a step, both ways, in one batch
def test_results_are_those_of_each_sentence_alone_in_order(tiny, layers, batch_tokens):
    sentences = ragged(25, 20)
    assert any(not words for words in sentences)
    assert_same(tiny.encode(sentences, layers, batch_tokens=batch_tokens), one_by_one(tiny.model, sentences, layers))


def test_raw_text_is_split_and_may_stand_beside_lists_of_words(tiny):
    texts = ["It's a river bank, isn't it?", ["Two", "words"], ""]
    words = [tiny.words(text) for text in texts]
    assert words == [["It", "'s", "a", "river", "bank", ",", "isn", "'t", "it", "?"], ["Two", "words"], []]
    assert_same(tiny.encode(texts), one_by_one(tiny.model, words))
    assert_same([tiny.encode(texts[0])], one_by_one(tiny.model, words[:1]))


def test_results_do_not_depend_on_batch_mates(tiny):
    sentences = ragged(60, 30, seed=1)
    expected = one_by_one(tiny.model, sentences)
    for seed in range(20):
        order = random.Random(seed).sample(range(60), k=random.Random(seed).randrange(1, 60))
        batch_tokens = random.Random(seed).choice([7, 64, 300, 4096])
        results = tiny.encode([sentences[number] for number in order], batch_tokens=batch_tokens)
        assert_same(results, [expected[number] for number in order])


def test_a_mix_normalised_over_the_batch_is_normalised_over_the_sentence():
    model = random_model(tiny_config(mix_layer_norm="batch"))
    sentences = ragged(12, 15)
    for batch_tokens in (30, 4096):
        results = ElmoEmbedder(model).encode(sentences, batch_tokens=batch_tokens)
        assert_same(results, one_by_one(model, sentences), atol=3e-6)  # deviations are divided by small ones


@pytest.mark.parametrize("overrides", [{"use_alignment": True, "layer_combination": 1}, {"layer_combination": "top"}])
def test_mix_is_what_the_model_gives(overrides):
    model = random_model(tiny_config(**overrides))
    if model.config.use_alignment:
        model.alignment.matrix.copy_(torch.randn_like(model.alignment.matrix))
    for batch_tokens in (5, 4096):
        assert_same(
            ElmoEmbedder(model).encode(words_of(SENTENCES), batch_tokens=batch_tokens),
            one_by_one(model, words_of(SENTENCES)),
            atol=3e-6,
        )


@pytest.mark.parametrize("word_input", ["words", "both"])
def test_models_that_look_words_up(tmp_path, word_input):
    (tmp_path / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *(f"w{number}" for number in range(30))]))
    tokenizer = ElmoTokenizer(tmp_path / "vocab.txt")
    model = random_model(tiny_config(word_input=word_input, word_embedding_size=5, vocab_size=len(tokenizer)))
    sentences = ragged(9, 12)
    together = ElmoEmbedder(model, tokenizer).encode(sentences, batch_tokens=16)
    alone = [ElmoEmbedder(model, tokenizer).encode([words])[0] for words in sentences]
    assert_same(together, alone)
    with pytest.raises(ValueError, match="tokenizer is missing"):
        ElmoEmbedder(model)


def test_a_model_with_a_head_is_used_for_its_encoder():
    model = random_model(tiny_config(num_labels=3), model_class=ElmoForTokenClassification)
    assert_same(ElmoEmbedder(model).encode(words_of(SENTENCES)), one_by_one(model.elmo, words_of(SENTENCES)))


def test_a_tokenizer_without_boundaries():
    tokenizer = ElmoTokenizer(add_bos_token=False, add_eos_token=False)
    model = random_model()
    batch = tokenizer([["a", "b"]], is_split_into_words=True, return_tensors="pt")
    results = ElmoEmbedder(model, tokenizer).encode([["a", "b"], []])
    assert_same(results, [model(**batch).last_hidden_state[0].detach().numpy(), np.zeros((0, 12), np.float32)])
    pooled = ElmoEmbedder(model, tokenizer).encode([[], []], pooling="mean_max")
    assert pooled.shape == (2, 24)
    assert not pooled.any()


# --- Long documents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", ["mix", "all"])
def test_a_long_document_in_pieces_is_the_whole_one(tiny, layers):
    document = [f"word{number % 97}" for number in range(5000)]
    (whole,) = one_by_one(tiny.model, [document], layers)
    (pieces,) = tiny.encode([document], layers, batch_tokens=512)
    assert_same([pieces], [whole])


def test_a_document_in_pieces_never_gives_the_model_more_words_than_the_budget(tiny, monkeypatch):
    sizes = []
    read = tiny.model.bilstm.read

    def counted(stack, words, *arguments):
        sizes.append(len(words))
        return read(stack, words, *arguments)

    monkeypatch.setattr(tiny.model.bilstm, "read", counted)
    documents = [["word"] * length for length in (1000, 998, 300, 1)]
    expected = one_by_one(tiny.model, documents)
    sizes.clear()
    assert_same(tiny.encode(documents, batch_tokens=100), expected)
    assert max(sizes) <= 100
    assert sum(sizes) == 2 * sum(len(words) + 2 for words in documents)


# --- Streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_is_read_as_it_is_needed(tiny, monkeypatch):
    monkeypatch.setattr(embedder, "BATCHES_AHEAD", 2)
    taken = itertools.count()
    endless = (["word"] * 8 for _ in iter(lambda: next(taken), None))
    stream = tiny.encode_stream(endless, batch_tokens=50)  # 10 positions each: 100 are read ahead
    assert next(taken) == 0
    for number in range(35):
        assert next(stream).shape == (8, 12)
        assert next(taken) <= 2 + number // 10 * 10 + 10 + number  # this test takes a number itself, each time
    stream.close()


def test_empty_texts_do_not_make_the_stream_read_for_ever(tiny):
    stream = tiny.encode_stream(iter(lambda: [], None), batch_tokens=10)
    assert next(stream).shape == (0, 12)


def test_a_stream_gives_what_a_list_gives_and_leaves_the_model_as_it_was(tiny):
    sentences = ragged(30, 9)
    model = random_model(tiny_config(dropout=0.5)).train()
    model.character_encoder.eval()
    streaming = ElmoEmbedder(model)
    stream = streaming.encode_stream(iter(sentences), batch_tokens=12)
    first = next(stream)
    assert model.training
    assert not model.character_encoder.training
    assert model.character_encoder.cache is None
    assert torch.is_grad_enabled()
    assert_same([first, *stream], one_by_one(random_model(tiny_config(dropout=0.5)), sentences))
    assert not any(weight.grad is not None for weight in model.parameters())


def test_a_stream_spells_a_word_once_and_does_not_depend_on_earlier_ones(tiny, monkeypatch):
    encoder = tiny.model.character_encoder
    spelled = []
    encode = encoder._encode_different
    monkeypatch.setattr(encoder, "_encode_different", lambda ids: spelled.append(len(ids)) or encode(ids))
    sentences = ragged(200, 20)
    first = tiny.encode(sentences, batch_tokens=64)
    different = len({word for words in sentences for word in words}) + 2
    assert sum(spelled) == different
    tiny.encode(ragged(30, 5, seed=3))
    spelled.clear()
    second = tiny.encode(sentences, batch_tokens=64)
    assert sum(spelled) == different
    for one, other in zip(first, second, strict=True):
        assert (one == other).all()


# --- Forms of the result ---------------------------------------------------------------------------------------------


def test_empty_sentences_have_a_shape(tiny):
    assert [array.shape for array in tiny.encode([[], ["a"], ""])] == [(0, 12), (1, 12), (0, 12)]
    assert [array.shape for array in tiny.encode([[], ["a"]], "all")] == [(3, 0, 12), (3, 1, 12)]
    assert tiny.encode([[]], keep_boundaries=True)[0].shape == (2, 12)
    assert tiny.encode([]) == []
    assert tiny.encode("").shape == (0, 12)


def test_boundaries_can_be_kept(tiny):
    sentences = ragged(5, 6)
    for batch_tokens in (10, 4096):
        results = tiny.encode(sentences, keep_boundaries=True, batch_tokens=batch_tokens)
        assert_same(results, one_by_one(tiny.model, sentences, keep_boundaries=True))


def test_pooling(tiny):
    sentences = [["a"], ["b", "c", "d"], []]
    for layers in ("mix", "all"):
        words = one_by_one(tiny.model, sentences, layers)
        whole = one_by_one(tiny.model, sentences, layers, keep_boundaries=True)
        words[2] = whole[2]  # without words, the boundaries are pooled
        mean, largest = [each.mean(-2) for each in words], [each.max(-2) for each in words]
        both = [np.concatenate(pair, axis=-1) for pair in zip(mean, largest, strict=True)]
        ends = [np.concatenate([each[..., -1, :], each[..., 0, :]], axis=-1) for each in whole]
        for pooling, expected in (("mean", mean), ("max", largest), ("mean_max", both), ("boundary", ends)):
            assert_same([tiny.encode(sentences, layers, pooling)], [np.stack(expected)])
    kept = tiny.encode(sentences, pooling="mean", keep_boundaries=True)
    assert_same(kept, [each.mean(0) for each in one_by_one(tiny.model, sentences, keep_boundaries=True)])
    assert tiny.encode("One text .", pooling="mean").shape == (12,)


def test_precision_and_kind(tiny):
    sentences = words_of(SENTENCES)
    exact = tiny.encode(sentences)
    assert {array.dtype for array in exact} == {np.dtype("float32")}
    half = tiny.encode(sentences, dtype="float16", batch_tokens=20)
    assert {array.dtype for array in half} == {np.dtype("float16")}
    assert_same([array.astype(np.float32) for array in half], exact, atol=2e-3)
    tensors = tiny.encode(sentences, as_tensors=True, dtype=torch.bfloat16)
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}
    double = ElmoEmbedder(random_model(), dtype="float64").encode(sentences)
    assert {array.dtype for array in double} == {np.dtype("float64")}
    assert_same([array.astype(np.float32) for array in double], exact)
    brain = ElmoEmbedder(random_model(), dtype=torch.bfloat16).encode(sentences[:1])
    assert brain[0].dtype == np.dtype("float32")


def test_tensors_can_be_trained_on(tiny):
    for batch_tokens in (5, 4096):
        (vectors,) = tiny.encode([["a", "b"]], as_tensors=True, batch_tokens=batch_tokens)
        weight = torch.ones(12, requires_grad=True)
        (vectors @ weight).sum().backward()
        assert weight.grad is not None


def test_from_pretrained(tmp_path):
    model = random_model(tiny_config(num_labels=3), model_class=ElmoForTokenClassification)
    model.save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    loaded = ElmoEmbedder.from_pretrained(tmp_path, device="cpu")
    assert_same(loaded.encode(words_of(SENTENCES)), one_by_one(model.elmo, words_of(SENTENCES)))
    assert ElmoEmbedder.from_pretrained(tmp_path, dtype="float64").model.dtype == torch.float64


def test_weights_that_are_missing_are_told(tmp_path):
    model = random_model()
    weights = {name: weight for name, weight in model.state_dict().items() if "projection_weight" not in name}
    model.save_pretrained(tmp_path, state_dict=weights)
    ElmoTokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"lacks weights: bilstm.*projection_weight"):
        ElmoEmbedder.from_pretrained(tmp_path)


# --- Mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": "bottom"}, r"layers='bottom' is not possible: it is 'mix', .*, or a number from 0 to 2"),
        ({"layers": 3}, "layers=3 is not possible"),
        ({"layers": True}, "layers=True is not possible"),
        ({"pooling": "sum"}, "pooling='sum' is not possible: it is 'mean'"),
        ({"batch_tokens": 0}, "batch_tokens=0 is not possible"),
        ({"dtype": "int8"}, "dtype='int8' is not possible: it is 'float16'"),
        ({"dtype": torch.int64}, "is not possible: it is 'float16'"),
        ({"dtype": "bfloat16"}, "numpy has no bfloat16"),
        ({"texts": [["a"], 7]}, "Text 1 is 7, a int, but it must be a string or a list of words"),
        ({"texts": [["a", 7]]}, "Text 0 has the word 7, a int"),
        ({"texts": ["a b"], "is_split_into_words": True}, "Text 0 is the string 'a b', but is_split_into_words=True"),
        ({"texts": [["a"]], "is_split_into_words": False}, "it must be a string"),
        ({"texts": [], "pooling": "mean"}, "There is no text"),
    ],
)
def test_mistakes_are_explained(tiny, arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny.encode(**{"texts": [["a"]], **arguments})


def test_mistakes_in_a_stream_are_told_at_once(tiny):
    with pytest.raises(ValueError, match="layers=9"):
        tiny.encode_stream([["a"]], layers=9)
    with pytest.raises(ValueError, match="texts is a single string"):
        tiny.encode_stream("a b")


def test_values_that_do_not_fit_half_precision():
    model = random_model()
    model.mixes[0].gamma.data.fill_(1e7)
    with pytest.raises(ValueError, match="do not fit float16"):
        ElmoEmbedder(model).encode(["a b"], dtype="float16")


def test_something_else_than_a_model():
    with pytest.raises(ValueError, match=r"model is a str, but .*from_pretrained"):
        ElmoEmbedder("my-elmo")


def test_a_sentence_as_one_word_is_warned_of_once():
    careful = ElmoEmbedder(random_model())
    with pytest.warns(UserWarning, match="has the word 'The cat sat', with white space in it"):
        careful.encode([["The cat sat"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        careful.encode([["The cat sat"]])


def test_words_as_texts_are_warned_of():
    careful = ElmoEmbedder(random_model())
    careful.encode(["The", "cat", "sat"], is_split_into_words=False)
    careful.encode(["조용한", "강둑", "강"])  # a text of some languages has no spaces
    with pytest.warns(UserWarning, match=r"3 texts of a word each .* encode\(\[words\]\)"):
        careful.encode(["The", "cat", "sat"])


def test_progress_shows_words(tiny, monkeypatch, capsys):
    from transformers.utils import logging

    monkeypatch.setattr(logging, "_tqdm_active", True)
    bars = []
    make = logging.tqdm

    def remembered(*arguments, **options):
        bars.append(make(*arguments, **{**options, "delay": 0}))
        return bars[-1]

    monkeypatch.setattr(logging, "tqdm", remembered)
    tiny.encode(words_of(SENTENCES), show_progress=True, batch_tokens=30)
    assert bars[0].n == sum(map(len, words_of(SENTENCES)))
    assert "words/s" in capsys.readouterr().err
    tiny.encode(words_of(SENTENCES), show_progress=False)
    assert capsys.readouterr().err == ""
    with make(total=100) as bar:
        tiny.encode(words_of(SENTENCES), show_progress=bar)
        assert bar.n == bars[0].n


def test_the_default_tokenizer_reads_as_many_characters_as_the_model():
    model = random_model(tiny_config(max_characters_per_token=20))
    assert ElmoEmbedder(model).encode(["Incomprehensibilities are long ."])[0].shape == (4, 12)
    assert isinstance(model.config, ElmoConfig)
