"""The softmax over words against torch's, and its sampled form against a slow computation from the definition."""

import itertools
import math

import numpy as np
import pytest
import torch
from test_modeling import NoStrayTensors
from torch import nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init

from hf_elmo import softmax
from hf_elmo.softmax import CandidateSample, ElmoSoftmax

EXACT = {"atol": 1e-10, "rtol": 0.0}


def random_softmax(num_words=50, size=6, kind="full", scale=1.0, **options) -> ElmoSoftmax:
    """In double precision, with weights so large that each of them matters."""
    layer = ElmoSoftmax(num_words, size, kind, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, dtype=torch.float64))
    return layer


def random_inputs(layer: ElmoSoftmax, rows: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    hidden = torch.randn(rows, layer.projection_size, dtype=torch.float64, requires_grad=True)
    return hidden, torch.randint(layer.num_words, (rows,))


def gradients(losses: torch.Tensor, layer: nn.Module, hidden: torch.Tensor) -> list[torch.Tensor]:
    """Of the losses, each weighted differently, for all weights and for the input."""
    weights = torch.linspace(0.5, 1.5, len(losses), dtype=losses.dtype, device=losses.device)
    return list(torch.autograd.grad((weights * losses).sum(), [hidden, *layer.parameters()]))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(softmax, "ROWS_PER_BLOCK", 7)
    monkeypatch.setattr(softmax, "WORDS_PER_BLOCK", 11)


# --- Full ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "words"), [(1, 1), (3, 4), (7, 50), (20, 11), (1000, 1000)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_full_equals_cross_entropy_for_all_sizes_of_blocks(monkeypatch, rows, words, scale):
    monkeypatch.setattr(softmax, "ROWS_PER_BLOCK", rows)
    monkeypatch.setattr(softmax, "WORDS_PER_BLOCK", words)
    layer = random_softmax(scale=scale)
    hidden, targets = random_inputs(layer)
    found = layer.losses(hidden, targets)
    expected = cross_entropy(hidden @ layer.weight.T + layer.bias, targets, reduction="none")
    assert_close(found, expected, **EXACT)
    for ours, theirs in zip(gradients(found, layer, hidden), gradients(expected, layer, hidden), strict=True):
        assert_close(ours, theirs, **EXACT)
    assert_close(-layer.log_probabilities(hidden)[range(20), targets], expected, **EXACT)
    assert_close(layer.logits(hidden).softmax(dim=1).log(), layer.log_probabilities(hidden), atol=1e-8, rtol=1e-8)


def test_blocks_change_nothing_in_single_precision(monkeypatch):
    layer = ElmoSoftmax(3000, 64)
    hidden, targets = torch.randn(300, 64, requires_grad=True), torch.randint(3000, (300,))
    expected = layer.losses(hidden, targets)
    expected_gradients = gradients(expected / 300, layer, hidden)
    for rows, words in [(17, 3000), (300, 129), (64, 64), (1, 1000)]:
        monkeypatch.setattr(softmax, "ROWS_PER_BLOCK", rows)
        monkeypatch.setattr(softmax, "WORDS_PER_BLOCK", words)
        found = layer.losses(hidden, targets)
        assert_close(found, expected, atol=1e-6, rtol=1e-6)
        for ours, theirs in zip(gradients(found / 300, layer, hidden), expected_gradients, strict=True):
            assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_losses_of_certain_words_are_precise_and_not_below_zero():
    layer = ElmoSoftmax(100, 4)
    with torch.no_grad():
        layer.bias[3] = 25.0
    hidden, targets = 0.01 * torch.randn(500, 4), torch.full((500,), 3)
    losses = layer.losses(hidden, targets)
    assert losses.min() > 0
    assert_close(losses.double(), layer.double().losses(hidden.double(), targets), atol=0, rtol=1e-5)


@pytest.mark.promise("N10")
@pytest.mark.parametrize("kind", ["full", "sampled", "adaptive"])
@pytest.mark.usefixtures("small_blocks")
def test_gradients_by_differences(kind):
    options = {"sampled": {"num_sampled": 13}, "adaptive": {"cutoffs": [5, 12]}}.get(kind, {})
    layer = random_softmax(30, 16, kind, scale=0.5, **options)
    hidden, targets = random_inputs(layer, 9)
    targets[:3] = torch.tensor([0, 7, 29])

    def losses(hidden, *parameters):
        return layer.losses(hidden, targets, torch.Generator().manual_seed(3))  # the parameters are the layer's own

    assert torch.autograd.gradcheck(losses, [hidden, *layer.parameters()])


class LargestTensor(TorchDispatchMode):
    """Keeps the size of the largest tensor that any operation returns."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.size = max([self.size, *sizes])
        return result


@pytest.mark.parametrize("kind", ["full", "sampled", "adaptive"])
def test_memory_is_bounded(monkeypatch, kind):
    monkeypatch.setattr(softmax, "ROWS_PER_BLOCK", 64)
    monkeypatch.setattr(softmax, "WORDS_PER_BLOCK", 128)
    options = {"sampled": {"num_sampled": 2000}, "adaptive": {"cutoffs": [1000, 2000]}}.get(kind, {})
    layer = ElmoSoftmax(4000, 16, kind, **options)
    hidden, targets = torch.randn(1000, 16, requires_grad=True), torch.randint(4000, (1000,))
    with LargestTensor() as mode:
        layer.losses(hidden, targets).mean().backward()
        layer.eval().losses(hidden, targets)
    assert mode.size <= 4000 * 16  # the weights; far from 1000 x 4000
    with LargestTensor() as mode:
        layer.log_probabilities(hidden)
    assert mode.size == 1000 * 4000


def test_frozen_parts_have_no_gradient():
    layer = random_softmax()
    hidden, targets = random_inputs(layer)
    expected_hidden, expected_weight, expected_bias = gradients(layer.losses(hidden, targets), layer, hidden)
    weights = torch.linspace(0.5, 1.5, 20, dtype=torch.float64)
    (weights * layer.losses(hidden.detach(), targets)).sum().backward()
    assert_close(layer.weight.grad, expected_weight, **EXACT)
    assert_close(layer.bias.grad, expected_bias, **EXACT)
    layer.requires_grad_(False)
    (weights * layer.losses(hidden, targets)).sum().backward()
    assert_close(hidden.grad, expected_hidden, **EXACT)


# --- The sampler -----------------------------------------------------------------------------------------------------


def draw_probabilities(num_words: int) -> np.ndarray:
    ids = np.arange(num_words)
    return np.log((ids + 2) / (ids + 1)) / np.log(num_words + 1)


@pytest.mark.parametrize(
    ("num_words", "num_sampled"), [(1, 1), (2, 1), (10, 10), (100, 40), (3000, 3000), (50_000, 8192)]
)
def test_samples_have_different_words(num_words, num_sampled):
    sample = CandidateSample.draw(num_words, num_sampled)
    assert sample.ids.dtype == torch.int64
    assert len(sample.ids) == num_sampled
    assert (sample.ids.diff() > 0).all()
    assert sample.ids[0] >= 0
    assert sample.ids[-1] < num_words
    assert sample.tries >= num_sampled


def test_samples_are_the_first_different_draws():
    """One draw after the other, from the same random numbers."""
    for seed, (num_words, num_sampled) in enumerate([(7, 3), (7, 7), (100, 1), (100, 30), (1000, 900)] * 5):
        sample = CandidateSample.draw(num_words, num_sampled, torch.Generator().manual_seed(seed))
        generator = torch.Generator().manual_seed(seed)
        seen, tries, batch = set(), 0, 2 * num_sampled
        while len(seen) < num_sampled:
            for uniform in torch.rand(batch, dtype=torch.float64, generator=generator).tolist():
                if len(seen) < num_sampled:
                    seen.add(int(math.exp(uniform * math.log(num_words + 1))) - 1)
                    tries += 1
            batch *= 2
        assert sample.ids.tolist() == sorted(seen)
        assert sample.tries == tries


@pytest.mark.parametrize("draws_per_batch", [1, 5, 64])
def test_many_draws_are_made_in_pieces(monkeypatch, draws_per_batch):
    monkeypatch.setattr(softmax, "DRAWS_PER_BATCH", draws_per_batch)
    sample = CandidateSample.draw(20, 19)
    assert len(set(sample.ids.tolist())) == 19
    assert sample.tries > 19


def test_words_are_drawn_as_often_as_they_should():
    """The exact probabilities, from all orders in which words can come up; and the exact mean number of draws."""
    num_words, num_sampled, repeats = 6, 3, 6000
    probabilities = draw_probabilities(num_words)
    assert math.isclose(probabilities.sum(), 1)
    inclusion, mean_tries = np.zeros(num_words), 0.0
    for order in itertools.permutations(range(num_words), num_sampled):
        probability, tries, left = 1.0, 0.0, 1.0
        for word in order:
            probability *= probabilities[word] / left
            tries += 1 / left
            left -= probabilities[word]
        inclusion[list(order)] += probability
        mean_tries += probability * tries

    samples = [CandidateSample.draw(num_words, num_sampled) for _ in range(repeats)]
    counts = np.bincount(torch.cat([sample.ids for sample in samples]).numpy(), minlength=num_words)
    deviation = np.sqrt(inclusion * (1 - inclusion) / repeats)
    assert (abs(counts / repeats - inclusion) < 4.5 * deviation).all()
    tries = np.array([sample.tries for sample in samples])
    assert abs(tries.mean() - mean_tries) < 4.5 * tries.std() / math.sqrt(repeats)


def test_expected_counts_are_how_often_words_are_drawn():
    """They are an approximation, which is good if the sample is a small part of the words."""
    num_words, num_sampled, repeats = 2000, 100, 3000
    samples = [CandidateSample.draw(num_words, num_sampled) for _ in range(repeats)]
    counts = torch.cat([sample.ids for sample in samples]).bincount(minlength=num_words).double() / repeats
    words = torch.arange(num_words)
    expected = sum(sample.log_expected_counts(words, torch.float64).exp() for sample in samples) / repeats
    deviation = (expected * (1 - expected) / repeats).sqrt()
    assert ((counts - expected).abs() < 0.01 * expected + 4.5 * deviation).all()
    assert abs(expected.sum().item() - num_sampled) < 0.01 * num_sampled
    uncorrected = num_sampled * torch.from_numpy(draw_probabilities(num_words))
    assert ((counts - uncorrected).abs() > 0.01 * expected + 4.5 * deviation).any()


def test_expected_counts():
    probabilities = draw_probabilities(90)
    ids = torch.arange(90)
    no_repeat = CandidateSample(ids=torch.tensor([3, 5, 8]), tries=3, num_words=90)
    assert_close(no_repeat.log_expected_counts(ids, torch.float64).exp().numpy(), 3 * probabilities)
    repeat = CandidateSample(ids=torch.tensor([3, 5, 8]), tries=5, num_words=90)
    assert_close(repeat.log_expected_counts(ids, torch.float64).exp().numpy(), 1 - (1 - probabilities) ** 5)
    assert repeat.log_expected_counts(ids).dtype == torch.float32


def test_expected_counts_are_precise_for_large_vocabularies():
    """Also in float32, where 1 - (1 - P)^tries would have no digit left."""
    sample = CandidateSample.draw(800_000, 8192)
    ids = torch.cat([torch.arange(1000), torch.arange(799_000, 800_000)])
    precise = sample.log_expected_counts(ids, torch.float64)
    assert_close(sample.log_expected_counts(ids), precise.float(), atol=2e-6, rtol=0)


def test_samples_come_from_the_generator_alone():
    before = torch.get_rng_state()
    first, second, other = (CandidateSample.draw(1000, 100, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.ids, second.ids)
    assert first.tries == second.tries
    assert not torch.equal(first.ids, other.ids)


# --- Sampled ---------------------------------------------------------------------------------------------------------


def sampled_by_definition(layer, hidden, targets, drawn, tries):
    """Losses and gradients (of their weighted sum), word for word: TensorFlow's sampled_softmax_loss."""
    weight, bias, hidden = (tensor.detach().numpy() for tensor in (layer.weight, layer.bias, hidden))
    probabilities = draw_probabilities(layer.num_words)

    def expected_count(word):
        if tries == len(drawn):
            return probabilities[word] * len(drawn)
        return 1 - (1 - probabilities[word]) ** tries

    losses = []
    hidden_gradient, weight_gradient, bias_gradient = (np.zeros_like(array) for array in (hidden, weight, bias))
    for row, importance in enumerate(np.linspace(0.5, 1.5, len(hidden))):
        words = [int(targets[row])] + [word for word in drawn if word != targets[row]]
        scores = [hidden[row] @ weight[word] + bias[word] - np.log(expected_count(word)) for word in words]
        exponentials = np.exp(np.array(scores) - max(scores))
        losses.append(-np.log(exponentials[0] / exponentials.sum()))
        for number, word in enumerate(words):
            gradient = importance * (exponentials[number] / exponentials.sum() - (number == 0))
            hidden_gradient[row] += gradient * weight[word]
            weight_gradient[word] += gradient * hidden[row]
            bias_gradient[word] += gradient
    return np.array(losses), [hidden_gradient, weight_gradient, bias_gradient]


@pytest.mark.parametrize(
    ("num_words", "num_sampled", "repeats"), [(50, 12, True), (50, 49, True), (400, 4, False), (50, 1, False)]
)
@pytest.mark.usefixtures("small_blocks")
def test_sampled_equals_its_definition(num_words, num_sampled, repeats):
    layer = random_softmax(num_words, kind="sampled", num_sampled=num_sampled)
    hidden, targets = random_inputs(layer)
    seed = next(
        seed
        for seed in range(100)
        if (CandidateSample.draw(num_words, num_sampled, torch.Generator().manual_seed(seed)).tries > num_sampled)
        == repeats
    )
    sample = CandidateSample.draw(num_words, num_sampled, torch.Generator().manual_seed(seed))
    targets[:2] = sample.ids[0]  # hits, which are no negatives for these rows, but are for the others
    found = layer.losses(hidden, targets, torch.Generator().manual_seed(seed))
    expected, expected_gradients = sampled_by_definition(layer, hidden, targets, sample.ids.tolist(), sample.tries)
    assert_close(found.detach().numpy(), expected, **EXACT)
    for ours, theirs in zip(gradients(found, layer, hidden), expected_gradients, strict=True):
        assert_close(ours.numpy(), theirs, **EXACT)


def test_only_rows_of_drawn_and_right_words_have_a_gradient():
    layer = random_softmax(200, kind="sampled", num_sampled=5)
    hidden, targets = random_inputs(layer, 3)
    sample = CandidateSample.draw(200, 5, torch.Generator().manual_seed(1))
    layer.losses(hidden, targets, torch.Generator().manual_seed(1)).sum().backward()
    touched = layer.weight.grad.abs().sum(dim=1).nonzero().squeeze(1)
    assert touched.tolist() == sorted({*sample.ids.tolist(), *targets.tolist()})


@pytest.mark.parametrize("num_words", [1, 5])
def test_a_sample_that_is_nothing_but_the_right_word_teaches_nothing(num_words):
    layer = random_softmax(num_words, kind="sampled", num_sampled=1)
    hidden, _ = random_inputs(layer, 4)
    drawn = CandidateSample.draw(num_words, 1, torch.Generator().manual_seed(0)).ids
    losses = layer.losses(hidden, drawn.expand(4), torch.Generator().manual_seed(0))
    assert losses.tolist() == [0.0] * 4
    assert all((gradient == 0).all() for gradient in gradients(losses, layer, hidden))
    single = random_softmax(1)
    losses = single.losses(hidden, torch.zeros(4, dtype=torch.int64))
    assert losses.tolist() == [0.0] * 4
    assert all((gradient == 0).all() for gradient in gradients(losses, single, hidden))


def test_sampled_is_full_in_evaluation():
    layer = random_softmax(kind="sampled", num_sampled=10)
    hidden, targets = random_inputs(layer)
    before = torch.get_rng_state()
    found = layer.eval().losses(hidden, targets)
    assert torch.equal(torch.get_rng_state(), before)
    assert_close(found, cross_entropy(hidden @ layer.weight.T + layer.bias, targets, reduction="none"), **EXACT)
    assert (layer.train().losses(hidden, targets) - found).abs().max() > 0.1


def test_sampled_repeats_itself_from_the_same_random_state():
    layer = random_softmax(kind="sampled", num_sampled=10)
    hidden, targets = random_inputs(layer)
    torch.rand(7)
    state = torch.get_rng_state()
    first = [layer.losses(hidden, targets) for _ in range(3)]
    assert not torch.equal(first[0], first[1])  # new words in each call
    torch.set_rng_state(state)
    again = [layer.losses(hidden, targets) for _ in range(3)]
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))

    generator = torch.Generator().manual_seed(4)
    layer.losses(hidden, targets, generator)
    state = generator.get_state()
    first = layer.losses(hidden, targets, generator)
    generator.set_state(state)
    assert torch.equal(layer.losses(hidden, targets, generator), first)


