# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Old weights to Hub folders, and back: one file for each source dialect, the safe readers, and the verification."""

from .allennlp import ConversionReport, ExportReport, convert_allennlp, export_allennlp

__all__ = ["ConversionReport", "ExportReport", "convert_allennlp", "export_allennlp"]
