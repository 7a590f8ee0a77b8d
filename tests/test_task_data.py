"""Task files become the lists they mean, and a line that does not fit is named."""

import doctest

import pytest

from hf_elmo.scripts import task_data
from hf_elmo.scripts.task_data import (
    ClassificationData,
    TaggingData,
    bio_to_bioes,
    bioes_to_bio,
    check_labels,
    iob1_to_bio,
    label_names,
    read_classification_dataset,
    read_conll,
    read_conllu,
    read_sst,
    read_table,
    read_tagging_dataset,
)

CONLL = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
British JJ I-NP B-MISC

-DOCSTART- -X- O O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
"""


def write(path, text):
    path.write_bytes(text.encode())
    return path


def test_examples():
    assert doctest.testmod(task_data).failed == 0


# --- Labels of entities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("iob1", "bio", "bioes"),
    [
        ("", "", ""),
        ("O", "O", "O"),
        ("I-X", "B-X", "S-X"),
        ("I-X I-X I-X", "B-X I-X I-X", "B-X I-X E-X"),
        ("I-X B-X", "B-X B-X", "S-X S-X"),
        ("I-X I-Y I-Y", "B-X B-Y I-Y", "S-X B-Y E-Y"),
        ("O I-X I-X B-X I-X O", "O B-X I-X B-X I-X O", "O B-X E-X B-X E-X O"),
        ("I-A-B I-A-C", "B-A-B B-A-C", "S-A-B S-A-C"),
    ],
)
def test_label_schemes(iob1, bio, bioes):
    iob1, bio, bioes = iob1.split(), bio.split(), bioes.split()
    assert iob1_to_bio(iob1) == bio
    assert iob1_to_bio(bio) == bio
    assert bio_to_bioes(bio) == bioes
    assert bioes_to_bio(bioes) == bio


@pytest.mark.parametrize(
    ("labels", "scheme", "position", "message"),
    [
        ("O I-X", "BIO", 1, "'I-X' has no B-X before it, which BIO asks for"),
        ("B-X I-Y", "BIO", 1, "'I-Y' has no B-Y before it"),
        ("B-X E-X", "BIO", 1, "'E-X' is not a label of BIO, which has O, B-TYPE, I-TYPE"),
        ("PER", "BIO", 0, "'PER' is not a label of BIO"),
        ("B-", "BIO", 0, "'B-' is not a label of BIO"),
        ("B-X O", "BIOES", 0, "the X entity has no E-X before 'O', which BIOES asks for"),
        ("O B-X I-X", "BIOES", 2, "the X entity has no E-X at the end of the sentence"),
        ("B-X B-X E-X", "BIOES", 0, "the X entity has no E-X before 'B-X'"),
        ("S-X I-X", "BIOES", 1, "'I-X' has no B-X before it"),
        ("B-X E-X E-X", "BIOES", 2, "'E-X' has no B-X before it"),
        ("U-X", "BIOES", 0, "'U-X' is not a label of BIOES, which has O, B-TYPE, I-TYPE, E-TYPE, S-TYPE"),
    ],
)
def test_labels_that_break_the_scheme(labels, scheme, position, message):
    with pytest.raises(task_data.LabelError, match=message) as raised:
        check_labels(labels.split(), scheme)
    assert raised.value.position == position


# --- CoNLL columns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [CONLL, CONLL.rstrip("\n"), "\ufeff" + CONLL, CONLL.replace("\n", "\r\n"), CONLL.replace(" ", "\t")]
)
def test_conll(tmp_path, text):
    path = write(tmp_path / "train.txt", text)
    data = read_conll(path, scheme="BIO")
    assert data.sentences == [["EU", "rejects", "German", "British"], ["Peter", "Blackburn"]]
    assert data.labels == [["B-ORG", "O", "B-MISC", "B-MISC"], ["B-PER", "I-PER"]]
    assert data.describe() == "train.txt: 2 sentences, 6 words, 5 labels"
    assert data.words() == {"EU", "rejects", "German", "British", "Peter", "Blackburn"}
    assert read_conll(path, scheme="BIOES").labels == [["S-ORG", "O", "S-MISC", "S-MISC"], ["B-PER", "E-PER"]]
    assert read_conll(path).labels[1] == ["I-PER", "I-PER"]
    assert read_conll(path, label_column=1).labels[1] == ["NNP", "NNP"]


def test_conll_from_bioes_and_with_other_columns(tmp_path):
    path = write(tmp_path / "a.txt", "1 B-X New\n2 E-X York\n\n3 S-X Rome\n")
    data = read_conll(path, word_column=2, label_column=1, scheme="BIO")
    assert data.sentences == [["New", "York"], ["Rome"]]
    assert data.labels == [["B-X", "I-X"], ["B-X"]]


def test_words_keep_characters_that_only_look_like_separators(tmp_path):
    path = write(tmp_path / "a.txt", "10\u00a0000 O\nline\u2028sep O\n")
    assert read_conll(path).sentences == [["10\u00a0000", "line\u2028sep"]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, r"a\.txt holds no sentence"),
        ("-DOCSTART- O\n\n", {}, r"a\.txt holds no sentence"),
        ("a O\nb X O\n", {}, r"a\.txt: line 2 has 3 columns, but the lines before have 2"),
        ("a O\n\n O\n", {}, r"a\.txt: line 3 has 1 columns"),
        ("a\tO\n\tO\n", {}, r"a\.txt: line 2 has an empty word"),
        ("a\tO\nb\t\n", {}, r"a\.txt: line 2 has an empty label"),
        ("a O\n", {"label_column": 3}, r"label_column=3, but line 1 has 2 columns, 0 to 1"),
        ("a O\n", {"word_column": -3}, r"word_column=-3, but line 1 has 2 columns"),
        ("a O\n\nb PER\n", {"scheme": "BIO"}, r"a\.txt: line 3: 'PER' is not a label of BIO"),
        ("a S-X\n\nb O\nc B-X\n", {"scheme": "BIO"}, r"a\.txt: line 4: the X entity has no E-X at the end"),
        ("a O\n", {"scheme": "IOB"}, r"scheme is 'IOB'; labels can be converted to 'BIO' or 'BIOES'"),
    ],
)
def test_wrong_columns(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_conll(write(tmp_path / "a.txt", text), **options)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*nowhere"):
        read_conll(tmp_path / "nowhere.txt")
    (tmp_path / "latin.txt").write_bytes(b"a O\n\nM\xfcnchen I-LOC\n")
    with pytest.raises(ValueError, match=r"latin\.txt: line 3 is not UTF-8\. Convert the file"):
        read_conll(tmp_path / "latin.txt")


# --- CoNLL-U ---------------------------------------------------------------------------------------------------------


def conllu_line(number, word, upos="X", xpos="Y"):
    return "\t".join([str(number), word, "_", upos, xpos, "_", "_", "_", "_", "_"]) + "\n"


def test_conllu(tmp_path):
    text = (
        "# text = I didn't\n"
        + conllu_line(1, "I", "PRON", "PRP")
        + conllu_line("2-3", "didn't", "_", "_")
        + conllu_line(2, "did", "AUX", "VBD")
        + conllu_line(3, "n't", "PART", "RB")
        + conllu_line("3.1", "go", "VERB", "VB")
        + "\n# text = 10 000\n"
        + conllu_line(1, "10 000", "NUM", "CD")
    )
    path = write(tmp_path / "dev.conllu", text)
    data = read_conllu(path)
    assert data.sentences == [["I", "did", "n't"], ["10 000"]]
    assert data.labels == [["PRON", "AUX", "PART"], ["NUM"]]
    assert read_conllu(path, "xpos").labels == [["PRP", "VBD", "RB"], ["CD"]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("# nothing\n", {}, r"holds no sentence"),
        (conllu_line(1, "a") + "2\tb\n", {}, r"line 2 has 2 columns between tabs, but CoNLL-U has 10"),
        (conllu_line(1, "a") + conllu_line(1, "b"), {}, r"line 2 has the word number '1', but 2 comes next"),
        (conllu_line(1, "a") + conllu_line(3, "b"), {}, r"line 2 has the word number '3', but 2 comes next"),
        (conllu_line("x", "a"), {}, r"line 1 has the word number 'x'"),
        (conllu_line(1, "a", "_"), {}, r"line 1 has no upos"),
        (conllu_line(1, "a", "X", "_"), {"column": "xpos"}, r"line 1 has no xpos"),
        (conllu_line(1, ""), {}, r"line 1 has an empty word"),
        (conllu_line(1, "a"), {"column": "deprel"}, r"column is 'deprel'; CoNLL-U has the tags 'upos' and 'xpos'"),
    ],
)
def test_wrong_conllu(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_conllu(write(tmp_path / "a.conllu", text), **options)


# --- SST -------------------------------------------------------------------------------------------------------------

TREES = "(4 (2 It) (3 (2 really) (4 works)))\n(2 (2 -LRB-) (2 (2 and\\/or) (2 -RRB-)))\n(1 (2 not) (3 2\u00a01\\/2))\n"


def test_sst(tmp_path):
    path = write(tmp_path / "train.txt", TREES)
    data = read_sst(path)
    assert data.texts == [["It", "really", "works"], ["(", "and/or", ")"], ["not", "2\u00a01/2"]]
    assert data.labels == ["very positive", "neutral", "negative"]
    assert data.is_split_into_words
    assert data.second_texts is None

    binary = read_sst(path, classes="binary")
    assert list(zip(binary.texts, binary.labels, strict=True)) == [
        (["It", "really", "works"], "positive"),
        (["not", "2\u00a01/2"], "negative"),
    ]
    assert binary.describe() == "train.txt: 2 texts, 2 labels (negative 1, positive 1); 1 left out"

    phrases = read_sst(path, phrases=True)
    assert len(phrases.texts) == 5 + 5 + 3
    assert (["really", "works"], "positive") in list(zip(phrases.texts, phrases.labels, strict=True))
    assert read_sst(path, classes="binary", phrases=True).labels == ["positive"] * 4 + ["negative"]


def test_a_deep_tree(tmp_path):
    path = write(tmp_path / "deep.txt", "(2 " * 20_000 + "word" + ")" * 20_000)
    assert read_sst(path).texts == [["word"]]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("", r"a\.txt holds no tree"),
        ("(2 a)\n(3 (2 a) (2 b)", r"line 2: 1 brackets are not closed"),
        ("(2 a))", r"line 1: the tree is complete before '\)'"),
        ("(2 a) (2 b)", r"line 1: the tree is complete before '\('"),
        ("(5 a)", r"line 1: a phrase has the label '5'; the labels of SST are 0 to 4"),
        ("(a)", r"line 1: a phrase has the label 'a'"),
        ("(", r"line 1: a phrase has the label ''"),
        ("(2 )", r"line 1: a phrase has no word"),
        ("(2 (2 a) (2))", r"line 1: a phrase has no word"),
        ("2 a", r"line 1: '2' is outside of the tree"),
    ],
)
def test_wrong_trees(tmp_path, tree, message):
    with pytest.raises(ValueError, match=message):
        read_sst(write(tmp_path / "a.txt", tree))


def test_wrong_classes(tmp_path):
    with pytest.raises(ValueError, match="classes is 'three'"):
        read_sst(write(tmp_path / "a.txt", TREES), classes="three")


# --- Tables ----------------------------------------------------------------------------------------------------------


def test_table_with_names(tmp_path):
    tsv = write(tmp_path / "a.tsv", 'label\tid\ttext\nyes\t1\tHe said "hi\nno\t2\tNever, ever\n')
    data = read_table(tsv)
    assert (data.texts, data.labels, data.second_texts) == (['He said "hi', "Never, ever"], ["yes", "no"], None)
    assert not data.is_split_into_words
    csv = write(tmp_path / "a.csv", 'premise,gold,hypothesis\n"A, ""b""\nc",x,d\ne,y,f\n')
    data = read_table(csv, "premise", "gold", "hypothesis")
    assert (data.texts, data.second_texts, data.labels) == (['A, "b"\nc', "e"], ["d", "f"], ["x", "y"])
    assert data.describe() == "a.csv: 2 pairs, 2 labels (x 1, y 1)"


def test_table_without_names(tmp_path):
    path = write(tmp_path / "a.txt", "good\t1\nbad\t0\n")
    data = read_table(path, 0, 1)
    assert (data.texts, data.labels) == (["good", "bad"], ["1", "0"])


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", "", (), r"a\.tsv is empty"),
        ("a.tsv", "text\tlabel\n", (), r"holds names of columns, but no text"),
        ("a.tsv", "text\tgold\na\tb\n", (), r"has no columns 'label', but one is needed\. It has: 'text', 'gold'"),
        ("a.tsv", "text\ttext\tlabel\na\tb\tc\n", (), r"has 2 columns 'text'"),
        ("a.tsv", "text\tlabel\na\tb\nc\n", (), r"a\.tsv: line 3 has 1 columns, but the first has 2"),
        ("a.tsv", "text\tlabel\n\tb\n", (), r"line 2 has nothing in the column 'text'"),
        ("a.tsv", "text\tlabel\na\t \n", (), r"line 2 has nothing in the column 'label'"),
        ("a.tsv", "a\tb\n", (0, 2), r"has no columns 2, but one is needed\. It has: 0, 1"),
        ("a.tsv", "a\tb\n", (0, "label"), r"are names and numbers: give all by name, or all by number"),
        ("a.csv", 'text,label\n"a,b\n', (), r"a\.csv: line 2 is not CSV"),
    ],
)
def test_wrong_tables(tmp_path, name, text, columns, message):
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path / name, text), *columns)


# --- The library `datasets` ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Data sets on disk: one for tagging and one with pairs, with numbers that have names."""
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("saved")
    tags = datasets.List(datasets.ClassLabel(names=["O", "B-X", "I-X"]))
    features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "ner_tags": tags})
    rows = {"tokens": [["a", "New", "York"], ["b"]], "ner_tags": [[0, 1, 2], [1]]}
    tagging = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": tagging}).save_to_disk(folder / "tagging")

    names = datasets.ClassLabel(names=["entailment", "contradiction"])
    strings = {name: datasets.Value("string") for name in ("premise", "hypothesis", "genre")}
    rows = {"premise": list("abc"), "hypothesis": list("def"), "genre": list("ghi"), "label": [1, -1, 0]}
    pairs = datasets.Dataset.from_dict(rows, features=datasets.Features({**strings, "label": names}))
    pairs.save_to_disk(folder / "pairs")
    broken = {"tokens": [["a"], ["b", "c"]], "ner_tags": [["O"], ["O"]], "text": ["x", " "], "label": ["y", "z"]}
    datasets.Dataset.from_dict(broken).save_to_disk(folder / "broken")
    (folder / "files").mkdir()
    (folder / "files" / "train.jsonl").write_text('{"text": "x", "label": 3}\n{"text": "y", "label": 4}\n')
    return folder


