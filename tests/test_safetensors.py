"""Files of weights that are not what they should be: malformed ones are refused, damaged ones fail the checksums."""

import io
import json
import random
import struct

import pytest
import torch
from mutated_files import mutated
from safetensors import SafetensorError
from safetensors.torch import load, save
from tiny import random_model, tiny_config

from hf_elmo.conversion.verify import load_exactly
from hf_elmo.hub import verify_checksums, write_checksums

SMALL = {
    "char_embedding_size": 2,
    "char_cnn_filters": [[1, 2]],
    "num_highway_layers": 0,
    "projection_size": 2,
    "cell_size": 3,
    "num_hidden_layers": 1,
    "char_vocab_size": 262,
}
TENSOR = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The smallest model there is."""
    folder = tmp_path_factory.mktemp("saved") / "elmo"
    random_model(tiny_config(**SMALL)).save_pretrained(folder)
    return folder


def parts_of(content: bytes) -> tuple[dict, bytes]:
    """The header and the data of a file."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def file_of(header, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one_tensor(data=bytes(24), **changes) -> bytes:
    return file_of({"weight": {**TENSOR, **changes}}, data)


def two_tensors(first: list[int], second: list[int]) -> bytes:
    return file_of({"a": {**TENSOR, "data_offsets": first}, "b": {**TENSOR, "data_offsets": second}}, bytes(48))


def saved_by_torch() -> bytes:
    buffer = io.BytesIO()
    torch.save({"weight": torch.zeros(2, 3)}, buffer)
    return buffer.getvalue()


MALFORMED = {
    "empty": b"",
    "seven bytes": bytes(7),
    "no header": struct.pack("<Q", 0),
    "header beyond the end": struct.pack("<Q", 100) + b"{}",
    "header of 16 exabytes": struct.pack("<Q", 2**64 - 1) + b"{}",
    "header of a gigabyte": struct.pack("<Q", 2**30) + b"{}",
    "header that is no JSON": file_of(b"weights", b""),
    "header that is not UTF-8": file_of(b'{"\xff": 1}', b""),
    "header that is a list": file_of([TENSOR], bytes(24)),
    "header without an end": file_of(b'{"weight": ', b""),
    "very deep header": file_of(b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b""),
    "metadata that is no text": file_of({"__metadata__": {"format": 1}, "weight": TENSOR}, bytes(24)),
    "tensor that is a number": file_of({"weight": 1}, bytes(24)),
    "unknown type": one_tensor(dtype="F33"),
    "no type": file_of({"weight": {"shape": [2, 3], "data_offsets": [0, 24]}}, bytes(24)),
    "no offsets": file_of({"weight": {"dtype": "F32", "shape": [2, 3]}}, bytes(24)),
    "negative shape": one_tensor(shape=[-2, -3]),
    "shape that is no number": one_tensor(shape=[2.5, 3]),
    "shape larger than the data": one_tensor(shape=[2, 4]),
    "shape of four terabytes": one_tensor(shape=[2**20, 2**20]),
    "shape that is too large for a number": one_tensor(shape=[2**62, 2**62]),
    "offsets beyond the end": one_tensor(data_offsets=[24, 48]),
    "offsets the wrong way round": one_tensor(data_offsets=[24, 0]),
    "negative offsets": one_tensor(data_offsets=[-24, 0]),
    "three offsets": one_tensor(data_offsets=[0, 12, 24]),
    "tensors that overlap": two_tensors([0, 24], [12, 36]),
    "one place for two tensors": two_tensors([0, 24], [0, 24]),
    "hole between tensors": two_tensors([0, 24], [30, 54]),
    "data left over": one_tensor(bytes(30)),
    "data cut": one_tensor(bytes(20)),
    "file of torch": saved_by_torch(),
}


@pytest.mark.promise("S5")
@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_files_are_refused(folder, tmp_path, kind):
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(MALFORMED[kind])
    with pytest.raises(ValueError, match=f"The weights of {tmp_path} cannot be read; get the folder again"):
        load_exactly(tmp_path, torch.float32)


def without(header):
    header.pop("mixes.0.gamma")


def with_another(header):
    header["surplus"] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}


def of_another_shape(header):
    header["bilstm.forward_layers.0.projection_weight"]["shape"].reverse()


CHANGED = {
    "missing": (without, "missing keys in the weights: mixes.0.gamma|cannot be read"),
    "unexpected": (with_another, "unexpected keys in the weights: surplus"),
    "of another shape": (of_another_shape, "mismatched keys in the weights: .*projection_weight"),
}


@pytest.mark.promise("S5")
@pytest.mark.parametrize("kind", CHANGED)
def test_weights_of_another_model_are_refused(folder, tmp_path, kind):
    change, says = CHANGED[kind]
    header, data = parts_of((folder / "model.safetensors").read_bytes())
    change(header)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(file_of(header, data))
    with pytest.raises(ValueError, match=says):
        load_exactly(tmp_path, torch.float32)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder, tmp_path, value):
    weights = load((folder / "model.safetensors").read_bytes())
    weights["mixes.0.weight"][0] = value
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    with pytest.raises(ValueError, match=r"weights mixes\.0\.weight hold NaN or infinite values"):
        load_exactly(tmp_path, torch.float32)


MUTATIONS = 5000


def loaded_or_none(content: bytes) -> dict[str, bytes] | None:
    """The bytes of each tensor; `None` if safetensors refuses the file."""
    try:
        return {name: tensor.numpy().tobytes() for name, tensor in load(content).items()}
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
        return None


def passes_the_checksums(folder) -> bool:
    try:
        verify_checksums(folder)
    except ValueError:
        return False
    return True


@pytest.mark.promise("S6", n=MUTATIONS)
def test_damaged_files_fail_the_checksums(folder, tmp_path):
    """A damaged file is flagged, or its tensors are the same; many others would be loaded with other weights."""
    good = (folder / "model.safetensors").read_bytes()
    expected = loaded_or_none(good)
    path = tmp_path / "model.safetensors"
    path.write_bytes(good)
    write_checksums(tmp_path)
    silent = 0
    for trial in range(MUTATIONS):
        content = mutated(good, random.Random(trial))
        path.write_bytes(content)
        if passes_the_checksums(tmp_path):
            assert loaded_or_none(content) == expected
        else:
            silent += loaded_or_none(content) not in (None, expected)
    assert silent > MUTATIONS / 10  # what safetensors alone would not have noticed
