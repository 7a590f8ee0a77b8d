"""The list of mistakes that the tests must notice is whole; `replay_mutations.py` replays it."""

import ast
import subprocess
from functools import cache
from pathlib import Path

import pytest
import replay_mutations
from mutations import MUTATIONS, Mutation
from promises import PROMISES

ROOT = Path(__file__).parents[1]


@cache
def names_of_tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.row}: {mutation.why}")
def test_mutations_can_be_made_and_their_tests_exist(mutation, tmp_path):
    copy = tmp_path / mutation.file
    copy.parent.mkdir(parents=True)
    copy.write_bytes((ROOT / mutation.file).read_bytes())
    replay_mutations.mutate(tmp_path, mutation)
    assert copy.read_bytes() != (ROOT / mutation.file).read_bytes()
    ast.parse(copy.read_text(encoding="utf-8"))
    assert mutation.tests
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in names_of_tests(file), test


def test_every_promise_has_a_mutation():
    assert set(PROMISES) <= {mutation.row for mutation in MUTATIONS}
    assert len({(mutation.file, mutation.old, mutation.new) for mutation in MUTATIONS}) == len(MUTATIONS)


def test_every_test_of_a_promise_is_named_by_a_mutation():
    """Each of them has been seen to fail."""
    named = {test.partition("[")[0] for mutation in MUTATIONS for test in mutation.tests}
    marked = set()
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
            if isinstance(node, ast.FunctionDef) and any("mark.promise(" in mark for mark in marks):
                marked.add(f"tests/{path.name}::{node.name}")
    assert len(marked) > len(PROMISES)
    assert marked - named == set()


def test_places_that_are_gone_are_told(tmp_path):
    (tmp_path / "a.py").write_text("one\none\n")
    for old, times in (("two", 0), ("one", 2)):
        with pytest.raises(ValueError, match=f"a.py has '{old}' {times} times, not once"):
            replay_mutations.mutate(tmp_path, Mutation("S1", "a.py", old, "", (), ""))


def test_the_copy_is_what_is_imported(tmp_path):
    replay_mutations.copy_package(tmp_path)
    (tmp_path / "hf_elmo" / "__init__.py").write_text("")  # torch is not needed to see where it comes from
    for name in ("conversion", "scripts"):
        (tmp_path / "hf_elmo" / name / "__init__.py").write_text("")
    for module in ("conversion/hdf5.py", "scripts/arguments.py"):
        (tmp_path / "hf_elmo" / module).write_text("")
    replay_mutations.check_what_is_imported(tmp_path)
    (tmp_path / "hf_elmo").rename(tmp_path / "other")
    with pytest.raises((RuntimeError, subprocess.CalledProcessError)):
        replay_mutations.check_what_is_imported(tmp_path)


def test_tests_that_fail_anyway_notice_nothing():
    caught = replay_mutations.Outcome(MUTATIONS[0], "caught", 1, "")
    failing = [f"FAILED {MUTATIONS[0].tests[0]} - assert"]
    assert replay_mutations.without_excuse(caught, failing).status == "BROKEN"
    assert replay_mutations.without_excuse(caught, ["FAILED tests/test_other.py::test_it"]).status == "caught"


def test_each_of_the_tests_must_fail():
    lines = ["FAILED a.py::test_one[case 1] - assert", "ERROR a.py::test_two - OSError", "FAILED a.py::test_three"]
    tests = ["a.py::test_one", "a.py::test_two", "a.py::test_three", "a.py::test_one[case 1]"]
    assert replay_mutations.blind_tests(tests, lines) == []
    blind = ["a.py::test", "a.py::test_one[case 2]", "a.py::test_four"]
    assert replay_mutations.blind_tests([*tests, *blind], lines) == blind


def test_results_of_earlier_replays_stay():
    first, second, third = MUTATIONS[:3]
    found = [replay_mutations.Outcome(one, "caught", 1.4, "") for one in (first, second)]
    earlier = replay_mutations.record(found, "all", [{"row": "Z1", "why": "is no mistake any more"}])["results"]
    found = [replay_mutations.Outcome(one, "SURVIVED", 2, "") for one in (second, third)]
    result = replay_mutations.record(found, "some", earlier)
    assert (result["mutations"], result["caught"]) == (len(MUTATIONS), 1)
    assert [(entry["why"], entry["status"], entry["command"]) for entry in result["results"]] == [
        (first.why, "caught", "all"),
        (second.why, "SURVIVED", "some"),
        (third.why, "SURVIVED", "some"),
    ]


def test_only_failing_tests_count_as_notice(tmp_path):
    """A mistake that leaves its test green survives, and so does one whose test does not exist."""
    (tmp_path / "test_it.py").write_text("def test_green(): pass\ndef test_red(): assert False\n")
    codes = {
        name: replay_mutations.run_tests(tmp_path, [f"test_it.py::{name}"])[0]
        for name in ("test_green", "test_red", "x")
    }
    assert codes == {"test_green": 0, "test_red": 1, "x": 4}
