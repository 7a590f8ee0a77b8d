"""The wheel: what is in it, and that it works in a fresh environment, far from the checkout."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from hf_elmo.scripts.original_wheels import allennlp_fixtures

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*command: object, **options) -> str:
    finished = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)  # the source archive, and the wheel from it
    (built,) = folder.glob("*.whl")
    return built


def test_what_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    packaged = {name for name in names if ".dist-info/" not in name}
    in_checkout = {
        f"{package}/{path.name}"
        for folder, package in (
            ("hf_elmo", "hf_elmo"),
            ("conversion", "hf_elmo/conversion"),
            ("scripts", "hf_elmo/scripts"),
            ("model_cards", "hf_elmo/model_cards"),
        )
        for path in (ROOT / folder).iterdir()
        if path.suffix in (".py", ".md", ".json", ".typed") or path.name == "py.typed"
    }
    in_checkout |= {f"hf_elmo/mini/{path.name}" for path in (ROOT / "hf_elmo" / "mini").glob("*")}
    in_checkout.add("hf_elmo_cli.py")
    assert packaged == in_checkout
    required = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", metadata, re.MULTILINE)
    assert sorted(required) == ["numpy", "safetensors", "tokenizers", "torch", "transformers"]
    assert "Requires-Python: >=3.10" in metadata
    assert "License-Expression: Apache-2.0" in metadata


def test_the_wheel_converts_and_embeds_in_a_fresh_environment(wheel, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    torch = next(line for line in constraints.read_text().splitlines() if line.startswith("torch=="))
    run(python, "-m", "pip", "install", "--quiet", torch)
    run(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, f"hf-elmo[convert] @ {wheel.as_uri()}")

    source = allennlp_fixtures() / "elmo"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = {"cwd": elsewhere, "env": {**outside, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}}
    command = environment / "bin" / "hf-elmo"
    assert "convert" in run(command, "--help", **options)
    printed = run(
        command, "convert", "allennlp", "--options", source / "options.json", "--weights", source / "lm_weights.hdf5",
        "--output", "elmo", "--quiet", **options,
    )  # fmt: skip
    assert printed.startswith("parity: max |difference|")
    run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=elsewhere / "elmo")

    embed = """
import hf_elmo
from transformers import AutoModel, AutoTokenizer
assert "environment" in hf_elmo.__file__, hf_elmo.__file__
tokenizer, model = AutoTokenizer.from_pretrained("elmo"), AutoModel.from_pretrained("elmo")
print(tuple(model(**tokenizer("It's a river bank.", return_tensors="pt")).last_hidden_state.shape))
"""
    assert run(python, "-c", embed, **options).strip() == "(1, 8, 32)"
