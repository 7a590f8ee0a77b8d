"""Which of two sentences is more probable: counts against scores one by one, files, and the command."""

import json

import pytest
from language_models import TEXT, saved_model

from hf_elmo import ElmoForPreTraining, ElmoTokenizer, SentenceScore
from hf_elmo.cli import main
from hf_elmo.minimal_pairs import MinimalPair, PairResults, ScoredPair, read_pairs, score_pairs

DIRECTIONS = ("forward", "backward", "combined")
SHUFFLED = [" ".join(sorted(text.split())) for text in TEXT]
PAIRS = [MinimalPair(good, bad) for good, bad in zip(TEXT, SHUFFLED, strict=True)]  # some are the same twice


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved_model(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return ElmoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder):
    return ElmoForPreTraining.from_pretrained(folder)


def scored(good: float, bad: float, known: bool = True, groups: dict[str, str] | None = None) -> ScoredPair:
    """A pair with these forward totals, and the opposite for the backward direction."""
    one, other = (
        SentenceScore(["w"], [known], [forward], [backward], end=0.0, begin=0.0)
        for forward, backward in ((good, bad), (bad, good))
    )
    return ScoredPair(MinimalPair("good", "bad", groups or {}), one, other)


def test_verdicts():
    assert [scored(-1.0, -2.0).verdict(direction) for direction in DIRECTIONS] == ["right", "wrong", "tie"]
    assert scored(-100.0, -100.00001).verdict("forward") == "tie"
    assert scored(-100.0, -100.001).verdict("forward") == "right"
    assert scored(0.0, 0.0).verdict("forward") == "tie"


def test_counts():
    results = PairResults()
    agreement, islands = ({"linguistics_term": name, "UID": f"{name}_1"} for name in ("agreement", "islands"))
    for pair in (
        scored(-1, -2, groups=agreement),
        scored(-2, -1, groups=agreement),
        scored(-1, -3, known=False, groups=islands),
        scored(-1, -1),
    ):
        results.add(pair)
    content = results.to_dict()
    assert content["pairs"] == 4
    assert content["pairs_with_unknown_words"] == 1
    assert content["forward"] == {"accuracy": 0.5, "right": 2, "wrong": 1, "tie": 1}
    assert content["backward"] == {"accuracy": 0.25, "right": 1, "wrong": 2, "tie": 1}
    assert content["combined"] == {"accuracy": 0.0, "right": 0, "wrong": 0, "tie": 4}
    assert content["all_words_known"]["pairs"] == 3
    assert content["all_words_known"]["forward"]["right"] == 1
    assert {name: counts["forward"]["accuracy"] for name, counts in content["groups"]["linguistics_term"].items()} == {
        "agreement": 0.5,
        "islands": 1.0,
    }
    assert list(content["groups"]) == ["linguistics_term", "UID"]


@pytest.mark.parametrize("batch_tokens", [4096, 6])
def test_pairs_have_the_scores_of_their_sentences(tokenizer, model, batch_tokens):
    found = list(score_pairs(model, tokenizer, iter(PAIRS), split_words=True, batch_tokens=batch_tokens))
    assert [pair.pair for pair in found] == PAIRS
    for pair in found:
        for score, text in ((pair.good, pair.pair.good), (pair.bad, pair.pair.bad)):
            assert score.words == text.split()
            expected = model.score([text.split()], tokenizer)[0]
            assert score.total() == pytest.approx(expected.total(), abs=1e-5)
        assert all((pair.verdict(name) == "tie") is (pair.pair.good == pair.pair.bad) for name in DIRECTIONS)
    assert {pair.verdict("combined") for pair in found} == {"right", "wrong", "tie"}


# --- Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["", "good\tbad\n", "sentence_good\tsentence_bad\n"])
def test_tables(tmp_path, head):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{head}He is.\tHe are.\r\n\n We are. \tWe is.".encode())
    assert list(read_pairs(path)) == [MinimalPair("He is.", "He are."), MinimalPair("We are.", "We is.")]


