"""The look through a corpus before training: every kind of problem, with its place."""

import json
import random

import pytest
from transformers.utils import logging

from hf_elmo import corpus_check
from hf_elmo.corpus import CorpusReader
from hf_elmo.corpus_check import check_corpus

GOOD = [f"This is sentence number {number} , and it is fine ." for number in range(200)]


def write(path, lines):
    data = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\n"
    path.write_bytes(data)
    return path


def check(*paths, **options):
    return check_corpus(paths, processes=1, **options)


def problem(report, kind):
    (found,) = [problem for problem in report.problems if problem.kind == kind]
    return found


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(corpus_check, "PART_BYTES", 700)
    monkeypatch.setattr(corpus_check, "PIECE_BYTES", 200)


def test_good_text_has_no_problems(tmp_path):
    report = check(write(tmp_path / "a.txt", GOOD))
    assert report.problems == []
    assert (report.files, report.lines, report.sentences, report.tokens) == (1, 200, 200, 2200)
    assert report.longest_sentence == 11
    assert report.cut_share == report.repeated_share == 0
    report.raise_if_fatal()
    assert "tokens                2,200" in str(report)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("errors", ["replace", "skip"])
def test_figures_are_those_of_the_reader(tmp_path, errors):
    rng = random.Random(0)
    for number in range(3):
        pieces = ["a b\n", "\n", "é  c\n", " \n", "\u00a0\n", b"bad \xff line\n".decode("latin-1"), "x" * 90 + "\n"]
        text = "".join(rng.choice(pieces) for _ in range(100))
        (tmp_path / f"{number}.txt").write_bytes(text.encode("latin-1") if number == 1 else text.encode())
    sentences = list(CorpusReader(tmp_path, errors=errors, epochs=1))
    report = check(tmp_path, errors=errors)
    assert report.sentences == len(sentences)
    assert report.tokens == sum(map(len, sentences))
    assert report.longest_sentence == max(map(len, sentences))


# A line with a problem, its kind, how many words or lines have it, its severity in a text of 200 lines.
LINES = [
    (b"caf\xe9 au lait", "undecodable", 1, "warning"),
    ("nul \x00 here and bell\x07", "control", 2, "warning"),
    ("a zero\u200bwidth word", "control", 1, "warning"),
    ("was \ufffd before", "control", 1, "warning"),
    ("see <br> and </p> here", "markup", 2, "warning"),
    ("this &amp; that &#39;s", "markup", 2, "warning"),
    ("<S> again </S>", "reserved", 2, "warning"),
    ("some <UNK> words", "reserved", 1, "warning"),
    ("a " + "x" * 49, "long", 1, "note"),
    ("a " + "é" * 25, "long", 1, "note"),
    ("tab\there", "odd_space", 1, "note"),
    ("no-break\u00a0space", "odd_space", 1, "note"),
    ("lone\rreturn", "odd_space", 1, "note"),
    ("two  spaces", "empty_words", 1, "note"),
    ("w " * 2001, "long_sentence", 1, "warning"),
]


@pytest.mark.parametrize(("line", "kind", "count", "severity"), LINES)
@pytest.mark.parametrize("parts", ["one part", "small parts"])
def test_a_line_with_a_problem(tmp_path, request, line, kind, count, severity, parts):
    if parts == "small parts":
        request.getfixturevalue("small_parts")
    write(tmp_path / "a.txt", GOOD)
    path = write(tmp_path / "b.txt", [*GOOD[:150], line, *GOOD[150:]])
    found = problem(check(tmp_path), kind)
    assert (found.count, found.severity) == (count, severity)
    if kind != "empty_words":
        assert {(place.file, place.line) for place in found.places} == {(str(path), 151)}
        assert all(sign.isprintable() for place in found.places for sign in place.text)


def test_the_longest_word_that_fits_is_no_problem(tmp_path):
    path = write(tmp_path / "a.txt", [*GOOD, "a " + "x" * 48])
    assert check(path).problems == []
    assert problem(check(path, max_characters_per_token=49), "long").count == 1


def test_a_word_inside_another_is_not_its_place(tmp_path):
    path = write(tmp_path / "a.txt", [*GOOD, "not<br>here", "<br>"])
    places = problem(check(path), "markup").places
    assert {(place.line, place.text) for place in places} == {(201, "not<br>here"), (202, "<br>")}


def test_empty_files(tmp_path):
    write(tmp_path / "a.txt", GOOD)
    (tmp_path / "empty.txt").touch()
    write(tmp_path / "white.txt", [" ", ""])
    report = check(tmp_path)
    found = problem(report, "empty_file")
    assert found.severity == "warning"
    assert [place.file for place in found.places] == [str(tmp_path / "empty.txt"), str(tmp_path / "white.txt")]
    assert not report.fatal


def test_no_text_is_fatal(tmp_path):
    (tmp_path / "empty.txt").touch()
    report = check(tmp_path)
    assert problem(report, "no_text").severity == "fatal"
    assert report.problems[0].severity == "fatal"  # the worst come first
    with pytest.raises(ValueError, match=r"cannot be trained on\. There is no sentence in the corpus"):
        report.raise_if_fatal()


