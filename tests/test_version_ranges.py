"""The versions of what the package needs: the ranges for users, and the two ends at which they are tested."""

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from transformers.dynamic_module_utils import get_relative_imports

import hf_elmo
from hf_elmo.configuration_elmo import AUTO_MAP

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parents[1]
FOR_DEVELOPERS = {"dev", "docs", "test"}  # extras whose tools need not be old
ENDS = ["constraints-oldest.txt", "constraints.txt"]


def ranges() -> dict[str, list[tuple[str, Requirement]]]:
    """What pyproject.toml asks for: name -> (extra, or "" without one; requirement)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, list[tuple[str, Requirement]]] = {}
    for extra, lines in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for requirement in map(Requirement, lines):
            if requirement.name != project["name"]:
                found.setdefault(canonicalize_name(requirement.name), []).append((extra, requirement))
    return found


def pins(name: str) -> dict[str, Version]:
    """A file of constraints: name -> its only version."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found: dict[str, Version] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        requirement = Requirement(line)
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", line
        assert canonicalize_name(requirement.name) not in found, f"{name} has {requirement.name} twice"
        found[canonicalize_name(requirement.name)] = Version(specifier.version)
    return found


def lower_bounds() -> dict[str, Version]:
    """The oldest version that a user may have of each dependency."""
    found: dict[str, Version] = {}
    for name, requirements in ranges().items():
        for extra, requirement in requirements:
            if extra not in FOR_DEVELOPERS:
                bounds = [Version(s.version) for s in requirement.specifier if s.operator == ">="]
                assert len(bounds) == 1, f"{requirement} needs one lower bound"
                found[name] = max(bounds[0], found.get(name, bounds[0]))
    return found


def test_the_oldest_versions_are_the_lower_bounds():
    oldest, bounds = pins("constraints-oldest.txt"), lower_bounds()
    del bounds["torch"]  # of which the old builds come with CUDA
    assert {"transformers", "numpy", "h5py", "accelerate"} <= bounds.keys()
    assert {name: oldest.get(name) for name in bounds} == bounds
    assert oldest["torch"] == pins("constraints.txt")["torch"]


@pytest.mark.parametrize("name", ENDS)
def test_both_ends_lie_in_the_ranges(name):
    pinned = pins(name)
    for package, requirements in ranges().items():
        for extra, requirement in requirements:
            if extra not in FOR_DEVELOPERS:
                assert package in pinned, f"{name} does not pin {package}"
            if package in pinned:
                assert pinned[package] in requirement.specifier, f"{name} pins {package}=={pinned[package]}"


def test_the_audit_fails_if_it_could_not_look():
    """Without `--strict`, pip-audit skips what the service does not know and ends well."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (command,) = re.findall(r"run: .*(pip-audit .*)", workflow)
    assert "--strict" in command.split()
    assert "constraints.txt" in command.split()


def test_each_entry_names_all_code_files_that_it_needs():
    """Before 5.10, transformers takes from a local folder what the entry of the auto map names, and no more."""
    package = Path(hf_elmo.__file__).parent
    listed = [[found] if isinstance(found, str) else found for found in AUTO_MAP.values()]
    entries = {name.partition(".")[0] for names in listed for name in names if name}
    assert "modeling_elmo_heads" in entries
    for entry in entries:
        named = set(get_relative_imports(package / f"{entry}.py"))
        for name in named:
            further = set(get_relative_imports(package / f"{name}.py"))
            assert further <= named, f"{entry}.py does not name {sorted(further - named)}, which {name}.py imports"
