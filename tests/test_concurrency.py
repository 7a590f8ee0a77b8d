"""One model, one tokenizer and one embedder in many threads and processes: the answers are those of one thread."""

import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import SENTENCES, random_model, tiny_config

from hf_elmo import ElmoEmbedder, ElmoForTokenClassification, ElmoModel, ElmoTokenizer, FeatureCache, quantize
from hf_elmo.fast_paths import WordCache, shared_word_cache, with_word_cache
from hf_elmo.hub import save_hub_folder
from hf_elmo.packing import sentence_by_sentence
from hf_elmo.threads import lock_of

THREADS = 8
PATIENCE = 120  # seconds that a child may take; one that waits for a lock that nobody holds never ends

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
TEXTS = [
    *SENTENCES,
    *(" ".join(random.Random(number).choices(WORDS, k=1 + number % 9)) for number in range(15)),
]


@pytest.fixture(scope="module")
def tokenizer():
    return ElmoTokenizer()


@pytest.fixture
def model():
    return random_model()


@torch.no_grad()
def read(model, tokenizer, text):
    return model(**tokenizer(text, return_tensors="pt"))[0]


def in_threads(work):
    """What `work(number)` gives in each of the threads, which begin together."""
    together = threading.Barrier(THREADS)

    def begin(number):
        together.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def shuffled(number):
    order = list(range(len(TEXTS)))
    random.Random(number).shuffle(order)
    return order


# --- Threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["encoder", "tagger", "int8"])
def test_model_and_tokenizer_give_the_same_bits_in_every_thread(tokenizer, kind):
    if kind == "tagger":
        model = random_model(tiny_config(num_labels=3, use_crf=True), model_class=ElmoForTokenClassification)
    else:
        model = random_model()
    if kind == "int8":
        quantize(model)
    alone = [read(model, tokenizer, text) for text in TEXTS]
    wrong = in_threads(
        lambda thread: [
            number
            for number in shuffled(thread)
            if not torch.equal(read(model, tokenizer, TEXTS[number]), alone[number])
        ]
    )
    assert wrong == [[]] * THREADS


def test_a_cache_that_threads_share_is_right_and_bounded(model, tokenizer):
    alone = [read(model, tokenizer, text) for text in TEXTS]
    model.cache_words(10)
    cache = model.character_encoder.cache

    def work(thread):
        differences, sizes = [], []
        for number in shuffled(thread):
            differences.append(float((read(model, tokenizer, TEXTS[number]) - alone[number]).abs().max()))
            with cache._lock:
                sizes.append(len(cache))
        return max(differences), max(sizes)

    results = in_threads(work)
    assert max(difference for difference, _ in results) <= 1e-6
    assert max(size for _, size in results) <= 10
    assert len(cache) == 10


@pytest.mark.parametrize("options", [{}, {"batch_invariant": True}, {"state": "carry"}], ids=str)
def test_an_embedder_gives_the_same_bits_in_every_thread_and_leaves_no_trace(model, tokenizer, options):
    embedder = ElmoEmbedder(model, tokenizer, **options)
    alone = embedder.encode(TEXTS, layers="all", batch_tokens=40)

    def work(thread):
        found = [vectors for _ in range(2) for vectors in [embedder.encode(TEXTS, layers="all", batch_tokens=40)]]
        return all(np.array_equal(one, other) for vectors in found for one, other in zip(vectors, alone, strict=True))

    assert in_threads(work) == [True] * THREADS
    assert model.character_encoder.cache is None
    assert shared_word_cache() is None


def test_a_model_in_training_mode_is_read_without_dropout_until_the_last_thread_has_read(tokenizer):
    model = random_model(tiny_config(dropout=0.5))
    embedder = ElmoEmbedder(model, tokenizer)
    alone = embedder.encode(TEXTS, batch_tokens=40)
    model.train()

    def work(thread):
        results = [embedder.encode(TEXTS, batch_tokens=40) for _ in range(1 + thread % 3)]
        return all(np.array_equal(one, other) for found in results for one, other in zip(found, alone, strict=True))

    assert in_threads(work) == [True] * THREADS
    assert all(module.training for module in model.modules())


def test_the_first_to_leave_does_not_switch_dropout_on(tokenizer):
    """The same as above, step by step: a second stream begins within the first, which then ends."""
    model = random_model(tiny_config(dropout=0.5)).train()
    embedder = ElmoEmbedder(model, tokenizer)
    first, second = embedder._reading(WordCache(5)), embedder._reading(WordCache(5))
    first.__enter__()
    in_another = ThreadPoolExecutor(1)
    in_another.submit(second.__enter__).result()
    first.__exit__(None, None, None)
    assert not any(module.training for module in model.modules())
    in_another.submit(second.__exit__, None, None, None).result()
    assert all(module.training for module in model.modules())


