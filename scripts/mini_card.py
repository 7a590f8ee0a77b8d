# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the card of elmo-mini, the model in the package, from the files of its training and of its measurements.

No figure in the card is typed by hand. The results folder has a folder for each run of `hf-elmo pretrain`, in the
order of their names, with its settings, facts and log, and the JSON files of `hf-elmo perplexity` beside them. What
each layer knows is in the files of `hf-elmo probe` that `scripts/evidence.py` left.

Examples:
    python scripts/mini_card.py
    python scripts/mini_card.py --check
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import safe_open

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.hub import CARD, finish_folder
from hf_elmo.model_card import (
    LANGUAGE_MODEL,
    TASK_WEIGHTS,
    _block,
    _boundaries,
    _card,
    _duration,
    _front_matter,
    _table,
)
from hf_elmo.model_card_results import read_results, results_section
from hf_elmo.pretraining_settings import PretrainingSettings, command_of
from hf_elmo.shipped_model import ELMO_MINI, MINI_NAME
from hf_elmo.tokenization_elmo import ElmoTokenizer

RESULTS, EVIDENCE = Path("results/pretraining/mini"), Path("results/evidence")
PROCESSES = "ACCELERATE_USE_CPU=true OMP_NUM_THREADS=1 torchrun --nproc_per_node {} -m hf_elmo.scripts.pretrain_elmo"
VOCABULARY = "hf-elmo vocab train --output vocab.txt --max-words 30000"
LICENSE, LANGUAGES = "cc-by-sa-4.0", ("en",)
SOURCES = {
    "Wikipedia, articles of 2019, by Wikipedia contributors": "CC BY-SA 3.0",
    "167 books first published from 1780 to 1925": "public domain",
    "Foreign Relations of the United States, 1948 to 1980": "public domain, CC0 1.0",
    "eLife articles, abstracts and digests": "CC BY 3.0 and 4.0, CC0",
    "Speeches of presidents of the United States, 1900 to 2020": "public domain",
    "Wikinews, 2019 and 2020": "CC BY 2.5",
    "UD English EWT, its training part": "CC BY-SA 4.0",
}


@dataclass(frozen=True)
class PretrainingRun:
    """One run of `hf-elmo pretrain`.

    Args:
        settings: What was asked for.
        facts: What was found out about the text and the start.
        rows: The log.
    """

    settings: PretrainingSettings
    facts: dict[str, Any]
    rows: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> "PretrainingRun":
        """The run of a folder."""
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
        return cls(
            PretrainingSettings.from_dict(settings, str(folder)),
            json.loads((folder / "facts.json").read_text(encoding="utf-8")),
            [json.loads(line) for line in lines],
        )

    @property
    def last(self) -> dict[str, Any]:
        """The last row of the log about training."""
        return [row for row in self.rows if "words" in row][-1]

    @property
    def processes(self) -> int:
        """How many trained it together, as the words of a step say."""
        of_one = self.settings.batch_size * self.settings.unroll_steps * self.settings.gradient_accumulation_steps
        return round(self.last["words"] / self.last["step"] / of_one)

    @property
    def command(self) -> str:
        """What was run."""
        command = command_of(self.settings)
        return command.replace("hf-elmo pretrain", PROCESSES.format(self.processes)) if self.processes > 1 else command

    @property
    def was_stopped(self) -> bool:
        """Whether it ended before the steps that were asked for."""
        wanted = self.settings.max_steps or self.settings.epochs * self.facts["steps_per_epoch"]
        return self.last["step"] < wanted

    def sections(self) -> list[str]:
        """What the card says of it."""
        start = self.facts["start"]
        figures = {
            "Steps": f"{self.last['step']:,}{' in the log, stopped by hand soon after' if self.was_stopped else ''}",
            "Words read": f"{self.last['words']:,}",
            "Time": _duration(self.last["seconds"]),
            "Words a second": f"{self.last['words'] / self.last['seconds']:,.0f}",
        }
        measured = [row for row in self.rows if "heldout" in row]
        if measured:
            held_out = ", ".join(Path(name).name for name in self.settings.heldout)
            last = measured[-1]
            figures[f"Perplexity of {held_out} at step {last['step']:,}"] = f"{last['heldout']['perplexity']:,.2f}"
        return [
            _block(self.command, "bash"),
            *([] if start is None else ["What it began with:", _block(start, "text")]),
            _table(("", ""), list(figures.items())),
        ]


