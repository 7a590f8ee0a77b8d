"""The stock Trainer with our heads and tokenizer: collators, processes, checkpoints, the Hub."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hub_stand_in import HubStandIn, run_client
from tiny import random_model, tiny_config
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForMultipleChoice,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

from hf_elmo import (
    ElmoForMultipleChoice,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoTokenizer,
)

# Forking is what datasets and dataloaders do; newer Pythons say of each fork that threads may be lost.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")

NAMES = "John Maria Ada Noam".split()
LABELS = ["O", "B-PER", "I-PER"]
WORDS = [
    f"{first} {verb} {second} {third} {end}".split()
    for first, verb, second, third, end in [
        ("John", "saw", "Maria", "today", "."),
        ("Ada", "and", "the", "dog", "ran"),
        ("Who", "met", "Noam", "there", "in the old house ?"),
        ("They", "like", "Ada", "and", "John and the sea , too ."),
        ("Maria", "is", "here", "!", ""),
        ("A", "cat", "and", "Noam", "slept"),
        ("It", "rains", "again", "on", "Maria"),
        ("Nobody", "came", "to", "see", "the old dog"),
    ]
]
LABEL_IDS = [[int(word in NAMES) for word in words] for words in WORDS]


def tagging_data(tokenizer: ElmoTokenizer, **map_options: Any) -> Dataset:
    """Words and their labels, -100 at the boundaries."""

    def encode(rows: dict[str, list]) -> dict[str, list]:
        encoded = tokenizer(rows["words"], is_split_into_words=True, truncation=True, max_length=12)
        encoded["labels"] = [
            [-100 if place is None else labels[place] for place in encoded.word_ids(row)]
            for row, labels in enumerate(rows["labels"])
        ]
        return encoded

    data = Dataset.from_dict({"words": WORDS, "labels": LABEL_IDS})
    return data.map(encode, batched=True, **map_options)


def sentence_data(tokenizer: ElmoTokenizer, **options: Any) -> Dataset:
    """Sentences, and whether a name is among their first words."""
    data = Dataset.from_dict({"words": WORDS, "label": [labels[0] for labels in LABEL_IDS]})
    return data.map(lambda rows: tokenizer(rows["words"], is_split_into_words=True, **options), batched=True)


def tagger(**overrides: Any) -> ElmoForTokenClassification:
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {label: number for number, label in enumerate(LABELS)}}
    return random_model(tiny_config(**{**labels, **overrides}), model_class=ElmoForTokenClassification)


def arguments(folder: Path, **overrides: Any) -> TrainingArguments:
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 3,
        "max_steps": 4,
        "learning_rate": 0.01,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(str(folder), **{**settings, **overrides})


def trainer_for_tags(folder: Path, model: ElmoForTokenClassification | None = None, **overrides: Any) -> Trainer:
    tokenizer = ElmoTokenizer()
    data = tagging_data(tokenizer)
    options = {name: overrides.pop(name) for name in ("compute_metrics", "callbacks") if name in overrides}
    return Trainer(
        model or tagger(),
        arguments(folder, **overrides),
        train_dataset=data,
        eval_dataset=data,
        processing_class=tokenizer,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        **options,
    )


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], **tolerances: float) -> None:
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], **({"rtol": 0, "atol": 0} | tolerances), msg=name)


# --- Collators -------------------------------------------------------------------------------------------------------


def choices_data(tokenizer: ElmoTokenizer) -> Dataset:
    """Each sentence with two endings, of which the short one is right."""
    rows = []
    for number, words in enumerate(WORDS):
        right = number % 2
        endings = ["It is so.", "It is not so at all."]
        encoded = tokenizer([" ".join(words)] * 2, endings if right == 0 else endings[::-1])
        rows.append({**encoded, "labels": right})
    return Dataset.from_list(rows)


def answers_data(tokenizer: ElmoTokenizer, **options: Any) -> Dataset:
    """Questions and texts, padded or not; the answer is the first word of the text."""
    rows = []
    for words in WORDS:
        encoded = tokenizer("Who was it?", " ".join(words), **options)
        start = encoded.sequence_ids().index(1)
        rows.append({**encoded, "start_positions": start, "end_positions": start + 1})
    return Dataset.from_list(rows)


HEADS = {
    "tags": (ElmoForTokenClassification, {"num_labels": 3}),
    "tags with a conditional random field": (ElmoForTokenClassification, {"num_labels": 3, "use_crf": True}),
    "sentences": (ElmoForSequenceClassification, {"task_lstm_size": 4}),
    "padded sentences": (ElmoForSequenceClassification, {"pooling": "max"}),
    "answers": (ElmoForQuestionAnswering, {"task_lstm_size": 4, "elmo_at_output": True}),
    "padded answers": (ElmoForQuestionAnswering, {"task_lstm_size": 8}),
    "choices": (ElmoForMultipleChoice, {"num_sentences": 2, "task_lstm_size": 8}),
}


def data_and_collator(task: str) -> tuple[Dataset, Any]:
    tokenizer = ElmoTokenizer()
    padded = {"padding": "max_length", "max_length": 16, "truncation": True}
    return {
        "tags": lambda: (tagging_data(tokenizer), DataCollatorForTokenClassification(tokenizer)),
        "sentences": lambda: (sentence_data(tokenizer), DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)),
        "padded sentences": lambda: (sentence_data(tokenizer, **padded), default_data_collator),
        "answers": lambda: (answers_data(tokenizer), DataCollatorWithPadding(tokenizer)),
        "padded answers": lambda: (answers_data(tokenizer, **padded), default_data_collator),
        "choices": lambda: (choices_data(tokenizer), DataCollatorForMultipleChoice(tokenizer)),
    }[task.removesuffix(" with a conditional random field")]()


@pytest.mark.parametrize("task", HEADS)
def test_stock_collators(task, tmp_path):
    """Training lowers the loss, leaves the frozen part as it was, and evaluation is what the model says by itself."""
    model_class, settings = HEADS[task]
    quiet = {"elmo_dropout": 0.0, "task_dropout": 0.0}
    model = random_model(tiny_config(**settings, **quiet), model_class=model_class, scale=0.5)
    data, collator = data_and_collator(task)
    before = weights(model)
    trainer = Trainer(
        model,
        arguments(tmp_path, max_steps=30, per_device_train_batch_size=8, learning_rate=0.03),
        train_dataset=data,
        eval_dataset=data,
        data_collator=collator,
    )
    trainer.train()
    assert losses(trainer)[-1] < 0.9 * losses(trainer)[0]
    after = weights(model)
    frozen = [name for name in after if name.startswith(("elmo.character_encoder", "elmo.bilstm"))]
    assert frozen
    assert_same({name: before[name] for name in frozen}, {name: after[name] for name in frozen})
    assert not torch.equal(before["elmo.mixes.0.weight"], after["elmo.mixes.0.weight"])

    model.eval()
    columns = [name for name in data.column_names if name != "words"]
    batch = collator([{name: row[name] for name in columns} for row in data])
    with torch.no_grad():
        outputs = model(**batch)
    predictions = trainer.predict(data).predictions
    for found, wanted in zip(
        predictions if isinstance(predictions, tuple) else [predictions],
        [value for name, value in outputs.items() if name != "loss"],
        strict=True,
    ):
        present = torch.tensor(found) != -100  # what Trainer puts where a batch was narrower than another
        torch.testing.assert_close(torch.tensor(found)[present], wanted[present], rtol=1e-4, atol=1e-5)
    trainer.args.per_device_eval_batch_size = len(data)  # a mean over words is not the mean of batches
    assert math.isclose(trainer.evaluate()["eval_loss"], float(outputs.loss), rel_tol=1e-4)


# --- Processes -------------------------------------------------------------------------------------------------------


def test_map_with_two_processes():
    """The tokenizer goes to other processes and gives the same there; datasets keep the nested lists as they are."""
    tokenizer = ElmoTokenizer()
    one, two = tagging_data(tokenizer), tagging_data(tokenizer, num_proc=2)
    assert one.column_names == two.column_names
    for name in ("input_ids", "character_ids", "attention_mask", "labels"):
        assert one[:][name] == two[:][name]
    encoded = tokenizer(WORDS, is_split_into_words=True, truncation=True, max_length=12)
    assert two[:]["character_ids"] == encoded["character_ids"]


def test_fingerprint_of_the_tokenizer_stays_the_same_after_use():
    """Otherwise a dataset would be encoded anew by every program instead of taken from its cache."""
    from datasets.fingerprint import Hasher

    tokenizer = ElmoTokenizer()
    fresh = Hasher.hash(tokenizer)
    tokenizer(WORDS, is_split_into_words=True, truncation=True, padding=True, max_length=5)
    tokenizer("It's raw text.")
    assert Hasher.hash(tokenizer) == fresh
    assert Hasher.hash(ElmoTokenizer()) == fresh


def test_dataloader_workers(tmp_path):
    runs = []
    for workers in (0, 2):
        trainer = trainer_for_tags(tmp_path, dataloader_num_workers=workers, seed=5)
        trainer.train()
        runs.append((losses(trainer), trainer.evaluate()["eval_loss"]))
    assert runs[0] == runs[1]


# --- Steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [ElmoForSequenceClassification, ElmoForTokenClassification])
def test_gradient_accumulation(tmp_path, head):
    """Two batches of four are one batch of eight: for sentences exactly, for words if the batches have as many."""
    tokenizer = ElmoTokenizer()
    quiet = {"elmo_dropout": 0.0, "task_dropout": 0.0, "num_labels": 2}
    if head is ElmoForSequenceClassification:
        data, collator = sentence_data(tokenizer), DataCollatorWithPadding(tokenizer)
    else:
        data = tagging_data(tokenizer).filter(lambda row: len(row["labels"]) == 7).select([0, 1, 2, 3])
        collator = DataCollatorForTokenClassification(tokenizer)
    size = len(data)
    trained = []
    for batch_size, accumulated in ((size, 1), (size // 2, 2)):
        model = random_model(tiny_config(**quiet), model_class=head)
        settings = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulated}
        settings |= {"max_steps": 3, "optim": "sgd", "max_grad_norm": 0.0}
        trainer = Trainer(model, arguments(tmp_path, **settings), train_dataset=data, data_collator=collator)
        trainer.train()
        trained.append(weights(model))
    assert_same(*trained, rtol=1e-4, atol=1e-6)


def test_padding_and_length_groups_change_nothing_but_the_order(tmp_path):
    trainer = trainer_for_tags(tmp_path, train_sampling_strategy="group_by_length", max_steps=2)
    trainer.train()
    assert len(losses(trainer)) == 2
    alone = trainer_for_tags(tmp_path, trainer.model, per_device_eval_batch_size=1).predict(trainer.eval_dataset)
    together = trainer_for_tags(tmp_path, trainer.model, per_device_eval_batch_size=8).predict(trainer.eval_dataset)
    present = torch.tensor(together.label_ids) != -100
    torch.testing.assert_close(torch.tensor(alone.predictions)[present], torch.tensor(together.predictions)[present])


# --- Checkpoints -----------------------------------------------------------------------------------------------------


def test_best_model_is_loaded_at_the_end(tmp_path):
    """The scores say that the second of four checkpoints was the best."""
    scores = iter([0.3, 0.9, 0.5, 0.1])
    trainer = trainer_for_tags(
        tmp_path,
        compute_metrics=lambda prediction: {"f1": next(scores)},
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="f1",
    )
    trainer.train()
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-2")
    best = ElmoForTokenClassification.from_pretrained(tmp_path / "checkpoint-2")
    last = ElmoForTokenClassification.from_pretrained(tmp_path / "checkpoint-4")
    assert_same(weights(trainer.model), weights(best))
    assert not torch.equal(weights(best)["classifier.weight"], weights(last)["classifier.weight"])
    assert type(ElmoTokenizer.from_pretrained(tmp_path / "checkpoint-2")) is ElmoTokenizer


class StopAfter(TrainerCallback):
    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


@pytest.mark.parametrize("frozen", [True, False])
def test_interrupted_training_goes_on_as_if_nothing_had_happened(tmp_path, frozen):
    """With dropout, a schedule and a shuffled order, all of which must go on where they stopped."""
    saving = {"save_strategy": "steps", "save_steps": 1, "max_steps": 6, "lr_scheduler_type": "linear"}
    settings = {"freeze_bilm": frozen, "task_lstm_size": 4, "use_crf": True, "crf_scheme": "BIO"}
    straight = trainer_for_tags(tmp_path / "straight", tagger(**settings), **saving)
    straight.train()

    stopped = trainer_for_tags(tmp_path / "stopped", tagger(**settings), callbacks=[StopAfter(3)], **saving)
    stopped.train()
    assert stopped.state.global_step == 3
    resumed = trainer_for_tags(tmp_path / "stopped", tagger(**settings), **saving)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6
    assert_same(weights(resumed.model), weights(straight.model))
    assert losses(resumed) == losses(straight)


def test_saved_model_is_complete(tmp_path):
    trainer = trainer_for_tags(tmp_path, max_steps=1)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    model = ElmoForTokenClassification.from_pretrained(tmp_path / "saved")
    assert_same(weights(model), weights(trainer.model))
    assert model.config.id2label == dict(enumerate(LABELS))
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "saved")
    assert tokenizer(WORDS[0], is_split_into_words=True) == ElmoTokenizer()(WORDS[0], is_split_into_words=True)


# --- The Hub ---------------------------------------------------------------------------------------------------------

PUSH = """
import json, os, sys
from pathlib import Path

