# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Two halves of the work at once."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext
from contextvars import ContextVar

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hf_elmo import ElmoConfig, ElmoModel, batch_to_ids, quantize
from hf_elmo.fast_paths import plain_path
from hf_elmo.threads import CALLS_ASIDE, _Threads, aside, is_worth_two, one_thread, side_by_side, threads_to_share

WORDS = "the quick brown fox jumps over a lazy dog while somebody incomprehensibly reads newspapers aloud".split()
SENTENCES = [[*WORDS, f"word{number}"][number % 5 :] for number in range(150)]  # more than 128 different words


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def calls(monkeypatch, two_threads):
    """Small models share their work out, too; the list has the calls of `side_by_side`."""
    made = []

    def counted(first, second):
        made.append(1)
        return side_by_side(first, second)

    monkeypatch.setattr("hf_elmo.modeling_elmo.FEWEST_FOR_TWO_DIRECTIONS", 1)
    for module in ("modeling_elmo", "modeling_elmo_words"):
        monkeypatch.setattr(f"hf_elmo.{module}.side_by_side", counted)
    return made


def make_model(**overrides) -> ElmoModel:
    torch.manual_seed(0)
    sizes = {"projection_size": 8, "cell_size": 16, "char_cnn_filters": [[1, 8], [3, 8]], "num_highway_layers": 1}
    model = ElmoModel(ElmoConfig(**{**sizes, **overrides})).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, nullcontext])
