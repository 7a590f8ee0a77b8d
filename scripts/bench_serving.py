# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures `hf-elmo serve` over the loopback interface: answers a second, how long they take, and if they are right.

The server is a process of its own, run by torch or by onnxruntime. Clients are threads here, each with a connection
that it keeps, and each sends its next request as soon as it has the answer to the one before. A request has one text
of one to fifty words, and the answer is an npy file with a vector for each word. All answers are compared with those
of the same program without a server. Clients and server share the processors of the machine.

Words are drawn by Zipf's law, or come from a file. Weights are random, unless there is a --model.

Examples:
    python -m hf_elmo.scripts.bench_serving --quick
    python -m hf_elmo.scripts.bench_serving --output results/speed/bench_serving.json
    python -m hf_elmo.scripts.bench_serving --model my-elmo --text news.txt --connections 16 --requests 1000
"""

import argparse
import http.client
import io
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hf_elmo import ElmoEmbedder
from hf_elmo.conversion.onnx_export import export_onnx
from hf_elmo.elmo_onnx import ElmoOnnx
from hf_elmo.pictures import COLOURS, MARKERS

from .measuring import (
    SIZES,
    Sentences,
    add_common_arguments,
    cut_into_sentences,
    name_of,
    parse,
    read_words,
    spread,
    write_random_models,
    write_results,
)

PERCENTILES = (50, 95, 99)
# What is measured, and with which options. With torch, rounding depends on what is computed together, or it does not.
RUNTIMES = {"torch": (), "torch, batch-invariant": ("--batch-invariant",), "onnxruntime": ()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), nargs="+", default=["small"], help="default: %(default)s")
    parser.add_argument("--model", type=Path, help="measure the model of this folder, and no random ones")
    parser.add_argument("--text", type=Path, help="words for the requests, between spaces")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32], help="default: %(default)s")
    parser.add_argument("--requests", type=int, default=300, help="of each round (default: %(default)s)")
    add_common_arguments(parser, rounds=3)
    arguments = parse(parser)
    for name in ("connections", "requests"):
        if np.min(getattr(arguments, name)) < 1:
            parser.error(f"--{name} {getattr(arguments, name)} is not possible: it must be 1 or more")
    if arguments.quick:
        arguments.requests, arguments.connections = 20, [1, 4]
    texts = texts_of(read_words(arguments.text), arguments.requests)
    results = []
    for size in ["tiny"] if arguments.quick else arguments.size:
        with tempfile.TemporaryDirectory() as temporary:
            folders = prepare(size, arguments.model, Path(temporary))
            title = size if arguments.model is None else arguments.model.name
            for runtime, options in RUNTIMES.items():
                folder = folders[runtime.partition(",")[0]]
                expected = offline(runtime, folder, texts, arguments.threads)
                with served(folder, arguments.threads, *options) as port:
                    ask(port, texts[:10], 1)  # to warm up
                    for count in arguments.connections:
                        rounds = [measured(port, texts, expected, count) for _ in range(arguments.rounds)]
                        results.append({"size": title, "runtime": runtime, "connections": count, **summary(rounds)})
                        tell(results[-1])
        if arguments.model is not None:
            break
    content = {
        "text": name_of(arguments.text),
        "requests": arguments.requests,
        "words": sum(map(len, texts)),
        "results": results,
    }
    write_results(arguments, "bench_serving", content, draw)


def texts_of(words: Sequence[str], count: int) -> Sentences:
    """So many texts of one to fifty words, more of them short."""
    generator = random.Random(3)
    lengths = (round(generator.betavariate(1.2, 3) * 49) + 1 for _ in itertools.count())
    endless = [words[number % len(words)] for number in range(50 * count)]
    return cut_into_sentences(endless, lengths)[:count]


def prepare(size: str, model: Path | None, folder: Path) -> dict[str, Path]:
    """The folders that are served, by runtime."""
    source = model
    if source is None:
        write_random_models(size, folder)
        source = folder / "converted"
    export_onnx(source, folder / "onnx", "features")
    return {"torch": source, "onnxruntime": folder / "onnx"}


def offline(runtime: str, folder: Path, texts: Sentences, threads: int) -> list[np.ndarray]:
    """The vectors of the texts without a server."""
    if runtime == "onnxruntime":
        return ElmoOnnx(folder, threads=threads).encode(texts)
    return ElmoEmbedder.from_pretrained(folder, batch_invariant="invariant" in runtime).encode(texts)


# --- The server and its clients --------------------------------------------------------------------------------------


@contextmanager
def served(folder: Path, threads: int, *options: str) -> Iterator[int]:
    """The port of a server of the folder, which ends with this.

    Raises:
        RuntimeError: If it cannot start, or does not end as it should.
    """
    command = [
        sys.executable,
        "-m",
        "hf_elmo",
        "serve",
        str(folder),
        "--port",
        "0",
        "--threads",
        str(threads),
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None  # it is a pipe
    try:
        line = process.stdout.readline()
        if not line.startswith("serving "):
            raise RuntimeError(f"The server did not start: {process.communicate()[1]}")
        yield int(line.rpartition(":")[2])
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
        if process.returncode or errors:
            raise RuntimeError(f"The server ended with the code {process.returncode}: {errors}")
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


class Reply(NamedTuple):
    """An answer, and how long it took."""

    status: int | str  # of HTTP, or the name of what went wrong
    body: bytes
    seconds: float


def ask(port: int, texts: Sentences, connections: int) -> list[Reply]:
    """The answers to a request for each text, over so many connections at once."""

    def client(first: int) -> list[Reply]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        replies = [request(connection, words) for words in texts[first::connections]]
        connection.close()
        return replies

    with ThreadPoolExecutor(connections) as clients:
        by_client = list(clients.map(client, range(connections)))
    return [by_client[number % connections][number // connections] for number in range(len(texts))]


def request(connection: http.client.HTTPConnection, words: list[str]) -> Reply:
    body = json.dumps({"texts": [words], "format": "npy"})
    start = time.perf_counter()
    try:
        connection.request("POST", "/embed", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()  # the next request opens it anew
        return Reply(type(error).__name__, b"", time.perf_counter() - start)
    return Reply(answer.status, content, time.perf_counter() - start)


def batches_of(port: int) -> int:
    """How many batches the server has computed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/health")
    batches = json.loads(connection.getresponse().read())["batches"]
    connection.close()
    return batches


