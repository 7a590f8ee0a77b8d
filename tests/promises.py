"""The promises of the package, the mark of the tests that keep them, and the report on a run of these tests.

A test says which promise it keeps, and how many trials it makes of it:

    @pytest.mark.promise("S4")  # one trial; each case of a parametrized test is one
    @pytest.mark.promise("S2", n=2000)  # a loop in the test

    pytest --reliability=RELIABILITY.md                         # the ordinary run, which continuous integration makes
    HF_ELMO_FULL=1 pytest -m promise --reliability=RELIABILITY.md  # more trials where all of them take too long

Both write what they found to results/reliability/ beside the report, and the report anew from what is there. When only
words of the report have changed, `python tests/promises.py` writes it without a run.
"""

import datetime
import json
import os
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

FULL = os.environ.get("HF_ELMO_FULL", "") not in ("", "0")
RESULTS = Path("results/reliability")
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "h5py")


@dataclass(frozen=True)
class Promise:
    """What is promised, how many trials show it, and how many of them an ordinary run makes if not all."""

    text: str
    trials: int
    ordinary: int | None = None
    because: str = ""

    def expected(self, full: bool) -> int:
        return self.trials if full or self.ordinary is None else self.ordinary


SECTIONS = {"S": "Hostile files", "R": "Kill and resume", "T": "Text", "N": "Numbers", "M": "Memory"}
PROMISES = {
    "S1": Promise("Hostile HDF5 files are refused within a second; the error names file and dataset", 20),
    "S2": Promise(
        "Damaged HDF5 files are refused, or read as finite arrays of the right shape; no crash, no hang", 2000
    ),
    "S3": Promise(
        "Broken options and configs are refused before anything is allocated; the error names the value", 40
    ),
    "S4": Promise("Pickles are refused without running anything in them", 12),
    "S5": Promise("Malformed safetensors files are refused", 18),
    "S6": Promise("No damaged safetensors file with other weights in it passes the checksums", 5000),
    "S7": Promise("Converted models load with no weight missing, unexpected, of another shape or not finite", 30),
    "S8": Promise(
        "A saved folder holds the code of the package, which runs without it, offline, with consent only", 15
    ),
    "S9": Promise("Hostile archives are refused, and nothing is written outside the target", 8),
    "R1": Promise("A training that is killed at any moment goes on from its last save, as if nothing had been", 330),
    "R2": Promise("Killed at any call while saving, the previous or the new checkpoint is found whole", 205),
    "R3": Promise("The same kills find out a writer that writes in place", 30),
    "R4": Promise("A resumed run has the losses, weights and states of an uninterrupted one, to the bit", 10),
    "R5": Promise("Damaged checkpoints are skipped, which is said; without a whole one nothing begins", 8),
    "R6": Promise("Errors of the system while saving leave the old checkpoint as it was, and name the path", 80),
    "R7": Promise("Asked to leave, a run finishes its step, saves, and can be resumed to the bit", 10),
    "R8": Promise("A second run in the same folder is refused", 1),
    "T1": Promise(
        "Any code points become ids in range, in the right shape, without an error",
        2_114_112,
        ordinary=1_134_112,
        because="20,000 random texts instead of 1,000,000, which take too long; every code point alone in both",
    ),
    "T2": Promise("Empty, huge and strange words have the character ids of the original programs", 40),
    "T3": Promise("Text that is not UTF-8 is treated as was asked, named by file and line, and no line is lost", 200),
    "T4": Promise("A batch is its texts one by one; words given are words found; saving changes nothing", 1000),
    "T5": Promise("A million words in one call; twice the text takes at most 2.5 times as long", 1),
    "N1": Promise("The stored vectors of the original programs come out, with carried state", 30),
    "N2": Promise("Padding changes nothing: 0 to 64 places on either side, with anything in them", 260),
    "N3": Promise("Batch mates and their order change nothing", 200),
    "N4": Promise("The same call gives the same bits, whatever was read in between", 100),
    "N5": Promise("NaN stays in its sentence; ids out of range are errors with the value", 2),
    "N6": Promise("Empty, masked and one-word sentences have finite vectors, losses and gradients", 8),
    "N7": Promise("Words left out by the mask are left out, wherever they stand", 100),
    "N8": Promise("The forward direction read in pieces is that read at once", 20),
    "N9": Promise("Fast paths, compiled and exported models, and more threads give the vectors of the plain path", 20),
    "N10": Promise("Gradients of cells at their clips, of mixes and losses are those found by differences", 10),
    "M1": Promise(
        "All layers of 100,000 words by the original model take less than 4 GB on top of the weights",
        2,
        ordinary=1,
        because="what a word adds is measured with fewer words and cells; all 100,000 words take too long",
    ),
    "M2": Promise("10,000 calls on changing text take no more memory than the first ones", 10_000),
    "M3": Promise("Loading takes little more memory than the file has bytes", 1),
}


def trials(ordinary: int, full: int) -> int:
    """How many trials to make in this run."""
    return full if FULL else ordinary


