"""Scores of words against the logits, however they are computed; and the command that prints them."""

import json
import math
import sys

import pytest
import torch
from language_models import KINDS, KNOWN, TEXT, WORDS, log_probabilities, small_model, small_tokenizer
from test_auto import run_without_the_package
from tiny import random_model

from hf_elmo import ElmoModel, ElmoTokenizer, ScoreTotals, SentenceScore, softmax
from hf_elmo.cli import main
from hf_elmo.perplexity import evaluate_perplexity
from hf_elmo.surprisal_picture import plot_surprisal

LONG = [word for words in WORDS for word in words]
DIRECTIONS = ("forward", "backward", "combined")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The text, and the folder of a model with its tokenizer."""
    folder = tmp_path_factory.mktemp("scoring")
    tokenizer = small_tokenizer(folder)
    small_model(tokenizer, **KINDS["sampled"]).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "text.txt").write_text("\n\n".join(TEXT) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return ElmoTokenizer.from_pretrained(folder / "model")


@pytest.fixture
def model(tokenizer):
    return small_model(tokenizer, **KINDS["sampled"])


def figures(score: SentenceScore) -> list[float]:
    return [*score.forward, *score.backward, score.end, score.begin]


def difference(scores, others) -> float:
    pairs = [
        (one, other)
        for score, another in zip(scores, others, strict=True)
        for one, other in zip(figures(score), figures(another), strict=True)
    ]
    return max(abs(one - other) for one, other in pairs)


def score_by_hand(model, tokenizer, words: list[str]) -> SentenceScore:
    forward, backward = log_probabilities(model, tokenizer, words)
    vocabulary = {word: tokenizer.convert_tokens_to_ids(word) for word in KNOWN}
    ids = [vocabulary.get(word, tokenizer.unk_token_id) for word in words]
    return SentenceScore(
        words=words,
        known=[word in KNOWN for word in words],
        forward=[forward[place, index].item() for place, index in enumerate(ids)],
        backward=[backward[place, index].item() for place, index in enumerate(ids, start=2)],
        end=forward[len(words), tokenizer.eos_token_id].item(),
        begin=backward[1, tokenizer.bos_token_id].item(),
    )


# --- The numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reads", ["characters", "words", "both"])
def test_scores_are_those_of_the_logits(tokenizer, kind, reads):
    size = 0 if reads == "characters" else 5
    model = small_model(tokenizer, **KINDS[kind], word_input=reads, word_embedding_size=size)
    scores = model.score(WORDS, tokenizer)
    expected = [score_by_hand(model, tokenizer, words) for words in WORDS]
    assert difference(scores, expected) < 1e-6
    assert [score.words for score in scores] == WORDS
    assert [score.known for score in scores] == [score.known for score in expected]
    assert len({round(figure, 4) for score in scores for figure in figures(score)}) > 80
    double = model.double()
    assert (
        difference(double.score(WORDS, tokenizer), [score_by_hand(double, tokenizer, words) for words in WORDS])
        < 1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_of_all_words_sum_to_one(tokenizer, kind):
    model = small_model(tokenizer, **KINDS[kind]).eval()
    num_words = model.softmax.num_words
    hidden = torch.randn(3, model.config.projection_size)
    everything = torch.arange(num_words).repeat(3)
    found = model.softmax.log_likelihoods(hidden.repeat_interleave(num_words, dim=0), everything)
    torch.testing.assert_close(found.exp().view(3, -1).sum(dim=1), torch.ones(3).double(), atol=1e-6, rtol=0)
    assert found.dtype == torch.float64
    assert not found.requires_grad


def test_nothing_is_lost_in_a_large_vocabulary():
    """Scores beyond 16 have a last digit of 2e-6 in single precision."""
    layer = softmax.ElmoSoftmax(20_000, 64).eval()
    with torch.no_grad():
        layer.weight.mul_(4)
        layer.bias.normal_()
    hidden, targets = torch.randn(40, 64), torch.randint(20_000, (40,))
    expected = layer.logits(hidden).double().log_softmax(dim=1).gather(1, targets.unsqueeze(1)).squeeze(1)
    found = layer.log_likelihoods(hidden, targets)
    assert expected.min() < -20
    assert (found - expected).abs().max() < 1e-6
    best = layer.logits(1000 * hidden).argmax(dim=1)
    assert (layer.log_likelihoods(1000 * hidden, best) <= 0).all()


def test_neighbours_in_the_batch_and_padding_change_nothing(tokenizer, model):
    together = model.score(WORDS, tokenizer)
    assert difference(together, [model.score([words], tokenizer)[0] for words in WORDS]) < 1e-6
    assert difference(together, model.score(WORDS[::-1], tokenizer)[::-1]) < 1e-6
    assert difference(together, list(model.score_stream(iter(WORDS), tokenizer))) == 0


@pytest.mark.parametrize("kind", ["full", "adaptive"])
@pytest.mark.parametrize("initial_state", ["zero", "warm"])
def test_pieces_and_blocks_change_nothing(tokenizer, monkeypatch, kind, initial_state):
    model = small_model(tokenizer, **KINDS[kind], initial_state=initial_state)
    for buffer in model.elmo.buffers():
        buffer.normal_()
    texts = [*WORDS[:3], LONG]
    expected = model.score(texts, tokenizer)
    assert difference(expected, [score_by_hand(model, tokenizer, words) for words in texts]) < 1e-6
    for rows, words, batch_tokens in ((1, 1, 3), (7, 4, 8), (1024, 2048, 30), (5, 2048, 4096)):
        monkeypatch.setattr(softmax, "ROWS_PER_BLOCK", rows)
        monkeypatch.setattr(softmax, "WORDS_PER_BLOCK", words)
        assert difference(model.score(texts, tokenizer, batch_tokens=batch_tokens), expected) < 1e-6


def test_long_texts_are_read_in_pieces(tokenizer, model, monkeypatch):
    read = []
    forward = ElmoModel.forward

    def watched(self, input_ids, *args, **options):
        read.append(tuple(input_ids.shape))
        return forward(self, input_ids, *args, **options)

    monkeypatch.setattr(ElmoModel, "forward", watched)
    model.score([*WORDS, LONG], tokenizer, batch_tokens=16)
    assert max(rows * length for rows, length in read) <= 16


def test_totals_are_those_of_the_perplexity(folder, tokenizer, model):
    found = evaluate_perplexity(model, tokenizer, folder / "text.txt", mode="sentences")
    totals = ScoreTotals()
    for score in model.score(WORDS, tokenizer):
        totals = totals.plus(ScoreTotals.of(score))
    assert totals.perplexity("forward") == pytest.approx(found.forward, rel=1e-6)
    assert totals.perplexity("backward") == pytest.approx(found.backward, rel=1e-6)
    assert totals.perplexity() == pytest.approx(found.both, rel=1e-6)
    assert abs(found.forward - found.backward) > 0.1
    assert (totals.words, totals.predictions, totals.unknown_share) == (
        found.words,
        found.predictions,
        found.unknown_share,
    )


def test_what_is_derived_from_the_log_probabilities():
    score = SentenceScore(["a", "b"], [True, False], [-1.0, -2.0], [-3.0, -5.0], end=-0.5, begin=-0.25)
    assert score.combined == [-2.0, -3.5]
    assert score.surprisals() == pytest.approx([2 / math.log(2), 3.5 / math.log(2)])
    assert [score.total(direction) for direction in DIRECTIONS] == [-3.5, -8.25, -5.875]
    assert score.perplexity("forward") == pytest.approx(math.exp(3.5 / 3))
    assert score.perplexity() == pytest.approx(math.sqrt(score.perplexity("forward") * score.perplexity("backward")))
    assert (score.unknown_words, score.predictions) == (1, 3)
    begin, first, second, end = score.rows()
    assert (begin["word"], begin["kind"], begin["forward_log_probability_nats"]) == ("<S>", "boundary", None)
    assert (begin["backward_log_probability_nats"], end["backward_log_probability_nats"]) == (-0.25, None)
    assert (end["word"], end["forward_surprisal_bits"]) == ("</S>", pytest.approx(0.5 / math.log(2)))
    assert [row["kind"] for row in (first, second)] == ["word", "unknown"]
    assert [row["position"] for row in score.rows()] == [0, 1, 2, 3]
    certain = SentenceScore([], [], [], [], end=0.0, begin=-2e3)
    assert (certain.perplexity("forward"), certain.perplexity("backward")) == (1.0, math.inf)
    assert str(certain.rows()[1]["forward_surprisal_bits"]) == "0.0"
    with pytest.raises(ValueError, match="direction='both' is not possible: it is 'forward', 'backward', 'combined'"):
        score.total("both")


# --- The call --------------------------------------------------------------------------------------------------------


def test_texts_are_split_by_the_tokenizer(tokenizer, model):
    text = "The cat sat on the mat."
    single = model.score(text, tokenizer)
    assert single.words == ["The", "cat", "sat", "on", "the", "mat", "."]
    assert difference([single], model.score([single.words], tokenizer)) == 0
    empty, boundaries = model.score(["", ["cat", "</S>", "<S>", "<PAD>", "<UNK>", "mat"]], tokenizer)
    assert (empty.words, len(figures(empty))) == ([], 2)
    assert empty.total("forward") == empty.end < 0
    assert boundaries.known == [word in KNOWN for word in boundaries.words]
    unknown = log_probabilities(model, tokenizer, boundaries.words)[0][:, tokenizer.unk_token_id]
    assert boundaries.forward[1:5] == pytest.approx(unknown[1:5].tolist(), abs=1e-6)
    assert model.score([], tokenizer) == []


def test_the_model_is_as_before(tokenizer, model):
    expected = model.score(WORDS, tokenizer)
    model.train()
    model.elmo.eval()
    before = torch.get_rng_state()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert difference(model.score(WORDS, tokenizer), expected) == 0
    assert model.training
    assert not model.elmo.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    half = model.to(torch.bfloat16).score(WORDS, tokenizer)
    assert 1e-4 < difference(half, expected) < 2


def test_mistakes(tokenizer, model):
    with pytest.raises(ValueError, match=r"The tokenizer has 4 words, but the model \d+: they do not belong together"):
        model.score("a", ElmoTokenizer())
    for wrong in (0, True, 1.5):
        with pytest.raises(ValueError, match=f"batch_tokens={wrong} is not possible: it must be a whole number"):
            model.score("a", tokenizer, batch_tokens=wrong)
    with pytest.raises(ValueError, match="Text 1 is the string 'b', but is_split_into_words=True"):
        model.score([["a"], "b"], tokenizer, is_split_into_words=True)
    with pytest.raises(ValueError, match=r"Text 0 is \['a'\], a list, but it must be a string\."):
        model.score([["a"]], tokenizer, is_split_into_words=False)
    with pytest.raises(ValueError, match="Text 0 has the word 3, a int, not a string"):
        model.score([["a", 3]], tokenizer)
    with pytest.raises(ValueError, match="Text 0 is 7, a int, but it must be a string or a list of words"):
        model.score([7], tokenizer)
    with pytest.raises(ValueError, match="texts is a single string"):
        model.score_stream("a", tokenizer)


def test_boundaries_are_needed(folder, model):
    tokenizer = ElmoTokenizer(folder / "vocab.txt", add_eos_token=False)
    with pytest.raises(ValueError, match="add_bos_token=True and add_eos_token=False, but the language model"):
        model.score("a", tokenizer)


@pytest.mark.slow
def test_a_saved_folder_scores_without_the_package(folder, tokenizer, model, tmp_path):
    code = """
