# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures for model cards, from the results files that the commands of hf-elmo write.

A figure is taken as it stands in its file, and the card names the file and the command. Nothing is measured here.
"""

import math
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult

from .model_card import _block, _code, _one_line
from .strict_json import read_object

HEADING = "## Results"
LARGEST_FILE = 2**24  # bytes; results files have some thousands

# What `hf-elmo finetune` trains: its name, the Hub's word for it, and a name for people.
TASKS = {
    "tag": ("token-classification", "Labels of words"),
    "classify": ("text-classification", "Labels of texts"),
}
PROBES = {
    "pos": ("token-classification", "Parts of speech by a linear classifier"),
    "wsd": ("token-classification", "Senses of words by the nearest neighbour"),
}
METRICS = {"f1": "F1", "accuracy": "Accuracy", "precision": "Precision", "recall": "Recall"}
DIRECTIONS = {"forward": "the left", "backward": "the right", "both": "both sides (geometric mean)"}
KINDS = "hf-elmo finetune, hf-elmo perplexity, hf-elmo compare-states, hf-elmo probe and hf-elmo pairs"


@dataclass(frozen=True)
class Figure:
    """One number that was measured.

    Args:
        type: The Hub's word for the metric.
        name: The metric in words.
        value: The number.
        shown: How people see it.
    """

    type: str
    name: str
    value: float
    shown: str


@dataclass(frozen=True)
class Measurement:
    """What one results file says.

    Args:
        file: Name of the file.
        task_type: The Hub's word for the task.
        task_name: The task in words.
        dataset: What it was measured on.
        figures: The numbers.
        command: What measures them again.
        model: Name of the model that was measured; `None` if there was none: a task without ELMo.
        is_task: Whether a task was trained on top of that model, so the figures are of another folder, too.
    """

    file: str
    task_type: str
    task_name: str
    dataset: str
    figures: tuple[Figure, ...]
    command: str
    model: str | None
    is_task: bool = False

    def eval_results(self) -> list[EvalResult]:
        """The numbers in the Hub's form."""
        return [
            EvalResult(
                task_type=self.task_type,
                task_name=self.task_name,
                dataset_type=_one_line(self.dataset),
                dataset_name=_one_line(self.dataset),
                metric_type=figure.type,
                metric_name=figure.name,
                metric_value=figure.value,
            )
            for figure in self.figures
        ]


def read_results(path: str | os.PathLike[str]) -> Measurement:
    """Reads a results file of hf-elmo.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a results file that a card can show, or holds a figure that is no number.
    """
    path = Path(path)
    content = read_object(path, "results file", LARGEST_FILE)
    reader = next((read for keys, read in READERS if keys <= set(content)), None)
    if reader is None:
        raise ValueError(f"{path} is not a results file that a card can show. Those are what {KINDS} write as JSON.")
    try:
        measurement = reader(path.name, content)
        _check_texts(measurement)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} looks like a results file, but lacks or garbles {error}. Measure again.") from error
    for figure in measurement.figures:
        if not math.isfinite(figure.value):
            raise ValueError(f"{path} has the figure {figure.name} {figure.value}, which is no number. Measure again.")
    return measurement


def _check_texts(measurement: Measurement) -> None:
    for name in ("dataset", "command"):
        if not isinstance(getattr(measurement, name), str):
            raise TypeError(f"the {name}")


def results_section(measurements: Sequence[Measurement]) -> str:
    """The section of a card with a table of all figures, and the command that measures each file's again."""
    rows = [
        f"| {measurement.task_name} | {_code(measurement.dataset)} | {figure.name} | {figure.shown} |"
        for measurement in measurements
        for figure in measurement.figures
    ]
    table = "\n".join(["| task | measured on | metric | figure |", "|---|---|---|---|", *rows])
    commands = [f"{_code(one.file)}:\n\n{_block(one.command, 'bash')}" for one in measurements]
    return "\n\n".join([HEADING, table, "The figures come from these files of results, with what was run:", *commands])


# --- Kinds of results files ------------------------------------------------------------------------------------------


def _finetuned(file: str, content: dict[str, Any]) -> Measurement:
    task_type, task_name = TASKS[content["task"]]
    seeds = len(content["seeds"])
    return Measurement(
        file=file,
        task_type=task_type,
        task_name=task_name,
        dataset=content["dev"].partition(":")[0],
        figures=tuple(
            _score(metric, METRICS[metric], scores, f" ({seeds} {'seed' if seeds == 1 else 'seeds'})")
            for metric, scores in content["summary"].items()
            if metric in METRICS
        ),
        command=content["command"],
        model=_elmo_of(content["command"]),
        is_task=True,
    )


