"""The batches of pretraining, against a plain packer: for any processes and workers, and from any position."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from itertools import chain, islice

import pytest
import torch

from hf_elmo import ElmoTokenizer, batch_to_ids, pretraining_data
from hf_elmo.corpus import CorpusReader
from hf_elmo.pretraining_data import PretrainingBatch, PretrainingData

SMALL = {"seed": 5, "buffer_bytes": 300}
LONG_WORD = "pneumonoultramicroscopicsilicovolcanoconiosis-and-more"
KNOWN = ["a", "word", "of", "it", "Ça", *(f"known{number}" for number in range(0, 40, 2))]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *KNOWN]), encoding="utf-8")
    return ElmoTokenizer(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Documents of sentences of 1 to 24 words, known and unknown, some longer than several windows."""
    folder = tmp_path_factory.mktemp("text")
    for file in range(2):
        lines = []
        for line in range(30):
            lines.append(" ".join([f"known{line}", *["word of it Ça".split()[k % 4] for k in range(line * 7 % 24)]]))
            if line % 4 == file:
                lines.append("")
        (folder / f"{file}.txt").write_text("\n".join([*lines, LONG_WORD, "한국어 Ça", ""]), encoding="utf-8")
    return folder


# --- The plain packer ------------------------------------------------------------------------------------------------


def label_of(tokenizer, word: str) -> int:
    return tokenizer.get_vocab().get(word, tokenizer.unk_token_id)


def predictions_of(words: list[str]) -> list[tuple[str, str, str, str]]:
    """Of a sentence: what the forward direction reads and predicts, and what the backward direction does."""
    forward, backward = ["<S>", *words, "</S>"], ["</S>", *words[::-1], "<S>"]
    return list(zip(forward[:-1], forward[1:], backward[:-1], backward[1:], strict=True))


def plain_windows(items: list[list[list[str]]], rows: int, steps: int):
    """Batches of rows of predictions; an item is what a row takes at once: a sentence, or the ones of a document."""
    todo = iter(items)
    left = [[] for _ in range(rows)]
    while True:
        for row in left:
            while len(row) < steps:
                item = next(todo, None)
                if item is None:
                    break
                for words in item:
                    row += predictions_of(words)
        yield [row[:steps] for row in left]
        left = [row[steps:] for row in left]


def tensors_of(tokenizer, batch: list[list[tuple]]) -> dict[str, torch.Tensor]:
    """What the batch must hold, for full rows."""
    columns = [[[prediction[k] for prediction in row] for row in batch] for k in range(4)]
    labels = [torch.tensor([[label_of(tokenizer, word) for word in row] for row in columns[k]]) for k in (1, 3)]
    characters = [batch_to_ids(columns[k]) for k in (0, 2)]
    return dict(zip(KEYS, (characters[0], labels[0], characters[1], labels[1]), strict=True))


KEYS = ("forward_ids", "forward_labels", "backward_ids", "backward_labels")


def assert_same(batch: PretrainingBatch, expected: PretrainingBatch) -> None:
    assert batch.inputs.keys() == expected.inputs.keys()
    for name, value in expected.inputs.items():
        assert torch.equal(batch.inputs[name], value), name
    assert batch.num_predictions == expected.num_predictions
    assert batch.epoch == expected.epoch
    assert batch.state == expected.state


def assert_same_batches(batches, expected) -> None:
    for batch, other in zip(batches, expected, strict=True):
        assert_same(batch, other)


# --- Streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "steps"), [(1, 20), (3, 4), (2, 1), (5, 50)])
def test_windows_are_those_of_the_plain_packer(tokenizer, folder, rows, steps):
    sentences = list(CorpusReader(folder, epochs=3, **SMALL))
    batches = list(PretrainingData(folder, tokenizer, rows=rows, steps=steps, epochs=3, **SMALL))
    full = [
        batch
        for batch in islice(plain_windows([[words] for words in sentences], rows, steps), len(batches) + 1)
        if all(len(row) == steps for row in batch)
    ]
    assert len(full) == len(batches) > 3
    for batch, expected in zip(batches, full, strict=True):
        assert batch.num_predictions == rows * steps
        assert tuple(batch.inputs) == KEYS
        for name, value in tensors_of(tokenizer, expected).items():
            assert batch.inputs[name].dtype == torch.int64
            assert torch.equal(batch.inputs[name], value), name
    epochs = [batch.epoch for batch in batches]
    assert epochs == sorted(epochs)
    assert set(epochs[:-1]) >= {0, 1, 2}


