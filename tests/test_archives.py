"""Archives are unpacked without trusting them (promise S9): hostile ones are refused, and nothing is left behind."""

import gzip
import io
import os
import stat
import struct
import tarfile
import tempfile
import time
import tracemalloc
import zipfile
from pathlib import PurePosixPath

import pytest
from mutated_files import outcomes_of

from hf_elmo.conversion import archives
from hf_elmo.conversion.archives import archive_kind, unpack, unpack_gzip, unpacked_archive

FILES = {
    "model/options.json": b"{}",
    "model/weights.hdf5": os.urandom(3_000_000),
    "readme.txt": b"Hello",
    "empty": b"",
}


def write_zip(path, members, **options):
    """Members are names and contents, or a ZipInfo and contents."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content, **options)
    return path


def write_tar(path, members, mode="w:gz"):
    """Members are names and contents, or a TarInfo and contents."""
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            if content is not None:
                info.size = len(content)
            archive.addfile(info, None if content is None else io.BytesIO(content))
    return path


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary folders are made, so that one sees what is left of them."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# --- Honest archives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_honest_archives_are_unpacked(tmp_path, temporary, kind):
    path = tmp_path / "archive"  # the name says nothing
    if kind == "zip":
        write_zip(path, [("model/", b""), *FILES.items()])
    else:
        folder = tarfile.TarInfo("./model")
        folder.type = tarfile.DIRTYPE
        write_tar(path, [(folder, None), *((f"./{name}", data) for name, data in FILES.items())], f"w:{kind[4:]}")
    assert archive_kind(path) == kind
    with unpacked_archive(path) as found:
        assert {file.relative_to(found).as_posix() for file in found.rglob("*") if file.is_file()} == set(FILES)
        for name, content in FILES.items():
            assert (found / name).read_bytes() == content
        assert stat.S_IMODE(found.stat().st_mode) == 0o700
        assert found.parent == temporary
    assert not any(temporary.iterdir())


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_only_what_is_wanted_is_written(tmp_path, write):
    path = write(tmp_path / "archive", [*FILES.items(), ("huge", bytes(2**24))])
    with unpacked_archive(path, lambda name: name.suffix == ".json") as found:
        assert [file.name for file in found.rglob("*") if file.is_file()] == ["options.json"]


def test_names_are_posix_paths(tmp_path):
    seen = []
    with unpacked_archive(write_zip(tmp_path / "a.zip", FILES.items()), lambda name: bool(seen.append(name))):
        assert seen == [PurePosixPath(name) for name in FILES]


@pytest.mark.parametrize("content", [b"", b"PK", b"Hello", b"\x1f\x8b", gzip.compress(b"text" * 500, mtime=0)])
def test_other_files_are_no_archives(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert archive_kind(path) is None
    with pytest.raises(ValueError, match=r"file is no zip, tar or tar\.gz archive"):
        unpack(path, tmp_path)


def test_places_that_are_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        unpack(tmp_path / "nowhere", tmp_path)
    with pytest.raises(ValueError, match="is not a regular file"):
        unpack(tmp_path, tmp_path)


# --- Hostile archives ------------------------------------------------------------------------------------------------


def special(kind, target=""):
    info = tarfile.TarInfo("options.json")
    info.type, info.linkname = kind, target
    return [("first.txt", b"first"), (info, None)]


def zip_entry(name="options.json", mode=stat.S_IFREG, **attributes):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (mode | 0o644) << 16
    for attribute, value in attributes.items():
        setattr(entry, attribute, value)
    return entry


def sparse():
    """A file of 1 TB without a byte of it."""
    info = tarfile.TarInfo("weights.hdf5")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:482] = bytes(96)
    header[483:495] = b"\x80" + (2**40).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + bytes(1024)


def long_header():
    """A header that says its name has 1 GB."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**30
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(2**22)


def patched_zip(path, marks, offset, value):
    """A zip file with one member, in whose headers a number is changed."""
    write_zip(path, [("options.json", bytes(100_000))])
    data = bytearray(path.read_bytes())
    for mark, more in zip((b"PK\x03\x04", b"PK\x01\x02"), (0, 2), strict=True):
        if mark in marks:
            place = data.index(mark) + offset + more
            data[place : place + len(value)] = value
    path.write_bytes(data)


def raw(path, content):
    path.write_bytes(content)