trusted = {"trust_remote_code": True}
model = transformers.AutoModelForPreTraining.from_pretrained(folder, **trusted)
tokenizer = AutoTokenizer.from_pretrained(folder, **trusted)
score = model.score(sentences[0], tokenizer)
place = model.substitutes(sentences[0], tokenizer, "mat", top_k=2)
sample = model.sample(tokenizer, "The", max_words=5)[0]
print(json.dumps([score.to_dict(), place.to_dict(), sample.to_dict()]))
"""
    score, place, sample = json.loads(run_without_the_package(code, tmp_path, folder / "model"))
    assert score["combined_perplexity"] == pytest.approx(model.score(TEXT[0], tokenizer).perplexity(), rel=1e-6)
    expected = model.substitutes(TEXT[0], tokenizer, "mat", top_k=2)
    assert [best["word"] for best in place["combined"]] == [best.word for best in expected.combined]
    assert sample["words"] == model.sample(tokenizer, "The", max_words=5)[0].words


# --- The command -----------------------------------------------------------------------------------------------------


def table(text: str) -> list[dict[str, str]]:
    head, *lines = (line.split("\t") for line in text.splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_table_of_words(folder, tokenizer, model, capsys):
    assert main(["score", str(folder / "model"), "The cat sat", "Hi", "--quiet"]) == 0
    captured = capsys.readouterr()
    rows = table(captured.out)
    expected = [row for score in model.score(["The cat sat", "Hi"], tokenizer) for row in score.rows()]
    assert [row["word"] for row in rows] == ["<S>", "The", "cat", "sat", "</S>", "<S>", "Hi", "</S>"]
    assert [row["sentence"] for row in rows] == ["1"] * 5 + ["2"] * 3
    for row, figures_of_row in zip(rows, expected, strict=True):
        for name, value in figures_of_row.items():
            written = "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)
            assert row[name] == written
    assert "text: 2 sentences, 4 words, of which 2 (50.00%) are not in the vocabulary" in captured.err
    assert "full softmax, every sentence from a zero state" in captured.err


def test_files_give_the_totals_of_hf_elmo_perplexity(folder, tmp_path, capsys):
    model, text = str(folder / "model"), str(folder / "text.txt")
    output, report = tmp_path / "scores.jsonl", tmp_path / "totals.json"
    options = ["--split-words", "--format", "jsonl", "--output", str(output), "--json", str(report), "--quiet"]
    assert main(["score", model, "--files", text, *options]) == 0
    assert "perplexity: forward" in capsys.readouterr().out
    assert main(["perplexity", model, text, "--mode", "sentences", "--json", str(tmp_path / "p.json"), "--quiet"]) == 0
    totals, perplexity = json.loads(report.read_text()), json.loads((tmp_path / "p.json").read_text())
    assert (totals["model"], totals["state"]) == ("model", "zero")
    assert totals["command"].startswith("hf-elmo")
    assert totals["forward_perplexity"] == pytest.approx(perplexity["forward"], rel=1e-6)
    assert totals["backward_perplexity"] == pytest.approx(perplexity["backward"], rel=1e-6)
    assert totals["combined_perplexity"] == pytest.approx(perplexity["both"], rel=1e-6)
    assert (totals["words"], totals["unknown_share"]) == (perplexity["words"], perplexity["unknown_share"])
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [line["text"] for line in lines] == [" ".join(words) for words in WORDS]
    assert sum(line["forward_log_probability_nats"] for line in lines) == pytest.approx(
        totals["forward_log_probability_nats"]
    )
    assert main(["score", model, "--files", text, *options]) == 1
    assert f"{report} exists" in capsys.readouterr().err


def test_sentences_only(folder, capsys):
    model = str(folder / "model")
    assert main(["score", model, "The cat sat", "--level", "sentences", "--quiet"]) == 0
    (row,) = table(capsys.readouterr().out)
    assert (row["words"], row["unknown_words"], row["text"]) == ("3", "2", "The cat sat")
    assert main(["score", model, "The cat sat", "--level", "sentences", "--format", "jsonl", "--quiet"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert "positions" not in content
    assert f"{content['combined_perplexity']:.6f}" == row["combined_perplexity"]


def test_lines_that_are_not_utf_8(folder, tmp_path, capsys):
    (tmp_path / "bad.txt").write_bytes(b"\xef\xbb\xbfHi\nb\xffd word\n")
    arguments = [
        "score",
        str(folder / "model"),
        "--files",
        str(tmp_path / "bad.txt"),
        "--level",
        "sentences",
        "--quiet",
    ]
    for errors, expected in (("replace", ["Hi", "b\ufffdd word"]), ("skip", ["Hi"])):
        assert main([*arguments, "--errors", errors, "--split-words"]) == 0
        assert [row["text"] for row in table(capsys.readouterr().out)] == expected
    assert main([*arguments, "--errors", "stop"]) == 1
    assert "bad.txt: line 2 is not UTF-8" in capsys.readouterr().err


def test_picture(folder, tmp_path, tokenizer, model, capsys):
    path = tmp_path / "surprisal.png"
    assert (
        main(["score", str(folder / "model"), *TEXT[:2], "--plot", str(path), "--plot-sentence", "2", "--quiet"]) == 0
    )
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG")
    assert plot_surprisal(model.score(TEXT[1], tokenizer), path).read_bytes() == first
    assert plot_surprisal(model.score("", tokenizer), path).read_bytes() != first
    with pytest.warns(UserWarning, match="The fonts here lack characters of the sentence"):
        plot_surprisal(model.score("cat \U00010380 $5 $6", tokenizer), path)
    with pytest.raises(ValueError, match="The sentence has 81 words, but a picture has room for 80"):
        plot_surprisal(model.score([["a"] * 81], tokenizer)[0], path)
    capsys.readouterr()
    assert main(["score", str(folder / "model"), "Hi", "--plot", str(tmp_path / "b.png"), "--plot-sentence", "2"]) == 1
    assert "--plot-sentence 2 is not there: the text has 1 sentences" in capsys.readouterr().err


def test_mistakes_of_the_command(folder, tmp_path, capsys, monkeypatch):
    model = str(folder / "model")
    (tmp_path / "blank.txt").write_text("\n \n")
    text = str(folder / "text.txt")
    for arguments, message in (
        ([], "Give sentences, or --files with sentences, one of the two"),
        (["Hi", "--files", text], "Give sentences, or --files with sentences, one of the two"),
        ([text], f"{text} is a file. To score its lines, give --files {text}"),
        (["--files", str(tmp_path / "blank.txt")], "There are no sentences in the text"),
        (["Hi", "--plot-sentence", "0"], "--plot-sentence 0 is not possible"),
        (["Hi", "--batch-tokens", "0"], "batch_tokens=0 is not possible"),
        (["Hi", "--device", "nonsense"], "--device nonsense cannot be used here"),
        (["Hi", "--output", str(tmp_path / "no" / "x.tsv")], "does not exist, so x.tsv cannot be written there"),
    ):
        assert main(["score", model, *arguments, "--quiet"]) == 1
        assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blank.txt"]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["score", model, "Hi", "--plot", str(tmp_path / "a.png"), "--quiet"]) == 1
    assert 'matplotlib: pip install "hf-elmo[' in capsys.readouterr().err


def test_an_encoder_cannot_score(tmp_path, capsys):
    random_model().save_pretrained(tmp_path / "encoder")
    ElmoTokenizer().save_pretrained(tmp_path / "encoder")
    assert main(["score", str(tmp_path / "encoder"), "Hi", "--quiet"]) == 1
    assert "holds an encoder without a softmax" in capsys.readouterr().err