def test_one_sample_serves_all_rows():
    """Equal rows have equal losses, and a row's loss does not depend on the others."""
    layer = random_softmax(kind="sampled", num_sampled=10)
    hidden, targets = random_inputs(layer)
    losses = layer.losses(hidden, targets, torch.Generator().manual_seed(2))
    twice = layer.losses(hidden.repeat(2, 1), targets.repeat(2), torch.Generator().manual_seed(2))
    assert_close(twice, losses.repeat(2), **EXACT)
    part = layer.losses(hidden[4:9], targets[4:9], torch.Generator().manual_seed(2))
    assert_close(part, losses[4:9], **EXACT)


# What the sampled loss has in common with the full softmax is not its value at any weights. If all words are drawn,
# it is the full softmax of scores that are corrected by counts of almost 1. The more words are drawn, the closer its
# mean and the mean of its gradient come to the full softmax. And however few are drawn, the mean gradient is zero
# where that of the full softmax is zero: where the model's probabilities are those of the data. (If words were drawn
# independently, with the expected counts as their probabilities, this would be exact: the chance that a right word
# and a draw together make a certain set is proportional to p(word) / count(word) for each word of the set.)


def test_drawing_all_words_is_the_full_softmax_of_the_corrected_scores():
    layer = random_softmax(kind="sampled", num_sampled=50)
    hidden, targets = random_inputs(layer)
    sample = CandidateSample.draw(50, 50, torch.Generator().manual_seed(1))
    assert sample.ids.tolist() == list(range(50))
    corrections = sample.log_expected_counts(sample.ids, torch.float64)
    assert corrections.min() > -0.5
    found = layer.losses(hidden, targets, torch.Generator().manual_seed(1))
    assert_close(found, cross_entropy(layer.logits(hidden) - corrections, targets, reduction="none"), **EXACT)


