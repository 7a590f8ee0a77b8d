"""`hf-elmo warm-state`, `hf-elmo compare-states` and `hf-elmo embed --state`."""

import json

import numpy as np
import pytest
import torch
from pretraining_corpus import sentences as corpus_sentences
from test_states import zero_twin
from tiny import random_model, tiny_config
from torch.testing import assert_close
from transformers import AutoModel

from hf_elmo import ElmoEmbedder, ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from hf_elmo.cli import main
from hf_elmo.embedding_files import read_safetensors
from hf_elmo.hub import verify_checksums
from hf_elmo.perplexity import evaluate_perplexity
from hf_elmo.scripts.compare_states import perplexity_of_state, places_of_words
from hf_elmo.warm_state import UNCOUNTED, cut_long, side_by_side, warm_state, with_warm_state

LINES = corpus_sentences(45)
CARD = "# model\n\nText.\n\n## Limits\n\n- Some.\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A language model, and text that it does not know by heart."""
    place = tmp_path_factory.mktemp("states")
    (place / "text.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    (place / "news.txt").write_text("".join(f"{line}\n" for line in corpus_sentences(12, seed=2)), encoding="utf-8")
    words = sorted({word for line in LINES for word in line.split()})[3:]
    (place / "vocab.txt").write_text("".join(f"{w}\n" for w in ["<S>", "</S>", "<UNK>", *words]), encoding="utf-8")
    tokenizer = ElmoTokenizer(place / "vocab.txt")
    config = tiny_config(vocab_size=len(tokenizer), dropout=0.5, cell_clip=3.0, projection_clip=3.0)
    random_model(config, model_class=ElmoForPreTraining).save_pretrained(place / "model")
    tokenizer.save_pretrained(place / "model")
    (place / "model" / "README.md").write_text(CARD)
    return place


@pytest.fixture(scope="module")
def tokenizer(files):
    return ElmoTokenizer.from_pretrained(files / "model")


@pytest.fixture
def model(files):
    return ElmoForPreTraining.from_pretrained(files / "model")


@pytest.fixture(scope="module")
def warm_folder(files):
    run(["warm-state", files / "model", files / "text.txt", "--output", files / "warm"])
    return files / "warm"


def run(argv) -> int:
    return main([*map(str, argv), "--quiet", "--device", "cpu"])


# --- The mean --------------------------------------------------------------------------------------------------------


def states_by_stream(model, tokenizer, sentences) -> list:
    """The state after each sentence, by the language model's own reading of a stream: one row, a sentence a window."""
    state, states = None, []
    for words in sentences:
        rows = tokenizer([words], is_split_into_words=True, return_tensors="pt")["character_ids"]
        forward, backward = rows[:, :-1], rows.flip(1)[:, :-1]  # <S> w1 .. wn and </S> wn .. w1
        labels = torch.zeros(forward.shape[:2], dtype=torch.long)
        with torch.no_grad():
            state = model.forward_stream(forward, labels, backward, labels, initial_state=state).state
        states.append(state)
    return states


def test_state_is_the_mean_of_those_that_a_stream_leaves(model, tokenizer):
    sentences = [line.split() for line in LINES]
    found = warm_state(model.elmo.train(), tokenizer, sentences, show_progress=False)
    assert model.elmo.training
    assert model.elmo.character_encoder.cache is None
    parts = sentences[:23], sentences[23:]  # two rows
    states = [state for part in parts for state in states_by_stream(model.eval(), tokenizer, part)[UNCOUNTED:]]
    assert found.report.counted == len(states) == 45 - 2 * UNCOUNTED
    assert (found.report.rows, found.report.sentences) == (2, 45)
    assert found.report.words == sum(map(len, sentences))
    hidden, cell = (torch.stack([state[part].squeeze(1) for state in states]).double() for part in range(2))
    assert_close(found.hidden, hidden.mean(dim=0), atol=1e-6, rtol=0)
    assert_close(found.cell, cell.mean(dim=0), atol=1e-6, rtol=0)
    spread = hidden.std(dim=0, correction=0).mean(dim=1).tolist()
    assert found.report.spread == pytest.approx(spread, abs=1e-5)


def test_state_does_not_depend_on_how_the_model_starts_and_is_the_same_again(model, tokenizer):
    sentences = [line.split() for line in LINES]
    first = warm_state(model.elmo, tokenizer, sentences, show_progress=False)
    warm = with_warm_state(model, first)
    again = warm_state(warm.elmo, tokenizer, sentences, show_progress=False)
    assert torch.equal(first.hidden, again.hidden)
    assert torch.equal(first.cell, again.cell)
    assert "mean of the states after 37 sentences" in str(first.report)
    fewer = warm_state(model.elmo, tokenizer, iter([[], *sentences, ["never", "read"]]), max_sentences=45)
    assert torch.equal(fewer.hidden, first.hidden)


def test_rows_read_parts_of_the_text_side_by_side():
    sentences = [[str(number)] for number in range(7)]
    batches = [[words[0] for words in batch] for batch in side_by_side(sentences, 3)]
    assert batches == [["0", "3", "5"], ["1", "4", "6"], ["2"]]
    assert [len(words) for words in cut_long([["w"] * 900, [], ["w"]])] == [400, 400, 100, 1]


def test_texts_that_are_too_short_are_refused(model, tokenizer):
    with pytest.raises(ValueError, match="The text has 4 sentences: a mean state needs more than 4"):
        warm_state(model.elmo, tokenizer, [["a"]] * 4)
    with pytest.raises(ValueError, match="max_sentences is 0; it must be 1 or more"):
        warm_state(model.elmo, tokenizer, [["a"]] * 4, max_sentences=0)


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
def test_model_of_any_class_gets_it_and_shares_its_weights(files, model, tokenizer, model_class):
    state = warm_state(model.elmo, tokenizer, [line.split() for line in LINES], show_progress=False)
    cold = model_class.from_pretrained(files / "model", dtype=torch.float16)
    warm = with_warm_state(cold, state)
    encoder = getattr(warm, "elmo", warm)
    assert type(warm) is model_class
    assert not warm.training
    assert torch.equal(encoder.warm_hidden, state.hidden.half())
    assert torch.equal(encoder.warm_cell, state.cell.half())
    shared = dict(cold.named_parameters())
    for name, parameter in warm.named_parameters():
        assert parameter.data_ptr() == shared[name].data_ptr()
    assert cold.config.initial_state == "zero"


# --- The folder ------------------------------------------------------------------------------------------------------


def test_folder_has_the_same_weights_and_the_state(files, warm_folder, model, tokenizer):
    verify_checksums(warm_folder)
    warm = ElmoForPreTraining.from_pretrained(warm_folder)
    expected = warm_state(model.elmo, tokenizer, [line.split() for line in LINES], show_progress=False)
    assert_close(warm.elmo.warm_hidden, expected.hidden.float(), atol=1e-7, rtol=0)
    assert_close(warm.elmo.warm_cell, expected.cell.float(), atol=1e-7, rtol=0)
    weights = warm.state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(weights.pop(name), weight)
    assert sorted(weights) == ["elmo.warm_cell", "elmo.warm_hidden"]
    assert (warm_folder / "tokenizer.json").read_bytes() == (files / "model" / "tokenizer.json").read_bytes()
    batch = ElmoTokenizer.from_pretrained(warm_folder)("the cat sees it .", return_tensors="pt")
    with torch.no_grad():
        vectors = AutoModel.from_pretrained(warm_folder)(**batch).last_hidden_state
        assert (vectors - zero_twin(warm.elmo)(**batch).last_hidden_state).abs().amax() > 1e-3


def test_card_says_what_the_state_was_made_of(files, warm_folder):
    card = (warm_folder / "README.md").read_text()
    assert card.startswith("# model\n\nText.\n\n## Initial state\n\nEvery sentence starts from a stored state")
    words = sum(len(line.split()) for line in LINES)
    assert f"after 37 sentences of `text.txt` (45 sentences with {words} words were read" in card
    assert card.endswith("\n\n## Limits\n\n- Some.\n")
    arguments = ["warm-state", warm_folder, files / "text.txt", "--output", files / "again", "--max-sentences", 20]
    assert run(arguments) == 0
    again = (files / "again" / "README.md").read_text()
    assert again.count("## Initial state") == 1
    assert "after 16 sentences" in again


def test_folder_of_half_precision_stays_so(files, tmp_path):
    ElmoModel.from_pretrained(files / "model", dtype=torch.float16).save_pretrained(tmp_path / "half")
    ElmoTokenizer.from_pretrained(files / "model").save_pretrained(tmp_path / "half")
    assert run(["warm-state", tmp_path / "half", files / "text.txt", "--output", tmp_path / "warm"]) == 0
    model = AutoModel.from_pretrained(tmp_path / "warm", dtype="auto")
    assert model.warm_cell.dtype == model.dtype == torch.float16
    assert (tmp_path / "warm" / "README.md").read_text().count("## Initial state") == 1


def test_mistakes_of_warm_state_are_one_line_each(files, warm_folder, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("\n")
    text = files / "text.txt"
    for arguments, message in (
        ([files / "model", text, "--output", warm_folder], "exists and is not empty"),
        ([files / "model", text, "--output", tmp_path / "x", "--max-sentences", "0"], "--max-sentences 0 is not"),
        ([files / "model", tmp_path / "empty.txt", "--output", tmp_path / "x"], "There is no sentence in the corpus"),
        ([files / "model", text, "--output", tmp_path / "x", "--max-sentences", "3"], "The text has 3 sentences"),
        ([tmp_path, text, "--output", tmp_path / "x"], "is no model folder"),
    ):
        assert run(["warm-state", *arguments]) == 1
        error = capsys.readouterr().err
        assert error.startswith("hf-elmo: error: ")
        assert message in error
        assert error.count("\n") == 1
        assert not (tmp_path / "x").exists()


# --- Vectors to files ------------------------------------------------------------------------------------------------


def vectors_of(folder) -> list[np.ndarray]:
    files = [shard["file"] for shard in json.loads((folder / "manifest.json").read_text())["shards"]]
    return [sentence.vectors for name in files for sentence in read_safetensors(folder / name)]


def test_embed_carries_the_state_over_shards(files, tmp_path):
    options = ["--output", tmp_path / "v", "--format", "safetensors", "--shard-words", 40, "--split-words"]
    arguments = ["embed", files / "text.txt", "--model", files / "model", "--state", "carry", "--carry-batch", 2]
    assert run([*arguments, *options]) == 0
    embedder = ElmoEmbedder.from_pretrained(files / "model", device="cpu", state="carry", carry_batch=2)
    expected = embedder.encode([line.split() for line in LINES])
    found = vectors_of(tmp_path / "v")
    assert len(list((tmp_path / "v").glob("part-*"))) > 3
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_embed_starts_as_it_is_told(files, warm_folder, tmp_path):
    vectors = {}
    for name, options in {
        "default": [],
        "zero": ["--state", "zero"],
        "fast": ["--no-batch-invariant", "--shard-words", "30"],
        "warm": ["--state", "warm", "--shard-words", "30"],
    }.items():
        output = ["--output", tmp_path / name, "--format", "safetensors", "--split-words"]
        assert run(["embed", files / "text.txt", "--model", warm_folder, *output, *options]) == 0
        vectors[name] = vectors_of(tmp_path / name)
    for number, line in enumerate(LINES):
        assert np.array_equal(vectors["default"][number], vectors["warm"][number])
        np.testing.assert_allclose(vectors["default"][number], vectors["fast"][number], atol=1e-6)
        assert not np.allclose(vectors["default"][number], vectors["zero"][number], atol=1e-3), line


def test_mistakes_of_embed_are_one_line_each(files, tmp_path, capsys):
    for options, message in (
        (["--state", "carry", "--resume"], "--resume does not go with --state carry"),
        (["--state", "warm"], "state='warm' needs a model with a stored state"),
        (["--carry-batch", "2"], "carry_batch=2 is for state='carry'"),
        (["--state", "carry", "--carry-batch", "0"], "carry_batch=0 is not possible"),
        (["--state", "carry", "--batch-invariant"], "batch_invariant=True is not possible with state='carry'"),
    ):
        output = ["--output", tmp_path / "v.npz"]
        assert run(["embed", files / "text.txt", "--model", files / "model", *output, *options]) == 1
        error = capsys.readouterr().err
        assert error.startswith("hf-elmo: error: ")
        assert message in error
        assert error.count("\n") == 1


# --- The comparison --------------------------------------------------------------------------------------------------


def conllu(lines: list[str]) -> str:
    """Words with a tag that depends on the word before."""
    text = ""
    for line in lines:
        before = ""
        for number, word in enumerate(line.split(), start=1):
            tag = "DET" if word in ("the", "a", "an") else "NOUN" if before in ("the", "a", "an") else "X"
            text += f"{number}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n"
            before = word
        text += "\n"
    return text


def test_perplexity_of_each_state(files, warm_folder, tokenizer):
    model = ElmoForPreTraining.from_pretrained(warm_folder)
    sentences = [line.split() for line in LINES]
    found = {
        state: perplexity_of_state(model, tokenizer, sentences, state, rows=4, show_progress=False)
        for state in ("zero", "warm", "carry")
    }
    twin = zero_twin(model, ElmoForPreTraining)
    for state, expected in (("zero", twin), ("warm", model)):
        figures = evaluate_perplexity(expected, tokenizer, files / "text.txt", mode="sentences", show_progress=False)
        for name in ("forward", "backward", "both", "words", "unknown_share"):
            assert found[state][name] == pytest.approx(getattr(figures, name), rel=1e-5)

    losses, state, count = torch.zeros(2, dtype=torch.float64), None, 0
    for words in sentences:
        inputs = tokenizer([words], is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            outputs = twin(**inputs, labels=inputs["input_ids"], initial_state=state, output_state=True)
        state = outputs.state
        losses += (len(words) + 1) * torch.stack([outputs.forward_loss, outputs.backward_loss])
        count += len(words) + 1
    one_row = perplexity_of_state(model, tokenizer, sentences, "carry", rows=1, show_progress=False)
    assert [one_row["forward"], one_row["backward"]] == pytest.approx((losses / count).exp().tolist(), rel=1e-5)
    assert len({found[state]["both"] for state in found}) == 3


def test_places_of_words():
    places = places_of_words([["w"] * 12, ["w"]])
    assert {name: np.flatnonzero(chosen).tolist() for name, chosen in places.items()} == {
        "1": [0, 12],
        "2": [1],
        "3": [2],
        "4-6": [3, 4, 5],
        "7-10": [6, 7, 8, 9],
        "over 10": [10, 11],
        "last": [11, 12],
    }


def test_comparison_in_one_command(files, tmp_path, capsys):
    (tmp_path / "train.conllu").write_text(conllu(LINES), encoding="utf-8")
    (tmp_path / "dev.conllu").write_text(conllu(corpus_sentences(20, seed=3)), encoding="utf-8")
    arguments = ["compare-states", files / "model", files / "text.txt", files / "news.txt"]
    arguments += ["--warm-text", files / "text.txt", "--train", tmp_path / "train.conllu"]
    arguments += ["--dev", tmp_path / "dev.conllu", "--train-sentences", 40, "--layers", 0, 2, "--epochs", 4]
    arguments += ["--json", tmp_path / "states.json", "--plot", tmp_path / "states.png"]
    assert run(arguments) == 0
    out = capsys.readouterr().out
    results = json.loads((tmp_path / "states.json").read_text())
    assert results["command"].startswith("hf-elmo")
    assert results["warm_state"]["text"] == ["text.txt"]
    assert results["warm_state"]["counted"] == 37
    assert list(results["perplexity"]) == ["text.txt", "news.txt"]
    both = [results["perplexity"]["news.txt"][state]["both"] for state in ("zero", "warm", "carry")]
    assert len(set(both)) == 3
    assert "".join(f"{value:12.2f}" for value in both) in out
    probe = results["probe"]
    assert probe["train"]["sentences"] == 40
    assert probe["dev"]["sentences"] == 20
    assert probe["dev"]["words"]["1"] == probe["dev"]["words"]["last"] == 20
    assert list(probe["accuracy"]) == ["0", "2"]
    of_words = probe["accuracy"]["0"]
    assert of_words["zero"] == of_words["warm"] == of_words["carry"]  # words without context do not know the state
    scores = probe["accuracy"]["2"]["warm"]
    assert 0.4 < scores["all"] < 1
    assert set(scores) == {"all", *places_of_words([["w"]])}
    assert probe["accuracy"]["2"]["zero"] != scores
    assert (tmp_path / "states.png").read_bytes().startswith(b"\x89PNG")


def test_comparison_knows_the_model_of_the_package(files, tmp_path, capsys):
    arguments = ["compare-states", "elmo-mini", files / "text.txt", "--warm-text", files / "text.txt", "--quiet"]
    assert run([*arguments, "--json", tmp_path / "states.json"]) == 0
    assert capsys.readouterr().out.startswith("model: elmo-mini\n")
    assert json.loads((tmp_path / "states.json").read_text())["model"] == "elmo-mini"


def test_mistakes_of_the_comparison_are_one_line_each(files, warm_folder, tmp_path, capsys):
    text = files / "text.txt"
    (tmp_path / "there.json").write_text("mine")
    for arguments, message in (
        ([files / "model", text], "has no warm state to compare with: give text to make one from"),
        ([warm_folder, text, "--train", text], "--train and --dev go together"),
        ([warm_folder, text, "--epochs", "0"], "--epochs 0 is not possible"),
        ([warm_folder, text, "--layers", "7"], "--layers 7 is not possible: the model has the layers 0 to 2"),
        ([warm_folder, text, "--json", tmp_path / "there.json"], "there.json"),
    ):
        assert run(["compare-states", *arguments]) == 1
        error = capsys.readouterr().err
        assert error.startswith("hf-elmo: error: ")
        assert message in error
        assert error.count("\n") == 1
