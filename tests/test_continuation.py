"""Going on with any ELMo folder: what is kept is kept bit by bit, and what is not is said."""

import json
import math
from dataclasses import fields

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import SENTENCES, random_model, tiny_config, words_of
from transformers import AutoModelForPreTraining, AutoTokenizer

from hf_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
)
from hf_elmo.continuation import RESET_FIELDS, start_from
from hf_elmo.hub import save_hub_folder, sha256_of, verify_checksums

SPECIALS = ["<S>", "</S>", "<UNK>"]
WORDS = [*SPECIALS, "the", "cat", "sat", "on", "mat", ".", "Hi", "word"]
# Other places for old words, new words, and words that are gone; the special ones move, too.
OTHER_WORDS = ["<S>", "</S>", "new", "<UNK>", "mat", "the", "newer", ".", "강둑"]
BILM = ("character_encoder.", "bilstm.")


def tokenizer_of(words, folder, **options) -> ElmoTokenizer:
    path = folder / "words-of-tokenizer.txt"
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return ElmoTokenizer(path, **options)


@pytest.fixture
def save(tmp_path):
    """Saves a random model and its tokenizer, and returns the folder and the model."""

    def save(model_class, words=WORDS, word_splitting="moses", shard_size="1GB", **overrides):
        tokenizer = tokenizer_of(words, tmp_path, word_splitting=word_splitting)
        config = tiny_config(vocab_size=len(tokenizer), **overrides)
        model = random_model(config, model_class=model_class)
        folder = tmp_path / "model"
        model.save_pretrained(folder, max_shard_size=shard_size)
        tokenizer.save_pretrained(folder)
        return folder, model

    return save


@pytest.fixture
def change_weights():
    """Rewrites the weights of a folder."""

    def change(folder, change):
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def bilm_of(model) -> dict[str, torch.Tensor]:
    encoder = model if isinstance(model, ElmoModel) else model.elmo
    return {name: tensor for name, tensor in encoder.state_dict().items() if name.startswith(BILM)}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


def batch_of(tokenizer):
    batch = tokenizer(words_of(SENTENCES), is_split_into_words=True, padding=True, return_tensors="pt")
    return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


@torch.no_grad()  # frozen or not, by the same way, to the last bit
def hidden_states(model, tokenizer):
    batch = batch_of(tokenizer)
    encoder = model if isinstance(model, ElmoModel) else model.elmo
    inputs = {name: batch[name] for name in ("input_ids", "character_ids", "attention_mask")}
    return encoder(**inputs, output_hidden_states=True).hidden_states


# --- The three kinds of folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_a_language_model_goes_on_as_it_was(save, kind):
    folder, old = save(ElmoForPreTraining, softmax=kind, num_sampled=4)
    new, tokenizer, report = start_from(folder)
    assert_same(bilm_of(new), bilm_of(old))
    assert_same(new.softmax.state_dict(), old.softmax.state_dict())
    assert (new.config.softmax, new.config.num_sampled) == (kind, 4)
    batch = batch_of(ElmoTokenizer.from_pretrained(folder))
    for name, value in batch_of(tokenizer).items():
        assert torch.equal(value, batch[name])
    assert torch.equal(new(**batch).loss, old(**batch).loss)
    old.train(), new.train()
    drawn = [
        model.softmax.losses(torch.ones(2, 6), torch.tensor([3, 5]), torch.Generator().manual_seed(1))
        for model in (old, new)
    ]
    assert torch.equal(*drawn)

    assert report.softmax == "kept"
    assert (report.words_shared, report.words_new, report.words_dropped, report.share) == (11, 0, 0, 1)
    assert report.parameters_fresh == 0
    assert report.parameters_taken == sum(p.numel() for p in old.parameters() if p.requires_grad)
    assert report.weights == {"model.safetensors": sha256_of(folder / "model.safetensors")}


def test_nothing_is_left_behind_of_a_language_model_as_trained_here(save, change_weights):
    """The mixes of such a model are the fresh ones; of `random_model` they are not, and that is said."""
    folder, _ = save(ElmoForPreTraining)
    assert start_from(folder).report.left_behind == ("mixes",)
    change_weights(folder, lambda weights: weights["elmo.mixes.0.weight"].zero_())
    change_weights(folder, lambda weights: weights["elmo.mixes.0.gamma"].fill_(1))
    assert start_from(folder).report.left_behind == ()


