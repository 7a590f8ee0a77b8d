# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes RESULTS.md from the results files, beside what the paper says, so that no figure is typed by hand.

It takes what `scripts/evidence.py` left in the folders of its parts, and beside them what `hf-elmo probe` and
`hf-elmo perplexity` wrote. A claim is repeated if two systems differ by more than two standard deviations over seeds;
of the deviations of the two systems, the larger one counts.

Examples:
    python scripts/results_report.py
    python scripts/results_report.py --check
    python scripts/results_report.py --results results/evidence --output RESULTS.md
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_elmo.scripts.evidence_parts import (
    LAMBDA,
    LAYER_RUNS,
    NAMES,
    OUTPUT_RUNS,
    SIZES_TASK,
    TASKS,
    parts,
)
from hf_elmo.scripts.evidence_pictures import (
    name_of_system,
    perplexities,
    score_of,
    scores_of_sizes,
    weights_of_tasks,
)
from hf_elmo.scripts.task_metrics import shown

RESULTS, REPORT = Path("results/evidence"), Path("RESULTS.md")
CITED = "[Peters et al. 2018](https://aclanthology.org/N18-1202/)"
NOTHING = "-"

# What the paper says, in percent, by what is measured.
PAPER_POS: dict[str, list[float | None]] = {"paper: WSJ, accuracy (Table 6)": [None, 97.3, 96.8]}
PAPER_WSD: dict[str, list[float | None]] = {
    "paper: all test sets, F1 (Table 5)": [None, 67.4, 69.0],
    "paper: first sense of WordNet (Table 5)": [65.9],
}
PAPER_SEMEVAL_2007 = (
    "For SemEval-2007 alone, [NLP-progress](http://nlpprogress.com/english/word_sense_disambiguation.html) lists 62.2 "
    "for the model of the paper and 54.5 for the most frequent sense."
)
PAPER_TASKS = {
    "ner": "The paper has test F1 90.15 without ELMo and 92.22 ± 0.10 with it (Table 1).",
    "sst5": "The paper has test accuracy 51.4 without ELMo and 54.7 ± 0.5 with it (Table 1).",
    "pos-tag": "The paper has no such tagger; what its Table 1 claims of six tasks is tried on one more.",
}
PAPER_LAYERS: dict[str, list[float | None]] = {
    "paper: SQuAD, F1": [80.8, 84.7, None, 85.0, 85.2],
    "paper: SNLI, accuracy": [88.1, 89.1, None, 89.3, 89.5],
    "paper: SRL, F1": [81.6, 84.1, None, 84.6, 84.8],
}
PAPER_OUTPUT: dict[str, list[float | None]] = {
    "paper: SQuAD, F1": [None, 85.1, 85.6, 84.8],
    "paper: SNLI, accuracy": [None, 88.9, 89.5, 88.7],
    "paper: SRL, F1": [None, 84.7, 84.3, 80.9],
}
PAPER_DOMAIN = {"SNLI": (72.1, 16.8), "CoNLL 2003": (103.2, 46.3), "SST": (131.5, 78.6)}

# What may explain that a claim is not repeated.
WHY_TASK = (
    "A likely reason is the size of the model and of its training text; the paper's has 94 million weights and read a "
    "billion words ten times."
)
# What a reader has to know of the training text of a model, by its name.
TRAINING_TEXTS = {
    "elmo-mini": "Its training text has the sentences of UD English EWT's training part, without their labels, so the "
    "parts of speech are of a kind of text that it has seen; the development part it has not."
}
WHY_SENSES = (
    "What needs no vectors is better here. A likely reason: a small model that has read little tells apart contexts "
    "that differ much, not the fine senses of WordNet, and the nearest neighbour is a single sentence."
)
WHY_LAYERS = "A likely reason: the layers of a small model differ less, so that there is less to choose from."
WHY_SIZES = "Means over few seeds differ most where the training set is smallest, as each seed draws another one."
WHY_WEIGHTS = (
    "A likely reason: with few training steps, weights stay near where they begin, and a small model has less to say "
    "above its characters."
)
WHY_DOMAIN = "A likely reason: the text of the domain is short, so that an epoch of it is few steps."

REPEATED, NOT_REPEATED, OPEN, IN_PART = "Repeated", "Not repeated", "Open", "In part"
VERDICT = re.compile(rf"\*\*({REPEATED}|{NOT_REPEATED}|{OPEN}|{IN_PART})\*\*")
TITLES = {
    "ner": "Named entities (Table 1)",
    "sst5": "Sentiment in five classes (Table 1)",
    "pos-tag": "Parts of speech by a tagger (as Table 1, not in the paper)",
}