def test_streams_that_take_turns_do_not_disturb_each_other(model, tokenizer):
    embedder = ElmoEmbedder(model, tokenizer)
    alone = embedder.encode(TEXTS, batch_tokens=20)
    streams = [embedder.encode_stream(TEXTS, batch_tokens=20) for _ in range(3)]
    for expected, *found in zip(alone, *streams, strict=True):
        assert all(np.array_equal(expected, vectors) for vectors in found)


def test_reading_one_by_one_in_some_threads_does_not_change_the_others(model, tokenizer):
    """Half of the threads ask for the same bits in any company, the others use a cache that all of them see."""
    model.cache_words(5)
    invariant, plain = (ElmoEmbedder(model, tokenizer, batch_invariant=wanted) for wanted in (True, False))
    alone = {thread: (invariant if thread % 2 else plain).encode(TEXTS, batch_tokens=40) for thread in range(2)}

    def work(thread):
        embedder = invariant if thread % 2 else plain
        differences = []
        for _ in range(3):
            found = embedder.encode(TEXTS, batch_tokens=40)
            differences += [np.abs(a - b).max() for a, b in zip(found, alone[thread % 2], strict=True) if a.size]
        return max(differences)

    differences = in_threads(work)
    assert max(differences[1::2]) == 0
    assert max(differences) <= 1e-6


def threads_here_and_in_new_ones():
    with ThreadPoolExecutor(1) as new:
        return torch.get_num_threads(), new.submit(torch.get_num_threads).result()


@pytest.fixture
def two_processors():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_processors")
def test_reading_one_by_one_leaves_other_threads_the_processors_that_they_have():
    with sentence_by_sentence(), sentence_by_sentence():
        assert threads_here_and_in_new_ones() == (1, 2)
    assert threads_here_and_in_new_ones() == (2, 2)


@pytest.mark.usefixtures("two_processors")
def test_reading_one_by_one_in_a_thread_that_has_fewer_processors():
    with ThreadPoolExecutor(1) as other:
        other.submit(torch.set_num_threads, 3).result()
        with sentence_by_sentence():
            assert threads_here_and_in_new_ones() == (1, 3)
        assert threads_here_and_in_new_ones() == (2, 3)


@pytest.mark.usefixtures("two_processors")
def test_reading_one_by_one_in_many_threads_leaves_all_of_them_their_processors(model, tokenizer):
    """Once, threads that began while others were reading had one processor, and left it to all that came later."""
    embedder = ElmoEmbedder(model, tokenizer, batch_invariant=True)

    def work(thread):
        embedder.encode(TEXTS, batch_tokens=40)
        return torch.get_num_threads()

    for _ in range(3):
        assert in_threads(work)  # a thread that begins while another one sets its number may have that one
        assert threads_here_and_in_new_ones() == (2, 2)


LEAKS = """
import threading
import torch

def test_that_leaves_threads_alone():
    pass

def test_that_changes_its_own():
    torch.set_num_threads(2)

def test_that_changes_those_of_others():
    thread = threading.Thread(target=torch.set_num_threads, args=(2,))
    thread.start()
    thread.join()

def test_that_comes_after_them():
    assert torch.get_num_threads() == 1
"""


def test_a_test_that_leaves_other_threads_behind_fails(tmp_path):
    """What this file tests depends on it: once, it failed behind a test that had left torch with two threads."""
    tests = Path(__file__).parent
    shutil.copy(tests / "conftest.py", tmp_path)
    (tmp_path / "test_leaks.py").write_text(LEAKS)
    environment = {**os.environ, "PYTHONPATH": str(tests), "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rE", "test_leaks.py"]
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "4 passed, 2 errors" in finished.stdout, finished.stdout
    for test, here in (("test_that_changes_its_own", 2), ("test_that_changes_those_of_others", 1)):
        assert f"ERROR test_leaks.py::{test} - AssertionError: left" in finished.stdout
        assert f"AssertionError: left torch with {here} threads here and 2 in new threads" in finished.stdout


def test_a_cache_of_one_thread_is_not_seen_by_another(model, tokenizer):
    cache = WordCache(100)
    with with_word_cache(cache):
        assert ThreadPoolExecutor(1).submit(shared_word_cache).result() is None
        read(model, tokenizer, TEXTS[0])
    assert len(cache) > 0
    assert shared_word_cache() is None


def test_a_feature_cache_in_many_threads(tokenizer, tmp_path):
    model = random_model(tiny_config(num_labels=3), model_class=ElmoForTokenClassification)
    alone = [read(model, tokenizer, text) for text in TEXTS]
    with FeatureCache(tmp_path / "features") as cache:
        model.feature_cache = cache

        def work(thread):
            return max(
                float((read(model, tokenizer, TEXTS[number]) - alone[number]).abs().max())
                for number in shuffled(thread)
            )

        assert max(in_threads(work)) <= 1e-6
        assert cache.statistics.rows <= len(TEXTS)