def test_an_aligned_model_goes_on_in_its_own_space(save):
    folder, old = save(ElmoModel, use_alignment=True, layer_combination=1)
    new, _, report = start_from(folder)
    assert_same(bilm_of(new), bilm_of(old))
    assert report.left_behind == ("alignment",)
    assert not new.config.use_alignment


@pytest.mark.parametrize("vocabulary", [None, OTHER_WORDS], ids=["own", "other"])
def test_an_encoder_without_a_softmax(save, vocabulary):
    folder, old = save(ElmoModel, num_output_representations=2, mix_layer_norm="token")
    new, tokenizer, report = start_from(folder, vocabulary)
    assert_same(bilm_of(new), bilm_of(old))
    for ours, theirs in zip(hidden_states(new, tokenizer), hidden_states(old, tokenizer), strict=True):
        assert torch.equal(ours, theirs)
    assert report.softmax == "fresh"
    assert report.softmax_reason == "the folder has none"
    assert report.parameters_fresh == (len(tokenizer) - 1) * 7
    assert report.left_behind == ("mixes",)
    assert (new.config.num_output_representations, new.config.mix_layer_norm) == (1, None)
    assert not new.softmax.bias.any()
    assert 0.2 < new.softmax.weight.std() < 0.7  # 1/sqrt(6) = 0.41


@pytest.mark.parametrize(
    ("model_class", "options", "left"),
    [
        (
            ElmoForTokenClassification,
            {
                "num_labels": 3,
                "use_crf": True,
                "task_lstm_size": 5,
                "elmo_at_output": True,
                "word_vector_size": 2,
                "word_vector_vocab_size": 4,
                "predicate_embedding_size": 3,
            },
            ("classifier", "crf", "predicate_embedding", "task_lstm", "word_vectors", "mixes"),
        ),
        (
            ElmoForSequenceClassification,
            {"layer_combination": "top", "mix_l2": 0.0, "num_labels": 7, "pooling": "max"},
            ("classifier",),
        ),
        (ElmoForQuestionAnswering, {"freeze_bilm": False, "task_dropout": 0.1}, ("qa_outputs", "mixes")),
    ],
)
def test_the_bilm_of_a_task(save, model_class, options, left):
    folder, old = save(model_class, **options)
    new, tokenizer, report = start_from(folder, OTHER_WORDS)
    assert_same(bilm_of(new), bilm_of(old))
    for ours, theirs in zip(hidden_states(new, tokenizer), hidden_states(old, tokenizer), strict=True):
        assert torch.equal(ours, theirs)
    assert report.left_behind == left
    assert f"left behind: {', '.join(left)}" in str(report)
    assert report.softmax == "fresh"
    kept = tiny_config(vocab_size=len(tokenizer)).to_dict()
    assert {name for name, value in new.config.to_dict().items() if value != kept[name]} <= {"dtype"}
    assert all(parameter.requires_grad for name, parameter in new.named_parameters() if "mixes" not in name)


def test_static_word_vectors_of_a_tokenizer_are_left_behind(save):
    folder, _ = save(ElmoForPreTraining)
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    tokenizer.set_word_vectors(["cat"])
    tokenizer.save_pretrained(folder)
    assert "word_vector_ids" not in start_from(folder).tokenizer("cat")


def test_the_bilm_keeps_its_settings(save):
    kept = {"cell_clip": None, "projection_clip": 0.7, "use_skip_connections": False, "forget_bias": 0.5}
    kept |= {"char_cnn_activation": "tanh", "num_highway_layers": 1, "num_hidden_layers": 3}
    folder, old = save(ElmoForTokenClassification, task_lstm_size=2, **kept)
    new, tokenizer, _ = start_from(folder)
    assert {name: getattr(new.config, name) for name in kept} == kept
    assert torch.equal(hidden_states(new, tokenizer)[-1], hidden_states(old, tokenizer)[-1])


def test_fields_that_are_reset_exist():
    assert set(RESET_FIELDS) <= {field.name for field in fields(ElmoConfig)}