# --- In each process that runs tests ---------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reliability", metavar="FILE", type=Path, help="write how the promises were kept to this file")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "promise(row, n=1): keeps this promise of tests/promises.py, in n trials")
    report = config.getoption("--reliability")
    if report is not None and not hasattr(config, "workerinput"):  # of several processes, the one that hears of all
        command = " ".join([*(["HF_ELMO_FULL=1"] if FULL else []), "pytest", *config.invocation_params.args])
        config.pluginmanager.register(Recorder(report, command), "promises-recorder")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("promise"):
            row, count = promise_of(*mark.args, **mark.kwargs)
            item.user_properties.append(("promise", [row, count]))


def promise_of(row: str, n: int = 1) -> tuple[str, int]:
    """What a mark says, if it says something possible."""
    if row not in PROMISES or n < 1:
        raise pytest.UsageError(f"promise({row!r}, n={n}) is not possible: rows are {', '.join(PROMISES)}, n >= 1.")
    return row, n


# --- In the one that hears of all ------------------------------------------------------------------------------------


@dataclass
class Kept:
    """How a promise was kept in a run: the trials of tests that passed, and all tests by how they ended."""

    trials: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)


class Recorder:
    """Collects how the marked tests ended, and writes it down."""

    def __init__(self, report: Path, command: str):
        self.report = report
        self.command = command
        self.outcomes: dict[str, str] = {}
        self.promises: dict[str, list[tuple[str, int]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = [(value[0], value[1]) for name, value in report.user_properties if name == "promise"]
        if not rows:
            return
        self.promises[report.nodeid] = rows
        if report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome
        elif report.when == "call":
            self.outcomes.setdefault(report.nodeid, "passed")

    def pytest_sessionfinish(self) -> None:
        folder = self.report.parent / RESULTS
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "command": self.command,
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
            "promises": {row: self._figures(row) for row in PROMISES},
        }
        path = folder / ("full.json" if FULL else "ordinary.json")
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        self.report.write_text(report_of(folder), encoding="utf-8")

    def _figures(self, row: str) -> dict[str, Any]:
        kept = Kept()
        for test, promises in self.promises.items():
            counts = [count for name, count in promises if name == row]
            if counts:
                outcome = self.outcomes.get(test, "not finished")
                kept.trials += sum(counts) if outcome == "passed" else 0
                kept.outcomes[outcome] += 1
                kept.files[Path(test.partition("::")[0]).name] += 1
        return {"trials": kept.trials, "outcomes": dict(kept.outcomes), "files": dict(sorted(kept.files.items()))}


# --- The report ------------------------------------------------------------------------------------------------------

INTRODUCTION = """\
# Reliability

What is promised, and how often it was tried. A row is green if all of its tests passed and made at least the trials
that are asked for; {n} trials without a failure say, with 95 % certainty, that fewer than 3 in {n} fail.

Written by `pytest --reliability=RELIABILITY.md` from [results/reliability](results/reliability); not by hand.
"""


def report_of(folder: Path) -> str:
    """The report on the runs whose figures are in the folder."""
    runs = {name: read_run(folder / f"{name}.json") for name in ("ordinary", "full")}
    lines = [INTRODUCTION.format(n="N"), *_runs(runs)]
    for letter, title in SECTIONS.items():
        lines += ["", f"## {title}", "", "| | Promise | N | Result | Date | N in full | Result | Tests |"]
        lines.append("|---|---|--:|---|---|--:|---|---|")
        lines += [_line(row, runs) for row in PROMISES if row[0] == letter]
    less = [f"- {row}: {promise.because}." for row, promise in PROMISES.items() if promise.ordinary is not None]
    return "\n".join([*lines, "", "## Where an ordinary run makes fewer trials", "", *less]) + "\n"


def read_run(path: Path) -> dict[str, Any]:
    """The figures of a run, or of none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"promises": {}}


def _runs(runs: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, run in runs.items():
        if "command" in run:
            versions = ", ".join(f"{package} {run[package]}" for package in ("python", *PACKAGES))
            yield f"- {name} run of {run['date']}: `{run['command']}` ({versions})"


def _line(row: str, runs: dict[str, dict[str, Any]]) -> str:
    promise, ordinary = PROMISES[row], runs["ordinary"]
    figures = ordinary["promises"].get(row, {})
    files = ", ".join(f"`{file}` ({count})" for file, count in figures.get("files", {}).items())
    result = state_of(figures, promise.expected(full=False))
    if promise.ordinary is None:
        full = "the same | "
    else:
        figures_in_full = runs["full"]["promises"].get(row, {})
        in_full = state_of(figures_in_full, promise.trials)
        full = f"{figures_in_full.get('trials', 0):,} | {in_full} {runs['full'].get('date', '')}"
    count = f"{figures.get('trials', 0):,}"
    return f"| {row} | {promise.text} | {count} | {result} | {ordinary.get('date', '')} | {full} | {files} |"


def state_of(figures: dict[str, Any], expected: int) -> str:
    """Green, or red with the reason."""
    outcomes = figures.get("outcomes", {})
    if not outcomes:
        return "🔴 no test was run"
    bad = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if outcome != "passed")
    if bad:
        return f"🔴 {bad}"
    if figures["trials"] < expected:
        return f"🔴 fewer than {expected:,} trials"
    return "🟢 kept"


if __name__ == "__main__":
    Path("RELIABILITY.md").write_text(report_of(RESULTS), encoding="utf-8")