BOTH = (b"PK\x03\x04", b"PK\x01\x02")
NAMES = {
    "above": ("../options.json", "has '..' in its name"),
    "above, inside": ("a/../../options.json", "has '..' in its name"),
    "above, backslash": ("a\\..\\..\\options.json", "has '..' in its name"),
    "absolute": ("/tmp/options.json", "has an absolute name"),
    "drive": ("C:/options.json", "has an absolute name"),
    "drive, backslash": ("C:\\options.json", "has an absolute name"),
    "backslash": ("a\\options.json", "a backslash"),
    "stream": ("options.json:hidden", "a colon"),
    "control character": ("op\ntions.json", "control character"),
    "long part": ("x" * 256, "too long"),
    "long name": ("/".join(["x" * 200] * 6), "too long"),
}
TWICE = {
    "twice": (["options.json", "options.json"], "more than once"),
    "twice, other case": (["options.json", "Options.JSON"], "more than once"),
    "twice, other form": (["caf\u00e9", "cafe\u0301"], "more than once"),
    "twice, other path": (["a/b", "a//./b"], "more than once"),
    "file as folder": (["a", "a/b"], "a file and a folder"),
    "folder as file": (["a/b", "a"], "a file and a folder"),
}
HOSTILE = {
    **{
        f"{write.__name__}, {kind}": (lambda path, w=write, n=name: w(path, [("first", b"1"), (n, b"evil")]), says)
        for write in (write_zip, write_tar)
        for kind, (name, says) in NAMES.items()
    },
    **{
        f"write_tar, {kind}": (lambda path, n=names: write_tar(path, [(name, b"x") for name in n]), says)
        for kind, (names, says) in TWICE.items()
    },
    "zip twice, other case": (lambda path: write_zip(path, [("a", b"1"), ("A", b"2")]), "'A' is there more than once"),
    "symbolic link": (lambda path: write_tar(path, special(tarfile.SYMTYPE, "/etc/passwd")), "is a symbolic link"),
    "hard link": (lambda path: write_tar(path, special(tarfile.LNKTYPE, "first.txt")), "is a hard link"),
    "pipe": (lambda path: write_tar(path, special(tarfile.FIFOTYPE)), "is a device, a pipe"),
    "character device": (lambda path: write_tar(path, special(tarfile.CHRTYPE)), "is a device, a pipe"),
    "block device": (lambda path: write_tar(path, special(tarfile.BLKTYPE)), "is a device, a pipe"),
    "sparse": (lambda path: raw(path, gzip.compress(sparse())), "is a sparse file"),
    "long header": (lambda path: raw(path, gzip.compress(long_header())), "has a header of"),
    "long header, plain": (lambda path: raw(path, long_header()), "has a header of"),
    "zip symbolic link": (lambda path: write_zip(path, [(zip_entry(mode=stat.S_IFLNK), "/etc/passwd")]), "symbolic"),
    "zip device": (lambda path: write_zip(path, [(zip_entry(mode=stat.S_IFCHR), b"")]), "is a device, a pipe"),
    "zip bomb": (lambda path: write_zip(path, [("options.json", bytes(2**26))]), "makes the files more than"),
    "zip bombs": (
        lambda path: write_zip(path, [(f"{n}.json", bytes(2**22)) for n in range(10)]),
        "'4.json' makes the files more than",
    ),
    "tar bomb": (lambda path: write_tar(path, [("options.json", bytes(2**26))]), "unpacks to more than"),
    "tar bomb that is not wanted": (lambda path: write_tar(path, [("huge.bin", bytes(2**26))]), "unpacks to more"),
    "many members": (lambda path: write_zip(path, [(f"{n}", b"") for n in range(10_001)]), "more than 10,000 members"),
    "encrypted": (lambda path: patched_zip(path, BOTH, 6, b"\x01\x00"), "is encrypted"),
    "odd compression": (lambda path: patched_zip(path, BOTH, 8, b"\x0c\x00"), "compressed in an unusual way"),
    "smaller than it says": (
        lambda path: patched_zip(path, BOTH, 22, struct.pack("<I", 100_001)),
        "has not the 100,001 bytes|damaged",
    ),
    "larger than it says": (lambda path: patched_zip(path, BOTH, 22, struct.pack("<I", 10)), "damaged|has not the 10"),
    "wrong checksum": (lambda path: patched_zip(path, BOTH, 14, b"\0\0\0\0"), "is damaged or incomplete"),
    "two names": (lambda path: patched_zip(path, BOTH[:1], 30, b"p"), "is damaged or incomplete"),
    "no end": (lambda path: raw(path, b"PK\x03\x04" + bytes(100)), "is damaged or incomplete"),
}