# --- Another vocabulary ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_file", [True, False])
def test_rows_move_with_their_words(save, tmp_path, as_file):
    folder, old = save(ElmoForPreTraining)
    path = tmp_path / "other.txt"
    path.write_text("".join(f"{word}\n" for word in OTHER_WORDS), encoding="utf-8")
    new, tokenizer, report = start_from(folder, path if as_file else OTHER_WORDS)

    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [*OTHER_WORDS, "<PAD>"]
    assert new.softmax.weight.shape == (9, 6)
    for row, word in enumerate(OTHER_WORDS):
        if word in WORDS:
            assert torch.equal(new.softmax.weight[row], old.softmax.weight[WORDS.index(word)]), word
            assert new.softmax.bias[row] == old.softmax.bias[WORDS.index(word)], word
        else:
            assert not (new.softmax.weight[row] == old.softmax.weight).any()
            assert new.softmax.bias[row] == 0
    assert (new.config.vocab_size, new.config.pad_token_id) == (10, 9)
    assert (new.config.bos_token_id, new.config.eos_token_id) == (0, 1)
    assert (report.softmax, report.words_shared, report.words_new, report.words_dropped) == ("partly", 6, 3, 5)
    assert report.parameters_fresh == 3 * 7
    assert report.share == pytest.approx(6 / 9)
    assert "softmax partly: 6 of 9 rows are the folder's" in str(report)
    assert "9 words, 6 (66.67%) of them in the folder's vocabulary, 3 new; 5 dropped" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["share"] == report.share


def test_fewer_words_in_another_order_keep_all_their_rows(save):
    folder, old = save(ElmoForPreTraining)
    words = ["word", "</S>", "<UNK>", "<S>", "."]
    new, _, report = start_from(folder, words)
    assert torch.equal(new.softmax.weight, old.softmax.weight[[WORDS.index(word) for word in words]])
    assert (report.softmax, report.words_dropped, report.parameters_fresh) == ("kept", 6, 0)
    assert (new.config.bos_token_id, new.config.eos_token_id, new.config.pad_token_id) == (3, 1, 5)


def test_fresh_rows_are_those_of_the_seed(save):
    folder, _ = save(ElmoForPreTraining)
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first = start_from(folder, OTHER_WORDS).model.softmax.weight
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(6)
    assert torch.equal(start_from(folder, OTHER_WORDS).model.softmax.weight, first)
    other = start_from(folder, OTHER_WORDS, seed=1).model.softmax.weight
    assert [torch.equal(a, b) for a, b in zip(first, other, strict=True)] == [w in WORDS for w in OTHER_WORDS]


def test_fresh_rows_are_those_of_the_original(save):
    folder, _ = save(ElmoForPreTraining, words=[*SPECIALS, "word"])
    model = start_from(folder, [*SPECIALS, *(f"w{number}" for number in range(5000))]).model
    fresh = model.softmax.weight[3:]
    assert fresh.std().item() == pytest.approx(1 / math.sqrt(6), rel=0.02)
    assert fresh.mean().abs() < 0.01
    assert not model.softmax.bias[3:].any()


def test_the_tokenizer_splits_as_before_or_as_asked(save):
    folder, _ = save(ElmoForPreTraining, word_splitting="whitespace")
    assert start_from(folder).tokenizer.tokenize("the cat.") == ["the", "cat."]
    assert start_from(folder, OTHER_WORDS).tokenizer.tokenize("the cat.") == ["the", "cat."]
    moses = start_from(folder, OTHER_WORDS, word_splitting="moses").tokenizer
    assert moses.tokenize("the cat.") == ["the", "cat", "."]
    with pytest.raises(ValueError, match="is 'letters'; use 'moses'"):
        start_from(folder, word_splitting="letters")


def test_the_tokenizer_prepares_text_as_before(save, tmp_path):
    folder, _ = save(ElmoForPreTraining)
    tokenizer_of(WORDS, tmp_path, segmenter="UDPipe", unicode_normalization="NFC").save_pretrained(folder)
    for vocabulary in (None, OTHER_WORDS):
        tokenizer = start_from(folder, vocabulary).tokenizer
        assert (tokenizer.segmenter, tokenizer.unicode_normalization) == ("UDPipe", "NFC")


