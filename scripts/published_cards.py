# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the cards of all published models from the facts in model_cards/published.json.

Those of ELMoForManyLangs, one for each language, go into a folder of their own. README.md lists all of them.

Examples:
    python scripts/published_cards.py model_cards
    python scripts/published_cards.py model_cards --check
"""

import argparse
import sys
from pathlib import Path

from hf_elmo.model_card_published import MANYLANGS, published_model_card, published_models

LIST = "README.md"
LIST_BEGIN = """# Model cards

One card for each published model, made from the facts in [published.json](published.json) by

```bash
python scripts/published_cards.py model_cards
```

What is not known is left out. [template.md](template.md) is the frame of all cards, also of those that
`hf-elmo convert` and `hf-elmo pretrain` write; `hf-elmo card` puts results into the card of a folder. The weights
themselves are not here: each card says how to convert them. The card of the model in the package is
[beside it](../hf_elmo/mini/README.md).
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the cards are")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a card is not up to date")
    arguments = parser.parse_args()
    cards = all_cards(arguments.folder)
    stale = [path for path, text in cards.items() if _read(path) != text]
    if arguments.check and stale:
        print(f"{stale[0]} and {len(stale) - 1} more are not up to date; run this without --check.", file=sys.stderr)
        return 1
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(cards[path], encoding="utf-8")
    print(f"{len(stale)} cards written" if stale else "all cards are up to date")
    return 0


def all_cards(folder: Path) -> dict[Path, str]:
    """The text of each card, and of their list, by its file."""
    cards = {_path(folder, name): published_model_card(name) for name in published_models()}
    return {**cards, folder / LIST: _list(folder)}


def _path(folder: Path, name: str) -> Path:
    return folder / "manylangs" / f"{name}.md" if name.startswith(MANYLANGS) else folder / f"{name}.md"


def _list(folder: Path) -> str:
    rows = [
        f"| [{name}]({_path(folder, name).relative_to(folder).as_posix()}) | {facts['title']} | {facts['license']} |"
        for name, facts in published_models().items()
    ]
    return "\n".join([LIST_BEGIN, "| card | model | licence of the weights |", "|---|---|---|", *rows, ""])


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