def test_the_first_window_word_by_word(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("it of nothing\nword\na\n")
    (batch,) = PretrainingData(tmp_path / "a.txt", tokenizer, rows=1, steps=7, shuffle=False, epochs=1)
    read = tokenizer.decode_characters
    assert read(batch.inputs["forward_ids"][0]) == "<S> it of nothing <S> word <S>".split()
    assert read(batch.inputs["backward_ids"][0]) == "</S> nothing of it </S> word </S>".split()
    labels = {key: tokenizer.convert_ids_to_tokens(batch.inputs[key][0]) for key in KEYS[1::2]}
    assert labels["forward_labels"] == "it of <UNK> </S> word </S> a".split()
    assert labels["backward_labels"] == "<UNK> of it <S> word <S> a".split()


def documents_of(folder, **options) -> list[list[list[str]]]:
    reader = CorpusReader(folder, keep_documents=True, **options)
    documents = []
    for words in reader:
        if reader.starts_document:
            documents.append([])
        documents[-1].append(words)
    return documents


@pytest.mark.parametrize("shuffle", [True, False])
def test_rows_take_whole_documents(tokenizer, folder, shuffle):
    options = {**SMALL, "shuffle": shuffle, "epochs": 2}
    documents = documents_of(folder, **options)
    assert max(map(len, documents)) > 2
    batches = list(PretrainingData(folder, tokenizer, rows=3, steps=6, keep_documents=True, **options))
    assert len(batches) > 20
    for batch, expected in zip(batches, plain_windows(documents, 3, 6), strict=False):
        for name, value in tensors_of(tokenizer, expected).items():
            assert torch.equal(batch.inputs[name], value), name


@pytest.mark.parametrize("keep_documents", [False, True])
@pytest.mark.parametrize(("rows", "steps"), [(3, 4), (40, 7), (200, 3)])
def test_a_complete_stream_counts_every_word_once(tokenizer, folder, rows, steps, keep_documents):
    settings = {"epochs": 1, "keep_documents": keep_documents, **SMALL}
    items = documents_of(folder, epochs=1, **SMALL) if keep_documents else None
    items = items or [[words] for words in CorpusReader(folder, epochs=1, **SMALL)]
    expected = list(chain.from_iterable(predictions_of(words) for item in items for words in item))
    batches = list(PretrainingData(folder, tokenizer, rows=rows, steps=steps, complete=True, **settings))
    assert sum(batch.num_predictions for batch in batches) == len(expected)
    for labels, column in (("forward_labels", 1), ("backward_labels", 3)):
        given = torch.cat([batch.inputs[labels].flatten() for batch in batches])
        ids = sorted(label_of(tokenizer, prediction[column]) for prediction in expected)
        assert sorted(given[given != -100].tolist()) == ids
    last = batches[-1].inputs
    missing = last["forward_labels"] == -100
    assert torch.equal(missing, last["backward_labels"] == -100)
    assert missing.any()
    assert (last["forward_ids"][missing] > 0).all()
    dropped = list(PretrainingData(folder, tokenizer, rows=rows, steps=steps, **settings))
    assert len(dropped) < len(batches)
    assert_same_batches(dropped, batches[: len(dropped)])


def test_text_cannot_make_boundaries(tokenizer, tmp_path):
    words = "a <S> </S> <UNK> <PAD> word".split()
    (tmp_path / "a.txt").write_text(" ".join(words))
    for mode, ids, labels in (("stream", "forward_ids", "forward_labels"), ("sentences", "character_ids", "labels")):
        (batch,) = PretrainingData(tmp_path / "a.txt", tokenizer, mode=mode, rows=1, steps=7, epochs=1)
        characters = batch.inputs[ids][0, 1 : len(words) + 1]
        # A boundary is no byte, so this fails for one.
        spelled = [bytes(value - 1 for value in row[1 : row.index(260)]) for row in characters.tolist()]
        assert [text.decode() for text in spelled] == words
        start = 0 if mode == "stream" else 1
        expected = [label_of(tokenizer, word) if word in KNOWN else tokenizer.unk_token_id for word in words]
        assert batch.inputs[labels][0, start : start + len(words)].tolist() == expected


# --- Sentences -------------------------------------------------------------------------------------------------------


def pieces_of(sentences, limit):
    return [words[start : start + limit] for words in sentences for start in range(0, len(words), limit)]


@pytest.mark.parametrize("limit", [None, 5])
def test_sentences_are_what_the_tokenizer_makes_of_them(tokenizer, folder, limit):
    sentences = pieces_of(CorpusReader(folder, epochs=2, **SMALL), limit or 1000)
    batches = list(
        PretrainingData(folder, tokenizer, mode="sentences", rows=7, epochs=2, max_sentence_words=limit, **SMALL)
    )
    assert len(batches) == -(-len(sentences) // 7)
    assert len(sentences) % 7
    for number, batch in enumerate(batches):
        expected = tokenizer(
            sentences[number * 7 : number * 7 + 7], is_split_into_words=True, padding=True, return_tensors="pt"
        )
        assert all(torch.equal(batch.inputs[name], expected[name]) for name in expected)
        assert all(value.dtype == torch.int64 for value in batch.inputs.values())
        masked = expected["input_ids"].masked_fill(expected["attention_mask"] == 0, -100)
        assert torch.equal(batch.inputs["labels"], masked)
        assert (
            batch.num_predictions
            == (masked[:, 1:] != -100).sum()
            == (batch.inputs["labels"] != -100).sum() - len(masked)
        )


# --- Processes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("complete", [False, True])
def test_processes_share_the_rows_of_one(tokenizer, folder, world_size, complete):
    settings = {"steps": 5, "epochs": 2, "complete": complete, **SMALL}
    single = list(PretrainingData(folder, tokenizer, rows=6, **settings))
    shares = [
        list(PretrainingData(folder, tokenizer, rows=6 // world_size, rank=rank, world_size=world_size, **settings))
        for rank in range(world_size)
    ]
    for expected, *batches in zip(single, *shares, strict=True):
        for name in KEYS:
            assert torch.equal(torch.cat([batch.inputs[name] for batch in batches]), expected.inputs[name])
        for batch in batches:
            assert (batch.num_predictions, batch.epoch, batch.state) == (
                expected.num_predictions,
                expected.epoch,
                expected.state,
            )


def test_every_process_gets_a_last_batch_of_sentences(tokenizer, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"a {'word ' * line}\n" for line in range(9)))
    settings = {"mode": "sentences", "epochs": 1, "shuffle": False}
    single = list(PretrainingData(path, tokenizer, rows=6, **settings))
    shares = [list(PretrainingData(path, tokenizer, rows=2, rank=rank, world_size=3, **settings)) for rank in range(3)]
    assert [len(single), *map(len, shares)] == [2, 2, 2, 2]
    assert [batch.num_predictions for batch in single] == [sum(range(2, 8)), 8 + 9 + 10]
    assert [[len(share[1].inputs["labels"]) for share in shares], len(single[1].inputs["labels"])] == [[2, 1, 1], 3]
    for share in shares:
        assert [batch.num_predictions for batch in share] == [batch.num_predictions for batch in single]
        assert [batch.state for batch in share] == [batch.state for batch in single]
    for number, rows in ((0, [2, 2, 2]), (1, [2, 1, 0])):
        begin = 0
        for share, count in zip(shares, rows, strict=True):
            labels = share[number].inputs["labels"][:count]
            expected = single[number].inputs["labels"][begin : begin + count]
            assert torch.equal(labels, expected[:, : labels.shape[1]])
            assert (expected[:, labels.shape[1] :] == -100).all()
            begin += count
    nothing = shares[2][1].inputs
    assert tokenizer.decode_characters(nothing["character_ids"][0]) == ["<S>", "</S>"]
    assert (nothing["labels"] == -100).all()
    assert nothing["attention_mask"].tolist() == [[1, 1]]


# --- Positions and workers -------------------------------------------------------------------------------------------

KINDS = {
    "stream": {"rows": 3, "steps": 7},
    "documents": {"rows": 3, "steps": 7, "keep_documents": True},
    "complete": {"rows": 20, "steps": 7, "complete": True},
    "sentences": {"mode": "sentences", "rows": 5, "max_sentence_words": 6},
}


@pytest.mark.parametrize("kind", KINDS)
def test_continuing_after_any_batch(tokenizer, folder, kind):
    settings = {**KINDS[kind], "epochs": 2, **SMALL}
    whole = list(PretrainingData(folder, tokenizer, **settings))
    assert len(whole) > 9
    for number, batch in enumerate(whole, start=1):
        data = PretrainingData(folder, tokenizer, **settings)
        data.load_state_dict(json.loads(json.dumps(batch.state)))
        assert_same_batches(data, whole[number:])


def test_iterating_again_continues(tokenizer, folder):
    settings = {**KINDS["stream"], "epochs": 2, **SMALL}
    whole = list(PretrainingData(folder, tokenizer, **settings))
    data = PretrainingData(folder, tokenizer, **settings)
    assert_same_batches(islice(data, 4), whole[:4])
    assert_same_batches(islice(data, 3), whole[4:7])
    assert_same_batches(data, whole[7:])
    assert list(data) == []


def test_another_number_of_processes_continues(tokenizer, folder):
    settings = {"steps": 7, **SMALL}
    before = next(iter(PretrainingData(folder, tokenizer, rows=4, rank=1, world_size=2, **settings)))
    after = PretrainingData(folder, tokenizer, rows=8, **settings)
    whole = list(islice(PretrainingData(folder, tokenizer, rows=8, **settings), 6))
    after.load_state_dict(before.state)
    assert_same_batches(islice(after, 5), whole[1:])


@pytest.mark.slow  # if other tests have left threads, workers take seconds to start
def test_workers_change_nothing(tokenizer, folder):
    settings = {**KINDS["documents"], "epochs": 2, **SMALL}
    whole = list(PretrainingData(folder, tokenizer, **settings))
    before = torch.get_rng_state()
    data = PretrainingData(folder, tokenizer, num_workers=2, **settings)
    assert_same_batches(islice(data, 5), whole[:5])
    assert multiprocessing.active_children() == []
    assert_same_batches(data, whole[5:])
    assert multiprocessing.active_children() == []
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_workers_beside_threads_survive_the_signals_that_end_training(tokenizer, folder):
    """With threads, workers are not forked. A signal to all processes must not take the data from the last step."""
    settings = {**KINDS["stream"], **SMALL}
    whole = list(islice(PretrainingData(folder, tokenizer, **settings), 12))
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        batches = iter(PretrainingData(folder, tokenizer, num_workers=1, **settings))
        assert_same(next(batches), whole[0])
        (worker,) = multiprocessing.active_children()
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(worker.pid, number)
        assert_same_batches(islice(batches, 11), whole[1:])
        del batches
        assert multiprocessing.active_children() == []  # they end when nobody needs them
    finally:
        stop.set()
        thread.join()


PROGRAM_THAT_FAILS = """
import sys
from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining_data import PretrainingData

if __name__ == "__main__":
    batches = iter(PretrainingData(sys.argv[1], ElmoTokenizer(sys.argv[2]), rows=2, num_workers=1))
    next(batches)
    raise SystemExit("the program is over")
"""


@pytest.mark.slow
def test_workers_end_with_the_program(folder, tmp_path):
    """They ignore the signal with which Python ends its children, and it waits for these."""
    (tmp_path / "program.py").write_text(PROGRAM_THAT_FAILS)
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nword\n")
    command = [sys.executable, tmp_path / "program.py", folder, tmp_path / "vocab.txt"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (1, "the program is over\n")


# --- Mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_text_that_is_not_utf8(tokenizer, folder, tmp_path, num_workers):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"a word\n" * 100 + b"b\xe4d\n")
    options = {"rows": 2, "steps": 5, "epochs": 1, "shuffle": False, "buffer_bytes": 100, "num_workers": num_workers}
    data = PretrainingData(path, tokenizer, errors="stop", **options)
    given = []
    with pytest.raises(ValueError, match=r"^[^\n]*bad\.txt, line 101: this is not UTF-8[^\n]*errors='skip'\.$"):
        given.extend(data)
    assert multiprocessing.active_children() == []
    lenient = PretrainingData(path, tokenizer, errors="skip", **{**options, "num_workers": 0})
    for batch, expected in zip(given, lenient, strict=False):
        assert torch.equal(batch.inputs["forward_ids"], expected.inputs["forward_ids"])
    assert len(given) > 20


def test_states_of_other_data_are_refused(tokenizer, folder):
    settings = {"rows": 3, "steps": 7, **SMALL}
    state = next(iter(PretrainingData(folder, tokenizer, **settings))).state
    for change, message in (
        ({"rows": 4}, r"rows \* world_size=3, but now it is 4"),
        ({"world_size": 2}, r"rows \* world_size=3, but now it is 6"),
        ({"steps": 8}, "steps=7, but now it is 8"),
        ({"mode": "sentences"}, "mode='stream', but now it is 'sentences'"),
        ({"seed": 6}, "seed=5, but the reader has seed=6"),
        ({"keep_documents": True}, "keep_documents=False, but the reader has keep_documents=True"),
    ):
        with pytest.raises(ValueError, match=message):
            PretrainingData(folder, tokenizer, **{**settings, **change}).load_state_dict(state)
    data = PretrainingData(folder, tokenizer, **settings)
    with pytest.raises(ValueError, match="has version 0; this program reads version 1"):
        data.load_state_dict({**state, "version": 0})
    assert next(iter(data)).state == state  # it is where it was
    sentences = PretrainingData(folder, tokenizer, mode="sentences", max_sentence_words=4, rows=3, **SMALL)
    with pytest.raises(ValueError, match="max_sentence_words=4, but now it is None"):
        PretrainingData(folder, tokenizer, mode="sentences", rows=3, **SMALL).load_state_dict(
            next(iter(sentences)).state
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "words"}, "mode is 'words'; choose one of 'stream', 'sentences'"),
        ({"rows": 0}, "rows is 0; it must be 1 or more"),
        ({"steps": 0}, "steps is 0; it must be 1 or more"),
        ({"epochs": 0}, "epochs is 0; it must be 1 or more"),
        ({"mode": "sentences", "max_sentence_words": 0}, "max_sentence_words is 0; it must be 1 or more"),
        ({"max_sentence_words": 5}, "max_sentence_words=5 is for mode='sentences'"),
        ({"rank": 2, "world_size": 2}, "rank is 2, but it must be from 0 to 1"),
        ({"num_workers": -1}, "num_workers is -1; it must not be negative"),
        ({"errors": "ignore"}, "errors is 'ignore'; choose one of"),
    ],
)
def test_settings_that_are_not_possible(tokenizer, folder, options, message):
    with pytest.raises(ValueError, match=message):
        PretrainingData(folder, tokenizer, **{"rows": 2, **options})


def test_without_text_or_vocabulary(tokenizer, folder, tmp_path):
    with pytest.raises(ValueError, match=r"The tokenizer has no vocabulary.*`hf-elmo vocab`"):
        PretrainingData(folder, ElmoTokenizer(), rows=2)
    with pytest.raises(FileNotFoundError, match=r"missing\.txt does not exist"):
        PretrainingData(tmp_path / "missing.txt", tokenizer, rows=2)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match="There is no sentence in the corpus"):
        next(iter(PretrainingData(tmp_path / "empty.txt", tokenizer, rows=2)))