def test_dropout_is_kept_or_as_asked(save):
    folder, _ = save(ElmoForPreTraining, dropout=0.25)
    assert start_from(folder).model.dropout.p == 0.25
    assert start_from(folder, dropout=0.5).model.elmo.bilstm.dropout.p == 0.5


# --- Kinds of softmax ------------------------------------------------------------------------------------------------


def test_full_and_sampled_share_their_rows(save):
    folder, old = save(ElmoForPreTraining)
    new, _, report = start_from(folder, softmax="sampled", num_sampled=5)
    assert_same(new.softmax.state_dict(), old.softmax.state_dict())
    assert (new.softmax.kind, new.softmax.num_sampled, report.softmax) == ("sampled", 5, "kept")


def test_an_adaptive_softmax_is_kept_with_the_same_words_and_cutoffs(save):
    folder, old = save(ElmoForPreTraining, softmax="adaptive", softmax_cutoffs=[5])
    for options in ({}, {"softmax_cutoffs": [5]}, {"vocabulary": WORDS, "softmax": "adaptive"}):
        new, tokenizer, report = start_from(folder, **options)
        assert_same(new.softmax.state_dict(), old.softmax.state_dict())
        assert torch.equal(new(**batch_of(tokenizer)).loss, old(**batch_of(tokenizer)).loss)
        assert (report.softmax, report.parameters_fresh) == ("kept", 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"softmax": "adaptive", "softmax_cutoffs": [5]}, {"softmax_cutoffs": [6]}),
        ({"softmax": "adaptive", "softmax_cutoffs": [5]}, {"vocabulary": OTHER_WORDS}),
        ({"softmax": "adaptive", "softmax_cutoffs": [5]}, {"vocabulary": [*WORDS, "more"]}),
        ({"softmax": "adaptive", "softmax_cutoffs": [5]}, {"vocabulary": WORDS[:-1]}),
        ({"softmax": "adaptive", "softmax_cutoffs": [5]}, {"vocabulary": [*WORDS[:-2], "word", "Hi"]}),
        ({"softmax": "adaptive", "softmax_cutoffs": [5]}, {"softmax": "full"}),
        ({}, {"softmax": "adaptive", "softmax_cutoffs": [5]}),
    ],
)
def test_else_it_is_fresh(save, old, new):
    folder, old_model = save(ElmoForPreTraining, **old)
    model, tokenizer, report = start_from(folder, **new)
    assert report.softmax == "fresh"
    assert "only with the same words and cutoffs" in report.softmax_reason
    assert report.left_behind == ("mixes", "softmax")
    assert report.parameters_fresh == sum(p.numel() for p in model.softmax.parameters())
    assert_same(bilm_of(model), bilm_of(old_model))
    assert model(**batch_of(tokenizer)).loss.isfinite()


@pytest.mark.parametrize(
    ("old", "options", "says"),
    [
        (
            {"softmax": "sampled", "num_sampled": 11},
            {"vocabulary": OTHER_WORDS},
            r"num_sampled=11 .* a vocabulary of 9\. Give softmax='full', or a num_sampled of at most 9",
        ),
        ({}, {"softmax": "sampled"}, r"num_sampled=8,192 words does not fit a vocabulary of 11"),
        ({}, {"softmax": "hierarchical"}, "softmax='hierarchical' is not known: it must be one of full, sampled"),
        ({}, {"num_sampled": 5}, "num_sampled=5 is for the sampled softmax, but this one is full"),
        ({}, {"softmax_cutoffs": [5]}, r"softmax_cutoffs=\[5\] is for the adaptive softmax, but this one is full"),
        ({}, {"softmax": "adaptive"}, "needs softmax_cutoffs, which the folder's full one does not have"),
        ({"softmax": "adaptive", "softmax_cutoffs": [10]}, {"vocabulary": OTHER_WORDS}, r"cutoffs=\[10\] is not poss"),
    ],
)
def test_impossible_softmaxes_are_refused(save, old, options, says):
    folder, _ = save(ElmoForPreTraining, **old)
    with pytest.raises(ValueError, match=says):
        start_from(folder, **options)


