"""Models of ELMoForManyLangs: converted, they give the ids and vectors of the original program."""

import copy
import json
import os
import random
import shutil
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from originals import original_manylangs
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from hf_elmo.conversion.manylangs import PUBLISHED, convert_manylangs, is_manylangs, name_table, read_manylangs
from hf_elmo.conversion.manylangs_reference import manylangs_forward, manylangs_ids
from hf_elmo.hub import verify_checksums

SPECIAL_WORDS = ["<oov>", "<bos>", "<eos>", "<pad>"]
SPECIAL_CHARACTERS = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]

# The two clips are small enough to be active.
ARCHITECTURE = {
    "encoder": {"name": "elmo", "projection_dim": 6, "cell_clip": 0.5, "proj_clip": 0.3, "dim": 10, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 4], [2, 5], [3, 7]],
        "n_highway": 2,
        "word_dim": 5,
        "char_dim": 4,
        "max_characters_per_token": 12,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8192},
    "dropout": 0.1,
}

ODD_SENTENCES = [
    ["Hello", "world", "."],
    ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>"],
    ["\u3000", "\ue000", "a\ue000b", "\ufffd", "", "\ud800", "안\udfff"],
    [unicodedata.normalize("NFD", "한국어"), "한국어", "e\u0301", "é"],
    ["x" * 10, "x" * 11, "x" * 300, "가" * 9, "가" * 10, "가" * 40, "\U0001f642" * 12],
    [],
    ["\x00", "\u2028", "\r", "a\u200db", "\ufeff"],
]


def korean_sentences(count: int = 200) -> list[list[str]]:
    """Words of Hangul syllables with particles, numbers, Latin and punctuation; or real ones, if a file is named."""
    real = os.environ.get("HF_ELMO_KOREAN_CONLLU")
    if real:
        return read_conllu(Path(real))[:count]
    generator = random.Random(7)
    stems = [
        "".join(chr(generator.randint(0xAC00, 0xD7A3)) for _ in range(generator.randint(1, 4))) for _ in range(300)
    ]
    ends = ["", "은", "는", "이", "가", "을", "를", "에서", "으로", "했다", "합니다"]
    sentences = []
    for _ in range(count):
        words = [generator.choice(stems) + generator.choice(ends) for _ in range(generator.randint(1, 20))]
        words[generator.randrange(len(words))] = generator.choice(["1,234", "2026년", "(KBS)", "A형", "“", "…", "·"])
        sentences.append([*words, "."])
    return sentences


def read_conllu(path: Path) -> list[list[str]]:
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    rows = [[line.split("\t") for line in block.split("\n") if not line.startswith("#")] for block in blocks]
    return [[row[1] for row in block if row[0].isdigit()] for block in rows]


# --- Sources, made with the modules of the original program ----------------------------------------------------------


def write_source(folder: Path, architecture=ARCHITECTURE, legacy: bool = False) -> Path:
    """A model with random weights, saved as the original saves it, with dictionaries as it makes them."""
    seen = [word for sentence in [*korean_sentences(), *ODD_SENTENCES[:1]] for word in sentence]
    words = dict.fromkeys(
        [*SPECIAL_WORDS, *seen[::3], "x" * 10, "가" * 10, "\ue000", "\ue000b", "\ufffd", "a", "한국어"]
    )
    characters = dict.fromkeys([*"<bos>", *(c for word in seen[::2] for c in word), *"x한국어é", *SPECIAL_CHARACTERS])
    sizes = architecture["token_embedder"]
    layer = original_manylangs("modules.embedding_layer").EmbeddingLayer
    lexicons = [{name: number for number, name in enumerate(names)} for names in (words, characters)]
    torch.manual_seed(3)
    embeddings = [
        layer(sizes[size], lexicon, fix_emb=False) if sizes[size] else None
        for size, lexicon in zip(("word_dim", "char_dim"), lexicons, strict=True)
    ]
    model = original_manylangs("frontend").Model(architecture, *embeddings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                (0.5 if parameter.dim() == 1 else parameter.numel() ** -0.25) * torch.randn(parameter.shape)
            )
    folder.mkdir(parents=True)
    for part in ("token_embedder", "encoder"):
        weights = getattr(model, part).state_dict()
        torch.save(weights, folder / f"{part}.pkl", _use_new_zipfile_serialization=not legacy)
    for name, lexicon in zip(("word.dic", "char.dic"), lexicons, strict=True):
        lines = "".join(f"{entry}\t{number}\n" for entry, number in lexicon.items())
        (folder / name).write_bytes(lines.encode("utf-8"))
    (folder / "config.json").write_text(json.dumps({"config_path": "/home/someone/configs/tiny.json", "seed": 1}))
    (folder / "tiny.json").write_text(json.dumps(architecture))
    return folder


