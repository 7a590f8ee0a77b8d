# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast words become vectors, beside the real AllenNLP 2.10.1 module with the same weights.

Random weights of the published small and original size, with outputs about as large as those of a trained model, go
into both programs, which then compute all layers of the same words: of three batches, and of a whole file. A file is
read by AllenNLP in batches of 64 sentences in the order of the file, and by `ElmoEmbedder`; both begin with words and
end with an array for each sentence. Batches begin with character ids. Each is measured twice: with nothing kept
between calls, and in the middle of a text, by a model with `cache_words`, which has read 20,000 words of it before
and is given another batch of the same shape in each round.

The weights of both are in memory before the first round: ours are a mapped file when they are loaded, which a machine
may put aside while the other program runs (see bench_loading.py for the time of loading).

The programs take turns, so that a busy moment of the machine hits both; each figure is the median of the rounds, with
the range. Beside each ratio stands how far the two results are apart, and each from what the plain formulas give in
double precision; what fraction of the fastest matrix product on this machine ours reaches (products that the plain
formulas need, for different words only); and how much memory the first call takes at its peak, on top of the weights,
in a process of its own.

With --simple-elmo, simple_elmo 0.9.2 reads the same on TensorFlow 2.21, in an environment and a process of its own,
after the others, in a session that it is given: by itself, it begins one in each call, which takes longer than reading
a batch. The environment is made of 1.6 GB once. Words are drawn by Zipf's law, or come from files.

Examples:
    python -m hf_elmo.scripts.bench_inference --quick
    python -m hf_elmo.scripts.bench_inference --conllu en_ewt-ud-dev.conllu --output results/speed/bench_inference.json
    python -m hf_elmo.scripts.bench_inference --size small --text news.txt --simple-elmo
    python -m hf_elmo.scripts.bench_inference --scale 1    # many values at their clips
