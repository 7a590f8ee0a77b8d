"""Products by either library of torch, and when which of them is taken."""

import importlib.util
import platform
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from hf_elmo import fast_paths, products, recurrence
from hf_elmo.products import NEVER, add_product, inner_product, packed, product, rows_for_onednn
from hf_elmo.softmax import ElmoSoftmax


@pytest.fixture
def behind(monkeypatch) -> None:
    monkeypatch.setattr(products, "MKL_IS_BEHIND", True)


@pytest.fixture
def onednn_calls(monkeypatch) -> list[int]:
    """The rows of each product that oneDNN makes."""
    calls, multiply = [], products._by_onednn

    def watched(rows: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
        calls.append(len(rows))
        return multiply(rows, *others)

    monkeypatch.setattr(products, "_by_onednn", watched)
    return calls


@pytest.mark.promise("N9")
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 17])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_both_libraries_give_the_same(rows, by_columns, with_bias, onednn_calls):
    """Rows that are part of a wider matrix, and a weight that lies row by row or column by column."""
    generator = torch.Generator().manual_seed(rows)
    inputs = torch.randn(rows, 20, generator=generator)[:, 3:15]
    weight = torch.randn(8, 12, generator=generator).T if by_columns else torch.randn(12, 8, generator=generator)
    bias = torch.randn(8, generator=generator) if with_bias else None
    sums = torch.randn(rows, 8, generator=generator)
    expected = inputs.double() @ weight.double()
    for fewest in (0, NEVER):
        found = product(inputs, weight, bias, fewest)
        assert_close(found.double(), expected + (bias if with_bias else 0), atol=1e-5, rtol=1e-5)
        for packed_weight in (None, packed(weight)):
            added = sums.clone()
            add_product(added, inputs, weight, packed_weight, fewest, parts=1)
            assert_close(added.double(), sums + expected, atol=1e-5, rtol=1e-5)
    assert onednn_calls == [rows] * 3


