# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the figures of a document from the results files, so that none is typed by hand.

What stands between `<!-- results -->` and `<!-- end of results -->` is replaced by a table of the tasks that
`scripts/evidence.py` left in results/evidence/, and between `<!-- speed -->` and `<!-- end of speed -->` by one of the
files in results/speed/ that the benchmarks wrote (`make bench`). The README has both. `<!-- more speed -->` is for
the benchmarks that it leaves out, `<!-- Intel -->` for those of results/speed/intel/, and `<!-- exactness -->` for how
far both programs are from double precision, in docs/results.md.

Examples:
    python scripts/results_table.py README.md results
    python scripts/results_table.py docs/results.md results
    python scripts/results_table.py README.md results --check
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hf_elmo.scripts.evidence_parts import NAMES, SYSTEMS, TASKS
from hf_elmo.scripts.evidence_pictures import score_of
from hf_elmo.scripts.task_metrics import shown

SIZES = ("small", "original")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path, help="the file with the marks")
    parser.add_argument("results", type=Path, help="the folder with the results files")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the tables are not up to date")
    arguments = parser.parse_args()
    text = arguments.document.read_text(encoding="utf-8")
    updated = with_tables(text, arguments.results)
    if arguments.check and updated != text:
        print(f"{arguments.document} is not what {arguments.results} says; run this without --check.", file=sys.stderr)
        return 1
    if updated != text:
        arguments.document.write_text(updated, encoding="utf-8")
    return 0


def with_tables(text: str, results: Path) -> str:
    """The text with the tables that it has a place for; if it has none at all, those of the README are missed."""
    tables = {
        "results": lambda: task_table(results),
        "speed": lambda: speed_table(results / "speed", BENCHMARKS),
        "Intel": lambda: speed_table(results / "speed/intel", BENCHMARKS, "../results/speed/intel"),
        "more speed": lambda: speed_table(results / "speed", MORE_BENCHMARKS, "../results/speed"),
        "exactness": lambda: exactness_table(results / "speed", "../results/speed"),
    }
    for name in [name for name in tables if f"<!-- {name} -->" in text] or ["results", "speed"]:
        text = put_between(text, name, tables[name]())
    return text