def test_the_same_vectors_as_one_after_the_other(mode, calls):
    model = make_model().requires_grad_(False)
    characters = batch_to_ids(SENTENCES)
    with mode():
        at_once = model(characters, output_hidden_states=True, output_state=True)
        assert len(calls) == 2  # words, directions
        with plain_path():
            plain = model(characters, output_hidden_states=True, output_state=True)
        assert len(calls) == 2
    for ours, expected in zip(at_once.hidden_states, plain.hidden_states, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    for ours, expected in zip(at_once.state, plain.state, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    assert not at_once.last_hidden_state.requires_grad
    assert at_once.last_hidden_state.is_inference() == (mode is torch.inference_mode)


def test_one_sentence_by_two_threads(two_threads):
    """Its steps have one row, which is multiplied in halves."""
    model, characters = make_model(), batch_to_ids([WORDS])
    with torch.no_grad():
        found = model(characters, output_hidden_states=True).hidden_states
        with plain_path():
            expected = model(characters, output_hidden_states=True).hidden_states
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)


def test_the_same_bits_each_time(calls):
    model, characters = make_model(), batch_to_ids(SENTENCES)
    with torch.no_grad():
        first = model(characters).last_hidden_state
        for _ in range(20):
            assert torch.equal(model(characters).last_hidden_state, first)
    assert len(calls) == 42


def test_a_gradient_is_computed_in_the_threads_of_the_caller(calls):
    model = make_model()
    model(batch_to_ids(SENTENCES)).last_hidden_state.sum().backward()
    assert not calls
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_dropout_draws_its_numbers_in_order(calls):
    model = make_model(dropout=0.5).train()
    with torch.no_grad():
        model(batch_to_ids(SENTENCES[:4]))
    assert not calls


@pytest.mark.skipif(torch.backends.quantized.engine == "none", reason="no quantised products on this processor")
def test_a_quantised_model_reads_both_directions_at_once(calls):
    model = make_model(projection_size=16)
    characters = batch_to_ids(SENTENCES[:10])
    with torch.no_grad():
        quantize(model)
        with one_thread():
            expected = model(characters).last_hidden_state
        assert not calls
        found = model(characters).last_hidden_state
    assert calls
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_a_small_model_does_not_wait_for_python(two_threads, monkeypatch):
    monkeypatch.setattr("hf_elmo.modeling_elmo.side_by_side", None)
    with torch.no_grad():
        make_model()(batch_to_ids(SENTENCES[:10]))


def test_one_thread_shares_nothing_out(calls):
    with torch.no_grad(), one_thread():
        make_model()(batch_to_ids(SENTENCES))
    assert not calls


def test_counters_of_operations_see_all_of_them(calls):
    model, characters = make_model(), batch_to_ids(SENTENCES)

    def operations() -> int:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(characters)
        return counter.get_total_flops()

    found = operations()
    assert not calls
    with one_thread():
        assert operations() == found > 0


def test_is_worth_two(two_threads):
    tensor = torch.zeros(1)
    assert is_worth_two(tensor, 10, 10)
    assert not is_worth_two(tensor, 9, 10)
    assert not is_worth_two(tensor.to("meta"), 10, 10)
    assert aside(lambda: is_worth_two(tensor, 10, 160))
    assert not aside(lambda: is_worth_two(tensor, 9, 160))
    with one_thread():
        assert not is_worth_two(tensor, 10, 10)
        assert not aside(lambda: is_worth_two(tensor, 10, 10))


def test_each_has_half_of_the_threads_and_others_keep_theirs(two_threads):
    torch.set_num_threads(4)
    assert side_by_side(torch.get_num_threads, torch.get_num_threads) == (2, 2)
    torch.set_num_threads(2)
    assert side_by_side(torch.get_num_threads, torch.get_num_threads) == (1, 1)
    assert torch.get_num_threads() == 2
    of_a_new_one = []
    thread = threading.Thread(target=lambda: of_a_new_one.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert of_a_new_one == [2]


def test_both_have_their_threads_before_anything_else_goes_on(monkeypatch, two_threads):
    """A late one would put back the number of threads that new ones had when it began."""
    threads, ready = _Threads(), []

    def slowly(number: int) -> None:
        time.sleep(0.2 * (1 + len(ready)))
        ready.append(number)

    monkeypatch.setattr(threads, "set_here", slowly)
    pair = threads.pool("pair", 2, 3)
    assert ready == [3, 3]
    assert threads.pool("pair", 2, 3) is pair
    assert pair.submit(int).result() == 0
    pair.shutdown()


def test_they_run_at_once_and_see_the_callers_context(two_threads):
    number: ContextVar[int] = ContextVar("number", default=0)
    number.set(7)
    meeting = threading.Barrier(2, timeout=60)

    def meet() -> tuple[int, bool]:
        meeting.wait()
        return number.get(), torch.is_grad_enabled()

    assert side_by_side(meet, meet) == ((7, False), (7, False))


def test_an_error_comes_after_both_have_ended(two_threads):
    ended = threading.Event()

    def fail() -> None:
        raise ValueError("the first one")

    def go_on() -> None:
        threading.Event().wait(0.2)
        ended.set()

    with pytest.raises(ValueError, match="the first one"):
        side_by_side(fail, go_on)
    assert ended.is_set()


# --- Aside -----------------------------------------------------------------------------------------------------------


def here() -> tuple[threading.Thread, int, int]:
    return threading.current_thread(), torch.get_num_threads(), threads_to_share()


def test_aside_has_one_thread_and_shares_out_two(two_threads):
    def read() -> None:
        thread, computing, to_share = here()
        assert (computing, to_share) == (1, 2)
        assert thread is not caller
        assert is_worth_two(torch.zeros(1), 1, 1)
        assert side_by_side(torch.get_num_threads, torch.get_num_threads) == (1, 1)
        assert aside(threading.current_thread) is thread
        with one_thread():
            assert not is_worth_two(torch.zeros(1), 1, 1)
        assert here() == (thread, 1, 2)

    caller = threading.current_thread()
    assert aside(read) is None
    assert here() == (caller, 2, 2)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_only_halves_of_one_thread_are_better_off_aside(threads, two_threads):
    torch.set_num_threads(threads)
    assert (aside(threading.current_thread) is threading.current_thread()) == (threads in (1, 4))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, nullcontext])