def test_tagging_dataset(saved):
    data = read_tagging_dataset(saved / "tagging", scheme="BIOES")
    assert data == TaggingData("tagging (train)", [["a", "New", "York"], ["b"]], [["O", "B-X", "E-X"], ["S-X"]])


def test_classification_dataset(saved):
    data = read_classification_dataset(saved / "pairs", text_column="premise", second_text_column="hypothesis")
    assert (data.texts, data.second_texts) == (["a", "c"], ["d", "f"])
    assert data.labels == ["contradiction", "entailment"]
    assert data.left_out == 1
    assert read_classification_dataset(saved / "pairs", text_column="premise", label_column="genre").labels == [*"ghi"]


def test_dataset_from_files(saved, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    data = read_classification_dataset(saved / "files")
    assert (data.texts, data.labels) == (["x", "y"], ["3", "4"])


def test_a_dataset_whose_files_cannot_be_read(tmp_path, monkeypatch):
    """What is wrong is said, and not only that something was."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "train.jsonl").write_text('{"text": "x", "label": 3}\n{"text": ')
    with pytest.raises(ValueError, match=r"The data set .*cut cannot be read: JSON parse error: .* in row 1\. If its"):
        read_classification_dataset(tmp_path / "cut")


def test_wrong_datasets(saved):
    with pytest.raises(ValueError, match=r"pairs \(train\) has no column 'text', only 'premise', 'hypothesis'"):
        read_classification_dataset(saved / "pairs")
    with pytest.raises(ValueError, match="has no split 'dev', only 'train'"):
        read_tagging_dataset(saved / "tagging", split="dev")
    with pytest.raises(
        ValueError, match=r"broken \(train\): row 1: 'tokens' and 'ner_tags' must be lists of one length"
    ):
        read_tagging_dataset(saved / "broken")
    with pytest.raises(ValueError, match=r"broken \(train\): row 1 has the text ' '"):
        read_classification_dataset(saved / "broken")
    with pytest.raises(ValueError, match=r"row 0: 'text' and 'label' must be lists"):
        read_tagging_dataset(saved / "broken", words_column="text", labels_column="label")


# --- Labels of several files -----------------------------------------------------------------------------------------


def test_label_names():
    train = TaggingData("train", [["a", "b"]], [["B-X", "O"]])
    assert label_names(train, train) == ["O", "B-X"]
    other = TaggingData("dev", [["a"]], [["A"]])
    with pytest.warns(UserWarning, match="dev has labels that train does not have.* 'A'"):
        assert label_names(train, other) == ["O", "A", "B-X"]
    assert label_names(ClassificationData("t", ["x", "y"], ["b", "a"])) == ["a", "b"]