# --- Figures ---------------------------------------------------------------------------------------------------------


def measured(port: int, texts: Sentences, expected: list[np.ndarray], connections: int) -> dict[str, Any]:
    """One round: how long it took, how long each answer took, what went wrong, and how far answers are apart."""
    before = batches_of(port)
    start = time.perf_counter()
    replies = ask(port, texts, connections)
    seconds = time.perf_counter() - start
    batches = batches_of(port) - before
    apart = 0.0
    for reply, right in zip(replies, expected, strict=True):
        if reply.status == 200:
            found = np.load(io.BytesIO(reply.body))
            if found.shape != right.shape:
                raise ValueError(f"An answer has the shape {found.shape}, but without a server it is {right.shape}.")
            apart = max(apart, float(np.abs(found - right).max(initial=0)))
    return {
        "seconds": seconds,
        "latencies": [reply.seconds for reply in replies],
        "errors": Counter(str(reply.status) for reply in replies if reply.status != 200),
        "apart": apart,
        "largest_value": max(float(np.abs(vectors).max(initial=0)) for vectors in expected),
        "texts_per_batch": len(texts) / max(batches, 1),
    }


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of all rounds."""
    latencies = np.concatenate([one["latencies"] for one in rounds])
    errors: Counter[str] = sum((one["errors"] for one in rounds), Counter())
    return {
        "requests_per_second": spread([len(one["latencies"]) / one["seconds"] for one in rounds]),
        "latency_ms": {
            **{f"p{share}": round(1e3 * float(np.percentile(latencies, share)), 2) for share in PERCENTILES},
            "highest": round(1e3 * float(latencies.max()), 2),
        },
        "answers": len(latencies) - sum(errors.values()),
        "errors": dict(errors),
        "apart": max(one["apart"] for one in rounds),
        "largest_value": rounds[0]["largest_value"],
        "texts_per_batch": round(float(np.mean([one["texts_per_batch"] for one in rounds])), 2),
    }


def tell(result: dict[str, Any]) -> None:
    times = result["latency_ms"]
    print(
        f"{result['size']:<9} {result['runtime']:<22} {result['connections']:3} connections   "
        f"{result['requests_per_second']['median']:.1f} requests/s   "
        + "   ".join(f"p{share} {times[f'p{share}']:.0f} ms" for share in PERCENTILES)
        + f"   {result['texts_per_batch']:.1f} texts a batch   {sum(result['errors'].values())} errors   "
        f"{result['apart']:.1e} apart of values up to {result['largest_value']:.2g}",
        flush=True,
    )


def draw(picture: Any, figures: dict[str, Any]) -> None:
    picture.set_size_inches(9, 4)
    speed, latency = picture.subplots(1, 2)
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in figures["results"]:
        groups.setdefault(f"{result['size']}, {result['runtime']}", []).append(result)
    for number, (name, results) in enumerate(groups.items()):
        style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
        counts = [result["connections"] for result in results]
        speed.plot(counts, [result["requests_per_second"]["median"] for result in results], label=name, **style)
        for share, line in zip(PERCENTILES, ("-", "--", ":"), strict=True):
            times = [result["latency_ms"][f"p{share}"] for result in results]
            latency.plot(counts, times, label=f"{name}, p{share}", linestyle=line, **style)
    for axes, label in ((speed, "requests a second"), (latency, "milliseconds to an answer")):
        axes.set_xscale("log", base=2)
        counts = sorted({result["connections"] for result in figures["results"]})
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_xlabel("connections")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7)


if __name__ == "__main__":
    main()
