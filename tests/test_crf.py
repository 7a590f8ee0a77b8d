"""The conditional random field against the enumeration of all paths."""

import itertools
import math
import re

import pytest
import torch
from test_modeling import NoStrayTensors
from torch import nn
from torch.testing import assert_close
from transformers import PreTrainedConfig, PreTrainedModel

from hf_elmo.crf import ElmoCrf, allowed_transitions

EXACT = {"atol": 1e-10, "rtol": 0.0}

# What a sentence may look like, as a regular expression over its labels, each followed by a space.
SENTENCES = {
    None: r"(\S+ )+",
    "BIO": r"(O |B(\S*) (I\2 )*)+",
    "BIOES": r"(O |S\S* |B(\S*) (I\2 )*E\2 )+",
}

FIELDS = [
    (["X"], None),
    (["X", "Y"], None),
    (["NOUN", "VERB", "ADJ", "X"], None),
    (["O", "B-PER", "I-PER"], "BIO"),
    (["I-A", "O", "B-B", "B-A"], "BIO"),
    (["B", "I"], "BIO"),
    (["O", "B-A", "I-A", "E-A"], "BIOES"),
    (["E-A", "S-B", "B-A", "O"], "BIOES"),
    (["S", "E", "I", "B"], "BIOES"),
    (["B-A", "B-B", "E-A", "E-B", "O"], "BIOES"),
]

MASKS = torch.tensor(
    [
        [1, 1, 1, 1, 1],  # all
        [1, 1, 1, 0, 0],  # padding on the right
        [0, 0, 1, 1, 1],  # on the left
        [0, 1, 1, 1, 0],  # on both sides
        [1, 0, 1, 0, 1],  # in between
        [0, 1, 0, 0, 1],
        [0, 0, 1, 0, 0],  # one word
        [0, 0, 0, 0, 0],  # none
    ]
).bool()


def random_crf(labels: list[str], scheme: str | None = None, scale: float = 1.0) -> ElmoCrf:
    """In double precision, with weights so large that each of them matters."""
    crf = ElmoCrf(labels, scheme).double()
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, dtype=torch.float64))
    return crf


def all_paths(crf: ElmoCrf, words: int) -> torch.Tensor:
    """Every allowed path (paths, words)."""
    pattern = re.compile(SENTENCES[crf.scheme])
    paths = [
        path
        for path in itertools.product(range(len(crf.labels)), repeat=words)
        if pattern.fullmatch("".join(crf.labels[label] + " " for label in path))
    ]
    return torch.tensor(paths)


def scores(crf: ElmoCrf, emissions: torch.Tensor, paths: torch.Tensor) -> torch.Tensor:
    """The score of each path (paths,) in one sentence (words, K), summed term by term."""
    total = crf.start[paths[:, 0]] + crf.end[paths[:, -1]]
    for word in range(paths.shape[1]):
        total = total + emissions[word, paths[:, word]]
        if word > 0:
            total = total + crf.transitions[paths[:, word - 1], paths[:, word]]
    return total


def random_gold(crf: ElmoCrf, mask: torch.Tensor) -> torch.Tensor:
    """An allowed path in each row of the mask; labels that do not exist elsewhere."""
    gold = torch.full(mask.shape, 999)
    for row, words in enumerate(mask.sum(dim=1).tolist()):
        if words > 0:
            paths = all_paths(crf, words)
            gold[row, mask[row]] = paths[torch.randint(len(paths), ())]
    return gold


def random_case(labels: list[str], scheme: str | None) -> tuple[ElmoCrf, torch.Tensor, torch.Tensor]:
    crf = random_crf(labels, scheme)
    random_masks = torch.rand(8, MASKS.shape[1]) < 0.6
    mask = torch.cat([MASKS, random_masks])
    return crf, 2 * torch.randn(*mask.shape, len(labels), dtype=torch.float64), mask


