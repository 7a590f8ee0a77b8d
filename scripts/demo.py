# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""One word, two senses: `play` and `bank` in context, with the model that comes with the package.

For each sentence with the word, the nearest other ones are looked for: by the vectors of each layer, and by a static
vector, for which all of them are the same. A picture shows all sentences as points.

Examples:
    python -m hf_elmo.scripts.demo
    python -m hf_elmo.scripts.demo my-elmo --output my-elmo.png
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers.utils import logging

from hf_elmo.conversion.verify import load_config
from hf_elmo.embedder import ElmoEmbedder
from hf_elmo.neighbors import ROUNDING, SHOWN_WIDTH, Context, Neighbor, context_lines
from hf_elmo.pictures import check_matplotlib, plot_senses
from hf_elmo.shipped_model import MINI_NAME, MODEL_HELP, model_folder

from .demo_contexts import CONTEXTS, SHOWN

NEIGHBORS = 3  # of each context
PICTURE = Path("demo.png")


@dataclass(frozen=True)
class WordInContexts:
    """A word in several sentences.

    Args:
        word: The word.
        contexts: The word in its sentences.
        senses: The sense of each.
        vectors: (L + 1, contexts, D).
    """

    word: str
    contexts: list[Context]
    senses: list[str]
    vectors: np.ndarray

    def cosines(self, layer: int, index: int) -> np.ndarray:
        """Of one context with all (contexts,)."""
        vectors = self.vectors[layer].astype(np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors @ vectors[index]

    def purity(self, layer: int, count: int = NEIGHBORS) -> float:
        """The mean share of the nearest contexts that have the same sense; of equally near ones, a fair part."""
        return float(np.mean([self._share(layer, index, count) for index in range(len(self.contexts))]))

    def _share(self, layer: int, index: int, count: int) -> float:
        others = np.arange(len(self.contexts)) != index
        cosines = self.cosines(layer, index)[others]
        same = np.array([sense == self.senses[index] for sense in self.senses])[others]
        limit = np.sort(cosines)[-count]
        nearer, equal = cosines > limit + ROUNDING, np.abs(cosines - limit) <= ROUNDING
        return float(same[nearer].sum() + same[equal].mean() * (count - nearer.sum())) / count


def read_contexts(embedder: ElmoEmbedder, word: str, by_sense: dict[str, list[str]]) -> WordInContexts:
    """The vectors of a word in sentences, each of which has it once."""
    pairs = [(sense, sentence) for sense, sentences in by_sense.items() for sentence in sentences]
    contexts = []
    for number, (_, sentence) in enumerate(pairs):
        words = tuple(embedder.words(sentence))
        if words.count(word) != 1:
            raise ValueError(f"The sentence must have {word!r} once, but has it {words.count(word)} times: {sentence}")
        contexts.append(Context(words, words.index(word), number))
    layers = embedder.encode([list(context.words) for context in contexts], layers="all", is_split_into_words=True)
    vectors = [of_sentence[:, context.position] for of_sentence, context in zip(layers, contexts, strict=True)]
    return WordInContexts(word, contexts, [sense for sense, _ in pairs], np.stack(vectors, axis=1))


def neighbors_text(found: WordInContexts, width: int) -> str:
    """The nearest contexts of one context of each sense, in each layer with context."""
    lines = []
    for sense in dict.fromkeys(found.senses):
        index = found.senses.index(sense) + SHOWN
        lines += [f"  {found.contexts[index]}   <- {sense}"]
        others = len(found.contexts) - 1
        lines += [f"    static vector: 1.000 with all {others} other sentences, whatever the sense"]
        for layer in range(1, len(found.vectors)):
            cosines = found.cosines(layer, index)
            cosines[index] = -np.inf
            best = np.argsort(-cosines)[:NEIGHBORS].tolist()
            neighbors = [Neighbor(found.contexts[other], float(cosines[other]), 1) for other in best]
            lines.append(f"    layer {layer}")
            labels = [found.senses[other] for other in best]
            lines += [f"    {line}" for line in context_lines(neighbors, width - 4, labels)]
        lines.append("")
    return "\n".join(lines)


def purity_text(words: Sequence[WordInContexts]) -> str:
    """A table of the shares of neighbours with the same sense, by word and layer."""
    layers = len(words[0].vectors)
    names = ["static vector", *(f"layer {layer}" for layer in range(1, layers))]
    lines = [f"  {'':8}" + "".join(f"{name:>15}" for name in names)]
    for found in words:
        shares = [f"{found.purity(layer):.0%}" for layer in range(layers)]
        lines.append(f"  {found.word:8}" + "".join(f"{share:>15}" for share in shares))
    return "\n".join(lines)


def run(folder: Path, picture: Path) -> None:
    """Prints the neighbours and draws the picture."""
    check_matplotlib()
    config = load_config(folder)
    print(f"1. The model: {folder}")
    embedder = ElmoEmbedder.from_pretrained(folder)
    size = sum(parameter.numel() for parameter in embedder.model.parameters())
    print(f"   {size:,} weights, {config.num_hidden_layers} layers, {2 * config.projection_size} numbers a word\n")
    width = shutil.get_terminal_size((SHOWN_WIDTH + 10, 24)).columns
    words = []
    for number, (word, by_sense) in enumerate(CONTEXTS.items(), start=2):
        found = read_contexts(embedder, word, by_sense)
        words.append(found)
        print(
            f"{number}. Nearest to '{word}' in a sentence, among {len(found.contexts) - 1} others: cosine and sense\n"
        )
        print(neighbors_text(found, width))
    print(
        f"{len(CONTEXTS) + 2}. How many of the {NEIGHBORS} nearest sentences have the same sense, over all sentences\n"
    )
    print(purity_text(words))
    print("  A static vector is the same in all sentences, so its neighbours are a guess.\n")
    vectors = {found.word: found.vectors for found in words}
    plot_senses(vectors, {found.word: found.senses for found in words}, picture)
    print(f"{len(CONTEXTS) + 3}. The picture: {picture.resolve()}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hf_elmo.scripts.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", default=MINI_NAME, metavar="FOLDER", help=f"{MODEL_HELP} (default)")
    parser.add_argument(
        "--output", type=Path, default=PICTURE, metavar="FILE.png", help="the picture (default: %(default)s)"
    )
    arguments = parser.parse_args(argv)
    logging.disable_progress_bar()
    try:
        run(model_folder(arguments.model), arguments.output)
    except (ValueError, OSError, ImportError) as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
