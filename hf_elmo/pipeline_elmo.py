# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Pipelines: `pipeline("elmo-substitutes", model=...)`, the words that fit a place of a text, and entities of taggers
whose labels are BIOES in `pipeline("token-classification", model=...)`."""

from collections.abc import Iterable
from typing import Any

from transformers import Pipeline, TokenClassificationPipeline

from .configuration_elmo import ElmoConfig

SUBSTITUTES_TASK = "elmo-substitutes"
TAGGING_TASK = "token-classification"
ARGUMENTS = ("word", "top_k", "is_split_into_words")  # of `ElmoForPreTraining.substitutes`


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """The pipeline of transformers, which joins the words of an entity by B- and I-; for ELMo's also by BIOES labels.

    S- begins an entity like B-, E- goes on with one like I-. Pipelines of other models are left as they are.
    """

    def get_tag(self, entity_name: str) -> tuple[str, str]:
        """Whether a word begins an entity (B) or goes on with one (I), and the entity's type."""
        config = self.model.config
        prefix, _, tag = entity_name.partition("-")
        if isinstance(config, ElmoConfig) and prefix in ("S", "E") and f"B-{tag}" in (config.id2label or {}).values():
            return ("B" if prefix == "S" else "I"), tag
        return super().get_tag(entity_name)


class ElmoSubstitutesPipeline(Pipeline):
    """The best words for places of texts, by the words before, by those after, and by both.

    An input is a text, or a dictionary with `text` (a text or a list of words) and `word`, and with `top_k` and
    `is_split_into_words` if they differ from input to input. A list holds several inputs. The result for an input is a
    dictionary for its place, as `Substitutes.to_dict` makes it, or a list of them if `word` names several places, or
    none, which means all words.

    Example:
        >>> from hf_elmo import ELMO_MINI
        >>> from transformers import pipeline
        >>> substitutes = pipeline("elmo-substitutes", model=str(ELMO_MINI))
        >>> len(substitutes("The cat sat on the mat.", word="mat", top_k=3)["combined"])
        3
        >>> len(substitutes([{"text": "A red car.", "word": "red"}, {"text": "I ran.", "word": 1}]))
        2
    """

    _load_tokenizer: Any = True
    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        if not hasattr(self.model, "substitutes"):
            raise ValueError(
                f"The model is a {type(self.model).__name__}, but substitutes need the language model: load it with "
                "AutoModelForPreTraining.from_pretrained(name)."
            )
        if self.tokenizer is None:
            raise ValueError("tokenizer is missing: give the one that came with the model.")

    def _sanitize_parameters(self, **parameters: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        _check_names(parameters, ARGUMENTS)
        return parameters, {}, {}

    def get_iterator(self, inputs: Any, num_workers: int, batch_size: int, *parameters: Any) -> Any:
        """The results of several inputs, each read for itself."""
        if batch_size != 1:
            raise ValueError(f"batch_size={batch_size} is not possible: texts are read one at a time. Leave it out.")
        return super().get_iterator(inputs, num_workers, batch_size, *parameters)

    def preprocess(self, input_: Any, **parameters: Any) -> dict[str, Any]:
        """The arguments of `substitutes`."""
        if not isinstance(input_, dict):
            return {"text": input_, **parameters}
        _check_names(input_, ("text", *ARGUMENTS))
        if "text" not in input_:
            raise ValueError(f"An input is the dictionary {input_!r:.60}, but 'text' is missing.")
        return {**parameters, **input_}

    def _forward(self, input_tensors: dict[str, Any], **parameters: Any) -> Any:
        model: Any = self.model
        return {"found": model.substitutes(tokenizer=self.tokenizer, **input_tensors)}

    def postprocess(self, model_outputs: Any, **parameters: Any) -> Any:
        """What JSON can hold."""
        found = model_outputs["found"]
        return [place.to_dict() for place in found] if isinstance(found, list) else found.to_dict()


def _check_names(given: Iterable[str], allowed: tuple[str, ...]) -> None:
    for name in given:
        if name not in allowed:
            raise ValueError(f"{name!r} is not known to this pipeline: give {', '.join(map(repr, allowed))}.")


__all__ = ["ElmoSubstitutesPipeline"]
