# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The page of `hf-elmo app` as a Space of the Hub, with the model that comes with the package."""

from hf_elmo import ELMO_MINI
from hf_elmo.playground import Playground
from hf_elmo.scripts.app import look, page

# For another model, upload its folder beside this file and name it here; TAGGER is one of `hf-elmo finetune tag`.
MODEL, NAME = ELMO_MINI, "elmo-mini"
TAGGER = None

demo = page(Playground.from_pretrained(MODEL, TAGGER, NAME))

if __name__ == "__main__":
    demo.launch(**look())