"""

import argparse
import copy
import itertools
import json
import os
import random
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_elmo import ElmoEmbedder, ElmoModel, batch_to_ids
from hf_elmo.fast_paths import plain_path

from .embed import _sentences_of_columns
from .measuring import (
    LIKE_TRAINED,
    PUBLISHED,
    SIZES,
    Sentences,
    add_common_arguments,
    allennlp_bilm,
    cut_into_sentences,
    draw_ratios,
    in_a_process,
    name_of,
    operations_of,
    originals,
    parse,
    peak_memory,
    product_speed,
    ratio,
    read_words,
    spread,
    take_turns,
    tensorflow_python,
    write_random_models,
    write_results,
)
from .original_wheels import cached_wheel

FILE = "a file"
FILE_BATCH = 64
FILE_WORDS = 20_000
# What a model with a cache has read before it is measured, and how many words it keeps.
WORDS_BEFORE = 20_000
REMEMBERED = 2**15

Layers = Sequence[torch.Tensor]
Read = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), nargs="+", default=PUBLISHED, help="default: %(default)s")
    parser.add_argument(
        "--scale", type=float, default=LIKE_TRAINED, help="a factor on the weights of the LSTMs (default: %(default)s)"
    )
    parser.add_argument("--text", type=Path, help="words for the batches, between spaces")
    parser.add_argument("--conllu", type=Path, help="the file that is read as a whole, in CoNLL-U")
    parser.add_argument("--file-rounds", type=int, default=3, help="how often to read the file (default: %(default)s)")
    parser.add_argument("--simple-elmo", action="store_true", help="measure simple_elmo on TensorFlow, too")
    add_common_arguments(parser, rounds=9)
    arguments = parse(parser)
    if not 0 < arguments.scale < float("inf"):
        parser.error(f"--scale {arguments.scale} is not possible: it must be above 0")
    sizes = ["tiny"] if arguments.quick else arguments.size
    rounds = {FILE: 1 if arguments.quick else arguments.file_rounds}

    peak = product_speed(arguments.quick)
    print(f"{arguments.threads} threads, fastest matrix product {peak / 1e9:.0f} GFLOP/s")
    words = read_words(arguments.text, 5 * WORDS_BEFORE)
    words_before = 500 if arguments.quick else WORDS_BEFORE
    works = works_of(words) | {FILE: read_file(arguments.conllu, arguments.quick)}
    results = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            write_random_models(size, Path(folder), arguments.scale)
            programs = Programs(Path(folder))
            for name, sentences in works.items():
                turns = rounds.get(name, arguments.rounds)
                measured = programs.measure(name, sentences, turns, arguments.simple_elmo)
                if name != FILE:
                    measured["remembering"] = programs.measure_remembering(
                        sentences, words[:words_before], words[words_before:], turns
                    )
                operations = operations_of(size, sentences)
                measured["fraction_of_peak"] = round(operations / measured["hf_elmo_seconds"]["median"] / peak, 3)
                measured["peak_bytes"] = programs.peaks(name, sentences)
                results.append({"size": size, "work": name, **measured})
                tell(results[-1])
    content = {
        "scale": arguments.scale,
        "text": name_of(arguments.text),
        "file": name_of(arguments.conllu),
        "file_rounds": rounds[FILE],
        "words_before": words_before,
        "product_flops": peak,
        "results": results,
    }
    write_results(arguments, "bench_inference", content, draw)


# --- What is read ----------------------------------------------------------------------------------------------------


def works_of(words: Sequence[str]) -> dict[str, Sentences]:
    """The batches that are measured."""
    ragged = [10 + round(50 * number / 31) for number in range(32)]
    random.Random(1).shuffle(ragged)
    lengths = {"one sentence of 20 words": [20], "32 sentences of 10 to 60 words": ragged, "64 x 40 words": [40] * 64}
    works = {}
    for name, sizes in lengths.items():
        source = iter(words)
        works[name] = [[next(source) for _ in range(size)] for size in sizes]
    return works


def batches_like(sentences: Sentences, words: Iterable[str]) -> Iterator[Sentences]:
    """The words in batches whose sentences are as long as these, for as long as there are enough of them."""
    source = iter(words)
    while True:
        batch = [list(itertools.islice(source, len(sentence))) for sentence in sentences]
        if list(map(len, batch)) != list(map(len, sentences)):
            return
        yield batch


def read_in_batches(words: Sequence[str]) -> Iterator[Sentences]:
    """The words in sentences of 40 and batches of 64 of them, the last ones smaller."""
    sentences = cut_into_sentences(words, itertools.repeat(40))
    return (sentences[start : start + FILE_BATCH] for start in range(0, len(sentences), FILE_BATCH))


def read_file(file: Path | None, quick: bool) -> Sentences:
    """The sentences of a CoNLL-U file, or some of one to fifty words."""
    if file is None:
        generator = random.Random(2)
        lengths = (round(generator.betavariate(1.2, 3) * 49) + 1 for _ in itertools.count())
        return cut_into_sentences(read_words(None, 500 if quick else FILE_WORDS), lengths)
    with open(file, encoding="utf-8") as lines:
        numbered = ((number, line.rstrip("\n")) for number, line in enumerate(lines, start=1))
        sentences = list(_sentences_of_columns(numbered, 1, True, str(file)))
    if not sentences:
        raise ValueError(f"{file} has no sentence.")
    return sentences[:50] if quick else sentences


# --- Who reads -------------------------------------------------------------------------------------------------------


class Programs:
    """Both programs, with the same weights."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.theirs = allennlp_bilm(folder)
        self.ours = ElmoModel.from_pretrained(folder / "converted")
        for parameter in self.ours.parameters():
            parameter.data = parameter.data.clone()

    def measure(self, work: str, sentences: Sentences, rounds: int, with_simple_elmo: bool) -> dict[str, Any]:
        runs: dict[str, Read] = {
            "allennlp": allennlp_read(self.theirs, work, sentences),
            "hf_elmo": our_read(self.ours, work, sentences),
        }
        ours, theirs = vectors_of(runs["hf_elmo"]()), vectors_of(runs["allennlp"]())
        result: dict[str, Any] = {
            "sentences": len(sentences),
            "words": sum(map(len, sentences)),
            "different_words": len({word for sentence in sentences for word in sentence}),
        }
        if work != FILE:
            result["apart_from_plain"] = apart(ours, vectors_of(plain(runs["hf_elmo"])))
            runs["hf_elmo_plain"] = lambda: plain(runs["hf_elmo"])
        seconds = take_turns(runs, rounds, warm_up=False)  # all have run already
        result |= {f"{run}_seconds": spread(times) for run, times in seconds.items()}
        result |= {"ratio": ratio(seconds["allennlp"], seconds["hf_elmo"]), "apart": apart(ours, theirs)}
        exact = self.exact(work, sentences)
        result["apart_from_float64"] = {"allennlp": apart(exact, theirs), "hf_elmo": apart(exact, ours)}
        if work != FILE:
            result["ratio_plain"] = ratio(seconds["allennlp"], seconds["hf_elmo_plain"])
        if with_simple_elmo:
            result |= self.simple_elmo(work, sentences, rounds, ours, seconds["hf_elmo"])
        return result

    def exact(self, work: str, sentences: Sentences) -> list[np.ndarray]:
        """What the plain formulas give in double precision."""
        return vectors_of(plain(our_read(copy.deepcopy(self.ours).double(), work, sentences)))

    def measure_remembering(
        self, sentences: Sentences, before: Sequence[str], after: Sequence[str], rounds: int
    ) -> dict[str, Any]:
        """In the middle of a text: most words of a batch have been read before, and their vectors are kept."""
        batches = list(itertools.islice(itertools.cycle(batches_like(sentences, after)), rounds))
        if not batches:
            raise ValueError(
                f"The text is too short: after its first {len(before)} words, which are read before, there are "
                f"{len(after)}, and a batch has {sum(map(len, sentences))}. Take a longer text."
            )
        self.ours.cache_words(REMEMBERED)
        try:
            known: set[str] = set()
            for batch in read_in_batches(before):
                our_read(self.ours, "", batch)()
                known.update(word for sentence in batch for word in sentence)
            new = []
            for batch in batches:
                different = {word for sentence in batch for word in sentence}
                new.append(len(different - known) / len(different))
                known |= different
            ours = iter([our_read(self.ours, "", batch) for batch in batches])
            theirs = iter([allennlp_read(self.theirs, "", batch) for batch in batches])
            seconds = take_turns(
                {"allennlp": lambda: next(theirs)(), "hf_elmo": lambda: next(ours)()}, rounds, warm_up=False
            )
            reads = our_read(self.ours, "", batches[-1]), allennlp_read(self.theirs, "", batches[-1])
            last = [vectors_of(read()) for read in reads]
        finally:
            self.ours.cache_words(None)
        return {
            "new_words": spread(new),
            "batches": len({id(batch) for batch in batches}),
            "allennlp_seconds": spread(seconds["allennlp"]),
            "hf_elmo_seconds": spread(seconds["hf_elmo"]),
            "ratio": ratio(seconds["allennlp"], seconds["hf_elmo"]),
            "apart": apart(*last),
        }

    def peaks(self, work: str, sentences: Sentences) -> dict[str, int | None]:
        """The memory of each program, in a process of its own."""
        return {run: in_a_process(_peak_of, run, self.folder, work, sentences) for run in ("allennlp", "hf_elmo")}

    def simple_elmo(
        self, work: str, sentences: Sentences, rounds: int, ours: list[np.ndarray], seconds: list[float]
    ) -> dict[str, Any]:
        times, vectors = run_simple_elmo(
            self.folder, sentences, rounds, FILE_BATCH if work == FILE else len(sentences)
        )
        return {
            "simple_elmo_seconds": spread(times),
            "ratio_simple_elmo": {"median": statistics.median(times) / statistics.median(seconds)},
            # Within a file its sentences begin where others ended, so that its vectors are not to be compared.
            "apart_simple_elmo": None if work == FILE else apart(ours, vectors),
        }