@dataclass(frozen=True)
class Result:
    """A results file.

    Args:
        path: The file.
        link: How the report points to it.
        content: What is in it.
    """

    path: Path
    link: str
    content: dict[str, Any]

    @property
    def source(self) -> str:
        """`[name](link)`, for the place where its figures stand."""
        return f"[{self.path.name}]({self.link})"

    def picture(self) -> list[str]:
        """The picture beside it that has its name, or that of its part, if there is one."""
        for name in (self.path.stem, self.path.parent.name):
            if self.path.with_name(f"{name}.png").is_file():
                return ["", f"![{name}]({self.link.removesuffix(self.path.name)}{name}.png)"]
        return []


# --- Probes ----------------------------------------------------------------------------------------------------------


def _pos(results: list[Result]) -> list[str]:
    lines = [
        "## Parts of speech by a linear classifier (Table 6)",
        "",
        "The paper finds that layer 1 has more of grammar than layer 2. Accuracy in percent, mean and standard "
        "deviation over seeds.",
    ]
    for result in results:
        lines += ["", *_probe_table(result, PAPER_POS), *result.picture(), "", _verdict(result, paper_best=1)]
    return lines


def _wsd(results: list[Result]) -> list[str]:
    lines = [
        "## Word senses by the nearest neighbour (Table 5)",
        "",
        "The paper finds that layer 2 has more of meaning than layer 1. F1 in percent.",
    ]
    for result in results:
        content = result.content
        back_off = (
            f"{content['unseen']} of {content['words']} words have a lemma that the training data does not have; "
            f"back-off: {content['back_off']}. With so few words, a figure is uncertain by "
            f"± {100 * content['standard_error']:.1f} (standard error)."
        )
        lines += ["", *_probe_table(result, PAPER_WSD), "", back_off]
        if "semeval2007" in content["dev"]:
            lines += ["", PAPER_SEMEVAL_2007]
        lines += result.picture()
        lines += ["", _verdict(result, paper_best=2)]
        best = max(score["mean"] for score in content["systems"]["model"])
        lines[-1] += f" {WHY_SENSES}" if best < max(content["baselines"].values()) else ""
    return lines


def _probe_table(result: Result, paper: dict[str, list[float | None]]) -> list[str]:
    content = result.content
    layers = max(map(len, content["systems"].values()))
    names = [f"layer {layer}" for layer in range(layers)]
    rows = [[f"{content['dev'].partition(':')[0]}, {result.source}", *names]]
    for system, scores in content["systems"].items():
        name = f"**{content['model']}**" if system == "model" else system
        rows.append([name, *map(shown, scores)])
    rows += [[name, f"{100 * value:.2f}"] for name, value in content["baselines"].items()]
    rows += _paper_rows(paper)
    return [*_table(rows), "", _command(content)]


def _verdict(result: Result, paper_best: int) -> str:
    """Whether the layer that is best in the paper is best here, too; what lies within two deviations is open."""
    margin = result.content["standard_error"]
    scores = result.content["systems"]["model"]
    if not 1 <= paper_best < len(scores):
        return f"This model has no layer {paper_best}, so the claim is not tested."
    means = [score["mean"] for score in scores]
    rival = max((layer for layer in range(len(scores)) if layer != paper_best), key=lambda layer: means[layer])
    difference = means[paper_best] - means[rival]
    spread = max([margin, *(scores[layer]["standard_deviation"] or 0.0 for layer in (paper_best, rival))])
    figures = f"layer {paper_best} is {100 * abs(difference):.2f} points {'above' if difference > 0 else 'below'} "
    figures += f"layer {rival}, the next best" if difference > 0 else f"layer {rival}"
    if abs(difference) <= 2 * spread:
        kind = "standard errors" if spread == margin else "standard deviations"
        return f"**Open**: {figures}, which is within two {kind}. {_beside_baselines(result)}"
    return f"**{'Repeated' if difference > 0 else 'Not repeated'}**: {figures}. {_beside_baselines(result)}"


