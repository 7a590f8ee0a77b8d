# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Models whose vectors are put into the space of another: AllenNLP's multilingual ELMo to a Hub folder.

Such a model is an options.json, an HDF5 file and a matrix that `torch.save` wrote, `align.pth` or
`xx_best_mapping.pth`. AllenNLP applies it to layer 1.
"""

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hf_elmo.alignment import check_layer, with_alignment
from hf_elmo.hub import CARD, check_place, finish_hub_folder, new_folder, save_model_files, sha256_of
from hf_elmo.model_card import TASK_WEIGHTS, UNKNOWN_LICENSE, _one_line, _table
from hf_elmo.modeling_elmo import ElmoModel
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .allennlp import convert_allennlp
from .options import config_from_options, read_options
from .pickles import read_matrix
from .verify import LIMIT, SENTENCES, load_exactly
from .writing import ConversionReport

LAYER = 1  # the published matrices are for this one

HEADING = "## Alignment"
NO_CARD = "---\nlibrary_name: transformers\ntags:\n- elmo\n- word-embeddings\n---\n\n# $name\n\nAn ELMo model.\n"


def convert_aligned(
    options: str | os.PathLike[str],
    weights: str | os.PathLike[str],
    matrix: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    vocabulary: str | os.PathLike[str] | None = None,
    segmenter: str | None = None,
    license: str = UNKNOWN_LICENSE,
    languages: tuple[str, ...] = (),
    overwrite: bool = False,
    progress: Callable[[str], None] | None = None,
) -> ConversionReport:
    """Converts the weights of AllenNLP with the matrix of its multilingual ELMo to a Hub folder, and verifies it.

    The vectors of the model are those of layer 1 times the matrix, x M^T, as in AllenNLP's
    `ElmoTokenEmbedderMultiLang` with the published settings.

    Args:
        options: The options.json.
        weights: The HDF5 file with the weights.
        matrix: The file with the matrix, a tensor or a numpy array. It may come from anyone.
        output: The folder to write.
        vocabulary: As for `convert_allennlp`, like all that follow.
        segmenter: What cut the training text into words, if it was not Moses.
        license: Licence of the weights.
        languages: Codes of the languages the model was trained on.
        overwrite: Whether a folder that was written before may be replaced.
        progress: Is told what is being done, in a few words.

    Returns:
        What was done, with the figure of the verification.

    Raises:
        ValueError: If a file is not as it must be, or the result does not compute what the source does.
        FileNotFoundError: If a file does not exist.
        FileExistsError: If the output exists and may not be replaced.
        ImportError: If h5py is not installed.
    """
    tell = progress or (lambda _: None)
    output, name = Path(output), Path(output).resolve().name
    check_place(output, overwrite)
    tell(f"reading {matrix}")
    try:
        config = config_from_options(read_options(options))
    except ValueError as error:
        raise ValueError(f"{options}: {error}") from error
    check_layer(config, LAYER)
    alignment = read_matrix(matrix, config.hidden_size)

    with new_folder(output, overwrite) as folder:
        plain = folder / name  # which is also the name on the card
        report = convert_allennlp(
            options,
            weights,
            plain,
            vocabulary=vocabulary,
            segmenter=segmenter,
            license=license,
            languages=languages,
            progress=progress,
        )
        model: ElmoModel = load_exactly(plain, torch.float32)
        save_model_files(
            with_alignment(model, torch.from_numpy(alignment), LAYER), ElmoTokenizer.from_pretrained(plain), folder
        )
        card = (plain / CARD).read_text(encoding="utf-8")
        shutil.rmtree(plain)
        tell("verifying the alignment")
        differences = verify_alignment(folder, model, alignment, LAYER)
        parity = replace(
            report.parity,
            float32=max(report.parity.float32, differences[torch.float32]),
            float64=max(report.parity.float64, differences[torch.float64]),
        )
        section = [
            alignment_text(LAYER, "a common space of several languages"),
            _table(("file", "SHA-256"), [(f"`{_one_line(Path(matrix).name)}`", f"`{sha256_of(matrix)}`")]),
            "Checked when it was converted: the vectors differ from the product of layer and matrix by at most "
            f"{differences[torch.float32]:.1e} in float32 and {differences[torch.float64]:.1e} in float64.",
        ]
        finish_hub_folder(folder, aligned_card(card, name, LAYER, section))
    return ConversionReport(folder=output, num_parameters=report.num_parameters + alignment.size, parity=parity)


def verify_alignment(
    folder: str | os.PathLike[str], plain: ElmoModel, matrix: np.ndarray, layer: int
) -> dict[torch.dtype, float]:
    """Loads the folder as its users will and compares its vectors with layer times matrix, computed in float64.

    Args:
        folder: Folder with the aligned model and the tokenizer.
        plain: The model without the alignment; it is in float64 afterwards.
        matrix: M (D, D); float32 is what counts of it, as in AllenNLP.
        layer: The layer it is for.

    Returns:
        The largest difference in float32 and in float64.

    Raises:
        ValueError: If the weights of the folder are not exactly those the model needs, or the difference is too large.
    """
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    batch = tokenizer(SENTENCES, is_split_into_words=True, padding=True, return_tensors="pt")
    differences = {}
    with torch.no_grad():
        layers = plain.double()(**batch, output_hidden_states=True).hidden_states
        expected = np.einsum("btd,ed->bte", layers[layer].numpy(), matrix.astype(np.float32).astype(np.float64))
        for dtype in (torch.float64, torch.float32):
            aligned: ElmoModel = load_exactly(folder, dtype)
            differences[dtype] = float(np.abs(aligned(**batch).last_hidden_state.numpy() - expected).max())
    if not (differences[torch.float64] <= LIMIT and np.isfinite(differences[torch.float32])):
        raise ValueError(
            f"The aligned vectors are {differences[torch.float64]:.1e} away from the product of layer and matrix "
            f"(limit {LIMIT:.0e}), so the model was not kept."
        )
    return differences


# --- The card --------------------------------------------------------------------------------------------------------


def alignment_text(layer: int, space: str) -> str:
    """What the vectors of an aligned model are, for its card."""
    return (
        f"The vectors (`last_hidden_state`) are those of layer {layer} times a matrix, which puts them into {space}. "
        "There they can be compared with the vectors of other models. `hidden_states` are the model's own, as before."
    )


def aligned_card(card: str | None, name: str, layer: int, section: Sequence[str]) -> str:
    """The card of a model, changed to that of the model with an alignment.

    Args:
        card: The card as it was; `None` if there is none.
        name: New name of the model.
        layer: The layer that is aligned.
        section: What is said of the alignment; what was said of an earlier one goes.
    """
    name = _one_line(name)
    card = NO_CARD.replace("$name", name) if card is None else card
    heading = re.search(r"^# (.+)$", card, flags=re.MULTILINE)
    if heading is not None:
        for quote in ("# {}\n", '"{}"', "`{}`"):
            card = card.replace(quote.format(heading[1]), quote.format(name))
    card = card.replace(
        TASK_WEIGHTS,
        f"The vectors are those of layer {layer} alone, which the alignment was made for; layers are not weighted.",
    )
    card = re.sub(rf"^{HEADING}\n.*?(?=^## |\Z)", "", card, flags=re.MULTILINE | re.DOTALL)
    text = "\n\n".join([HEADING, *section]) + "\n\n"
    before, limits, after = card.partition("## Limits\n")
    return before + text + limits + after if limits else f"{card.rstrip()}\n\n{text.rstrip()}\n"
