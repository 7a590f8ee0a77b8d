"""What the official example programs of transformers do, done with our folders.

The examples (`run_ner.py`, `run_glue.py`, `run_classification.py`, `run_qa.py`) are in the repository of transformers
only, in none of its packages. The first part of this file takes their steps by itself: the same Auto classes,
arguments of the tokenizer, collators and ways to evaluate. The second part runs the unmodified programs, if the
environment variable `HF_ELMO_TRANSFORMERS_EXAMPLES` names the folder `examples/pytorch` of a checkout.
"""

import csv
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, load_dataset
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedConfig,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")]

EXAMPLES = os.environ.get("HF_ELMO_TRANSFORMERS_EXAMPLES")

# --- The data, in the formats that the examples read -----------------------------------------------------------------

TAGGED = [
    ("John Smith saw Maria in Paris .", "B-PER I-PER O B-PER O B-LOC O"),
    ("New York is far from U.S. soil", "B-LOC I-LOC O O O B-LOC O"),
    ("Ada 🙂 , said John", "B-PER O O O B-PER"),
    ("Nobody was there .", "O O O O"),
    ("Smith left Paris for New York", "B-PER O B-LOC O B-LOC I-LOC"),
    ("They like the sea", "O O O O"),
]
RATED = [
    ("A fine film, really!", 1),
    ("What a bore...", 0),
    ("I liked it's end.", 1),
    ("Not for me", 0),
    ("Fine, fine, fine", 1),
    ("Bad bad bad 🙂", 0),
]
PAIRED = [
    ("A man sleeps.", "He is awake.", 0),
    ("A dog runs fast.", "An animal moves.", 1),
    ("It rains.", "It's wet.", 1),
    ("She sings.", "She is silent.", 0),
    ("All came.", "Nobody came.", 0),
    ("He ate an apple.", "He ate.", 1),
]
FILLER = "It's a quiet place — and 🙂 it always was, even in the winter. "
ASKED = [
    # question, what is said in the middle of the context, and which part of it answers the question
    ("When was the tower built?", "The “Old Tower” was built in 1423, not later.", "1423"),
    ("  Who built it?", "A mason, Ada Nowak, built the walls.", "Ada Nowak"),
    ("Who paid for the roof?", "After the fire John O’Brien paid for the roof.", "John O’Brien"),
    ("What is in it?", "Today one finds the town's library in it.", "the town's library"),
    ("Is it haunted?", "", None),
]
CONTEXTS = [FILLER + said + " " + FILLER for _, said, _ in ASKED]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def write_csv(path: Path, header: list[str], rows: list[tuple]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def tagged_file(folder: Path) -> str:
    rows = [{"tokens": words.split(), "ner_tags": labels.split()} for words, labels in TAGGED]
    return write_lines(folder / "tagged.json", rows)


def rated_file(folder: Path) -> str:
    return write_csv(folder / "rated.csv", ["sentence", "label"], RATED)


def paired_file(folder: Path) -> str:
    return write_csv(folder / "paired.csv", ["sentence1", "sentence2", "label"], PAIRED)


def asked_file(folder: Path) -> str:
    rows = []
    for number, (question, _, answer) in enumerate(ASKED):
        answers = {"text": [], "answer_start": []}
        if answer is not None:
            answers = {"text": [answer], "answer_start": [CONTEXTS[number].index(answer)]}
        rows.append({"id": str(number), "question": question, "context": CONTEXTS[number], "answers": answers})
    path = folder / "asked.json"
    path.write_text(json.dumps({"data": rows}), encoding="utf-8")
    return str(path)


def saved_folder(folder: Path, **overrides: Any) -> Path:
    """A model without a head, whose vectors tell words apart, and its tokenizer."""
    import torch
    from tiny import tiny_config

    from hf_elmo import ElmoModel, ElmoTokenizer

    sizes = {"projection_size": 24, "char_embedding_size": 16, "char_cnn_filters": [[1, 8], [2, 16], [3, 16]]}
    ranges = {"char_cnn_activation": "tanh", "cell_clip": 3.0, "projection_clip": 3.0}
    torch.manual_seed(0)
    model = ElmoModel(tiny_config(**sizes, **ranges, **{"elmo_dropout": 0.0, "task_dropout": 0.0, **overrides}))
    for mix in model.mixes:
        torch.nn.init.constant_(mix.gamma, 10.0)
    model.save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)
    return folder


