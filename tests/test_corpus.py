"""The reader of pretraining text: one order for everybody, which a small state continues."""

import gzip
import json
import lzma
import random
import tracemalloc
from collections import Counter
from itertools import chain, islice

import pytest

from hf_elmo import corpus, text_files
from hf_elmo.corpus import CorpusReader, find_files
from hf_elmo.text_files import cut_into_parts, find_lines, read_blocks

SMALL = {"buffer_bytes": 400, "seed": 5}


def text_of(file: int, lines: int) -> str:
    return "".join(f"file{file} line{line} {'word ' * (line % 7)}.\n" for line in range(lines))


@pytest.fixture
def folder(tmp_path):
    """Files of several parts each, one of them compressed, one empty."""
    folder = tmp_path / "text"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text(text_of(number, 40))
    (folder / "3.txt.gz").write_bytes(gzip.compress(text_of(3, 40).encode()))
    (folder / "empty.txt").touch()
    return folder


def expected_sentences(*files: int) -> list[list[str]]:
    return [line.split() for file in files for line in text_of(file, 40).splitlines()]


# --- Files -----------------------------------------------------------------------------------------------------------


def test_find_files(folder):
    (folder / ".hidden").write_text("x")
    (folder / "below").mkdir()
    (folder / "below" / "4.txt").write_text("x")
    everything = [folder / name for name in ("0.txt", "1.txt", "2.txt", "3.txt.gz", "below/4.txt", "empty.txt")]
    assert find_files(folder) == everything
    assert find_files([folder / "2.txt", folder, str(folder / "*.txt")]) == everything
    assert find_files(str(folder / "[01].txt")) == everything[:2]
    assert find_files(str(folder / "**" / "4*")) == [everything[4]]


def test_a_file_whose_name_looks_like_a_pattern(tmp_path):
    (tmp_path / "a[1].txt").write_text("x")
    assert find_files(tmp_path / "a[1].txt") == [tmp_path / "a[1].txt"]


