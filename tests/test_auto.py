"""A saved folder through the Auto classes: with the package, as custom code without it, and by way of the Hub."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hub_stand_in import HubStandIn, run_client
from tiny import SENTENCES, random_model
from transformers import AutoConfig, AutoModel, AutoTokenizer, pipeline

import hf_elmo
from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from hf_elmo.configuration_elmo import AUTO_MAP, CODE_FILES

HUB_FILES = sorted(CODE_FILES)
# transformers itself needs the last three, so whoever loads a folder with it has them.
ALLOWED_IMPORTS = {"torch", "transformers", "huggingface_hub", "numpy", "tokenizers"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model and its tokenizer, saved."""
    folder = tmp_path_factory.mktemp("saved") / "elmo"
    random_model().save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)
    return folder


def vectors(folder: Path) -> np.ndarray:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    with torch.no_grad():
        return model(**tokenizer(SENTENCES, padding=True, return_tensors="pt")).last_hidden_state.numpy()


# --- With the package ------------------------------------------------------------------------------------------------


def test_auto_classes_know_elmo(folder):
    assert type(AutoConfig.from_pretrained(folder)) is ElmoConfig
    assert type(AutoTokenizer.from_pretrained(folder)) is ElmoTokenizer
    assert type(AutoModel.from_pretrained(folder)) is ElmoModel
    assert type(AutoModel.from_config(AutoConfig.from_pretrained(folder))) is ElmoModel
    for name, place in AUTO_MAP.items():
        if name.startswith("AutoModelFor"):
            head = getattr(transformers, name).from_pretrained(folder)
            assert type(head) is getattr(hf_elmo, place.rpartition(".")[2])


@torch.no_grad()
def test_feature_extraction_pipeline_on_raw_text(folder):
    extract = pipeline("feature-extraction", model=str(folder))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    texts = ["It's a river bank, isn't it?", "", "🙂", "One <S> more."]
    for text, found in zip(texts, extract(texts), strict=True):
        expected = model(**tokenizer(text, return_tensors="pt")).last_hidden_state
        torch.testing.assert_close(torch.tensor(found), expected)
    assert np.array(extract("a b c")).shape == (1, 5, 12)
    batched = extract(texts, batch_size=4)
    for one, among_others in zip(extract(texts), batched, strict=True):
        words = len(one[0])
        np.testing.assert_allclose(np.array(among_others)[0, :words], np.array(one)[0], atol=1e-6)


# --- Without it ------------------------------------------------------------------------------------------------------

WITHOUT_THE_PACKAGE = """
import socket, sys
for absent in ("hf_elmo", "h5py"):
    sys.modules[absent] = None  # an import fails
def refuse(*arguments, **options):
    raise AssertionError("the network was used")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
import json, os
import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoTokenizer, pipeline
folder, resaved, sentences = os.environ["FOLDER"], os.environ["RESAVED"], json.loads(os.environ["SENTENCES"])
"""


def run_without_the_package(code: str, tmp_path: Path, folder: Path) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))},
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "1",
        "FOLDER": str(folder),
        "RESAVED": str(tmp_path / "resaved"),
        "SENTENCES": json.dumps(SENTENCES),
    }
    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PACKAGE + code],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.promise("S8")
