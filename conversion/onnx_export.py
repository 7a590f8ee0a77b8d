# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""A model folder to an ONNX model with its tokenizer, and the command `hf-elmo export onnx`."""

import argparse
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import onnx
import onnxruntime
import torch

from hf_elmo import elmo_batches, elmo_onnx, elmo_server
from hf_elmo.cli import Command
from hf_elmo.elmo_onnx import MODEL_FILE, ElmoOnnx
from hf_elmo.hub import check_place, finish_hub_folder, new_folder
from hf_elmo.messages import no_bars, reading_weights
from hf_elmo.modeling_elmo import ElmoModel, ElmoPreTrainedModel, ElmoState
from hf_elmo.modeling_elmo_heads import (
    ElmoForMultipleChoice,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
)
from hf_elmo.modeling_elmo_pretraining import ElmoForPreTraining
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.tokenization_elmo import (
    BEGIN_WORD,
    END_WORD,
    PAD_WORD,
    SENTENCE_BOUNDARIES,
    ElmoTokenizer,
)
from hf_elmo.version import __version__
from hf_elmo.word_splitting import TYPOGRAPHIC_SIGNS

from .onnx_graph import Graph
from .onnx_heads import (
    add_features,
    add_language_model,
    add_multiple_choice,
    add_question_answering,
    add_sequence_classification,
    add_token_classification,
)
from .verify import load_config

Task: TypeAlias = Literal[
    "features", "token-classification", "sequence-classification", "question-answering", "multiple-choice", "lm"
]
TASKS: tuple[Task, ...] = get_args(Task)
MODELS: dict[Task, tuple[type[ElmoPreTrainedModel], Callable[[Graph, Any], None]]] = {
    "features": (ElmoModel, add_features),
    "token-classification": (ElmoForTokenClassification, add_token_classification),
    "sequence-classification": (ElmoForSequenceClassification, add_sequence_classification),
    "question-answering": (ElmoForQuestionAnswering, add_question_answering),
    "multiple-choice": (ElmoForMultipleChoice, add_multiple_choice),
    "lm": (ElmoForPreTraining, add_language_model),
}
ARCHITECTURES: dict[str, Task] = {model_class.__name__: task for task, (model_class, _) in MODELS.items()}

# A file of protocol buffers cannot be larger than 2 GiB; beyond this the weights are in a file of their own.
LARGEST_FILE = 2**31 - 2**24
WEIGHTS_FILE = f"{MODEL_FILE}.data"

# How far single precision may be from torch, in units of the largest value. How much rounding grows depends on the
# weights; it stays below this, and a mistake does not.
TOLERANCE = 1e-4

# Batches (rows, words) that an exported model is compared on.
SHAPES = ((1, 1), (3, 17), (8, 5), (2, 40))


@dataclass(frozen=True)
class OnnxExport:
    """What was exported, and how far it is from torch."""

    file: Path
    task: Task
    weights: str  # float32, float16, int8 or int8 and float16
    num_bytes: int  # of all files that onnxruntime reads
    difference: float  # largest absolute difference of any value
    largest_value: float  # of those that it was compared with

    def __str__(self) -> str:
        return (
            f"parity: max |difference| {self.difference:.1e} to torch, of values up to {self.largest_value:.2g}, in "
            f"{len(SHAPES)} batches\n{self.task}, {self.weights}, {self.num_bytes / 1e6:.1f} MB: {self.file}"
        )