def test_nothing_found(tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(FileNotFoundError, match=r"missing\.txt does not exist"):
        find_files(tmp_path / "missing.txt")
    with pytest.raises(FileNotFoundError, match=r"\*\.txt: no file matches"):
        find_files(str(tmp_path / "*.txt"))
    with pytest.raises(FileNotFoundError, match="nothing: there is no file in this folder"):
        find_files(tmp_path / "nothing")
    with pytest.raises(ValueError, match="There is no text"):
        find_files([])
    with pytest.raises(ValueError, match="/dev/null is neither a file nor a folder"):
        find_files("/dev/null")


def compress_zstandard(data: bytes) -> bytes:
    compressor = pytest.importorskip("zstandard").ZstdCompressor()
    return compressor.compress(data[:100]) + compressor.compress(data[100:])  # two frames


COMPRESSORS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": compress_zstandard}


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_files(tmp_path, suffix):
    path = tmp_path / f"0.txt{suffix}"
    content = COMPRESSORS[suffix](text_of(0, 40).encode())
    path.write_bytes(content)
    assert list(CorpusReader(path, shuffle=False, epochs=1, buffer_bytes=300)) == expected_sentences(0)
    path.write_bytes(content[:-20])
    with pytest.raises(ValueError, match=rf"0\.txt\{suffix} cannot be decompressed"):
        list(CorpusReader(path, epochs=1))


def test_zstandard_is_named_where_it_is_missing(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(text_files.importlib, "import_module", missing)
    (tmp_path / "a.zst").write_bytes(b"x")
    with pytest.raises(ImportError, match=r'a\.zst: .zst files need the package zstandard: pip install "hf-elmo\[tr'):
        next(CorpusReader(tmp_path / "a.zst"))


@pytest.mark.parametrize("keep_documents", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_parts_and_blocks_lose_nothing_and_end_at_lines(tmp_path, seed, keep_documents):
    rng = random.Random(seed)
    data = "".join(rng.choice(["a", "é", " ", "\n", "\n", "\n\n", "\r\n"]) for _ in range(300)).encode()
    for path in (tmp_path / "a.txt", tmp_path / "a.txt.gz"):
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        for size in (1, 3, 10, 64, 1000):
            parts = cut_into_parts([path], size)
            blocks = [block for part in parts for block in read_blocks(part, size, keep_documents)]
            assert b"".join(blocks) == data
            # Where a line or document is longer than a part, the next part is empty.
            for block in list(filter(None, blocks))[:-1]:
                assert block.endswith(b"\n")
                assert not keep_documents or block.split(b"\n")[-2].strip() == b""


def test_a_byte_order_mark_is_no_text(tmp_path):
    for name, compress in (("a.txt", bytes), ("a.txt.gz", gzip.compress)):
        path = tmp_path / name
        path.write_bytes(compress("\ufeffa b\n\ufeffc\n".encode()))
        assert list(CorpusReader(path, shuffle=False, epochs=1)) == [["a", "b"], ["\ufeffc"]]


def test_a_file_that_is_no_text_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 2**17)
    for name, compress in (("a.bin", bytes), ("a.gz", gzip.compress)):
        path = tmp_path / name
        path.write_bytes(compress(b"x" * 2**19))
        with pytest.raises(ValueError, match=rf"{name} has a line of more than 131,072 bytes"):
            next(CorpusReader(path, buffer_bytes=2**16))


# --- Sentences -------------------------------------------------------------------------------------------------------


def test_sentences_are_lines_and_words_what_white_space_parts(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("  a\tb  c \r\n\n \t\n\u00a0\n\u3000d\u00a0e\x85f\nlast".encode())
    reader = CorpusReader(path, shuffle=False, epochs=1)
    assert list(reader) == [["a", "b", "c"], ["d", "e", "f"], ["last"]]
    assert list(reader) == []


@pytest.mark.parametrize("seed", range(20))
def test_lines_are_found_as_python_finds_them(seed):
    rng = random.Random(seed)
    data = "".join(rng.choice(["a", "é", " ", "\n", "\n", "\u00a0", "\r", "\x7f"]) for _ in range(200)).encode()
    lines = find_lines(data)
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert [data[a:b] for a, b in zip(lines.starts, lines.ends, strict=True)] == expected
    assert lines.blank.tolist() == [not line.decode().split() for line in expected]


def test_an_epoch_has_every_sentence_once_and_the_next_in_another_order(folder):
    reader = CorpusReader(folder, **SMALL)
    epochs = [list(islice(reader, 160)) for _ in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == sorted(expected_sentences(0, 1, 2, 3))
    assert epochs[0] != epochs[1] != epochs[2]
    assert {sentence[0] for sentence in epochs[0][:40]} != {"file0"}
    assert list(islice(CorpusReader(folder, **SMALL), 480)) == [*epochs[0], *epochs[1], *epochs[2]]
    assert list(islice(CorpusReader(folder, buffer_bytes=400, seed=6), 160)) != epochs[0]
    assert list(CorpusReader(folder, epochs=2, **SMALL)) == epochs[0] + epochs[1]


def test_the_order_is_the_same_in_all_versions(tmp_path):
    """Fixed numbers: runs that were begun before an update go on after it."""
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(10)))
    order = [int(word) for (word,) in CorpusReader(tmp_path / "a.txt", seed=1, epochs=1)]
    assert order == [3, 7, 6, 5, 0, 8, 4, 2, 1, 9]


def test_without_shuffling_the_order_is_that_of_the_files(folder):
    assert list(CorpusReader(folder, shuffle=False, epochs=1, buffer_bytes=400)) == expected_sentences(0, 1, 2, 3)


def test_documents_stay_together_and_in_order(tmp_path):
    documents = [[[f"d{d}", f"s{s}"] for s in range(1 + d % 5)] for d in range(60)]
    for name, compress in (("a.txt", bytes), ("b.txt.gz", gzip.compress)):
        text = "\n\n".join("\n".join(f"{name}-{a} {b}" for a, b in document) for document in documents)
        (tmp_path / name).write_bytes(compress(text.encode()))
    reader = CorpusReader(tmp_path, keep_documents=True, epochs=1, buffer_bytes=200)
    found: list[list[list[str]]] = []
    for sentence in reader:
        if reader.starts_document:
            found.append([])
        found[-1].append(sentence)
    expected = [[[f"{name}-{a}", b] for a, b in d] for name in ("a.txt", "b.txt.gz") for d in documents]
    assert sorted(found) == sorted(expected)
    assert found != expected


def test_no_sentence_at_all(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "blank").write_text(" \n\n")
    for name in ("empty", "blank"):
        with pytest.raises(ValueError, match="There is no sentence in the corpus"):
            next(CorpusReader(tmp_path / name))


def test_memory_is_bounded(tmp_path):
    (tmp_path / "a.txt").write_text(text_of(0, 50_000))
    assert (tmp_path / "a.txt").stat().st_size > 1.4e6
    tracemalloc.start()
    count = sum(1 for _ in CorpusReader(tmp_path / "a.txt", buffer_bytes=2**16, epochs=1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 50_000
    assert peak < 5e5


# --- State -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_documents", [False, True])
def test_resume_continues_with_the_very_next_sentence(folder, keep_documents):
    settings = {**SMALL, "keep_documents": keep_documents}
    uninterrupted = list(islice(CorpusReader(folder, **settings), 600))
    cuts = {0, 1, 159, 160, 161, 319, 320, 321, *random.Random(0).sample(range(480), 20)}
    for cut in sorted(cuts):
        reader = CorpusReader(folder, **settings)
        assert list(islice(reader, cut)) == uninterrupted[:cut]
        state = json.loads(json.dumps(reader.state_dict()))
        following = list(islice(reader, 100))  # asking for the state changes nothing
        assert following == uninterrupted[cut : cut + 100]
        resumed = CorpusReader(folder, **settings)
        next(resumed)  # the position before does not matter
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert list(islice(resumed, 100)) == following
        assert resumed.epoch == reader.epoch
        assert resumed.sentences_read == reader.sentences_read


def test_the_end_is_a_state_too(folder):
    reader = CorpusReader(folder, epochs=1, **SMALL)
    assert len(list(reader)) == 160
    resumed = CorpusReader(folder, epochs=1, **SMALL)
    resumed.load_state_dict(reader.state_dict())
    assert list(resumed) == []
    longer = CorpusReader(folder, epochs=2, **SMALL)
    longer.load_state_dict(reader.state_dict())
    assert list(longer) == list(islice(CorpusReader(folder, **SMALL), 160, 320))


def test_the_state_is_small(folder):
    reader = CorpusReader(folder, **SMALL)
    next(reader)
    assert len(json.dumps(reader.state_dict())) < 300 + 60 * len(reader.files)


def test_the_corpus_may_move(folder, tmp_path):
    reader = CorpusReader(folder, **SMALL)
    before = list(islice(reader, 50))
    state = reader.state_dict()
    moved = folder.rename(tmp_path / "elsewhere")
    resumed = CorpusReader(moved, **SMALL)
    resumed.load_state_dict(state)
    assert before + list(islice(resumed, 110)) == list(islice(CorpusReader(moved, **SMALL), 160))


def change_size(folder):
    with open(folder / "1.txt", "a") as file:
        file.write("more\n")


def change_letter(folder):
    path = folder / "1.txt"
    path.write_text(path.read_text().replace("line0 ", "LINE0 "))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (change_size, r"^1\.txt has changed since the state was saved: it had \d+ bytes or rows and has \d+\."),
        (change_letter, r"^1\.txt has changed since the state was saved: .* as many, but other ones\."),
        (lambda folder: (folder / "1.txt").unlink(), r"^1\.txt was in the corpus .* and is missing now"),
        (lambda folder: (folder / "9.txt").write_text("new"), r"^9\.txt was not in the corpus"),
    ],
)
def test_a_changed_corpus_is_refused(folder, change, says):
    reader = CorpusReader(folder, **SMALL)
    next(reader)
    state = reader.state_dict()
    change(folder)
    with pytest.raises(ValueError, match=says):
        CorpusReader(folder, **SMALL).load_state_dict(state)


def test_a_change_in_the_middle_of_the_block_being_read_is_noticed(tmp_path):
    path = tmp_path / "a.txt"
    text = text_of(0, 5000)
    path.write_text(text)
    reader = CorpusReader(path)
    next(reader)
    state = reader.state_dict()
    path.write_text(text.replace("line2500 ", "LINE2500 "))
    with pytest.raises(ValueError, match="corpus has changed since the state was saved: the text is another"):
        CorpusReader(path).load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 6), ("shuffle", False), ("keep_documents", True), ("errors", "skip"), ("buffer_bytes", 500)],
)
def test_other_settings_are_refused(folder, name, value):
    state = CorpusReader(folder, **SMALL).state_dict()
    with pytest.raises(ValueError, match=f"saved with {name}=.*but the reader has {name}={value!r}"):
        CorpusReader(folder, **{**SMALL, name: value}).load_state_dict(state)
    with pytest.raises(ValueError, match="The state has version 99"):
        CorpusReader(folder, **SMALL).load_state_dict({**state, "version": 99})