def test_the_mean_comes_close_to_the_full_softmax_as_more_words_are_drawn():
    layer = random_softmax(60, kind="sampled", num_sampled=1, scale=0.5)
    hidden, targets = random_inputs(layer, 40)
    expected = layer.eval().losses(hidden, targets)
    expected_gradients = gradients(expected / 40, layer, hidden)
    layer.train()
    loss_errors, gradient_errors = [], []
    for num_sampled in (5, 15, 30, 59):
        layer.num_sampled = num_sampled
        mean = sum(layer.losses(hidden, targets) for _ in range(150)) / 150
        loss_errors.append((mean - expected).abs().mean().item())
        found = gradients(mean / 40, layer, hidden)
        gradient_errors.append(max((a - b).abs().max().item() for a, b in zip(found, expected_gradients, strict=True)))
    assert loss_errors == sorted(loss_errors, reverse=True)
    assert gradient_errors == sorted(gradient_errors, reverse=True)
    assert gradient_errors[-1] < 0.005 < 0.03 < gradient_errors[0]
    assert loss_errors[-1] < 0.05 < 0.5 < loss_errors[0]


def test_the_mean_gradient_is_zero_at_the_probabilities_of_the_data_if_words_are_drawn_independently():
    """The mean over all sets of 6 words that can be drawn, which makes no use of the sampler."""
    layer = random_softmax(6, kind="sampled", num_sampled=1)
    hidden, targets = torch.randn(1, 6, dtype=torch.float64).expand(6, 6), torch.arange(6)
    data = layer.logits(hidden[:1]).softmax(dim=1).detach()[0]
    tries = 7
    chances = 1 - (1 - draw_probabilities(6)) ** tries

    def mean_gradient(weights):
        loss = torch.zeros((), dtype=torch.float64)
        for drawn in itertools.product([False, True], repeat=6):
            if any(drawn):  # without a wrong answer there is no loss
                chance = np.where(drawn, chances, 1 - chances).prod()
                sample = CandidateSample(torch.tensor(drawn).nonzero().squeeze(1), tries, num_words=6)
                loss = loss + chance * (weights @ layer._sampled_losses(hidden, targets, sample))
        return torch.autograd.grad(loss, layer.bias)[0]

    assert_close(mean_gradient(data), torch.zeros(6, dtype=torch.float64), **EXACT)
    assert mean_gradient(torch.full((6,), 1 / 6, dtype=torch.float64)).abs().max() > 0.05


