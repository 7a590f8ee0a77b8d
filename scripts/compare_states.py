# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures what sentences should start from: zeros, the stored state, or what the sentence before left.

For each of the three, `hf-elmo compare-states` gives the perplexity of held-out text, with the softmax over all words,
and how well a linear classifier reads parts of speech from the vectors, by the place of the word in its sentence. The
classifier is trained on vectors of the same kind. All three read the same sentences, `<S> w1 .. wn </S>`.
"""

import argparse
import json
import platform
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers.utils import logging

from hf_elmo import ElmoConfig, ElmoEmbedder, ElmoForPreTraining, ElmoState, ElmoTokenizer
from hf_elmo.cli import Command
from hf_elmo.corpus import CorpusReader
from hf_elmo.embedder import STATES, State
from hf_elmo.messages import no_bars
from hf_elmo.perplexity import Perplexity, PerplexitySums
from hf_elmo.pictures import COLOURS, MARKERS, _figure, _save, _tidy, check_matplotlib
from hf_elmo.probing import EPOCHS, layer_vectors, train_probe
from hf_elmo.shipped_model import MODEL_HELP, model_folder, name_of_folder
from hf_elmo.version import __version__
from hf_elmo.vocabulary import check_output
from hf_elmo.warm_state import MAX_SENTENCES, cut_long, rows_for, side_by_side, with_warm_state

from .arguments import add_errors_argument, add_report_arguments, command_line
from .perplexity import _device, load_language_model
from .task_data import TaggingData, label_names, read_conllu
from .warm_state import state_of_text

# Places of words in their sentences, the first is 1; a word is in one of these.
PLACES = {"1": (1, 1), "2": (2, 2), "3": (3, 3), "4-6": (4, 6), "7-10": (7, 10), "over 10": (11, 10**9)}
LAST = "last"  # beside these


# --- Perplexity ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def perplexity_of_state(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    sentences: list[list[str]],
    state: State,
    *,
    rows: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """The perplexity of sentences that start from this state.

    Args:
        model: The language model; for `"warm"`, with a stored state.
        tokenizer: Its tokenizer.
        sentences: Lists of words, in the order of the text.
        state: What they start from. With `"carry"`, that of the sentence before; the first ones of each row start from
            zeros.
        rows: Parts of the text that are read side by side; by default `rows_for` the sentences.
        show_progress: Whether to show a progress bar.
    """
    sums = PerplexitySums()
    carried: ElmoState | None = None
    with logging.tqdm(desc=f"perplexity, {state}", unit=" words", unit_scale=True, disable=not show_progress) as bar:
        for batch in side_by_side(sentences, rows or rows_for(len(sentences))):
            inputs = _inputs(tokenizer, batch, model.device)
            outputs = model(
                **inputs,
                labels=inputs["input_ids"],
                initial_state=_start(model, state, len(batch), carried),
                output_state=True,
                num_predictions=1,
                return_dict=True,
            )
            carried = outputs.state
            words = sum(map(len, batch))
            unknown = int((inputs["input_ids"] == tokenizer.unk_token_id).sum())
            losses = (outputs.forward_loss.item(), outputs.backward_loss.item())
            sums = sums.plus(PerplexitySums(*losses, words + len(batch), words, unknown))
            bar.update(words)
    figures = Perplexity.of_sums(sums, 1.0, "sentences").to_dict()
    return {name: figures[name] for name in ("forward", "backward", "both", "words", "unknown_share")}


def _inputs(tokenizer: ElmoTokenizer, batch: list[list[str]], device: torch.device) -> dict[str, Tensor]:
    encoded = tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")
    return {name: encoded[name].to(device) for name in ("input_ids", "character_ids", "attention_mask")}


def _start(model: ElmoForPreTraining, state: State, rows: int, carried: ElmoState | None) -> ElmoState:
    if state == "warm":
        return model.elmo.first_state(rows)
    if state == "carry" and carried is not None:
        return carried.for_batch(rows)
    return ElmoState.zeros(cast(ElmoConfig, model.config), rows, next(model.parameters()).detach())


# --- Parts of speech -------------------------------------------------------------------------------------------------


def places_of_words(sentences: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """For each kind of place, which of all words (N,) are there."""
    numbers = np.concatenate([np.arange(1, len(sentence) + 1) for sentence in sentences])
    is_last = np.concatenate([np.arange(1, len(sentence) + 1) == len(sentence) for sentence in sentences])
    kinds = {name: (numbers >= first) & (numbers <= last) for name, (first, last) in PLACES.items()}
    return {**kinds, LAST: is_last}


class _Probe:
    """Tagged sentences, and how well their tags can be read from vectors."""

    def __init__(self, train: TaggingData, dev: TaggingData, arguments: argparse.Namespace):
        self.train, self.dev = (
            list(islice(zip(data.sentences, data.labels, strict=True), count))
            for data, count in ((train, arguments.train_sentences), (dev, arguments.dev_sentences))
        )
        numbers = {label: number for number, label in enumerate(label_names(train, dev))}
        self.num_labels = len(numbers)
        self.train_labels, self.dev_labels = (
            np.array([numbers[label] for _, labels in data for label in labels]) for data in (self.train, self.dev)
        )
        self.places = places_of_words([words for words, _ in self.dev])
        self.arguments = arguments

    def scores(self, embedder: ElmoEmbedder, layers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """For each layer the share of words that get their tag: of all, and by place."""
        progress = False if self.arguments.quiet else None
        train, dev = (
            layer_vectors(embedder, [words for words, _ in data], progress) for data in (self.train, self.dev)
        )
        return {layer: self._scores_of_layer(train[layer], dev[layer]) for layer in layers}

    def _scores_of_layer(self, train: np.ndarray, dev: np.ndarray) -> dict[str, Any]:
        shares = []
        for seed in self.arguments.seeds:
            probe = train_probe(train, self.train_labels, self.num_labels, seed, epochs=self.arguments.epochs)
            right = probe.predict(dev) == self.dev_labels
            shares.append({"all": right, **{name: right[chosen] for name, chosen in self.places.items()}})
        return {
            name: float(np.mean([share[name].mean() for share in shares])) if len(shares[0][name]) else None
            for name in shares[0]
        }

    def counts(self) -> dict[str, int]:
        """Words of the development data, by place."""
        return {"all": len(self.dev_labels), **{name: int(chosen.sum()) for name, chosen in self.places.items()}}


# --- The command -----------------------------------------------------------------------------------------------------


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=model_folder, metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument(
        "text", nargs="+", type=Path, metavar="FILE", help="held-out text; a sentence a line, words between spaces"
    )
    parser.add_argument(
        "--warm-text",
        nargs="+",
        metavar="FILE",
        help="text like that of training, to make the warm state from; needed if the folder has none",
    )
    parser.add_argument(
        "--warm-sentences",
        type=int,
        default=MAX_SENTENCES,
        metavar="N",
        help="of that text (default: %(default)s)",
    )
    parser.add_argument("--max-sentences", type=int, metavar="N", help="of each held-out text (default: all)")
    parser.add_argument("--train", type=Path, metavar="FILE", help="CoNLL-U to train the classifier on")
    parser.add_argument("--dev", type=Path, metavar="FILE", help="CoNLL-U to measure it on")
    parser.add_argument("--train-sentences", type=int, metavar="N", help="of that file (default: all)")
    parser.add_argument("--dev-sentences", type=int, metavar="N", help="of that file (default: all)")
    parser.add_argument("--layers", type=int, nargs="+", metavar="N", help="for the classifier (default: all)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, metavar="N", help="of it (default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N", help="of it (default: 0)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the figures there")
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: cuda if there is one)")
    add_errors_argument(parser)
    add_report_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    _check(arguments)
    with no_bars(arguments.quiet):
        results = _measure(arguments)
    print("\n".join(_tables(results)))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if arguments.plot is not None:
        plot_states(results, arguments.plot)
        print(f"picture: {arguments.plot}")


def _check(arguments: argparse.Namespace) -> None:
    for path in (arguments.json, arguments.plot):
        if path is not None:
            check_output(path, arguments.overwrite)
    if arguments.plot is not None:
        check_matplotlib()
    if (arguments.train is None) != (arguments.dev is None):
        raise ValueError("--train and --dev go together: give both, or none to measure the perplexity alone.")
    names = ("warm_sentences", "max_sentences", "train_sentences", "dev_sentences", "epochs")
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} {value} is not possible: it must be 1 or more.")


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device = _device(arguments.device)
    model, tokenizer, made_of = _load(arguments, device)
    top = model.config.num_hidden_layers
    layers = arguments.layers or list(range(top + 1))
    for layer in layers:
        if not 0 <= layer <= top:
            raise ValueError(f"--layers {layer} is not possible: the model has the layers 0 to {top}.")
    probe = None
    if arguments.train is not None:
        probe = _Probe(read_conllu(arguments.train), read_conllu(arguments.dev), arguments)
    results: dict[str, Any] = {
        "command": command_line("hf-elmo"),
        "model": name_of_folder(arguments.model),
        "warm_state": made_of,
        "perplexity": _perplexities(arguments, model, tokenizer),
    }
    if probe is not None:
        results["probe"] = _probe_scores(arguments, model, tokenizer, probe, layers)
    versions = {"hf-elmo": __version__, "transformers": transformers.__version__, "torch": torch.__version__}
    return {**results, "versions": {**versions, "python": platform.python_version()}}


def _load(arguments: argparse.Namespace, device: torch.device) -> tuple[ElmoForPreTraining, ElmoTokenizer, Any]:
    """The language model with a warm state, its tokenizer, and what the state was made of."""
    model, tokenizer = load_language_model(arguments.model)
    made_of: Any = "stored with the model"
    if arguments.warm_text is not None:
        state = state_of_text(arguments, arguments.model, arguments.warm_text, arguments.warm_sentences, device)
        model = with_warm_state(model, state)
        made_of = {"text": [Path(name).name for name in arguments.warm_text], **state.report.to_dict()}
    elif model.config.initial_state != "warm":
        raise ValueError(
            f"{arguments.model} has no warm state to compare with: give text to make one from, --warm-text train.txt, "
            "or a folder that hf-elmo warm-state made."
        )
    return cast(Any, model).to(device).eval(), tokenizer, made_of


def _perplexities(
    arguments: argparse.Namespace, model: ElmoForPreTraining, tokenizer: ElmoTokenizer
) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    for path in arguments.text:
        reader = CorpusReader([path], shuffle=False, epochs=1, errors=arguments.errors)
        sentences = list(islice(cut_long(reader), arguments.max_sentences))
        if not sentences:
            raise ValueError(f"{path} has no sentences.")
        results[path.name] = {
            state: perplexity_of_state(model, tokenizer, sentences, state, show_progress=not arguments.quiet)
            for state in STATES
        }
    return results


def _probe_scores(
    arguments: argparse.Namespace,
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    probe: _Probe,
    layers: Sequence[int],
) -> dict[str, Any]:
    accuracies: dict[str, dict[int, Any]] = {}
    for state in STATES:
        embedder = ElmoEmbedder(model, tokenizer, state=state, batch_invariant=False)
        accuracies[state] = probe.scores(embedder, layers)
    return {
        "train": {"file": arguments.train.name, "sentences": len(probe.train), "words": len(probe.train_labels)},
        "dev": {"file": arguments.dev.name, "sentences": len(probe.dev), "words": probe.counts()},
        "seeds": arguments.seeds,
        "epochs": arguments.epochs,
        "accuracy": {str(layer): {state: accuracies[state][layer] for state in STATES} for layer in layers},
    }


def _tables(results: dict[str, Any]) -> Iterator[str]:
    yield f"model: {results['model']}\n"
    yield f"{'perplexity':<28}" + "".join(f"{state:>12}" for state in STATES)
    for text, figures in results["perplexity"].items():
        for direction in ("forward", "backward", "both"):
            values = "".join(f"{figures[state][direction]:12.2f}" for state in STATES)
            yield f"{f'{text}, {direction}':<28}{values}"
    if "probe" not in results:
        return
    yield f"\n{'parts of speech, accuracy':<28}" + "".join(f"{state:>12}" for state in STATES)
    for layer, by_state in results["probe"]["accuracy"].items():
        for place in ("all", *PLACES, LAST):
            values = "".join(_percent(by_state[state][place]) for state in STATES)
            yield f"{f'layer {layer}, word {place}':<28}{values}"


def _percent(share: float | None) -> str:
    return f"{'-':>12}" if share is None else f"{100 * share:12.2f}"


def plot_states(results: dict[str, Any], path: Path) -> Path:
    """Draws the perplexity of each text as bars, and the accuracy of each layer by place as lines."""
    check_matplotlib()
    layers = results.get("probe", {}).get("accuracy", {})
    figure = _figure((4.5 + 3.6 * len(layers), 4.2))
    axes, *others = figure.subplots(1, 1 + len(layers), squeeze=False)[0]
    texts = list(results["perplexity"])
    for number, state in enumerate(STATES):
        values = [results["perplexity"][text][state]["both"] for text in texts]
        places = np.arange(len(texts)) + (number - 1) * 0.27
        axes.bar(places, values, 0.25, color=COLOURS[number], label=state)
        for place, value in zip(places, values, strict=True):
            note = {"textcoords": "offset points", "ha": "center", "fontsize": 7}
            axes.annotate(f"{value:.1f}", (place, value), (0, 2), **note)
    axes.set_xticks(range(len(texts)), [text.replace("$", r"\$") for text in texts], fontsize=8)
    axes.set_ylabel("perplexity, both directions")
    axes.set_title("Held-out text")
    axes.set_ylim(0, 1.2 * axes.dataLim.ymax)  # room for the legend
    axes.legend(title="initial state", fontsize=8, ncol=3, loc="upper center")
    _tidy(axes)
    kinds = [*PLACES, LAST]
    for axes, (layer, by_state) in zip(others, layers.items(), strict=True):
        for number, state in enumerate(STATES):
            shares = [by_state[state][kind] for kind in kinds]
            percent = [np.nan if share is None else 100 * share for share in shares]
            axes.plot(kinds, percent, color=COLOURS[number], marker=MARKERS[number], label=state)
        axes.set_title(f"Parts of speech, layer {layer}")
        axes.set_xlabel("place of the word in its sentence")
        axes.set_ylabel("accuracy, %")
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(True, axis="y", color="#dddddd", linewidth=0.8)
        _tidy(axes)
    return _save(figure, path)


COMPARE_STATES = Command(
    description="Measures a language model under the three ways in which a sentence can start: from zeros, from a "
    "stored mean state (warm), or from what the sentence before left (carry). For each of them it gives the "
    "perplexity of held-out texts, and with --train and --dev how well a linear classifier reads parts of speech from "
    "the vectors, by layer and by the place of the word in its sentence.",
    examples="""  hf-elmo compare-states my-elmo-warm heldout.txt news.txt --json states.json --plot states.png
  hf-elmo compare-states my-elmo heldout.txt --warm-text train.txt --train en-train.conllu --dev en-dev.conllu \\
      --train-sentences 2000 --layers 1 2""",
    add_arguments=_arguments,
    run=_run,
)
