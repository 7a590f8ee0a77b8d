"""Going on with models that look words up in a table or read code points: rows move with their words."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_continuation import OTHER_WORDS, SPECIALS, assert_same, batch_of, hidden_states, tokenizer_of
from test_continuation import WORDS as BYTE_WORDS
from test_manylangs import changed, korean_sentences, write_source
from tiny import random_model, tiny_config
from torch.testing import assert_close

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from hf_elmo.continuation import TABLE, start_from
from hf_elmo.conversion.manylangs import convert_manylangs
from hf_elmo.hub import save_hub_folder

SIZES = {
    "words": {"word_input": "words", "word_embedding_size": 6, "project_words": False},
    "both": {"word_input": "both", "word_embedding_size": 5},
}
TABLE_OF_MODEL = f"elmo.{TABLE}"


@pytest.fixture
def save(tmp_path):
    """Saves a random model that reads bytes and its tokenizer, and returns the folder and the model."""

    def save(model_class, kind="both", **overrides):
        tokenizer = tokenizer_of(BYTE_WORDS, tmp_path)
        config = tiny_config(vocab_size=len(tokenizer), **{**SIZES[kind], **overrides})
        model = random_model(config, model_class=model_class)
        model.save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        return tmp_path / "model", model

    return save


@pytest.fixture(scope="module")
def manylangs(tmp_path_factory) -> dict[str, Path]:
    """Converted models of ELMoForManyLangs by what they read."""
    folder = tmp_path_factory.mktemp("manylangs")
    sizes = {"both": {}, "words": {"token_embedder__char_dim": 0}, "characters": {"token_embedder__word_dim": 0}}
    found = {}
    for name, changes in sizes.items():
        source = write_source(folder / f"source of {name}", changed(**changes))
        found[name] = convert_manylangs(source, folder / name).folder
    return found


def table_of(model) -> torch.Tensor:
    return (model if isinstance(model, ElmoModel) else model.elmo).get_parameter(TABLE)


def layers_of(model, tokenizer, sentences) -> list[torch.Tensor]:
    batch = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    encoder = model if isinstance(model, ElmoModel) else model.elmo
    with torch.no_grad():
        return list(encoder(**batch, output_hidden_states=True).hidden_states)


def assert_same_layers(found, expected):
    """Up to rounding: with other ids, words are encoded in another order."""
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs, atol=1e-6, rtol=0)


def vocabulary_of(path: Path, words) -> Path:
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return path


# --- Tables of words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
def test_a_model_with_a_table_goes_on_as_it_was(save, kind, model_class):
    folder, old = save(model_class, kind)
    new, tokenizer, report = start_from(folder)
    assert_same_layers(hidden_states(new, tokenizer), hidden_states(old, tokenizer))
    assert torch.equal(table_of(new), table_of(old))
    assert (new.config.word_input, new.config.word_embedding_size) == (kind, SIZES[kind]["word_embedding_size"])
    assert (report.table_rows_taken, report.table_rows_fresh) == (len(BYTE_WORDS) + 1, 0)  # and padding
    assert "table of words: 12 rows taken, 0 fresh" in str(report)
    if model_class is ElmoForPreTraining:
        assert_same(new.softmax.state_dict(), old.softmax.state_dict())
        assert torch.equal(new(**batch_of(tokenizer)).loss, old(**batch_of(tokenizer)).loss)
        assert report.parameters_fresh == 0
    else:
        assert report.parameters_fresh == sum(parameter.numel() for parameter in new.softmax.parameters())
    assert report.parameters_taken + report.parameters_fresh == sum(
        parameter.numel() for parameter in new.parameters() if parameter.requires_grad
    )


@pytest.mark.parametrize("kind", SIZES)
def test_rows_of_the_table_move_with_their_words(save, kind):
    folder, old = save(ElmoForPreTraining, kind)
    new, tokenizer, report = start_from(folder, OTHER_WORDS)
    assert table_of(new).shape == (len(OTHER_WORDS) + 1, SIZES[kind]["word_embedding_size"])
    for row, word in enumerate([*OTHER_WORDS, "<PAD>"]):
        if word in [*BYTE_WORDS, "<PAD>"]:
            assert torch.equal(table_of(new)[row], table_of(old)[[*BYTE_WORDS, "<PAD>"].index(word)]), word
        else:
            assert not (table_of(new)[row] == table_of(old)).any()
            assert table_of(new)[row].abs().max() <= 1
    shared = [["the", "mat", "."], ["mat", "unknown to both"]]
    assert_same_layers(
        layers_of(new, tokenizer, shared), layers_of(old, ElmoTokenizer.from_pretrained(folder), shared)
    )
    assert (report.softmax, report.words_shared, report.words_new, report.words_dropped) == ("partly", 6, 3, 5)
    assert (report.table_rows_taken, report.table_rows_fresh) == (7, 3)
    size = new.config.word_embedding_size
    assert report.parameters_fresh == 3 * (size + new.config.projection_size + 1)
    assert "table of words: 7 rows taken, 3 fresh" in str(report)
    saved = json.loads(json.dumps(report.to_dict()))
    assert (saved["table_rows_taken"], saved["table_rows_fresh"]) == (7, 3)


def test_fresh_rows_are_those_of_the_seed(save):
    folder, _ = save(ElmoModel)
    torch.manual_seed(5)
    first = table_of(start_from(folder, OTHER_WORDS).model)
    torch.manual_seed(6)
    assert torch.equal(table_of(start_from(folder, OTHER_WORDS).model), first)
    other = table_of(start_from(folder, OTHER_WORDS, seed=1).model)
    old = [word in BYTE_WORDS for word in OTHER_WORDS]
    assert [torch.equal(a, b) for a, b in zip(first, other, strict=True)] == [*old, True]


def test_models_without_a_table_say_nothing_of_one(tmp_path):
    tokenizer = tokenizer_of(BYTE_WORDS, tmp_path)
    random_model(tiny_config(vocab_size=len(tokenizer))).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    report = start_from(tmp_path / "model").report
    assert (report.table_rows_taken, report.table_rows_fresh) == (None, None)
    assert "table of words" not in str(report)


def test_half_precision_becomes_single(save):
    folder, old = save(ElmoModel)
    old.to(torch.bfloat16).save_pretrained(folder)
    new = start_from(folder, OTHER_WORDS).model
    assert table_of(new).dtype == torch.float32
    assert torch.equal(table_of(new)[0], table_of(old)[0].float())


# --- ELMoForManyLangs ------------------------------------------------------------------------------------------------

SENTENCES = [*korean_sentences(20), ["x" * 300, "한국어", "모르는", "\ufffd", "<bow>"]]


@pytest.mark.parametrize("kind", ["both", "words"])
def test_padding_becomes_the_last_word(manylangs, kind):
    folder = manylangs[kind]
    old, old_tokenizer = ElmoModel.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    new, tokenizer, report = start_from(folder, softmax="full")
    words = [word for word in sorted(old_tokenizer.get_vocab(), key=old_tokenizer.get_vocab().get) if word != "<pad>"]
    assert old_tokenizer.pad_token_id == 3
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [*words, "<pad>"]
    assert new.config.pad_token_id == tokenizer.pad_token_id == len(words)
    assert (new.config.bos_token_id, new.config.eos_token_id) == (1, 2)
    for row, word in enumerate([*words, "<pad>"]):
        assert torch.equal(table_of(new)[row], table_of(old)[old_tokenizer.convert_tokens_to_ids(word)])
    assert_same_layers(layers_of(new, tokenizer, SENTENCES), layers_of(old, old_tokenizer, SENTENCES))
    assert (report.table_rows_taken, report.table_rows_fresh) == (len(words) + 1, 0)
    assert (report.softmax, report.words_shared, report.words_new) == ("fresh", len(words), 0)
    batch = tokenizer(SENTENCES, is_split_into_words=True, padding=True, return_tensors="pt")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    assert new(**batch, labels=labels).loss.isfinite()


@pytest.mark.parametrize("kind", ["both", "words", "characters"])
@pytest.mark.parametrize("names", ["usual", "own"])
def test_another_vocabulary_with_either_names(manylangs, kind, names, tmp_path):
    """A file of `hf-elmo vocab` has <S>, </S> and <UNK>; their rows are those of <bos>, <eos> and <oov>."""
    folder = manylangs[kind]
    old, old_tokenizer = ElmoModel.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    specials = SPECIALS if names == "usual" else ["<bos>", "<eos>", "<oov>"]
    known = [".", "한국어", "a"]
    path = vocabulary_of(tmp_path / "vocab.txt", [*specials, *known, "<oov", "새로운"])
    new, tokenizer, report = start_from(folder, path, softmax="full")
    expected = ["<bos>", "<eos>", "<oov>", *known, "<oov", "새로운", "<pad>"]
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == expected
    assert (tokenizer.bos_token, tokenizer.unk_token, tokenizer.pad_token) == ("<bos>", "<oov>", "<pad>")
    assert tokenizer.characters == old_tokenizer.characters
    assert (tokenizer.segmenter, tokenizer.unicode_normalization) == ("UDPipe", "NFC")
    assert tokenizer.tokenize("한국어. a") == ["한국어.", "a"]
    shared = [["한국어", ".", "a"], ["a", "x" * 300 if kind == "characters" else "모르는"]]
    assert_same_layers(layers_of(new, tokenizer, shared), layers_of(old, old_tokenizer, shared))
    if kind == "characters":
        assert (report.table_rows_taken, report.words_shared, report.words_new) == (None, 3, 5)
    else:
        assert (report.table_rows_taken, report.table_rows_fresh) == (7, 2)
        assert (report.words_shared, report.words_new) == (6, 2)


def test_names_are_not_mixed(manylangs, tmp_path):
    """With its own names in the vocabulary, <S> is a word as any other; with some of both, nothing is guessed."""
    folder = manylangs["both"]
    words = ["<bos>", "<eos>", "<oov>", "<S>", "</S>", "<UNK>", "a"]
    tokenizer = start_from(folder, words, softmax="full").tokenizer
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [*words, "<pad>"]
    with pytest.raises(ValueError, match="the vocabulary: <oov> must be among the words"):
        start_from(folder, ["<bos>", "<eos>", "<UNK>", "a"], softmax="full")
    path = vocabulary_of(tmp_path / "vocab.txt", ["<bos>", "<S>", "</S>", "<UNK>", "a"])
    with pytest.raises(ValueError, match=rf"^{path}: the word '<bos>' is on line 1 and again on line 2"):
        start_from(folder, path, softmax="full")


def test_lines_may_end_as_on_windows(manylangs, tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"<S>\r\n</S>\r\n<UNK>\r\na\r\n")
    tokenizer = start_from(manylangs["both"], tmp_path / "vocab.txt", softmax="full").tokenizer
    assert list(tokenizer.convert_ids_to_tokens(range(5))) == ["<bos>", "<eos>", "<oov>", "a", "<pad>"]


def test_a_model_of_characters_needs_words(manylangs):
    with pytest.raises(ValueError, match=r"has no vocabulary, only <bos>, <eos>, <oov> and padding"):
        start_from(manylangs["characters"])
    with pytest.raises(ValueError, match=r"The vocabulary has no words, only <bos>, <eos>, <oov> and padding"):
        start_from(manylangs["characters"], SPECIALS)
    with pytest.raises(ValueError, match=r"The vocabulary has the word <pad>, which stands for padding"):
        start_from(manylangs["characters"], [*SPECIALS, "<pad>", "a"])


def test_words_that_no_file_could_hold_are_kept(tmp_path):
    """The dictionaries of ELMoForManyLangs have white space as a word."""
    source = write_source(tmp_path / "source")
    lines = (source / "word.dic").read_text(encoding="utf-8")
    (source / "word.dic").write_text(lines.replace("\na\t", "\n\u3000\t"), encoding="utf-8")
    folder = convert_manylangs(source, tmp_path / "model").folder
    tokenizer = start_from(folder, softmax="full").tokenizer
    assert tokenizer.convert_tokens_to_ids("\u3000") == ElmoTokenizer.from_pretrained(folder).get_vocab()["\u3000"] - 1


@pytest.mark.parametrize("kind", ["both", "words", "characters"])
def test_the_result_is_a_folder_to_start_from(manylangs, kind, tmp_path):
    model, tokenizer, _ = start_from(manylangs[kind], [*SPECIALS, "한국어", "a", "새로운"], softmax="full")
    saved = save_hub_folder(model, tokenizer, tmp_path / "saved", card="# A card\n")
    again, tokenizer_again, report = start_from(saved)
    assert_same(again.state_dict(), model.state_dict())
    assert tokenizer_again.get_vocab() == tokenizer.get_vocab()
    assert tokenizer_again.characters == tokenizer.characters
    assert (report.softmax, report.left_behind, report.parameters_fresh) == ("kept", (), 0)
    assert report.table_rows_fresh == (None if kind == "characters" else 0)


# --- Folders that are not as they must be ----------------------------------------------------------------------------


def test_tokenizers_with_other_characters_are_refused(manylangs, save, tmp_path):
    folder = tmp_path / "code points"
    ElmoModel.from_pretrained(manylangs["both"]).save_pretrained(folder)
    tokenizer = ElmoTokenizer.from_pretrained(manylangs["both"])
    tokenizer.save_pretrained(folder)
    content = json.loads((folder / "characters.json").read_text())
    (folder / "characters.json").write_text(json.dumps({**content, "characters": [*content["characters"], "ÿ"]}))
    size = len(content["characters"]) + 1
    with pytest.raises(
        ValueError, match=rf"char_vocab_size={size}, but the tokenizer, .* code points, .* {size + 1}\."
    ):
        start_from(folder)
    (folder / "characters.json").unlink()
    with pytest.raises(ValueError, match=r"which spells words with bytes, has \[257, 258, 259, 260, 261\] and 262\."):
        start_from(folder)
    of_bytes, _ = save(ElmoModel)
    config = ElmoConfig.from_pretrained(of_bytes)
    config.character_markers = [261, 260, 259, 258, 257]
    config.save_pretrained(of_bytes)
    with pytest.raises(ValueError, match=r"character_markers=\[261, .*bytes.*They do not belong together"):
        start_from(of_bytes)


@pytest.mark.parametrize("kind", SIZES)
def test_rows_of_unknown_words_are_refused(save, tmp_path, kind):
    folder, _ = save(ElmoModel, kind)
    tokenizer_of(OTHER_WORDS, tmp_path).save_pretrained(folder)
    with pytest.raises(ValueError, match=r"the table of words is for vocab_size=12 .* unknown which row belongs to"):
        start_from(folder)


def test_another_padding_is_refused(manylangs, tmp_path):
    folder = tmp_path / "model"
    model = ElmoModel.from_pretrained(manylangs["both"])
    model.config.pad_token_id = 5
    model.save_pretrained(folder)
    ElmoTokenizer.from_pretrained(manylangs["both"]).save_pretrained(folder)
    with pytest.raises(ValueError, match=r"padding as number 3, but the table of words .* padding as number 5"):
        start_from(folder, softmax="full")


def test_broken_tables_are_refused(save):
    folder, _ = save(ElmoForPreTraining)
    weights = load_file(folder / "model.safetensors")
    for table, says in (
        (weights[TABLE_OF_MODEL][:-1], r"has the shape \(11, 5\), but by config.json it must be \(12, 5\)"),
        (weights[TABLE_OF_MODEL].log(), "holds NaN or infinite values"),
    ):
        save_file({**weights, TABLE_OF_MODEL: table}, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ValueError, match=f"'{TABLE_OF_MODEL}' {says}"):
            start_from(folder, OTHER_WORDS)
    del weights[TABLE_OF_MODEL]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"the weight '{TABLE_OF_MODEL}' is missing"):
        start_from(folder)