@pytest.mark.parametrize("num_sampled", [12, 30])
def test_the_mean_gradient_is_almost_zero_at_the_probabilities_of_the_data(num_sampled):
    """With the sampler, whose draws are not quite independent; and not without the correction by expected counts."""
    layer = random_softmax(60, kind="sampled", num_sampled=num_sampled)
    hidden, targets = torch.randn(1, 6, dtype=torch.float64).expand(60, 6), torch.arange(60)
    data = layer.logits(hidden[:1]).softmax(dim=1).detach()[0]

    def size_of_mean_gradient():
        loss = sum(data @ layer.losses(hidden, targets) for _ in range(600)) / 600
        return torch.autograd.grad(loss, layer.bias)[0].abs().sum().item()

    corrected = size_of_mean_gradient()
    assert corrected < 0.04
    with torch.no_grad():  # cancels the correction
        layer.bias += CandidateSample.draw(60, num_sampled).log_expected_counts(targets, torch.float64)
    assert size_of_mean_gradient() > 4 * corrected


def test_training_on_samples_learns_the_probabilities_of_the_data():
    """As the mean of the second half of the steps, since the last one is as noisy as its samples."""
    data = torch.randn(30, dtype=torch.float64).mul(1.5).softmax(dim=0)
    layer = random_softmax(30, kind="sampled", num_sampled=15, scale=0.0)
    hidden, targets = torch.zeros(30, 6, dtype=torch.float64), torch.arange(30)
    optimizer = torch.optim.Adam([layer.bias], lr=0.1)
    biases = []
    for _ in range(1200):
        optimizer.zero_grad()
        (data @ layer.losses(hidden, targets)).backward()
        optimizer.step()
        biases.append(layer.bias.detach().clone())
    learned = torch.stack(biases[600:]).mean(dim=0).softmax(dim=0)
    distance, at_the_beginning = ((guess - data).abs().sum().item() / 2 for guess in (learned, 1 / 30))
    assert at_the_beginning > 0.5
    assert distance < 0.03