def mini_card(results: Path = RESULTS, evidence: Path = EVIDENCE, folder: Path = ELMO_MINI) -> str:
    """The text of the card.

    Args:
        results: The folder with the runs and measurements.
        evidence: The folder with what each layer was found to know.
        folder: The model.
    """
    config, tokenizer = ElmoConfig.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    runs = [PretrainingRun.read(path.parent) for path in sorted(results.glob("*/settings.json"))]
    measurements = [read_results(path) for path in sorted(results.glob("*.json"))]
    for path in sorted(evidence.glob("*/probe.json")):
        measurements.append(replace(read_results(path), file=f"{path.parent.name}/{path.name}"))
    if not runs or not measurements:
        raise FileNotFoundError(f"{results} lacks the folder of a run, or a JSON file of hf-elmo perplexity.")
    return _card(
        MINI_NAME,
        config,
        tokenizer,
        front_matter=_front_matter(
            MINI_NAME, LICENSE, LANGUAGES, [result for one in measurements for result in one.eval_results()]
        ),
        origin="It is the model in the package hf-elmo, and trained with it.",
        weights=("Weights", _count_weights(folder)),
        sections=[*_sections(runs), results_section(measurements)],
        limits=[TASK_WEIGHTS, _size_limit(runs)],
        license_text=f"`{LICENSE}` for the weights, because of the texts above; the code is under Apache-2.0.",
        language_model=LANGUAGE_MODEL,
        use=_use(config, tokenizer),
    )


def _use(config: ElmoConfig, tokenizer: ElmoTokenizer) -> str:
    sizes = f"(2, words, {config.hidden_size})"
    lines = [
        "import hf_elmo",
        "",
        "model, tokenizer = hf_elmo.load_mini()",
        'batch = tokenizer(["The river bank was muddy.", "The bank lent money."], padding=True, return_tensors="pt")',
        f"vectors = model(**batch).last_hidden_state  # {sizes}, {_boundaries(tokenizer)} included",
        f"layers = model(**batch, output_hidden_states=True).hidden_states  # {config.num_hidden_layers + 1} layers",
    ]
    note = (
        "`AutoModel.from_pretrained(hf_elmo.ELMO_MINI)` loads it, too, and commands know it as "
        f"`{MINI_NAME}`. The weights are stored in half precision and computed with in single precision."
    )
    return "\n\n".join([_block("\n".join(lines), "python"), note])


def _sections(runs: Sequence[PretrainingRun]) -> list[str]:
    facts, words = runs[0].facts, sum(run.last["words"] for run in runs)
    text = (
        f"{facts['tokens']:,} words of English in {facts['sentences']:,} sentences, {facts['unknown_share']:.2%} of "
        f"the words not in the vocabulary. Training read {words:,} words, sentence ends included, in random order."
    )
    return [
        "## What it is for",
        "Trying things out without a download. For real work, convert a published model or train your own.",
        "## Training text",
        text,
        _table(("text", "licence"), list(SOURCES.items())),
        "## How it was trained",
        f"Settings, checks of the text and logs of {'all runs' if len(runs) > 1 else 'the run'} are in "
        f"`{RESULTS.as_posix()}` of the repository. First the vocabulary:",
        _block(VOCABULARY, "bash"),
        *(line for number, run in enumerate(runs, start=1) for line in (f"### Run {number}", *run.sections())),
    ]


def _size_limit(runs: Sequence[PretrainingRun]) -> str:
    words = sum(run.last["words"] for run in runs)
    return f"It is small, and read {words / 1e6:.1f} million words; the paper's read a billion words ten times."


def _count_weights(folder: Path) -> int:
    with safe_open(folder / "model.safetensors", framework="np") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="mini_card", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--evidence", type=Path, default=EVIDENCE, metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the card is not up to date")
    arguments = parser.parse_args(argv)
    path = ELMO_MINI / CARD
    try:
        card = mini_card(arguments.results, arguments.evidence)
    except (OSError, ValueError) as error:
        print(f"mini_card: error: {error}", file=sys.stderr)
        return 1
    if arguments.check:
        if path.read_text(encoding="utf-8") != card:
            print(f"{path.name} of {MINI_NAME} is not up to date: run scripts/mini_card.py", file=sys.stderr)
            return 1
        return 0
    path.write_text(card, encoding="utf-8")
    finish_folder(ELMO_MINI)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
