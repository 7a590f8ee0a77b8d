"""What holds for any batch: padding, masks, order, pieces and threads change nothing; little text makes no NaN."""

import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import SENTENCES, encode, random_model, tiny_config
from torch.testing import assert_close

from hf_elmo import (
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    batch_to_ids,
)

EXACT = {"atol": 1e-6, "rtol": 0.0}
WORDS = [word for sentence in SENTENCES for word in sentence.split()]
CHARACTERS = batch_to_ids([WORDS])[0]  # (W, 50)


@pytest.fixture(scope="module")
def model() -> ElmoModel:
    return random_model()


@torch.no_grad()
def layers_of(model: ElmoModel, characters: torch.Tensor, mask: torch.Tensor, **options) -> torch.Tensor:
    """(L + 2, B, T, 2P): the layers and the mix of words that are taken as they are."""
    ids = torch.zeros(mask.shape, dtype=torch.long)
    outputs = model(ids, characters, attention_mask=mask, output_hidden_states=True, **options)
    return torch.stack([*outputs.hidden_states, outputs.last_hidden_state])


def alone(model: ElmoModel, words: list[int]) -> torch.Tensor:
    return layers_of(model, CHARACTERS[words].unsqueeze(0), torch.ones(1, len(words), dtype=torch.long))[:, 0]


# --- Padding ---------------------------------------------------------------------------------------------------------

MOST_PADDING = 64
GARBAGE = ["zeros", "padding of words", "one word", "anything"]


def garbage(kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    if kind == "anything":
        return torch.randint(0, 262, shape)
    return {"zeros": 0, "padding of words": 261, "one word": 98}[kind] * torch.ones(shape, dtype=torch.long)


@pytest.mark.promise("N2", n=MOST_PADDING + 1)
@pytest.mark.parametrize("kind", GARBAGE)
def test_any_padding_changes_nothing(model, kind):
    """0 to 64 places before the sentences, and as many less behind them."""
    inputs = encode(SENTENCES)
    characters, mask = inputs["character_ids"], inputs["attention_mask"]
    expected = layers_of(model, characters, mask)
    rows, length = mask.shape
    for before in range(MOST_PADDING + 1):
        after = MOST_PADDING - before
        padded = torch.cat([garbage(kind, (rows, n, 50)) if n else characters[:, :0] for n in (before, after)], dim=1)
        padded = torch.cat([padded[:, :before], characters, padded[:, before:]], dim=1)
        found = layers_of(model, padded, torch.nn.functional.pad(mask, (before, after)))
        assert_close(found[:, :, before : before + length], expected, **EXACT)
        assert not found[:, :, :before].any()
        assert not found[:, :, before + length :].any()


# --- Masks and order -------------------------------------------------------------------------------------------------

MASKS = 100
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, len(WORDS) - 1), st.booleans()), min_size=7, max_size=7), min_size=1, max_size=5
)


@pytest.mark.promise("N7", n=MASKS)
@settings(max_examples=MASKS, deadline=None, derandomize=True)
@given(rows=BATCHES)
def test_any_mask_leaves_words_out(model, rows):
    """Each sentence is that of its words under the mask, with holes anywhere, or with nothing left."""
    words = torch.tensor([[word for word, _ in row] for row in rows])
    mask = torch.tensor([[kept for _, kept in row] for row in rows])
    found = layers_of(model, CHARACTERS[words], mask.long())
    assert not found[:, ~mask].any()
    for row, kept in enumerate(mask):
        if kept.any():
            assert_close(found[:, row, kept], alone(model, words[row][kept].tolist()), **EXACT)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(rows=BATCHES, seed=st.integers(0, 2**32))
def test_any_order_of_the_sentences(model, rows, seed):
    words = torch.tensor([[word for word, _ in row] for row in rows])
    mask = torch.tensor([[kept for _, kept in row] for row in rows]).long()
    order = random.Random(seed).sample(range(len(rows)), k=len(rows))
    found = layers_of(model, CHARACTERS[words[order]], mask[order])
    assert_close(found, layers_of(model, CHARACTERS[words], mask)[:, order], **EXACT)


# --- Pieces ----------------------------------------------------------------------------------------------------------

CUTS = 50


@pytest.mark.promise("N8", n=CUTS)
@settings(max_examples=CUTS, deadline=None, derandomize=True)
@given(
    words=st.lists(st.integers(0, len(WORDS) - 1), min_size=2, max_size=40),
    cuts=st.sets(st.integers(1, 39), min_size=1, max_size=8),
)
@torch.no_grad()
def test_any_pieces_of_the_forward_direction(model, words, cuts):
    size = model.config.projection_size
    whole = alone(model, words)[:-1, :, :size]
    places = [0, *sorted(cut for cut in cuts if cut < len(words)), len(words)]
    state, parts = None, []
    for start, end in itertools.pairwise(places):
        ids = torch.zeros(1, end - start, dtype=torch.long)
        outputs = model(
            ids,
            CHARACTERS[words[start:end]].unsqueeze(0),
            initial_state=state,
            output_state=True,
            output_hidden_states=True,
        )
        parts.append(torch.stack(outputs.hidden_states)[:, 0, :, :size])
        state = outputs.state
    assert_close(torch.cat(parts, dim=1), whole, **EXACT)


# --- Little or nothing to read ---------------------------------------------------------------------------------------

LITTLE = {
    "one word": [[1]],
    "one word among others": [[1, 0, 0], [1, 1, 1]],
    "a masked sentence among others": [[0, 0, 0], [1, 1, 1]],
    "masked sentences only": [[0, 0], [0, 0]],
    "no words": [[], []],
}
HEADS = {
    "pretraining": (ElmoForPreTraining, {"vocab_size": 9}, lambda mask: torch.where(mask, 3, -100)),
    "token classification": (ElmoForTokenClassification, {"num_labels": 3}, lambda mask: torch.where(mask, 1, -100)),
    "token classification, CRF": (
        ElmoForTokenClassification,
        {"num_labels": 3, "use_crf": True},
        lambda mask: torch.where(mask, 1, -100),
    ),
    "sequence classification": (
        ElmoForSequenceClassification,
        {"num_labels": 3},
        lambda mask: torch.ones(len(mask), dtype=torch.long),
    ),
}


@pytest.mark.promise("N6")
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("little", LITTLE)
def test_little_text_has_a_finite_loss_and_gradient(little, head):
    model_class, settings, labels_of = HEADS[head]
    model = random_model(tiny_config(freeze_bilm=False, **settings), model_class=model_class).train()
    mask = torch.tensor(LITTLE[little], dtype=torch.long)
    characters = CHARACTERS[: mask.numel()].view(*mask.shape, 50)
    outputs = model(torch.zeros_like(mask), characters, attention_mask=mask, labels=labels_of(mask.bool()))
    assert outputs.loss.shape == ()
    assert outputs.loss.isfinite()
    outputs.loss.backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


# --- Threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.promise("N9")
@pytest.mark.parametrize(
    "sizes", [{}, {"projection_size": 32, "cell_size": 128, "char_cnn_filters": [[1, 32], [3, 64]]}]
)
def test_two_threads_give_the_vectors_of_one(sizes):
    model = random_model(tiny_config(**sizes))
    inputs = encode(SENTENCES * 8)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            results.append(layers_of(model, inputs["character_ids"], inputs["attention_mask"]))
        finally:
            torch.set_num_threads(1)
    assert_close(results[1], results[0], atol=1e-5, rtol=0)