def _elmo_of(command: str) -> str | None:
    """The model that a task was trained on, as its command says."""
    words = shlex.split(command)
    return _name(words[words.index("--elmo") + 1]) if "--elmo" in words else None


def _perplexity(file: str, content: dict[str, Any]) -> Measurement:
    texts = [Path(text).name for text in content["text"]]
    known = f"{content['unknown_share']:.2%} of {content['words']:,} words unknown"
    parts = ["hf-elmo", "perplexity", "FOLDER", *texts, "--mode", content["mode"]]
    parts += ["--rows", str(content["rows"]), "--steps", str(content["steps"])]
    if content.get("max_words") is not None:
        parts += ["--max-words", str(content["max_words"])]
    return Measurement(
        file=file,
        task_type="text-generation",  # the Hub's word for language models
        task_name="Language modelling in both directions",
        dataset=", ".join(texts),
        figures=tuple(
            Figure(
                "perplexity",
                f"Perplexity from {side}, {content['mode']}",
                content[name],
                f"{content[name]:,.2f} ({known})",
            )
            for name, side in DIRECTIONS.items()
        ),
        command=content.get("command") or shlex.join(parts),
        model=_name(content["model"]),
    )


def _states(file: str, content: dict[str, Any]) -> Measurement:
    """The perplexities; what a classifier found by layer and place is for the picture of the comparison."""
    figures = [
        Figure(
            "perplexity",
            f"Perplexity of {_one_line(text)} from both sides (geometric mean), {state} state",
            scores["both"],
            f"{scores['both']:,.2f} ({scores['unknown_share']:.2%} of {scores['words']:,} words unknown)",
        )
        for text, by_state in content["perplexity"].items()
        for state, scores in by_state.items()
    ]
    return Measurement(
        file=file,
        task_type="text-generation",
        task_name="Language modelling in both directions",
        dataset=", ".join(content["perplexity"]),
        figures=tuple(figures),
        command=content["command"],
        model=_name(content["model"]),
    )


def _probe(file: str, content: dict[str, Any]) -> Measurement:
    task_type, task_name = PROBES[content["probe"]]
    metric = content["metric"]
    figures = [
        _score(metric, f"{METRICS[metric]} of layer {layer}", scores)
        for layer, scores in enumerate(content["systems"]["model"])
    ]
    return Measurement(
        file=file,
        task_type=task_type,
        task_name=task_name,
        dataset=content["dev"].partition(":")[0],
        figures=tuple(figures),
        command=content["command"],
        model=_name(content["model"]),
    )


def _pairs(file: str, content: dict[str, Any]) -> Measurement:
    figures = [
        Figure(
            "accuracy",
            f"Accuracy, {direction}",
            content[direction]["accuracy"],
            f"{100 * content[direction]['accuracy']:.2f} ({content['pairs']:,} pairs)",
        )
        for direction in ("forward", "backward", "combined")
    ]
    words = shlex.split(content["command"])[2:]
    texts = [word for number, word in enumerate(words) if number and not word.startswith("-")]
    return Measurement(
        file=file,
        task_type="text-generation",
        task_name="Minimal pairs",
        dataset=texts[0] if texts else file,
        figures=tuple(figures),
        command=content["command"],
        model=_name(content["model"]),
    )


def _score(metric: str, name: str, scores: dict[str, Any], more: str = "") -> Figure:
    """A share, shown as a percentage with its standard deviation."""
    deviation = scores.get("standard_deviation")
    spread = "" if deviation is None else f" ± {100 * deviation:.2f}"
    return Figure(metric, name, scores["mean"], f"{100 * scores['mean']:.2f}{spread}{more}")


def _name(path: str) -> str:
    return Path(path).name


# The keys by which a kind is known, and its reader.
READERS: list[tuple[set[str], Callable[[str, dict[str, Any]], Measurement]]] = [
    ({"command", "task", "dev", "summary", "seeds"}, _finetuned),
    ({"command", "probe", "metric", "dev", "systems"}, _probe),
    ({"command", "pairs", "all_words_known", "combined"}, _pairs),
    ({"command", "model", "warm_state", "perplexity"}, _states),
    ({"model", "text", "mode", "forward", "backward", "both"}, _perplexity),
]


__all__ = ["Measurement", "read_results", "results_section"]
