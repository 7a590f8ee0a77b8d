"""Vocabularies: the same as counting by hand, whoever counts; and the command."""

import gzip
import json
import random
from collections import Counter

import pytest

from hf_elmo import ElmoTokenizer, cli, vocabulary
from hf_elmo.vocabulary import build_vocabulary, count_words

WORDS = ["the", "The", ".", ",", "été", "naïve", "日本", "x", "y", "z", *(f"w{number}" for number in range(50))]


@pytest.fixture
def text(tmp_path):
    """Some files, one of them compressed."""
    rng = random.Random(0)
    folder = tmp_path / "text"
    folder.mkdir()
    for number in range(4):
        lines = [" ".join(rng.choice(WORDS) for _ in range(rng.randrange(12))) for _ in range(60)]
        data = "\n".join(lines).encode()
        if number == 3:
            (folder / "3.txt.gz").write_bytes(gzip.compress(data))
        else:
            (folder / f"{number}.txt").write_bytes(data)
    return folder


def naive_counts(folder):
    counts = Counter()
    for path in sorted(folder.iterdir()):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in data.decode().split("\n"):
            counts.update(line.split())
    return counts


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(vocabulary, "PART_BYTES", 700)
    monkeypatch.setattr(vocabulary, "PIECE_BYTES", 150)