# --- Vocabularies that are none --------------------------------------------------------------------------------------


def test_a_folder_without_words_needs_some(save):
    folder, old = save(ElmoModel, words=SPECIALS)
    with pytest.raises(ValueError, match=r"has no vocabulary, only .* Give a vocabulary; `hf-elmo vocab` makes one"):
        start_from(folder)
    new, _, report = start_from(folder, OTHER_WORDS)
    assert_same(bilm_of(new), bilm_of(old))
    assert (report.words_new, report.words_dropped) == (6, 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (SPECIALS, "The vocabulary has no words, only <S>, </S>, <UNK> and padding"),
        (["<S>", "<UNK>", "a", "b"], "the vocabulary: </S> must be among the words"),
        ([*SPECIALS, "a", "a"], "the vocabulary: the word 'a' is on line 4 and again on line 5"),
        ([*SPECIALS, ""], "the vocabulary: line 4 is ''"),
        ([*SPECIALS, "a\nb"], r"the vocabulary: word 4 is 'a\\nb', but must be a string without line ends"),
        ([*SPECIALS, 7], "the vocabulary: word 4 is 7, but must be a string"),
        ([*SPECIALS, "<PAD>", "a"], "has the word <PAD>, which stands for padding and is never predicted"),
    ],
)
def test_impossible_vocabularies_are_refused(save, words, says):
    folder, _ = save(ElmoForPreTraining)
    with pytest.raises(ValueError, match=says):
        start_from(folder, words)


def test_files_that_are_no_vocabulary_are_refused(save, tmp_path):
    folder, _ = save(ElmoForPreTraining)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        start_from(folder, str(tmp_path / "nowhere.txt"))
    (tmp_path / "latin.txt").write_bytes("<S>\n</S>\n<UNK>\nÇa\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt is not UTF-8"):
        start_from(folder, tmp_path / "latin.txt")


# --- Folders that are not as they must be ----------------------------------------------------------------------------

WEIGHT = "elmo.bilstm.backward_layers.1.bias"


def widen(weights, name):
    weights[name] = torch.cat([weights[name], weights[name][:1]])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda w: w[WEIGHT][3:4].fill_(math.nan), r"'elmo\.bilstm\.backward_layers\.1\.bias' holds NaN or infinite"),
        (lambda w: w["softmax.bias"][1:2].fill_(math.inf), r"'softmax\.bias' holds NaN or infinite values"),
        (lambda w: w.pop(WEIGHT), r"the weight 'elmo\.bilstm\.backward_layers\.1\.bias' is missing"),
        (lambda w: w.pop("softmax.bias"), r"the weight 'softmax\.bias' is missing"),
        (lambda w: widen(w, WEIGHT), r"layers\.1\.bias' has the shape \(41,\), but .* must be \(40,\)"),
        (lambda w: widen(w, "softmax.weight"), r"'softmax\.weight' has the shape \(12, 6\), but .* must be \(11, 6\)"),
        (
            lambda w: w.update({WEIGHT: w[WEIGHT].int()}),
            r"has the type torch\.int32; it must be one of",
        ),
        (lambda w: w.update({"elmo.bilstm.extra": torch.zeros(1)}), r"'elmo\.bilstm\.extra' is not part of the model"),
        (lambda w: w.update({"softmax.extra": torch.zeros(1)}), r"'softmax\.extra' is not part of the model"),
        (lambda w: w.update({"decoder.bias": torch.zeros(1)}), r"'decoder\.bias' belongs to no part of an ELMo model"),
        (lambda w: w.update({"bilstm.bias": torch.zeros(1)}), r"'bilstm\.bias' belongs to no part of an ELMo model"),
    ],
)
def test_broken_weights_are_refused(save, change_weights, change, says):
    folder, _ = save(ElmoForPreTraining)
    change_weights(folder, change)
    with pytest.raises(ValueError, match=says):
        start_from(folder, OTHER_WORDS)


def test_a_folder_without_a_bilm_is_refused(save):
    folder, _ = save(ElmoForTokenClassification, use_elmo=False, word_vector_size=2, word_vector_vocab_size=4)
    with pytest.raises(ValueError, match="baseline without ELMo"):
        start_from(folder)


