# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a tagger or a classifier the way the paper did: `hf-elmo finetune tag` and `hf-elmo finetune classify`.

Reads the data, makes the model ([static word vectors; ELMo] -> task LSTM -> CRF or softmax), trains it once for each
seed with the Trainer of transformers, takes the best epoch on the development data, and writes the figures of all
seeds with their mean and standard deviation to results.json. The best model is a folder for `AutoModel...` and
`pipeline`.
"""

import argparse
import json
import math
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import EarlyStoppingCallback, EvalPrediction, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.utils import is_accelerate_available

from hf_elmo.cli import Command
from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.conversion.verify import load_config
from hf_elmo.feature_cache import FeatureCache
from hf_elmo.hub import check_place, finish_folder, new_folder, save_model_files
from hf_elmo.messages import no_bars, reading_weights
from hf_elmo.modeling_elmo_heads import ElmoForSequenceClassification, ElmoForTokenClassification, ElmoTaskModel
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.tokenization_elmo import ElmoTokenizer
from hf_elmo.training import GradualUnfreezing, parameter_groups
from hf_elmo.version import __version__
from hf_elmo.word_vectors import WordVectors, load_word_vectors

from .task_data import (
    ClassificationData,
    TaggingData,
    label_names,
    read_classification_dataset,
    read_conll,
    read_conllu,
    read_sst,
    read_table,
    read_tagging_dataset,
)
from .task_metrics import accuracy, entity_scores, macro_f1, mean_and_deviation, token_accuracy

IGNORED = -100
RESULTS = "results.json"
MODEL = "model"  # the folder of the best seed
SCORES = ("accuracy", "precision", "recall", "f1", "macro_f1")


# --- The command line ------------------------------------------------------------------------------------------------


def _tag_arguments(parser: argparse.ArgumentParser) -> None:
    data = parser.add_argument_group("data")
    data.add_argument("--train", required=True, metavar="FILE", help="training data, or the name of a data set")
    data.add_argument("--dev", required=True, metavar="FILE", help="development data, or the split of the data set")
    data.add_argument(
        "--format", choices=["conll", "conllu", "dataset"], default="conll", help="(default: %(default)s)"
    )
    data.add_argument("--scheme", choices=["BIO", "BIOES"], help="labels are entities, scored as such, in this scheme")
    data.add_argument(
        "--label-column",
        metavar="COLUMN",
        help="conll: a number, by default the last; conllu: upos (default) or xpos; dataset: a name",
    )
    data.add_argument("--word-column", metavar="COLUMN", help="conll: a number, by default 0; dataset: a name")
    _common_arguments(parser)
    parser.add_argument("--crf", action="store_true", help="score labels as a sequence (conditional random field)")


def _classify_arguments(parser: argparse.ArgumentParser) -> None:
    data = parser.add_argument_group("data")
    data.add_argument("--train", required=True, metavar="FILE", help="training data, or the name of a data set")
    data.add_argument("--dev", required=True, metavar="FILE", help="development data, or the split of the data set")
    data.add_argument("--format", choices=["sst", "table", "dataset"], default="table", help="(default: %(default)s)")
    data.add_argument(
        "--classes", choices=["five", "binary"], default="five", help="sst: labels (default: %(default)s)"
    )
    data.add_argument("--phrases", action="store_true", help="sst: train on every phrase of a tree, too")
    data.add_argument("--text-column", default="text", metavar="COLUMN", help="(default: %(default)s)")
    data.add_argument("--pair-column", metavar="COLUMN", help="the second text, if pairs are classified")
    data.add_argument("--label-column", default="label", metavar="COLUMN", help="(default: %(default)s)")
    _common_arguments(parser)
    parser.add_argument(
        "--pooling", choices=["mean", "max", "mean_max", "boundary"], default="mean_max", help="(default: %(default)s)"
    )


def _common_arguments(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model")
    model.add_argument(
        "--elmo",
        metavar="FOLDER",
        help=f"{MODEL_HELP}; without this option, the baseline without ELMo",
    )
    model.add_argument(
        "--random-weights",
        action="store_true",
        help="take only the shape of the biLM, with other random weights for each seed: what ELMo gives untrained",
    )
    model.add_argument("--word-vectors", metavar="FILE", help="static word vectors, such as a GloVe file or package")
    model.add_argument(
        "--all-word-vectors",
        action="store_true",
        help="keep the vectors of all words; by default, of the words of the data",
    )
    model.add_argument("--train-word-vectors", action="store_true", help="let the word vectors learn, too")
    model.add_argument(
        "--task-lstm", type=int, default=200, metavar="N", help="units a direction (default: %(default)s)"
    )
    model.add_argument("--task-lstm-layers", type=int, default=1, metavar="N", help="(default: %(default)s)")
    model.add_argument("--elmo-at-output", action="store_true", help="put ELMo behind the task's LSTM, too")
    model.add_argument("--layers", default="mix", metavar="WHICH", help="mix, top, average or a number (default: mix)")
    model.add_argument(
        "--mix-l2",
        type=float,
        default=0.0,
        metavar="LAMBDA",
        help="penalty on the weights of the mix, which keeps them near to an average (default: %(default)s)",
    )
    model.add_argument(
        "--elmo-dropout", type=float, default=0.5, metavar="P", help="of the vectors of ELMo (default: %(default)s)"
    )
    model.add_argument(
        "--task-dropout",
        type=float,
        default=0.5,
        metavar="P",
        help="before and behind the LSTM of the task (default: %(default)s)",
    )
    model.add_argument(
        "--train-bilm", action="store_true", help="let the biLM learn, slower below, thawed from the top"
    )

    training = parser.add_argument_group("training")
    training.add_argument("--epochs", type=float, default=25, metavar="N", help="at most (default: %(default)s)")
    training.add_argument(
        "--patience", type=int, default=5, metavar="N", help="epochs without gain (default: %(default)s)"
    )
    training.add_argument("--batch-size", type=int, default=32, metavar="N", help="(default: %(default)s)")
    training.add_argument("--learning-rate", type=float, default=1e-3, metavar="R", help="(default: %(default)s)")
    training.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="S", help="(default: 1 2 3)")
    training.add_argument("--share", type=float, default=1.0, help="share of the training data (default: all)")
    training.add_argument("--cache", metavar="DIR", help="keep the layers of the frozen biLM here from epoch to epoch")
    training.add_argument(
        "--cache-type", choices=["float32", "float16"], default="float32", help="how (default: %(default)s)"
    )
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="for the results and the best model")
    parser.add_argument("--overwrite", action="store_true", help="replace earlier results there")


# --- Tasks -----------------------------------------------------------------------------------------------------------


@dataclass
class Task:
    """What differs between tagging and classification."""

    name: str
    model_class: type[ElmoTaskModel]
    train: Any
    dev: Any
    labels: list[str]
    metric: str
    settings: dict[str, Any]
    collate: Callable[[ElmoTokenizer, list[dict[str, Any]]], dict[str, torch.Tensor]]
    examples: Callable[[Any], list[dict[str, Any]]]
    score: Callable[[np.ndarray, np.ndarray], dict[str, float]]
    words: set[str]


def tagging_task(arguments: argparse.Namespace) -> Task:
    train, dev = _read_tagging(arguments, arguments.train, "train"), _read_tagging(arguments, arguments.dev, "dev")
    labels = label_names(train, dev)
    numbers = {label: number for number, label in enumerate(labels)}

    def examples(data: TaggingData) -> list[dict[str, Any]]:
        pairs = zip(data.sentences, data.labels, strict=True)
        return [
            {"words": words, "labels": [numbers[label] for label in tags], "length": len(words)}
            for words, tags in pairs
        ]

    def score(predicted: np.ndarray, gold: np.ndarray) -> dict[str, float]:
        rows = [(p[g != IGNORED], g[g != IGNORED]) for p, g in zip(predicted, gold, strict=True)]
        found, right = ([[labels[k] for k in row[side]] for row in rows] for side in (0, 1))
        scores = {"accuracy": token_accuracy(right, found)}
        if arguments.scheme:
            entities = entity_scores(right, found, arguments.scheme)
            scores |= {name: entities[name] for name in ("precision", "recall", "f1")}
        return scores

    return Task(
        name="tag",
        model_class=ElmoForTokenClassification,
        train=train,
        dev=dev,
        labels=labels,
        metric="f1" if arguments.scheme else "accuracy",
        settings={"use_crf": arguments.crf, "crf_scheme": arguments.scheme if arguments.crf else None},
        collate=collate_tagging,
        examples=examples,
        score=score,
        words=train.words() | dev.words(),
    )


def collate_tagging(tokenizer: ElmoTokenizer, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch of sentences; the boundaries have no label."""
    words = [example["words"] for example in examples]
    batch = tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt")
    labels = torch.full(batch["input_ids"].shape, IGNORED)
    for row, example in enumerate(examples):
        labels[row, 1 : len(example["labels"]) + 1] = torch.tensor(example["labels"])
    return {**batch, "labels": labels}