def _beside_baselines(result: Result) -> str:
    """How the best layer stands to the best that needs no vectors, and to random weights."""
    best = max(score["mean"] for score in result.content["systems"]["model"])
    name, baseline = max(result.content["baselines"].items(), key=lambda item: item[1])
    text = f"The best layer is {_points(best - baseline)} the baseline '{name}'"
    control = result.content["systems"].get(NAMES["random"])
    if control:
        text += f", and {_points(best - max(score['mean'] for score in control))} the best one of random weights"
    return f"{text}."


def _points(share: float) -> str:
    return f"{100 * abs(share):.2f} points {'above' if share > 0 else 'below'}"


# --- Tasks -----------------------------------------------------------------------------------------------------------

# The runs of a part, by their names.
Runs = Mapping[str, Result]


@dataclass(frozen=True)
class Difference:
    """How far a score is above another one.

    Args:
        points: In percent.
        deviations: In standard deviations over seeds, the larger one of the two systems; `None` if there are none.
    """

    points: float
    deviations: float | None

    @classmethod
    def of(cls, score: dict[str, Any], other: dict[str, Any]) -> "Difference":
        """Of two scores with `mean` and `standard_deviation`."""
        spread = max(score["standard_deviation"] or 0.0, other["standard_deviation"] or 0.0)
        points = score["mean"] - other["mean"]
        return cls(100 * points, points / spread if spread else None)

    @property
    def is_clear(self) -> bool:
        """Whether it is above by more than two standard deviations."""
        return self.deviations is not None and self.deviations > 2

    @property
    def is_open(self) -> bool:
        """Whether it is within two standard deviations."""
        return self.deviations is None or abs(self.deviations) <= 2

    def __str__(self) -> str:
        known = "unknown" if self.deviations is None else f"{abs(self.deviations):.1f}"
        return f"{abs(self.points):.2f} points {'above' if self.points > 0 else 'below'} ({known} standard deviations)"

    def cell(self) -> str:
        """For a table."""
        return f"{self.points:+.2f}" + ("" if self.deviations is None else f" ({self.deviations:+.1f} deviations)")


def _why(verdict: str, reason: str) -> str:
    return "" if verdict == REPEATED else f" {reason}"


def _judged(difference: Difference) -> str:
    return OPEN if difference.is_open else REPEATED if difference.is_clear else NOT_REPEATED


def _task(task: str, runs: Runs, picture: list[str]) -> list[str]:
    scores = {run: score_of(result.content) for run, result in runs.items()}
    without, elmo, control = (scores[f"{task}/{system}"] for system in ("without", "elmo", "random"))
    first = runs[f"{task}/without"].content
    rows = [[_source(first), first["metric"], "over the first", "weights of the layers, first seed"]]
    for run, result in runs.items():
        over = NOTHING if run.endswith("without") else Difference.of(scores[run], without).cell()
        weights = "; ".join(" ".join(f"{w:.2f}" for w in row) for row in _mixes(result.content)) or NOTHING
        rows.append([name_of_system(run, result.content), shown(scores[run]), over, weights])
    gain, over_random = Difference.of(elmo, without), Difference.of(elmo, control)
    verdict = IN_PART if gain.is_clear and not over_random.is_clear else _judged(gain)
    name = name_of_system(f"{task}/elmo", runs[f"{task}/elmo"].content)
    text = f"**{verdict}**: with {name} it is {gain} the same system without ELMo, and {over_random} random weights."
    if verdict == IN_PART:
        text += " So much of the gain comes from the shape alone, which reads letters, and not from training."
    text += _why(verdict, WHY_TASK)
    return [
        f"## {TITLES[task]}",
        "",
        *_table(rows),
        "",
        PAPER_TASKS[task],
        *picture,
        "",
        text,
        *_files(runs),
    ]


def _mixes(content: dict[str, Any]) -> list[list[float]]:
    return next(iter(content["seeds"].values()))["layer_weights"] or []


def _layers(runs: Runs, picture: list[str]) -> list[str]:
    scores = {label: score_of(runs[run].content) for label, run in LAYER_RUNS.items()}
    first = next(iter(runs.values())).content
    rows = [[f"{_source(first)}, {first['metric']}", *scores], ["here", *map(shown, scores.values())]]
    last, mixed, even = (
        scores[name] for name in ("last layer", f"learned mix, lambda {LAMBDA}", "learned mix, lambda 1")
    )
    of_last, of_even = Difference.of(mixed, last), Difference.of(mixed, even)
    return [
        "## All layers or the last one (Table 2)",
        "",
        *_table([*rows, *_paper_rows(PAPER_LAYERS)]),
        *picture,
        "",
        f"**{_judged(of_last)}**: the learned mix of all layers (lambda {LAMBDA}) is {of_last} the last layer."
        + _why(_judged(of_last), WHY_LAYERS),
        "",
        f"**{_judged(of_even)}**: it is {of_even} the mix with lambda 1, which keeps the weights nearly equal.",
        *_files(runs),
    ]