def test_models_are_quantised_in_many_threads(tokenizer):
    engine = torch.backends.quantized.engine
    expected = read(quantize(random_model()), tokenizer, TEXTS[2])

    def work(thread):
        return torch.equal(read(quantize(random_model()), tokenizer, TEXTS[2]), expected)

    assert in_threads(work) == [True] * THREADS
    assert torch.backends.quantized.engine == engine


# --- Processes -------------------------------------------------------------------------------------------------------

in_worker: dict = {}  # what a worker process works with


def load_in_worker(folder):
    torch.set_num_threads(1)
    in_worker["model"] = ElmoModel.from_pretrained(folder).eval()
    in_worker["tokenizer"] = ElmoTokenizer.from_pretrained(folder)


def encode_in_worker(numbers):
    """Vectors of texts, by the model itself and by an embedder in two threads."""
    model, tokenizer = in_worker["model"], in_worker["tokenizer"]
    plain = [read(model, tokenizer, TEXTS[number]).numpy() for number in numbers]
    embedder = ElmoEmbedder(model, tokenizer)
    texts = [TEXTS[number] for number in numbers]
    with ThreadPoolExecutor(2) as pool:
        streams = list(pool.map(lambda _: embedder.encode(texts, batch_tokens=40), range(2)))
    return plain, streams


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_give_the_same_bits(method, model, tokenizer, tmp_path):
    folder = save_hub_folder(model, tokenizer, tmp_path / "elmo", card="")
    in_worker.update(model=model, tokenizer=tokenizer)
    model.cache_words(10)
    numbers = list(range(len(TEXTS)))
    read(model, tokenizer, TEXTS[0])  # so that the parent's cache is not empty
    options = {} if method == "fork" else {"initializer": load_in_worker, "initargs": (folder,)}
    with multiprocessing.get_context(method).Pool(2, **options) as pool:
        results = pool.map_async(encode_in_worker, [numbers, numbers[::-1]]).get(PATIENCE)
    model.cache_words(None)
    for order, (plain, streams) in zip((numbers, numbers[::-1]), results, strict=True):
        for number, found in zip(order, plain, strict=True):
            np.testing.assert_allclose(found, read(model, tokenizer, TEXTS[number]).numpy(), rtol=0, atol=1e-6)
        expected = ElmoEmbedder(model, tokenizer).encode([TEXTS[number] for number in order], batch_tokens=40)
        for stream in streams:
            for one, other in zip(stream, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    if method == "spawn":  # which have no cache of the parent
        assert all(
            np.array_equal(found, read(model, tokenizer, TEXTS[number]).numpy())
            for order, (plain, _) in zip((numbers, numbers[::-1]), results, strict=True)
            for number, found in zip(order, plain, strict=True)
        )


def finishes(work):
    """Whether `work` ends well in a forked process."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(PATIENCE if child.exitcode is None else 0)
    if child.is_alive():
        child.kill()
        child.join()
    return child.exitcode == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle_of_something_does_not_wait_forever(model, tokenizer, monkeypatch):
    """Whoever holds a lock when the process forks does not exist in the child."""
    monkeypatch.setattr("test_concurrency.PATIENCE", 30)
    model.cache_words(10)
    read(model, tokenizer, TEXTS[0])
    held = model.character_encoder.cache._lock
    with held:
        assert finishes(lambda: read(model, tokenizer, TEXTS[0]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.usefixtures("two_processors")
def test_a_fork_of_a_process_that_computes_with_two_processors(model, tokenizer, monkeypatch):
    """torch would wait there for a thread that only the parent has."""
    monkeypatch.setattr("test_concurrency.PATIENCE", 30)
    much = torch.ones(1_000_000)
    expected = read(model, tokenizer, TEXTS[2]), much.tanh()

    def check():
        assert torch.get_num_threads() == 1
        for one, other in zip((read(model, tokenizer, TEXTS[2]), much.tanh()), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)

    assert finishes(check)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_while_threads_read(model, tokenizer):
    model.cache_words(5)
    embedder = ElmoEmbedder(model, tokenizer)
    expected = embedder.encode(TEXTS[:4])
    ended = threading.Event()

    def keep_reading():
        while not ended.is_set():
            embedder.encode(TEXTS)

    def check():
        for one, other in zip(embedder.encode(TEXTS[:4]), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)

    threads = [threading.Thread(target=keep_reading) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert all(finishes(check) for _ in range(5))
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_locks_do_not_keep_their_owners_alive():
    class Owner:
        pass

    owner = Owner()
    owner._lock = lock_of(owner)
    gone = threading.Event()
    __import__("weakref").finalize(owner, gone.set)
    del owner
    assert gone.is_set()