def _read_tagging(arguments: argparse.Namespace, source: str, split: str) -> TaggingData:
    column, words = arguments.label_column, arguments.word_column
    if arguments.format == "conllu":
        if arguments.scheme:
            raise ValueError("--scheme is for entities; the labels of CoNLL-U are parts of speech.")
        if words:
            raise ValueError("--word-column has no effect: CoNLL-U says where the words are.")
        return read_conllu(source, column or "upos")
    if arguments.format == "conll":
        numbers = {"label_column": _number(column, -1), "word_column": _number(words, 0)}
        return read_conll(source, scheme=arguments.scheme, **numbers)
    return read_tagging_dataset(
        arguments.train,
        split="train" if split == "train" else arguments.dev,
        words_column=words or "tokens",
        labels_column=column or "ner_tags",
        scheme=arguments.scheme,
    )


def _number(column: str | None, default: int) -> int:
    try:
        return default if column is None else int(column)
    except ValueError:
        raise ValueError(f"The column {column!r} of a CoNLL file must be a number, from 0.") from None


def classification_task(arguments: argparse.Namespace) -> Task:
    train = _read_classification(arguments, arguments.train, "train")
    dev = _read_classification(arguments, arguments.dev, "dev")
    labels = label_names(train, dev)
    numbers = {label: number for number, label in enumerate(labels)}
    splitter = ElmoTokenizer()

    def examples(data: ClassificationData) -> list[dict[str, Any]]:
        seconds = data.second_texts or [None] * len(data.texts)
        rows = zip(data.texts, seconds, data.labels, strict=True)
        return [
            {
                "text": text,
                "second": second,
                "split": data.is_split_into_words,
                "label": numbers[label],
                "length": len(text) + len(second or ""),
            }
            for text, second, label in rows
        ]

    def words(data: ClassificationData) -> set[str]:
        texts = [*data.texts, *(data.second_texts or [])]
        split = texts if data.is_split_into_words else map(splitter.tokenize, texts)
        return {word for text in split for word in text}

    def score(predicted: np.ndarray, gold: np.ndarray) -> dict[str, float]:
        right, found = [labels[k] for k in gold], [labels[k] for k in predicted]
        return {"accuracy": accuracy(right, found), "macro_f1": macro_f1(right, found)}

    return Task(
        name="classify",
        model_class=ElmoForSequenceClassification,
        train=train,
        dev=dev,
        labels=labels,
        metric="accuracy",
        settings={"pooling": arguments.pooling, "num_sentences": 1 if train.second_texts is None else 2},
        collate=collate_classification,
        examples=examples,
        score=score,
        words=words(train) | words(dev),
    )


