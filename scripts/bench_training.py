# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures a training step of the language model, beside the same step on the torch modules of AllenNLP 2.10.1.

A step is what `hf-elmo pretrain` does for one batch: words become character ids, each direction reads its own window
(128 rows of 20 words by default), a sampled softmax gives the losses, then come the gradients, their norm, and
Adagrad. AllenNLP's side is made of its `batch_to_ids`, character encoder, LSTM layers and sampled softmax, in the same
order. Both begin with the same weights, without dropout. They take turns; each figure is the median of the rounds,
with the range. Beside the ratio stand how far the first losses, over the whole vocabulary, are apart, what fraction of
the fastest matrix product on this machine ours reaches, and the peak memory of a process that does nothing else.

AllenNLP is imported by the tests' `originals.py`, so this needs a checkout of the repository.

Examples:
    python -m hf_elmo.scripts.bench_training --quick
    python -m hf_elmo.scripts.bench_training --threads 2 --output results/speed/bench_training.json
    python -m hf_elmo.scripts.bench_training --rows 32 --text news.txt
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, batch_to_ids
from hf_elmo.conversion import convert_allennlp

from .measuring import (
    SIZES,
    Sentences,
    add_common_arguments,
    in_a_process,
    memory,
    name_of,
    operations_of,
    originals,
    parse,
    product_speed,
    ratio,
    read_words,
    spread,
    take_turns,
    write_results,
)


