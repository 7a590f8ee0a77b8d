"""Measures the memory of one task in a process that does nothing else, and prints bytes as JSON (Linux only).

    python tests/measure_memory.py document --size original --words 100000   # the promise in full: long
    python tests/measure_memory.py calls --count 10000
    python tests/measure_memory.py loading --folder my-elmo

`test_memory.py` runs it with sizes that take less time.
"""

import argparse
import ctypes
import gc
import json
import random
from pathlib import Path

import torch
import transformers
from tiny import random_model, tiny_config

from hf_elmo import ElmoConfig, ElmoEmbedder, ElmoModel, ElmoTokenizer
from hf_elmo.scripts.measuring import memory, peak_memory
from hf_elmo.tokenization_elmo import character_row

# As wide as the original model, but the cells of its LSTMs are few. What grows with the text is not about cells.
WIDE = {"cell_size": 8, "char_cnn_filters": [[1, 4], [2, 8]], "num_highway_layers": 1}
SIZES = {"tiny": tiny_config, "original": ElmoConfig.original, "wide": lambda **sizes: ElmoConfig(**WIDE, **sizes)}
CACHED_WORDS = 100


def give_back_memory() -> None:
    """What was freed goes back to the system, so that it does not count as used before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def model_of(size: str) -> ElmoModel:
    return random_model(SIZES[size](vocab_size=4, softmax="full"))


def words_of(generator: random.Random, count: int) -> list[str]:
    """Words that hardly ever come twice, some of them long, of all kinds of characters."""
    lengths = [generator.choice((2, 4, 8, 12)) for _ in range(count)]
    return ["".join(generator.choices("abcdefghijklmnopqrstuvwxyzäöü조용한", k=length)) for length in lengths]


def measure_document(size: str, words: int) -> dict[str, int]:
    """One document, as one sentence, to all layers."""
    embedder = ElmoEmbedder(model_of(size))
    document = words_of(random.Random(0), words)
    embedder.encode([["warm", "up"]], "all")
    give_back_memory()
    with peak_memory() as found:
        (layers,) = embedder.encode([document], "all", show_progress=False)
    return {"peak": found[0], "output": layers.nbytes, "words": words}


def measure_calls(count: int) -> dict[str, int]:
    """Many calls of the tokenizer, the model and an embedder on text that changes, after a warm-up."""
    model, tokenizer = model_of("tiny"), ElmoTokenizer()
    model.cache_words(CACHED_WORDS)
    embedder = ElmoEmbedder(model, tokenizer)
    generator = random.Random(0)

    def call(number: int) -> None:
        words = words_of(generator, generator.randint(1, 5))
        if number % 10 == 0:
            embedder.encode([words, words[:1]], show_progress=False)
        else:
            with torch.no_grad():
                model(**tokenizer(" ".join(words), return_tensors="pt"))

    while character_row.cache_info().currsize < character_row.cache_parameters()["maxsize"]:  # full, it grows no more
        for word in words_of(generator, 1000):
            character_row(word, tokenizer.max_characters_per_token)
    for number in range(count // 10):
        call(number)
    give_back_memory()
    before = memory("VmRSS")
    for number in range(count):
        call(number)
    give_back_memory()
    cache = model.character_encoder.cache
    return {"before": before, "after": memory("VmRSS"), "cached_words": 0 if cache is None else len(cache)}


def measure_loading(folder: Path, dtype: str) -> dict[str, int]:
    """Loading, in a process that has loaded another model before."""
    first = folder / "first"
    if not first.exists():
        model_of("tiny").save_pretrained(first)
    ElmoModel.from_pretrained(first)
    give_back_memory()
    with peak_memory() as found:
        model = ElmoModel.from_pretrained(folder, dtype=getattr(torch, dtype))
        for weight in model.parameters():
            weight.sum()  # a file is in the memory only when it is read
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return {"peak": found[0], "weights": weights, "file": (folder / "model.safetensors").stat().st_size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["document", "calls", "loading"])
    parser.add_argument("--size", choices=list(SIZES), default="original")
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--dtype", default="float32")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    if arguments.task == "document":
        result = measure_document(arguments.size, arguments.words)
    elif arguments.task == "calls":
        result = measure_calls(arguments.count)
    else:
        result = measure_loading(arguments.folder, arguments.dtype)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