# --- Against enumeration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("labels", "scheme"), FIELDS)
def test_log_likelihood(labels, scheme):
    crf, emissions, mask = random_case(labels, scheme)
    gold = random_gold(crf, mask)
    found = crf.log_likelihood(emissions, gold, mask)
    for row in range(len(mask)):
        words = int(mask[row].sum())
        expected = torch.zeros((), dtype=torch.float64)
        if words > 0:
            sentence = emissions[row, mask[row]]
            expected = scores(crf, sentence, gold[row, mask[row]].unsqueeze(0)).squeeze(0)
            expected = expected - scores(crf, sentence, all_paths(crf, words)).logsumexp(dim=0)
        assert_close(found[row], expected, **EXACT)


@pytest.mark.parametrize(("labels", "scheme"), FIELDS)
def test_best_path(labels, scheme):
    crf, emissions, mask = random_case(labels, scheme)
    found = crf.decode(emissions, mask)
    assert found.shape == mask.shape
    assert found.dtype == torch.long
    assert (found[~mask] == -100).all()
    for row in range(len(mask)):
        words = int(mask[row].sum())
        if words > 0:
            paths = all_paths(crf, words)
            best = paths[scores(crf, emissions[row, mask[row]], paths).argmax()]
            assert found[row, mask[row]].tolist() == best.tolist()


@pytest.mark.parametrize(("labels", "scheme"), FIELDS)
def test_marginals(labels, scheme):
    crf, emissions, mask = random_case(labels, scheme)
    found = crf.marginals(emissions, mask)
    assert (found[~mask] == 0).all()
    for row in range(len(mask)):
        words = int(mask[row].sum())
        if words > 0:
            paths = all_paths(crf, words)
            probabilities = scores(crf, emissions[row, mask[row]], paths).softmax(dim=0)  # (paths,)
            one_hot = nn.functional.one_hot(paths, len(labels)).double()  # (paths, words, K)
            expected = torch.einsum("p,pwk->wk", probabilities, one_hot)
            assert_close(found[row, mask[row]], expected, **EXACT)


@pytest.mark.parametrize(("labels", "scheme"), FIELDS)
def test_probabilities_of_all_allowed_paths_sum_to_one(labels, scheme):
    crf = random_crf(labels, scheme)
    paths = all_paths(crf, 4)
    emissions = torch.randn(1, 4, len(labels), dtype=torch.float64).expand(len(paths), -1, -1)
    found = crf.log_likelihood(emissions, paths, torch.ones_like(paths))
    assert_close(found.exp().sum(), torch.ones((), dtype=torch.float64), **EXACT)


@pytest.mark.promise("N10")
@pytest.mark.parametrize(("labels", "scheme"), FIELDS)
def test_gradients(labels, scheme):
    """Numerically, for the emissions and all weights, with holes, an empty row and forbidden steps."""
    crf = random_crf(labels, scheme)
    mask = MASKS[[1, 4, 5, 7]]
    gold = random_gold(crf, mask)
    emissions = torch.randn(*mask.shape, len(labels), dtype=torch.float64, requires_grad=True)

    # The weights are changed in place, so it is enough that they are named.
    inputs = (emissions, *crf.parameters())
    assert torch.autograd.gradcheck(lambda emissions, *weights: crf.log_likelihood(emissions, gold, mask), inputs)
    assert torch.autograd.gradcheck(lambda emissions, *weights: crf.marginals(emissions, mask), inputs)


# --- Padding, batch mates, precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e30])
def test_what_stands_at_padding_changes_nothing(garbage):
    crf, clean, mask = random_case(["O", "B-PER", "I-PER"], "BIO")
    gold = random_gold(crf, mask)
    results, gradients = [], []
    for emissions in (clean, clean.masked_fill(~mask.unsqueeze(2), garbage)):
        emissions = emissions.clone().requires_grad_()
        crf.zero_grad()
        likelihood, marginals = crf.log_likelihood(emissions, gold, mask), crf.marginals(emissions, mask)
        (likelihood.sum() + (marginals * clean).sum()).backward()
        results.append([likelihood, marginals, crf.decode(emissions, mask)])
        gradients.append([emissions.grad, *(parameter.grad for parameter in crf.parameters())])
        assert (emissions.grad[~mask] == 0).all()
    for found, expected in zip(results[1] + gradients[1], results[0] + gradients[0], strict=True):
        assert torch.equal(found, expected)
        assert found.isfinite().all()


