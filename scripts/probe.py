# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures what each layer of a model knows: `hf-elmo probe pos` and `hf-elmo probe wsd`.

The vectors stay as they are. Parts of speech are read from them by a linear classifier, senses of words by the nearest
neighbour. Beside the model stand a biLM of the same shape with random weights, which shows what the shape alone gives,
and static word vectors, if asked for. The figures go to a JSON file, and a picture can be drawn of them.
"""

import argparse
import json
import math
import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.utils import logging

from hf_elmo.cli import Command
from hf_elmo.conversion.verify import load_config
from hf_elmo.embedder import ElmoEmbedder
from hf_elmo.messages import no_bars
from hf_elmo.pictures import check_matplotlib, plot_layers
from hf_elmo.probing import EPOCHS, layer_vectors, random_embedder, static_vectors, train_probe
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.version import __version__
from hf_elmo.vocabulary import check_output
from hf_elmo.word_senses import (
    SenseData,
    SenseVectors,
    collect_senses,
    predict_senses,
    read_first_senses,
    read_senses,
    sense_scores,
)
from hf_elmo.word_vectors import WordVectors, load_word_vectors

from .arguments import add_report_arguments, command_line
from .perplexity import _device
from .task_data import TaggingData, label_names, read_conllu
from .task_metrics import accuracy, mean_and_deviation, shown

TRAINED, RANDOM = "model", "random weights"

# The scores of a system: for each layer those of all seeds.
Scores = list[list[float]]


# --- Parts of speech -------------------------------------------------------------------------------------------------


class _PosProbe:
    """Tagging data as numbers, and the scores of vectors on it."""

    def __init__(self, train: TaggingData, dev: TaggingData, epochs: int, show_progress: bool):
        self.train, self.dev = train, dev
        self.labels = label_names(train, dev)
        numbers = {label: number for number, label in enumerate(self.labels)}
        self.train_labels, self.dev_labels = (
            np.array([numbers[label] for labels in data.labels for label in labels]) for data in (train, dev)
        )
        self._epochs = epochs
        self._show_progress = show_progress

    def score(self, train: np.ndarray, dev: np.ndarray, seed: int, name: str) -> float:
        """The share of words of the development data, (N, D), that a classifier trained on the others gets right."""
        total = self._epochs * len(train)
        with logging.tqdm(
            total=total, desc=name, unit=" words", unit_scale=True, leave=False, disable=not self._show_progress
        ) as bar:
            probe = train_probe(train, self.train_labels, len(self.labels), seed, epochs=self._epochs, progress=bar)
        return float((probe.predict(dev) == self.dev_labels).mean())

    def score_layers(self, embedder: ElmoEmbedder, seeds: Sequence[int], name: str) -> Scores:
        """The scores of each layer, with each seed."""
        progress = None if self._show_progress else False
        train = layer_vectors(embedder, self.train.sentences, progress)
        dev = layer_vectors(embedder, self.dev.sentences, progress)
        return [
            [self.score(train[layer], dev[layer], seed, f"{name}, layer {layer}, seed {seed}") for seed in seeds]
            for layer in range(len(train))
        ]

    def most_frequent(self) -> float:
        """The score of the tag that each word has most often in the training data; unknown words get the commonest."""
        tags: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for words, labels in zip(self.train.sentences, self.train.labels, strict=True):
            for word, label in zip(words, labels, strict=True):
                tags[word][label] += 1
        overall = sum(tags.values(), Counter[str]()).most_common(1)[0][0]
        best = {word: counts.most_common(1)[0][0] for word, counts in tags.items()}
        words = [word for sentence in self.dev.sentences for word in sentence]
        gold = [label for labels in self.dev.labels for label in labels]
        return accuracy(gold, [best.get(word, overall) for word in words])


def _pos_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument("--train", required=True, type=Path, metavar="FILE", help="CoNLL-U to train the classifier on")
    parser.add_argument("--dev", required=True, type=Path, metavar="FILE", help="CoNLL-U to measure it on")
    parser.add_argument(
        "--tags", choices=["upos", "xpos"], default="upos", help="universal or the language's (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS, metavar="N", help="of the classifier (default: %(default)s)"
    )
    _common_arguments(parser)


def _run_pos(arguments: argparse.Namespace) -> None:
    _check(arguments)
    if arguments.epochs < 1:
        raise ValueError(f"--epochs {arguments.epochs} is not possible: it must be 1 or more.")
    probe = _PosProbe(
        read_conllu(arguments.train, arguments.tags),
        read_conllu(arguments.dev, arguments.tags),
        arguments.epochs,
        not arguments.quiet,
    )
    with no_bars(arguments.quiet):
        systems = {TRAINED: probe.score_layers(_load(arguments), arguments.seeds, TRAINED)}
        if arguments.random_weights:
            by_seed = [
                probe.score_layers(_random(arguments, seed), [seed], RANDOM) for seed in arguments.seeds
            ]  # other weights for each seed
            systems[RANDOM] = [[score for scores in layer for score in scores] for layer in zip(*by_seed, strict=True)]
        if arguments.word_vectors:
            vectors = _word_vectors(arguments, probe.train.words() | probe.dev.words())
            train, dev = (static_vectors(vectors, data.sentences) for data in (probe.train, probe.dev))
            name = Path(arguments.word_vectors).name
            systems[name] = [[probe.score(train, dev, seed, f"{name}, seed {seed}") for seed in arguments.seeds]]
    results = {
        "probe": "pos",
        "metric": "accuracy",
        "train": probe.train.describe(),
        "dev": probe.dev.describe(),
        "tags": arguments.tags,
        "labels": len(probe.labels),
        "words": len(probe.dev_labels),
        "baselines": {"most frequent tag of each word": probe.most_frequent()},
    }
    _report(arguments, results, systems, "Parts of speech by a linear classifier", "accuracy, %")


# --- Senses of words -------------------------------------------------------------------------------------------------


class _SenseProbe:
    """Data with senses, and the scores of vectors on it."""

    def __init__(self, train: SenseData, dev: SenseData, first_senses: dict[str, str] | None):
        self.all_train, self.dev, self.first_senses = train, dev, first_senses
        self.train = train.restrict(dev.entries())  # the vectors of other words would not be asked for
        self.targets = [target for targets in dev.targets for target in targets]

    def score(self, vectors: Callable[[list[list[str]]], Iterable[np.ndarray]]) -> Scores:
        """F1 of each layer; `vectors` gives those of each sentence (layers, T, D)."""
        known = collect_senses(self.train, vectors(self.train.sentences))
        answers = predict_senses(self.dev, vectors(self.dev.sentences), known, self.first_senses)
        return [[sense_scores(self.dev, layer)["f1"]] for layer in answers]

    def baselines(self) -> dict[str, float]:
        """F1 of the most frequent sense of the training data, and of the first sense of WordNet."""
        counted = SenseVectors()
        for targets in self.train.targets:
            for target in targets:
                counted.add(target, np.zeros((1, 1)))
        first = self.first_senses or {}
        frequent = [counted.most_frequent(target.entry) or first.get(target.entry) for target in self.targets]
        found = {"most frequent sense in the training data": sense_scores(self.dev, frequent)["f1"]}
        if self.first_senses is not None:
            in_order = [first.get(target.entry) for target in self.targets]
            found["first sense of WordNet"] = sense_scores(self.dev, in_order)["f1"]
        return found

    def unseen(self) -> int:
        """Words of the development data whose lemma the training data does not have."""
        known = self.train.entries()
        return sum(target.entry not in known for target in self.targets)


def _wsd_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FOLDER", help=MODEL_HELP)
    kinds = "JSON lines, or *.data.xml of Raganato et al. with *.gold.key.txt beside it, or the folder of both"
    parser.add_argument("--train", required=True, type=Path, metavar="FILE", help=f"text with senses: {kinds}")
    parser.add_argument("--dev", required=True, type=Path, metavar="FILE", help="text to measure it on, as --train")
    parser.add_argument(
        "--wordnet",
        type=Path,
        metavar="FILE",
        help="index.sense of WordNet: words whose lemma --train does not have get its first sense, as in the paper; "
        "without it they get none",
    )
    _common_arguments(parser)


def _run_wsd(arguments: argparse.Namespace) -> None:
    _check(arguments)
    first_senses = None if arguments.wordnet is None else read_first_senses(arguments.wordnet)
    probe = _SenseProbe(read_senses(arguments.train), read_senses(arguments.dev), first_senses)
    progress = False if arguments.quiet else None

    def stream(embedder: ElmoEmbedder) -> Callable[[list[list[str]]], Iterable[Any]]:
        return lambda sentences: embedder.encode_stream(
            sentences, layers="all", is_split_into_words=True, show_progress=progress
        )

    with no_bars(arguments.quiet):
        systems = {TRAINED: probe.score(stream(_load(arguments)))}
        if arguments.random_weights:
            by_seed = [probe.score(stream(_random(arguments, seed))) for seed in arguments.seeds]
            systems[RANDOM] = [[score for scores in layer for score in scores] for layer in zip(*by_seed, strict=True)]
        if arguments.word_vectors:
            sentences = [*probe.train.sentences, *probe.dev.sentences]
            vectors = _word_vectors(arguments, {word for sentence in sentences for word in sentence})
            systems[Path(arguments.word_vectors).name] = probe.score(_static_stream(vectors))
    results = {
        "probe": "wsd",
        "metric": "f1",
        "train": probe.all_train.describe(),
        "dev": probe.dev.describe(),
        "back_off": "none" if arguments.wordnet is None else "first sense of WordNet",
        "unseen": probe.unseen(),
        "words": len(probe.targets),
        "baselines": probe.baselines(),
    }
    _report(arguments, results, systems, "Word senses by the nearest neighbour", "F1, %")


def _static_stream(vectors: WordVectors) -> Callable[[list[list[str]]], Iterator[np.ndarray]]:
    def stream(sentences: list[list[str]]) -> Iterator[np.ndarray]:
        matrix = static_vectors(vectors, sentences)  # (N, D)
        ends = np.cumsum([len(sentence) for sentence in sentences])
        return (part[None] for part in np.split(matrix, ends[:-1]))  # (1, T, D)

    return stream


# --- Both ------------------------------------------------------------------------------------------------------------


def _common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--random-weights", action="store_true", help="measure a model of the same shape with random weights, too"
    )
    parser.add_argument(
        "--word-vectors", metavar="FILE", help="measure static word vectors, too, such as a GloVe file or package"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="S", help="(default: 1 2 3)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the scores there")
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: cuda if there is one)")
    add_report_arguments(parser)


def _check(arguments: argparse.Namespace) -> None:
    """Finds what would fail at the end before the work is done."""
    for output in filter(None, (arguments.json, arguments.plot)):
        check_output(output, arguments.overwrite)
    if arguments.plot is not None:
        check_matplotlib()
    if len(set(arguments.seeds)) != len(arguments.seeds):
        raise ValueError(f"--seeds {' '.join(map(str, arguments.seeds))}: a seed comes twice, which says nothing new.")
    load_config(model_folder(arguments.model))


def _load(arguments: argparse.Namespace) -> ElmoEmbedder:
    return ElmoEmbedder.from_pretrained(model_folder(arguments.model), device=_device(arguments.device))


def _random(arguments: argparse.Namespace, seed: int) -> ElmoEmbedder:
    embedder = _load(arguments)
    return random_embedder(load_config(model_folder(arguments.model)), embedder.tokenizer, seed, embedder.model.device)


def _word_vectors(arguments: argparse.Namespace, words: set[str]) -> WordVectors:
    return load_word_vectors(arguments.word_vectors, progress=not arguments.quiet).restrict(words)


def _report(
    arguments: argparse.Namespace, results: dict[str, Any], systems: dict[str, Scores], title: str, unit: str
) -> None:
    """Prints the scores, and writes them and their picture where asked for."""
    summary = {name: [mean_and_deviation(values) for values in layers] for name, layers in systems.items()}
    print(f"model: {arguments.model}\ntrain: {results['train']}\ndev: {results['dev']}")
    print("\n".join(_table(summary, results["baselines"], results["metric"])))
    if arguments.json is not None:
        record = {
            "command": command_line("hf-elmo"),
            "model": Path(arguments.model).name,
            **results,
            "standard_error": _standard_error(results, summary),
            "systems": summary,
            "versions": {
                "hf-elmo": __version__,
                "transformers": transformers.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if arguments.plot is not None:
        named = {Path(arguments.model).name if name == TRAINED else name: value for name, value in summary.items()}
        _plot(arguments.plot, named, results, title, unit)
        print(f"picture: {arguments.plot}")


def _table(summary: dict[str, list[dict[str, Any]]], baselines: dict[str, float], metric: str) -> list[str]:
    width = max(map(len, (*summary, *baselines)))
    lines = [f"\n{metric:<{width}}  " + "  ".join(f"{f'layer {layer}':>12}" for layer in range(len(summary[TRAINED])))]
    lines += [
        f"{name:<{width}}  " + "  ".join(f"{shown(layer):>12}" for layer in layers) for name, layers in summary.items()
    ]
    return [*lines, *(f"{name:<{width}}  {shown({'mean': value}):>12}" for name, value in baselines.items())]


def _standard_error(results: dict[str, Any], summary: dict[str, list[dict[str, Any]]]) -> float:
    """How far the best score of the model may be off as the development data has only so many words."""
    best = max(layer["mean"] for layer in summary[TRAINED])
    return math.sqrt(best * (1 - best) / results["words"])


def _plot(
    path: Path, summary: dict[str, list[dict[str, Any]]], results: dict[str, Any], title: str, unit: str
) -> None:
    def percent(score: dict[str, Any]) -> tuple[float, float | None]:
        deviation = score["standard_deviation"]
        return 100 * score["mean"], None if deviation is None else 100 * deviation

    with_layers = {name: list(map(percent, layers)) for name, layers in summary.items() if len(layers) > 1}
    lines = {name: 100 * layers[0]["mean"] for name, layers in summary.items() if len(layers) == 1}
    lines |= {name: 100 * value for name, value in results["baselines"].items()}
    source = results["dev"].partition(":")[0]
    plot_layers(with_layers, path, f"{title}: {source}", unit, lines)


POS = Command(
    description="Measures how well a linear classifier (multinomial logistic regression) reads the part of speech "
    "from the vectors of each layer, which stay as they are. As the classifier is linear, seeds change little; with "
    "--random-weights they also choose the random weights.",
    examples="""  hf-elmo probe pos elmo-mini --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu
  hf-elmo probe pos my-elmo --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --random-weights \\
      --word-vectors glove-6b-50d --json pos.json --plot pos.png""",
    add_arguments=_pos_arguments,
    run=_run_pos,
)

WSD = Command(
    description="Measures how well the nearest neighbour tells the sense of a word, in each layer: senses are the "
    "mean vectors of words that have them in the training data, and a word gets the nearest one of its lemma and part "
    "of speech. F1 counts words without an answer as not found.",
    examples="""  hf-elmo probe wsd elmo-mini --train semcor.jsonl.gz --dev semeval2007 --wordnet index.sense
  hf-elmo probe wsd my-elmo --train semcor.data.xml --dev semeval2007.data.xml --wordnet index.sense \\
      --random-weights --word-vectors glove-6b-50d --json wsd.json --plot wsd.png""",
    add_arguments=_wsd_arguments,
    run=_run_wsd,
)