# --- Processes and workers -------------------------------------------------------------------------------------------


def readers(folder, world_size, num_workers, group_size, **options):
    return [
        [
            CorpusReader(
                folder,
                rank=rank,
                world_size=world_size,
                worker=worker,
                num_workers=num_workers,
                group_size=group_size,
                **SMALL,
                **options,
            )
            for worker in range(num_workers)
        ]
        for rank in range(world_size)
    ]


def take_batches(readers, batches, group_size):
    """As training takes them: a batch of each process, each from its next worker; and the state behind them."""
    order, states = [], []
    for batch in range(batches):
        for workers in readers:
            reader = workers[batch % len(workers)]
            order += islice(reader, group_size)
            states.append(reader.state_dict())
        assert all(state == states[-1] for state in states[-len(readers) :])
    return order, states[-1]


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("num_workers", [1, 2, 5])
@pytest.mark.parametrize("group_size", [1, 4])
def test_one_order_for_any_number_of_processes_and_workers(folder, world_size, num_workers, group_size):
    expected = list(islice(CorpusReader(folder, **SMALL), 700))
    everybody = readers(folder, world_size, num_workers, group_size)
    batches = 400 // (world_size * group_size)  # more than two epochs
    order, state = take_batches(everybody, batches, group_size)
    assert order == expected[: len(order)]
    # Others go on from there, another number of them.
    for others in ((1, 1, 1), (2, 3, 2)):
        resumed = readers(folder, *others)
        for reader in chain(*resumed):
            reader.load_state_dict(state)
        following, _ = take_batches(resumed, 30, others[2])
        assert following == expected[len(order) : len(order) + len(following)]