def test_data_sets(tokenizer, folder):
    datasets = pytest.importorskip("datasets")
    rows = [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())]
    data_set = datasets.Dataset.from_dict({"content": rows})
    options = {"rows": 2, "steps": 5, "shuffle": False, "epochs": 1}
    expected = list(PretrainingData(folder, tokenizer, **options))
    for source in (data_set, data_set.to_iterable_dataset()):
        batches = list(PretrainingData(source, tokenizer, column="content", **options))
        assert len(batches) == len(expected)
        for batch, other in zip(batches, expected, strict=True):
            assert all(torch.equal(batch.inputs[name], other.inputs[name]) for name in KEYS)
    with pytest.raises(ValueError, match="num_workers is 2, but a streamed data set would be split"):
        PretrainingData(source, tokenizer, column="content", num_workers=2, **options)
    with pytest.raises(ValueError, match="no column 'text'"):
        PretrainingData(data_set, tokenizer, **options)


def test_few_spellings_are_remembered(tokenizer, folder, monkeypatch):
    settings = {"rows": 3, "steps": 7, "epochs": 1, **SMALL}
    expected = list(PretrainingData(folder, tokenizer, **settings))
    monkeypatch.setattr(pretraining_data, "REMEMBERED_WORDS", 6)
    data = PretrainingData(folder, tokenizer, **settings)
    assert_same_batches(data, expected)
    assert len(data._batches.speller._rows) <= 6