@pytest.mark.promise("N5")
def test_nan_stays_in_its_sentence():
    crf, emissions, mask = random_case(["O", "B-PER", "I-PER"], "BIO")
    gold = random_gold(crf, mask)
    others = torch.arange(len(mask)) != 1
    spoiled = emissions.clone()
    spoiled[1, 0] = math.nan
    assert crf.log_likelihood(spoiled, gold, mask)[1].isnan()
    for name, inputs in (("log_likelihood", (gold, mask)), ("marginals", (mask,)), ("decode", (mask,))):
        method = getattr(crf, name)
        assert torch.equal(method(spoiled, *inputs)[others], method(emissions, *inputs)[others]), name


def test_batch_mates_and_more_padding_change_nothing():
    crf, emissions, mask = random_case(["O", "B-PER", "I-PER", "B-LOC"], "BIO")
    gold = random_gold(crf, mask)
    likelihood, marginals, best = (
        crf.log_likelihood(emissions, gold, mask),
        crf.marginals(emissions, mask),
        crf.decode(emissions, mask),
    )
    for row in range(len(mask)):
        for kept in (slice(None), mask[row]):  # alone with its padding, and alone without
            one = emissions[row : row + 1, kept], mask[row : row + 1, kept]
            assert_close(crf.log_likelihood(one[0], gold[row : row + 1, kept], one[1])[0], likelihood[row], **EXACT)
            assert_close(crf.marginals(*one)[0], marginals[row, kept], **EXACT)
            assert torch.equal(crf.decode(*one)[0], best[row, kept])


