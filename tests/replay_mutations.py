"""Makes each mistake of `mutations.py` in a copy of the package, and sees that its tests notice it.

All tests that are named run on a copy as it is, too, and must pass there. One mistake is made at a time, and each of
its tests must fail. Takes half an hour; the checkout itself is not changed.

    python tests/replay_mutations.py                                        # all of them
    python tests/replay_mutations.py --only S1 N9                           # those of some promises
    python tests/replay_mutations.py --jobs 2 --json results/reliability/mutations.json  # and write what was found
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]
INSIDE = ("conversion", "scripts", "model_cards")  # beside the library in a checkout, inside it once installed
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".hypothesis")
PATIENCE = 900  # seconds for the tests of one mistake; one that never ends is noticed, too
PASSED, FAILED = 0, 1  # exit codes of pytest

WHERE = """
import sys, hf_elmo, hf_elmo.conversion.hdf5, hf_elmo.scripts.arguments
print(*(module.__file__ for module in (hf_elmo, hf_elmo.conversion.hdf5, hf_elmo.scripts.arguments)), sep="\\n")
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a mistake: `"caught"`, `"SURVIVED"`, or `"BROKEN"` if its tests could not be run."""

    mutation: Mutation
    status: str
    seconds: float
    said: str


def copy_package(folder: Path) -> None:
    """Copies what the tests need into a folder that exists.

    In the form of an installed package, so that nothing of the checkout is imported.
    """
    shutil.copytree(ROOT / "hf_elmo", folder / "hf_elmo", ignore=IGNORED)
    for name in INSIDE:
        shutil.copytree(ROOT / name, folder / "hf_elmo" / name, ignore=IGNORED)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=IGNORED)
    _complete(folder, ROOT)


def _complete(folder: Path, source: Path) -> None:
    """Adds the settings of pytest, and the folders under the names that they have in a checkout."""
    shutil.copy(source / "pyproject.toml", folder / "pyproject.toml")
    for name in INSIDE:
        (folder / name).symlink_to(folder / "hf_elmo" / name, target_is_directory=True)


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}


def check_what_is_imported(folder: Path) -> None:
    """Raises if the package that tests in the copy see is not the copy."""
    found = subprocess.run(
        [sys.executable, "-c", WHERE], cwd=folder, env=environment(folder), capture_output=True, text=True, check=True
    ).stdout.split()
    foreign = [path for path in found if not Path(path).is_relative_to(folder)]
    if foreign or not found:
        raise RuntimeError(f"Tests in {folder} would import {foreign}, not the copy there.")


def mutate(folder: Path, mutation: Mutation) -> None:
    """Makes the mistake; raises if its place is not found, or found twice."""
    path = folder / mutation.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.file} has {mutation.old!r} {text.count(mutation.old)} times, not once.")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")


def run_tests(folder: Path, tests: Sequence[str], patience: float | None = None) -> tuple[int | None, list[str]]:
    """The exit code of pytest, None if it did not end; and what it said of the tests that failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}"]
    try:
        done = subprocess.run(
            [*command, *tests], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return None, [f"did not end within {patience} seconds"]
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    return done.returncode, lines or done.stdout.splitlines()[-1:] or done.stderr.splitlines()[-1:]


def replay(mutation: Mutation, sound: Path) -> Outcome:
    """Makes one mistake in a copy of the sound package."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutation-") as place:
        folder = Path(place).resolve()
        for name in ("hf_elmo", "tests"):
            shutil.copytree(sound / name, folder / name, ignore=IGNORED)
        _complete(folder, sound)
        try:
            mutate(folder, mutation)
            code, lines = run_tests(folder, mutation.tests, PATIENCE)
        except ValueError as error:
            code, lines = PASSED - 1, [str(error)]
        said = "".join(lines[-1:]).replace(str(folder), "")
    status = {FAILED: "caught", None: "caught", PASSED: "SURVIVED"}.get(code, "BROKEN")
    blind = blind_tests(mutation.tests, lines) if code == FAILED else []
    if blind:
        status, said = "SURVIVED", f"not noticed by {', '.join(blind)}"
    return Outcome(mutation, status, time.perf_counter() - begin, said)


def blind_tests(tests: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Those of the tests of which pytest does not say that they failed, in any of their cases."""
    failed = [line.partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return [
        test for test in tests if not any(line == test or line.startswith((f"{test} ", f"{test}[")) for line in failed)
    ]


def failing_without(mutations: Sequence[Mutation], sound: Path) -> list[str]:
    """What pytest says of those of the tests that fail without any mistake."""
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    code, lines = run_tests(sound, tests)
    return [] if code == PASSED else [line for line in lines if not line.startswith("E ")] or lines


def without_excuse(outcome: Outcome, failing: Sequence[str]) -> Outcome:
    """The outcome; a mistake is not noticed by a test that fails anyway."""
    if any(test in line for test in outcome.mutation.tests for line in failing):
        return replace(outcome, status="BROKEN", said="its test fails without the mistake, too")
    return outcome


def line_of(outcome: Outcome) -> str:
    mutation = outcome.mutation
    line = f"{outcome.status:8}  {mutation.row:9}  {outcome.seconds:5.0f} s  {mutation.file}: {mutation.why}"
    return line if outcome.status == "caught" else f"{line}\n{'':8}  {outcome.said}"


def record(outcomes: Sequence[Outcome], command: str, earlier: Sequence[dict]) -> dict:
    """What is written to a file of results: all mistakes, those that were not replayed now as in an earlier file."""
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    known = {(entry["row"], entry["why"]): entry for entry in earlier}
    for outcome in outcomes:
        entry = {name: value for name, value in asdict(outcome.mutation).items() if name not in ("old", "new")}
        found = {"status": outcome.status, "seconds": round(outcome.seconds), "date": date, "command": command}
        known[entry["row"], entry["why"]] = entry | found
    entries = [known[mutation.row, mutation.why] for mutation in MUTATIONS if (mutation.row, mutation.why) in known]
    caught = sum(entry["status"] == "caught" for entry in entries)
    return {"mutations": len(MUTATIONS), "caught": caught, "results": entries}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="ROW", help="replay the mistakes of these rows only")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time (default: %(default)s)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write what was found there; what was found before stays"
    )
    arguments = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if arguments.only is None or mutation.row in arguments.only]
    if not chosen:
        parser.error(f"--only {' '.join(arguments.only)}: the rows are {sorted({one.row for one in MUTATIONS})}")
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as place, ThreadPoolExecutor(arguments.jobs) as pool:
        sound = Path(place).resolve()  # which nobody edits meanwhile
        copy_package(sound)
        check_what_is_imported(sound)
        baseline = pool.submit(failing_without, chosen, sound)
        for outcome in pool.map(lambda mutation: replay(mutation, sound), chosen):
            outcomes.append(outcome)
            print(line_of(outcome), flush=True)
        failing = baseline.result()
    print("\n".join(["without any mistake:", *failing]) if failing else "without any mistake, all tests pass")
    outcomes = [without_excuse(outcome, failing) for outcome in outcomes]
    caught = sum(outcome.status == "caught" for outcome in outcomes)
    print(f"{caught} of {len(outcomes)} mistakes were noticed")
    if arguments.json is not None:
        earlier = json.loads(arguments.json.read_text(encoding="utf-8"))["results"] if arguments.json.exists() else []
        result = record(outcomes, " ".join(["python", "tests/replay_mutations.py", *sys.argv[1:]]), earlier)
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
