"""Sentences drawn from the forward direction, against the scores of the same sentences; and the command."""

import json

import pytest
import torch
from language_models import KINDS, KNOWN, saved_model, small_model

from hf_elmo import ElmoForPreTraining, ElmoTokenizer, sampling
from hf_elmo.cli import main
from hf_elmo.modeling_elmo import ElmoBidirectionalLstm


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved_model(tmp_path_factory.mktemp("sampling"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return ElmoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder):
    return ElmoForPreTraining.from_pretrained(folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reads", ["characters", "words", "both"])
@pytest.mark.parametrize("initial_state", ["zero", "warm"])
def test_the_state_is_that_of_the_whole_sentence(tokenizer, kind, reads, initial_state):
    """The log-probabilities of a sample are those that the sentence has when it is read as a whole."""
    size = 0 if reads == "characters" else 5
    settings = {"word_input": reads, "word_embedding_size": size, "initial_state": initial_state}
    model = small_model(tokenizer, **KINDS[kind], **settings)
    for buffer in model.elmo.buffers():
        buffer.normal_()
    samples = model.sample(tokenizer, ["The", "cat"], num_samples=12, max_words=12)
    assert {sample.ended for sample in samples} == {True, False}
    for sample in samples:
        score = model.score([[*sample.prompt, *sample.words]], tokenizer)[0]
        expected = [*score.forward[2:], *([score.end] if sample.ended else [])]
        assert sample.log_probabilities == pytest.approx(expected, abs=1e-5)
        assert sample.prompt == ["The", "cat"]
        assert set(sample.words) <= set(KNOWN)
        assert sample.ended or len(sample.words) == 12


def test_words_come_as_often_as_they_should(tokenizer, model):
    samples = model.sample(tokenizer, "The", num_samples=4000, max_words=1)
    probabilities = model.softmax.log_probabilities(_top(model, tokenizer, ["The"]))[0].exp().double()
    allowed = probabilities.clone()
    allowed[[tokenizer.bos_token_id, tokenizer.unk_token_id]] = 0
    drawn = [sample.words[0] if sample.words else "</S>" for sample in samples]
    for index, expected in enumerate((allowed / allowed.sum()).tolist()):
        share = drawn.count(tokenizer.convert_ids_to_tokens(index)) / len(drawn)
        assert abs(share - expected) < 4 * (expected / len(drawn)) ** 0.5 + 1e-9


def _top(model, tokenizer, words):
    with torch.no_grad():
        batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        outputs = model.eval().elmo(**batch, output_hidden_states=True)
        return outputs.hidden_states[-1][:, -2].chunk(2, dim=1)[0]


def test_the_seed_decides(tokenizer, model, monkeypatch):
    first = model.sample(tokenizer, num_samples=5, max_words=12, seed=3)
    before = torch.get_rng_state()
    assert model.sample(tokenizer, num_samples=5, max_words=12, seed=3) == first
    assert torch.equal(torch.get_rng_state(), before)
    assert model.sample(tokenizer, num_samples=5, max_words=12, seed=4) != first
    assert [sample.words for sample in model.sample(tokenizer, num_samples=2, max_words=12, seed=3)] == [
        sample.words for sample in first[:2]
    ]
    monkeypatch.setattr(sampling, "SCORES_AT_A_TIME", 1)
    one_by_one = model.sample(tokenizer, num_samples=5, max_words=12, seed=3)
    assert [sample.words for sample in one_by_one] == [sample.words for sample in first]


def draw(scores: list[float], number: float, temperature=1.0, top_k=None, top_p=None, forbidden=()) -> int:
    mask = torch.zeros(len(scores), dtype=torch.bool)
    mask[list(forbidden)] = True
    choice = sampling._Choice(temperature, top_k, top_p, mask)
    numbers = torch.tensor([number], dtype=torch.float64)
    return int(sampling.draw_words(torch.tensor([scores], dtype=torch.float64).log(), numbers, choice))


def test_choices():
    probabilities = [0.1, 0.5, 0.15, 0.25]
    assert [draw(probabilities, number) for number in (0.0, 0.09, 0.11, 0.59, 0.61, 0.76, 0.9999)] == [
        0,
        0,
        1,
        1,
        2,
        3,
        3,
    ]
    # Best first: 1, 3, 2, 0
    assert [draw(probabilities, number, top_k=2) for number in (0.0, 0.66, 0.67, 0.9999)] == [1, 1, 3, 3]
    assert [draw(probabilities, number, top_k=1) for number in (0.0, 0.9999)] == [1, 1]
    assert [draw(probabilities, number, top_p=0.74) for number in (0.0, 0.66, 0.67, 0.9999)] == [1, 1, 3, 3]
    assert [draw(probabilities, number, top_p=0.76) for number in (0.83, 0.84, 0.9999)] == [3, 2, 2]
    assert [draw(probabilities, number, top_p=1.0) for number in (0.49, 0.74, 0.89, 0.9999)] == [1, 3, 2, 0]
    assert draw(probabilities, 0.9999, top_p=1e-9) == 1
    assert [draw(probabilities, number, top_k=3, top_p=0.6) for number in (0.66, 0.67)] == [1, 3]
    assert [draw(probabilities, number, top_k=100) for number in (0.49, 0.9999)] == [1, 0]
    assert [draw([0.2, 0.8], number, temperature=0.5) for number in (0.05, 0.06)] == [0, 1]  # 0.04 to 0.64
    assert [draw(probabilities, number, forbidden=[1]) for number in (0.19, 0.21, 0.49, 0.51)] == [0, 2, 2, 3]
    assert draw(probabilities, 0.0, top_k=4, forbidden=[1]) == 3


def test_unknown_words_only_if_allowed(tokenizer, model):
    options = {"num_samples": 60, "max_words": 6}
    without, with_them = (model.sample(tokenizer, allow_unknown=allowed, **options) for allowed in (False, True))
    assert not any("<UNK>" in sample.words for sample in without)
    assert any("<UNK>" in sample.words for sample in with_them)
    assert not any("<S>" in sample.words for sample in [*without, *with_them])


def test_each_word_is_read_once(tokenizer, model, monkeypatch):
    steps = []
    read = ElmoBidirectionalLstm.read

    def watched(self, stack, words, batch_sizes, hidden, cell):
        steps.append((stack is self.forward_layers, len(words)))
        return read(self, stack, words, batch_sizes, hidden, cell)

    monkeypatch.setattr(ElmoBidirectionalLstm, "read", watched)
    (sample,) = model.sample(tokenizer, "The cat sat", max_words=20, top_k=1)
    prompt, after = steps[:2], steps[2:]
    assert prompt == [(True, 4), (False, 4)]  # <S> and the prompt, once by each direction
    assert after == [(True, 1)] * len(sample.words)
    assert len(sample.words) > 5


def test_the_best_words(tokenizer, model):
    (sample,) = model.sample(tokenizer, ["The"], max_words=4, top_k=1, seed=9)
    assert model.sample(tokenizer, ["The"], max_words=4, top_k=1, temperature=7.0, seed=1)[0].words == sample.words
    words = ["The"]
    for word in sample.words:
        scores = model.softmax.log_probabilities(_top(model, tokenizer, words))[0]
        scores[[tokenizer.bos_token_id, tokenizer.unk_token_id]] = -torch.inf
        assert word == tokenizer.convert_ids_to_tokens(int(scores.argmax()))
        words.append(word)
    assert sample.text == " ".join(words)


def test_mistakes(tokenizer, model):
    for options, message in (
        ({"temperature": 0}, "temperature=0 is not possible: it must be a positive number. For the best word"),
        ({"temperature": float("nan")}, "temperature=nan is not possible"),
        ({"top_k": 0}, "top_k=0 is not possible: it must be a whole number from 1 on"),
        ({"top_p": 0.0}, "top_p=0.0 is not possible: it must be above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p=1.1 is not possible"),
        ({"num_samples": 0}, "num_samples=0 is not possible"),
        ({"max_words": 0}, "max_words=0 is not possible"),
    ):
        with pytest.raises(ValueError, match=message):
            model.sample(tokenizer, **options)
    with pytest.raises(ValueError, match="they do not belong together"):
        model.sample(ElmoTokenizer())


def test_command(folder, tokenizer, model, tmp_path, capsys):
    report = tmp_path / "samples.json"
    options = ["--prompt", "The cat.", "--num-samples", "4", "--max-words", "6", "--top-p", "0.9", "--seed", "2"]
    assert main(["sample", str(folder), *options, "--json", str(report), "--quiet"]) == 0
    expected = model.sample(tokenizer, "The cat.", num_samples=4, max_words=6, top_p=0.9, seed=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [sample.text if sample.ended else f"{sample.text} ..." for sample in expected]
    content = json.loads(report.read_text(encoding="utf-8"))
    assert [sample["words"] for sample in content["samples"]] == [sample.words for sample in expected]
    assert main(["sample", str(folder), "--temperature", "0", "--quiet"]) == 1
    assert "temperature=0.0 is not possible" in capsys.readouterr().err
