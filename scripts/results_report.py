# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes RESULTS.md from the results files, beside what the paper says, so that no figure is typed by hand.

It takes what `hf-elmo probe`, `hf-elmo finetune` and `hf-elmo perplexity` wrote, and shows a picture that stands
beside a file and has its name.

Examples:
    python scripts/results_report.py
    python scripts/results_report.py --check
    python scripts/results_report.py --results results/evidence --output RESULTS.md
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    "eng.testa": ["paper: test F1 without ELMo 90.15, with it 92.22 ± 0.10 (Table 1)"],
    "sst": ["paper: test accuracy without ELMo 51.4, with it 54.7 ± 0.5 (Table 1)"],
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
        """The picture beside it, if there is one."""
        if not self.path.with_suffix(".png").is_file():
            return []
        return ["", f"![{self.path.stem}]({self.link.removesuffix('.json')}.png)"]


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
    return lines


def _probe_table(result: Result, paper: dict[str, list[float | None]]) -> list[str]:
    content = result.content
    layers = max(map(len, content["systems"].values()))
    names = [f"layer {layer}" for layer in range(layers)]
    rows = [[f"{content['dev'].partition(':')[0]}, {result.source}", *names]]
    for system, scores in content["systems"].items():
        name = f"**{content['model']}**" if system == "model" else system
        rows.append([name, *map(_score, scores)])
    rows += [[name, f"{100 * value:.2f}"] for name, value in content["baselines"].items()]
    rows += [[name, *(NOTHING if v is None else f"{v:.1f}" for v in values)] for name, values in paper.items()]
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
    """How the best layer stands to the best that needs no vectors."""
    best = max(score["mean"] for score in result.content["systems"]["model"])
    name, baseline = max(result.content["baselines"].items(), key=lambda item: item[1])
    side = "above" if best > baseline else "below"
    return f"The best layer is {100 * abs(best - baseline):.2f} points {side} the baseline '{name}'."


# --- Tasks and perplexity --------------------------------------------------------------------------------------------


def _finetuned(results: list[Result]) -> list[str]:
    lines = [
        "## Tasks (Table 1)",
        "",
        "Scores on development data in percent, mean and standard deviation over seeds.",
    ]
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(_task(result.content), []).append(result)
    for task, members in groups.items():
        rows = [["file", "score", "seeds", "weights of the layers, first seed"]]
        for result in members:
            content = result.content
            weights = next(iter(content["seeds"].values()))["layer_weights"]
            shown = NOTHING if weights is None else "; ".join(" ".join(f"{w:.2f}" for w in mix) for mix in weights)
            score = _score(content["summary"][content["metric"]])
            rows.append([result.source, f"{content['metric']} {score}", str(len(content["seeds"])), shown])
        lines += ["", f"### {task}", "", *_table(rows)]
        lines += [f"\n{line}" for line in PAPER_TASKS.get(task, [])]
        for result in members:
            lines += ["", _command(result.content), *result.picture()]
    return lines


def _task(content: dict[str, Any]) -> str:
    """The name of the development data, or `sst`, whose files have none."""
    return "sst" if "--format sst" in content["command"] else content["dev"].partition(":")[0]


def _perplexity(results: list[Result]) -> list[str]:
    rows = [["file", "text", "forward", "backward", "both (geometric mean)", "words", "unknown words"]]
    for result in results:
        content = result.content
        texts = ", ".join(os.path.basename(text) for text in content["text"])
        figures = [f"{content[name]:.1f}" for name in ("forward", "backward", "both")]
        unknown = f"{100 * content['unknown_share']:.2f} %"
        rows.append([result.source, texts, *figures, f"{content['words']:,}", unknown])
    lines = ["## Perplexity", "", "With the softmax over all words of the vocabulary.", "", *_table(rows)]
    for result in results:
        lines += result.picture()
    return lines


# --- The report ------------------------------------------------------------------------------------------------------

# Which files a section takes, and what it writes of them, in the order of the report.
SECTIONS: list[tuple[Callable[[dict[str, Any]], bool], Callable[[list[Result]], list[str]]]] = [
    (lambda content: "task" in content and "seeds" in content, _finetuned),
    (lambda content: content.get("probe") == "pos", _pos),
    (lambda content: content.get("probe") == "wsd", _wsd),
    (lambda content: "softmax" in content and "both" in content, _perplexity),
]


def report(results: Path, output: Path) -> str:
    """The text of the report on all files in a folder, with links that hold beside `output`."""
    files = sorted(results.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"{results} has no results file. Write one with hf-elmo probe ... --json FILE.")
    start = os.path.abspath(output.parent)
    loaded = [
        Result(path, Path(os.path.relpath(path, start)).as_posix(), json.loads(path.read_text(encoding="utf-8")))
        for path in files
    ]
    lines = [
        "# Results",
        "",
        f"What {CITED} claim, measured with this package. This file is written by `scripts/results_report.py` from "
        "the files it names; each has its command in it. The figures of the paper are of a model of 94 million "
        "weights and of test sets; those measured here are of development data.",
    ]
    left = list(loaded)
    for takes, write in SECTIONS:
        chosen = [result for result in loaded if takes(result.content)]
        left = [result for result in left if result not in chosen]
        if chosen:
            lines += ["", *write(chosen)]
    if left:
        raise ValueError(
            f"{left[0].path} is not a file of hf-elmo probe, finetune or perplexity, so there is no table for it. "
            "Move it away, or add a section."
        )
    return "\n".join(lines) + "\n"


def _score(score: dict[str, Any]) -> str:
    deviation = score["standard_deviation"]
    return f"{100 * score['mean']:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")


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
