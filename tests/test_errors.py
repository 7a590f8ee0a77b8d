"""What a user reads about hostile and broken files, word for word: the file, what is wrong with it, and what to do."""

import io
import json
import re
import tarfile
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import random_model

from hf_elmo import ElmoEmbedder, ElmoTokenizer, load_checked
from hf_elmo.checked_loading import load_config
from hf_elmo.cli import _sentence_of
from hf_elmo.conversion.archives import unpack
from hf_elmo.conversion.detection import detect
from hf_elmo.conversion.hdf5 import read_hdf5
from hf_elmo.conversion.options import read_options
from hf_elmo.conversion.pickles import read_matrix, read_state_dict
from hf_elmo.corpus import CorpusReader
from hf_elmo.corpus_check import check_corpus
from hf_elmo.hub import save_hub_folder

ROOT = Path(__file__).parents[1]


def hdf5_with_a_link(path):
    with h5py.File(path, "w") as file:
        file["a"] = h5py.SoftLink("/elsewhere")
        file["room"] = np.zeros(100, np.float32)
    read_hdf5(path, {"a": (2,)})


def hdf5_with_nan(path):
    with h5py.File(path, "w") as file:
        file["a"] = np.array([1, np.nan], np.float32)
    read_hdf5(path, {"a": (2,)})


def pickle_that_calls_something(path):
    class Evil:
        def __reduce__(self):
            return print, ("ran",)

    torch.save({"weight": Evil()}, path)
    read_state_dict(path, {})


def pickle_that_torch_does_not_take(path):
    torch.save(np.array(["a", "b"]), path)
    read_matrix(path, 2)


def archive_that_leaves_the_folder(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../weights.hdf5", b"")
    unpack(path, path.parent)


def archive_with_a_link(path):
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("weights.hdf5")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link, io.BytesIO())
    unpack(path, path.parent)


def options_with_a_long_number(path):
    path.write_text('{"lstm": ' + "9" * 10_000 + "}")
    read_options(path)


def config_with_an_impossible_size(path):
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "elmo", "cell_size": 10**12}))
    load_config(path)


def weights_that_are_missing(path):
    folder = save_hub_folder(random_model(), ElmoTokenizer(), path, card="")
    state = load_file(folder / "model.safetensors")
    del state["mixes.0.gamma"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    load_checked(folder)


def weights_that_were_cut(path):
    folder = save_hub_folder(random_model(), ElmoTokenizer(), path, card="")
    (folder / "model.safetensors").write_bytes(b"\x08")
    load_checked(folder)


def weights_that_are_a_pickle(path):
    folder = save_hub_folder(random_model(), ElmoTokenizer(), path, card="")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    ElmoEmbedder.from_pretrained(folder)


def config_with_a_word_for_a_number(path):
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "elmo", "dropout": "much"}))
    load_config(path)


def page_instead_of_weights(path):
    path.mkdir()
    (path / "options.json").write_text('{"lstm": {}}')
    (path / "weights.hdf5").write_text("<html>404 Not Found</html>")
    detect(path)


def part_of_a_model(path):
    path.mkdir()
    (path / "options.json").write_text('{"lstm": {}}')
    detect(path)


def text_in_another_encoding(path):
    path.write_bytes("caf\u00e9 au lait\n".encode("latin-1") * 100)
    check_corpus(path).raise_if_fatal()


def text_that_must_be_utf8(path):
    path.write_bytes(b"fine\ncaf\xe9\n")
    list(CorpusReader(path, errors="stop", epochs=1))


ERRORS = {
    hdf5_with_a_link: (
        "{path}: 'a' is a soft or external link. Links are not followed; the arrays must be in the file itself."
    ),
    hdf5_with_nan: "{path}: the dataset 'a' has 1 of 2 values that are NaN or infinite. Get the file again.",
    pickle_that_calls_something: (
        "{path} cannot be read as weights that torch.save wrote, so nothing of it was used: it names '__builtin__ "
        "print', which no weights need. Get the file again, from where you trust it."
    ),
    archive_that_leaves_the_folder: (
        "{path}: the member '../weights.hdf5' has '..' in its name, which would lead out of the folder. No honest "
        "archive has that: get it from where you trust it."
    ),
    archive_with_a_link: (
        "{path}: the member 'weights.hdf5' is a symbolic link. Only plain files and folders are unpacked."
    ),
    options_with_a_long_number: "{path} is not valid JSON: it has a number of 10,000 digits. Get the file again.",
    config_with_an_impossible_size: (
        "{path}/config.json is not the config of an ELMo model: cell_size=1000000000000 is not possible: it must be "
        "between 1 and 16777216."
    ),
    weights_that_are_missing: (
        "The weights of {path} are not those of its ElmoModel: 1 missing (mixes.0.gamma). Get the folder again, or "
        "the config that belongs to it."
    ),
    weights_that_were_cut: (
        "{path}/model.safetensors cannot be read as safetensors (Error while deserializing header: header too small). "
        "Get the file again."
    ),
    weights_that_are_a_pickle: (
        "{path} has no weights, model.safetensors (pytorch_model.bin is a pickle, which can run code and is not "
        "read); get them again."
    ),
    config_with_a_word_for_a_number: (
        "{path}/config.json is not the config of an ELMo model: dropout='much' is not possible: allowed are "
        "float, int."
    ),
    page_instead_of_weights: (
        "{path}/weights.hdf5 is no HDF5 file, whatever its name says: it begins with b'<html>404 Not Found<'. Get it "
        "again. Beside it, there is: options (options.json)."
    ),
    part_of_a_model: (
        "{path} is not recognised. Found: options (options.json). allennlp needs options.json and an HDF5 file with "
        "the weights, as AllenNLP and bilm-tf publish them. 'hf-elmo convert --list' shows the formats (allennlp, "
        "aligned, allennlp-archive, manylangs, bilm-tf) and what each of them needs."
    ),
    text_in_another_encoding: (
        "The corpus cannot be trained on. 100 lines (100.000%) are not UTF-8. Is the text in another encoding? "
        "Convert it. {path}:1: caf\ufffd au lait"
    ),
    text_that_must_be_utf8: (
        "{path}, line 2: this is not UTF-8 (lines like this in the same block: 1). Convert the file, or choose "
        "errors='replace' (U+FFFD for what is no text) or errors='skip'."
    ),
}


@pytest.mark.parametrize("make", ERRORS, ids=lambda make: make.__name__)
def test_errors_word_for_word(make, tmp_path):
    path = tmp_path / "given"
    with pytest.raises((ValueError, OSError), match="given") as caught:
        make(path)
    assert str(caught.value) == ERRORS[make].replace("{path}", str(path))


def test_errors_of_the_system_name_the_file_and_no_number(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "given").read_bytes()
    assert str(_sentence_of(caught.value)) == f"{tmp_path / 'given'}: No such file or directory."


def test_no_error_advises_to_let_a_pickle_run(tmp_path):
    with pytest.raises(ValueError, match="torch does not take what it holds for weights") as caught:
        pickle_that_torch_does_not_take(tmp_path / "given")
    assert "weights_only" not in str(caught.value)


def test_the_security_document_names_existing_files():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|conversion|hf_elmo)/\w+\.py)`|\]\(([^)]+)\)", text)
    assert len(named) > 10
    for path in named:
        assert (ROOT / next(filter(None, path))).is_file(), path
