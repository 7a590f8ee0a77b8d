# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs all benchmarks, one after the other, each in a process of its own: `make bench`.

Each writes its figures and a picture into a folder. Afterwards `python scripts/results_table.py README.md results`
puts the figures into the README. Nothing else should run meanwhile.

Examples:
    python -m hf_elmo.scripts.bench_all --quick --output tried
    python -m hf_elmo.scripts.bench_all --conllu en_ewt-ud-dev.conllu --simple-elmo --output results/speed
"""

import argparse
import subprocess
import sys
from pathlib import Path

BENCHMARKS = ("tokenizer", "loading", "inference", "quantization", "scaling", "scoring", "training", "onnx", "serving")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the folder for the results")
    parser.add_argument("--only", choices=BENCHMARKS, nargs="+", default=BENCHMARKS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="only see that they run")
    parser.add_argument("--conllu", type=Path, help="the file that inference reads as a whole")
    parser.add_argument("--text", type=Path, help="words for inference, quantization, training, ONNX and serving")
    parser.add_argument("--simple-elmo", action="store_true", help="measure simple_elmo on TensorFlow, too")
    arguments = parser.parse_args()
    if arguments.quick and (arguments.output / "bench_inference.json").exists():
        parser.error(f"{arguments.output} has results; with --quick, give another folder")
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        print(f"--- {name}", flush=True)
        subprocess.run(command_of(name, arguments), check=True)
    return 0


def command_of(name: str, arguments: argparse.Namespace) -> list[str]:
    """The command of a benchmark, with those options that it has."""
    command = [sys.executable, "-m", f"hf_elmo.scripts.bench_{name}"]
    if arguments.quick:
        command += ["--words", "200", "--vocabulary", "1000"] if name == "scoring" else ["--quick"]
    if name == "inference":
        command += ["--conllu", str(arguments.conllu)] if arguments.conllu else []
        command += ["--simple-elmo"] if arguments.simple_elmo else []
    if name in ("inference", "quantization", "training", "onnx", "serving") and arguments.text:
        command += ["--text", str(arguments.text)]
    return [*command, "--output", str(arguments.output / f"bench_{name}.json")]


if __name__ == "__main__":
    sys.exit(main())