def _output(runs: Runs, picture: list[str]) -> list[str]:
    scores = {label: score_of(runs[run].content) for label, run in OUTPUT_RUNS.items()}
    first = next(iter(runs.values())).content
    rows = [[f"{_source(first)}, {first['metric']}", *scores, "output"], ["here", *map(shown, scores.values())]]
    both = Difference.of(scores["input and output"], scores["input"])
    word = OPEN if both.is_open else REPEATED if both.is_clear else IN_PART
    return [
        "## ELMo at the input, or behind the task's LSTM, too (Table 3)",
        "",
        *_table([*rows, *_paper_rows(PAPER_OUTPUT)]),
        *picture,
        "",
        f"**{word}**: with ELMo at input and output it is {both} that with ELMo at the input only. In the paper, two "
        "tasks gain by it and one loses. ELMo at the output alone is not something that the heads here offer.",
        *_files(runs),
    ]


def _sizes(runs: Runs, picture: list[str]) -> list[str]:
    contents = {run: result.content for run, result in runs.items()}
    (without_name, without), (name, elmo) = scores_of_sizes(contents).items()
    first = contents[f"{SIZES_TASK}/without"]
    rows = [[f"{_source(first)}, {first['metric']}", without_name, name, "difference"]]
    differences = [Difference.of(mine, other) for (_, mine), (_, other) in zip(elmo, without, strict=True)]
    for (share, other), (_, mine), difference in zip(without, elmo, differences, strict=True):
        rows.append([f"{share} %", shown(other), shown(mine), difference.cell()])
    clear = sum(difference.is_clear for difference in differences)
    verdict = REPEATED if clear == len(differences) else IN_PART if clear else NOT_REPEATED
    reached = _reached(elmo[:-1], without)
    return [
        "## Fewer examples suffice (Figure 1)",
        "",
        "In the paper, role labelling with ELMo and 1 % of the training set is about as good as without it and 10 %.",
        "",
        *_table(rows),
        *picture,
        "",
        f"**{verdict}**: {name} is above by more than two standard deviations at {clear} of {len(differences)} sizes. "
        f"By the smallest set that is as good, {', '.join(reached)} without it." + _why(verdict, WHY_SIZES),
        *_files(runs),
    ]


def _reached(scores: Sequence[tuple[int, dict[str, Any]]], others: Sequence[tuple[int, dict[str, Any]]]) -> list[str]:
    """The smallest share at which others reach the score of each share, up to the first that none of theirs does."""
    found = []
    for share, score in scores:
        as_good = next((other for other, reached in others if reached["mean"] >= score["mean"]), None)
        found.append(f"{share} % with ELMo is worth {'more than 100' if as_good is None else as_good} %")
        if as_good is None:
            break
    return found


def _weights(runs: Runs, picture: list[str]) -> list[str]:
    weights = weights_of_tasks({run: result.content for run, result in runs.items()})
    layers = len(next(iter(weights.values())))
    rows = [["task", *(f"layer {layer}" for layer in range(layers))]]
    rows += [[name, *(f"{weight:.3f}" for weight in row)] for name, row in weights.items()]
    at_input = {name: row for name, row in weights.items() if name in {NAMES[task] for task in TASKS}}
    favour = [name for name, row in at_input.items() if row.index(max(row)) == 1]
    verdict = REPEATED if len(favour) == len(at_input) else IN_PART if favour else NOT_REPEATED
    return [
        "## Which layers tasks use (Figure 2)",
        "",
        "In the paper, the input of a task favours the first LSTM layer; at the output weights are more even. Means "
        "over seeds.",
        "",
        *_table(rows),
        *picture,
        "",
        f"**{verdict}**: layer 1 has the largest weight in {len(favour)} of {len(at_input)} tasks"
        + (f" ({', '.join(favour)})." if favour else ".")
        + _why(verdict, WHY_WEIGHTS),
        *_files(runs),
    ]