def collate_classification(tokenizer: ElmoTokenizer, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch of texts or pairs."""
    texts = [example["text"] for example in examples]
    seconds = None if examples[0]["second"] is None else [example["second"] for example in examples]
    batch = tokenizer(texts, seconds, is_split_into_words=examples[0]["split"], padding=True, return_tensors="pt")
    return {**batch, "labels": torch.tensor([example["label"] for example in examples])}


def _read_classification(arguments: argparse.Namespace, source: str, split: str) -> ClassificationData:
    if arguments.format == "sst":
        return read_sst(source, arguments.classes, phrases=arguments.phrases and split == "train")
    if arguments.format == "table":
        return read_table(source, arguments.text_column, arguments.label_column, arguments.pair_column)
    return read_classification_dataset(
        arguments.train,
        split="train" if split == "train" else arguments.dev,
        text_column=arguments.text_column,
        label_column=arguments.label_column,
        second_text_column=arguments.pair_column,
    )


# --- The run ---------------------------------------------------------------------------------------------------------


@no_bars()  # of weights, which are read and written in each epoch; that of the training stays
def finetune(task: Task, arguments: argparse.Namespace) -> None:
    """Trains one model for each seed, keeps the best, and writes the results."""
    _refuse_options_without_effect(arguments)
    if not is_accelerate_available():
        raise ImportError('Training needs accelerate, which is not installed: pip install "hf-elmo[train]"')
    if arguments.elmo is not None:
        load_config(model_folder(arguments.elmo))  # says what is wrong with a folder of something else
    output: Path = arguments.output
    results_file = output / RESULTS
    if results_file.exists() and not arguments.overwrite:
        raise FileExistsError(f"{results_file} exists. Choose another folder, or give --overwrite.")
    check_place(output / MODEL, arguments.overwrite)
    output.mkdir(parents=True, exist_ok=True)
    for data in (task.train, task.dev):
        print(data.describe(), file=sys.stderr)
    vectors = _word_vectors(task, arguments)
    tokenizer = _tokenizer(arguments, vectors)
    train, dev = task.examples(task.train), task.examples(task.dev)

    by_seed: dict[str, dict[str, Any]] = {}
    best = -1.0
    for seed in arguments.seeds:
        print(f"seed {seed}", file=sys.stderr)
        set_seed(seed)
        model = make_model(task, arguments, vectors)
        trainer = _trainer(task, arguments, model, tokenizer, _share(train, arguments.share, seed), dev, seed)
        started = time.perf_counter()
        trainer.train()
        minutes = (time.perf_counter() - started) / 60
        scores = {
            name.removeprefix("eval_"): value
            for name, value in trainer.evaluate().items()
            if name.removeprefix("eval_") in {*SCORES, "loss"}
        }
        by_seed[str(seed)] = {
            **scores,
            "epochs": trainer.state.epoch,
            "best_step": trainer.state.best_global_step,
            "minutes": round(minutes, 2),
            "layer_weights": _layer_weights(model),
        }
        print(f"seed {seed}: {task.metric} {scores[task.metric]:.4f} after {minutes:.1f} minutes", file=sys.stderr)
        if scores[task.metric] > best:
            best = scores[task.metric]
            with new_folder(output / MODEL, overwrite=True) as folder:
                save_model_files(model, tokenizer, folder)
                finish_folder(folder)
        _write(results_file, _results(task, arguments, model, by_seed))
    summary = _summary(by_seed)[task.metric]
    deviation = summary["standard_deviation"]
    spread = "" if deviation is None else f" +- {deviation:.4f}"
    seeds = "1 seed" if len(by_seed) == 1 else f"{len(by_seed)} seeds"
    print(f"{task.metric}: {summary['mean']:.4f}{spread} over {seeds}; {results_file}")


def _refuse_options_without_effect(arguments: argparse.Namespace) -> None:
    needs_elmo = {
        "--random-weights": arguments.random_weights,
        "--elmo-at-output": arguments.elmo_at_output,
        "--layers": arguments.layers != "mix",
        "--mix-l2": arguments.mix_l2,
        "--train-bilm": arguments.train_bilm,
        "--cache": arguments.cache,
    }
    needs_word_vectors = {
        "--all-word-vectors": arguments.all_word_vectors,
        "--train-word-vectors": arguments.train_word_vectors,
    }
    for needed, source, options in (
        ("--elmo", arguments.elmo, needs_elmo),
        ("--word-vectors", arguments.word_vectors, needs_word_vectors),
    ):
        given = [option for option, value in options.items() if value]
        if source is None and given:
            raise ValueError(f"{', '.join(given)} has no effect without {needed}.")
    if arguments.cache and arguments.train_bilm:
        raise ValueError(
            "--cache keeps what a frozen biLM computes, but with --train-bilm it changes: give one of them."
        )


def _word_vectors(task: Task, arguments: argparse.Namespace) -> WordVectors | None:
    if arguments.word_vectors is None:
        if arguments.elmo is None:
            raise ValueError("There is nothing to read words with: give --elmo, --word-vectors or both.")
        return None
    vectors = load_word_vectors(arguments.word_vectors)
    return vectors if arguments.all_word_vectors else vectors.restrict(task.words)


def _tokenizer(arguments: argparse.Namespace, vectors: WordVectors | None) -> ElmoTokenizer:
    tokenizer = ElmoTokenizer.from_pretrained(model_folder(arguments.elmo)) if arguments.elmo else ElmoTokenizer()
    if vectors is not None:
        tokenizer.set_word_vectors(vectors.words)
    return tokenizer


def make_model(task: Task, arguments: argparse.Namespace, vectors: WordVectors | None) -> ElmoTaskModel:
    """A model with a fresh head, on the weights of the ELMo folder if there is one."""
    settings = {
        "use_elmo": arguments.elmo is not None,
        "freeze_bilm": not arguments.train_bilm,
        "layer_combination": int(arguments.layers) if arguments.layers.isdigit() else arguments.layers,
        "mix_l2": arguments.mix_l2,
        "elmo_dropout": arguments.elmo_dropout,
        "task_dropout": arguments.task_dropout,
        "task_lstm_size": arguments.task_lstm,
        "task_lstm_layers": arguments.task_lstm_layers,
        "elmo_at_output": arguments.elmo_at_output,
        "train_word_vectors": arguments.train_word_vectors,
        "word_vector_size": 0 if vectors is None else vectors.matrix.shape[1],
        "word_vector_vocab_size": 0 if vectors is None else len(vectors) + 2,
        "id2label": dict(enumerate(task.labels)),
        "label2id": {label: number for number, label in enumerate(task.labels)},
        **task.settings,
    }
    if arguments.elmo is None:
        model = task.model_class(ElmoConfig(vocab_size=4, **settings))
    else:
        folder = model_folder(arguments.elmo)
        known, _ = ElmoConfig.get_config_dict(folder)
        config = ElmoConfig.from_dict({**known, **settings})
        model = task.model_class(config) if arguments.random_weights else _on_bilm(folder, task.model_class, config)
    if vectors is not None:
        model.set_word_vectors(vectors.embedding_matrix())
    return model


def _on_bilm(folder: Path, model_class: type[ElmoTaskModel], config: ElmoConfig) -> ElmoTaskModel:
    """A model on the biLM of a folder. Its head and its mix may be fresh, and a softmax or other head is left out.

    That is what is asked for, so it is not reported. A biLM that is not whole is an error.
    """
    with reading_weights(folder):
        model, report = model_class.from_pretrained(
            folder, config=config, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True
        )
    of_bilm = {name.partition(".")[0] for name in model.elmo.state_dict()} - {"mixes"}
    for problem, names in (("lacks", report["missing_keys"]), ("has unknown", report["unexpected_keys"])):
        wrong = sorted(name for name in names if name.removeprefix("elmo.").partition(".")[0] in of_bilm)
        if wrong:
            raise ValueError(f"{folder} {problem} weights of the biLM: {', '.join(wrong[:5])}. Get the folder again.")
    for name, stored, expected in sorted(report["mismatched_keys"]):
        raise ValueError(
            f"{folder} has weights of another shape than this model needs: {name} {tuple(stored)}, not "
            f"{tuple(expected)}. Give the folder of the biLM, not of a task with other labels or sizes."
        )
    return model


def _trainer(
    task: Task,
    arguments: argparse.Namespace,
    model: ElmoTaskModel,
    tokenizer: ElmoTokenizer,
    train: list[dict[str, Any]],
    dev: list[dict[str, Any]],
    seed: int,
) -> Trainer:
    if arguments.cache is not None:
        model.feature_cache = FeatureCache(arguments.cache, dtype=arguments.cache_type)

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        return task.score(np.asarray(prediction.predictions), np.asarray(prediction.label_ids))

    def best_labels(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return logits.argmax(dim=-1)

    if arguments.train_bilm:
        groups: Any = parameter_groups(model, arguments.learning_rate)
    else:
        groups = [parameter for parameter in model.parameters() if parameter.requires_grad]
    trainer = LengthGroupedTrainer(
        model,
        TrainingArguments(
            output_dir=str(arguments.output / f"seed-{seed}"),
            num_train_epochs=arguments.epochs,
            per_device_train_batch_size=arguments.batch_size,
            per_device_eval_batch_size=2 * arguments.batch_size,
            learning_rate=arguments.learning_rate,
            lr_scheduler_type="constant",
            max_grad_norm=5.0,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model=task.metric,
            greater_is_better=True,
            logging_strategy="epoch",
            remove_unused_columns=False,
            label_names=["labels"],
            report_to=[],
            seed=seed,
            dataloader_pin_memory=False,
        ),
        data_collator=lambda examples: task.collate(tokenizer, examples),
        train_dataset=train,
        eval_dataset=dev,
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=best_labels,
        optimizers=(torch.optim.Adam(groups, lr=arguments.learning_rate), None),
        callbacks=[
            EarlyStoppingCallback(arguments.patience),
            *([GradualUnfreezing()] if arguments.train_bilm else []),
        ],
    )
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(EpochLines(task.metric))
    return trainer


class LengthGroupedTrainer(Trainer):
    """Puts sentences of about the same length into a batch: an LSTM takes as many steps as the longest has words."""

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:
        examples: Any = self.train_dataset if train_dataset is None else train_dataset
        lengths = [example["length"] for example in examples]
        return LengthGroupedSampler(self.args.train_batch_size, lengths=lengths)


class EpochLines(ProgressCallback):
    """The progress bar of Trainer with one line an epoch, instead of all that Trainer logs."""

    def __init__(self, metric: str):
        super().__init__()
        self.metric = metric
        self.loss = math.nan

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """The loss in training comes first, then the scores on the development data."""
        logs = logs or {}
        self.loss = logs.get("loss", self.loss)
        score = logs.get(f"eval_{self.metric}")
        if score is not None and self.training_bar is not None:
            line = f"epoch {state.epoch:g}: loss {self.loss:.4f} in training, {self.metric} {score:.4f} on dev"
            self.training_bar.write(line, file=sys.stderr)


def _share(examples: list[dict[str, Any]], share: float, seed: int) -> list[dict[str, Any]]:
    """A share of the examples, drawn with the seed of the run: all systems get the same ones."""
    if not 0 < share <= 1:
        raise ValueError(f"--share {share} is not possible: it must be above 0 and at most 1.")
    if share == 1:
        return examples
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(examples), generator=generator)[: max(round(share * len(examples)), 1)]
    return [examples[number] for number in sorted(chosen.tolist())]


# --- The results -----------------------------------------------------------------------------------------------------


def _layer_weights(model: ElmoTaskModel) -> list[list[float]] | None:
    if not model.config.use_elmo:
        return None
    count = len(model.elmo.mixes) or 1
    return [[round(w, 4) for w in model.layer_weights(number).weights.tolist()] for number in range(count)]


def _results(
    task: Task, arguments: argparse.Namespace, model: ElmoTaskModel, by_seed: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    return {
        "command": _command(task, arguments),
        "task": task.name,
        "train": task.train.describe(),
        "dev": task.dev.describe(),
        "metric": task.metric,
        "summary": _summary(by_seed),
        "seeds": by_seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "versions": {
            "hf-elmo": __version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _summary(by_seed: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    scored = [name for name in SCORES if name in next(iter(by_seed.values()))]
    return {name: mean_and_deviation([scores[name] for scores in by_seed.values()]) for name in scored}


def _command(task: Task, arguments: argparse.Namespace) -> str:
    """The command line without the folders of this machine."""
    words = ["hf-elmo", "finetune", task.name]
    for name, value in vars(arguments).items():
        option = "--" + name.replace("_", "-")
        if name in {"run", "debug", "overwrite"} or value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif name in {"train", "dev", "elmo", "word_vectors", "output", "cache"}:
            words += [option, Path(value).name]
        elif isinstance(value, list):
            words += [option, *map(str, value)]
        else:
            words += [option, str(value)]
    return shlex.join(words)


def _write(path: Path, results: dict[str, Any]) -> None:
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


TAG = Command(
    description="Trains a tagger (named entities, parts of speech) on CoNLL, CoNLL-U or a data set.",
    examples="""  hf-elmo finetune tag --train eng.train --dev eng.testa --scheme BIOES --crf \\
      --elmo elmo-small --word-vectors glove.6B.50d.txt --output ner
  hf-elmo finetune tag --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --format conllu \\
      --word-vectors glove-6b-50d --output pos-without-elmo""",
    add_arguments=_tag_arguments,
    run=lambda arguments: finetune(tagging_task(arguments), arguments),
)

CLASSIFY = Command(
    description="Trains a classifier of sentences or pairs on SST trees, a table or a data set.",
    examples="""  hf-elmo finetune classify --train train.txt --dev dev.txt --format sst --elmo elmo-small --output sst
  hf-elmo finetune classify --train train.tsv --dev dev.tsv --pair-column hypothesis --text-column premise \\
      --elmo elmo-small --word-vectors glove-6b-50d --output nli""",
    add_arguments=_classify_arguments,
    run=lambda arguments: finetune(classification_task(arguments), arguments),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `hf-elmo finetune` from a checkout: `python -m hf_elmo.scripts.finetune tag ...`."""
    from hf_elmo.cli import main as command_line

    return command_line(["finetune", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