@pytest.mark.parametrize("world_size", [1, 3, 7])
def test_an_epoch_that_ends_is_shared_out_completely(folder, world_size):
    everybody = readers(folder, world_size, 2, 3, epochs=1)
    shares = [list(reader) for reader in chain(*everybody)]
    assert sorted(chain(*shares)) == sorted(expected_sentences(0, 1, 2, 3))
    assert max(map(len, shares)) - min(map(len, shares)) <= 3


def test_no_state_within_a_group(folder):
    reader = CorpusReader(folder, world_size=2, group_size=3, **SMALL)
    next(reader)
    with pytest.raises(ValueError, match="1 sentences of a group of 3 have been taken"):
        reader.state_dict()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rank": 2, "world_size": 2}, "rank is 2, but it must be from 0 to 1"),
        ({"worker": -1}, "worker is -1, but it must be from 0 to 0"),
        ({"group_size": 0}, "group_size=0 must be 1 or more"),
        ({"errors": "ignore"}, "errors is 'ignore'; choose one of 'replace', 'skip', 'stop'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_that_make_no_sense(folder, options, says):
    with pytest.raises(ValueError, match=says):
        CorpusReader(folder, **options)


# --- Bytes that are no text ------------------------------------------------------------------------------------------

HOSTILE_FILES = 200
BAD_BYTES = [b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\xaf", b"caf\xe9", b"\x80"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """200 files with lines that are not UTF-8, the lines that are, and the places of those that are not."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = random.Random(0)
    good, places = [], {}
    for file in range(HOSTILE_FILES):
        lines, bad = [], []
        for number in range(1, rng.randrange(2, 30)):
            line = f"f{file} l{number} \u20ac".encode()
            if rng.random() < 0.3:
                bad.append(number)
                position = rng.randrange(len(line) + 1)
                line = line[:position] + rng.choice(BAD_BYTES) + b" " + line[position:]
                if _decodes(line):
                    line += b"\xff"
            else:
                good.append(line.decode().split())
            lines.append(line)
        path = folder / f"{file}.txt"
        path.write_bytes(b"\n".join(lines))
        if bad:
            places[str(path)] = bad
    return folder, good, places


def _decodes(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.promise("T3", n=HOSTILE_FILES)
@pytest.mark.parametrize("buffer_bytes", [64, 2**20])
def test_undecodable_lines_are_listed_and_none_is_lost(hostile, buffer_bytes):
    folder, good, places = hostile
    for errors in ("skip", "replace"):
        reader = CorpusReader(folder, errors=errors, epochs=2, buffer_bytes=buffer_bytes)
        sentences = Counter(map(tuple, reader))
        assert {path: sorted(found.lines) for path, found in reader.undecodable.items()} == places
        assert sum(found.count for found in reader.undecodable.values()) == sum(map(len, places.values()))
        kept = Counter(dict.fromkeys(map(tuple, good), 2))
        if errors == "skip":
            assert sentences == kept
        else:
            replaced = sentences - kept
            assert sentences.total() == kept.total() + 2 * sum(map(len, places.values()))
            assert all("\ufffd" in " ".join(sentence) for sentence in replaced)


def test_stop_names_file_and_line(hostile):
    folder, _, places = hostile
    path, (line, *_) = next(iter(places.items()))
    with pytest.raises(ValueError, match=rf"{path}, line {line}: this is not UTF-8"):
        list(CorpusReader(path, errors="stop", epochs=1, shuffle=False))
    with pytest.raises(ValueError, match="this is not UTF-8"):
        list(CorpusReader(folder, errors="stop", epochs=1))


def test_many_undecodable_lines_are_counted_but_not_all_listed(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\n" * 1000)
    reader = CorpusReader(tmp_path / "a.txt", epochs=1)
    list(reader)
    (found,) = reader.undecodable.values()
    assert found.count == 1000
    assert found.lines == list(range(1, corpus.LISTED + 1))


# --- Data sets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_data_sets(monkeypatch, streamed):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(corpus, "ROWS_OF_A_BLOCK", 7)
    dataset = datasets.Dataset.from_dict({"text": [f"row {row}\n\nsecond of {row}" for row in range(50)]})
    if streamed:
        dataset = dataset.to_iterable_dataset()
    whole = list(islice(CorpusReader(dataset, seed=1), 250))
    expected = [words for row in range(50) for words in (["row", str(row)], ["second", "of", str(row)])]
    assert sorted(whole[:100]) == sorted(expected)
    assert whole[:100] != expected
    assert whole[:100] != whole[100:200]
    for cut in (0, 3, 14, 99, 100, 101, 140):
        reader, resumed = (CorpusReader(dataset, seed=1) for _ in range(2))
        list(islice(reader, cut))
        resumed.load_state_dict(json.loads(json.dumps(reader.state_dict())))
        assert list(islice(resumed, 60)) == whole[cut : cut + 60]
    documents = list(CorpusReader(dataset, keep_documents=True, epochs=1))
    assert all(first[1] == second[2] for first, second in zip(documents[::2], documents[1::2], strict=True))


def test_a_column_of_words_and_a_missing_column():
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"tokens": [["a", "b"], [], ["c"]]})
    assert list(CorpusReader(dataset, column="tokens", epochs=1, shuffle=False)) == [["a", "b"], ["c"]]
    with pytest.raises(ValueError, match="The data set has no column 'text'; it has 'tokens'"):
        CorpusReader(dataset)


def test_a_buffer_has_something_of_every_file(tmp_path):
    """Files of different kinds are mixed, so that training does not go from one to the next."""
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {number}\n" for number in range(4000)))
    reader = CorpusReader(tmp_path, buffer_bytes=2**15)
    kinds = [next(reader)[0] for _ in range(16000)]
    for start in range(0, 12000, 4000):
        counts = [kinds[start : start + 4000].count(name) for name in "abcd"]
        assert min(counts) > 300, counts
    assert sorted(kinds) == sorted("abcd" * 4000)
