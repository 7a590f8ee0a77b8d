# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the figures of the README from the results files, so that none is typed by hand.

What stands between `<!-- results -->` and `<!-- end of results -->` is replaced by a table of all files in results/
that `hf-elmo finetune` and `bench_tokenizer` wrote.

Examples:
    python scripts/results_table.py README.md results
    python scripts/results_table.py README.md results --check
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path, help="the file with the two marks")
    parser.add_argument("results", type=Path, help="the folder with the results files")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the table is not up to date")
    arguments = parser.parse_args()
    text = arguments.document.read_text(encoding="utf-8")
    updated = with_table(text, arguments.results)
    if arguments.check and updated != text:
        print(f"{arguments.document} is not what {arguments.results} says; run this without --check.", file=sys.stderr)
        return 1
    if updated != text:
        arguments.document.write_text(updated, encoding="utf-8")
    return 0


def with_table(text: str, results: Path) -> str:
    """The text with the table of these results in its place."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"The document has no place for the table: write {BEGIN} and {END} into it.")
    rows = [row(path) for path in sorted(results.glob("*.json"))]
    table = "\n".join(["| what | figure | file with the command |", "|---|---|---|", *rows])
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def row(path: Path) -> str:
    """The line of one results file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    describe = _finetuned if "seeds" in content else _measured
    what, figure = describe(content)
    return f"| {what} | {figure} | [{path.name}](results/{path.name}) |"


def _finetuned(content: dict[str, Any]) -> tuple[str, str]:
    metric = content["metric"]
    summary = content["summary"][metric]
    deviation = summary["standard_deviation"]
    spread = "" if deviation is None else f" ± {100 * deviation:.2f}"
    name = {"f1": "F1", "accuracy": "accuracy"}[metric]
    with_elmo = next(iter(content["seeds"].values()))["layer_weights"] is not None
    source = content["dev"].partition(":")[0]
    what = f"`hf-elmo finetune {content['task']}` on `{source}`, {'with' if with_elmo else 'without'} ELMo"
    return what, f"{name} {100 * summary['mean']:.2f}{spread} ({len(content['seeds'])} seeds)"


def _measured(content: dict[str, Any]) -> tuple[str, str]:
    first = content["results"][0]
    return "raw text to padded torch tensors", f"{first['words_per_second']:,} words/s on one core"


if __name__ == "__main__":
    sys.exit(main())
