# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs that a person runs, each readable from top to bottom; `hf-elmo` and `make` start them."""
