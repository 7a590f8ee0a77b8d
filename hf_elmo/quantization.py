# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Smaller weights for reading on a processor: `quantize(model, "int8")` or `quantize(model, "float16")`.

One sentence is read as fast as the weights of the LSTMs come out of the memory. Weights of a quarter or half of the
size come sooner, and those of one layer then fit the processor's cache, where they stay from word to word. What is
packed are the products of the LSTMs, of the highway layers and of the projection of the words; all else is as before.

- `"int8"`: each output of a product has its own scale for its weights, 255 steps. Each row of the inputs has its own
  scale, too, 127 steps: more would not fit the sums of two products that processors without VNNI keep in 16 bits. So
  a sentence does not depend on what else is in its batch. The sums are whole numbers, and exact.
- `"float16"`: only the weights are rounded; the sums are of single precision.

Both are torch's own products, made by FBGEMM, which is for x86 processors with AVX2.

Shapes as in modeling_elmo.py.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, cast, get_args

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from .configuration_elmo import ElmoConfig
from .fast_paths import needs_gradient
from .modeling_elmo import ElmoLstmLayer
from .modeling_elmo_words import ElmoWordEncoder

Quantization: TypeAlias = Literal["int8", "float16"]
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)

ENGINE = "fbgemm"
LARGEST_WEIGHT = 127
LARGEST_INPUT = 127  # of inputs that are never negative; others go from -63 to 63
LARGEST_FLOAT16 = 65504.0
# The gates of the inputs are computed for about this many words at a time, so that their memory is bounded.
WORDS_PER_PIECE = 256

_packing = threading.Lock()  # the engine is a setting of the whole process

Model = TypeVar("Model", bound=nn.Module)


def quantize(model: Model, to: Quantization = "int8") -> Model:
    """Packs the weights of an ELMo model for faster reading on a CPU, in place, and returns it.

    By how much the vectors then differ, and how much faster they come, is measured for a model of yours by `python -m
    hf_elmo.scripts.bench_quantization --model my-elmo --text news.txt`. The model reads only: it cannot be trained
    below the mix of its layers, moved, saved or copied into another one, and there is no way back. Load it again for
    that.

    Args:
        model: An `ElmoModel`, or a model with a head, whose encoder is packed. Single precision, on the CPU.
        to: `"int8"` or `"float16"`.
    """
    if to not in QUANTIZATIONS:
        raise ValueError(f"quantize={to!r} is not possible: it is {', '.join(map(repr, QUANTIZATIONS))}.")
    encoder: Any = getattr(model, "base_model", model)  # custom code of a folder has classes of its own
    if getattr(getattr(encoder, "config", None), "model_type", None) != ElmoConfig.model_type:
        raise ValueError(f"model is a {type(model).__name__}, but only ELMo models can be quantised here.")
    _check(encoder)
    encoder.character_encoder.requires_grad_(False)
    encoder.bilstm.requires_grad_(False)
    _pack_words(encoder.character_encoder, to)
    for stack in (encoder.bilstm.forward_layers, encoder.bilstm.backward_layers):
        for number, layer in enumerate(stack):
            stack[number] = PackedLstmLayer(cast(ElmoLstmLayer, layer), to)
    return model


def is_quantized(model: nn.Module) -> bool:
    """Whether `quantize` was called for this model."""
    return any(isinstance(module, _Packed) for module in model.modules())


def _check(encoder: PreTrainedModel) -> None:
    if is_quantized(encoder):
        raise ValueError("The model is quantised already. To quantise it in another way, load it again.")
    if encoder.device.type != "cpu":
        raise ValueError(f"The model is on {encoder.device}, but only models on the CPU can be quantised.")
    if encoder.dtype != torch.float32:
        raise ValueError(
            f"The model has the precision {encoder.dtype}, but torch.float32 is needed: load it with "
            "dtype=torch.float32."
        )
    if ENGINE not in torch.backends.quantized.supported_engines:
        raise ValueError(
            "This torch has no quantised products for this processor (FBGEMM, for x86 processors with AVX2): use the "
            "model as it is."
        )
    for name, weight in encoder.named_parameters():
        if not bool(weight.isfinite().all()):
            raise ValueError(f"{name} has values that are not finite: such a model cannot be quantised.")


def _pack_words(encoder: ElmoWordEncoder, to: Quantization) -> None:
    if encoder.word_input == "words":
        return  # its projection is small beside the table
    never_negative = encoder.activation is torch.relu  # a highway layer keeps it so
    for highway in encoder.highways:
        for name in ("carry", "transform"):
            setattr(highway, name, PackedLinear(getattr(highway, name), to, never_negative))
    if isinstance(encoder.projection, nn.Linear):
        alone = encoder.word_input == "characters"
        packed = PackedLinear(encoder.projection, to, never_negative and alone)
        encoder.add_module("projection", packed)


# --- Products --------------------------------------------------------------------------------------------------------


class Int8Product:
    """Inputs (N, in) times a matrix (out, in) of which whole numbers are kept."""

    def __init__(self, weight: Tensor, never_negative: bool = False):
        scales = weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / LARGEST_WEIGHT  # (out,)
        zeros = torch.zeros(len(scales), dtype=torch.long)
        with _fbgemm():
            packed = torch.quantize_per_channel(weight.contiguous(), scales.double(), zeros, 0, torch.qint8)
            self._packed = torch.ops.quantized.linear_prepack(packed, None)
        self._zero = 0 if never_negative else LARGEST_INPUT // 2 + 1
        self._largest = LARGEST_INPUT - self._zero

    def __call__(self, inputs: Tensor) -> Tensor:
        scales = torch.linalg.vector_norm(inputs, float("inf"), dim=1, keepdim=True)  # (N, 1)
        scales.clamp_min_(torch.finfo(inputs.dtype).tiny)
        product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            inputs / scales, 1 / self._largest, self._zero, self._packed
        )
        return product.mul_(scales)