# --- The steps of the examples ---------------------------------------------------------------------------------------


def arguments(output: Path, **overrides: Any) -> TrainingArguments:
    settings: dict[str, Any] = {
        "max_steps": 100,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 3,
        "learning_rate": 0.01,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(str(output), **{**settings, **overrides})


def load(auto_class: Any, folder: Path, custom_code: bool, **settings: Any) -> tuple[Any, Any]:
    """Config, tokenizer and model, one after the other, as every example loads them."""
    options = {"cache_dir": None, "revision": "main", "token": None, "trust_remote_code": custom_code}
    config = AutoConfig.from_pretrained(folder, **settings, **options)
    tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, **options)
    model = auto_class.from_pretrained(folder, from_tf=False, config=config, ignore_mismatched_sizes=False, **options)
    return tokenizer, model


def finish(trainer: Trainer) -> dict[str, float]:
    """Trains, saves everything that the examples save, and evaluates."""
    result = trainer.train()
    trainer.save_model()
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    metrics = trainer.evaluate()
    trainer.save_metrics("eval", metrics)
    trainer.create_model_card(finetuned_from="elmo", tasks="token-classification")
    return metrics


def tag_words(folder: Path, work: Path, custom_code: bool = False, **settings: Any) -> dict[str, float]:
    """The way of run_ner.py."""
    set_seed(1)
    file = tagged_file(work)
    data = load_dataset("json", data_files={"train": file, "validation": file}, cache_dir=str(work / "cache"))
    names = sorted({label for labels in data["train"]["ner_tags"] for label in labels})
    task = {"num_labels": len(names), "finetuning_task": "ner", **settings}
    tokenizer, model = load(AutoModelForTokenClassification, folder, custom_code, **task)
    if model.config.label2id != PreTrainedConfig(num_labels=len(names)).label2id:
        assert sorted(model.config.label2id) == names
        names = [model.config.id2label[number] for number in range(len(names))]
    model.config.label2id = {name: number for number, name in enumerate(names)}
    model.config.id2label = dict(enumerate(names))

    def encode(rows: dict[str, list]) -> Any:
        encoded = tokenizer(rows["tokens"], padding=False, truncation=True, max_length=None, is_split_into_words=True)
        encoded["labels"] = [
            [-100 if place is None else names.index(labels[place]) for place in encoded.word_ids(batch_index=row)]
            for row, labels in enumerate(rows["ner_tags"])
        ]
        return encoded

    def accuracy(prediction: Any) -> dict[str, float]:
        logits, labels = prediction
        labelled = labels != -100
        assert labelled.sum() == sum(len(words.split()) for words, _ in TAGGED)
        return {"accuracy": float((logits.argmax(axis=2) == labels)[labelled].mean())}

    data = data.map(encode, batched=True, num_proc=2, load_from_cache_file=False)
    trainer = Trainer(
        model,
        arguments(work / "output"),
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorForTokenClassification(tokenizer, pad_to_multiple_of=None),
        compute_metrics=accuracy,
    )
    return finish(trainer)


def classify_texts(folder: Path, work: Path, custom_code: bool = False, **settings: Any) -> dict[str, float]:
    """The way of run_glue.py and run_classification.py: a text or a pair, padded to one length from the start."""
    set_seed(1)
    pairs = settings.pop("pairs", False)
    file = paired_file(work) if pairs else rated_file(work)
    data = load_dataset("csv", data_files={"train": file, "validation": file}, cache_dir=str(work / "cache"))
    names = sorted(set(data["train"]["label"]))
    task = {"num_labels": len(names), "finetuning_task": None, **settings}
    tokenizer, model = load(AutoModelForSequenceClassification, folder, custom_code, **task)
    model.config.label2id = {str(name): number for number, name in enumerate(names)}
    model.config.id2label = {number: str(name) for number, name in enumerate(names)}

    def encode(rows: dict[str, list]) -> Any:
        texts = (rows["sentence1"], rows["sentence2"]) if pairs else (rows["sentence"],)
        encoded = tokenizer(*texts, padding="max_length", max_length=16, truncation=True)
        encoded["label"] = [names.index(label) for label in rows["label"]]  # numbers: datasets keeps a column's type
        return encoded

    def accuracy(prediction: Any) -> dict[str, float]:
        logits = prediction.predictions
        logits = logits[0] if isinstance(logits, tuple) else logits
        return {"accuracy": float((np.argmax(logits, axis=1) == prediction.label_ids).mean())}

    data = data.map(encode, batched=True, load_from_cache_file=False)
    trainer = Trainer(
        model,
        arguments(work / "output"),
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        compute_metrics=accuracy,
        processing_class=tokenizer,
        data_collator=default_data_collator,
    )
    return finish(trainer)


