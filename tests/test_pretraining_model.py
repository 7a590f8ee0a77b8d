"""The language model: both directions, one softmax, sentences and streams."""

import pytest
import torch
from tiny import SENTENCES, encode, random_model, tiny_config, words_of
from torch.nn import functional
from torch.testing import assert_close
from transformers import AutoModelForPreTraining

from hf_elmo import ElmoForPreTraining, ElmoModel, ElmoState, ElmoTokenizer, batch_to_ids

WORDS = sorted({word for sentence in words_of(SENTENCES) for word in sentence})


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *WORDS[::2]]), encoding="utf-8")
    return ElmoTokenizer(path)


def language_model(tokenizer, **overrides) -> ElmoForPreTraining:
    config = tiny_config(vocab_size=len(tokenizer), dropout=0.0, **overrides)
    return random_model(config, model_class=ElmoForPreTraining)


def batch_of(tokenizer, sentences=SENTENCES, **options) -> dict[str, torch.Tensor]:
    batch = tokenizer(words_of(sentences), is_split_into_words=True, padding=True, return_tensors="pt", **options)
    return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


def losses_by_hand(model, tokenizer, sentence: str) -> tuple[list, list]:
    """The loss of each word from the left and from the right, one sentence at a time."""
    batch = tokenizer(sentence.split(), is_split_into_words=True, return_tensors="pt")
    top = model.elmo(**batch, output_hidden_states=True).hidden_states[-1][0]  # (T, 2P)
    ids = batch["input_ids"][0]
    width = model.config.projection_size
    scores = [half @ model.softmax.weight.T + model.softmax.bias for half in (top[:, :width], top[:, width:])]
    forward = [functional.cross_entropy(scores[0][t], ids[t + 1]) for t in range(len(ids) - 1)]
    backward = [functional.cross_entropy(scores[1][t], ids[t - 1]) for t in range(1, len(ids))]
    return forward, backward


@pytest.mark.parametrize("side", ["right", "left"])
def test_losses_of_sentences(tokenizer, side):
    model = language_model(tokenizer)
    outputs = model(**batch_of(tokenizer, padding_side=side))
    by_hand = [losses_by_hand(model, tokenizer, sentence) for sentence in SENTENCES]
    forward = torch.stack([loss for losses, _ in by_hand for loss in losses]).mean()
    backward = torch.stack([loss for _, losses in by_hand for loss in losses]).mean()
    assert_close(outputs.forward_loss, forward)
    assert_close(outputs.backward_loss, backward)
    assert_close(outputs.loss, (forward + backward) / 2)


def test_words_without_a_label_are_not_counted(tokenizer):
    model = language_model(tokenizer)
    batch = batch_of(tokenizer, ["The cat sat"])
    batch["labels"][0, 2] = -100
    outputs = model(**batch)
    forward, backward = losses_by_hand(model, tokenizer, "The cat sat")
    assert_close(outputs.forward_loss, (forward[0] + forward[2] + forward[3]) / 3)
    assert_close(outputs.backward_loss, (backward[0] + backward[1] + backward[3]) / 3)
    batch["labels"].fill_(-100)
    outputs = model(**batch)
    assert outputs.loss == 0
    outputs.loss.backward()


def test_logits_and_state_on_request(tokenizer):
    model = language_model(tokenizer)
    batch = batch_of(tokenizer)
    outputs = model(**batch, output_logits=True, output_state=True)
    assert outputs.forward_logits.shape == (*batch["input_ids"].shape, len(tokenizer) - 1)
    first = functional.cross_entropy(outputs.forward_logits[1, 0], batch["input_ids"][1, 1])
    assert_close(first, losses_by_hand(model, tokenizer, SENTENCES[1])[0][0])
    last = functional.cross_entropy(outputs.backward_logits[1, 2], batch["input_ids"][1, 1])
    assert_close(last, losses_by_hand(model, tokenizer, SENTENCES[1])[1][-1])
    assert isinstance(outputs.state, ElmoState)
    assert list(model(**{k: v for k, v in batch.items() if k != "labels"}).keys()) == []


def windows(tokenizer, sentences: list[str], steps: int):
    """The stream of one row: both directions' characters and labels, cut into windows."""
    forward, backward = ([], []), ([], [])
    for words in words_of(sentences):
        forward[0].extend(["<S>", *words])
        forward[1].extend([*words, "</S>"])
        backward[0].extend(["</S>", *reversed(words)])
        backward[1].extend([*reversed(words), "<S>"])
    for start in range(0, len(forward[0]) - steps + 1, steps):
        cut = slice(start, start + steps)
        yield [
            part
            for inputs, targets in (forward, backward)
            for part in (
                batch_to_ids([inputs[cut]]),
                torch.tensor([tokenizer.convert_tokens_to_ids(targets[cut])]),
            )
        ]


def stack(rows):
    """Windows of several rows side by side."""
    return [torch.cat(parts) for parts in zip(*rows, strict=True)]