@pytest.mark.usefixtures("small_parts")
def test_equal_to_a_plain_count(text):
    expected = naive_counts(text)
    counts = count_words(text, processes=1)
    assert counts.counts == expected
    assert counts.tokens == expected.total()
    words = sorted((word for word in expected if expected[word] >= 20), key=lambda word: (-expected[word], word))
    built = build_vocabulary(counts, min_count=20)
    assert built.words == ["<S>", "</S>", "<UNK>", *words]
    assert built.coverage == sum(expected[word] for word in words) / expected.total()
    assert (
        build_vocabulary(counts, min_count=1, max_words=7).words[3:]
        == sorted(expected, key=lambda word: (-expected[word], word))[:7]
    )


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_the_same_from_two_processes(text):
    one, two = (count_words(text, processes=processes) for processes in (1, 2))
    assert one == two
    assert build_vocabulary(one, min_count=1).words == build_vocabulary(two, min_count=1).words
    (text / "bad.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"bad\.txt, line 1: this is not UTF-8"):
        count_words(text, processes=2, errors="stop")


def test_processes_are_counted():
    with pytest.raises(ValueError, match="The number of processes is 0; it must be 1 or more"):
        count_words(__file__, processes=0)


def test_words_with_equal_counts_stand_in_the_order_of_code_points(tmp_path):
    (tmp_path / "a.txt").write_text("b a é A z\nb a é A z 日\n")
    assert build_vocabulary(count_words(tmp_path / "a.txt"), min_count=1).words[3:] == ["A", "a", "b", "z", "é", "日"]


def test_reserved_words_of_the_text_are_told_and_not_listed_twice(tmp_path):
    (tmp_path / "a.txt").write_text("<S> a a </S>\n<S> b </S> <UNK> !!!MAXTERMID <PAD>\n")
    built = build_vocabulary(count_words(tmp_path / "a.txt"), min_count=1)
    assert built.words == ["<S>", "</S>", "<UNK>", "a", "b"]
    assert built.counts.tokens == 10
    assert built.coverage == 0.3
    assert "not counted as words" in str(built)
    assert "</S> 2 times, <PAD> 1 times, <S> 2 times, <UNK> 1 times" in str(built)


@pytest.mark.usefixtures("small_parts")
def test_lines_that_are_not_utf8(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good line\n" * 100 + b"bad \xff line\n\xe2\x82\nend")
    replaced = count_words(path, errors="replace", processes=1)
    assert replaced.counts == {"good": 100, "line": 101, "bad": 1, "\ufffd": 2, "end": 1}
    skipped = count_words(path, errors="skip", processes=1)
    assert skipped.counts == {"good": 100, "line": 100, "end": 1}
    assert (replaced.sentences, skipped.sentences) == (103, 101)
    assert replaced.undecodable == skipped.undecodable == 2
    assert "2 lines are not UTF-8" in str(build_vocabulary(skipped))
    with pytest.raises(ValueError, match=r"a\.txt, line 101: this is not UTF-8"):
        count_words(path, errors="stop", processes=1)
    with pytest.raises(ValueError, match="errors is 'ignore'; choose one of"):
        count_words(path, errors="ignore")


def test_no_word_is_frequent_enough(tmp_path):
    (tmp_path / "a.txt").write_text("a a b\n")
    counts = count_words(tmp_path / "a.txt")
    with pytest.raises(
        ValueError, match="No word is in the text 3 times or more; the most frequent one of 2 is there 2"
    ):
        build_vocabulary(counts)
    with pytest.raises(ValueError, match="smallest count is 0"):
        build_vocabulary(counts, min_count=0)
    with pytest.raises(ValueError, match="limited to 0"):
        build_vocabulary(counts, max_words=0)


# --- The command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, "vocab", ("hf_elmo.scripts.vocab:VOCAB", "the words of a text"))

    def run(*argv):
        code = cli.main(["vocab", *map(str, argv)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_command(run, text, tmp_path):
    output, counts = tmp_path / "vocab.txt", tmp_path / "counts.json"
    code, out, err = run(text, "--output", output, "--min-count", 2, "--counts", counts, "--processes", 1, "--quiet")
    expected = naive_counts(text)
    assert (code, err) == (0, "")
    assert out == (
        f"{expected.total():,} tokens of {len(expected)} types in {count_words(text).sentences} sentences, 4 files\n"
        f"{len(expected)} words kept; they cover 100.00% of the tokens\n"
        f"vocabulary: {output}\n"
    )
    saved = json.loads(counts.read_text(encoding="utf-8"))
    assert saved["counts"] == expected
    assert list(saved["counts"]) == output.read_text(encoding="utf-8").split("\n")[3:-1]
    assert (saved["tokens"], saved["types"], saved["kept"]) == (expected.total(), len(expected), len(expected))
    tokenizer = ElmoTokenizer(vocab_file=output)
    assert tokenizer.convert_tokens_to_ids(["<S>", "</S>", "<UNK>"]) == [0, 1, 2]
    assert len(tokenizer.get_vocab()) == len(expected) + 4
    assert not list(tmp_path.glob(".*"))


def test_a_file_is_not_overwritten_unasked(run, text, tmp_path):
    output = tmp_path / "vocab.txt"
    output.write_text("mine")
    code, out, err = run(text, "--output", output)
    assert (code, out) == (1, "")
    assert err == f"hf-elmo: error: {output} exists. Choose another name, or give --overwrite.\n"
    assert output.read_text() == "mine"
    assert run(text, "--output", output, "--overwrite", "--processes", 1)[0] == 0
    assert output.read_text(encoding="utf-8").startswith("<S>\n</S>\n<UNK>\n")


def test_a_failure_leaves_the_old_file(run, text, tmp_path, monkeypatch):
    output = tmp_path / "vocab.txt"
    output.write_text("mine")

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(vocabulary.os, "fsync", no_space)
    code, _, err = run(text, "--output", output, "--overwrite", "--processes", 1)
    assert code == 1
    assert "No space left" in err
    assert output.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "vocab.txt"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["nowhere.txt", "--output", "v"], "nowhere.txt does not exist"),
        (["{text}", "--output", "{text}"], "is a folder; give the name of a file"),
        (["{text}", "--output", "{text}/missing/v"], "missing does not exist, so v cannot be written there"),
        (["{text}", "--output", "{text}/v", "--min-count", "0"], "--min-count 0 is not possible"),
        (["{text}", "--output", "{text}/v", "--max-words", "0"], "--max-words 0 is not possible"),
        (["{text}", "--output", "{text}/v", "--processes", "0"], "The number of processes is 0"),
        (["{text}", "--output", "{text}/v", "--min-count", "100000"], "No word is in the text 100000 times"),
    ],
)
def test_mistakes(run, text, options, says):
    code, out, err = run(*(option.format(text=text) for option in options))
    assert (code, out) == (1, "")
    assert says in err
    assert err.count("\n") == 1