def _domain(runs: Runs, picture: list[str]) -> list[str]:
    contents = {run: result.content for run, result in runs.items()}
    figures = perplexities(contents)
    before = contents["domain/before"]
    rows = [[f"{_source_of_text(before)}, perplexity", "forward", "backward", "both (geometric mean)"]]
    for when, scores in figures.items():
        rows.append([when, *(shown(score, 1) for score in scores.values())])
    ratio = figures["after"]["both"]["mean"] / figures["before"]["both"]["mean"]
    paper = "; ".join(f"{name} from {first} to {last}" for name, (first, last) in PAPER_DOMAIN.items())
    spread = figures["after"]["both"]["standard_deviation"] or 0.0
    drop = figures["before"]["both"]["mean"] - figures["after"]["both"]["mean"]
    verdict = REPEATED if drop > 2 * spread else NOT_REPEATED if drop < -2 * spread else OPEN
    return [
        "## An epoch of another domain (Table 7)",
        "",
        *_table(rows),
        "",
        f"{before['words']:,} words, {100 * before['unknown_share']:.2f} % of them unknown. The paper, which gives "
        f"the average of both directions: {paper}.",
        *picture,
        "",
        f"**{verdict}**: after an epoch of this domain, the perplexity is {100 * ratio:.1f} % of what it was."
        + _why(verdict, WHY_DOMAIN),
        *_files(runs),
    ]


def _paper_rows(paper: dict[str, list[float | None]]) -> list[list[str]]:
    return [[name, *(NOTHING if v is None else f"{v:.1f}" for v in values)] for name, values in paper.items()]


def _source(content: dict[str, Any]) -> str:
    """The name of the development data, or `sst`, whose files have none."""
    return "SST-5" if "--format sst" in content["command"] else str(content["dev"].partition(":")[0])


def _source_of_text(content: dict[str, Any]) -> str:
    return ", ".join(os.path.basename(text) for text in content["text"])


def _files(runs: Runs) -> list[str]:
    """The files of all runs, and their commands."""
    return ["", *(f"- [{run}.json]({result.link}): {_inline(result.content)}" for run, result in runs.items())]


def _inline(content: dict[str, Any]) -> str:
    return ", then ".join(f"`{command}`" for command in content["evidence"]["commands"])


# --- Perplexity ------------------------------------------------------------------------------------------------------


def _perplexity(results: list[Result]) -> list[str]:
    rows = [["file", "text", "forward", "backward", "both (geometric mean)", "words", "unknown words"]]
    for result in results:
        content = result.content
        texts = _source_of_text(content)
        figures = [f"{content[name]:.1f}" for name in ("forward", "backward", "both")]
        unknown = f"{100 * content['unknown_share']:.2f} %"
        rows.append([result.source, texts, *figures, f"{content['words']:,}", unknown])
    lines = ["## Perplexity", "", "With the softmax over all words of the vocabulary.", "", *_table(rows)]
    for result in results:
        lines += result.picture()
    return lines


# --- The report ------------------------------------------------------------------------------------------------------

# The parts of the evidence, in the order of the report, and what is written of them.
PARTS: dict[str, Callable[[Runs, list[str]], list[str]]] = {
    **{task: lambda runs, picture, task=task: _task(task, runs, picture) for task in TASKS},  # type: ignore[misc]
    "layers": _layers,
    "output": _output,
    "sizes": _sizes,
    "weights": _weights,
    "domain": _domain,
}
# Which other files a section takes, and what it writes of them.
SECTIONS: list[tuple[Callable[[dict[str, Any]], bool], Callable[[list[Result]], list[str]]]] = [
    (lambda content: content.get("probe") == "wsd", _wsd),
    (lambda content: content.get("probe") == "pos", _pos),
    (lambda content: "softmax" in content and "both" in content, _perplexity),
]


def report(results: Path, output: Path) -> str:
    """The text of the report on all files in a folder, with links that hold beside `output`."""
    files = [*sorted(results.glob("*.json")), *sorted(results.glob("*/*.json"))]
    if not files:
        raise FileNotFoundError(f"{results} has no results file. Write some with scripts/evidence.py.")
    start = os.path.abspath(output.parent)
    loaded = [
        Result(path, Path(os.path.relpath(path, start)).as_posix(), json.loads(path.read_text(encoding="utf-8")))
        for path in files
    ]
    runs = {f"{one.path.parent.name}/{one.path.stem}": one for one in loaded if "evidence" in one.content}
    _check_runs(runs)
    left = list(loaded)
    sections: list[list[str]] = []
    for part, names in parts().items():
        if part in PARTS and runs.keys() >= set(names):
            chosen = {name: runs[name] for name in names}
            sections.append(PARTS[part](chosen, _picture_of(results / part, part, start)))
            left = [result for result in left if result not in chosen.values()]
    for takes, write in SECTIONS:
        taken = [result for result in left if takes(result.content) and result.path.parent.name != "domain"]
        left = [result for result in left if result not in taken]
        sections += [write(taken)] if taken else []
    _refuse(left)
    return (
        "\n".join([*_introduction(runs), *_summary(sections), *(line for one in sections for line in ["", *one])])
        + "\n"
    )


