# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Exported models in pipelines of transformers, which split text and read labels while onnxruntime computes.

Example:
    from transformers import pipeline
    from hf_elmo import ElmoTokenizer
    from hf_elmo.onnx_pipeline import ElmoOnnxModel

    model, tokenizer = ElmoOnnxModel.from_pretrained("ner-onnx"), ElmoTokenizer.from_pretrained("ner-onnx")
    tag = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="simple")

Shapes are written with the letters of elmo_onnx.py.
"""

import os
from typing import Any, cast

import torch
from torch import Tensor
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput

from .configuration_elmo import ElmoConfig
from .elmo_onnx import ElmoOnnx
from .modeling_elmo import ElmoModel, ElmoModelOutput
from .modeling_elmo_heads import (
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoPooler,
    ElmoTaskModel,
)

# The models that transformers knows for the tasks of pipelines.
MODELS: dict[str, type] = {
    "features": ElmoModel,
    "token-classification": ElmoForTokenClassification,
    "sequence-classification": ElmoForSequenceClassification,
}


class ElmoOnnxModel:
    """An exported model with the parts of a transformers model that pipelines use.

    It computes on the CPU, wherever a pipeline puts its tensors. Pipelines are `"feature-extraction"`,
    `"token-classification"` and `"text-classification"`, as far as the model was exported for it. Give the pipeline
    the tokenizer of the folder, too, as transformers looks for one only where a model is given by its name.

    Args:
        model: What runs it.
    """

    input_modalities = "text"
    main_input_name = "input_ids"
    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, model: ElmoOnnx):
        if model.task not in MODELS:
            raise ValueError(
                f"The model was exported for the task {model.task}, and no pipeline is for it: export it with --task "
                f"{', '.join(MODELS)}."
            )
        self.model = model
        self.config: Any = ElmoConfig.from_dict(dict(model.config))

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], threads: int | None = None) -> "ElmoOnnxModel":
        """The model of a folder that `hf-elmo export onnx` wrote.

        Args:
            folder: The folder.
            threads: How many threads compute; by default onnxruntime's choice, one for each core.
        """
        model = ElmoOnnx(folder, threads)
        # Pipelines know models by the names of their classes.
        name = MODELS[model.task].__name__ if model.task in MODELS else cls.__name__
        return type(name, (cls,), {})(model)

    def to(self, *args: Any, **kwargs: Any) -> "ElmoOnnxModel":
        """Nothing moves: onnxruntime computes where it is."""
        return self

    def eval(self) -> "ElmoOnnxModel":
        """An exported model is never trained."""
        return self

    def can_generate(self) -> bool:
        return False

    def __call__(self, **inputs: Any) -> Any:
        return self.forward(**inputs)

    def forward(
        self,
        input_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        predicate_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> ElmoModelOutput | TokenClassifierOutput | SequenceClassifierOutput:
        """What the model of torch returns: vectors `last_hidden_state` (B, T, D), or `logits` (B, T, K) or (B, K)."""
        given = {
            "input_ids": input_ids,
            "character_ids": character_ids,
            "attention_mask": attention_mask,
            "word_vector_ids": word_vector_ids,
            "predicate_ids": predicate_ids,
        }
        tensors = {name: tensor.cpu() for name, tensor in given.items() if tensor is not None}
        self._check_number_of_sentences(tensors)
        output = "last_hidden_state" if self.model.task == "features" else "logits"
        found = self.model.run({name: tensor.numpy() for name, tensor in tensors.items()}, [output])[output]
        values = cast(Any, torch.from_numpy(found))
        if self.model.task == "features":
            return ElmoModelOutput(last_hidden_state=values)
        if self.model.task == "token-classification":
            return TokenClassifierOutput(logits=values)
        return SequenceClassifierOutput(logits=values)

    def _check_number_of_sentences(self, tensors: dict[str, Tensor]) -> None:
        """Refuses pairs where the model reads single sentences, and the other way round, as torch does."""
        if self.model.task == "sequence-classification" and "attention_mask" in tensors:
            mask = tensors["attention_mask"].bool()
            boundaries = ElmoTaskModel._boundaries
            begin, _ = boundaries(cast(Any, self), tensors.get("input_ids"), tensors.get("character_ids"), mask)
            ElmoPooler(self.config)._check_number_of_sentences(begin)


__all__ = ["ElmoOnnxModel"]
