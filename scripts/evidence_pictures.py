# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The picture of each part of the evidence, drawn from the results of its runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_elmo.pictures import COLOURS, MARKERS, _figure, _save, _tidy, plot_layer_weights
from hf_elmo.scripts.evidence_parts import ALL, LAYER_RUNS, NAMES, OUTPUT_RUNS, OUTPUT_TASK, SIZES_TASK, TASKS
from hf_elmo.scripts.probe import RANDOM, TRAINED, _plot
from hf_elmo.scripts.task_metrics import mean_and_deviation, shown

# The results of runs, by the run.
Contents = Mapping[str, dict[str, Any]]
METRICS = {"f1": "F1, %", "accuracy": "accuracy, %"}
PROBES = {
    "pos": ("Parts of speech by a linear classifier", "accuracy, %"),
    "wsd": ("Word senses by the nearest neighbour", "F1, %"),
}


def draw(part: str, contents: Contents, path: Path) -> Path:
    """Draws the picture of a part, and returns where it is."""
    if part in PROBES:
        content = contents[f"{part}/probe"]
        names = {TRAINED: content["model"], RANDOM: RANDOM}
        summary = {names.get(name, name): scores for name, scores in content["systems"].items()}
        _plot(path, summary, content, *PROBES[part])
        return path
    if part == "sizes":
        return plot_sizes(contents, path)
    if part == "weights":
        return plot_layer_weights(weights_of_tasks(contents), path, "Weights of the layers, mean over seeds")
    if part == "domain":
        return _plot_domain(contents, path)
    return _plot_systems(part, contents, path)


# --- Figures of runs -------------------------------------------------------------------------------------------------


def score_of(content: dict[str, Any]) -> dict[str, Any]:
    """Mean, standard deviation and values of the metric of a task."""
    score: dict[str, Any] = content["summary"][content["metric"]]
    return score


def name_of_system(run: str, content: dict[str, Any]) -> str:
    """What a system of a task is called in tables: the model by its name, as its command has it."""
    system = run.partition("/")[2]
    if system != "elmo":
        return NAMES[system]
    words = content["command"].split()
    return str(words[words.index("--elmo") + 1])


def weights_of_tasks(contents: Contents) -> dict[str, list[float]]:
    """The weights of each layer, as the mean over seeds, by task; of a model with two mixes, by place."""
    found: dict[str, list[float]] = {}
    for run, content in contents.items():
        task = run.partition("/")[0]
        by_seed = np.array([seed["layer_weights"] for seed in content["seeds"].values()])  # (seeds, mixes, layers)
        for number, weights in enumerate(by_seed.mean(axis=0).tolist()):
            name = NAMES[task] if task in TASKS else f"{NAMES[OUTPUT_TASK]}, {('input', 'output')[number]} of two"
            found[name] = weights
    return found


def perplexities(contents: Contents) -> dict[str, dict[str, dict[str, Any]]]:
    """The perplexities before and after, by direction, each as mean and standard deviation over seeds."""
    after = [content for run, content in contents.items() if run.startswith("domain/after-")]
    groups = {"before": [contents["domain/before"]], "after": after}
    return {
        when: {name: mean_and_deviation([one[name] for one in group]) for name in ("forward", "backward", "both")}
        for when, group in groups.items()
    }


# --- Pictures --------------------------------------------------------------------------------------------------------


def _plot_systems(part: str, contents: Contents, path: Path) -> Path:
    labels = {run: label for label, run in {"layers": LAYER_RUNS, "output": OUTPUT_RUNS}.get(part, {}).items()}
    rows = {labels.get(run) or name_of_system(run, content): score_of(content) for run, content in contents.items()}
    first = next(iter(contents.values()))
    what = NAMES[next(iter(contents)).partition("/")[0]]
    title = f"{what} ({first['dev'].partition(':')[0]}): mean, standard deviation and each seed"
    return plot_bars(rows, path, title, METRICS[first["metric"]])


def plot_bars(rows: Mapping[str, dict[str, Any]], path: Path, title: str, unit: str, factor: float = 100) -> Path:
    """Draws scores as horizontal bars with their deviation, and the values of the seeds as points."""
    figure = _figure((8.0, 1.3 + 0.5 * len(rows)))
    axes = figure.subplots()
    everything = [factor * value for score in rows.values() for value in score["values"]]
    margin = max(max(everything) - min(everything), 0.5)
    start = max(min(everything) - 0.6 * margin, 0)
    for place, (name, score) in enumerate(rows.items()):
        mean, deviation = factor * score["mean"], factor * (score["standard_deviation"] or 0.0)
        axes.barh(place, mean - start, 0.62, left=start, xerr=deviation or None, capsize=4, color=_colour(name))
        values = [factor * value for value in score["values"]]
        axes.plot(values, [place] * len(values), "o", color="white", markeredgecolor="black", markersize=5)
        end = max([*values, mean + deviation])
        axes.annotate(shown(score, factor), (end, place), (7, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlim(start, max(everything) + 0.45 * margin)
    axes.set_xlabel(f"{unit} (axis does not begin at 0)" if start > 0 else unit)
    axes.set_title(title, fontsize=10)
    _tidy(axes)
    return _save(figure, path)


def _colour(name: str) -> str:
    """Grey for what comes before ELMo, orange for random weights, blue for the model."""
    if name == NAMES["without"] or name.startswith("before"):
        return "#999999"
    return "#e69f00" if name == NAMES["random"] else COLOURS[0]


def plot_sizes(contents: Contents, path: Path) -> Path:
    """Draws the scores at shares of the training set, without and with ELMo."""
    figure = _figure((8.0, 4.8))
    axes = figure.subplots()
    first = next(iter(contents.values()))
    for number, (name, points) in enumerate(scores_of_sizes(contents).items()):
        shares = [share for share, _ in points]
        means = [100 * score["mean"] for _, score in points]
        deviations = [100 * (score["standard_deviation"] or 0.0) for _, score in points]
        colour = "#666666" if name == NAMES["without"] else COLOURS[0]
        axes.errorbar(shares, means, deviations, marker=MARKERS[number], capsize=4, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_xticks(shares, [f"{share} %" for share in shares])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("share of the training sentences")
    axes.set_ylabel(METRICS[first["metric"]])
    what = f"{NAMES[SIZES_TASK]} ({first['dev'].partition(':')[0]})"
    axes.set_title(f"{what}: mean and standard deviation over seeds", fontsize=10)
    axes.legend(loc="lower right", frameon=False)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.8)
    _tidy(axes)
    return _save(figure, path)


def scores_of_sizes(contents: Contents) -> dict[str, Sequence[tuple[int, dict[str, Any]]]]:
    """For each system its scores by the percent of the training set, in rising order."""
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for run, content in contents.items():
        part, _, name = run.partition("/")
        share, system = (ALL, name) if part == SIZES_TASK else (int(name.partition("-")[0]), name.partition("-")[2])
        found.setdefault(name_of_system(f"{SIZES_TASK}/{system}", content), []).append((share, score_of(content)))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in found.items()}


def _plot_domain(contents: Contents, path: Path) -> Path:
    rows = {
        f"{when}, {direction}": score
        for when, by_direction in perplexities(contents).items()
        for direction, score in by_direction.items()
    }
    text = contents["domain/before"]["text"][0].rpartition("/")[2]
    return plot_bars(rows, path, f"Perplexity of {text}, before and after an epoch of that domain", "perplexity", 1)