def put_between(text: str, name: str, table: str) -> str:
    """The text with a table between the two marks of this name."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"The document has no place for the table: write {first} and {last} into it.")
    return f"{before}{first}\n\n{table}\n\n{last}{after}"


# --- Tasks -----------------------------------------------------------------------------------------------------------


def task_table(results: Path) -> str:
    """The tasks of the evidence, each without ELMo, with it, and with random weights of the same shape."""
    lines = [
        "| task | without ELMo | with ELMo | with random weights | files with the commands |",
        "|---|---|---|---|---|",
    ]
    for task in TASKS:
        runs = {system: results / "evidence" / task / f"{system}.json" for system in SYSTEMS}
        contents = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in runs.items()}
        first = contents[SYSTEMS[0]]
        metric = {"f1": "F1", "accuracy": "accuracy"}[first["metric"]]
        figures = " | ".join(shown(score_of(contents[system])) for system in SYSTEMS)
        files = ", ".join(f"[{path.name}]({path.relative_to(results.parent).as_posix()})" for path in runs.values())
        lines.append(f"| {NAMES[task]}, {metric} ({len(first['seeds'])} seeds) | {figures} | {files} |")
    return "\n".join(lines)


# --- Speed -----------------------------------------------------------------------------------------------------------


class SpeedRow(NamedTuple):
    """A line of the table: what is done, and a figure for each size that was measured."""

    work: str
    figures: dict[str, str]


def speed_table(folder: Path, benchmarks: "Benchmarks | None" = None, link: str = "results/speed") -> str:
    """The table of those of the benchmarks, by default of all, that have been run; `link` leads to the folder."""
    lines = ["| work | small | original | file with the command |", "|---|---|---|---|"]
    for name, rows_of in benchmarks or (*BENCHMARKS, *MORE_BENCHMARKS):
        path = folder / f"bench_{name}.json"
        if not path.is_file():
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("quick"):
            raise ValueError(f"{path} was written with --quick, which measures nothing: run the benchmark without it.")
        for row in rows_of(content):
            figures = " | ".join(row.figures.get(size, "") for size in SIZES)
            lines.append(f"| {row.work} | {figures} | [{path.name}]({link}/{path.name}) |")
    return "\n".join(lines)


def exactness_table(folder: Path, link: str) -> str:
    """How far both programs are from double precision, with the weights of all benchmarks and with larger ones."""
    lines = ["| work | weights | small | original | file with the command |", "|---|---|---|---|---|"]
    for weights, name in (("as above", "bench_inference.json"), ("twice as large", "clipped/bench_inference.json")):
        for work, results in _by_work(json.loads((folder / name).read_text(encoding="utf-8"))).items():
            by_size = {one["size"]: _from_double_precision(one) for one in results}
            figures = " | ".join(by_size.get(size, "") for size in SIZES)
            lines.append(f"| {work} | {weights} | {figures} | [{name}]({link}/{name}) |")
    return "\n".join(lines)


def _from_double_precision(result: dict[str, Any]) -> str:
    found = result["apart_from_float64"]
    return f"hf-elmo {found['hf_elmo']:.1e}, AllenNLP {found['allennlp']:.1e}, {result['apart']:.1e} apart"


def _by_work(content: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    works: dict[str, list[dict[str, Any]]] = {}
    for result in content["results"]:
        works.setdefault(result["work"], []).append(result)
    return works


def _times(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.1f}x"


def _beside_allennlp(result: dict[str, Any]) -> str:
    remembering = result.get("remembering")
    return (
        _times(result["ratio"])
        + (f" ({_times(remembering['ratio'])} within a text)" if remembering else "")
        + f", {result['apart']:.1e} apart"
    )


def _inference(content: dict[str, Any]) -> Iterator[SpeedRow]:
    for work, results in _by_work(content).items():
        yield SpeedRow(_named(work, content), {one["size"]: _beside_allennlp(one) for one in results})


def _simple_elmo(content: dict[str, Any]) -> Iterator[SpeedRow]:
    """Where it was measured, too."""
    for work, results in _by_work(content).items():
        ratios = {one["size"]: _times(one["ratio_simple_elmo"]) for one in results if "ratio_simple_elmo" in one}
        if ratios:
            yield SpeedRow(f"{_named(work, content)}, beside simple_elmo 0.9.2 on TensorFlow 2.21", ratios)


def _named(work: str, content: dict[str, Any]) -> str:
    return f"{content['file']}, words to layers" if work == "a file" else work


def _loading(content: dict[str, Any]) -> Iterator[SpeedRow]:
    yield SpeedRow("loading, files in memory", {one["size"]: _beside_allennlp(one) for one in content["results"]})


def _quantization(content: dict[str, Any]) -> Iterator[SpeedRow]:
    """One sentence only, which is what it is for."""
    work, results = next(iter(_by_work(content).items()))
    for to in dict.fromkeys(one["quantize"] for one in results):
        chosen = [one for one in results if one["quantize"] == to]
        yield SpeedRow(
            f'{work}, `quantize="{to}"` beside our float32',
            {one["size"]: f"{_times(one['ratio'])}, cosine {_worst_cosine(one):.4f}" for one in chosen},
        )


def _worst_cosine(result: dict[str, Any]) -> float:
    return min(error["min_cosine"] for error in result["errors"])


def _scaling(content: dict[str, Any]) -> Iterator[SpeedRow]:
    for result in content["results"]:
        first, last = result["points"][0]["words"], result["points"][-1]["words"]
        figure = f"seconds ~ words^{result['exponent']:.2f}, {1 / result['seconds_per_word']:,.0f} words/s"
        yield SpeedRow(f"{first:,} to {last:,} words, {result['kind']}", {content["size"]: figure})


def _training(content: dict[str, Any]) -> Iterator[SpeedRow]:
    peaks = content["process_peak_bytes"]
    figure = _beside_allennlp(content)
    if None not in peaks.values():
        figure += f", {peaks['hf_elmo'] / 1e9:.1f} GB instead of {peaks['allennlp'] / 1e9:.1f}"
    work = f"a training step, {content['rows']} x {content['steps']} words a direction"
    yield SpeedRow(work, {content["size"]: figure})


def _tokenizer(content: dict[str, Any]) -> Iterator[SpeedRow]:
    speed = f"{content['results'][0]['words_per_second']:,} words/s"
    yield SpeedRow("raw text to padded tensors, one core", dict.fromkeys(SIZES, speed))


def _onnx(content: dict[str, Any]) -> Iterator[SpeedRow]:
    for work, results in _by_work(content).items():
        figures = {
            one["size"]: f"{_times(one['ratio']['onnx'])}, {one['apart']['onnx']:.1e} apart; "
            f"int8 {_times(one['ratio']['onnx_int8'])}"
            for one in results
        }
        yield SpeedRow(f"{work}, onnxruntime beside our torch", figures)


def _serving(content: dict[str, Any]) -> Iterator[SpeedRow]:
    """The most connections only, where requests are computed together."""
    most = max(one["connections"] for one in content["results"])
    for runtime in dict.fromkeys(one["runtime"] for one in content["results"]):
        chosen = [one for one in content["results"] if one["connections"] == most and one["runtime"] == runtime]
        figures = {one["size"]: _load(one) for one in chosen}
        yield SpeedRow(f"`hf-elmo serve` by {runtime}, {most} clients, texts of 1 to 50 words", figures)


def _load(one: dict[str, Any]) -> str:
    speed, latency = one["requests_per_second"]["median"], one["latency_ms"]["p95"]
    errors = sum(one["errors"].values())
    return f"{speed:.0f} requests/s, p95 {latency:.0f} ms, {errors} errors, {one['apart']:.1e} apart"


Benchmarks = Sequence[tuple[str, Callable[[dict[str, Any]], Iterator[SpeedRow]]]]

BENCHMARKS: Benchmarks = (
    ("inference", _inference),
    ("training", _training),
)
MORE_BENCHMARKS: Benchmarks = (
    ("inference", _simple_elmo),
    ("loading", _loading),
    ("quantization", _quantization),
    ("scaling", _scaling),
    ("tokenizer", _tokenizer),
    ("onnx", _onnx),
    ("serving", _serving),
)


if __name__ == "__main__":
    sys.exit(main())
