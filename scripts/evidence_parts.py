# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""What is measured to repeat the paper's claims: the parts of the evidence, their runs, and the command of each run.

A run is one results file, `ner/elmo` for instance. A part is a table or a figure made of some runs; parts share runs:
the learned mix of `layers` is the system with ELMo of `pos-tag`. All systems of a task differ in what their words are
made of, and in nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# The files of the data folder.
FILES = {
    "ner": ("ner/eng.train", "ner/eng.testa"),
    "sst5": ("sst5/train.txt", "sst5/dev.txt"),
    "ud": ("ud/en_ewt-ud-train.conllu", "ud/en_ewt-ud-dev.conllu"),
    "wsd": ("wsd/semcor.jsonl.gz", "wsd/semeval2007"),
    "domain": ("lm1b/heldout-dev.txt",),
}
DATA_OF_PART = {
    "ner": "ner",
    "sst5": "sst5",
    "pos-tag": "ud",
    "pos": "ud",
    "wsd": "wsd",
    "layers": "ud",
    "output": "ud",
    "sizes": "ud",
    "domain": "domain",
}

TASKS = ("ner", "sst5", "pos-tag")
SYSTEMS = ("without", "elmo", "random")
LAYERS_TASK = OUTPUT_TASK = SIZES_TASK = "pos-tag"  # fast to train, and its scores vary little from seed to seed
SEEDS = (1, 2, 3)
QUICK_SEEDS = (1, 2)

# Percent of the training sentences, and how often they are read: small shares have few steps in an epoch.
EPOCHS_OF_SHARE = {1: 40, 2: 30, 5: 20, 10: 16, 20: 12, 50: 10}
QUICK_SHARES = (50,)
ALL = 100

_TAGGER = ["--task-lstm", "100", "--task-dropout", "0.25", "--learning-rate", "0.002", "--patience", "3"]
OPTIONS_OF_TASK = {
    "ner": ["tag", "--scheme", "BIOES", "--crf", *_TAGGER],
    "pos-tag": ["tag", "--format", "conllu", *_TAGGER],
    "sst5": ["classify", "--format", "sst", "--pooling", "mean_max", "--task-lstm", "100", "--patience", "3"],
}
EPOCHS_OF_TASK = {"ner": 8, "pos-tag": 8, "sst5": 8}
# For every system with ELMo, the random one included.
ELMO_DROPOUT = {"ner": 0.25, "pos-tag": 0.25, "sst5": 0.5}
LAMBDA = 0.001
QUICK_TASK = ["--task-lstm", "4", "--patience", "1"]

# The held-out part of the other domain is each sentence whose number, from 1, can be divided by this.
HELDOUT_EVERY = 5
DOMAIN_TRAINING = ["--optimizer", "adam", "--learning_rate", "0.001", "--schedule", "linear", "--batch_size", "64"]


def _of_task(task: str) -> list[str]:
    return [f"{task}/{system}" for system in SYSTEMS]


def size_runs(shares: Sequence[int], task: str = SIZES_TASK) -> dict[tuple[int, str], str]:
    """The run of each share of the training set, in percent, without and with ELMo."""
    runs = {(share, system): f"sizes/{share}-{system}" for share in shares for system in ("without", "elmo")}
    return {**runs, (ALL, "without"): f"{task}/without", (ALL, "elmo"): f"{task}/elmo"}


def parts(quick: bool = False) -> dict[str, list[str]]:
    """The runs of each part, in the order in which they are run."""
    shares = QUICK_SHARES if quick else tuple(EPOCHS_OF_SHARE)
    seeds = QUICK_SEEDS[:1] if quick else SEEDS
    return {
        **{task: _of_task(task) for task in TASKS},
        "pos": ["pos/probe"],
        "wsd": ["wsd/probe"],
        "layers": list(LAYER_RUNS.values()),
        "output": list(OUTPUT_RUNS.values()),
        "sizes": list(size_runs(shares).values()),
        "weights": list(WEIGHT_RUNS),
        "domain": ["domain/before", *(f"domain/after-{seed}" for seed in seeds)],
    }


# What stands in the tables, by the run.
LAYER_RUNS = {
    "without ELMo": f"{LAYERS_TASK}/without",
    "last layer": "layers/last",
    "average of all layers": "layers/average",
    "learned mix, lambda 1": "layers/lambda-1",
    f"learned mix, lambda {LAMBDA}": f"{LAYERS_TASK}/elmo",
}
OUTPUT_RUNS = {
    "without ELMo": f"{OUTPUT_TASK}/without",
    "input": f"{OUTPUT_TASK}/elmo",
    "input and output": "output/both",
}
WEIGHT_RUNS = (*(f"{task}/elmo" for task in TASKS), "output/both")
NAMES = {
    "without": "without ELMo",
    "random": "random weights",
    "ner": "named entities",
    "sst5": "sentiment",
    "pos-tag": "parts of speech",
}