def test_a_stream_of_one_sentence_is_the_sentence(tokenizer):
    """Boundaries that are not read there do not matter here."""
    model = language_model(tokenizer)
    sentence = SENTENCES[2]
    (window,) = windows(tokenizer, [sentence], len(sentence.split()) + 1)
    streamed = model.forward_stream(*window)
    whole = model(**batch_of(tokenizer, [sentence]))
    assert_close(streamed.forward_loss, whole.forward_loss)
    assert_close(streamed.backward_loss, whole.backward_loss)


def test_a_stream_in_windows_is_the_stream_in_one(tokenizer):
    model = language_model(tokenizer)
    rows = [SENTENCES[:3], [SENTENCES[2], SENTENCES[0], SENTENCES[1]]]
    steps = 4
    state, losses = None, []
    per_row = [list(windows(tokenizer, sentences, steps)) for sentences in rows]
    count = min(map(len, per_row))
    for number in range(count):
        outputs = model.forward_stream(*stack([row[number] for row in per_row]), initial_state=state)
        state = outputs.state
        assert not state.hidden.requires_grad
        losses.append((outputs.forward_loss, outputs.backward_loss))
    whole = stack([next(windows(tokenizer, sentences, steps * count)) for sentences in rows])
    outputs = model.forward_stream(*whole)
    assert_close(torch.stack([f for f, _ in losses]).mean(), outputs.forward_loss)
    assert_close(torch.stack([b for _, b in losses]).mean(), outputs.backward_loss)
    assert_close(state.hidden, outputs.state.hidden)
    assert_close(state.cell, outputs.state.cell)


def test_missing_labels_of_a_stream_are_not_counted(tokenizer):
    model = language_model(tokenizer)
    (window,) = windows(tokenizer, SENTENCES[:1], 8)
    forward, backward = losses_by_hand(model, tokenizer, SENTENCES[0])
    forward_ids, forward_labels, backward_ids, backward_labels = window
    forward_labels[0, [0, 3]] = -100
    backward_labels[0, 7] = -100  # the begin of the sentence, which comes last
    expected = model.forward_stream(*next(windows(tokenizer, SENTENCES[:1], 8)))
    outputs = model.forward_stream(*window)
    assert_close(outputs.forward_loss, torch.stack([forward[k] for k in (1, 2, 4, 5, 6, 7)]).mean())
    assert_close(outputs.backward_loss, torch.stack(backward[1:]).mean())
    assert_close(outputs.loss, (outputs.forward_loss + outputs.backward_loss) / 2)
    assert_close(outputs.state, expected.state)  # what is read does not depend on what is predicted
    nothing = torch.full_like(forward_labels, -100)
    outputs = model.forward_stream(forward_ids, nothing, backward_ids, nothing)
    assert outputs.loss == 0
    outputs.loss.backward()


def test_losses_are_divided_by_the_predictions_of_all_processes(tokenizer):
    """So the losses and gradients of shares of a batch add up to those of the batch."""
    model = language_model(tokenizer)
    batch = batch_of(tokenizer)
    (window,) = windows(tokenizer, SENTENCES[:1], 8)
    stacked = stack([window] * len(SENTENCES))
    calls = (
        (lambda rows, **options: model(**{name: value[rows] for name, value in batch.items()}, **options)),
        (lambda rows, **options: model.forward_stream(*(part[rows] for part in stacked), **options)),
    )
    for call, total in zip(calls, ((batch["labels"][:, 1:] != -100).sum().item(), 8 * len(SENTENCES)), strict=True):
        whole = call(slice(None))
        shares = [call(rows, num_predictions=total) for rows in (slice(1), slice(1, 3), slice(3, None))]
        for name in ("loss", "forward_loss", "backward_loss"):
            assert_close(sum(share[name] for share in shares), whole[name])


def test_a_sampled_softmax_draws_from_the_generator_that_is_given(tokenizer):
    model = language_model(tokenizer, softmax="sampled", num_sampled=4).train()
    batch = batch_of(tokenizer)
    (window,) = windows(tokenizer, SENTENCES[:1], 8)
    for call in (
        lambda **options: model(**batch, **options),
        lambda **options: model.forward_stream(*window, **options),
    ):
        before = torch.get_rng_state()
        losses = [call(generator=torch.Generator().manual_seed(seed)).loss for seed in (1, 1, 2)]
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(losses[0], losses[1])
        assert not torch.equal(losses[0], losses[2])
        assert not torch.equal(call().loss, call().loss)
        generator = torch.Generator().manual_seed(1)  # goes on from call to call
        assert torch.equal(call(generator=generator).loss, losses[0])
        assert not torch.equal(call(generator=generator).loss, losses[0])


