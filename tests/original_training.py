"""The training of the original ELMo program (bilm-tf), computed a second time in plain steps, in float64.

Nothing here comes from the library: not the characters, the packing, the model, the loss, the clip or the optimizer.
Parameters are a dictionary under the original's names and in its layout. Only derivatives are left to autograd.

Shape letters: B rows, S steps of a window, N = B * S words, W characters per word, E character dimension, F filters in
all, P projection, C cell, V words of the vocabulary, K candidates.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

Parameters = dict[str, Tensor]
LayerState = tuple[Tensor, Tensor]  # cell (B, C) and hidden (B, P)
Candidates = tuple[Sequence[int], int]  # the different words that were drawn, and in how many draws


@dataclass(frozen=True)
class Recipe:
    """What does not show in the parameters' shapes. A clip of None cuts nothing."""

    activation: str = "relu"
    cell_clip: float | None = 3.0
    projection_clip: float | None = 3.0
    use_skip_connections: bool = True
    forget_bias: float = 1.0
    learning_rate: float = 0.2
    initial_accumulator: float = 1.0
    clip_norm: float = 10.0
    norm_offset: float = 0.0  # torch's clip has 1e-6 here


# --- Sentences to windows --------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """What one direction reads in one step of training, in its own order."""

    characters: Tensor  # (B, S, W), from 0 to 260
    targets: Tensor  # (B, S), word ids


def characters_of(word: str, width: int) -> list[int]:
    """Begin of word, its bytes, end of word, and padding up to the width."""
    boundaries = {"<S>": [256], "</S>": [257]}
    inside = boundaries.get(word, list(word.encode("utf-8"))[: width - 2])
    row = [258, *inside, 259]
    return row + [260] * (width - len(row))


def windows(
    sentences: Iterable[Sequence[str]],
    vocabulary: Sequence[str],
    rows: int,
    steps: int,
    reverse: bool,
    width: int = 50,
) -> Iterator[Window]:
    """Rows of `steps` words each, which take the next sentence from one stream whenever they run out.

    A sentence of n words gives n + 1 predictions. What is left of it goes on in its row. A last window that cannot be
    filled is dropped.
    """
    number_of = {word: number for number, word in enumerate(vocabulary)}
    unread = iter(sentences)
    rows_left: list[list[tuple[str, str]]] = [[] for _ in range(rows)]  # words and the words they predict
    while True:
        for row in rows_left:
            while len(row) < steps:
                sentence = next(unread, None)
                if sentence is None:
                    return
                words = ["<S>", *sentence, "</S>"]
                if reverse:
                    words.reverse()
                row.extend(pairwise(words))
        now = [row[:steps] for row in rows_left]
        rows_left = [row[steps:] for row in rows_left]
        unknown = number_of["<UNK>"]
        yield Window(
            torch.tensor([[characters_of(word, width) for word, _ in row] for row in now]),
            torch.tensor([[number_of.get(target, unknown) for _, target in row] for row in now]),
        )


# --- The model -------------------------------------------------------------------------------------------------------


def word_vectors(parameters: Parameters, recipe: Recipe, characters: Tensor) -> Tensor:
    """(N, W) to (N, P)."""
    embedded = parameters["char_embed"][characters]  # (N, W, E)
    features = []
    for i in range(_count(parameters, "CNN/W_cnn_{}")):
        kernel = parameters[f"CNN/W_cnn_{i}"][0]  # (width, E, count)
        width = len(kernel)
        places = [
            torch.einsum("nwe,wec->nc", embedded[:, place : place + width], kernel)
            for place in range(embedded.shape[1] - width + 1)
        ]
        convolved = torch.stack(places) + parameters[f"CNN/b_cnn_{i}"]  # (places, N, count)
        features.append({"relu": torch.relu, "tanh": torch.tanh}[recipe.activation](convolved).amax(dim=0))
    x = torch.cat(features, dim=1)  # (N, F)
    for k in range(_count(parameters, "CNN_high_{}/W_carry")):
        high = f"CNN_high_{k}"
        carry = torch.sigmoid(x @ parameters[f"{high}/W_carry"] + parameters[f"{high}/b_carry"])
        transformed = torch.relu(x @ parameters[f"{high}/W_transform"] + parameters[f"{high}/b_transform"])
        x = carry * transformed + (1 - carry) * x
    return x @ parameters["CNN_proj/W_proj"] + parameters["CNN_proj/b_proj"]