def test_aside_has_the_callers_context_and_mode(mode, two_threads):
    number: ContextVar[int] = ContextVar("number", default=0)
    number.set(7)
    with mode():
        found = aside(lambda: (number.get(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
    assert found == (7, False, mode is torch.inference_mode)


def test_an_error_aside_is_the_callers(two_threads):
    def fail() -> None:
        raise ValueError("aside")

    with pytest.raises(ValueError, match="aside"):
        aside(fail)
    assert aside(lambda: 3) == 3


def test_more_calls_than_there_are_threads_for(two_threads):
    seen = []

    def slowly() -> threading.Thread:
        time.sleep(0.05)
        return threading.current_thread()

    callers = [threading.Thread(target=lambda: seen.append(aside(slowly))) for _ in range(3 * CALLS_ASIDE)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert len(seen) == len(callers)
    assert len(set(seen)) == CALLS_ASIDE
    assert not set(seen) & set(callers)


def test_a_caller_that_is_interrupted_leaves_nothing_behind(two_threads, monkeypatch):
    """What had not begun yet does not begin."""
    free, begun, called = threading.Event(), threading.Semaphore(0), []

    def occupy() -> None:
        begun.release()
        assert free.wait(60)

    occupied = [threading.Thread(target=lambda: aside(occupy)) for _ in range(CALLS_ASIDE)]
    for thread in occupied:
        thread.start()
    for _ in occupied:
        assert begun.acquire(timeout=60)

    def interrupt(call: Future) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Future, "result", interrupt)
        with pytest.raises(KeyboardInterrupt):
            aside(lambda: called.append(1))
    free.set()
    for thread in occupied:
        thread.join()
    assert aside(lambda: 2) == 2
    assert not called


@pytest.mark.parametrize("count", [100, 150])
def test_many_words_are_read_aside(count, calls, monkeypatch):
    model, threads = make_model(), []
    model.bilstm.register_forward_hook(lambda *_: threads.append(threading.current_thread()))
    sentences = [[f"word{number}"] for number in range(count // 3)]  # and the boundaries of each
    with torch.no_grad():
        found = model(batch_to_ids(sentences)).last_hidden_state
        with one_thread():
            expected = model(batch_to_ids(sentences)).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (threads[0] is threading.current_thread()) == (count == 100)
    assert threads[1] is threading.current_thread()


@pytest.mark.parametrize(
    ("words", "large", "is_aside", "is_at_once"),
    [(20, False, False, False), (150, False, True, True), (20, True, False, False), (150, True, False, False)],
)
def test_one_sentence(words, large, is_aside, is_at_once, two_threads, monkeypatch):
    """Both directions of one sentence are read at once only where one of two threads would have nothing to do."""
    model, threads, calls = make_model(), [], []
    multiplications = model.bilstm.multiplications_per_word
    monkeypatch.setattr(
        "hf_elmo.modeling_elmo.FEWEST_FOR_TWO_DIRECTIONS", multiplications if large else 16 * multiplications
    )
    monkeypatch.setattr("hf_elmo.modeling_elmo.side_by_side", lambda *both: calls.append(1) or side_by_side(*both))
    model.bilstm.register_forward_hook(lambda *_: threads.append(threading.current_thread()))
    characters = batch_to_ids([[f"word{number}" for number in range(words)]])
    with torch.no_grad():
        found = model(characters).last_hidden_state
        with plain_path():
            expected = model(characters).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (threads[0] is not threading.current_thread()) == is_aside
    assert bool(calls) == is_at_once


AT_THE_END = """
import atexit, os, sys, torch
from hf_elmo.threads import aside, side_by_side
torch.set_num_threads(2)
def both(first, second):
    return aside(lambda: side_by_side(lambda: first, lambda: second))
atexit.register(lambda: print(both("end", "of it")))
print(both("a", "b"))
if hasattr(os, "fork") and (child := os.fork()) == 0:
    torch.set_num_threads(2)
    print("child", both("c", "d"), flush=True)
    os._exit(0)
elif hasattr(os, "fork"):
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_in_a_fork_and_when_the_program_ends():
    program = [sys.executable, "-W", "ignore::DeprecationWarning", "-u", "-c", AT_THE_END]
    finished = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True)
    assert finished.stdout.splitlines() == ["('a', 'b')", "child ('c', 'd')", "('end', 'of it')"]