def test_ignored_labels_are_no_part_of_the_sentence():
    crf = random_crf(["O", "B-PER", "I-PER"], "BIO")
    emissions = torch.randn(1, 5, 3, dtype=torch.float64)
    labels = torch.tensor([[-100, 1, -100, 2, -100]])  # B-PER, I-PER
    found = crf.log_likelihood(emissions, labels, torch.ones_like(labels))
    expected = crf.log_likelihood(emissions[:, [1, 3]], labels[:, [1, 3]], torch.ones(1, 2))
    assert_close(found, expected, **EXACT)
    all_ignored = torch.full_like(labels, -100)
    assert crf.log_likelihood(emissions, all_ignored, torch.ones_like(labels)).tolist() == [0]


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_nothing_to_read(rows, columns):
    crf = ElmoCrf(["O", "B-PER", "I-PER"], "BIO")
    emissions = torch.randn(rows, columns, 3, requires_grad=True)
    mask = torch.zeros(rows, columns)
    likelihood = crf.log_likelihood(emissions, torch.zeros(rows, columns, dtype=torch.long), mask)
    assert likelihood.tolist() == [0] * rows
    likelihood.sum().backward()
    assert not emissions.grad.any()
    assert crf.decode(emissions, mask).tolist() == [[-100] * columns] * rows
    assert torch.equal(crf.marginals(emissions, mask), torch.zeros(rows, columns, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_single(dtype):
    """The same as single precision on the rounded numbers."""
    crf = random_crf(["O", "B-PER", "I-PER"], "BIO").to(dtype)
    emissions = (10 * torch.randn(4, 200, 3)).to(dtype).requires_grad_()
    mask = torch.ones(4, 200)
    gold = torch.tensor([1, 2] * 100).expand(4, 200)
    likelihood, marginals, best = (
        crf.log_likelihood(emissions, gold, mask),
        crf.marginals(emissions, mask),
        crf.decode(emissions, mask),
    )
    likelihood.sum().backward()
    gradients = [tensor.grad for tensor in (emissions, *crf.parameters())]
    assert {gradient.dtype for gradient in gradients} == {dtype}
    assert all(gradient.isfinite().all() for gradient in gradients)
    crf.float()
    assert torch.equal(likelihood, crf.log_likelihood(emissions.float(), gold, mask))
    assert torch.equal(marginals, crf.marginals(emissions.float(), mask))
    assert torch.equal(best, crf.decode(emissions.float(), mask))


def test_long_sentences_keep_their_digits():
    crf = random_crf(["O", "B-PER", "I-PER"], "BIO", scale=5).float().double()
    emissions = 5 * torch.randn(2, 1000, 3)
    mask = torch.ones(2, 1000)
    gold = crf.decode(emissions.double(), mask)
    expected = crf.log_likelihood(emissions.double(), gold, mask), crf.marginals(emissions.double(), mask)
    crf.float()
    assert_close(crf.log_likelihood(emissions, gold, mask).double(), expected[0], atol=0, rtol=2e-6)
    assert_close(crf.marginals(emissions, mask).double(), expected[1], atol=4e-6, rtol=0)
    assert torch.equal(crf.decode(emissions, mask), gold)


def test_certainty_is_certain():
    """Scores far beyond what exp can take."""
    crf = ElmoCrf(["X", "Y"])
    emissions = torch.tensor([[[1e5, 0.0], [0.0, 1e5], [-1e5, 0.0]]], requires_grad=True)
    labels, mask = torch.tensor([[0, 1, 1]]), torch.ones(1, 3)
    likelihood = crf.log_likelihood(emissions, labels, mask)
    likelihood.sum().backward()
    assert likelihood.abs().item() < 0.1
    assert emissions.grad.isfinite().all()
    assert torch.equal(crf.decode(emissions, mask), labels)
    assert_close(crf.marginals(emissions, mask)[0, :, 1], torch.tensor([0.0, 1.0, 1.0]))


def test_every_tensor_is_made_on_the_device_of_the_inputs():
    crf, emissions, mask = random_case(["O", "B-PER", "I-PER"], "BIO")
    gold = random_gold(crf, mask)
    emissions.requires_grad_()
    with NoStrayTensors():
        (crf.log_likelihood(emissions, gold, mask).sum() + crf.marginals(emissions, mask).sum()).backward()
        crf.decode(emissions, mask)


def test_inference_mode():
    crf, emissions, mask = random_case(["O", "B-PER", "I-PER"], "BIO")
    expected = crf.marginals(emissions, mask)
    with torch.inference_mode():
        assert torch.equal(crf.marginals(emissions, mask), expected)
        crf.decode(emissions, mask)
        crf.log_likelihood(emissions, random_gold(crf, mask), mask)


# --- Schemes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("labels", "scheme"), FIELDS)
def test_allowed_transitions_spell_the_sentences_of_the_scheme(labels, scheme):
    """Every sequence of up to 4 labels is allowed step by step exactly if it is of the scheme as a whole."""
    transitions, start, end = allowed_transitions(labels, scheme)
    assert (transitions.dtype, transitions.shape) == (torch.bool, (len(labels), len(labels)))
    for words in range(1, 5):
        for path in itertools.product(range(len(labels)), repeat=words):
            steps = all(transitions[a, b] for a, b in itertools.pairwise(path))
            whole = re.fullmatch(SENTENCES[scheme], "".join(labels[label] + " " for label in path))
            assert bool(start[path[0]] and steps and end[path[-1]]) == bool(whole), path


@pytest.mark.parametrize("scale", [1, 1e4])
def test_decoding_keeps_to_the_scheme_against_the_emissions(scale):
    labels = ["O", "B-PER", "I-PER"]
    emissions = scale * torch.tensor([[[0.0, 1.0, 9.0], [20.0, 1.0, 0.0], [0.0, 1.0, 9.0]]])
    assert ElmoCrf(labels).decode(emissions, torch.ones(1, 3)).tolist() == [[2, 0, 2]]
    crf = ElmoCrf(labels, "BIO")
    assert crf.decode(emissions, torch.ones(1, 3)).tolist() == [[1, 0, 1]]
    assert crf.marginals(emissions, torch.ones(1, 3))[0, 0, 2] == 0


@pytest.mark.parametrize(
    ("labels", "scheme", "message"),
    [
        ([], "BIO", "labels is empty"),
        ([], None, "labels is empty"),
        (["O"], "IOB1", r"scheme='IOB1' is not known: it must be one of \['BIO', 'BIOES'\], or None"),
        (["LABEL_0", "LABEL_1"], "BIO", r"'LABEL_0' does not fit the scheme BIO: labels must be O, B-TYPE, I-TYPE\."),
        (["O", "B-PER", "E-PER"], "BIO", "'E-PER' does not fit the scheme BIO"),
        (["O", "B-"], "BIO", "'B-' does not fit"),
        (["O", ""], "BIO", "'' does not fit"),
        (["O", "M-PER"], "BIOES", "'M-PER' does not fit the scheme BIOES: .* E-TYPE, S-TYPE"),
        (["B-PER", "O", "B-PER"], "BIO", r"'B-PER' is there more than once, with the ids \[0, 2\]"),
        (["O", "I-PER", "B-LOC"], "BIO", "'I-PER' can never be used .* there is no 'B-PER'"),
        (["O", "B-PER", "S-PER"], "BIOES", "'B-PER' can never be used .* there is no 'E-PER'"),
        (["O", "B-PER", "I-PER", "E-LOC", "B-LOC"], "BIOES", "'B-PER' can never be used .* there is no 'E-PER'"),
        (["O", "E-PER", "S-PER"], "BIOES", "'E-PER' can never be used .* there is no 'B-PER'"),
        (["B-PER", "E-PER"], "BIOES", "have none for a sentence of one word: add 'O'"),
    ],
)
def test_labels_that_do_not_fit_the_scheme(labels, scheme, message):
    with pytest.raises(ValueError, match=message):
        ElmoCrf(labels, scheme)


@pytest.mark.parametrize(
    ("scheme", "names", "message"),
    [
        ("BIO", "_ I-A O", r"row 1 .* BIO: 'I-A' \(position 1\) cannot begin a sentence"),
        ("BIO", "O _ I-A", r"row 1 .* 'I-A' \(position 2\) cannot follow 'O' \(position 0\)"),
        ("BIO", "B-A B-B I-A", r"'I-A' \(position 2\) cannot follow 'B-B' \(position 1\)"),
        ("BIOES", "O B-A _", r"row 1 .* BIOES: 'B-A' \(position 1\) cannot end a sentence"),
        ("BIOES", "B-A O O", r"'O' \(position 1\) cannot follow 'B-A' \(position 0\)"),
        ("BIOES", "E-A O O", r"'E-A' \(position 0\) cannot begin a sentence"),
        ("BIOES", "S-A B-A I-A", r"'I-A' \(position 2\) cannot end a sentence"),
    ],
)
def test_gold_labels_against_the_scheme(scheme, names, message):
    labels = ["O", "B-A", "I-A", "B-B"] if scheme == "BIO" else ["O", "B-A", "I-A", "E-A", "S-A"]
    crf = ElmoCrf(labels, scheme)
    ids = torch.tensor([[0, 0, 0], [labels.index(name) if name != "_" else -100 for name in names.split()]])
    emissions, mask = torch.randn(2, 3, len(labels)), torch.ones(2, 3)
    with pytest.raises(ValueError, match=message):
        crf.log_likelihood(emissions, ids, mask)
    mask[1] = 0
    assert crf.log_likelihood(emissions, ids, mask).isfinite().all()
    assert ElmoCrf(labels).log_likelihood(emissions, ids, torch.ones(2, 3)).isfinite().all()


# --- Wrong inputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, -1, 999, -99])
def test_label_ids_out_of_range(value):
    crf = ElmoCrf(["X", "Y", "Z"])
    labels = torch.tensor([[0, 1], [2, value]])
    with pytest.raises(
        ValueError, match=rf"value {value} at row 1, position 1, but there are the ids 0 to 2, and -100"
    ):
        crf.log_likelihood(torch.randn(2, 2, 3), labels, torch.ones(2, 2))
    masked = torch.tensor([[1, 1], [1, 0]])
    assert crf.log_likelihood(torch.randn(2, 2, 3), labels, masked).isfinite().all()


def test_shapes_that_do_not_fit():
    crf = ElmoCrf(["X", "Y", "Z"])
    labels, mask = torch.zeros(2, 4, dtype=torch.long), torch.ones(2, 4)
    with pytest.raises(ValueError, match=r"emissions has the shape \(2, 4, 5\), but must be \(batch, positions, 3\)"):
        crf.decode(torch.randn(2, 4, 5), mask)
    with pytest.raises(ValueError, match=r"mask has the shape \(2, 4\), but .* = \(2, 6\)"):
        crf.marginals(torch.randn(2, 6, 3), mask)
    with pytest.raises(ValueError, match=r"labels has the shape \(2, 3\) .* = \(2, 4\)"):
        crf.log_likelihood(torch.randn(2, 4, 3), labels[:, :3], mask)
    with pytest.raises(ValueError, match=r"the type torch.float32, but must be whole numbers"):
        crf.log_likelihood(torch.randn(2, 4, 3), labels.float(), mask)


# --- As part of a model ----------------------------------------------------------------------------------------------


class TaggerConfig(PreTrainedConfig):
    model_type = "tagger_of_the_crf_test"


class Tagger(PreTrainedModel):
    """The least model that has a field."""

    config_class = TaggerConfig

    def __init__(self, config):
        super().__init__(config)
        self.crf = ElmoCrf([config.id2label[number] for number in range(config.num_labels)], "BIO")
        self.other = nn.Linear(2, 2)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, ElmoCrf):
            module.reset_parameters()


def test_saved_and_loaded(tmp_path):
    """The weights come from the file, what is allowed from the label names; loading goes through the meta device."""
    labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    model = Tagger(TaggerConfig(id2label=dict(enumerate(labels))))
    assert {name for name in model.state_dict() if "crf" in name} == {"crf.transitions", "crf.start", "crf.end"}
    model.save_pretrained(tmp_path)
    loaded, report = Tagger.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    for found, expected in zip(loaded.crf.allowed, allowed_transitions(labels, "BIO"), strict=True):
        assert found.device.type == "cpu"
        assert torch.equal(found, expected)
    emissions, mask = torch.randn(3, 7, 5), torch.ones(3, 7)
    assert torch.equal(loaded.crf.marginals(emissions, mask), model.crf.marginals(emissions, mask))
    assert torch.equal(loaded.crf.decode(emissions, mask), model.crf.decode(emissions, mask))


def test_missing_weights_are_initialised_on_loading(tmp_path):
    model = Tagger(TaggerConfig(id2label={0: "O", 1: "B-PER", 2: "I-PER"}))
    with torch.no_grad():
        model.crf.start.fill_(7.0)
    weights = {name: value for name, value in model.state_dict().items() if name != "crf.transitions"}
    model.save_pretrained(tmp_path, state_dict=weights)
    loaded, report = Tagger.from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == {"crf.transitions"}
    assert loaded.crf.start.tolist() == [7.0] * 3
    assert 0 < loaded.crf.transitions.abs().max() <= 0.1


def test_fresh_weights_are_small_and_differ():
    crf = ElmoCrf(["X"] * 20)
    for parameter in crf.parameters():
        assert parameter.requires_grad
        assert parameter.abs().max() <= 0.1
        assert parameter.std() > 0.02


def test_training_learns_the_order_of_labels():
    """With emissions that say nothing, what is left to learn are the transitions: X Y Z X Y Z ..."""
    crf = ElmoCrf(["X", "Y", "Z"])
    labels, mask = torch.arange(12).remainder(3).unsqueeze(0), torch.ones(1, 12)
    emissions = torch.zeros(1, 12, 3)
    optimizer = torch.optim.Adam(crf.parameters(), lr=0.3)
    for _ in range(60):
        optimizer.zero_grad()
        loss = -crf.log_likelihood(emissions, labels, mask).mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    assert torch.equal(crf.decode(emissions, mask), labels)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch warns about itself when it compiles
def test_compiled():
    crf = ElmoCrf(["O", "B-PER", "I-PER"], "BIO")
    linear = nn.Linear(4, 3)

    def loss_of(inputs, gold, mask):
        emissions = linear(inputs)
        return -crf.log_likelihood(emissions, gold, mask).sum(), crf.decode(emissions, mask)

    compiled = torch.compile(loss_of)
    for columns in (5, 3):
        mask = MASKS[:, :columns]
        inputs, gold = torch.randn(*mask.shape, 4), random_gold(crf, mask)
        (found, found_path), (expected, expected_path) = compiled(inputs, gold, mask), loss_of(inputs, gold, mask)
        assert_close(found, expected)
        assert torch.equal(found_path, expected_path)
        found.backward()
    assert crf.transitions.grad.abs().sum() > 0
