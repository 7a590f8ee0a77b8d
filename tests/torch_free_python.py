"""A Python without torch and transformers, in an environment of its own, for what must run without them.

It is made once, with pip, in the cache folder that `scripts/original_wheels.py` names, with the versions of
`constraints.txt`.
"""

import fcntl
import functools
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from hf_elmo.scripts.original_wheels import cache_folder

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
PACKAGES = ("numpy", "onnxruntime", "tokenizers")


def run_without_torch(program: str, *arguments: str | os.PathLike[str]) -> str:
    """Runs a program text, where `sys.argv[1:]` are the arguments; returns what it printed."""
    command = [str(torch_free_python()), "-I", "-c", program, *map(str, arguments)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if finished.returncode:
        raise RuntimeError(f"The program without torch failed:\n{finished.stderr[-5000:]}")
    return finished.stdout


def requirements() -> list[str]:
    """The packages, with the versions that are tested on this Python."""
    lines = CONSTRAINTS.read_text().splitlines()
    return [next((line for line in lines if line.startswith(f"{package}==")), package) for package in PACKAGES]


@functools.cache
def torch_free_python() -> Path:
    """The interpreter. If several processes ask for it at once, one makes it, and the others wait."""
    versions = "-".join(line.partition(";")[0].replace("==", "-") for line in requirements())
    name = f"{versions}-python{sys.version_info.major}.{sys.version_info.minor}"
    target = cache_folder() / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_name(f".{name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix="install-", dir=target.parent) as temporary:
                made = Path(temporary) / name
                venv.create(made, with_pip=True)
                _pip_install(made / "bin" / "python")
                os.rename(made, target)
    return target / "bin" / "python"


def _pip_install(python: Path) -> None:
    # On a Python that a marked version has left behind, pip takes the newest that still knows it.
    command = [str(python), "-I", "-m", "pip", "install", "--quiet", "--no-input", "--only-binary=:all:"]
    command += ["--constraint", str(CONSTRAINTS), *PACKAGES]
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=900
    )
    if finished.returncode:
        raise RuntimeError(
            f"pip could not install {', '.join(PACKAGES)} (exit code {finished.returncode}). Make a package index "
            f"reachable. pip said:\n{finished.stdout[-5000:]}"
        )
