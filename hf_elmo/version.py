# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The version, in a file of its own so that building the package imports nothing else."""

__version__ = "0.1.0"