@pytest.mark.promise("N9")
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 256, 300, 512])
@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (4, 4)])
def test_both_libraries_give_the_same_inner_products(rows, left, right, onednn_calls):
    """Of rows that are part of wider matrices."""
    generator = torch.Generator().manual_seed(rows)
    first, second = (torch.randn(rows, size + 2, generator=generator)[:, 1:-1] for size in (left, right))
    expected = first.double().T @ second.double()
    for fewest in (0, NEVER):
        assert_close(inner_product(first, second, fewest).double(), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.promise("N9")
@pytest.mark.parametrize(("columns", "parts"), [(5, 1), (6, 2), (12, 4)])
@pytest.mark.parametrize("rows", [1, 2])
def test_one_row_is_multiplied_in_parts(rows, columns, parts, monkeypatch):
    """Of gates that are part of a wider matrix."""
    inputs, weight, gates = torch.randn(rows, 4), torch.randn(4, columns), torch.randn(rows, columns + 3)
    sums, before = gates[:, 2 : 2 + columns], gates.clone()
    cut, split = [], products._in_parts
    monkeypatch.setattr(products, "_in_parts", lambda *arguments: cut.append(1) or split(*arguments))
    add_product(sums, inputs, weight, None, NEVER, parts)
    assert bool(cut) == (rows == 1 and parts > 1)
    assert_close(sums, before[:, 2 : 2 + columns] + inputs @ weight)
    assert torch.equal(gates[:, :2], before[:, :2])
    assert torch.equal(gates[:, 2 + columns :], before[:, 2 + columns :])


@pytest.mark.parametrize(
    ("columns", "parts"), [(5, 1), (6, 2), (4096, 2), (4100, 2), (8191, 1), (8192, 4), (12286, 2), (16384, 8)]
)
def test_parts_are_equal_and_come_in_pairs(columns, parts):
    assert products.parts_for_one_row(columns) == parts


@pytest.mark.parametrize("rows", [2, 3])
def test_mkl_makes_products_of_few_rows(rows, behind, onednn_calls):
    inputs, weight = torch.randn(rows, 4), torch.randn(4, 5)
    fewest = rows_for_onednn(inputs)
    product(inputs, weight, None, fewest)
    add_product(torch.zeros(rows, 5), inputs, weight, None, fewest, parts=1)
    assert onednn_calls == ([] if rows < 3 else [3, 3])


def test_mkl_makes_all_products_where_it_is_not_behind(monkeypatch):
    monkeypatch.setattr(products, "MKL_IS_BEHIND", False)
    assert rows_for_onednn(torch.zeros(9, 9)) == NEVER


@pytest.mark.usefixtures("behind")
def test_onednn_is_asked_for_what_it_can_do_only(monkeypatch):
    numbers = torch.zeros(9, 9)
    assert rows_for_onednn(numbers) == products.FEWEST_ROWS_FOR_ONEDNN
    assert rows_for_onednn(numbers.double()) == NEVER
    assert rows_for_onednn(numbers.to("meta")) == NEVER
    with monkeypatch.context() as context:
        context.setattr(torch.backends.mkldnn, "enabled", False)
        assert rows_for_onednn(numbers) == NEVER
    with FlopCounterMode(display=False):
        assert rows_for_onednn(numbers) == NEVER
    monkeypatch.setattr(products, "HAS_ONEDNN", False)
    assert rows_for_onednn(numbers) == NEVER


def test_a_torch_without_onednn(monkeypatch):
    """The module can be imported, and its functions can be run without Python."""
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    spec = importlib.util.spec_from_file_location("products_without_onednn", products.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows, weight = torch.randn(4, 5), torch.randn(5, 6)
    assert torch.equal(module.product(rows, weight, None, module.rows_for_onednn(rows)), rows @ weight)
    with pytest.raises(RuntimeError, match="has no oneDNN"):
        module.product(rows, weight, None, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: an EPYC\nvendor_id\t: other\n", "AuthenticAMD"),
        ("vendor_id\t: GenuineIntel\n", "GenuineIntel"),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", ""),
    ],
)
def test_who_made_the_processor(text, expected, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda path, **_: text)
    assert products._maker_of_processor() == expected


def test_who_made_the_processor_where_there_is_no_list_of_them(monkeypatch):
    def missing(path: Path, **_: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(platform, "processor", lambda: "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD")
    assert "AMD" in products._maker_of_processor()


def test_onednn_writes_few_programs(monkeypatch):
    numbers, multiply = set(), products._linear

    def watched(rows: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
        numbers.add(len(rows))
        return multiply(rows, *others)

    monkeypatch.setattr(products, "_linear", watched)
    weight = torch.randn(3, 2)
    for rows in range(1, 81):
        assert product(torch.randn(rows, 3), weight, None, 0).shape == (rows, 2)
    assert numbers == {*range(4, 33, 4), 48, 64, 80}


@pytest.mark.promise("N9")
def test_inner_products_of_rows_that_overlap():
    rows, others = torch.randn(48).as_strided((20, 8), (2, 1)), torch.randn(20, 6)
    assert_close(inner_product(rows, others, 0), inner_product(rows, others, NEVER), atol=1e-5, rtol=1e-5)
    assert_close(inner_product(others, rows, 0), inner_product(others, rows, NEVER), atol=1e-5, rtol=1e-5)


def test_onednn_writes_few_programs_for_inner_products(monkeypatch):
    shapes, multiply = set(), products._linear

    def watched(left: torch.Tensor, right: torch.Tensor, bias: None) -> torch.Tensor:
        shapes.add((len(left), left.shape[1], len(right)))
        return multiply(left, right, bias)

    monkeypatch.setattr(products, "_linear", watched)
    for rows in range(1, 1100):
        assert inner_product(torch.randn(rows, 3), torch.randn(rows, 2), 0).shape == (3, 2)
    assert shapes == {(2, rows, 3) for rows in (*range(16, 513, 16), 768, 1024)}


# --- Who asks --------------------------------------------------------------------------------------------------------


@pytest.mark.promise("N9")
@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize("words", [1, 2, 9])
def test_a_linear_layer(words, onednn_calls):
    layer = torch.nn.Linear(6, 12).requires_grad_(False)
    inputs = torch.randn(words, 6)
    assert_close(fast_paths.linear(layer, inputs), layer(inputs), atol=1e-6, rtol=1e-6)
    assert onednn_calls == ([9] if words == 9 else [])


def _with_hook(layer: torch.nn.Linear) -> torch.nn.Linear:
    layer.register_forward_hook(lambda module, given, found: found + 1)
    return layer


@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.Linear(6, 12, bias=False).requires_grad_(False),
        torch.nn.Linear(6, 12).requires_grad_(False).double(),
        _with_hook(torch.nn.Linear(6, 12).requires_grad_(False)),
    ],
    ids=["no bias", "double precision", "a hook"],
)
def test_layers_that_are_called_as_they_are(layer, onednn_calls):
    inputs = torch.randn(9, 6, dtype=layer.weight.dtype)
    assert torch.equal(fast_paths.linear(layer, inputs), layer(inputs))
    assert onednn_calls == []


@pytest.mark.promise("N9")
@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize("frozen", ["nothing", "inputs", "weight", "bias"])
def test_a_linear_layer_with_a_gradient(frozen, onednn_calls):
    layer, inputs = torch.nn.Linear(6, 12), torch.randn(37, 6, requires_grad=frozen != "inputs")
    layer.weight.requires_grad_(frozen != "weight")
    layer.bias.requires_grad_(frozen != "bias")
    learning = [tensor for tensor in (inputs, *layer.parameters()) if tensor.requires_grad]
    found, expected = fast_paths.linear(layer, inputs), layer(inputs)
    assert_close(found, expected, atol=1e-6, rtol=1e-6)
    gradients = [torch.autograd.grad(result.sin().sum(), learning) for result in (found, expected)]
    assert_close(*gradients, atol=1e-5, rtol=1e-5)
    assert onednn_calls == ([37] if frozen == "inputs" else [37, 37])
    found = fast_paths.linear(layer, inputs)
    assert torch.equal(found.clone().relu_(), found.relu_())  # which is not possible with a part of a larger result


@pytest.mark.promise("N9")
@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_the_softmax(kind, onednn_calls):
    softmax = ElmoSoftmax(50, 6, kind=kind, num_sampled=20)
    hidden, targets = torch.randn(37, 6, requires_grad=True), torch.arange(37)
    learning = [hidden, *softmax.parameters()]

    def losses_and_gradients() -> list[torch.Tensor]:
        losses = softmax.losses(hidden, targets, torch.Generator().manual_seed(0))
        return [losses, *torch.autograd.grad(losses.sum(), learning)]

    found = losses_and_gradients()
    assert onednn_calls == [37] * 3  # scores, scores again, and the gradient of what they are predicted from
    with fast_paths.plain_path():
        expected = losses_and_gradients()
    assert len(onednn_calls) == 3
    assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.promise("N9")
@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize(("sizes", "expected"), [([3] * 24, 1), ([3] * 23 + [2], 0), ([2] * 30, 0)])
def test_weights_are_packed_for_many_steps(sizes, expected, monkeypatch):
    """Steps of fewer rows do not count: oneDNN does not multiply them."""
    calls = []
    monkeypatch.setattr(recurrence, "packed", lambda weight: calls.append(1) or packed(weight))
    layer = recurrence.LstmWeights(torch.randn(8, 16), torch.randn(8, 16), torch.randn(16), torch.randn(4, 8), 3, 3)
    inputs, hidden, cell = torch.randn(sum(sizes), 8), torch.randn(sizes[0], 8), torch.randn(sizes[0], 4)
    found = recurrence.read_without_gradient(layer, inputs, sizes, hidden, cell)
    assert len(calls) == expected
    monkeypatch.setattr(products, "MKL_IS_BEHIND", False)
    assert_close(found, recurrence.read_without_gradient(layer, inputs, sizes, hidden, cell), atol=1e-5, rtol=1e-5)
