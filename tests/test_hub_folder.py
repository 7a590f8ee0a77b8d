"""Hub folders are complete, checked, and appear as a whole or not at all."""

import errno
import os
import subprocess
import sys

import pytest
import yaml
from originals import elmo_options, write_random_weights
from safetensors import SafetensorError
from transformers import AutoModel, AutoTokenizer

import hf_elmo
from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer, hub
from hf_elmo.configuration_elmo import CODE_FILES
from hf_elmo.conversion import convert_allennlp
from hf_elmo.hub import new_folder, save_hub_folder, verify_checksums
from hf_elmo.model_card import converted_model_card

CODE = sorted(CODE_FILES)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def model():
    return ElmoModel(
        ElmoConfig(
            vocab_size=4,
            projection_size=4,
            cell_size=6,
            char_cnn_filters=[[1, 4]],
            num_highway_layers=1,
            char_embedding_size=2,
        )
    )


@pytest.fixture
def folder(model, tmp_path):
    return save_hub_folder(model, ElmoTokenizer(), tmp_path / "model", card="# A card\n")


# --- The folder ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("S8")
def test_folder_is_complete_and_loads(folder):
    files = ["README.md", "SHA256SUMS", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert names_in(folder) == sorted([*files, *CODE])
    assert names_in(folder.parent) == ["model"]
    batch = AutoTokenizer.from_pretrained(folder)("A sentence.", return_tensors="pt")
    assert AutoModel.from_pretrained(folder)(**batch).last_hidden_state.shape == (1, 5, 8)
    assert (folder / "README.md").read_text() == "# A card\n"


@pytest.mark.promise("S8")
def test_code_files_are_those_of_the_package(folder):
    package = os.path.dirname(hf_elmo.__file__)
    for name in CODE:
        with open(os.path.join(package, name), "rb") as file:
            assert (folder / name).read_bytes() == file.read(), name


def test_everyone_may_read_what_the_owner_lets_them(folder):
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_existing_folders_are_kept(folder, model):
    before = (folder / "SHA256SUMS").read_bytes()
    with pytest.raises(FileExistsError, match=r"exists and is not empty\. Choose another folder"):
        save_hub_folder(model, ElmoTokenizer(), folder, card="other")
    assert (folder / "SHA256SUMS").read_bytes() == before
    save_hub_folder(model, ElmoTokenizer(), folder, card="other", overwrite=True)
    assert (folder / "README.md").read_text() == "other"
    assert names_in(folder.parent) == ["model"]


@pytest.mark.parametrize("foreign", ["notes.txt", ".git/config", "data/corpus.txt"])
def test_folders_with_other_files_are_never_overwritten(folder, model, foreign):
    (folder / foreign).parent.mkdir(exist_ok=True)
    (folder / foreign).write_text("mine")
    with pytest.raises(FileExistsError, match=f"holds '{foreign}', which was not written by hf-elmo"):
        save_hub_folder(model, ElmoTokenizer(), folder, card="other", overwrite=True)
    assert (folder / foreign).read_text() == "mine"
    assert (folder / "README.md").read_text() == "# A card\n"


def test_links_to_folders_count_as_foreign(folder, model, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "link").symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(FileExistsError, match="holds 'link'"):
        save_hub_folder(model, ElmoTokenizer(), folder, card="other", overwrite=True)


def test_files_are_not_mistaken_for_folders(model, tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(FileExistsError, match="is a file"):
        save_hub_folder(model, ElmoTokenizer(), tmp_path / "model", card="", overwrite=True)
    assert (tmp_path / "model").read_text() == "mine"


def test_empty_folders_and_missing_parents_are_fine(model, tmp_path):
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "a" / "b"):
        verify_checksums(save_hub_folder(model, ElmoTokenizer(), place, card=""))


def test_linked_folder_is_written_where_the_link_leads(model, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    save_hub_folder(model, ElmoTokenizer(), tmp_path / "link", card="")
    assert (tmp_path / "link").is_symlink()
    verify_checksums(tmp_path / "real")


def test_failure_leaves_nothing_behind(tmp_path):
    def fail_half_way():
        with new_folder(tmp_path / "model") as temporary:
            (temporary / "half").write_text("written")
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail_half_way()
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("failing", [1, 2])
def test_failed_move_brings_the_old_folder_back(folder, model, monkeypatch, failing):
    calls = []
    rename = os.rename

    def fail(source, target):
        calls.append(source)
        if len(calls) == failing:
            raise OSError(errno.EIO, "on purpose", str(target))
        rename(source, target)

    monkeypatch.setattr(hub.os, "rename", fail)
    with pytest.raises(OSError, match="on purpose"):
        save_hub_folder(model, ElmoTokenizer(), folder, card="other", overwrite=True)
    verify_checksums(folder)
    assert (folder / "README.md").read_text() == "# A card\n"
    assert names_in(folder.parent) == ["model"]


def test_full_disk_is_told_with_the_place(model, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(ElmoModel, "save_pretrained", fail)
    with pytest.raises(OSError, match=f"cannot be written to {tmp_path}.*No space left"):
        save_hub_folder(model, ElmoTokenizer(), tmp_path / "model", card="")
    assert names_in(tmp_path) == []


# --- Checksums -------------------------------------------------------------------------------------------------------


def test_checksums_are_those_of_sha256sum(folder):
    verify_checksums(folder)
    checked = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count(": OK") == len(names_in(folder)) - 1


def test_one_changed_bit_is_found(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors has the SHA-256 .*, but SHA256SUMS says"):
        verify_checksums(folder)


def test_missing_and_extra_files_are_found(folder):
    (folder / ".gitattributes").write_text("hidden files are the Hub's own")
    verify_checksums(folder)
    (folder / "extra.py").write_text("import os")
    with pytest.raises(ValueError, match=r"extra\.py is not listed in SHA256SUMS"):
        verify_checksums(folder)
    (folder / "extra.py").unlink()
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        verify_checksums(folder)


@pytest.mark.parametrize("line", ["nonsense", "0" * 64 + "  /etc/hostname", "0" * 64 + "  ../other", "0" * 63 + "  a"])
def test_bad_lists_are_refused(folder, line):
    with open(folder / "SHA256SUMS", "a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=r"SHA256SUMS: line \d+ is not a SHA-256 and the name of a file"):
        verify_checksums(folder)


def test_missing_list_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no SHA256SUMS"):
        verify_checksums(tmp_path)


# --- The card --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    base = tmp_path_factory.mktemp("card")
    source = write_random_weights(base / "source", elmo_options())
    return convert_allennlp(*source, base / "elmo-tiny", license="cc-by-4.0", languages=("no", "nn"))


def test_card_has_the_front_matter_of_the_hub(converted):
    _, front_matter, text = (converted.folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(front_matter) == {
        "license": "cc-by-4.0",
        "language": ["no", "nn"],
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction",
        "tags": ["elmo", "word-embeddings"],
    }
    assert "$" not in text
    assert "`cc-by-4.0` for the weights, as stated by whoever converted them" in text


def test_card_says_what_was_measured(converted):
    text = (converted.folder / "README.md").read_text(encoding="utf-8")
    assert str(converted.parity) in text
    assert f"| Weights from the source | {converted.num_parameters:,} |" in text
    for name in ("options.json", "weights.hdf5"):
        checksum = hub.sha256_of(converted.folder.parent / "source" / name)
        assert f"| `{name}` | `{checksum}` |" in text
    assert "| Clips | cell 3, output 3 |" in text
    assert "Words are cut after 48 bytes" in text


def test_example_of_the_card_runs(converted, tmp_path):
    """As it stands there, where the folder is and hf_elmo is imported, and without trusting the folder's code, too."""
    text = (converted.folder / "README.md").read_text(encoding="utf-8")
    example = text.split("```python\n")[1].split("```")[0]
    for program in (example, "import hf_elmo\n" + example.replace(", trust_remote_code=True", "")):
        checks = "assert vectors.shape == (2, 8, 16), vectors.shape\nassert len(layers) == 3\n"
        child = subprocess.run(
            [sys.executable, "-c", program + checks],
            cwd=converted.folder.parent,
            env={**os.environ, "HF_MODULES_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert child.returncode == 0, child.stderr


def test_unknown_licence_is_said_to_be_unknown(model):
    card = make_card(model)
    assert "license: unknown\n" in card
    assert "language" not in card.split("---\n")[1]
    assert "was not stated" in card


def make_card(model, **changes):
    settings = {"num_parameters": 7, "dialect": "x", "sources": [("a|b`c\nd", "00")], "parity": "", **changes}
    return converted_model_card("name", model.config, ElmoTokenizer(), **settings)


def test_names_of_files_cannot_break_the_card(model):
    assert "| `a_b_c_d` | `00` |" in make_card(model)


@pytest.mark.parametrize("license", ["Apache 2.0", "", "mit\ntags: [x]", "MIT"])
def test_licences_the_hub_would_not_take_are_refused(model, license):
    with pytest.raises(ValueError, match="is not spelled as on the Hub"):
        make_card(model, license=license)


@pytest.mark.parametrize("language", ["English", "e", "en\n- x", "EN"])
def test_languages_the_hub_would_not_take_are_refused(model, language):
    with pytest.raises(ValueError, match="is not a code such as"):
        make_card(model, languages=[language])