def changed(**changes):
    architecture = copy.deepcopy(ARCHITECTURE)
    for name, value in changes.items():
        section, _, key = name.partition("__")
        architecture[section][key] = value
    return architecture


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return write_source(tmp_path_factory.mktemp("manylangs") / "source")


@pytest.fixture(scope="module")
def converted(source, tmp_path_factory) -> Path:
    return convert_manylangs(source, tmp_path_factory.mktemp("converted") / "korean", languages=("ko",)).folder


@pytest.fixture
def broken(source, tmp_path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "broken"))


def original_ids(embedder, sentences) -> tuple[list, list]:
    """Word ids and character ids of each sentence by the original program."""
    module = original_manylangs("elmo")
    limit = embedder.config["token_embedder"]["max_characters_per_token"]
    tokens, _ = module.read_list(sentences, limit)
    word_ids, character_ids = [], []
    for sentence in tokens:
        words, characters, _, _ = module.create_one_batch(
            [sentence], embedder.word_lexicon, embedder.char_lexicon, embedder.config
        )
        word_ids.append(None if words is None else words[0].tolist())
        character_ids.append(None if characters is None else characters[0].tolist())
    return word_ids, character_ids


def assert_same_ids(embedder, tokenizer, sentences):
    word_ids, character_ids = original_ids(embedder, sentences)
    encoded = tokenizer(sentences, is_split_into_words=True)
    if embedder.word_lexicon is not None:
        assert encoded["input_ids"] == word_ids
    if embedder.char_lexicon is not None:
        ours = [[[character - 1 for character in row] for row in rows] for rows in encoded["character_ids"]]
        assert ours == character_ids


@torch.no_grad()
def assert_same_vectors(embedder, folder, sentences):
    expected = embedder.sents2elmo(sentences, output_layer=-2)
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    layers = torch.stack(model(**batch, output_hidden_states=True).hidden_states)
    for row, theirs in enumerate(expected):
        ours = layers[:, row, 1 : theirs.shape[1] + 1].numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)


