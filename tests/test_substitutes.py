"""The best words for a place: by the logits around it, as a method, a pipeline and a command."""

import json

import pytest
import torch
from language_models import KINDS, KNOWN, TEXT, WORDS, log_probabilities, saved_model, small_model
from test_auto import run_without_the_package
from transformers import pipeline

from hf_elmo import ElmoForPreTraining, ElmoModel, ElmoSubstitutesPipeline, ElmoTokenizer, substitutes
from hf_elmo.cli import main

SENTENCE = WORDS[0]  # The cat sat on the mat .


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved_model(tmp_path_factory.mktemp("substitutes"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return ElmoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder):
    return ElmoForPreTraining.from_pretrained(folder)


def best_by_hand(model, tokenizer, words: list[str], position: int) -> dict[str, list[tuple[str, float]]]:
    """All words of the vocabulary with their scores, best first."""
    forward, backward = log_probabilities(model, tokenizer, words)
    scores = {"forward": forward[position - 1], "backward": backward[position + 1]}
    scores["combined"] = (scores["forward"] + scores["backward"]) / 2
    ids = {word: tokenizer.convert_tokens_to_ids(word) for word in KNOWN}
    return {
        direction: sorted(((word, values[ids[word]].item()) for word in KNOWN), key=lambda item: -item[1])
        for direction, values in scores.items()
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reads", ["characters", "words"])
def test_best_words_are_those_of_the_logits(tokenizer, monkeypatch, kind, reads):
    model = small_model(tokenizer, **KINDS[kind], word_input=reads, word_embedding_size=5 if reads == "words" else 0)
    for scores_at_a_time, piece in ((2**22, 4096), (1, 4)):
        monkeypatch.setattr(substitutes, "SCORES_AT_A_TIME", scores_at_a_time)
        monkeypatch.setattr(substitutes, "BATCH_TOKENS", piece)
        everywhere = model.substitutes(SENTENCE, tokenizer, top_k=5)
        assert [place.position for place in everywhere] == list(range(1, len(SENTENCE) + 1))
        for place in everywhere:
            expected = best_by_hand(model, tokenizer, SENTENCE, place.position)
            for direction, best in expected.items():
                found = getattr(place, direction)
                assert [substitute.word for substitute in found] == [word for word, _ in best[:5]]
                assert [getattr(substitute, direction) for substitute in found] == pytest.approx(
                    [score for _, score in best[:5]], abs=1e-6
                )
                if place.known:
                    assert [word for word, _ in best].index(place.word) + 1 == place.ranks[direction]
                    own = dict(best)[place.word]
                    assert getattr(place.scores, direction) == pytest.approx(own, abs=1e-6)
    assert {place.known for place in everywhere} == {True, False}
    unknown = next(place for place in everywhere if not place.known)
    assert (unknown.ranks, unknown.scores.word) == (None, "<UNK>")


def test_scores_agree_with_those_of_the_text(tokenizer, model):
    score = model.score([SENTENCE], tokenizer)[0]
    for place in model.substitutes(SENTENCE, tokenizer):
        assert place.scores.forward == pytest.approx(score.forward[place.position - 1], abs=1e-6)
        assert place.scores.backward == pytest.approx(score.backward[place.position - 1], abs=1e-6)


def test_the_word_itself_is_not_read(tokenizer, model):
    one, other = (model.substitutes(["The", word, "sat"], tokenizer, 2, top_k=3).combined for word in ("cat", "___"))
    assert one == other
    elsewhere = model.substitutes(["The", "cat", "sits"], tokenizer, 2, top_k=3)
    first = model.substitutes(["The", "cat", "sat"], tokenizer, 2, top_k=3)
    assert elsewhere.scores.forward == pytest.approx(first.scores.forward, rel=1e-6)  # another word is spelled with it
    assert elsewhere.scores.backward != pytest.approx(first.scores.backward, rel=1e-6)


def test_places(tokenizer, model):
    one = model.substitutes(TEXT[0], tokenizer, "mat")
    assert (one.position, one.word) == (6, "mat")
    assert len(one.forward) == 10
    assert model.substitutes(TEXT[0], tokenizer, ["mat", 1])[1].word == "The"
    assert model.substitutes("", tokenizer) == []
    assert json.loads(json.dumps(one.to_dict()))["combined"][0]["word"] == one.combined[0].word


def test_mistakes(tokenizer, model):
    for wrong in (0, 8, -1, True, 1.5):
        with pytest.raises(ValueError, match=f"word={wrong} is not possible: the text has 7 words.* from 1 to 7"):
            model.substitutes(SENTENCE, tokenizer, [wrong])
    with pytest.raises(ValueError, match=r"The text has no word 'dog'\. Its words are: 'The', 'cat'"):
        model.substitutes(SENTENCE, tokenizer, "dog")
    with pytest.raises(ValueError, match="The word 'a' is in the text 2 times: give one of the positions 1, 3"):
        model.substitutes(["a", "b", "a"], tokenizer, "a")
    with pytest.raises(ValueError, match=f"top_k=1000 is not possible: the vocabulary has {len(KNOWN)} words"):
        model.substitutes(SENTENCE, tokenizer, 1, top_k=1000)
    with pytest.raises(ValueError, match="top_k=0 is not possible"):
        model.substitutes(SENTENCE, tokenizer, 1, top_k=0)


def test_the_model_is_as_before(tokenizer):
    model = small_model(tokenizer).train()
    expected = model.substitutes(SENTENCE, tokenizer, 2)
    assert model.training
    assert model.substitutes(SENTENCE, tokenizer, 2) == expected


# --- The pipeline ----------------------------------------------------------------------------------------------------


def test_pipeline(folder, tokenizer, model):
    by_name = pipeline("elmo-substitutes", model=str(folder))
    assert isinstance(by_name, ElmoSubstitutesPipeline)
    assert isinstance(by_name.model, ElmoForPreTraining)
    expected = model.substitutes(TEXT[0], tokenizer, "mat", top_k=3).to_dict()
    assert by_name(TEXT[0], word="mat", top_k=3) == expected
    by_object = pipeline("elmo-substitutes", model=model, tokenizer=tokenizer, top_k=3)
    assert by_object(TEXT[0], word="mat") == expected
    assert by_object({"text": SENTENCE, "word": 6}) == expected
    several = by_object([TEXT[0], {"text": "Hi", "top_k": 1}], word=1)
    assert [(place["word"], len(place["forward"])) for place in several] == [("The", 3), ("Hi", 1)]
    assert [place["word"] for place in by_object(TEXT[0])] == SENTENCE
    assert list(by_object((text for text in ["Hi", "Hi"]), word=1)) == [by_object("Hi", word=1)] * 2


def test_mistakes_of_the_pipeline(folder, tokenizer, model):
    find = pipeline("elmo-substitutes", model=model, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="'words' is not known to this pipeline: give 'word', 'top_k'"):
        find("Hi", words=1)
    with pytest.raises(ValueError, match="'place' is not known to this pipeline: give 'text', 'word'"):
        find({"text": "Hi", "place": 1})
    with pytest.raises(ValueError, match=r"An input is the dictionary \{'word': 1\}, but 'text' is missing"):
        find({"word": 1})
    with pytest.raises(ValueError, match="batch_size=2 is not possible: texts are read one at a time"):
        find(["Hi", "Hi"], batch_size=2)
    with pytest.raises(ValueError, match="The model is a ElmoModel, but substitutes need the language model"):
        ElmoSubstitutesPipeline(model=ElmoModel.from_pretrained(folder), tokenizer=tokenizer)
    with pytest.raises(ValueError, match="tokenizer is missing"):
        ElmoSubstitutesPipeline(model=model)


@pytest.mark.slow
def test_a_saved_pipeline_works_without_the_package(folder, tokenizer, model, tmp_path):
    saved = tmp_path / "saved"
    pipeline("elmo-substitutes", model=str(folder)).save_pretrained(saved)
    code = """
find = pipeline("elmo-substitutes", model=folder, trust_remote_code=True)
assert type(find).__module__.startswith("transformers_modules."), type(find)
print(json.dumps(find(sentences[0], word="mat", top_k=3)))
"""
    found = json.loads(run_without_the_package(code, tmp_path, saved))
    expected = model.substitutes(TEXT[0], tokenizer, "mat", top_k=3)
    assert [best["word"] for best in found["combined"]] == [best.word for best in expected.combined]


# --- The command -----------------------------------------------------------------------------------------------------


def test_command(folder, tokenizer, model, tmp_path, capsys):
    report = tmp_path / "found.json"
    arguments = ["substitutes", str(folder), TEXT[0], "--word", "mat", "2", "--top-k", "3", "--quiet"]
    assert main([*arguments, "--json", str(report)]) == 0
    out = capsys.readouterr().out
    expected = model.substitutes(TEXT[0], tokenizer, ["mat", 2], top_k=3)
    content = json.loads(report.read_text(encoding="utf-8"))
    assert content["places"] == [place.to_dict() for place in expected]
    mat, cat = out.strip().split("\n\n")
    assert mat.startswith(f"mat (position 6): rank forward {expected[0].ranks['forward']} (")
    assert cat.splitlines()[0] == "cat (position 2): not in the vocabulary"
    assert cat.splitlines()[1].split() == ["forward", "p", "backward", "p", "combined", "mean", "log", "p"]
    rank, word, probability, *_, combined, mean = mat.splitlines()[2].split()
    assert (rank, word, combined) == ("1", expected[0].forward[0].word, expected[0].combined[0].word)
    assert probability == f"{torch.tensor(expected[0].forward[0].forward).exp().item():.2%}"
    assert mean == f"{expected[0].combined[0].combined:.3f}"
    assert main(["substitutes", str(folder), TEXT[0], "--quiet"]) == 0
    assert capsys.readouterr().out.count("position") == len(SENTENCE)
    assert main([*arguments, "--json", str(report)]) == 1
    assert f"{report} exists" in capsys.readouterr().err


def test_mistakes_of_the_command(folder, capsys):
    for arguments, message in (
        (["", "--word", "1"], "word=1 is not possible: the text has 0 words"),
        ([" "], "There are no words in the text"),
        ([TEXT[0], "--word", "dog"], "The text has no word 'dog'"),
    ):
        assert main(["substitutes", str(folder), *arguments, "--quiet"]) == 1
        assert message in capsys.readouterr().err