def export_onnx(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    task: Task | None = None,
    *,
    int8: bool = False,
    float16: bool = False,
    overwrite: bool = False,
) -> OnnxExport:
    """Writes the model of a folder as ONNX, with what is needed to run it on text, and compares it with torch.

    Args:
        folder: The model folder, with its tokenizer.
        output: The folder to write: `model.onnx`, `config.json`, `tokenizer.json`, `elmo_onnx.py`, which runs it,
            `elmo_server.py`, which serves it, and a card.
        task: What the model gives; by default what the folder was saved for.
        int8: Whether products are made of whole numbers, with a scale for each row and each output.
        float16: Whether weights are stored in half precision; it computes in single precision all the same.
        overwrite: Whether a folder that hf-elmo wrote before may be replaced.

    Raises:
        ValueError: If the model has no such task, or if the exported model differs from torch by more than rounding.
    """
    check_place(output, overwrite)
    model, task = load_for_task(folder, task)
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    exported = build(model, task, tokenizer, int8=int8, float16=float16)
    weights = " and ".join(name for name, on in (("int8", int8), ("float16", float16)) if on) or "float32"
    with new_folder(output, overwrite) as temporary:
        write(exported, temporary)
        tokenizer.save_pretrained(temporary)
        (temporary / "config.json").write_text(_config_text(model) + "\n", encoding="utf-8")
        for program in (elmo_onnx, elmo_server, elmo_batches):
            source = Path(cast(str, program.__file__))
            shutil.copyfile(source, temporary / source.name)
        difference, largest = compare(model, task, ElmoOnnx(temporary))
        if weights == "float32" and not difference <= TOLERANCE * max(1.0, largest):
            raise ValueError(
                f"The exported model differs from torch by {difference:.1e}, and only rounding is allowed. This is a "
                f"mistake of hf-elmo or of onnxruntime {onnxruntime.__version__}; nothing was written."
            )
        num_bytes = sum(path.stat().st_size for path in temporary.glob(f"{MODEL_FILE}*"))
        report = OnnxExport(Path(output) / MODEL_FILE, task, weights, num_bytes, difference, largest)
        finish_hub_folder(temporary, _card(report, exported))
    return report


def load_for_task(folder: str | os.PathLike[str], task: Task | None) -> tuple[ElmoPreTrainedModel, Task]:
    """The model of a folder for a task, in single precision."""
    if task is not None and task not in TASKS:
        raise ValueError(f"task={task!r} is not possible: it is one of {', '.join(TASKS)}.")
    saved = (load_config(folder).architectures or ["ElmoModel"])[0]
    if task is None:
        if saved not in ARCHITECTURES:
            raise ValueError(
                f"{folder} holds a {saved}, which has no export of its own: choose --task features for its vectors."
            )
        task = ARCHITECTURES[saved]
    if task != "features" and ARCHITECTURES.get(saved) != task:
        raise ValueError(f"{folder} holds a {saved}, which has no weights for --task {task}.")
    with reading_weights(folder, "get them again"):  # a head is left out on purpose
        loaded: Any = MODELS[task][0].from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True
        )
    model, report = loaded
    # The mix of a model that was trained without a task weighs all layers the same.
    missing = sorted(name for name in report["missing_keys"] if ".mixes." not in f".{name}")
    if missing:
        raise ValueError(f"{folder} lacks weights: {', '.join(missing[:5])}. Get them again.")
    return model.eval(), task


# --- The model -------------------------------------------------------------------------------------------------------


def build(
    model: ElmoPreTrainedModel, task: Task, tokenizer: ElmoTokenizer, int8: bool = False, float16: bool = False
) -> onnx.ModelProto:
    """The model as ONNX, with its config, its labels and its tokenizer's settings as metadata."""
    graph = Graph(int8=int8, float16=float16)
    with torch.no_grad():
        MODELS[task][1](graph, model)
    names = cast(dict[int, str], model.config.id2label)
    labels = [names[number] for number in sorted(names)] if task.endswith("classification") else []
    metadata = {
        "hf_elmo_task": task,
        "config": _config_text(model),
        "labels": json.dumps(labels),
        "tokenizer": json.dumps(tokenizer_settings(tokenizer)),
    }
    return graph.model(f"elmo_{task}", __version__, metadata)


def write(exported: onnx.ModelProto, folder: Path) -> None:
    """Writes the model, its weights in a file of their own if one file cannot hold it."""
    is_large = exported.ByteSize() > LARGEST_FILE
    onnx.save_model(
        exported,
        folder / MODEL_FILE,
        save_as_external_data=is_large,
        location=WEIGHTS_FILE if is_large else None,
    )


def _config_text(model: ElmoPreTrainedModel) -> str:
    config = model.config.to_dict()
    for name in ("_name_or_path", "auto_map", "dtype"):
        config.pop(name, None)
    return json.dumps({**config, "architectures": [type(model).__name__]}, indent=2, sort_keys=True)


# --- The tokenizer ---------------------------------------------------------------------------------------------------