def _check_runs(runs: Runs) -> None:
    """Refuses results that do not belong together."""
    models: dict[str, Result] = {}
    for result in runs.values():
        known = result.content["evidence"]
        if known["quick"]:
            raise ValueError(f"{result.path} was written with --quick, which measures nothing: run it without.")
        if known["model_sha256"] is not None:
            models.setdefault(known["model_sha256"], result)
    if len(models) > 1:
        first, second, *_ = models.values()
        raise ValueError(
            f"{first.path} and {second.path} are of different models. Run scripts/evidence.py again, which measures "
            "what is of another model."
        )


def _refuse(left: list[Result]) -> None:
    """Refuses files that no section has taken."""
    for result in left:
        if "evidence" in result.content:
            run = result.content["evidence"]["run"]
            part = next((name for name, names in parts().items() if run in names), run)
            raise ValueError(
                f"{result.path} is alone: part {part} is not complete. Run scripts/evidence.py --only {part}."
            )
        raise ValueError(
            f"{result.path} is not a file of scripts/evidence.py, hf-elmo probe or hf-elmo perplexity, so there is no "
            "table for it. Move it away, or add a section."
        )


def _introduction(runs: Runs) -> list[str]:
    models = {result.content["evidence"]["model_sha256"] for result in runs.values()} - {None}
    lines = [
        "# The paper's claims, measured",
        "",
        f"What {CITED} claim, measured with this package. The figures of the paper are of a model of 94 million "
        "weights; those measured here are of development data, in percent, as mean ± standard deviation over seeds. "
        "Differences are given in standard deviations, too, the larger one of the two systems: up to two of them, a "
        "claim stays open.",
        "",
        "`python scripts/evidence.py --data FOLDER` measures all of it again, with the data files that "
        "`scripts/evidence_parts.py` names. `scripts/results_report.py` writes this page from the results files; each "
        "is linked below, with its command.",
    ]
    lines += [f"\nThe weights that were measured have the sha256 `{model}`." for model in sorted(models)]
    names = {name_of_system(run, result.content) for run, result in runs.items() if run.endswith("/elmo")}
    return [*lines, *(f"\n{name}: {text}" for name, text in TRAINING_TEXTS.items() if name in names)]


def _summary(sections: list[list[str]]) -> list[str]:
    """A table of all claims and what came out."""
    rows = [["claim", "here"]]
    for lines in sections:
        words = [match[1].lower() for line in lines if (match := VERDICT.match(line))]
        rows += [[lines[0].removeprefix("## "), ", ".join(words)]] if words else []
    return ["", *_table(rows)] if len(rows) > 1 else []


def _picture_of(folder: Path, name: str, start: str) -> list[str]:
    path = folder / f"{name}.png"
    link = Path(os.path.relpath(path, start)).as_posix()
    return ["", f"![{name}]({link})"] if path.is_file() else []


def _table(rows: list[list[str]]) -> list[str]:
    width = max(map(len, rows))
    full = [[*row, *[NOTHING] * (width - len(row))] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in full]
    return [lines[0], f"|{'---|' * width}", *lines[1:]]


def _command(content: dict[str, Any]) -> str:
    return f"```bash\n{content['command']}\n```"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="(default: %(default)s)")
    parser.add_argument("--output", type=Path, default=REPORT, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the report is not up to date")
    arguments = parser.parse_args(argv)
    try:
        text = report(arguments.results, arguments.output)
    except (ValueError, OSError) as error:
        print(f"results_report: error: {error}", file=sys.stderr)
        return 1
    current = arguments.output.read_text(encoding="utf-8") if arguments.output.is_file() else None
    if arguments.check and current != text:
        print(f"{arguments.output} is not what {arguments.results} says; run this without --check.", file=sys.stderr)
        return 1
    if current != text:
        arguments.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