def test_another_encoding_is_fatal_and_so_is_one_line_if_asked(tmp_path):
    path = write(tmp_path / "a.txt", [*GOOD, *["caf\u00e9".encode("latin-1")] * 20])
    with pytest.raises(ValueError, match=r"20 lines \(9\.091%\) are not UTF-8.* .*a\.txt:201"):
        check(path).raise_if_fatal()
    path = write(tmp_path / "b.txt", [*GOOD, b"\xff"])
    check(path).raise_if_fatal()
    assert problem(check(path, errors="stop"), "undecodable").severity == "fatal"
    with pytest.raises(ValueError, match="errors is 'ignore'"):
        check(path, errors="ignore")


def test_unknown_words(tmp_path):
    path = write(tmp_path / "a.txt", ["a b c d e f g h i j"] * 3)
    known = check(path, vocabulary="abcdefghij")
    assert known.unknown_share == 0
    assert problem(check(path, vocabulary="abcdefghi"), "unknown").severity == "warning"
    report = check(path, vocabulary={"a", "b"})
    assert report.unknown_share == 0.8
    with pytest.raises(ValueError, match=r"80\.0% of the words are not in the vocabulary"):
        report.raise_if_fatal()
    assert check(path).unknown_share is None


def test_raw_text_is_recognized(tmp_path):
    raw = [f"He said (twice) that it's \"number {number}\", didn't he?" for number in range(200)]
    report = check(write(tmp_path / "raw.txt", raw))
    found = problem(report, "cuts")
    assert found.severity == "warning"
    assert report.cut_share > 0.5
    assert found.places[0].line == 1
    cut = ["He said ( twice ) that it 's \" number 5 \" , didn 't he ? Mr. Smith 's 1,000 a.m. so-called"] * 200
    assert check(write(tmp_path / "cut.txt", cut)).cut_share == 0
    assert check(write(tmp_path / "treebank.txt", ["I do n't know , they 're late"] * 20)).cut_share == 0
    # Other signs for the same are no cuts.
    assert check(write(tmp_path / "signs.txt", ["\u201c It \u2019s \u201d \u2014 yes"] * 20)).cut_share == 0


def test_repeated_lines(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", [*GOOD, *["Share this page ."] * 50])
    write(tmp_path / "b.txt", ["Share this page ."] * 50)
    report = check(tmp_path)
    assert report.repeated_share == pytest.approx(99 / 300)
    found = problem(report, "repeated")
    assert (found.severity, found.count) == ("warning", 99)
    assert str(found.places[0]) == f"{tmp_path / 'a.txt'}:201: 50 times: Share this page ."


def test_a_share_of_the_lines_estimates_repetitions(tmp_path, monkeypatch):
    lines = [f"sentence {number} ." for number in range(4000)]
    write(tmp_path / "a.txt", lines + lines)
    monkeypatch.setattr(corpus_check, "COMPARED_BYTES", 20_000)
    assert check(tmp_path).repeated_share == pytest.approx(0.5)


def test_steps_and_time(tmp_path):
    path = write(tmp_path / "a.txt", GOOD)  # 2,200 words and 200 ends of sentences
    report = check(path, batch_size=8, unroll_steps=20, words_per_second=100)
    assert (report.steps_per_epoch, report.seconds_per_epoch) == (15, 22)
    assert check(path, batch_size=64).steps_per_epoch == 4
    with pytest.raises(ValueError, match="2,200 words are too few for one batch"):
        check(path, batch_size=128, unroll_steps=20).raise_if_fatal()


def test_places_are_bounded(tmp_path):
    for number in range(10):
        write(tmp_path / f"{number}.txt", [*GOOD * 50, *(f"<b> x{line} y<i>{line}" for line in range(100))])
    report = check(tmp_path)
    found = problem(report, "markup")
    assert found.count == 2000
    assert len(found.places) == corpus_check.PLACES_OF_A_PROBLEM


def test_report_as_table_and_json(tmp_path):
    path = write(tmp_path / "a.txt", [*GOOD, "see <br> here"])
    report = check(path, vocabulary={"This"}, batch_size=2, words_per_second=10)
    saved = json.loads(report.to_json())
    assert saved["tokens"] == report.tokens
    (markup,) = [found for found in saved["problems"] if found["kind"] == "markup"]
    assert markup["places"] == [{"file": str(path), "line": 201, "text": "<br>"}]
    table = str(report)
    assert "steps an epoch        101" in table
    assert f"{path}:201: <br>" in table
    assert table.index("fatal:") < table.index("warning:")


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_the_same_from_two_processes(tmp_path):
    for number in range(4):
        write(tmp_path / f"{number}.txt", [*GOOD[:70], *(line for line, *_ in LINES), *GOOD])
    logging.disable_progress_bar()
    one, two = (
        check_corpus(tmp_path, vocabulary=GOOD[0].split(), processes=processes).to_dict() for processes in (1, 2)
    )
    assert {**one, "seconds": 0} == {**two, "seconds": 0}