def test_rows_of_unknown_words_are_refused(save, tmp_path):
    folder, _ = save(ElmoForPreTraining)
    tokenizer_of(OTHER_WORDS, tmp_path).save_pretrained(folder)
    with pytest.raises(ValueError, match="unknown which row belongs to which word"):
        start_from(folder)


def test_a_tokenizer_of_another_width_is_refused(save, tmp_path):
    folder, _ = save(ElmoForPreTraining)
    tokenizer_of(WORDS, tmp_path, max_characters_per_token=20).save_pretrained(folder)
    with pytest.raises(ValueError, match="max_characters_per_token=20, but the model 50"):
        start_from(folder)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("config.json", "is no model folder"),
        ("tokenizer_config.json", "has no tokenizer"),
        ("model.safetensors", r"has no weights: neither model\.safetensors nor"),
    ],
)
def test_missing_files_are_named(save, name, says):
    folder, _ = save(ElmoForPreTraining)
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=says):
        start_from(folder)
    with pytest.raises(FileNotFoundError, match="is no model folder"):
        start_from(folder / name)


def test_files_that_are_no_weights_are_refused(save):
    folder, _ = save(ElmoForPreTraining)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"model\.safetensors is not a file of weights"):
        start_from(folder)


def test_weights_in_several_files(save):
    folder, old = save(ElmoForPreTraining, shard_size="4KB")
    new, _, report = start_from(folder)
    assert_same(bilm_of(new), bilm_of(old))
    assert_same(new.softmax.state_dict(), old.softmax.state_dict())
    assert sorted(report.weights) == sorted(path.name for path in folder.glob("model-*.safetensors"))
    assert len(report.weights) > 1

    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    gone = next(iter(report.weights))
    (folder / gone).unlink()
    with pytest.raises(FileNotFoundError, match=f"{gone} is missing"):
        start_from(folder)
    content["weight_map"][WEIGHT] = "../model.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"names '\.\./model\.safetensors', which is not the name of a file"):
        start_from(folder)
    index.write_text("{}")
    with pytest.raises(ValueError, match="is not an index of weights"):
        start_from(folder)


@pytest.mark.parametrize(
    ("stored", "made"), [(torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float64, None)]
)
def test_training_is_never_in_half_precision(save, stored, made):
    folder, old = save(ElmoForPreTraining)
    old.to(stored).save_pretrained(folder)
    new = start_from(folder).model
    assert {parameter.dtype for parameter in new.parameters()} == {made or stored}
    assert_same(bilm_of(new), bilm_of(old.to(made or stored)))
    assert_same(new.softmax.state_dict(), old.softmax.state_dict())


# --- And on it goes --------------------------------------------------------------------------------------------------


def test_the_result_is_a_folder_to_start_from(save, tmp_path):
    folder, _ = save(ElmoForTokenClassification, num_labels=3)
    model, tokenizer, _ = start_from(folder, OTHER_WORDS)
    saved = save_hub_folder(model, tokenizer, tmp_path / "saved", card="# A card\n")
    verify_checksums(saved)
    loaded, loaded_tokenizer = AutoModelForPreTraining.from_pretrained(saved), AutoTokenizer.from_pretrained(saved)
    assert isinstance(loaded, ElmoForPreTraining)
    assert_same(loaded.state_dict(), model.state_dict())
    assert torch.equal(loaded(**batch_of(loaded_tokenizer)).loss, model(**batch_of(tokenizer)).loss)
    again, _, report = start_from(saved)
    assert_same(again.state_dict(), model.state_dict())
    assert (report.softmax, report.left_behind, report.parameters_fresh) == ("kept", (), 0)


def test_the_model_learns_the_new_words(save):
    folder, _ = save(ElmoForPreTraining, dropout=0.0)
    model, tokenizer, _ = start_from(folder, [*SPECIALS, "Hi", "new"])
    batch = batch_of(tokenizer)
    before = model(**batch).loss.item()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.2, initial_accumulator_value=1.0)
    model.train()
    for _ in range(20):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    assert model.eval()(**batch).loss.item() < 0.7 * before