# --- Commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Where things are, and how much is done.

    Args:
        data: The folder with the files.
        work: A folder for features, models and what else may be deleted.
        elmo: The model: a folder, or the name of the one in the package.
        word_vectors: Static word vectors, a file or the name of a package.
        wordnet: WordNet's index.sense.
        quick: Whether to see only that everything runs.
    """

    data: Path
    work: Path
    elmo: str
    word_vectors: str
    wordnet: Path | None = None
    quick: bool = False

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those of each system."""
        return QUICK_SEEDS if self.quick else SEEDS

    def files(self, kind: str) -> list[str]:
        """The files of a kind of data."""
        return [str(self.data / name) for name in FILES[kind]]


@dataclass(frozen=True)
class _TaskRun:
    """What a run that trains a task trains on what."""

    task: str
    system: str
    share: int = ALL
    options: tuple[str, ...] = ()


def _task_run(run: str) -> _TaskRun:
    part, _, name = run.partition("/")
    mix = ("--mix-l2", str(LAMBDA))
    if part == "sizes":
        percent, _, system = name.partition("-")
        return _TaskRun(SIZES_TASK, system, int(percent), mix if system == "elmo" else ())
    if part == "layers":
        options = {"last": ("--layers", "top"), "average": ("--layers", "average"), "lambda-1": ("--mix-l2", "1")}
        return _TaskRun(LAYERS_TASK, "elmo", options=options[name])
    if part == "output":
        return _TaskRun(OUTPUT_TASK, "elmo", options=("--elmo-at-output", *mix))
    return _TaskRun(part, name, options=() if name == "without" else mix)


def finetune_command(run: str, setting: Setting) -> list[str]:
    """The command of a run that trains a task."""
    wanted = _task_run(run)
    task, system, share = wanted.task, wanted.system, wanted.share
    kind, *options = OPTIONS_OF_TASK[task]
    train, dev = setting.files(DATA_OF_PART[task])
    epochs = EPOCHS_OF_TASK[task] if share == ALL else EPOCHS_OF_SHARE[share]
    command = ["finetune", kind, "--train", train, "--dev", dev, *options]
    command += ["--epochs", "1", *QUICK_TASK] if setting.quick else ["--epochs", str(epochs)]
    command += ["--word-vectors", setting.word_vectors, "--seeds", *map(str, setting.seeds)]
    if share != ALL:
        command += ["--share", str(share / ALL)]
    if system != "without":
        features = setting.work / "features" / f"{task}-{system}"
        command += ["--elmo", setting.elmo, *(["--random-weights"] if system == "random" else []), *wanted.options]
        command += ["--elmo-dropout", str(ELMO_DROPOUT[task]), "--cache", str(features), "--cache-type", "float16"]
    return [*command, "--output", str(setting.work / run), "--overwrite"]


def probe_command(run: str, setting: Setting, output: Path) -> list[str]:
    """The command of a run that measures layers as they are."""
    kind = run.partition("/")[0]
    train, dev = setting.files(DATA_OF_PART[kind])
    command = ["probe", kind, setting.elmo, "--train", train, "--dev", dev, "--random-weights"]
    command += ["--word-vectors", setting.word_vectors, "--seeds", *map(str, setting.seeds)]
    if kind == "wsd":
        command += ["--wordnet", str(setting.wordnet)]
    if setting.quick and kind == "pos":
        command += ["--epochs", "1"]
    return [*command, "--json", str(output), "--overwrite"]


def domain_commands(run: str, setting: Setting, model: Path, output: Path) -> list[list[str]]:
    """The commands of a run of the other domain: training, unless it is the one before, and the perplexity."""
    train, heldout = (str(setting.work / "domain" / f"news-{name}.txt") for name in ("train", "heldout"))
    name = run.partition("/")[2]
    commands = []
    if name != "before":
        seed = name.removeprefix("after-")
        trained = setting.work / run
        options = ["--epochs", "1", *DOMAIN_TRAINING, "--seed", seed, "--no-unigram_baseline"]
        options += ["--batch_size", "2"] if setting.quick else []
        commands.append(["pretrain", "--init_from", str(model), "--text", train, *options, "--output", str(trained)])
        model = trained / "model"
    commands.append(["perplexity", str(model), heldout, "--mode", "stream", "--json", str(output), "--overwrite"])
    return commands
