"""The look through a corpus before training: every kind of problem, with its place."""

import json
import random

import pytest
from transformers.utils import logging

from hf_elmo import corpus_check
from hf_elmo.corpus import CorpusReader
from hf_elmo.corpus_check import check_corpus
from hf_elmo.vocabulary import count_words

datasets = pytest.importorskip("datasets")

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
        pieces = [
            "a b\n",
            "\n",
            "é  c\n",
            "no\u00a0break\u00a0x\n",
            " \n",
            "\u00a0\n",
            b"bad \xff line\n".decode("latin-1"),
            "x" * 90 + "\n",
        ]
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


def test_code_points_are_counted_if_the_model_reads_them(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(f"a {'é' * 48}\nb {'é' * 49}\n", encoding="utf-8")
    long = problem(check(path, code_points=True), "long")
    assert (long.count, long.places[0].line) == (1, 2)
    assert "have more than 48 code points; the model sees their begin only" in long.message
    of_bytes = problem(check(path), "long")
    assert of_bytes.count == 2
    assert "have more than 48 bytes" in of_bytes.message


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


# --- Data sets -------------------------------------------------------------------------------------------------------


class Rows:
    """A stream of rows that need not be what `datasets` can store."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter({"text": row} for row in self.rows)


class Table(Rows):
    """The same, not streamed."""

    column_names = ("text",)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, rows):
        return {"text": self.rows[rows]}


def data_set(rows, streamed=False):
    found = datasets.Dataset.from_dict({"text": rows})
    return found.to_iterable_dataset() if streamed else found


def figures(report):
    return {
        name: value
        for name, value in report.to_dict().items()
        if name not in ("files", "bytes", "seconds", "problems", "rows", "complete")
    }


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("parts", ["one part", "small parts"])
def test_a_data_set_is_checked_as_a_file_is(tmp_path, request, streamed, parts):
    if parts == "small parts":
        request.getfixturevalue("small_parts")
    lines = [*GOOD[:150], *(line for line, *_ in LINES if isinstance(line, str)), *GOOD[140:]]
    options = {"vocabulary": GOOD[0].split(), "batch_size": 8, "unroll_steps": 20}
    expected = check(write(tmp_path / "a.txt", lines), **options)
    report = check_corpus(data_set(lines, streamed), name="poems", **options)
    sampled = "cuts" if parts == "small parts" else ""  # of which as many sentences as there are parts
    if parts == "one part":
        assert figures(report) == figures(expected)
    assert (report.files, report.rows, report.complete) == (0, len(lines), True)
    assert report.bytes == expected.bytes
    found, wanted = ([found for found in each.problems if found.kind != sampled] for each in (report, expected))
    assert [(p.severity, p.kind, p.message, p.count) for p in found] == [
        (p.severity, p.kind, p.message, p.count) for p in wanted
    ]
    if parts == "one part":
        for one, other in zip(found, wanted, strict=True):
            assert [(place.row, place.text) for place in one.places] == [
                (place.line - 1, place.text) for place in other.places
            ]
    assert f"rows                  {len(lines)}" in str(report)
    assert "data set poems, row 157: 3 times" not in str(report)
    assert str(problem(report, "reserved").places[0]) == "data set poems, row 155: <S>"


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("errors", ["replace", "skip"])
@pytest.mark.parametrize("kind", [Rows, Table])
@pytest.mark.parametrize("words", [False, True])
def test_figures_are_those_of_the_reader_of_a_data_set(errors, kind, words):
    texts = ["a b", "", "\n", "a\n\n b  c\n", "é\u00a0c\r\nd", " ", "\u00a0", None, "bad \ud800 line\nnext", "x" * 90]
    lists = [["a", "b"], [], [""], ["New York", ""], ["two\nlines", "x"], None, ["bad\ud800", "y"], [" "], "a text\nb"]
    rng = random.Random(0)
    rows = [rng.choice(lists if words else texts) for _ in range(400)]
    sentences = list(CorpusReader(kind(rows), errors=errors, epochs=1))
    report = check_corpus(kind(rows), errors=errors, keep_counts=True)
    assert report.sentences == len(sentences)
    assert report.tokens == sum(map(len, sentences))
    assert report.longest_sentence == max(map(len, sentences))
    assert report.rows == len(rows)
    assert problem(report, "missing").count == rows.count(None)
    assert problem(report, "undecodable").count == sum("\ud800" in str(row) or "\\ud800" in str(row) for row in rows)
    counted = {word for sentence in sentences for word in sentence}
    assert set(report.counts.counts) == counted
    assert report.counts.tokens == report.tokens


@pytest.mark.parametrize("streamed", [False, True])
def test_lines_of_a_row_have_places(monkeypatch, streamed):
    monkeypatch.setattr(corpus_check, "PIECE_BYTES", 200)  # several pieces of a part
    rows = [*GOOD * 3, "fine .\n\nsee <br> here\n", "<i>"]
    report = check_corpus(data_set(rows, streamed))
    assert list(map(str, problem(report, "markup").places)) == [
        "data set, row 600, line 3: <br>",
        "data set, row 601: <i>",
    ]
    (saved,) = [found for found in json.loads(report.to_json())["problems"] if found["kind"] == "markup"]
    assert saved["places"][0] == {"file": "data set", "line": 3, "text": "<br>", "row": 600}


def test_lists_of_words():
    rows = [line.split() for line in GOOD]
    assert check_corpus(data_set(rows)).problems == []
    rows[3] = ["an", "", "empty", "word"]
    rows[5] = ["New York", "is", "<br>", "x" * 60]
    report = check_corpus(data_set(rows))
    empty, spaced, markup, long = (problem(report, kind) for kind in ("empty_in_lists", "spaced", "markup", "long"))
    assert (empty.severity, empty.count, empty.places[0].row) == ("warning", 1, 3)
    assert (spaced.severity, spaced.count, str(spaced.places[0])) == ("note", 1, "data set, row 5: New York")
    assert markup.places[0].row == long.places[0].row == 5
    with pytest.raises(ValueError, match=r"200 words of lists \(100\.000%\) have white space in them.*row 0: This is"):
        check_corpus(data_set([[line] for line in GOOD])).raise_if_fatal()


@pytest.mark.parametrize("kind", [Rows, Table])
def test_rows_without_text(kind):
    missing, number, mixed = ([*GOOD, row] for row in (None, 7, ["a", None]))
    assert problem(check_corpus(kind(missing)), "missing").severity == "warning"
    assert len(list(CorpusReader(kind(missing), epochs=1))) == 200
    with pytest.raises(
        ValueError, match=r"1 rows \(0\.498%\) have None for a text\. Remove them, .*data set x, row 200: None"
    ):
        check_corpus(kind(missing), errors="stop", name="x").raise_if_fatal()
    with pytest.raises(ValueError, match=r"Row 200 of the data set has None in the column 'text'"):
        list(CorpusReader(kind(missing), errors="stop", epochs=1))
    with pytest.raises(ValueError, match=r"150 rows \(75\.000%\) have None"):
        check_corpus(kind([*GOOD[:50], *[None] * 150])).raise_if_fatal()
    for rows, shown in ((number, "int 7"), (mixed, "a list with None")):
        with pytest.raises(ValueError, match=rf"1 rows have neither a text nor a list of words.*row 200: {shown}"):
            check_corpus(kind(rows)).raise_if_fatal()
        with pytest.raises(ValueError, match=rf"Row 200 of the data set has {shown} in .*errors='skip'"):
            list(CorpusReader(kind(rows), epochs=1))
        report = check_corpus(kind(rows), errors="skip")
        assert problem(report, "not_text").severity == "warning"
        assert report.sentences == len(list(CorpusReader(kind(rows), errors="skip", epochs=1))) == 200
    with pytest.raises(ValueError, match="There is no sentence in the corpus"):
        check_corpus(kind([])).raise_if_fatal()


def test_a_lone_surrogate_can_stop_the_reader():
    rows = [*GOOD, "bad \ud800"]
    assert problem(check_corpus(Rows(rows), errors="stop"), "undecodable").severity == "fatal"
    with pytest.raises(ValueError, match=r"Row 200 of the data set has text that is not Unicode"):
        list(CorpusReader(Rows(rows), errors="stop", epochs=1))


def test_a_missing_column():
    for source in (data_set(GOOD), data_set(GOOD, streamed=True)):
        with pytest.raises(ValueError, match=r"no column 'content'; it has 'text'\. Choose one"):
            check_corpus(source, column="content")
    for read in (check_corpus, lambda rows, column: next(CorpusReader(rows, column=column))):
        with pytest.raises(ValueError, match=r"Row 0 of the data set has no column 'content'; it has 'text'"):
            read(Rows(GOOD), column="content")


def test_the_first_rows_of_a_stream(monkeypatch):
    options = {"batch_size": 8, "unroll_steps": 20, "words_per_second": 100}
    for count, complete in ((199, False), (200, True), (201, True)):
        report = check_corpus(data_set(GOOD, streamed=True), max_rows=count, **options)
        assert (report.rows, report.complete) == (min(count, 200), complete)
    whole = check_corpus(data_set(GOOD), max_rows=1, **options)
    assert (report.steps_per_epoch, report.seconds_per_epoch) == (whole.steps_per_epoch, 22) == (15, 22)
    begin = check_corpus(data_set([*GOOD, *["<br>"] * 400], streamed=True), max_rows=200, **options)
    assert begin.tokens == 2200
    assert begin.problems == []
    assert begin.steps_per_epoch is begin.seconds_per_epoch is None
    assert "rows                  the first 200; the others are not looked at" in str(begin)
    assert "steps an epoch        unknown" in str(begin)
    monkeypatch.setattr(corpus_check, "STREAMED_BYTES", 10_000)
    report = check_corpus(data_set(GOOD * 100, streamed=True))
    assert (report.rows, report.complete) == (256, False)
    with pytest.raises(ValueError, match="max_rows is 0"):
        check_corpus(data_set(GOOD), max_rows=0)


def test_words_are_counted_if_asked(tmp_path):
    path = write(tmp_path / "a.txt", [*GOOD, "<S> and b"])
    expected = count_words(path, 1)
    assert check(path, keep_counts=True).counts == expected
    found = check_corpus(data_set(path.read_text().splitlines()), keep_counts=True).counts
    assert (found.counts, found.reserved, found.tokens) == (expected.counts, expected.reserved, expected.tokens)
    assert check(path).counts is None


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_a_data_set_in_two_processes(tmp_path):
    path = write(tmp_path / "a.txt", [*GOOD[:70], *(line for line, *_ in LINES if isinstance(line, str)), *GOOD])
    logging.disable_progress_bar()
    source = datasets.Dataset.from_dict({"text": path.read_text().split("\n")})
    one, two = (
        check_corpus(source, vocabulary=GOOD[0].split(), processes=processes).to_dict() for processes in (1, 2)
    )
    assert {**one, "seconds": 0} == {**two, "seconds": 0}