def allennlp_read(bilm: Any, work: str, sentences: Sentences) -> Read:
    to_ids = originals().original_elmo_module().batch_to_ids

    @torch.inference_mode()
    def read_batch(characters: torch.Tensor) -> Layers:
        bilm._elmo_lstm.reset_states()  # otherwise results depend on what was read before
        return [layer[:, 1:-1] for layer in bilm(characters)["activations"]]

    def read_file() -> list[np.ndarray]:
        batches = [sentences[start : start + FILE_BATCH] for start in range(0, len(sentences), FILE_BATCH)]
        return [vectors for batch in batches for vectors in by_sentence(read_batch(to_ids(batch)), batch)]

    if work == FILE:
        return read_file
    characters = to_ids(sentences)
    return lambda: (read_batch(characters), sentences)


def our_read(model: ElmoModel, work: str, sentences: Sentences) -> Read:
    if work == FILE:
        embedder = ElmoEmbedder(model)
        return lambda: embedder.encode(sentences, "all", show_progress=False)
    characters = batch_to_ids(sentences)

    @torch.inference_mode()
    def read() -> tuple[Layers, Sentences]:
        return model(characters, output_hidden_states=True).hidden_states, sentences

    return read


def plain(read: Read) -> Any:
    with plain_path():
        return read()


def by_sentence(layers: Layers, sentences: Sentences) -> list[np.ndarray]:
    """Layers (B, T, D) to an array (L + 1, words, D) for each sentence."""
    stacked = torch.stack(list(layers), dim=1)
    return [vectors[:, : len(words)].numpy() for vectors, words in zip(stacked, sentences, strict=True)]