class Float16Product:
    """Inputs (N, in) times a matrix (out, in) that is kept in half precision."""

    def __init__(self, weight: Tensor, never_negative: bool = False):
        with _fbgemm():
            self._packed = torch.ops.quantized.linear_prepack_fp16(
                weight.clamp(-LARGEST_FLOAT16, LARGEST_FLOAT16).contiguous(), None
            )

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(inputs, self._packed)


PRODUCTS: dict[str, type[Int8Product] | type[Float16Product]] = {"int8": Int8Product, "float16": Float16Product}


@contextmanager
def _fbgemm() -> Iterator[None]:
    """Packs for FBGEMM, without torch's advice to give up its quantised tensors: nothing else is as fast."""
    with _packing, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions.*are deprecated")
        before = torch.backends.quantized.engine
        torch.backends.quantized.engine = ENGINE
        try:
            yield
        finally:
            torch.backends.quantized.engine = before


# --- Layers ----------------------------------------------------------------------------------------------------------


class _Packed(nn.Module):
    """A layer whose weights are packed: it stays where it is, and what it is."""

    bias: Tensor

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> NoReturn:
        raise ValueError(
            "A quantised model cannot be saved, as the weights it came from are gone: save the model before it is "
            "quantised, and quantise it whenever it is loaded."
        )

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError("Weights cannot be loaded into a quantised model: load them first, then quantise.")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "_Packed":
        moved = fn(torch.empty(0))
        if moved.device.type != "cpu" or moved.dtype != torch.float32:
            raise ValueError(
                f"A quantised model stays on the CPU and in float32, but {moved.dtype} on {moved.device} is asked "
                "for: load the model again, without quantize."
            )
        return cast(_Packed, super()._apply(fn, recurse))

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Packed":
        return self  # nothing of it ever changes


class PackedLinear(_Packed):
    """As nn.Linear."""

    def __init__(self, linear: nn.Linear, to: Quantization, never_negative: bool):
        super().__init__()
        self.product = PRODUCTS[to](linear.weight.detach(), never_negative)
        self.register_buffer("bias", linear.bias.detach(), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        _check_no_gradient(inputs)
        return self.product(inputs.float()).add_(self.bias).to(inputs.dtype)


class PackedLstmLayer(_Packed):
    """As ElmoLstmLayer."""

    def __init__(self, layer: ElmoLstmLayer, to: Quantization):
        super().__init__()
        weights = layer.weights()
        product = PRODUCTS[to]
        self.cell_clip, self.projection_clip = weights.cell_clip, weights.projection_clip
        self.from_input = product(weights.input_weight.detach().T)
        self.from_hidden = product(weights.recurrent_weight.detach().T)
        self.projection = None
        if weights.projection_weight is not None:
            self.projection = product(weights.projection_weight.detach().T)
        self.register_buffer("bias", weights.bias.detach(), persistent=False)

    @torch.compiler.disable
    def forward(
        self, inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Reads packed words (N, P) from the state `hidden` (B, P), `cell` (B, H); returns outputs and final state."""
        _check_no_gradient(inputs, hidden, cell)
        outputs = torch.empty_like(inputs, dtype=torch.float32)
        last_hidden, last_cell = hidden.float().clone(), cell.float().clone()
        hidden = last_hidden
        start = 0
        for gates in self._gates_of_inputs(inputs.float(), batch_sizes):  # (rows, 4H)
            rows = len(gates)
            if rows < len(hidden):  # the shortest sentences have ended
                last_hidden[rows : len(hidden)] = hidden[rows:]
            output = outputs[start : start + rows]
            output.copy_(self._step(gates, hidden[:rows], last_cell[:rows]))
            hidden, start = output, start + rows
        last_hidden[: len(hidden)] = hidden
        return outputs, last_hidden, last_cell

    def _gates_of_inputs(self, inputs: Tensor, batch_sizes: list[int]) -> Iterator[Tensor]:
        """What the words (N, P) give to the gates, step by step."""
        steps = list(inputs.split(batch_sizes))
        while steps:
            count = max(WORDS_PER_PIECE // len(steps[0]), 1)
            piece, steps = steps[:count], steps[count:]
            gates = self.from_input(torch.cat(piece)).add_(self.bias)
            yield from gates.split([len(words) for words in piece])

    def _step(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> Tensor:
        """The next hidden state (rows, P); the cell (rows, H) is overwritten."""
        gates = self.from_hidden(hidden).add_(gates)
        gates[:, : 3 * cell.shape[1]].sigmoid_()
        input_gate, forget_gate, output_gate, candidate = gates.chunk(4, dim=1)
        cell.mul_(forget_gate).add_(candidate.tanh_().mul_(input_gate))
        if self.cell_clip is not None:
            cell.clamp_(-self.cell_clip, self.cell_clip)
        value = torch.tanh(cell).mul_(output_gate)
        if self.projection is None:
            return value
        output = self.projection(value)
        return output if self.projection_clip is None else output.clamp_(-self.projection_clip, self.projection_clip)


def _check_no_gradient(*inputs: Tensor) -> None:
    if needs_gradient(inputs):
        raise ValueError(
            "A quantised model has no gradient: call it under torch.no_grad(), or load it without quantize."
        )


__all__ = ["is_quantized", "quantize"]