# --- Adaptive --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cutoffs", [[10], [1, 49], [10, 20, 40]])
@pytest.mark.usefixtures("small_blocks")
def test_adaptive_equals_torch(cutoffs):
    layer = random_softmax(50, 64, "adaptive", cutoffs=cutoffs, scale=0.3)
    hidden, targets = random_inputs(layer)
    targets[:4] = torch.tensor([0, cutoffs[0] - 1, cutoffs[0], 49])
    found, expected = layer.losses(hidden, targets), -layer.adaptive(hidden, targets).output
    assert_close(found, expected, **EXACT)
    assert torch.equal(layer.eval().losses(hidden, targets), found)
    for ours, theirs in zip(gradients(found, layer, hidden), gradients(expected, layer, hidden), strict=True):
        assert_close(ours, theirs, **EXACT)
    log_probabilities = layer.log_probabilities(hidden)
    assert_close(-log_probabilities[range(20), targets], expected, **EXACT)
    assert_close(log_probabilities.exp().sum(dim=1), torch.ones(20, dtype=torch.float64), **EXACT)
    assert_close(layer.logits(hidden), log_probabilities, **EXACT)


def test_adaptive_groups_without_a_word_have_the_gradient_zero():
    layer = random_softmax(50, 16, "adaptive", cutoffs=[10, 20])
    hidden, _ = random_inputs(layer, 3)
    layer.losses(hidden, torch.tensor([0, 15, 12])).sum().backward()
    assert all(parameter.grad.abs().sum() == 0 for parameter in layer.adaptive.tail[1].parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.adaptive.tail[0].parameters())