def vectors_of(result: Any) -> list[np.ndarray]:
    """The arrays of a file, or those of a batch, which is read without cutting it."""
    return by_sentence(*result) if isinstance(result, tuple) else result


def apart(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """The largest difference of any value of any layer of any word."""
    return max(float(np.abs(our - their).max()) for our, their in zip(ours, theirs, strict=True) if our.size)


def _peak_of(program: str, folder: Path, work: str, sentences: Sentences) -> int:
    """The most memory that the first call of a program takes on top of its weights."""
    if program == "allennlp":
        read = allennlp_read(allennlp_bilm(folder), work, sentences)
    else:
        read = our_read(ElmoModel.from_pretrained(folder / "converted"), work, sentences)
    with peak_memory() as found:
        read()
    return found[0]


# --- simple_elmo -----------------------------------------------------------------------------------------------------

SIMPLE_ELMO = """
import json, time
import numpy as np
import tensorflow as tf
from simple_elmo import ElmoModel

source, sentences, rounds, batch_size, output = sys.argv[1:]
sentences = json.load(open(sentences))
model = ElmoModel()
model.load(source, max_batch_size=int(batch_size))
vectors = model.get_elmo_vectors(sentences, warmup=False, layers="all")  # from a state of zeros
seconds = []
with tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.global_variables_initializer())
    for number in range(int(rounds) + 1):
        start = time.perf_counter()
        model.get_elmo_vectors(sentences, warmup=False, layers="all", session=session)
        seconds.append(time.perf_counter() - start)
np.savez(output, **{str(number): found for number, found in enumerate(vectors)})
json.dump(seconds[1:], open(output + ".json", "w"))
"""


def run_simple_elmo(
    folder: Path, sentences: Sentences, rounds: int, batch_size: int
) -> tuple[list[float], list[np.ndarray]]:
    """The seconds of each round, after one that is not counted, and an array (L + 1, words, D) for each sentence."""
    tensorflow = tensorflow_python()
    source = folder / "simple_elmo"
    if not source.exists():
        source.mkdir()
        os.link(folder / "options.json", source / "options.json")
        os.link(folder / "weights.hdf5", source / "model.hdf5")
    given, output = folder / "sentences.json", folder / "simple_elmo.npz"
    given.write_text(json.dumps(sentences), encoding="utf-8")
    wheels = os.pathsep.join(str(cached_wheel(version, package)) for package, version in tensorflow.ORIGINALS)
    threads = str(torch.get_num_threads())
    settings = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TF_NUM_INTRAOP_THREADS": threads}
    program = [tensorflow.tensorflow_python(), "-I", "-c", tensorflow.WITH_SIMPLE_ELMO + SIMPLE_ELMO]
    finished = subprocess.run(
        [*program, wheels, source, given, str(rounds), str(batch_size), output],
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    if finished.returncode:
        raise RuntimeError(f"simple_elmo failed:\n{finished.stderr[-5000:]}")
    found = np.load(output)
    vectors = [found[str(number)][..., : len(words), :] for number, words in enumerate(sentences)]
    return json.loads(Path(f"{output}.json").read_text()), vectors


# --- What is told ----------------------------------------------------------------------------------------------------


def tell(result: dict[str, Any]) -> None:
    beside, remembering = result.get("ratio_simple_elmo"), result.get("remembering")
    exactness = result["apart_from_float64"]
    print(
        f"{result['size']:<9} {result['work']:<31} {result['ratio']['median']:5.2f}x "
        f"({result['ratio']['lowest']:.2f} to {result['ratio']['highest']:.2f})   "
        f"{1e3 * result['hf_elmo_seconds']['median']:8.1f} ms   "
        f"{100 * result['fraction_of_peak']:3.0f} % of peak   {result['apart']:.1e} apart, "
        f"{exactness['hf_elmo']:.1e} and {exactness['allennlp']:.1e} from float64"
        + (f"   {beside['median']:.2f}x simple_elmo" if beside else "")
        + (f"   {remembering['ratio']['median']:.2f}x in the middle of a text" if remembering else ""),
        flush=True,
    )


def draw(picture: Any, figures: dict[str, Any]) -> None:
    bars = []
    for result in figures["results"]:
        bars.append((f"{result['work']}, {result['size']}", result["ratio"]))
        if "remembering" in result:
            bars.append(("the same in the middle of a text", result["remembering"]["ratio"]))
    names, ratios = zip(*bars, strict=True)
    draw_ratios(picture, names, ratios, "times as fast as AllenNLP 2.10.1")


if __name__ == "__main__":
    main()