class Setting(NamedTuple):
    """What is trained, on what."""

    size: str
    rows: int
    steps: int
    vocabulary: int
    sampled: int
    words: list[str]

    def windows(self) -> Iterator[tuple[Sentences, Tensor]]:
        """Words to read (rows, steps), with boundaries at the ends, and ids to predict; both directions take turns."""
        ids = {word: number % self.vocabulary for number, word in enumerate(dict.fromkeys(self.words))}
        inside = self.steps - 2
        start = 0
        while True:
            words = [self.words[(start + offset) % len(self.words)] for offset in range(self.rows * self.steps)]
            rows = [words[begin : begin + self.steps] for begin in range(0, len(words), self.steps)]
            yield (
                [["<S>", *row[:inside], "</S>"] for row in rows],
                torch.tensor([[ids[word] for word in row] for row in rows]),
            )
            start += len(words)

    def files(self, folder: Path) -> tuple[Path, Path]:
        original = originals()
        return original.write_random_weights(folder, original.elmo_options(**SIZES[self.size]))

    def softmax(self) -> Tensor:
        """The first weights of the softmax (V, P)."""
        size = SIZES[self.size]["projection"]
        return torch.randn(self.vocabulary, size, generator=torch.Generator().manual_seed(0)) * size**-0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="small", help="default: %(default)s")
    parser.add_argument("--rows", type=int, default=128, help="rows of a batch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="words of a row (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=100_000, help="words to predict (default: %(default)s)")
    parser.add_argument("--sampled", type=int, default=8192, help="words in a sample (default: %(default)s)")
    parser.add_argument("--text", type=Path, help="text to train on, words between spaces")
    add_common_arguments(parser, rounds=5)
    arguments = parse(parser)
    words = read_words(arguments.text)
    setting = (
        Setting("tiny", rows=4, steps=5, vocabulary=1000, sampled=100, words=words)
        if arguments.quick
        else Setting(arguments.size, arguments.rows, arguments.steps, arguments.vocabulary, arguments.sampled, words)
    )
    result = measure(setting, arguments.rounds)
    write_results(arguments, "bench_training", {"text": name_of(arguments.text), **result}, draw)


def draw(picture: Any, figures: dict[str, Any]) -> None:
    time, memory = picture.subplots(1, 2)
    programs = list(PROGRAMS)
    time.bar(programs, [figures[f"{name}_seconds"]["median"] for name in programs], color="#0072b2")
    time.set_ylabel("seconds a step")
    memory.bar(programs, [(figures["process_peak_bytes"][name] or 0) / 1e9 for name in programs], color="#d55e00")
    memory.set_ylabel("GB at the peak of the process")


# --- The two programs ------------------------------------------------------------------------------------------------


class Training(nn.Module):
    """Weights, an optimizer for them, and a step; subclasses know the loss."""

    optimizer: torch.optim.Optimizer
    windows: Iterator[tuple[Sentences, Tensor]]

    def get_ready(self, setting: Setting) -> None:
        self.train()
        self.windows = setting.windows()
        learning = [weight for weight in self.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.Adagrad(learning, lr=0.2, initial_accumulator_value=1.0, eps=0.0)

    def step(self) -> None:
        self.loss().backward()
        nn.utils.clip_grad_norm_(self.parameters(), 10.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def loss(self) -> Tensor:
        raise NotImplementedError


class OurTraining(Training):
    def __init__(self, setting: Setting, folder: Path):
        super().__init__()
        convert_allennlp(*setting.files(folder), folder / "converted")
        config = ElmoConfig.from_pretrained(
            folder / "converted",
            softmax="sampled",
            num_sampled=setting.sampled,
            vocab_size=setting.vocabulary + 1,
            pad_token_id=setting.vocabulary,
            dropout=0.0,
        )
        self.model = ElmoForPreTraining(config)
        self.model.elmo.load_state_dict(ElmoModel.from_pretrained(folder / "converted").state_dict())
        self.model.softmax.weight.data.copy_(setting.softmax())
        self.get_ready(setting)

    def loss(self) -> Tensor:
        (forward_words, forward_labels), (backward_words, backward_labels) = next(self.windows), next(self.windows)
        forward_ids, backward_ids = batch_to_ids(forward_words), batch_to_ids(backward_words)
        outputs = self.model.forward_stream(forward_ids, forward_labels, backward_ids, backward_labels)
        return cast(Tensor, outputs.loss)


class TheirTraining(Training):
    def __init__(self, setting: Setting, folder: Path):
        super().__init__()
        original = originals()
        module = original.original_elmo_module()
        bilm = module._ElmoBiLm(*map(str, setting.files(folder)), requires_grad=True)
        self.batch_to_ids = module.batch_to_ids
        self.encoder = bilm._token_embedder
        self.forward_layers = nn.ModuleList(bilm._elmo_lstm.forward_layers)
        self.backward_layers = nn.ModuleList(bilm._elmo_lstm.backward_layers)
        softmax = original._original_module("modules.sampled_softmax_loss").SampledSoftmaxLoss
        self.softmax = softmax(setting.vocabulary, SIZES[setting.size]["projection"], setting.sampled)
        self.softmax.softmax_w.data.copy_(setting.softmax())
        self.get_ready(setting)

    def loss(self) -> Tensor:
        forward = self._loss_of(self.forward_layers, *next(self.windows), from_the_end=False)
        return 0.5 * (forward + self._loss_of(self.backward_layers, *next(self.windows), from_the_end=True))

    def _loss_of(self, stack: nn.ModuleList, words: Sentences, labels: Tensor, from_the_end: bool) -> Tensor:
        """The loss of a direction. Its layers may read from the end, but a window stands in the order of reading."""
        inputs = self.encoder(self.batch_to_ids([row[1:-1] for row in words]))["token_embedding"]
        if from_the_end:
            inputs = inputs.flip(1)
        for number, layer in enumerate(stack):
            outputs, _ = layer(inputs, [inputs.shape[1]] * len(inputs))
            inputs = outputs + inputs if number > 0 else outputs
        outputs = inputs.flip(1) if from_the_end else inputs
        return self.softmax(outputs.flatten(0, 1), labels.flatten()) / labels.numel()


PROGRAMS: dict[str, type[OurTraining] | type[TheirTraining]] = {"allennlp": TheirTraining, "hf_elmo": OurTraining}


# --- Measuring -------------------------------------------------------------------------------------------------------


def measure(setting: Setting, rounds: int) -> dict[str, Any]:
    trainings = {}
    for name, program in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            trainings[name] = program(setting, Path(folder))
    losses = {name: first_loss(training) for name, training in trainings.items()}
    seconds = take_turns({name: training.step for name, training in trainings.items()}, rounds)
    trainings.clear()

    peak = product_speed(setting.size == "tiny")
    middle = statistics.median(seconds["hf_elmo"])
    result = {
        **setting._replace(words=[])._asdict(),
        **{f"{name}_seconds": spread(times) for name, times in seconds.items()},
        "ratio": ratio(seconds["allennlp"], seconds["hf_elmo"]),
        "first_losses": losses,
        "apart": abs(losses["allennlp"] - losses["hf_elmo"]),
        "product_flops": peak,
        "fraction_of_peak": round(operations_of_step(setting) / middle / peak, 3),
        "process_peak_bytes": {name: in_a_process(_peak_of_this_process, name, setting) for name in PROGRAMS},
    }
    del result["words"]
    ours, theirs = ((result["process_peak_bytes"][name] or 0) / 1e9 for name in ("hf_elmo", "allennlp"))
    print(
        f"{setting.size}, {setting.rows} x {setting.steps}: {result['ratio']['median']:.2f}x "
        f"({result['ratio']['lowest']:.2f} to {result['ratio']['highest']:.2f})   {middle:.2f} s a step   "
        f"{100 * result['fraction_of_peak']:.0f} % of peak   {ours:.2f} GB, AllenNLP {theirs:.2f} GB   "
        f"first losses {result['apart']:.1e} apart"
    )
    return result


@torch.no_grad()
def first_loss(training: Training) -> float:
    """The loss over the whole vocabulary, which has nothing random."""
    training.eval()
    loss = float(training.loss())
    training.train()
    return loss


def operations_of_step(setting: Setting) -> float:
    """Floating-point operations of the products of a step; a gradient needs two products for each."""
    windows = setting.windows()
    read = [row[1:-1] for _ in range(2) for row in next(windows)[0]]
    softmax = 2.0 * 2 * setting.rows * setting.steps * (setting.sampled + 1) * SIZES[setting.size]["projection"]
    return 3 * (operations_of(setting.size, read, directions=1) + softmax)


def _peak_of_this_process(name: str, setting: Setting) -> int:
    """The most memory that a process needs for two steps."""
    with tempfile.TemporaryDirectory() as folder:
        training = PROGRAMS[name](setting, Path(folder))
    for _ in range(2):
        training.step()
    return memory("VmHWM")  # not getrusage, which begins with what the parent process had


if __name__ == "__main__":
    main()