# --- Where it runs ---------------------------------------------------------------------------------------------------

KINDS = [("full", {}), ("sampled", {"num_sampled": 20}), ("adaptive", {"cutoffs": [10, 30]})]


@pytest.mark.promise("N6")
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_no_words_to_predict(kind, options):
    layer = ElmoSoftmax(50, 16, kind, **options)
    hidden = torch.zeros(0, 16, requires_grad=True)
    losses = layer.losses(hidden, torch.zeros(0, dtype=torch.int64))
    assert losses.shape == (0,)
    losses.sum().backward()
    assert all((parameter.grad == 0).all() for parameter in layer.parameters())
    assert layer.log_probabilities(hidden).shape == (0, 50)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_every_tensor_is_made_on_the_device_of_the_inputs(kind, options):
    layer = ElmoSoftmax(50, 16, kind, **options)
    hidden, targets = torch.randn(5, 16, requires_grad=True), torch.randint(50, (5,))
    with NoStrayTensors():
        layer.losses(hidden, targets).sum().backward()
        layer.eval().losses(hidden, targets)
        layer.logits(hidden)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_half_precision(kind, options, dtype):
    layer = ElmoSoftmax(50, 16, kind, **options).to(dtype)
    hidden, targets = torch.randn(40, 16, dtype=dtype, requires_grad=True), torch.randint(50, (40,))
    found = layer.losses(hidden, targets, torch.Generator().manual_seed(1))
    found_gradients = gradients(found, layer, hidden)
    assert layer.log_probabilities(hidden).dtype == found.dtype == torch.float32
    layer, hidden = layer.float(), hidden.detach().float().requires_grad_()
    expected = layer.losses(hidden, targets, torch.Generator().manual_seed(1))
    assert_close(found, expected, atol=0.05, rtol=0)
    for ours, theirs in zip(found_gradients, gradients(expected, layer, hidden), strict=True):
        assert ours.dtype == dtype
        assert_close(ours.float(), theirs, atol=0.05, rtol=0.02)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_autocast(kind, options):
    layer = ElmoSoftmax(50, 16, kind, **options)
    hidden, targets = torch.randn(40, 16, requires_grad=True), torch.randint(50, (40,))
    expected = layer.losses(hidden, targets, torch.Generator().manual_seed(1))
    expected_gradients = gradients(expected, layer, hidden)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer.losses(hidden, targets, torch.Generator().manual_seed(1))
        mixed = layer.losses(hidden.bfloat16(), targets, torch.Generator().manual_seed(1))
    assert found.dtype == mixed.dtype == torch.float32
    assert not torch.equal(found, expected)  # the products are in half precision
    for losses in (found, mixed):
        assert_close(losses, expected, atol=0.05, rtol=0)
        for ours, theirs in zip(gradients(losses, layer, hidden), expected_gradients, strict=True):
            assert ours.dtype == torch.float32
            assert_close(ours, theirs, atol=0.05, rtol=0.02)


