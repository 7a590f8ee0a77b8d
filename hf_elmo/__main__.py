# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""`python -m hf_elmo` is `hf-elmo`."""

import sys

from .cli import main

sys.exit(main())