def test_blimp(tmp_path):
    path = tmp_path / "agreement.jsonl"
    line = {
        "sentence_good": "He is.",
        "sentence_bad": "He are.",
        "field": "syntax",
        "linguistics_term": "agreement",
        "UID": "agreement_1",
        "simple_LM_method": True,
        "pairID": "0",
    }
    path.write_text(f"{json.dumps(line)}\n\n" + json.dumps({"sentence_good": "a", "sentence_bad": "b", "UID": None}))
    groups = {"field": "syntax", "linguistics_term": "agreement", "UID": "agreement_1"}
    assert list(read_pairs(path)) == [MinimalPair("He is.", "He are.", groups), MinimalPair("a", "b")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one column\n", "line 1 has 1 columns, but a pair is the good sentence, a tab, and the bad one"),
        (b"a\tb\na\tb\tc\n", "line 2 has 3 columns"),
        (b"a\t \n", "line 1 has 2 columns, an empty one among them"),
        (b'{"sentence_good": "a"}\n', "line 1 must have the texts 'sentence_good' and 'sentence_bad'"),
        (b'{"sentence_good": "a", "sentence_bad": 3}\n', "line 1 must have the texts"),
        (b'{"sentence_good": "a", "sentence_bad": "b"}\n{nonsense\n', "line 2 is not JSON"),
        (b"a\t\xff\n", "line 1 is not UTF-8"),
    ],
)
def test_bad_lines(tmp_path, content, message):
    path = tmp_path / "pairs"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"pairs: {message}"):
        list(read_pairs(path))


# --- The command -----------------------------------------------------------------------------------------------------


def test_command(folder, tokenizer, model, tmp_path, capsys):
    pairs, report, output = tmp_path / "pairs.jsonl", tmp_path / "report.json", tmp_path / "scores.tsv"
    lines = [
        {"sentence_good": pair.good, "sentence_bad": pair.bad, "linguistics_term": f"group{number % 2}"}
        for number, pair in enumerate(PAIRS)
    ]
    pairs.write_text("\n".join(map(json.dumps, lines)))
    arguments = ["pairs", str(folder), str(pairs), "--split-words", "--quiet"]
    assert main([*arguments, "--json", str(report), "--output", str(output)]) == 0
    out = capsys.readouterr().out
    results = PairResults()
    for pair in score_pairs(model, tokenizer, PAIRS, split_words=True):
        results.add(pair)
    content = json.loads(report.read_text())
    assert {name: content[name] for name in ("pairs", *DIRECTIONS)} == {
        name: results.to_dict()[name] for name in ("pairs", *DIRECTIONS)
    }
    rows = {line.split("  ")[0]: line.split()[-4:] for line in out.splitlines() if line.endswith("%")}
    shares = [f"{results.all.accuracy(direction):.2%}" for direction in DIRECTIONS]
    assert rows["all pairs"] == [str(len(PAIRS)), *shares]
    assert {"group0", "group1"} <= set(rows)
    assert f"ties, which are not right: forward {content['forward']['tie']}" in out
    assert f"{results.all.pairs_with_unknown_words} of {len(PAIRS)} pairs have words that are not in" in out
    head, *table = (line.split("\t") for line in output.read_text(encoding="utf-8").splitlines())
    assert len(table) == len(PAIRS)
    first = dict(zip(head, table[0], strict=True))
    assert (first["good"], first["bad"]) == (PAIRS[0].good, PAIRS[0].bad)
    alone = model.score([TEXT[0].split()], tokenizer)[0].total("forward")  # in the file, beside other sentences
    assert float(first["forward_good_nats"]) == pytest.approx(alone, rel=1e-6)
    assert main([*arguments, "--output", str(output)]) == 1
    assert f"{output} exists" in capsys.readouterr().err


def test_files_without_pairs(folder, tmp_path, capsys):
    (tmp_path / "empty.tsv").write_text("good\tbad\n")
    assert main(["pairs", str(folder), str(tmp_path / "empty.tsv"), "--quiet"]) == 1
    assert "There are no pairs in the files" in capsys.readouterr().err
