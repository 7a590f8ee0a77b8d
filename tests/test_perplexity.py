"""Perplexity against losses that are computed word by word, and the command that prints it."""

import json
import math

import pytest
import torch
from tiny import SENTENCES, random_model, tiny_config, words_of
from torch.nn import functional

from hf_elmo import ElmoForPreTraining, ElmoModel, ElmoTokenizer
from hf_elmo.cli import main
from hf_elmo.perplexity import Perplexity, PerplexitySums, evaluate_perplexity, perplexity_sums
from hf_elmo.pretraining_data import PretrainingData

TEXT = [*SENTENCES, "The cat", "on the mat , too .", "Hi", "a b c d e f g"]
WORDS = [word for sentence in words_of(TEXT) for word in sentence]
KNOWN = sorted(set(WORDS))[::2]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The text, and the folder of a model with its tokenizer."""
    folder = tmp_path_factory.mktemp("perplexity")
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *KNOWN]))
    tokenizer = ElmoTokenizer(folder / "vocab.txt")
    config = tiny_config(vocab_size=len(tokenizer), dropout=0.5, softmax="sampled", num_sampled=4)
    random_model(config, model_class=ElmoForPreTraining).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder


@pytest.fixture(scope="module")
def tokenizer(files):
    return ElmoTokenizer.from_pretrained(files / "model")


@pytest.fixture
def model(files):
    return ElmoForPreTraining.from_pretrained(files / "model")


def perplexity_by_hand(model, tokenizer) -> tuple[float, float]:
    """Every sentence for itself, all words of the vocabulary scored."""
    losses = ([], [])
    for words in words_of(TEXT):
        batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            outputs = model(**batch, output_logits=True)
        ids = batch["input_ids"][0]
        losses[0].append(functional.cross_entropy(outputs.forward_logits[0, :-1].double(), ids[1:], reduction="none"))
        losses[1].append(functional.cross_entropy(outputs.backward_logits[0, 1:].double(), ids[:-1], reduction="none"))
    forward, backward = (torch.cat(side).mean().exp().item() for side in losses)
    return forward, backward


def test_sentences_are_what_they_are_one_by_one(files, tokenizer, model):
    forward, backward = perplexity_by_hand(model, tokenizer)
    assert abs(forward - backward) > 0.01
    for rows in (1, 2, 4, 100):
        result = evaluate_perplexity(model, tokenizer, files / "text.txt", mode="sentences", rows=rows)
        assert result.forward == pytest.approx(forward, rel=1e-6)
        assert result.backward == pytest.approx(backward, rel=1e-6)
        assert result.both == pytest.approx(math.sqrt(forward * backward), rel=1e-6)
        assert (result.words, result.predictions) == (len(WORDS), len(WORDS) + len(TEXT))
        unknown = sum(word not in KNOWN for word in WORDS)
        assert 0 < unknown < len(WORDS)
        assert result.unknown_share == unknown / len(WORDS)
        assert result.mode == "sentences"


def stream_of(tokenizer, path, rows: int, steps: int) -> list[torch.Tensor]:
    """All windows of the text in one."""
    batches = list(PretrainingData(path, tokenizer, rows=rows, steps=steps, shuffle=False, epochs=1, complete=True))
    return [torch.cat([batch.inputs[name] for batch in batches], dim=1) for name in batches[0].inputs]


@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (1, 20), (3, 4), (3, 7), (50, 2)])
def test_a_stream_is_one_long_pass(files, tokenizer, model, rows, steps):
    stream = stream_of(tokenizer, files / "text.txt", rows, steps)
    with torch.no_grad():
        whole = model.forward_stream(*stream)
    result = evaluate_perplexity(model, tokenizer, files / "text.txt", rows=rows, steps=steps)
    assert result.forward == pytest.approx(whole.forward_loss.exp().item(), rel=1e-6)
    assert result.backward == pytest.approx(whole.backward_loss.exp().item(), rel=1e-6)
    assert (result.words, result.predictions) == (len(WORDS), len(WORDS) + len(TEXT))
    assert result.mode == "stream"
    apart = evaluate_perplexity(model, tokenizer, files / "text.txt", mode="sentences")
    # If each sentence gets a row, there is nothing to carry.
    assert (abs(apart.forward - result.forward) < 1e-4) is (rows == 50)


def test_training_goes_on_as_if_nothing_had_been(files, tokenizer, model):
    """No dropout, no sample of the softmax, no random number, and training mode again."""
    expected = evaluate_perplexity(model, tokenizer, files / "text.txt")
    model.train()
    before = torch.get_rng_state()
    result = evaluate_perplexity(model, tokenizer, files / "text.txt")
    assert result.both == expected.both
    assert model.training
    assert model.dropout.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(ValueError, match="max_words is 0"):
        evaluate_perplexity(model, tokenizer, files / "text.txt", max_words=0)
    assert model.training


@pytest.mark.parametrize("mode", ["stream", "sentences"])
@pytest.mark.parametrize("world_size", [2, 5])
def test_processes_add_up(files, tokenizer, model, mode, world_size):
    settings = {"mode": mode, "shuffle": False, "epochs": 1, "complete": True}
    shares = [
        perplexity_sums(
            model,
            tokenizer,
            PretrainingData(
                files / "text.txt", tokenizer, rows=2, steps=4, rank=rank, world_size=world_size, **settings
            ),
        )
        for rank in range(world_size)
    ]
    total = PerplexitySums()
    for share in shares:
        total = total.plus(share)
    single = evaluate_perplexity(model, tokenizer, files / "text.txt", mode=mode, rows=2 * world_size, steps=4)
    result = Perplexity.of_sums(total, 1.0, mode)
    assert (result.forward, result.backward) == pytest.approx((single.forward, single.backward), rel=1e-6)
    assert (result.words, result.predictions, result.unknown_share) == (
        single.words,
        single.predictions,
        single.unknown_share,
    )


class TwoProcesses:
    """What `Accelerator` is to the second of two processes, whose sums are doubled instead of added."""

    process_index, num_processes, device = 1, 2, torch.device("cpu")

    def reduce(self, tensor, reduction):
        assert reduction == "sum"
        return 2 * tensor


def test_accelerator(files, tokenizer, model):
    result = evaluate_perplexity(
        model, tokenizer, files / "text.txt", mode="sentences", rows=1, accelerator=TwoProcesses()
    )
    own = words_of(TEXT)[1::2]
    assert result.words == 2 * sum(map(len, own))
    assert result.predictions == result.words + 2 * len(own)


def test_long_sentences_are_cut(files, tokenizer, model):
    whole = evaluate_perplexity(model, tokenizer, files / "text.txt", mode="sentences")
    cut = evaluate_perplexity(model, tokenizer, files / "text.txt", mode="sentences", max_sentence_words=3)
    assert cut.words == whole.words
    assert cut.predictions == cut.words + sum(-(-len(words) // 3) for words in words_of(TEXT))


def test_a_part_of_the_text(files, tokenizer, model):
    result = evaluate_perplexity(model, tokenizer, files / "text.txt", rows=2, steps=3, max_words=7)
    assert result.predictions == 12
    assert result.words < 12


def test_what_cannot_be_measured(files, tokenizer, model, tmp_path):
    other = random_model(tiny_config(vocab_size=9), model_class=ElmoForPreTraining)
    with pytest.raises(ValueError, match=rf"The tokenizer has {len(tokenizer)} words, but the model 9"):
        evaluate_perplexity(other, tokenizer, files / "text.txt")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match="There is no sentence in the corpus"):
        evaluate_perplexity(model, tokenizer, tmp_path / "empty.txt")
    with pytest.raises(ValueError, match="mode is 'words'"):
        evaluate_perplexity(model, tokenizer, files / "text.txt", mode="words")


def test_figures_beyond_all_bounds():
    result = Perplexity.of_sums(PerplexitySums(1e6, 0.0, 10, 9, 0), 0.0, "stream")
    assert (result.forward, result.backward, result.both) == (math.inf, 1.0, math.inf)


# --- The command -----------------------------------------------------------------------------------------------------


def run(capsys, *argv):
    code = main(["perplexity", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_command(files, tokenizer, model, capsys, tmp_path):
    arguments = [files / "model", files / "text.txt", "--mode", "sentences", "--device", "cpu", "--quiet"]
    code, out, err = run(capsys, *arguments, "--json", tmp_path / "result.json")
    assert (code, err) == (0, "")
    expected = evaluate_perplexity(model, tokenizer, files / "text.txt", mode="sentences")
    lines = out.splitlines()
    assert lines[0] == f"model: {files / 'model'}"
    assert lines[1] == (
        f"perplexity: forward {expected.forward:.4f}, backward {expected.backward:.4f}, both {expected.both:.4f} "
        "(geometric mean)"
    )
    assert lines[2] == (
        f"words: {expected.words}, of which {expected.unknown_share:.2%} are not in the vocabulary; "
        f"{expected.predictions} predictions in each direction"
    )
    assert lines[3] == "how: full softmax, every sentence by itself"
    assert lines[4].endswith(" words/s, on cpu")
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["both"] == pytest.approx(expected.both)
    assert (record["softmax"], record["rows"], record["steps"], record["mode"]) == ("full", 32, 20, "sentences")
    code, _, err = run(capsys, *arguments, "--json", tmp_path / "result.json")
    assert code == 1
    assert err == f"hf-elmo: error: {tmp_path / 'result.json'} exists. Choose another name, or give --overwrite.\n"
    assert run(capsys, *arguments, "--json", tmp_path / "result.json", "--overwrite")[0] == 0


def test_command_carries_the_state_unless_told_otherwise(files, tokenizer, model, capsys):
    code, out, _ = run(capsys, files / "model", files / "text.txt", "--rows", 2, "--steps", 1, "--quiet")
    expected = evaluate_perplexity(model, tokenizer, files / "text.txt", rows=2, steps=1)
    assert code == 0
    assert f"both {expected.both:.4f} " in out
    assert "how: full softmax, the state is carried from sentence to sentence\n" in out


@pytest.mark.parametrize("has_vocabulary", [True, False])
def test_an_encoder_has_no_perplexity(has_vocabulary, files, tokenizer, capsys, tmp_path):
    encoder = ElmoModel.from_pretrained(files / "model")
    if not has_vocabulary:  # as in a folder of converted weights: too few words for the softmax of the config
        encoder.config.vocab_size, encoder.config.softmax = 4, "sampled"
        tokenizer = ElmoTokenizer()
    encoder.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    code, out, err = run(capsys, tmp_path / "encoder", files / "text.txt", "--quiet")
    assert (code, out) == (1, "")
    assert err == (
        f"hf-elmo: error: {tmp_path / 'encoder'} holds an encoder without a softmax, as published weights do, so it "
        f"predicts no words. Train one: hf-elmo pretrain --init_from {tmp_path / 'encoder'} --text ... --heldout ... "
        "--output ..., with --vocab if the folder has no vocabulary\n"
    )


def test_mistakes_are_one_line_each(files, capsys, tmp_path, model, tokenizer):
    for arguments, message in (
        ([tmp_path, files / "text.txt"], "is no model folder: it has no config.json"),
        ([files / "model", tmp_path / "missing.txt"], "missing.txt does not exist"),
        ([files / "model", files / "text.txt", "--rows", "0"], "rows is 0; it must be 1 or more"),
        ([files / "model", files / "text.txt", "--max-words", "0"], "max_words is 0; it must be 1 or more"),
        ([files / "model", files / "text.txt", "--device", "abacus"], "--device abacus cannot be used here"),
    ):
        code, out, err = run(capsys, *arguments, "--quiet")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert message in err
    with torch.no_grad():
        model.softmax.bias[0] = math.nan
    model.save_pretrained(tmp_path / "damaged")
    tokenizer.save_pretrained(tmp_path / "damaged")
    code, out, err = run(capsys, tmp_path / "damaged", files / "text.txt", "--quiet")
    assert (code, out) == (1, "")
    assert "damaged is nan: its weights are damaged" in err
