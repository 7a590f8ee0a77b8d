# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The small trained model that comes with the package: `ELMO_MINI` and `load_mini`."""

import os
from pathlib import Path
from typing import Any, TypeVar

from .messages import reading_weights
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .tokenization_elmo import ElmoTokenizer

# The folder of the model; `from_pretrained` takes it as any other. Its weights are kept in half precision and loaded
# in single precision, as its config says.
ELMO_MINI = Path(__file__).parent / "mini"
MINI_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

MINI_NAME = "elmo-mini"  # what commands call it
MODEL_HELP = f"of a model with its tokenizer; {MINI_NAME} is the one in the package"

Model = TypeVar("Model", bound=ElmoPreTrainedModel)


def load_mini(model_class: type[Model] = ElmoModel, **options: Any) -> tuple[Model, ElmoTokenizer]:  # type: ignore[assignment]
    """The model that comes with the package, and its tokenizer; nothing is downloaded.

    Args:
        model_class: What to load it as: `ElmoModel` for vectors, `ElmoForPreTraining` for the language model with its
            softmax, or a class with a head, which is fresh then.
        options: For `from_pretrained` of the model: `num_labels`, `layer_combination`, `dtype` and the like.

    Returns:
        The model, in evaluation mode, and the tokenizer.

    Raises:
        FileNotFoundError: If the files of the model are not installed.

    Example:
        >>> model, tokenizer = load_mini()
        >>> model(**tokenizer("A river bank.", return_tensors="pt")).last_hidden_state.shape
        torch.Size([1, 6, 256])
    """
    if not (isinstance(model_class, type) and issubclass(model_class, ElmoPreTrainedModel)):
        raise ValueError(f"model_class={model_class!r} is not possible: give a class of hf_elmo, such as ElmoModel.")
    check_mini()
    with reading_weights(ELMO_MINI, "install hf-elmo again"):  # a head may be fresh
        model: Any = model_class.from_pretrained(ELMO_MINI, use_safetensors=True, **options)
    return model.eval(), ElmoTokenizer.from_pretrained(ELMO_MINI)


def model_folder(name: str | os.PathLike[str]) -> Path:
    """The folder that a command is given; `elmo-mini` is that of the package if there is no folder of this name."""
    folder = Path(name)
    if os.fspath(name) != MINI_NAME or folder.exists():
        return folder
    check_mini()
    return ELMO_MINI


def name_of_folder(folder: Path) -> str:
    """What to call the model of a folder: `elmo-mini` if it is that of the package, else the last part of its path.

    A run has its model in the folder `model`, and gives it its own name: `ner/model` is called `ner`.
    """
    folder = folder.resolve()
    if folder == ELMO_MINI.resolve():
        return MINI_NAME
    return folder.parent.name if folder.name == "model" and folder.parent.name else folder.name


def check_mini() -> None:
    """Raises FileNotFoundError if the files of the model are not there."""
    missing = [name for name in MINI_FILES if not (ELMO_MINI / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"The model of the package is not complete: {ELMO_MINI} lacks {', '.join(missing)}. Install hf-elmo from "
            "a wheel, or load another folder with from_pretrained."
        )


__all__ = ["ELMO_MINI", "load_mini"]
