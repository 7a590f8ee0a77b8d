"""Linear probes and senses by neighbours: against plain computations, and from files to figures."""

import gzip
import json

import numpy as np
import pytest
import torch
from tiny import random_model, tiny_config

from hf_elmo import ElmoEmbedder, ElmoTokenizer, WordVectors
from hf_elmo.cli import main
from hf_elmo.probing import layer_vectors, random_embedder, static_vectors, train_probe
from hf_elmo.word_senses import (
    SenseData,
    SenseVectors,
    Target,
    entry_of,
    predict_senses,
    read_first_senses,
    read_senses,
    sense_scores,
)

SENTENCES = [["The", "bank", "lent", "money", "."], ["Boats", "lay", "at", "the", "bank"], ["Hi"]]
TAGS = [["DET", "NOUN", "VERB", "NOUN", "PUNCT"], ["NOUN", "VERB", "ADP", "DET", "NOUN"], ["INTJ"]]


@pytest.fixture(scope="module")
def embedder():
    return ElmoEmbedder(random_model(), ElmoTokenizer())


# --- Linear probes ---------------------------------------------------------------------------------------------------


def clouds(seed=0, count=300):
    """Points of three classes that straight lines part, at scales that differ a lot."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    points = centres[labels] + generator.normal(size=(count, 2)) * 0.5
    constant = np.full((count, 1), 7.0)
    return np.hstack([points * [1000, 0.001], constant]).astype(np.float32), labels


def test_a_probe_learns_what_is_linear():
    train, train_labels = clouds()
    dev, dev_labels = clouds(seed=1)
    probe = train_probe(train, train_labels, 3, seed=0, epochs=20, batch_size=16, learning_rate=0.05)
    assert (probe.predict(dev) == dev_labels).mean() > 0.98
    shuffled = np.random.default_rng(0).permutation(train_labels)
    by_chance = train_probe(train, shuffled, 3, seed=0, epochs=20, batch_size=16, learning_rate=0.05)
    assert (by_chance.predict(dev) == dev_labels).mean() < 0.75


def test_a_probe_ends_at_the_optimum_of_the_loss():
    """Beside the optimum that L-BFGS finds; the points of two classes overlap, so there is one."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 400)
    points = (generator.normal(size=(400, 2)) + 1.0 * labels[:, None]).astype(np.float32)
    probe = train_probe(points, labels, 2, seed=0, epochs=60, batch_size=50, learning_rate=0.02)

    def loss(weight, bias):
        logits = ((torch.from_numpy(points) - probe.mean) / probe.deviation) @ weight + bias
        return torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))

    weight, bias = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(weight, bias)
        value.backward()
        return value

    optimizer.step(closure)
    assert float(loss(probe.weight, probe.bias)) == pytest.approx(float(loss(weight, bias).detach()), abs=1e-3)


def test_seeds_of_a_probe():
    train, labels = clouds()
    one, same, other = (train_probe(train, labels, 3, seed=seed, epochs=1) for seed in (1, 1, 2))
    assert torch.equal(one.weight, same.weight)
    assert not torch.equal(one.weight, other.weight)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 1, 2], {}, r"Vectors \(2, 3\) do not go with 3 labels"),
        ([0, 2], {}, "labels are 0 to 2, but must be 0 to 1"),
        ([-1, 0], {}, "labels are -1 to 0"),
        ([0, 1], {"epochs": 0}, "epochs=0 is not possible"),
        ([0, 1], {"batch_size": 0}, "batch_size=0 is not possible"),
    ],
)
def test_mistakes_with_a_probe_are_named(labels, options, message):
    with pytest.raises(ValueError, match=message):
        train_probe(np.zeros((2, 3), dtype=np.float32), labels, 2, seed=0, **options)


def test_vectors_of_all_words_in_order(embedder):
    vectors = layer_vectors(embedder, SENTENCES)
    assert vectors.shape == (3, 11, 12)
    place = 0
    for sentence in SENTENCES:
        alone = embedder.encode([sentence], layers="all", is_split_into_words=True)[0]
        np.testing.assert_allclose(vectors[:, place : place + len(sentence)], alone, atol=2e-3)
        place += len(sentence)


def test_static_vectors_of_words():
    vectors = WordVectors(["the", "Hi"], np.array([[1, 2], [3, 4]], dtype=np.float32))
    assert static_vectors(vectors, [["The", "the"], ["Hi", "hi"]]).tolist() == [[1, 2], [1, 2], [3, 4], [2, 3]]