@pytest.mark.slow
def test_every_auto_class_as_custom_code(tmp_path, folder):
    """Loaded, used and saved again in one process; what was saved again is loaded in the next."""
    load_and_save = """
trusted = {"trust_remote_code": True}
config = AutoConfig.from_pretrained(folder, **trusted)
tokenizer = AutoTokenizer.from_pretrained(folder, **trusted)
model = AutoModel.from_pretrained(folder, **trusted)
fresh = AutoModel.from_config(config, **trusted)
import transformers
for name in config.auto_map:
    if name.startswith("AutoModelFor"):  # every head on the base model's folder, saved and loaded again as itself
        head = getattr(transformers, name).from_pretrained(folder, **trusted)
        head.save_pretrained(resaved + name)
        again = getattr(transformers, name).from_pretrained(resaved + name, **trusted)
        assert type(again).__name__ == name.replace("AutoModel", "Elmo"), type(again)
        assert all(torch.equal(a, b) for a, b in zip(head.parameters(), again.parameters()))
assert fresh.config.hidden_size == 12
assert type(model).__module__.startswith("transformers_modules."), type(model)
with torch.no_grad():
    outputs = model(**tokenizer(sentences, padding=True, return_tensors="pt"))
extracted = pipeline("feature-extraction", model=folder, **trusted)("It's raw text.")
assert len(extracted[0]) == 7, len(extracted[0])
model.save_pretrained(resaved)
tokenizer.save_pretrained(resaved)
print(json.dumps(outputs.last_hidden_state.tolist()))
"""
    expected = vectors(folder)
    found = json.loads(run_without_the_package(load_and_save, tmp_path, folder))
    np.testing.assert_allclose(np.array(found), expected, atol=1e-6)
    again = tmp_path / "again"
    again.mkdir()
    found = json.loads(run_without_the_package(load_and_save, again, tmp_path / "resaved"))
    np.testing.assert_allclose(np.array(found), expected, atol=1e-6)
    for name in HUB_FILES:
        assert (again / "resaved" / name).read_bytes() == (folder / name).read_bytes()
    assert json.loads((again / "resaved/config.json").read_text()) == json.loads((folder / "config.json").read_text())


@pytest.mark.promise("S8")
@pytest.mark.slow
def test_custom_code_is_refused_without_consent(tmp_path, folder):
    found = run_without_the_package(
        """
for auto in (AutoConfig, AutoTokenizer, AutoModel):
    try:
        auto.from_pretrained(folder, trust_remote_code=False)
    except ValueError as error:
        print("refused" if "trust_remote_code" in str(error) else error)
    else:
        print("loaded")
""",
        tmp_path,
        folder,
    )
    assert found.split() == ["refused"] * 3


@pytest.mark.promise("S8")
def test_a_saved_folder_has_the_code_of_the_package_and_no_other(folder):
    package = Path(hf_elmo.__file__).parent
    assert sorted(path.name for path in folder.glob("*.py")) == HUB_FILES
    for name in HUB_FILES:
        assert (folder / name).read_bytes() == (package / name).read_bytes()


@pytest.mark.promise("S8")
@pytest.mark.parametrize("name", HUB_FILES)
def test_hub_files_import_only_what_transformers_brings(name):
    tree = ast.parse((Path(hf_elmo.__file__).parent / name).read_text())
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(node.module.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1, f"{name} imports from outside its folder"
            assert f"{node.module}.py" in HUB_FILES
    assert imported - set(sys.stdlib_module_names) <= ALLOWED_IMPORTS


# --- By way of the Hub -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pushed_to_the_hub_and_loaded_by_name(tmp_path, folder):
    with HubStandIn() as hub:
        run_client(
            """
import os
from transformers import AutoModel, AutoTokenizer
import hf_elmo
AutoModel.from_pretrained(os.environ["FOLDER"]).push_to_hub("somebody/elmo")
AutoTokenizer.from_pretrained(os.environ["FOLDER"]).push_to_hub("somebody/elmo")
""",
            {**hub.environment(tmp_path / "author"), "FOLDER": str(folder)},
        )
        pushed = hub.files("somebody/elmo")
        assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *HUB_FILES} <= set(
            pushed
        )
        assert any(path.startswith("/api/models/somebody/elmo/commit/") for _, path in hub.requests)

        load = """
import json, os, sys
{prepare}
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("somebody/elmo", {options})
model = AutoModel.from_pretrained("somebody/elmo", {options})
batch = tokenizer(json.loads(os.environ["SENTENCES"]), padding=True, return_tensors="pt")
print(json.dumps(model(**batch).last_hidden_state.tolist()))
"""
        expected = vectors(folder)
        for home, prepare, options in (
            ("with", "import hf_elmo", ""),
            ("without", "sys.modules['hf_elmo'] = None", "trust_remote_code=True"),
        ):
            environment = {**hub.environment(tmp_path / home), "SENTENCES": json.dumps(SENTENCES)}
            found = run_client(load.format(prepare=prepare, options=options), environment)
            np.testing.assert_allclose(np.array(json.loads(found)), expected, atol=1e-6)