sys.path.insert(0, os.environ["TESTS"])
from test_trainer import WORDS, tagger, trainer_for_tags

trainer = trainer_for_tags(
    Path(os.environ["FOLDER"]) / "tagger",
    tagger(),
    max_steps=2,
    save_strategy="steps",
    save_steps=1,
    push_to_hub=True,
    hub_strategy="end",
    hub_model_id="user/tagger",
    hub_token=os.environ["HF_TOKEN"],
)
trainer.train()
trainer.push_to_hub(commit_message="A tagger", blocking=True)
print(json.dumps(trainer.predict(trainer.eval_dataset).predictions[:, 1].tolist()))
"""

# Without the package: the folder on the Hub brings its own code.
PULL = """
import json, os, sys

sys.modules["hf_elmo"] = None  # an import fails
import torch
from transformers import pipeline

words = json.loads(os.environ["WORDS"])
tag = pipeline("token-classification", model="user/tagger", trust_remote_code=True, token=os.environ["HF_TOKEN"])
encoded = tag.tokenizer(
    words, is_split_into_words=True, truncation=True, max_length=12, padding=True, return_tensors="pt"
)
with torch.no_grad():
    print(json.dumps(tag.model(**encoded).logits[:, 1].tolist()))
"""


@pytest.mark.slow
def test_push_to_hub_and_load_without_the_package(tmp_path):
    with HubStandIn() as hub:
        environment = hub.environment() | {
            "FOLDER": str(tmp_path),
            "TESTS": str(Path(__file__).parent),
            "WORDS": json.dumps(WORDS),
        }
        pushed = json.loads(run_client(PUSH, environment).splitlines()[-1])
        files = hub.files("user/tagger")
        assert {"config.json", "model.safetensors", "tokenizer.json", "crf.py", "README.md"} <= files.keys()
        pulled = json.loads(run_client(PULL, environment).splitlines()[-1])
    torch.testing.assert_close(torch.tensor(pulled), torch.tensor(pushed), rtol=1e-5, atol=1e-6)


def test_language_model_with_the_stock_collator(tmp_path):
    """Its labels, the words themselves with -100 at padding, are what the language model wants."""
    words = sorted({word for sentence in WORDS for word in sentence})
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *words]))
    tokenizer = ElmoTokenizer(tmp_path / "vocab.txt")
    model = random_model(tiny_config(vocab_size=len(tokenizer), softmax="full"), model_class=ElmoForPreTraining)
    data = Dataset.from_dict({"words": WORDS}).map(
        lambda rows: tokenizer(rows["words"], is_split_into_words=True), batched=True, remove_columns=["words"]
    )
    arguments = TrainingArguments(
        str(tmp_path / "run"),
        num_train_epochs=30,
        per_device_train_batch_size=4,
        learning_rate=0.02,
        report_to=[],
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data, data_collator=collator)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before - 0.2