def answer_questions(folder: Path, work: Path, custom_code: bool = False, **settings: Any) -> dict[str, float]:
    """The way of run_qa.py: long contexts in overlapping parts, answers found again through the offsets."""
    set_seed(1)
    pad = settings.pop("pad", False)
    file = asked_file(work)
    data = load_dataset(
        "json", data_files={"train": file, "validation": file}, field="data", cache_dir=str(work / "cache")
    )
    tokenizer, model = load(AutoModelForQuestionAnswering, folder, custom_code, **settings)

    def encode(rows: dict[str, list]) -> Any:
        return tokenizer(
            [question.lstrip() for question in rows["question"]],
            rows["context"],
            truncation="only_second",
            max_length=28,
            stride=8,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding="max_length" if pad else False,
        )

    def training_features(rows: dict[str, list]) -> Any:
        encoded = encode(rows)
        samples, all_offsets = encoded.pop("overflow_to_sample_mapping"), encoded.pop("offset_mapping")
        assert len(samples) > len(rows["question"])  # contexts are cut in parts
        encoded["start_positions"], encoded["end_positions"] = [], []
        for part, (sample, offsets) in enumerate(zip(samples, all_offsets, strict=True)):
            answers, places = rows["answers"][sample], encoded.sequence_ids(part)
            start, end = positions_of(answers, offsets, places)
            if start is None:
                start = end = encoded["input_ids"][part].index(tokenizer.bos_token_id)
            encoded["start_positions"].append(start)
            encoded["end_positions"].append(end)
        return encoded

    def evaluation_features(rows: dict[str, list]) -> Any:
        encoded = encode(rows)
        encoded["example_id"] = [rows["id"][sample] for sample in encoded.pop("overflow_to_sample_mapping")]
        for part, offsets in enumerate(encoded["offset_mapping"]):
            places = encoded.sequence_ids(part)
            encoded["offset_mapping"][part] = [
                span if place == 1 else None for span, place in zip(offsets, places, strict=True)
            ]
        return encoded

    columns = data["train"].column_names
    train = data["train"].map(training_features, batched=True, remove_columns=columns, num_proc=2)
    evaluation = data["validation"].map(evaluation_features, batched=True, remove_columns=columns)
    trainer = Trainer(
        model,
        arguments(work / "output", max_steps=300),
        train_dataset=train,
        processing_class=tokenizer,
        data_collator=default_data_collator if pad else DataCollatorWithPadding(tokenizer),
    )
    trainer.train()
    trainer.save_model()
    readable = evaluation.remove_columns(["example_id", "offset_mapping"])
    start_logits, end_logits = trainer.predict(readable).predictions
    answers = best_answers(data["validation"], evaluation, start_logits, end_logits)
    wanted = {str(number): answer for number, (_, _, answer) in enumerate(ASKED) if answer is not None}
    return {"exact_match": float(np.mean([answers[key] == wanted[key] for key in wanted]))}


def positions_of(answers: dict[str, list], offsets: list, places: list) -> tuple[int | None, int | None]:
    """First and last position of the answer, if this part of the context has all of it."""
    if not answers["answer_start"]:
        return None, None
    begin = answers["answer_start"][0]
    end = begin + len(answers["text"][0])
    context = [position for position, place in enumerate(places) if place == 1]
    if offsets[context[0]][0] > begin or offsets[context[-1]][1] < end:
        return None, None
    first = max(position for position in context if offsets[position][0] <= begin)
    last = min(position for position in context if offsets[position][1] >= end)
    return first, last


def best_answers(examples: Dataset, parts: Dataset, start_logits: Any, end_logits: Any) -> dict[str, str]:
    """The best span of all parts of each context, cut out of the context."""
    spans: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for row, part in enumerate(parts):
        offsets, starts, ends = part["offset_mapping"], start_logits[row], end_logits[row]
        context = [position for position, span in enumerate(offsets) if span is not None]
        spans[part["example_id"]] += [
            (float(starts[first] + ends[last]), offsets[first][0], offsets[last][1])
            for first in context
            for last in context
            if first <= last < first + 6
        ]
    contexts = dict(zip(examples["id"], examples["context"], strict=True))
    best = {key: max(candidates) for key, candidates in spans.items()}
    return {key: contexts[key][begin:end] for key, (_, begin, end) in best.items()}