def read_window(
    parameters: Parameters, recipe: Recipe, direction: int, characters: Tensor, state: list[LayerState]
) -> tuple[Tensor, list[LayerState]]:
    """The top layer (B, S, P) of one direction (0 forward, 1 backward), and the state after the last step."""
    rows, steps, _ = characters.shape
    vectors = word_vectors(parameters, recipe, characters.flatten(0, 1)).unflatten(0, (rows, steps))  # (B, S, P)
    state = list(state)
    top = []
    for step in range(steps):
        x = vectors[:, step]
        for layer, (cell, hidden) in enumerate(state):
            cell, hidden = state[layer] = _lstm_step(parameters, recipe, _cell_name(direction, layer), x, cell, hidden)
            x = hidden + x if layer > 0 and recipe.use_skip_connections else hidden
        top.append(x)
    return torch.stack(top, dim=1), state


def _lstm_step(
    parameters: Parameters, recipe: Recipe, name: str, x: Tensor, cell: Tensor, hidden: Tensor
) -> LayerState:
    gates = torch.cat([x, hidden], dim=1) @ parameters[f"{name}/W_0"] + parameters[f"{name}/B"]
    entry, candidate, forget, output = gates.chunk(4, dim=1)
    cell = torch.sigmoid(forget + recipe.forget_bias) * cell + torch.sigmoid(entry) * torch.tanh(candidate)
    cell = _clip(cell, recipe.cell_clip)
    hidden = (torch.sigmoid(output) * torch.tanh(cell)) @ parameters[f"{name}/W_P_0"]
    return cell, _clip(hidden, recipe.projection_clip)


def _clip(values: Tensor, limit: float | None) -> Tensor:
    return values if limit is None else values.clamp(-limit, limit)


