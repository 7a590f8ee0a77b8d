"""The originals that other tests compare with are the real ones, complete, and fetched safely."""

import ast
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from originals import (
    elmo_options,
    original_character_mapper,
    original_elmo_module,
    random_weights,
    read_weights,
    wheel_source,
    write_random_weights,
)

from hf_elmo.scripts.original_wheels import allennlp_fixtures, cache_folder, fetch_wheel, unpack_fixtures

WHEEL = "allennlp-0.9.0-py3-none-any.whl"
SENTENCES = [["The", "first", "sentence", "of", "this", "test", "."], ["Short", "."]]


def original_bilm(options_file, weight_file):
    return original_elmo_module()._ElmoBiLm(str(options_file), str(weight_file))


def original_layers(bilm, sentences):
    """All layers (L+1, B, T+2, 2P) of the original for a batch."""
    with torch.no_grad():
        return torch.stack(bilm(original_elmo_module().batch_to_ids(sentences))["activations"]).numpy()


# Fetching


def test_pip_failure_raises_with_pip_output(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(RuntimeError, match=r"(?s)could not download allennlp==0.9.0.*No matching distribution"):
        fetch_wheel("0.9.0", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_changed_wheel_raises(tmp_path):
    (tmp_path / WHEEL).write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(RuntimeError, match=f"{WHEEL} has sha256 .* Delete it"):
        fetch_wheel("0.9.0", tmp_path)


def test_parallel_workers_unpack_once_and_leave_no_temporary_folder(tmp_path):
    allennlp_fixtures()
    shutil.copy(cache_folder() / WHEEL, tmp_path)
    command = [sys.executable, "-c", "from hf_elmo.scripts.original_wheels import allennlp_fixtures as f; print(f())"]
    environment = os.environ | {"HF_ELMO_CACHE": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    workers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = {worker.communicate(timeout=60)[0].strip() for worker in workers}
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert printed == {str(tmp_path / "allennlp-0.9.0-fixtures" / "allennlp" / "tests" / "fixtures")}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["allennlp-0.9.0-fixtures", WHEEL]


def test_slower_worker_keeps_what_the_faster_one_unpacked(tmp_path, monkeypatch):
    allennlp_fixtures()
    rename = os.rename

    def rename_after_the_other_worker(source, target):
        shutil.copytree(source, target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_after_the_other_worker)
    unpack_fixtures(cache_folder() / WHEEL, tmp_path / "fixtures")
    assert [path.name for path in tmp_path.iterdir()] == ["fixtures"]


def test_changed_fixture_raises(tmp_path):
    allennlp_fixtures()
    target = tmp_path / "fixtures"
    unpack_fixtures(cache_folder() / WHEEL, target)
    changed = target / "allennlp" / "tests" / "fixtures" / "elmo" / "options.json"
    changed.write_text("{}")
    with pytest.raises(RuntimeError, match=r"options\.json is missing or differs"):
        unpack_fixtures(cache_folder() / WHEEL, target)


@pytest.mark.parametrize("name", ["elmo/../../../../../outside", "elmo/..\\outside", "elmo/C:outside"])
def test_archive_with_a_name_that_leads_outside_is_refused(tmp_path, name):
    wheel = tmp_path / "bad.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"allennlp/tests/fixtures/{name}", "canary")
    with pytest.raises(RuntimeError, match="could lead out of the folder"):
        unpack_fixtures(wheel, tmp_path / "target")
    assert list(tmp_path.iterdir()) == [wheel]


# The original code


def test_original_leaves_nothing_called_allennlp():
    original_elmo_module()
    original_character_mapper()
    assert [name for name in sys.modules if name.partition(".")[0] == "allennlp"] == []


def test_original_reproduces_the_vectors_of_tensorflow():
    folder = allennlp_fixtures() / "elmo"
    columns = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))  # 3 lists of 10 sentences
    bilm = original_bilm(folder / "options.json", folder / "lm_weights.hdf5")
    expected = [read_weights(folder / f"lm_embeddings_{k}.hdf5") for k in range(3)]
    compared = 0
    for i in range(10):  # the state of each row is carried from batch to batch
        batch = [column[i].split() for column in columns]
        top = original_layers(bilm, batch)[-1]
        for row, tokens in enumerate(batch):
            forward_and_backward = np.concatenate(expected[row][str(i)], axis=-1)  # (T, 2P)
            np.testing.assert_allclose(top[row, 1 : len(tokens) + 1], forward_and_backward, rtol=1e-5, atol=1e-6)
            compared += 1
    assert compared == 30


def test_original_with_cached_vocabulary_gives_the_same():
    folder = allennlp_fixtures() / "elmo"
    elmo = original_elmo_module()
    files = str(folder / "options.json"), str(folder / "lm_weights.hdf5")
    character_ids = elmo.batch_to_ids([["one", "two"], ["two"]])
    plain = elmo.Elmo(*files, 1, dropout=0)(character_ids)
    cached = elmo.Elmo(*files, 1, dropout=0, vocab_to_cache=["<pad>", "one", "two"])
    looked_up = cached(character_ids, torch.tensor([[1, 2], [2, 0]]))
    torch.testing.assert_close(looked_up["elmo_representations"][0], plain["elmo_representations"][0])


@pytest.mark.parametrize(
    ("word", "start"),
    [
        ("a", [259, 98, 260]),
        ("é", [259, 196, 170, 260]),
        ("", [259, 260]),
        ("<S>", [259, 257, 260]),
        ("</S>", [259, 258, 260]),
        ("<UNK>", [259, 61, 86, 79, 76, 63, 260]),
        ("\ud800", [259, 260]),
        ("x" * 60, [259] + [121] * 48 + [260]),
        ("é" * 60, [259] + [196, 170] * 24 + [260]),
    ],
)
def test_mapper_rows(word, start):
    assert original_character_mapper()().convert_word_to_char_ids(word) == start + [261] * (50 - len(start))


def test_mapper_is_the_same_code_in_both_versions():
    def mapper_code(version):
        tree = ast.parse(wheel_source(version, "data/token_indexers/elmo_indexer.py"))
        nodes = [node for node in tree.body if getattr(node, "name", "") in ("_make_bos_eos", "ELMoCharacterMapper")]
        for node in nodes:
            if ast.get_docstring(node) is not None:
                del node.body[0]
        return [ast.dump(node) for node in nodes]

    assert len(mapper_code("0.9.0")) == 2
    assert mapper_code("0.9.0") == mapper_code("2.10.1")


def test_batch_to_ids_pads_with_zeros():
    ids = original_elmo_module().batch_to_ids(SENTENCES)
    assert ids.shape == (2, 7, 50)
    assert ids.dtype == torch.int64
    assert ids[1, 2:].eq(0).all()
    assert torch.cat([ids[0], ids[1, :2]]).gt(0).all()


# Random weights


def test_random_weights_have_the_layout_of_the_fixture(tmp_path):
    folder = allennlp_fixtures() / "elmo"
    options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    options_file, weight_file = write_random_weights(tmp_path, options)
    assert json.loads(options_file.read_text(encoding="utf-8")) == options

    def layout(file):
        return {name: (array.shape, array.dtype) for name, array in read_weights(file).items()}

    assert layout(weight_file) == layout(folder / "lm_weights.hdf5")


def test_random_weights_depend_on_the_seed_only():
    first, again, other = (random_weights(elmo_options(), seed) for seed in (1, 1, 2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
        assert not np.array_equal(array, other[name])
        assert np.all(array != 0)


def test_bilm_tf_leaves_out_needless_projections():
    options = elmo_options(projection=20, cell=20, skip=False, highway=0)
    everything, needed = random_weights(options), random_weights(options, bilm_tf=True)
    left_out = {name for name in everything if name.startswith("CNN_proj/") or name.endswith("/W_P_0")}
    assert len(left_out) == 2 + 4
    assert set(needed) == set(everything) - left_out


@pytest.mark.parametrize("size", [{}, {"projection": 16, "cell": 64}, {"projection": 32, "cell": 32, "layers": 3}])
@pytest.mark.parametrize("clip", ["cell_clip", "projection_clip"])
def test_random_weights_reach_both_clips_in_the_original(tmp_path, size, clip):
    clipped = original_bilm(*write_random_weights(tmp_path / "clipped", elmo_options(**size)))
    free = original_bilm(*write_random_weights(tmp_path / "free", elmo_options(**size, **{clip: None})))
    difference = np.abs(original_layers(clipped, SENTENCES) - original_layers(free, SENTENCES))
    assert difference.max() > 1e-3
    hidden, memory = clipped._elmo_lstm._states
    values = memory if clip == "cell_clip" else hidden
    assert values.abs().max() == 3
    assert values.abs().eq(3).float().mean() > 0.05


def test_padding_passed_through_the_characters_is_visible(tmp_path):
    bilm = original_bilm(*write_random_weights(tmp_path, elmo_options()))
    padding = bilm._token_embedder(torch.zeros(1, 3, 50, dtype=torch.int64))["token_embedding"][0, 3:]
    assert padding.abs().min() > 1e-3
