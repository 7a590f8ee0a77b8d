"""A Python with TensorFlow, in an environment of its own, for tests that compare with it.

It is made once, with pip, in the cache folder that `scripts/original_wheels.py` names, and takes 1.6 GB there. The
original programs for TensorFlow, bilm-tf and simple_elmo, are not installed there but imported from their wheels.
"""

import fcntl
import functools
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pytest

from hf_elmo.scripts.original_wheels import cache_folder, cached_wheel

REQUIREMENT = "tensorflow-cpu==2.21.0"

# The third has the LSTM cells that TensorFlow itself no longer has.
ORIGINALS = (("bilm", "0.1.post5"), ("simple_elmo", "0.9.2"), ("tf_keras", "2.21.0"))

# Nothing of this is about numbers. smart_open also reads compressed files.
WITH_SIMPLE_ELMO = """
import os, sys, types
os.environ["TF_USE_LEGACY_KERAS"] = "1"
sys.path[:0] = sys.argv.pop(1).split(os.pathsep)
sys.modules["smart_open"] = types.SimpleNamespace(open=open)
"""

# bilm-tf is for the first version of TensorFlow, which the second still has inside, and for a Python in which a
# generator could end with StopIteration.
WITH_BILM_TF = (
    WITH_SIMPLE_ELMO
    + """
import tensorflow
tf = sys.modules["tensorflow"] = tensorflow.compat.v1
tf.disable_v2_behavior()
import bilm, bilm.data, bilm.training

all_sentences = bilm.data.LMDataset.get_sentence

def get_sentence(self):
    try:
        yield from all_sentences(self)
    except RuntimeError as error:
        if not isinstance(error.__cause__, StopIteration):
            raise

bilm.data.LMDataset.get_sentence = get_sentence
"""
)

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


def run_original(program: str, *arguments: str | os.PathLike[str]) -> str:
    """Runs a program text that begins with one of the two above."""
    wheels = [str(cached_wheel(version, package)) for package, version in ORIGINALS]
    return run_tensorflow(program, os.pathsep.join(wheels), *arguments)


@functools.cache
def tensorflow_python() -> Path:
    """The interpreter. If several processes ask for it at once, one makes it, and the others wait."""
    name = f"{REQUIREMENT.replace('==', '-')}-python{sys.version_info.major}.{sys.version_info.minor}"
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
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--only-binary=:all:", REQUIREMENT]
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=1800
    )
    if finished.returncode:
        raise RuntimeError(
            f"pip could not install {REQUIREMENT} (exit code {finished.returncode}). Make a package index reachable. "
            f"pip said:\n{finished.stdout[-5000:]}"
        )
