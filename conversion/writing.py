# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The last steps of every conversion: write the model, verify it, add card and checksums, and only then keep it."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.hub import check_place, finish_hub_folder, new_folder, save_model_files, sha256_of
from hf_elmo.messages import no_bars
from hf_elmo.model_card import check_language, check_license, converted_model_card
from hf_elmo.modeling_elmo import ElmoPreTrainedModel
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .verify import Parity

Model = TypeVar("Model", bound=ElmoPreTrainedModel)


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion did.

    Args:
        folder: The Hub folder.
        num_parameters: Number of weights taken from the source.
        parity: How far the model in the folder is from its source.
    """

    folder: Path
    num_parameters: int
    parity: Parity

    def __str__(self) -> str:
        return f"parity: {self.parity}\n{self.num_parameters:,} weights converted: {self.folder}"


class Destination:
    """The folder a conversion writes, with what its user says of it; refused at once if it cannot be.

    Args:
        output: The folder.
        license: Licence of the weights for the model card, as the Hub spells it.
        languages: Codes of the languages the model was trained on, for the model card.
        overwrite: Whether a folder that was written before may be replaced.
        progress: Is told what is being done, in a few words.

    Raises:
        ValueError: If the licence or a language is not spelled as the Hub demands.
        FileExistsError: If the folder exists and may not be replaced.
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        license: str,
        languages: Sequence[str],
        overwrite: bool,
        progress: Callable[[str], None] | None,
    ):
        self.output = Path(output)
        self.license = license
        self.languages = tuple(languages)
        self.overwrite = overwrite
        self.tell: Callable[[str], None] = progress or (lambda _: None)
        check_license(license)
        for language in self.languages:
            check_language(language)
        check_place(self.output, overwrite)

    def write(
        self,
        make_model: Callable[[], ElmoPreTrainedModel],
        tokenizer: ElmoTokenizer,
        verify: Callable[[Path], Parity],
        *,
        num_parameters: int,
        dialect: str,
        sources: Iterable[Path],
    ) -> ConversionReport:
        """Writes the folder, which appears in its place when all is well.

        Args:
            make_model: Makes the model, which is not kept in memory while it is verified.
            tokenizer: Its tokenizer.
            verify: Compares a folder with the source; raises ValueError if it does not compute the same.
            num_parameters: Number of weights taken from the source.
            dialect: The format of the source, for the card.
            sources: The files that were read, for the card.
        """
        checksums = [(path.name, sha256_of(path)) for path in sources]
        with new_folder(self.output, self.overwrite) as folder:
            self.tell("writing the model")
            save_model_files(make_model(), tokenizer, folder)
            self.tell("verifying it against the source")
            with no_bars():
                parity = verify(folder)
            config = ElmoConfig.from_pretrained(folder)
            card = converted_model_card(
                self.output.resolve().name,
                config,
                tokenizer,
                num_parameters=num_parameters,
                dialect=dialect,
                sources=checksums,
                parity=f"Checked when it was converted: {parity}.",
                has_softmax="ElmoForPreTraining" in (config.architectures or []),
                license=self.license,
                languages=self.languages,
            )
            finish_hub_folder(folder, card)
        return ConversionReport(folder=self.output, num_parameters=num_parameters, parity=parity)


def how_words_are_split(segmenter: str | None) -> dict[str, Any]:
    """Arguments of the tokenizer: by Moses' rules, or at white space if the words were cut by something else."""
    if segmenter is None:
        return {"word_splitting": "moses"}
    return {"word_splitting": "whitespace", "segmenter": segmenter}


def filled_model(model_class: type[Model], config: ElmoConfig, weights: Mapping[str, torch.Tensor]) -> Model:
    """The model with these weights: every one taken from the source, apart from the mixes, which are fresh.

    Raises:
        RuntimeError: If a weight is missing or has no place in the model; the converters' tables name each of them.
    """
    with torch.device("meta"):
        model = model_class(config)
    fresh = {".weight": torch.zeros(config.num_hidden_layers + 1), ".gamma": torch.ones(1)}
    mixes = {
        name: value.clone()
        for name in model.state_dict()
        for end, value in fresh.items()
        if "mixes." in name and name.endswith(end)
    }
    model.load_state_dict(mixes | dict(weights), strict=True, assign=True)
    return model