def tokenizer_settings(tokenizer: ElmoTokenizer) -> dict[str, Any]:
    """What `elmo_onnx.OnnxTokenizer` has to know beside tokenizer.json."""
    characters = tokenizer.characters
    if characters is None:
        boundaries = SENTENCE_BOUNDARIES
        markers = {"begin_word": BEGIN_WORD, "end_word": END_WORD, "pad_word": PAD_WORD}
    else:
        boundaries = tokenizer._boundaries
        markers = {name: getattr(characters, name) for name in ("begin_word", "end_word", "pad_word")}
    return {
        "max_characters_per_token": tokenizer.max_characters_per_token,
        "boundaries": boundaries,
        "markers": markers,
        "characters": None if characters is None else list(characters.characters),
        "unknown_character": 0 if characters is None else characters.unknown,
        "straight_signs": TYPOGRAPHIC_SIGNS if tokenizer.word_splitting == "moses" else {},
        "unicode_normalization": tokenizer.unicode_normalization,
        "split_special_tokens": tokenizer.split_special_tokens,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "unk_token_id": tokenizer.unk_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


# --- Is it the same model? -------------------------------------------------------------------------------------------


def compare(model: ElmoPreTrainedModel, task: Task, exported: ElmoOnnx) -> tuple[float, float]:
    """The largest difference of any value to torch, and the largest value, of random batches with padding."""
    generator = np.random.default_rng(0)
    difference = largest = 0.0
    for rows, columns in SHAPES:
        arrays = random_arrays(model.config, rows, columns, generator)
        expected = torch_outputs(model, task, arrays)
        found = exported.run(arrays, list(expected))
        for name, array in expected.items():
            difference = max(difference, float(np.abs(found[name] - array).max(initial=0)))
            largest = max(largest, largest_of(array))
    return difference, largest


def largest_of(array: np.ndarray) -> float:
    """The largest absolute value, apart from the lowest number that there is, which stands at padding."""
    return float(np.abs(array[array > np.finfo(array.dtype).min]).max(initial=0))


def random_arrays(config: Any, rows: int, columns: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Random words and boundaries, some of the rows padded; all that any model reads."""
    begin, end, begin_word, end_word, pad_word = config.character_markers
    shortest = 4 if config.num_sentences == 2 else 0  # a pair has four boundaries
    columns = max(columns, shortest)
    width = config.max_characters_per_token
    letters = np.setdiff1d(np.arange(1, config.char_vocab_size), config.character_markers)
    characters = np.full((rows, columns, width), pad_word, dtype=np.int64)
    mask = np.zeros((rows, columns), dtype=np.int64)
    word_ids = generator.integers(0, config.vocab_size - 1, (rows, columns))
    for row in range(rows):
        length = columns if row == 0 else int(generator.integers(shortest, columns + 1))
        mask[row, :length] = 1
        starts = {length * number // config.num_sentences for number in range(config.num_sentences)}
        for place in range(columns):
            spelling = generator.choice(letters, int(generator.integers(1, width - 1)))
            if place in starts or place + 1 in starts | {length}:
                spelling = np.array([begin if place in starts else end])
                word_ids[row, place] = config.bos_token_id if place in starts else config.eos_token_id
            characters[row, place, : len(spelling) + 2] = [begin_word, *spelling, end_word]
    characters[mask == 0] = 0
    word_ids[mask == 0] = config.pad_token_id
    return {
        "input_ids": word_ids,
        "character_ids": characters,
        "attention_mask": mask,
        "word_vector_ids": generator.integers(0, max(config.word_vector_vocab_size, 1), (rows, columns)),
        "predicate_ids": generator.integers(0, 2, (rows, columns)),
    }


@torch.no_grad()
def torch_outputs(
    model: ElmoPreTrainedModel,
    task: Task,
    arrays: dict[str, np.ndarray],
    state: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """What torch gives for the outputs of an exported model."""
    inputs: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if task == "multiple-choice":  # rows of one choice each
        return {"logits": model(**{name: tensor.unsqueeze(1) for name, tensor in inputs.items()}).logits[:, 0].numpy()}
    if task == "question-answering":
        outputs = model(**inputs)
        return {"start_logits": outputs.start_logits.numpy(), "end_logits": outputs.end_logits.numpy()}
    if task.endswith("classification"):
        return {"logits": model(**inputs).logits.numpy()}
    if state is not None:
        inputs["initial_state"] = ElmoState(*map(torch.from_numpy, state))
    if task == "lm":
        outputs = model(**inputs, output_logits=True, output_state=True)
        found = {"forward_logits": outputs.forward_logits, "backward_logits": outputs.backward_logits}
    else:
        outputs = model(**inputs, output_hidden_states=True, output_state=True)
        found = {
            "last_hidden_state": outputs.last_hidden_state,
            "hidden_states": torch.stack(outputs.hidden_states),
        }
        if outputs.elmo_representations is not None:
            found["elmo_representations"] = torch.stack(outputs.elmo_representations)
    found |= {"final_hidden": outputs.state.hidden, "final_cell": outputs.state.cell}
    return {name: tensor.numpy() for name, tensor in found.items()}


# --- The card --------------------------------------------------------------------------------------------------------


def _card(report: OnnxExport, exported: onnx.ModelProto) -> str:
    stored = {weight.name for weight in exported.graph.initializer}

    def table(values: Any) -> str:
        lines = []
        for value in values:
            kind = value.type.tensor_type
            shape = ", ".join(size.dim_param or str(size.dim_value) for size in kind.shape.dim)
            name = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
            lines.append(f"- `{value.name}` ({shape}), {name}{', may be left out' if value.name in stored else ''}")
        return "\n".join(lines)

    is_served = report.task == "features" or report.task.endswith("classification")
    method = "encode" if report.task == "features" else "classify"
    use = (
        f"print(model.{method}(['A river bank.']))" if is_served else "print(model.run(model.tokenizer(['A bank.'])))"
    )
    served = ""
    if is_served:
        served = "\n`python elmo_server.py` serves it over HTTP; that needs `pip install fastapi uvicorn`, too.\n"
    return f"""---
library_name: onnx
tags:
- elmo
- onnx
---

# An ELMo model for onnxruntime

`{MODEL_FILE}` was made by hf-elmo {__version__} for the task {report.task}, with weights in {report.weights}. Its
config, its labels and the settings of its tokenizer are in its metadata. Compared with torch on {len(SHAPES)} random
batches, no value differed by more than {report.difference:.1e} (values up to {report.largest_value:.2g}).

`elmo_onnx.py` runs it on text; `pip install onnxruntime tokenizers numpy` is all that it needs:

```python
from elmo_onnx import ElmoOnnx

model = ElmoOnnx(".")
{use}
```
{served}
Inputs:

{table(exported.graph.input)}

Outputs:

{table(exported.graph.output)}

Sentences have their boundaries, as the tokenizer gives them. Padding may be anywhere. Words may have fewer characters
than the model reads, and are padded then.
"""


# --- The command -----------------------------------------------------------------------------------------------------


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=model_folder, metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument("--task", choices=TASKS, help="what the model gives (default: what the folder was saved for)")
    parser.add_argument(
        "--int8",
        action="store_true",
        help="multiply whole numbers: a quarter of the size, less exact, and faster on most processors if the model "
        "is large",
    )
    parser.add_argument(
        "--fp16-storage",
        action="store_true",
        help="store weights in half precision, and compute in single precision: half of the size",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a folder that hf-elmo wrote before")
    parser.add_argument("--quiet", action="store_true", help="print the result only")


def _run(arguments: argparse.Namespace) -> None:
    with no_bars(arguments.quiet):
        report = export_onnx(
            arguments.folder,
            arguments.output,
            arguments.task,
            int8=arguments.int8,
            float16=arguments.fp16_storage,
            overwrite=arguments.overwrite,
        )
    print(report)


EXPORT_ONNX = Command(
    description="Writes a model for onnxruntime: any number of sentences of any length in one file, with padding as "
    "in torch, and beside it the tokenizer and a program that runs both without torch. The result is compared with "
    "torch before it is kept.",
    examples="""  hf-elmo export onnx my-elmo --output my-elmo-onnx
  hf-elmo export onnx my-tagger --output my-tagger-onnx --int8
  hf-elmo export onnx my-tagger --output my-vectors-onnx --task features --fp16-storage""",
    add_arguments=_arguments,
    run=_run,
)
