# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Old weights to Hub folders, and back: one file for each source dialect, the safe readers, and the verification."""

from .allennlp import ExportReport, convert_allennlp, export_allennlp
from .bilm_tf import convert_bilm_tf
from .manylangs import convert_manylangs, is_manylangs, read_manylangs
from .writing import ConversionReport

__all__ = [
    "ConversionReport",
    "ExportReport",
    "convert_allennlp",
    "convert_bilm_tf",
    "convert_manylangs",
    "export_allennlp",
    "is_manylangs",
    "read_manylangs",
]