def original_embedder(folder: Path, sentences: int):
    """The original, reading all sentences as one batch: it carries state from batch to batch, in random order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it leaves a file open, and calls what is deprecated
        return original_manylangs("elmo").Embedder(str(folder), batch_size=sentences)


# --- The same as the original ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["korean", "odd"])
def test_ids_and_vectors_of_the_original_program(source, converted, kind):
    sentences = korean_sentences() if kind == "korean" else ODD_SENTENCES
    embedder = original_embedder(source, len(sentences))
    assert_same_ids(embedder, ElmoTokenizer.from_pretrained(converted), sentences)
    assert_same_vectors(embedder, converted, sentences)


def test_the_card_says_how_to_prepare_a_text(converted):
    card = (converted / "README.md").read_text(encoding="utf-8")
    for part in (
        "Words are looked up in a vocabulary and read letter by letter.",
        "The training text was split by UDPipe, which the tokenizer does not run",
        "the form NFC of Unicode",
        "words outside it are `<oov>` and told apart by their characters only",
        "Words are spelled with code points, of which the model knows ",
        "<bos> and <eos> included",
        "Words are cut after 10 code points.",
        "token_embedder.pkl",
    ):
        assert part in card
    assert "<UNK>" not in card


VARIANTS = {
    "legacy pickles": ARCHITECTURE,
    "characters only": changed(token_embedder__word_dim=0),
    "words only": changed(token_embedder__char_dim=0),
    "three layers, no clips": changed(encoder__n_layers=3, encoder__cell_clip=0, encoder__proj_clip=None),
    "tanh, no highway": changed(token_embedder__activation="tanh", token_embedder__n_highway=0),
    "cells as wide as the output": changed(encoder__dim=6),
    "longer words": changed(token_embedder__max_characters_per_token=50),
    "words cut to a boundary": changed(token_embedder__max_characters_per_token=7),
}


@pytest.mark.promise("S7")
@pytest.mark.parametrize("variant", VARIANTS)
def test_other_architectures(tmp_path, variant):
    source = write_source(tmp_path / "source", VARIANTS[variant], legacy=variant.startswith("legacy"))
    folder = convert_manylangs(source, tmp_path / "out").folder
    sentences = [*korean_sentences(10), *ODD_SENTENCES, ["<bos>x", "<eos>...."]]
    embedder = original_embedder(source, len(sentences))
    assert_same_ids(embedder, ElmoTokenizer.from_pretrained(folder), sentences)
    assert_same_vectors(embedder, folder, sentences)


def test_the_python_reference_gives_the_same_ids(source, converted):
    """Rust finds the words, a plain dictionary finds them: no difference."""
    content = read_manylangs(source)
    lexicons = [{name: number for number, name in enumerate(names)} for names in (content.words, content.characters)]
    sentences = [*korean_sentences(), *ODD_SENTENCES]
    encoded = ElmoTokenizer.from_pretrained(converted)(sentences, is_split_into_words=True)
    for number, sentence in enumerate(sentences):
        ids = manylangs_ids(sentence, *lexicons, 12)
        assert encoded["input_ids"][number] == ids[:, 0].tolist()
        assert encoded["character_ids"][number] == (ids[:, 1:] + 1).tolist()


def test_markers_are_swapped_and_kept(converted):
    tokenizer = ElmoTokenizer.from_pretrained(converted)
    characters = tokenizer.characters.characters
    row = tokenizer(["가"], is_split_into_words=True, add_special_tokens=False)["character_ids"][0]
    assert characters[row[0] - 1] == "<eow>"
    assert characters[row[2] - 1] == "<bow>"
    assert {characters[index - 1] for index in row[3:]} == {"<pad>"}
    assert (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (
        0,
        1,
        2,
        3,
    )


def test_state_is_carried_as_in_the_original(source):
    """A second call of the original begins where the first ended; here the state is passed on explicitly."""
    content = read_manylangs(source)
    sentences = [["한국어", "x"], ["가", "나", "다"]]
    embedder = original_embedder(source, 2)
    embedder.sents2elmo(sentences)
    expected = embedder.sents2elmo(sentences, output_layer=-2)
    batch = content.tokenizer()(sentences[::-1], is_split_into_words=True, padding=True, return_tensors="pt")
    model = content.model().eval()
    with torch.no_grad():
        state = model(**batch, output_state=True).state
        layers = torch.stack(model(**batch, initial_state=state, output_hidden_states=True).hidden_states)
    np.testing.assert_allclose(layers[:, 0, 1:4].numpy(), expected[1], atol=1e-5, rtol=0)
    np.testing.assert_allclose(layers[:, 1, 1:3].numpy(), expected[0], atol=1e-5, rtol=0)


# --- The folder ------------------------------------------------------------------------------------------------------


def test_the_folder_has_all_that_the_model_needs(converted):
    verify_checksums(converted)
    assert "characters.json" in {path.name for path in converted.iterdir()}
    config = ElmoConfig.from_pretrained(converted)
    assert (config.word_input, config.word_embedding_size, config.forget_bias) == ("both", 5, 0.0)
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (3, 1, 2)
    settings = json.loads((converted / "tokenizer_config.json").read_text())
    assert (settings["segmenter"], settings["unicode_normalization"]) == ("UDPipe", "NFC")


@pytest.mark.promise("S7")
def test_every_tensor_is_used_once_and_every_weight_is_set(source):
    content = read_manylangs(source)
    rows = name_table(content.config())
    assert len({(row.file, row.tensor) for row in rows}) == len(rows)
    named = [weight for row in rows for weight in row.weights]
    assert sorted(named) == sorted(name for name in content.model().state_dict() if not name.startswith("mixes."))
    content.tensors["encoder.pkl"]["extra"] = np.zeros(1)
    with pytest.raises(ValueError, match=r"These tensors have no place in the model: encoder\.pkl/extra"):
        content.model()


def test_verification_notices_a_difference(source, tmp_path, monkeypatch):
    def other_gate(*arguments, original=manylangs_forward):
        layers, state = original(*arguments)
        layers[1, 0, 0] += 1e-6
        return layers, state

    monkeypatch.setattr("hf_elmo.conversion.manylangs.manylangs_forward", other_gate)
    with pytest.raises(ValueError, match="does not compute what its source does, so it was not kept"):
        convert_manylangs(source, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_published_architecture_and_its_size(broken):
    (broken / "tiny.json").unlink()
    (broken / "config.json").write_text('{"config_path": "/Users/someone/cnn_50_100_512_4096_sample.json"}')
    with pytest.raises(ValueError, match=r"token_embedder\.pkl has .* bytes, but its weights need"):
        read_manylangs(broken)
    assert PUBLISHED["token_embedder"]["filters"] == ElmoConfig().char_cnn_filters


def test_looks_like_manylangs(source, converted, tmp_path):
    assert is_manylangs(source)
    assert not any(map(is_manylangs, (converted, tmp_path, source / "config.json", tmp_path / "absent")))


def test_progress_says_what_is_left_out(broken, tmp_path):
    (broken / "classifier.pkl").write_bytes(b"never read")
    told = []
    convert_manylangs(broken, tmp_path / "out", progress=told.append)
    assert any("classifier.pkl, the output layer of the language model, is left out" in line for line in told)


# --- Sources that are refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"encoder__name": "lstm"}, 'encoder.name is "lstm".*the encoder "lstm" is not ELMo'),
        ({"token_embedder__name": "lstm"}, 'token_embedder.name is "lstm".*does not run'),
        ({"encoder__dim": -1}, "encoder.dim is -1"),
        ({"encoder__dim": 10**12}, "encoder.dim is 1000000000000"),
        ({"encoder__n_layers": "2"}, 'encoder.n_layers is "2"'),
        ({"encoder__cell_clip": True}, "encoder.cell_clip is true"),
        ({"token_embedder__activation": "gelu"}, "token_embedder.activation"),
        ({"token_embedder__max_characters_per_token": 6}, "max_characters_per_token is 6 .* from 7"),
        ({"token_embedder__filters": [[13, 2]]}, r"token_embedder.filters\[0\] is \[13, 2\]"),
        ({"token_embedder__word_dim": 0, "token_embedder__char_dim": 0}, "are both 0"),
        ({"token_embedder__word_dim": None}, "token_embedder.word_dim is null"),
    ],
)
def test_impossible_architectures_are_refused(broken, changes, says):
    (broken / "tiny.json").write_text(json.dumps(changed(**changes)))
    with pytest.raises(ValueError, match=rf"tiny\.json: .*{says}"):
        read_manylangs(broken)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret.json", "a/../../secret.json", "C:\\secret.json", "", ".", "..", "secret.json/"]
)
def test_the_architecture_is_looked_for_in_the_folder_only(broken, path):
    (broken.parent / "secret.json").write_text(json.dumps(ARCHITECTURE))
    (broken / "config.json").write_text(json.dumps({"config_path": path}))
    with pytest.raises((ValueError, FileNotFoundError), match=r"config\.json (names the architecture|must have)"):
        read_manylangs(broken)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("word.dic", b"a\tb\tc\n", "line 1 must be an entry, a tab and a number"),
        ("word.dic", b"a\t1\n\n", "line 2 must be an entry"),
        ("word.dic", b"a\t0\nb\t0\n", "line 2 has the number 0, which another line has"),
        ("word.dic", b"a\t0\na\t1\n", "an entry is there more than once"),
        ("word.dic", b"a\t0\nb\t2\n", "the numbers of the 2 entries must be 0 to 1"),
        ("word.dic", b"a\t-1\n", "line 1 must be an entry"),
        ("word.dic", b"a\t99999999999999\n", "line 1 must be an entry"),
        ("word.dic", b"a\t0\n", "has no entry <oov>"),
        ("char.dic", b"\xff\t0\n", "is not UTF-8"),
        ("char.dic", b"a\t0\n", "has no entry <oov>"),
        ("char.dic", " \t0\n\u3000\t1\n".encode(), "an entry is there more than once"),
        ("config.json", b"{}", "must have a config_path"),
        ("config.json", b'{"config_path": 3}', "must have a config_path"),
        ("config.json", b'{"config_path": "a", "config_path": "b"}', "appears twice"),
        ("encoder.pkl", b"cos\nsystem\n(S'true'\ntR." + bytes(10**5), "does not begin as such a file does"),
    ],
)
def test_broken_files_are_refused(broken, name, content, says):
    (broken / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name.replace('.', '[.]')}.*{says}"):
        read_manylangs(broken)


@pytest.mark.parametrize("name", ["config.json", "word.dic", "char.dic", "token_embedder.pkl", "encoder.pkl"])
def test_missing_files_are_named(broken, name):
    (broken / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"There is no file .*{name}"):
        read_manylangs(broken)


def test_a_dictionary_of_another_model_is_refused(broken):
    with open(broken / "word.dic", "a", encoding="utf-8") as file:
        file.write(f"more\t{len(read_manylangs(broken).words)}\n")
    with pytest.raises(ValueError, match=r"token_embedder\.pkl: 'word_emb_layer\.embedding\.weight' has shape"):
        read_manylangs(broken)


def test_white_space_is_the_ideographic_space(broken):
    """What the original makes of a line whose entry is white space."""
    entries = (broken / "char.dic").read_text(encoding="utf-8").split("\n")
    entries[0] = "\u00a0\t0"
    (broken / "char.dic").write_text("\n".join(entries), encoding="utf-8")
    content = read_manylangs(broken)
    assert content.characters[0] == "\u3000"
    embedder = original_embedder(broken, 1)
    assert_same_ids(embedder, content.tokenizer(), [["\u3000", "\u00a0", "<", "a\u3000"]])
    assert isinstance(content.model(), ElmoModel)