@pytest.mark.promise("S9")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archives_are_refused(tmp_path, temporary, kind):
    write, says = HOSTILE[kind]
    path = tmp_path / "evil.archive"
    write(path)
    before = sorted(tmp_path.rglob("*"))
    start = time.monotonic()
    with pytest.raises(ValueError, match=rf"evil\.archive.*({says})"), unpacked_archive(path, is_not_huge):
        pass
    assert sorted(tmp_path.rglob("*")) == before
    assert time.monotonic() - start < 5


@pytest.mark.promise("S9")
@pytest.mark.parametrize("kind", ["tar bomb", "zip bomb", "long header", "long header, plain", "sparse"])
def test_bombs_take_no_memory(tmp_path, kind):
    HOSTILE[kind][0](tmp_path / "evil.archive")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"evil\.archive"), unpacked_archive(tmp_path / "evil.archive"):
            pass
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def is_not_huge(name):
    return "huge" not in name.name


@pytest.mark.promise("S9")
def test_names_with_a_zero_byte_are_not_cut(tmp_path):
    """zipfile makes `options.json` of `options.json\\0.exe`."""
    path = write_zip(tmp_path / "a.zip", [("options.json.exe", b"1")])
    path.write_bytes(path.read_bytes().replace(b".json.exe", b".json\0exe"))
    with pytest.raises(ValueError, match=r"the member 'options\.json\\x00exe' has a name .* control character"):
        unpack(path, tmp_path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_cut_archives_are_refused(tmp_path, temporary, write, share):
    path = write(tmp_path / "a.archive", FILES.items())
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ValueError, match=r"a\.archive is damaged or incomplete: get it again"), unpacked_archive(path):
        pass
    assert not any(temporary.iterdir())


def test_flipped_bytes_of_a_tar_are_noticed(tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", FILES.items())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged or incomplete"), unpacked_archive(path):
        pass


def test_limits_can_be_reached(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 0)
    monkeypatch.setattr(archives, "LARGEST_TOTAL", 1_000_000)
    for write in (write_zip, write_tar):
        path = write(tmp_path / "a.archive", FILES.items())
        with pytest.raises(ValueError, match="more than 1,000,000 bytes"), unpacked_archive(path):
            pass


def test_a_full_disk_stays_what_it_is(tmp_path, monkeypatch):
    def write(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives, "_write", write)
    path = write_zip(tmp_path / "a.zip", FILES.items())
    with pytest.raises(OSError, match="No space left on device"), unpacked_archive(path):
        pass


# --- Damaged at random -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["zip", "w", "w:gz"])
def test_damaged_archives_are_refused_or_harmless(tmp_path, mode):
    """In children with little memory: no crash, no hang, no other exception, and nothing outside the folder."""
    members = [("a/options.json", b'{"lstm": 1}'), ("a/b/weights.hdf5", bytes(range(256)) * 2), ("empty", b"")]
    path = tmp_path / "a.archive"
    write_zip(path, members) if mode == "zip" else write_tar(path, members, mode)
    outcomes = outcomes_of(archives.__file__, "unpack", path, 1000)
    assert outcomes.keys() == {"accepted", "refused"}
    assert sum(outcomes.values()) == 1000


# --- Text in gzip form -----------------------------------------------------------------------------------------------


def test_gzip_files(tmp_path):
    path = tmp_path / "vocab.txt.gz"
    path.write_bytes(gzip.compress(b"the\nriver\n", mtime=0) + gzip.compress(b"bank\n", mtime=0))
    unpack_gzip(path, tmp_path / "vocab.txt")
    assert (tmp_path / "vocab.txt").read_bytes() == b"the\nriver\nbank\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(bytes(2**25), mtime=0), "holds more than 1,000,000 bytes"),
        (gzip.compress(b"word\n" * 1000, mtime=0)[:-5], "is damaged or incomplete"),
        (gzip.compress(b"word\n" * 1000, mtime=0)[:-8] + bytes(8), "is damaged or incomplete"),
        (b"word\n", "is damaged or incomplete"),
    ],
    ids=["bomb", "cut", "checksum", "text"],
)
def test_hostile_gzip_files_are_refused(tmp_path, content, says):
    path = tmp_path / "vocab.txt.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"vocab\.txt\.gz {says}"):
        unpack_gzip(path, tmp_path / "vocab.txt", largest=1_000_000)