def test_random_weights_depend_on_the_seed_only():
    state = torch.random.get_rng_state()
    one, same, other = (random_embedder(tiny_config(), ElmoTokenizer(), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    first, second, third = (layer_vectors(each, SENTENCES) for each in (one, same, other))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)


# --- Senses ----------------------------------------------------------------------------------------------------------

RIVER, MONEY, LEND, PAST = "bank%1:17:01::", "bank%1:14:00::", "lend%2:40:00::", "recent%5:00:00:past:00"
XML = """<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en"><text id="d0"><sentence id="d0.s0">
<wf lemma="the" pos="DET">The</wf>
<instance id="d0.s0.t0" lemma="bank" pos="NOUN">bank</instance>
<instance id="d0.s0.t1" lemma="point_out" pos="VERB">pointed out</instance>
<wf lemma="." pos=".">&apos;s</wf>
</sentence></text></corpus>"""


def write_xml(folder, xml=XML, gold=f"d0.s0.t0 {RIVER} {MONEY}\nd0.s0.t1 point_out%2:32:01::\n"):
    folder.mkdir()
    (folder / "dev.data.xml").write_text(xml, encoding="utf-8")
    (folder / "dev.gold.key.txt").write_text(gold, encoding="utf-8")
    return folder


def sentence(tokens, *senses):
    return json.dumps({"tokens": tokens, "senses": list(senses)})


def write_lines(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_senses_of_xml(tmp_path):
    folder = write_xml(tmp_path / "dev")
    for path in (folder, folder / "dev.data.xml"):
        data = read_senses(path)
        assert data.sentences == [["The", "bank", "pointed", "out", "'s"]]
        assert data.targets == [
            [Target((1,), "bank%1", (RIVER, MONEY)), Target((2, 3), "point_out%2", ("point_out%2:32:01::",))]
        ]
        assert data.describe() == "dev.data.xml: 1 sentences, 2 words with a sense"


def test_senses_of_json_lines(tmp_path):
    line = sentence(
        ["The", "Fulton_Jury", "_", "was", "recent", "years"],
        [1, "group", "NNP", ["group%1:03:00::"]],
        [4, "recent", "JJ", [PAST]],
        [5, "year", "NN", ["year%1:28:02::;1:28:01::"]],
    )
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress(line.encode()))
    data = read_senses(path)
    assert data.sentences == [["The", "Fulton", "Jury", "_", "was", "recent", "years"]]
    assert data.targets == [
        [Target((5,), "recent%3", (PAST,)), Target((6,), "year%1", ("year%1:28:02::", "year%1:28:01::"))]
    ]
    assert data.restrict({"recent%3"}).entries() == {"recent%3"}
    assert data.restrict({"other%1"}).sentences == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "line 1 is not a sentence with senses: Expecting value"),
        ('{"tokens": []}', "line 1 is not a sentence with senses: it has no 'senses'"),
        (sentence(["a"], [1, "a", "NN", [RIVER]]), "there is no token 1, only 0 to 0"),
        (sentence(["a"], [0, "a", "NN", ["bank"]]), "'bank' is not a sense key of WordNet"),
        (sentence(["a"]), "has no word with a sense"),
    ],
)
def test_lines_without_senses_are_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_senses(write_lines(tmp_path / "train.jsonl", content))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_senses(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"has 0 files \*\.data\.xml, but one is needed"):
        read_senses(tmp_path)
    with pytest.raises(ValueError, match=r"neither \*\.data\.xml nor \*\.jsonl"):
        read_senses(write_lines(tmp_path / "train.txt", "The bank"))
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(sentence(["a"] * 99).encode())[:-9])
    with pytest.raises(ValueError, match=r"cut\.jsonl\.gz cannot be decompressed"):
        read_senses(tmp_path / "cut.jsonl.gz")
    (tmp_path / "latin.jsonl").write_bytes(b'{"tokens": ["\xe9"], "senses": []}\n')
    with pytest.raises(ValueError, match=r"latin\.jsonl: line 1 is not a sentence with senses"):
        read_senses(tmp_path / "latin.jsonl")
    for number, (xml, gold, message) in enumerate(
        [
            ("<corpus>", "", "is not XML"),
            (XML, "", "the instance 'd0.s0.t0' has no sense in the file"),
            (XML.replace('pos="NOUN"', 'pos="DET"'), "", "'d0.s0.t0' lacks a word, a lemma or a part of speech"),
        ]
    ):
        with pytest.raises(ValueError, match=message):
            read_senses(write_xml(tmp_path / str(number), xml, gold))
    folder = write_xml(tmp_path / "without")
    (folder / "dev.gold.key.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"needs the file dev\.gold\.key\.txt"):
        read_senses(folder)


def test_first_senses(tmp_path):
    path = write_lines(
        tmp_path / "index.sense", f"{MONEY} 08420278 2 20", f"{RIVER} 09213565 1 25", f"{PAST} 01730444 1 4"
    )
    assert read_first_senses(path) == {"bank%1": RIVER, "recent%3": PAST}
    with pytest.raises(ValueError, match=r"line 1 is not one of WordNet's index\.sense"):
        read_first_senses(write_lines(tmp_path / "other", "bank n 10 5"))
    with pytest.raises(ValueError, match="is empty"):
        read_first_senses(write_lines(tmp_path / "empty"))


def test_entries():
    assert entry_of("Bank%1:14:00::") == "bank%1"
    with pytest.raises(ValueError, match="is not a sense key"):
        entry_of("bank%1:14:00")


def test_the_nearest_mean_wins():
    """By direction, not by length; in each layer for itself."""
    known = SenseVectors()
    for sense, vector in ((RIVER, [1, 0]), (RIVER, [1, 1]), (MONEY, [0, 100])):
        known.add(Target((0,), "bank%1", (sense,)), np.array([vector, vector[::-1]]))
    assert known.nearest("bank%1", np.array([[1.0, 0.9], [1.0, 0.1]])) == [RIVER, MONEY]
    assert known.nearest("bank%1", np.array([[0.1, 1.0], [0.1, 1.0]])) == [MONEY, RIVER]
    assert known.nearest("tank%1", np.zeros((2, 2))) is None
    assert (known.most_frequent("bank%1"), known.most_frequent("tank%1")) == (RIVER, None)


def test_of_equal_senses_the_frequent_one_wins():
    known = SenseVectors()
    for sense in (MONEY, RIVER, RIVER):
        known.add(Target((0,), "bank%1", (sense,)), np.array([[0.3, 0.7]]))
    assert known.nearest("bank%1", np.array([[1.0, 2.0]])) == [RIVER]


def test_back_off_and_scores():
    known = SenseVectors()
    known.add(Target((0,), "bank%1", (RIVER,)), np.array([[1.0, 0.0]]))
    targets = [
        Target((0,), "bank%1", (MONEY, RIVER)),
        Target((1, 2), "lend%2", (LEND,)),
        Target((2,), "recent%3", (PAST,)),
    ]
    data = SenseData("test", [["bank", "lend", "it"]], [targets])
    vectors = [np.ones((1, 3, 2))]
    without = predict_senses(data, vectors, known)
    assert without == [[RIVER, None, None]]
    assert sense_scores(data, without[0]) == {"precision": 1.0, "recall": 1 / 3, "f1": 0.5}
    backed = predict_senses(data, vectors, known, {"lend%2": LEND})
    assert backed == [[RIVER, LEND, None]]
    assert sense_scores(data, backed[0])["f1"] == pytest.approx(2 * 2 / (2 + 3))


# --- The commands ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(embedder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    embedder.model.save_pretrained(folder / "model")
    embedder.tokenizer.save_pretrained(folder / "model")
    rows = []
    for words, tags in zip(SENTENCES, TAGS, strict=True):
        numbered = zip(range(1, 6), words, tags, strict=False)
        rows += [f"{number}\t{word}\t_\t{tag}\t{tag}\t_\t_\t_\t_\t_" for number, word, tag in numbered]
        rows.append("")
    write_lines(folder / "train.conllu", *rows * 60)
    write_lines(folder / "dev.conllu", *rows, "1\tOh\t_\tINTJ\tUH\t_\t_\t_\t_\t_", "")
    money = sentence(["The", "bank", "lent", "it"], [1, "bank", "NN", [MONEY]], [2, "lend", "VB", [LEND]])
    river = sentence(["Boats", "at", "the", "bank"], [3, "bank", "NN", [RIVER]])
    write_lines(folder / "train.jsonl", money, river, river)
    unseen = sentence(["A", "recent", "bank"], [1, "recent", "JJ", [PAST]], [2, "bank", "NN", [RIVER]])
    write_lines(folder / "dev.jsonl", money, river, unseen)
    write_lines(folder / "index.sense", f"{PAST} 01730444 1 4", f"{MONEY} 08420278 1 20", f"{LEND} 02324478 1 1")
    write_lines(folder / "vectors.txt", "the 1 0 0", "bank 0 1 0", "boats 0 0 1", "lent 1 1 0")
    return folder


def run(capsys, *argv):
    code = main([str(argument) for argument in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_probe_of_parts_of_speech(capsys, files, tmp_path):
    arguments = [files / "model", "--train", files / "train.conllu", "--dev", files / "dev.conllu", "--quiet"]
    more = ["--random-weights", "--word-vectors", files / "vectors.txt", "--seeds", 1, 2]
    outputs = ["--json", tmp_path / "pos.json", "--plot", tmp_path / "pos.png"]
    code, out, err = run(capsys, "probe", "pos", *arguments, *more, "--epochs", 50, *outputs)
    assert (code, err) == (0, "")
    assert "most frequent tag of each word" in out
    record = json.loads((tmp_path / "pos.json").read_text())
    assert (record["probe"], record["metric"], record["labels"], record["words"]) == ("pos", "accuracy", 6, 12)
    assert list(record["systems"]) == ["model", "random weights", "vectors.txt"]
    assert [len(layers) for layers in record["systems"].values()] == [3, 3, 1]
    for layers in record["systems"].values():
        assert all(len(layer["values"]) == 2 for layer in layers)
        assert all(layer["mean"] == pytest.approx(np.mean(layer["values"])) for layer in layers)
    assert record["baselines"]["most frequent tag of each word"] == pytest.approx(11 / 12)  # not "Oh"
    assert record["systems"]["model"][1]["mean"] > 0.8  # all but "Oh", which may be anything
    assert (tmp_path / "pos.png").read_bytes()[:4] == b"\x89PNG"
    assert str(files) not in record["command"]


def test_probe_of_senses(capsys, files, tmp_path):
    arguments = [files / "model", "--train", files / "train.jsonl", "--dev", files / "dev.jsonl", "--quiet"]
    more = ["--random-weights", "--word-vectors", files / "vectors.txt", "--seeds", 1, 2]
    outputs = ["--json", tmp_path / "wsd.json", "--plot", tmp_path / "wsd.png"]
    code, out, err = run(capsys, "probe", "wsd", *arguments, *more, *outputs, "--wordnet", files / "index.sense")
    assert (code, err) == (0, "")
    assert "first sense of WordNet" in out
    record = json.loads((tmp_path / "wsd.json").read_text())
    assert (record["probe"], record["metric"], record["words"], record["unseen"]) == ("wsd", "f1", 5, 1)
    assert record["back_off"] == "first sense of WordNet"
    assert record["baselines"] == {
        "most frequent sense in the training data": pytest.approx(4 / 5),
        "first sense of WordNet": pytest.approx(3 / 5),
    }
    trained = [layer["mean"] for layer in record["systems"]["model"]]
    assert trained[0] == pytest.approx(4 / 5)  # without context, the more frequent sense of bank
    assert all(score >= 4 / 5 for score in trained[1:])  # in context, the sentences that were seen are right
    assert record["systems"]["vectors.txt"][0]["mean"] == pytest.approx(4 / 5)
    assert [len(layer["values"]) for layer in record["systems"]["random weights"]] == [2, 2, 2]
    assert record["standard_error"] == pytest.approx((max(trained) * (1 - max(trained)) / 5) ** 0.5)
    code, _, _ = run(capsys, "probe", "wsd", *arguments, "--json", tmp_path / "without.json")
    without = json.loads((tmp_path / "without.json").read_text())
    assert without["back_off"] == "none"
    assert without["systems"]["model"][0]["mean"] == pytest.approx(2 * 3 / (4 + 5))


def test_mistakes_are_one_line(capsys, files, tmp_path):
    pos = ["pos", files / "model", "--train", files / "train.conllu", "--dev", files / "dev.conllu"]
    wsd = ["wsd", files / "model", "--train", files / "train.jsonl", "--dev", files / "dev.jsonl"]
    for argv, message in [
        ([*pos[:1], tmp_path / "nowhere", *pos[2:]], "is no model folder"),
        ([*pos, "--epochs", 0], "--epochs 0 is not possible"),
        ([*pos, "--seeds", 1, 1], "a seed comes twice"),
        ([*pos, "--json", tmp_path / "no" / "file.json"], "does not exist, so file.json cannot be written"),
        ([*pos, "--word-vectors", "nothing"], "There is no file nothing"),
        ([*pos[:-1], tmp_path / "nowhere.conllu"], "nowhere.conllu"),
        ([*wsd, "--wordnet", files / "train.jsonl"], "is not one of WordNet's index.sense"),
        ([*wsd[:-1], files / "dev.conllu"], "is neither *.data.xml nor"),
    ]:
        code, out, err = run(capsys, "probe", *argv, "--quiet")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert message in err