def test_dropout_is_on_every_input_and_before_the_softmax(tokenizer):
    torch.manual_seed(1)
    batch = batch_of(tokenizer)
    model = language_model(tokenizer)
    model.train()
    assert torch.equal(model(**batch).loss, model(**batch).loss)
    for module in (model.dropout, model.elmo.bilstm.dropout):
        module.p = 0.5
        assert not torch.equal(model(**batch).loss, model(**batch).loss)
        module.p = 0.0
    assert ElmoForPreTraining(tiny_config(dropout=0.3)).dropout.p == 0.3


def test_everything_but_the_mix_learns(tokenizer):
    model = language_model(tokenizer, num_highway_layers=1).train()
    model(**batch_of(tokenizer)).loss.backward()
    for name, parameter in model.named_parameters():
        if ".mixes." in name:
            assert not parameter.requires_grad
        else:
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    "overrides", [{"softmax": "sampled", "num_sampled": 6}, {"softmax": "adaptive", "softmax_cutoffs": [5]}]
)
def test_other_kinds_of_softmax(tokenizer, overrides, tmp_path):
    model = language_model(tokenizer, **overrides)
    batch = batch_of(tokenizer)
    evaluated = model(**batch).loss
    log_probabilities = model(**batch, output_logits=True).forward_logits.log_softmax(-1)
    chosen = batch["labels"][:, 1:] != -100
    by_hand = -log_probabilities[:, :-1][chosen].gather(1, batch["labels"][:, 1:][chosen].unsqueeze(1)).mean()
    assert_close(model(**batch).forward_loss, by_hand)
    model.train()
    trained = model(**batch).loss
    trained.backward()
    assert torch.equal(trained, evaluated) is (overrides["softmax"] == "adaptive")
    model.save_pretrained(tmp_path / "model")
    loaded = ElmoForPreTraining.from_pretrained(tmp_path / "model")
    assert_close(loaded(**batch).loss, evaluated)


@pytest.mark.promise("N10")
def test_gradients_in_double_precision(tokenizer):
    """Of the whole loss, by every parameter above the characters."""
    model = language_model(
        tokenizer, char_cnn_filters=[[2, 3]], num_highway_layers=1, projection_size=2, cell_size=3
    ).double()
    batch = batch_of(tokenizer, ["The cat", "sat"])
    names, parameters = zip(*model.named_parameters(), strict=True)

    def loss(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), kwargs=batch).loss

    frozen = ("embedding.weight", "mixes.0.weight", "mixes.0.gamma")
    checked = [p.detach().requires_grad_(not n.endswith(frozen)) for n, p in zip(names, parameters, strict=True)]
    assert torch.autograd.gradcheck(loss, checked)


def test_an_encoder_becomes_a_language_model_and_back(tmp_path, tokenizer):
    encoder = random_model(tiny_config(vocab_size=len(tokenizer)))
    encoder.save_pretrained(tmp_path / "encoder")
    model, report = AutoModelForPreTraining.from_pretrained(tmp_path / "encoder", output_loading_info=True)
    assert report["missing_keys"] == {"softmax.weight", "softmax.bias"}
    assert model.softmax.weight.std() > 0
    model.save_pretrained(tmp_path / "model")
    again, report = ElmoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert report["unexpected_keys"] == set()  # the softmax is left out, and that is no news
    assert all(torch.equal(a, b) for a, b in zip(encoder.parameters(), again.parameters(), strict=True))


def test_mistakes_are_told(tokenizer):
    model = language_model(tokenizer)
    batch = batch_of(tokenizer)
    with pytest.raises(ValueError, match=r"labels has the shape \(5, 3\)"):
        model(**{**batch, "labels": batch["labels"][:, :3]})
    with pytest.raises(ValueError, match=rf"targets has the value {len(tokenizer) - 1}.*can be predicted"):
        model(**{**batch, "labels": batch["labels"].masked_fill(batch["labels"] == 2, len(tokenizer) - 1)})
    (window,) = windows(tokenizer, ["a b c"], 4)
    with pytest.raises(ValueError, match=r"backward_labels has the shape \(1, 3\)"):
        model.forward_stream(*window[:3], window[3][:, :3])
    with pytest.raises(ValueError, match=r"backward_ids has the shape \(1, 3, 50\)"):
        model.forward_stream(window[0], window[1], window[2][:, :3], window[3])
    with pytest.raises(ValueError, match="num_sampled=8192 is not possible"):
        ElmoForPreTraining(tiny_config(softmax="sampled"))


def test_padding_changes_nothing(tokenizer):
    model = language_model(tokenizer)
    expected = model(**batch_of(tokenizer)).loss
    padded = batch_of(tokenizer, pad_to_multiple_of=32)
    assert padded["input_ids"].shape[1] % 32 == 0
    assert_close(model(**padded).loss, expected)


def test_sentences_cut_at_spaces_have_the_usual_ids(tokenizer):
    assert torch.equal(encode(SENTENCES)["character_ids"], batch_of(tokenizer)["character_ids"])