# --- Wrong inputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.parametrize("value", [50, 51, -1, -100])
def test_words_that_cannot_be_predicted(kind, options, value):
    layer = ElmoSoftmax(50, 16, kind, **options)
    targets = torch.tensor([3, 49, value, 0])
    with pytest.raises(ValueError, match=rf"value {value} at position 2, but only the words 0 to 49 can be predicted"):
        layer.losses(torch.randn(4, 16), targets)


def test_inputs_that_do_not_fit():
    layer = ElmoSoftmax(50, 16)
    hidden, targets = torch.randn(4, 16), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"hidden has the shape \(4, 8\) .* must be numbers \(words, 16\)"):
        layer.losses(hidden[:, :8], targets)
    with pytest.raises(ValueError, match=r"hidden has the shape \(1, 4, 16\)"):
        layer.logits(hidden.unsqueeze(0))
    with pytest.raises(ValueError, match=r"hidden has .* the type torch.int64"):
        layer.log_probabilities(hidden.long())
    with pytest.raises(ValueError, match=r"targets has the shape \(3,\) .* must be whole numbers \(4,\)"):
        layer.losses(hidden, targets[:3])
    with pytest.raises(ValueError, match=r"targets has .* the type torch.float32"):
        layer.losses(hidden, targets.float())
    assert torch.equal(layer.losses(hidden, targets.int()), layer.losses(hidden, targets))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "hierarchical"}, r"kind='hierarchical' is not known: it must be 'full', 'sampled' or 'adaptive'"),
        ({"kind": "sampled"}, r"num_sampled=8192 is not possible: .* between 1 and .* 100, .* use the full softmax"),
        ({"kind": "sampled", "num_sampled": 0}, r"num_sampled=0 is not possible"),
        ({"kind": "sampled", "num_sampled": 101}, r"num_sampled=101 is not possible"),
        ({"kind": "full", "cutoffs": [10]}, r"cutoffs=\[10\] needs kind='adaptive', but it is 'full'"),
        ({"kind": "adaptive"}, r"cutoffs=None is not possible: .* between 1 and 99"),
        ({"kind": "adaptive", "cutoffs": []}, r"cutoffs=\[\] is not possible"),
        ({"kind": "adaptive", "cutoffs": [0, 10]}, r"cutoffs=\[0, 10\] is not possible"),
        ({"kind": "adaptive", "cutoffs": [10, 10]}, r"cutoffs=\[10, 10\] is not possible"),
        ({"kind": "adaptive", "cutoffs": [100]}, r"cutoffs=\[100\] is not possible"),
        ({"kind": "adaptive", "cutoffs": [10, 20, 30]}, r"too many groups: .* projection_size=16 .* by 4 3 times"),
        ({"num_words": 0}, r"num_words=0 is not possible"),
        ({"projection_size": 0}, r"projection_size=0 is not possible"),
    ],
)
def test_settings_that_are_not_possible(options, message):
    with pytest.raises(ValueError, match=message):
        ElmoSoftmax(**{"num_words": 100, "projection_size": 16, **options})