def _cell_name(direction: int, layer: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def _count(parameters: Mapping[str, Tensor], pattern: str) -> int:
    """How many parameters there are with the numbers 0, 1, 2, ... in this pattern."""
    return next(number for number in range(len(parameters) + 1) if pattern.format(number) not in parameters)


# --- The loss --------------------------------------------------------------------------------------------------------


def full_losses(parameters: Parameters, top: Tensor, targets: Tensor) -> Tensor:
    """Of each word (N,), from the top layer (N, P)."""
    scores = top @ parameters["softmax/W"].T + parameters["softmax/b"]  # (N, V)
    own = scores[torch.arange(len(targets)), targets]
    return torch.logsumexp(scores, dim=1) - own


def sampled_losses(parameters: Parameters, top: Tensor, targets: Tensor, candidates: Candidates) -> Tensor:
    """The same, where a word's rivals are the candidates only, and scores are less the log of their expected count."""
    words, tries = candidates
    weight, bias = parameters["softmax/W"], parameters["softmax/b"]

    def log_expected_count(word: int) -> float:
        chance = math.log((word + 2) / (word + 1)) / math.log(len(weight) + 1)
        return math.log(chance * tries if tries == len(words) else 1 - (1 - chance) ** tries)

    losses = []
    for vector, target in zip(top, targets.tolist(), strict=True):
        rivals = [word for word in words if word != target]  # without the accidental hit
        scores = torch.stack(
            [weight[word] @ vector + bias[word] - log_expected_count(word) for word in [target, *rivals]]
        )
        losses.append(torch.logsumexp(scores, dim=0) - scores[0])
    return torch.stack(losses)


# --- Training --------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """What a step of training was like."""

    forward_loss: float
    backward_loss: float
    gradients: Parameters  # before they are clipped
    norm: float  # of all of them together


class OriginalTraining:
    """Trains the parameters, window after window; `parameters` are those after the last one."""

    def __init__(self, parameters: Mapping[str, Tensor], recipe: Recipe):
        self.recipe = recipe
        self.parameters = {name: value.detach().double().clone() for name, value in parameters.items()}
        self.accumulators = {
            name: torch.full_like(value, recipe.initial_accumulator) for name, value in self.parameters.items()
        }
        self.states: list[list[LayerState]] | None = None  # of both directions

    def losses(
        self,
        parameters: Parameters,
        both: tuple[Window, Window],
        candidates: tuple[Candidates, Candidates] | None = None,
    ) -> tuple[Tensor, Tensor, list[list[LayerState]]]:
        """The mean loss of each direction, and the states after the windows; changes nothing."""
        means, states = [], []
        before = self.states or [self._zero_state(len(both[0].targets)) for _ in both]
        for direction, window in enumerate(both):
            top, state = read_window(parameters, self.recipe, direction, window.characters, before[direction])
            top, targets = top.flatten(0, 1), window.targets.flatten()
            if candidates is None:
                means.append(full_losses(parameters, top, targets).mean())
            else:
                means.append(sampled_losses(parameters, top, targets, candidates[direction]).mean())
            states.append(state)
        return means[0], means[1], states

    def step(self, forward: Window, backward: Window, candidates: tuple[Candidates, Candidates] | None = None) -> Step:
        """One step, with the full softmax, or with the candidates of the forward and of the backward direction."""
        unroll_steps = forward.targets.shape[1]
        trained = {name: value.clone().requires_grad_() for name, value in self.parameters.items()}
        forward_loss, backward_loss, states = self.losses(trained, (forward, backward), candidates)
        objective = unroll_steps * 0.5 * (forward_loss + backward_loss)
        gradients = dict(zip(trained, torch.autograd.grad(objective, list(trained.values())), strict=True))
        self.states = [[(cell.detach(), hidden.detach()) for cell, hidden in state] for state in states]

        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        factor = min(1.0, self.recipe.clip_norm / (norm + self.recipe.norm_offset))
        for name, gradient in gradients.items():
            clipped = factor * gradient
            self.accumulators[name] = self.accumulators[name] + clipped**2
            change = self.recipe.learning_rate * clipped / torch.sqrt(self.accumulators[name])
            self.parameters[name] = self.parameters[name] - change
        return Step(forward_loss.item(), backward_loss.item(), gradients, norm)

    def _zero_state(self, rows: int) -> list[LayerState]:
        layers = _count(self.parameters, _cell_name(0, 0).replace("Cell0", "Cell{}") + "/W_P_0")
        cell, projection = self.parameters[f"{_cell_name(0, 0)}/W_P_0"].shape
        zeros = self.parameters["char_embed"].new_zeros
        return [(zeros(rows, cell), zeros(rows, projection)) for _ in range(layers)]


# --- Between the names of the library's model and the original's -----------------------------------------------------


def to_original(weights: Mapping[str, Tensor]) -> Parameters:
    """Weights of an `ElmoForPreTraining` under the original's names; the mixes, which nothing trains, are left out."""
    weights = {name.removeprefix("elmo."): value.detach().double() for name, value in weights.items()}
    encoder = "character_encoder"
    parameters = {
        "char_embed": weights[f"{encoder}.embedding.weight"],
        "CNN_proj/W_proj": weights[f"{encoder}.projection.weight"].T,
        "CNN_proj/b_proj": weights[f"{encoder}.projection.bias"],
        "softmax/W": weights["softmax.weight"],
        "softmax/b": weights["softmax.bias"],
    }
    for i in range(_count(weights, encoder + ".convolutions.{}.bias")):
        parameters[f"CNN/W_cnn_{i}"] = weights[f"{encoder}.convolutions.{i}.weight"].permute(2, 1, 0)[None]
        parameters[f"CNN/b_cnn_{i}"] = weights[f"{encoder}.convolutions.{i}.bias"]
    for k in range(_count(weights, encoder + ".highways.{}.carry.bias")):
        for part in ("carry", "transform"):
            parameters[f"CNN_high_{k}/W_{part}"] = weights[f"{encoder}.highways.{k}.{part}.weight"].T
            parameters[f"CNN_high_{k}/b_{part}"] = weights[f"{encoder}.highways.{k}.{part}.bias"]
    for direction, stack in enumerate(("bilstm.forward_layers", "bilstm.backward_layers")):
        for layer in range(_count(weights, stack + ".{}.bias")):
            theirs, ours = _cell_name(direction, layer), f"{stack}.{layer}"
            both = torch.cat([weights[f"{ours}.input_weight"], weights[f"{ours}.recurrent_weight"]])
            parameters[f"{theirs}/W_0"] = _gates(both, "ifoj", "ijfo")
            parameters[f"{theirs}/B"] = _gates(weights[f"{ours}.bias"], "ifoj", "ijfo")
            parameters[f"{theirs}/W_P_0"] = weights[f"{ours}.projection_weight"]
    return parameters


def from_original(parameters: Mapping[str, Tensor]) -> Parameters:
    """The way back."""
    encoder = "elmo.character_encoder"
    weights = {
        f"{encoder}.embedding.weight": parameters["char_embed"],
        f"{encoder}.projection.weight": parameters["CNN_proj/W_proj"].T,
        f"{encoder}.projection.bias": parameters["CNN_proj/b_proj"],
        "softmax.weight": parameters["softmax/W"],
        "softmax.bias": parameters["softmax/b"],
    }
    for i in range(_count(parameters, "CNN/W_cnn_{}")):
        weights[f"{encoder}.convolutions.{i}.weight"] = parameters[f"CNN/W_cnn_{i}"][0].permute(2, 1, 0)
        weights[f"{encoder}.convolutions.{i}.bias"] = parameters[f"CNN/b_cnn_{i}"]
    for k in range(_count(parameters, "CNN_high_{}/W_carry")):
        for part in ("carry", "transform"):
            weights[f"{encoder}.highways.{k}.{part}.weight"] = parameters[f"CNN_high_{k}/W_{part}"].T
            weights[f"{encoder}.highways.{k}.{part}.bias"] = parameters[f"CNN_high_{k}/b_{part}"]
    for direction, stack in enumerate(("elmo.bilstm.forward_layers", "elmo.bilstm.backward_layers")):
        for layer in range(_count(parameters, _cell_name(direction, 0).replace("Cell0", "Cell{}") + "/B")):
            theirs, ours = _cell_name(direction, layer), f"{stack}.{layer}"
            both = _gates(parameters[f"{theirs}/W_0"], "ijfo", "ifoj")
            weights[f"{ours}.input_weight"], weights[f"{ours}.recurrent_weight"] = both.chunk(2)
            weights[f"{ours}.bias"] = _gates(parameters[f"{theirs}/B"], "ijfo", "ifoj")
            weights[f"{ours}.projection_weight"] = parameters[f"{theirs}/W_P_0"]
    return weights


def _gates(values: Tensor, old: str, new: str) -> Tensor:
    """The quarters of the last axis in another order: input, candidate j, forget, output."""
    quarters = dict(zip(old, values.chunk(4, dim=-1), strict=True))
    return torch.cat([quarters[gate] for gate in new], dim=-1)


# --- A whole run of training -----------------------------------------------------------------------------------------


class Run(NamedTuple):
    """What a run of training should have come to."""

    weights: Parameters  # all weights of the model after the last step, under the library's names, float64
    steps: list[Step]


def run_recomputation(
    folder_before: Path,
    corpus_lines: Iterable[str],
    vocabulary: Sequence[str],
    *,
    rows: int,
    unroll_steps: int,
    num_updates: int,
    draw: Callable[[], Candidates] | None = None,
    **recipe: float,
) -> Run:
    """Trains the model of a folder as the original would.

    Args:
        folder_before: A saved `ElmoForPreTraining` without dropout: config.json and model.safetensors.
        corpus_lines: Sentences in the order of reading, none of them blank.
        vocabulary: Words in the order of their ids, without padding.
        rows: Rows of a batch.
        unroll_steps: Words of a row in a step.
        num_updates: Steps of training; the corpus must be long enough for them.
        draw: Gives the candidates of a sampled softmax, once for each direction, forward first; by default the softmax
            is full.
        recipe: `learning_rate`, `initial_accumulator` and `clip_norm`, if not as the original's.
    """
    config = json.loads((folder_before / "config.json").read_text(encoding="utf-8"))
    before = load_file(folder_before / "model.safetensors")
    training = OriginalTraining(
        to_original(before),
        Recipe(
            activation=config["char_cnn_activation"],
            cell_clip=config["cell_clip"],
            projection_clip=config["projection_clip"],
            use_skip_connections=config["use_skip_connections"],
            **recipe,
        ),
    )
    sentences = [line.split() for line in corpus_lines]
    streams = [
        windows(sentences, vocabulary, rows, unroll_steps, reverse, config["max_characters_per_token"])
        for reverse in (False, True)
    ]
    steps = [
        training.step(next(streams[0]), next(streams[1]), (draw(), draw()) if draw else None)
        for _ in range(num_updates)
    ]
    return Run({name: value.double() for name, value in before.items()} | from_original(training.parameters), steps)
