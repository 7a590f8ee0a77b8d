"""Every promise has a test, and the report on them says what the run found."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from promises import PROMISES, RESULTS, SECTIONS, report_of, state_of

TESTS = Path(__file__).parent
ROOT = TESTS.parent
REPORT = ROOT / "RELIABILITY.md"


def test_every_promise_has_a_test_and_every_mark_a_promise():
    marked = {
        row
        for path in TESTS.glob("test_*.py")
        if path != Path(__file__)
        for row in re.findall(r'mark\.promise\("(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert marked == set(PROMISES)


def test_the_report_of_this_checkout_lists_every_promise():
    """With the words of today, and as its figures say; what it says of a run is up to the run."""
    text = REPORT.read_text(encoding="utf-8")
    assert text == report_of(ROOT / RESULTS), "run: python tests/promises.py"
    for row, promise in PROMISES.items():
        assert f"\n| {row} | {promise.text} | " in text
    assert all(f"\n## {title}\n" in text for title in SECTIONS.values())
    assert {row[0] for row in PROMISES} == set(SECTIONS)


def test_fewer_trials_need_a_reason():
    for row, promise in PROMISES.items():
        assert (promise.ordinary is None) == (promise.because == ""), row
        assert promise.ordinary is None or 1 <= promise.ordinary < promise.trials, row


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({}, "🔴 no test was run"),
        ({"trials": 0, "outcomes": {}}, "🔴 no test was run"),
        ({"trials": 9, "outcomes": {"passed": 9}}, "🔴 fewer than 10 trials"),
        ({"trials": 12, "outcomes": {"passed": 2, "failed": 1}}, "🔴 1 failed"),
        ({"trials": 12, "outcomes": {"passed": 2, "skipped": 3}}, "🔴 3 skipped"),
        ({"trials": 10, "outcomes": {"passed": 1}}, "🟢 kept"),
    ],
)
def test_what_is_red(figures, says):
    assert state_of(figures, 10) == says


EXAMPLE = """
import pytest

@pytest.mark.promise("S4")
@pytest.mark.parametrize("number", range(12))
def test_cases(number):
    pass

@pytest.mark.promise("N3", n=150)
@pytest.mark.promise("N4", n=100)
def test_two_promises():
    pass

@pytest.mark.promise("N3", n=50)
def test_failing():
    assert False

@pytest.mark.promise("N8", n=20)
def test_skipped():
    pytest.skip("on purpose")

@pytest.fixture
def broken():
    yield
    raise RuntimeError("on purpose")

@pytest.mark.promise("R8")
def test_broken_afterwards(broken):
    pass

@pytest.mark.promise("M1")
def test_fewer_than_in_full():
    pass
"""
FOUND = {
    "S4": "12 | 🟢 kept",
    "N3": "150 | 🔴 1 failed",
    "N4": "100 | 🟢 kept",
    "N8": "0 | 🔴 1 skipped",
    "R8": "0 | 🔴 1 failed",
    "M1": "1 | 🟢 kept",
    "S1": "0 | 🔴 no test was run",
}


def run_example(folder: Path, content: str, *options: str, full: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(TESTS)!r})\npytest_plugins = ['promises']\n"
    )
    (folder / "test_example.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "--reliability", "report.md", *options]
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "HF_ELMO_FULL": full}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("options", [[], ["--numprocesses", "2", "--dist", "loadfile"]], ids=["one", "two"])
def test_a_run_writes_what_it_found(tmp_path, options):
    finished = run_example(tmp_path, EXAMPLE, *options)
    assert "1 failed, 15 passed, 1 skipped, 1 error" in finished.stdout
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for row, found in FOUND.items():
        assert f"| {row} | {PROMISES[row].text} | {found} | 20" in text
    figures = json.loads((tmp_path / RESULTS / "ordinary.json").read_text())
    assert figures["command"] == " ".join(["pytest", "-p", "xdist", "--reliability", "report.md", *options])
    assert figures["promises"]["S4"] == {"trials": 12, "outcomes": {"passed": 12}, "files": {"test_example.py": 12}}


def test_a_full_run_is_written_beside_the_ordinary_one(tmp_path):
    run_example(tmp_path, EXAMPLE)
    run_example(tmp_path, EXAMPLE.replace('promise("M1")', 'promise("M1", n=2)'), full="1")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert re.search(r"\| M1 \| .* \| 1 \| 🟢 kept \| 20\S+ \| 2 \| 🟢 kept 20\S+ \| `test_example.py` \(1\) \|", text)
    assert "- full run of 20" in text
    assert "`HF_ELMO_FULL=1 pytest -p" in text


@pytest.mark.parametrize("mark", ['"S99"', '"S1", n=0'])
def test_marks_that_make_no_sense_are_refused(tmp_path, mark):
    finished = run_example(tmp_path, EXAMPLE.replace('"S4"', mark))
    assert finished.returncode == 4
    assert re.search(r"promise\('S\d+', n=\d\) is not possible: rows are S1, S2, ", finished.stderr)