# --- The tests of the steps ------------------------------------------------------------------------------------------

TASK_LSTM = {"task_lstm_size": 32}
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TASKS: dict[str, tuple[Callable[..., dict[str, float]], dict[str, Any], dict[str, Any]]] = {
    # the steps, settings of the folder's model, and what is set when it is loaded
    "tags": (tag_words, {}, TASK_LSTM),
    "tags with a conditional random field": (tag_words, {"use_crf": True}, TASK_LSTM),
    "tags of a known scheme": (
        tag_words,
        {
            "use_crf": True,
            "crf_scheme": "BIO",
            "id2label": dict(enumerate(LABELS)),
            "label2id": {label: number for number, label in enumerate(LABELS)},
        },
        TASK_LSTM,
    ),
    "texts": (classify_texts, {}, {**TASK_LSTM, "problem_type": "single_label_classification"}),
    "pairs": (classify_texts, {"num_sentences": 2}, {**TASK_LSTM, "pairs": True}),
    "answers": (answer_questions, {}, TASK_LSTM),
    "padded answers": (answer_questions, {}, {**TASK_LSTM, "pad": True}),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # datasets 4.0 leaves a table open
@pytest.mark.parametrize("task", [task for task in TASKS if task != "padded answers"])
def test_steps_of_the_examples(task, tmp_path):
    """Everything is learned by heart, which only works if labels, words and offsets belong together."""
    steps, made_with, loaded_with = TASKS[task]
    folder = saved_folder(tmp_path / "elmo", **made_with)
    metrics = steps(folder, tmp_path, **loaded_with)
    assert metrics.get("eval_accuracy", metrics.get("exact_match")) == 1.0
    saved = json.loads((tmp_path / "output" / "config.json").read_text())
    assert saved["architectures"][0].startswith("ElmoFor")
    assert (tmp_path / "output" / "tokenizer.json").is_file()


WITHOUT_THE_PACKAGE = """
import json, os, sys
from pathlib import Path

sys.modules["hf_elmo"] = None  # an import fails
sys.path.insert(0, os.environ["TESTS"])
import test_examples

task, work = os.environ["TASK"], Path(os.environ["WORK"])
steps, _, settings = test_examples.TASKS[task]
print(json.dumps(steps(work / "elmo", work, custom_code=True, **settings)))
"""


@pytest.mark.parametrize("task", ["tags of a known scheme", "pairs", "padded answers"])
def test_steps_of_the_examples_without_the_package(task, tmp_path):
    """As the examples are run in fact: they know nothing of this package and take the code of the folder."""
    saved_folder(tmp_path / "elmo", **TASKS[task][1])
    variables = {"TASK": task, "WORK": str(tmp_path), "TESTS": str(Path(__file__).parent)}
    finished = run(["-c", WITHOUT_THE_PACKAGE], tmp_path, variables)
    metrics = json.loads(finished.splitlines()[-1])
    assert metrics.get("eval_accuracy", metrics.get("exact_match")) == 1.0


def run(command: list[str], work: Path, variables: dict[str, str] | None = None) -> str:
    """Runs Python in a process of its own, in the folder `work`, and returns what it printed."""
    environment = {**os.environ, **(variables or {}), "HF_HOME": str(work / "home")}
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}  # small models wait for threads
    finished = subprocess.run(
        [sys.executable, *command], cwd=work, env=environment, capture_output=True, text=True, timeout=600
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    return finished.stdout


# --- The programs themselves -----------------------------------------------------------------------------------------

# The metrics of `evaluate` are on the Hub; a folder of the same name in the working directory comes before it.
METRIC = """
import datasets
import evaluate


class Metric(evaluate.Metric):
    def _info(self):
        features = datasets.Features({{"predictions": {feature}, "references": {reference}}})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references, **options):
        {compute}
"""
NUMBER = 'datasets.Value("float32")'
TEXTS = 'datasets.Sequence(datasets.Value("string"))'
ANSWERS = f'{{"text": {TEXTS}, "answer_start": datasets.Sequence(datasets.Value("int32"))}}'
SHARE = "sum(p == r for p, r in zip(predictions, references)) / len(references)"
METRICS = {
    # name: what a prediction is, what a reference is, and how they are compared
    "accuracy": (NUMBER, NUMBER, f'return {{"accuracy": {SHARE}}}'),
    "seqeval": (
        TEXTS,
        TEXTS,
        f'return dict.fromkeys(["overall_" + n for n in ("precision", "recall", "f1", "accuracy")], {SHARE})',
    ),
    "squad": (
        '{"id": datasets.Value("string"), "prediction_text": datasets.Value("string")}',
        f'{{"id": datasets.Value("string"), "answers": {ANSWERS}}}',
        'found = {p["id"]: p["prediction_text"] for p in predictions}; '
        'asked = [r for r in references if r["answers"]["text"]]; '
        'return {"exact_match": sum(found[r["id"]] in r["answers"]["text"] for r in asked) / len(asked)}',
    ),
}

COMMON = {
    "learning_rate": "0.01",
    "max_steps": "100",
    "per_device_train_batch_size": "8",
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": "True",
    "seed": "1",
}
PROGRAMS: dict[str, tuple[str, Callable[[Path], str], dict[str, Any], dict[str, str], str]] = {
    # the program, its data, settings of the folder's model, further arguments, and the metric that must be perfect
    "run_ner": (
        "token-classification/run_ner.py",
        tagged_file,
        {"use_crf": True},
        {"preprocessing_num_workers": "2"},
        "eval_accuracy",
    ),
    "run_glue": ("text-classification/run_glue.py", rated_file, {}, {"max_seq_length": "16"}, "eval_accuracy"),
    "run_glue with pairs": (
        "text-classification/run_glue.py",
        paired_file,
        {"num_sentences": 2},
        {"pad_to_max_length": "False"},
        "eval_accuracy",
    ),
    "run_classification": (
        "text-classification/run_classification.py",
        rated_file,
        {},
        {"text_column_names": "sentence", "metric_name": "accuracy", "max_seq_length": "16"},
        "eval_accuracy",
    ),
    "run_qa": (
        "question-answering/run_qa.py",
        asked_file,
        {},
        {"max_seq_length": "28", "doc_stride": "8", "max_steps": "300", "preprocessing_num_workers": "2"},
        "eval_exact_match",
    ),
}


def write_metrics(folder: Path) -> None:
    for name, (feature, reference, compute) in METRICS.items():
        (folder / name).mkdir(parents=True)
        text = METRIC.format(feature=feature, reference=reference, compute=compute)
        (folder / name / f"{name}.py").write_text(text, encoding="utf-8")


@pytest.mark.skipif(EXAMPLES is None, reason="HF_ELMO_TRANSFORMERS_EXAMPLES does not name a folder examples/pytorch")
@pytest.mark.parametrize("name", PROGRAMS)
def test_unmodified_examples(name, tmp_path):
    program, data, made_with, options, metric = PROGRAMS[name]
    folder = saved_folder(tmp_path / "elmo", **{**TASK_LSTM, **made_with})
    write_metrics(tmp_path)
    file = data(tmp_path)
    settings = {
        "model_name_or_path": str(folder),
        "trust_remote_code": "True",
        "train_file": file,
        "validation_file": file,
        "do_train": "True",
        "do_eval": "True",
        "output_dir": str(tmp_path / "output"),
        **COMMON,
        **options,
    }
    command = [word for option, value in settings.items() for word in (f"--{option}", value)]
    run([str(Path(str(EXAMPLES)) / program), *command], tmp_path)
    assert json.loads((tmp_path / "output" / "eval_results.json").read_text())[metric] == 1.0


def test_metrics_for_the_unmodified_examples(tmp_path):
    """The stand-ins are taken in place of those on the Hub."""
    write_metrics(tmp_path)
    program = """
import evaluate
squad = evaluate.load("squad")
prediction, answers = {"id": "1", "prediction_text": "a b"}, {"text": ["a b"], "answer_start": [3]}
print(evaluate.load("accuracy").compute(predictions=[1, 0], references=[1, 1])["accuracy"])
print(evaluate.load("seqeval").compute(predictions=[["O"], ["B-X", "O"]], references=[["O"], ["O"]])["overall_f1"])
print(squad.compute(predictions=[prediction], references=[{"id": "1", "answers": answers}])["exact_match"])
"""
    assert run(["-c", program], tmp_path).split() == ["0.5", "0.5", "1.0"]
