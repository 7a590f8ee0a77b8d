"""A Python with TensorFlow, in an environment of its own, for tests that compare with it.

It is made once, with pip, in the cache folder that `scripts/original_wheels.py` names, and takes 1.6 GB there.
"""

import functools
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pytest

from hf_elmo.scripts.original_wheels import cache_folder

REQUIREMENT = "tensorflow-cpu==2.21.0"

needs_tensorflow = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason=f"{REQUIREMENT} is not made for this version of Python"
)


def run_tensorflow(program: str, *arguments: str | os.PathLike[str]) -> str:
    """Runs a program text with TensorFlow, where `sys.argv[1:]` are the arguments; returns what it printed."""
    command = [str(tensorflow_python()), "-I", "-c", program, *map(str, arguments)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TF_ENABLE_ONEDNN_OPTS": "0"}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if finished.returncode:
        raise RuntimeError(f"The program for TensorFlow failed:\n{finished.stderr[-5000:]}")
    return finished.stdout


@functools.cache
def tensorflow_python() -> Path:
    """The interpreter. Several processes may ask for it at once: one that comes second throws its own away."""
    name = f"{REQUIREMENT.replace('==', '-')}-python{sys.version_info.major}.{sys.version_info.minor}"
    target = cache_folder() / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="install-", dir=target.parent) as temporary:
            made = Path(temporary) / name
            venv.create(made, with_pip=True)
            _pip_install(made / "bin" / "python")
            try:
                os.rename(made, target)
            except OSError:
                if not target.is_dir():  # otherwise another process was faster
                    raise
    return target / "bin" / "python"


def _pip_install(python: Path) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--only-binary=:all:", REQUIREMENT]
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=1800
    )
    if finished.returncode:
        raise RuntimeError(
            f"pip could not install {REQUIREMENT} (exit code {finished.returncode}). Make a package index reachable. "
            f"pip said:\n{finished.stdout[-5000:]}"
        )