# --- As part of a model ----------------------------------------------------------------------------------------------


class PredictorConfig(PreTrainedConfig):
    model_type = "predictor_of_the_softmax_test"
    kind: str = "full"


class Predictor(PreTrainedModel):
    """The least model that has a softmax."""

    config_class = PredictorConfig

    def __init__(self, config):
        super().__init__(config)
        self.softmax = ElmoSoftmax(2000, 64, config.kind, **dict(KINDS)[config.kind])
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, ElmoSoftmax):
            module.reset_parameters()
        elif isinstance(
            module, nn.Linear
        ):  # transformers passes over modules without weights of their own, "adaptive"
            init.normal_(module.weight, std=1 / math.sqrt(module.in_features))


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_fresh_weights_are_those_of_the_original(kind, options):
    layer = ElmoSoftmax(2000, 64, kind, **options)
    for name, parameter in layer.named_parameters():
        if name == "bias":
            assert (parameter == 0).all()
        else:
            assert parameter.requires_grad
            assert abs(parameter.std().item() * math.sqrt(parameter.shape[1]) - 1) < 0.15
    names = {"weight", "bias"}
    if kind == "adaptive":
        names = {f"adaptive.{name}.weight" for name in ("head", "tail.0.0", "tail.0.1", "tail.1.0", "tail.1.1")}
    assert set(layer.state_dict()) == names


@pytest.mark.parametrize("kind", ["full", "sampled", "adaptive"])
def test_saved_and_loaded(tmp_path, kind):
    model = Predictor(PredictorConfig(kind=kind)).eval()
    model.save_pretrained(tmp_path)
    loaded, report = Predictor.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    hidden, targets = torch.randn(9, 64), torch.randint(2000, (9,))
    assert torch.equal(loaded.softmax.losses(hidden, targets), model.softmax.losses(hidden, targets))


@pytest.mark.parametrize(("kind", "missing"), [("full", "weight"), ("adaptive", "adaptive.tail.0.0.weight")])
def test_missing_weights_are_initialised_on_loading(tmp_path, kind, missing):
    model = Predictor(PredictorConfig(kind=kind))
    weights = {name: value + 7 for name, value in model.state_dict().items() if name != f"softmax.{missing}"}
    model.save_pretrained(tmp_path, state_dict=dict(weights))
    loaded, report = Predictor.from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == {f"softmax.{missing}"}
    for name, value in loaded.state_dict().items():
        if name == f"softmax.{missing}":
            assert abs(value.std().item() * 8 - 1) < 0.15
        else:
            assert torch.equal(value, weights[name])
