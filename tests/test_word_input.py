"""Models that look words up in a table, alone or beside their characters, and models without projections."""

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from originals import elmo_options, random_weights
from tiny import SENTENCES, encode, random_model, tiny_config, words_of
from torch.testing import assert_close

from hf_elmo import (
    ElmoCharacters,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    FeatureCache,
    batch_to_ids,
)
from hf_elmo.conversion.allennlp import name_table
from hf_elmo.conversion.options import config_from_options
from hf_elmo.conversion.reference import reference_forward
from hf_elmo.tokenization_elmo import word_tokenizer

SIZES = {
    "words": {"word_input": "words", "word_embedding_size": 6, "project_words": False},
    "projected words": {"word_input": "words", "word_embedding_size": 5},
    "both": {"word_input": "both", "word_embedding_size": 5},
    "both, not projected": {"word_input": "both", "word_embedding_size": 2, "char_cnn_filters": [[1, 4]]}
    | {"project_words": False},
    "no projections": {"project_words": False, "project_cells": False, "char_cnn_filters": [[1, 2], [2, 4]]}
    | {"cell_size": 6},
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> ElmoTokenizer:
    """Knows two of three words of the sentences."""
    words = dict.fromkeys(word for sentence in words_of(SENTENCES) for word in sentence)
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    known = [word for number, word in enumerate(words) if number % 3]
    path.write_text("\n".join(["<S>", "</S>", "<UNK>", *known]) + "\n", encoding="utf-8")
    return ElmoTokenizer(path, word_splitting="whitespace")


def model_of(name: str, tokenizer: ElmoTokenizer, model_class=ElmoModel, **overrides):
    config = tiny_config(**{**SIZES[name], "vocab_size": len(tokenizer), **overrides})
    return random_model(config, scale=0.5, model_class=model_class)


def batch_of(tokenizer: ElmoTokenizer, sentences=SENTENCES, **options):
    options = {"padding": True, "return_tensors": "pt", **options}
    return tokenizer(words_of(sentences), is_split_into_words=True, **options)


# --- What is computed ------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("name", ["words", "projected words", "both", "both, not projected"])
def test_the_vector_of_a_word_by_hand(tokenizer, name):
    model, batch = model_of(name, tokenizer, layer_combination=0), batch_of(tokenizer)
    encoder, mask = model.character_encoder, batch["attention_mask"].bool()
    expected = encoder.word_embedding.weight[batch["input_ids"][mask]]
    if name.startswith("both"):
        characters = encoder.embedding(batch["character_ids"][mask]).transpose(1, 2)
        spelled = torch.cat([conv(characters).amax(2) for conv in encoder.convolutions], dim=1).relu()
        for highway in encoder.highways:
            spelled = highway(spelled)
        expected = torch.cat([expected, spelled], dim=1)
    if model.config.project_words:
        expected = expected @ encoder.projection.weight.T + encoder.projection.bias
    found = model(**batch).last_hidden_state
    assert_close(found[mask], torch.cat([expected, expected], dim=1), atol=1e-6, rtol=0)
    assert (found[~mask] == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("name", SIZES)
def test_padding_and_batch_mates_change_nothing(tokenizer, name):
    model = model_of(name, tokenizer)
    together = model(**batch_of(tokenizer)).last_hidden_state
    left = model(**batch_of(tokenizer, padding_side="left")).last_hidden_state
    for row, sentence in enumerate(SENTENCES):
        alone = model(**batch_of(tokenizer, [sentence])).last_hidden_state[0]
        assert_close(together[row, : len(alone)], alone, atol=1e-6, rtol=0)
        assert_close(left[row, left.shape[1] - len(alone) :], alone, atol=1e-6, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["words", "projected words"])
def test_a_model_of_words_reads_no_characters(tokenizer, name):
    model, batch = model_of(name, tokenizer), batch_of(tokenizer)
    expected = model(**batch).last_hidden_state
    assert torch.equal(model(input_ids=batch["input_ids"]).last_hidden_state, expected)  # padding is the last id
    batch["character_ids"] = torch.full_like(batch["character_ids"], 10**6)
    assert torch.equal(model(**batch).last_hidden_state, expected)


@torch.no_grad()
def test_padding_with_any_id_where_the_mask_says_so(tokenizer):
    model, batch = model_of("words", tokenizer), batch_of(tokenizer)
    expected = model(**batch).last_hidden_state
    batch["input_ids"][~batch["attention_mask"].bool()] = 0
    assert torch.equal(model(**batch).last_hidden_state, expected)
    model.config.pad_token_id = 3  # as in ELMoForManyLangs; then id 3 is padding if there is no mask
    ids = torch.tensor([[1, 4, 3, 3]])
    assert_close(model(ids).last_hidden_state[:, :2], model(ids[:, :2]).last_hidden_state)
    assert (model(ids).last_hidden_state[:, 2:] == 0).all()


@torch.no_grad()
def test_words_outside_the_vocabulary_differ_by_their_characters_only(tokenizer):
    sentences = ["unseen", "unheard"]
    words, both = (model_of(name, tokenizer)(**batch_of(tokenizer, sentences)) for name in ("words", "both"))
    # A matrix product may round the rows of a batch differently, depending on the processor.
    torch.testing.assert_close(words.last_hidden_state[0], words.last_hidden_state[1], atol=1e-6, rtol=0)
    assert not torch.allclose(both.last_hidden_state[0], both.last_hidden_state[1], atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("missing", [{"cell": 8}, {"filters": [[1, 4], [2, 4]]}, {"filters": [[1, 8]], "cell": 8}])
@pytest.mark.parametrize("layers", [1, 8])
def test_models_of_bilm_tf_without_projections(missing, layers):
    """bilm-tf leaves out a projection between equal sizes, and with the second one the clip of its output."""
    options = elmo_options(layers=layers, projection_clip=0.1, highway=0, **missing)
    arrays = random_weights(options, bilm_tf=True)
    config = config_from_options(options)
    left_out = {row.dataset: row.weights for row in name_table(config) if row.dataset not in arrays}
    fields = config.to_dict() | {
        "project_words": "CNN_proj/W_proj" in arrays,
        "project_cells": not any(dataset.endswith("W_P_0") for dataset in left_out),
    }
    model = ElmoModel(type(config).from_dict(fields)).eval()
    weights = {}
    for row in name_table(config):
        if row.dataset in arrays:
            converted = row.layout.to_ours(arrays[row.dataset])
            weights |= {
                name: torch.from_numpy(array.copy()) for name, array in zip(row.weights, converted, strict=True)
            }
    found = model.load_state_dict(weights, strict=False)
    assert not found.unexpected_keys
    assert {name.partition(".")[0] for name in found.missing_keys} == {"mixes"}

    batch = encode(SENTENCES[:1])
    layers_found = torch.cat(model(**batch, output_hidden_states=True).hidden_states)
    expected, _ = reference_forward(options, arrays, batch["character_ids"][0].numpy())
    np.testing.assert_allclose(layers_found.numpy(), expected, atol=1e-5, rtol=0)


# --- Hugging Face ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_saved_loaded_and_trained(tokenizer, name, tmp_path):
    model, batch = model_of(name, tokenizer), batch_of(tokenizer)
    model.save_pretrained(tmp_path)
    loaded, report = ElmoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert torch.equal(loaded(**batch).last_hidden_state, model(**batch).last_hidden_state)
    loaded.train()(**batch).last_hidden_state.pow(2).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in loaded.parameters())


@pytest.mark.parametrize("name", ["words", "both"])
@pytest.mark.parametrize("head", [ElmoForTokenClassification, ElmoForSequenceClassification])
def test_a_frozen_table_stays_as_it_is(tokenizer, name, head):
    model = model_of(name, tokenizer, head)
    assert not model.elmo.character_encoder.word_embedding.weight.requires_grad
    model.freeze_bilm(False)
    assert model.elmo.character_encoder.word_embedding.weight.requires_grad
    batch = batch_of(tokenizer)
    if name == "words":
        batch.pop("character_ids")
    assert model(**batch).logits.isfinite().all()


def test_fresh_tables_begin_as_in_bilm_tf(tokenizer):
    weight = ElmoModel(tiny_config(**SIZES["words"], vocab_size=1000)).character_encoder.word_embedding.weight
    assert weight.shape == (1000, 6)
    assert weight.abs().max() <= 1
    assert_close(weight.std(), torch.tensor(3**-0.5), rtol=0.05, atol=0)


def test_input_embeddings(tokenizer):
    words, both = model_of("words", tokenizer), model_of("both", tokenizer)
    assert words.get_input_embeddings() is words.character_encoder.word_embedding
    assert both.get_input_embeddings() is both.character_encoder.embedding
    with pytest.raises(ValueError, match=r"word_input='both' belongs to its vocabulary and cannot be resized"):
        both.resize_token_embeddings(10)


# --- Heads -----------------------------------------------------------------------------------------------------------


def tokenizer_like_manylangs() -> ElmoTokenizer:
    """Words and characters with other names and ids of boundaries, padding among the words."""
    tokenizer = ElmoTokenizer(
        tokenizer_object=word_tokenizer(["<oov>", "<bos>", "<eos>", "<pad>", "The", "cat"], "<oov>", "<pad>"),
        word_splitting="whitespace",
        **{"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<oov>", "pad_token": "<pad>"},
        add_bos_token=True,
        add_eos_token=True,
    )
    names = (*"Thecatsonm", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")
    tokenizer.set_characters(
        ElmoCharacters(names, begin_sentence=11, end_sentence=12, begin_word=16, end_word=15, pad_word=14, unknown=13)
    )
    return tokenizer


def head_of(name: str, tokenizer: ElmoTokenizer, model_class, **overrides):
    """A head on a model of words, of both, or on one like those of ELMoForManyLangs; and its tokenizer."""
    settings = {"num_labels": 3, **overrides}
    if not name.startswith("ManyLangs"):
        return model_of(name, tokenizer, model_class, **settings), tokenizer
    tokenizer = tokenizer_like_manylangs()
    settings |= {"pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2, "char_vocab_size": 17}
    settings |= {"character_markers": [11, 12, 16, 15, 14]}
    if name == "ManyLangs, words":  # the characters are those of the tokenizer, and the config knows nothing of them
        settings |= {"char_vocab_size": 262, "character_markers": [257, 258, 259, 260, 261]}
    return model_of(name.rpartition(", ")[2], tokenizer, model_class, **settings), tokenizer


KINDS = ["words", "both", "ManyLangs, words", "ManyLangs, both"]


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_pooling_knows_the_boundaries(tokenizer, name):
    """By hand: the mean and the maximum are over the words, the boundary states are those of the boundaries."""
    for pooling in ("mean", "max", "boundary"):
        model, tokenizer_ = head_of(name, tokenizer, ElmoForSequenceClassification, pooling=pooling)
        batch = batch_of(tokenizer_, SENTENCES[:2])
        vectors = model.elmo(**batch).last_hidden_state
        pooled = []
        for row, length in enumerate(batch["attention_mask"].sum(dim=1).tolist()):
            inner = vectors[row, 1 : length - 1]
            last, first = vectors[row, length - 1], vectors[row, 0]
            pooled.append({"mean": inner.mean(0), "max": inner.amax(0), "boundary": torch.cat([last, first])}[pooling])
        assert_close(model(**batch).logits, model.classifier(torch.stack(pooled)), atol=1e-6, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_pairs_are_cut_at_the_boundaries(tokenizer, name):
    model, tokenizer_ = head_of(name, tokenizer, ElmoForSequenceClassification, num_sentences=2)
    batch = tokenizer_([["The", "cat"]], [["sat"]], is_split_into_words=True, return_tensors="pt")
    vectors = model.elmo(**batch).last_hidden_state[0]
    assert len(vectors) == 7
    u, v = vectors[1:3].mean(0), vectors[5]
    expected = model.classifier(torch.cat([u, v, (u - v).abs(), u * v]))
    assert_close(model(**batch).logits[0], expected, atol=1e-6, rtol=1e-5)
    single = batch_of(tokenizer_, ["The cat"])
    with pytest.raises(ValueError, match=r"has 1 sentence\(s\), but this model classifies pairs"):
        model(**single)


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_a_crf_leaves_the_boundaries_out(tokenizer, name):
    names = {0: "O", 1: "B-X", 2: "I-X"}
    model, tokenizer_ = head_of(name, tokenizer, ElmoForTokenClassification, id2label=names, use_crf=True)
    batch = batch_of(tokenizer_, ["The cat"])
    labels = torch.tensor([[-100, 1, 2, -100]])
    emissions = model.classifier(model.elmo(**batch).last_hidden_state)
    inner = torch.tensor([[False, True, True, False]])
    expected = -model.crf.log_likelihood(emissions, labels, inner).sum()
    assert_close(model(**batch, labels=labels).loss, expected, atol=1e-6, rtol=1e-5)
    assert_close(model(**batch, labels=labels.clamp(min=0)).loss, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_heads_need_the_word_ids(tokenizer, name):
    model, tokenizer_ = head_of(name, tokenizer, ElmoForSequenceClassification)
    batch = batch_of(tokenizer_)
    del batch["input_ids"]
    with pytest.raises(ValueError, match=r"input_ids is missing, but this model .* looks words up in a table"):
        model(**batch)
    baseline = model_of(
        "words", tokenizer, ElmoForSequenceClassification, use_elmo=False, word_vector_size=2, word_vector_vocab_size=9
    )
    with pytest.raises(ValueError, match="input_ids is missing: without it, nobody knows where sentences begin"):
        baseline(**batch, word_vector_ids=torch.ones_like(batch["attention_mask"]))


@pytest.mark.parametrize("name", ["words", "both"])
def test_a_feature_cache_is_for_models_of_characters(tokenizer, name, tmp_path):
    model = model_of(name, tokenizer, ElmoForSequenceClassification)
    model.feature_cache = FeatureCache(tmp_path / "cache")
    with pytest.raises(ValueError, match=f"A feature cache knows sentences by their characters.*{name}"):
        model(**batch_of(tokenizer))


# --- Language models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["words", "projected words", "both", "no projections"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_losses_of_language_models(tokenizer, name, side):
    """Those of the sentences one by one, by hand; a model of words needs no characters and no mask."""
    model = model_of(name, tokenizer, ElmoForPreTraining)
    batch = batch_of(tokenizer, padding_side=side)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    outputs = model(**batch, labels=labels)
    losses = []
    for sentence in SENTENCES:
        alone = batch_of(tokenizer, [sentence])
        top, ids = model.elmo(**alone, output_hidden_states=True).hidden_states[-1][0], alone["input_ids"][0]
        scores = top[:, : model.config.projection_size] @ model.softmax.weight.T + model.softmax.bias
        losses.append(torch.nn.functional.cross_entropy(scores[:-1], ids[1:], reduction="none"))
    assert_close(outputs.forward_loss, torch.cat(losses).mean())
    if "words" in name:
        assert_close(model(batch["input_ids"], labels=batch["input_ids"]).loss, outputs.loss)
    outputs.loss.backward()
    if name != "no projections":
        assert model.elmo.character_encoder.word_embedding.weight.grad.abs().sum() > 0


def test_padding_must_be_the_last_id_for_language_models(tokenizer):
    with pytest.raises(ValueError, match=r"pad_token_id=3 is not .* needs padding to be the last word id, \d+, as"):
        model_of("both", tokenizer, ElmoForPreTraining, pad_token_id=3)


# --- What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["words", "both"])
def test_word_ids_must_be_there(tokenizer, name):
    model, batch = model_of(name, tokenizer), batch_of(tokenizer)
    needs = r"looks words up in a table: it needs word ids \(batch, words\)"
    with pytest.raises(ValueError, match=rf"input_ids is missing, but this model .*{needs}"):
        model(character_ids=batch["character_ids"])
    with pytest.raises(ValueError, match=rf"input_ids is of the shape \(1, 1, 50\), but .*{needs}"):
        model(batch_to_ids([["a"]]))
    with pytest.raises(ValueError, match=rf"input_ids is missing, but .*{needs}"):
        model()


def test_characters_must_be_there_for_both(tokenizer):
    model, batch = model_of("both", tokenizer), batch_of(tokenizer)
    with pytest.raises(ValueError, match="character_ids is missing"):
        model(input_ids=batch["input_ids"])
    with pytest.raises(ValueError, match=r"input_ids has the shape \(5, 3\), but character_ids is for"):
        model(input_ids=batch["input_ids"][:, :3], character_ids=batch["character_ids"])


@pytest.mark.parametrize("name", ["words", "both"])
@pytest.mark.parametrize("value", [-1, 10**6])
def test_word_ids_out_of_range_are_named(tokenizer, name, value):
    model, batch = model_of(name, tokenizer), batch_of(tokenizer)
    batch["input_ids"][0, 0] = value
    with pytest.raises(ValueError, match=f"input_ids has the value {value}, but this model knows the ids 0 to"):
        model(**batch)


def test_a_mask_of_another_shape_is_refused(tokenizer):
    batch = batch_of(tokenizer)
    with pytest.raises(ValueError, match=r"attention_mask has the shape \(5, 2\), but input_ids is \(batch, words\)"):
        model_of("words", tokenizer)(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"][:, :2])


@pytest.mark.parametrize("name", ["words", "both"])
def test_a_stream_of_characters_alone_is_refused(tokenizer, name):
    model = model_of(name, tokenizer, ElmoForPreTraining)
    characters, labels = torch.ones(2, 3, 50, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match=rf"The word ids are missing: with word_input='{name}'"):
        model.forward_stream(characters, labels, characters, labels)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"word_input": "bytes"}, "word_input.*characters.*words.*both"),
        ({"word_input": "words"}, "word_input='words' and word_embedding_size=0 do not fit"),
        ({"word_embedding_size": 5}, "word_input='characters' and word_embedding_size=5 do not fit"),
        ({"word_input": "both", "word_embedding_size": -1}, "word_embedding_size=-1"),
        ({"project_words": False}, "project_words=False needs .* projection_size=6, but they have 16"),
        ({"project_cells": False}, "project_cells=False needs cell_size=10 to be projection_size=6"),
        ({"character_markers": [1, 2, 3, 4]}, "five different character ids from 1 to .* 261"),
        ({"character_markers": [1, 2, 3, 4, 4]}, "five different"),
        ({"character_markers": [0, 2, 3, 4, 5]}, "five different"),
        ({"char_vocab_size": 200}, r"character_markers=\[257, 258, 259, 260, 261\] is not possible"),
    ],
)
def test_impossible_choices_are_refused(fields, says):
    with pytest.raises(StrictDataclassError, match=f"(?s){says}"):
        tiny_config(**fields)
