# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Repeats the claims of the paper with a model, in parts, each a table or a figure of it.

    ner, sst5, pos-tag    a task without ELMo, with it, and with random weights of the same shape (Table 1)
    pos, wsd              what each layer knows, as it is (Tables 6 and 5)
    layers, output        which layers the task sees, and where (Tables 2 and 3)
    sizes, weights        how many examples are needed, and which layers are used (Figures 1 and 2)
    domain                perplexity before and after an epoch of another domain (Table 7)

Each run of a part is one file, PART/RUN.json in the output folder, with its command, and each part has a picture. What
is there already is kept if its command and the model are still the same. Parts may run side by side in several
processes; set OMP_NUM_THREADS=1 then. The data folder needs the files named in `scripts/evidence_parts.py`.

Examples:
    python scripts/evidence.py --data data --elmo elmo-mini --output results/evidence
    python scripts/evidence.py --data data --only ner sst5 pos wsd domain &
    python scripts/evidence.py --data data --only pos-tag layers output sizes & wait
    python scripts/evidence.py --data data --only weights
    python scripts/results_report.py
"""

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers.utils import logging

from hf_elmo.cli import main as hf_elmo
from hf_elmo.conversion.verify import load_config
from hf_elmo.hub import sha256_of
from hf_elmo.pictures import check_matplotlib
from hf_elmo.scripts.evidence_data import split_domain, wordnet_index
from hf_elmo.scripts.evidence_parts import (
    DATA_OF_PART,
    FILES,
    Setting,
    domain_commands,
    finetune_command,
    parts,
    probe_command,
)
from hf_elmo.scripts.evidence_pictures import draw
from hf_elmo.scripts.original_wheels import cache_folder
from hf_elmo.shipped_model import MINI_NAME, MODEL_HELP, model_folder

OUTPUT = Path("results/evidence")
WEIGHTS, CONFIG = "model.safetensors", "config.json"


class Evidence:
    """Runs commands of `hf-elmo` and keeps their results.

    Args:
        setting: Where things are, and how much is done.
        output: The folder of the results files.
    """

    def __init__(self, setting: Setting, output: Path):
        self.setting, self.output = setting, output
        self.folder = model_folder(setting.elmo)
        load_config(self.folder)  # says what is wrong with a folder of something else
        self.weights, self.shape = (sha256_of(self.folder / name) for name in (WEIGHTS, CONFIG))

    def missing(self, runs: Sequence[str]) -> list[str]:
        """The runs whose results are not there, or are those of another command or model."""
        return [run for run in runs if not self._is_done(run)]

    def do(self, run: str) -> None:
        """Runs the commands of a run, and writes its results file when all have succeeded."""
        raw = self._prepare(run)
        started, cpu_started = time.perf_counter(), time.process_time()
        for command in self.commands(run):
            code = hf_elmo(command)
            if code:
                raise RuntimeError(f"{run} failed: hf-elmo {shlex.join(self._shown(command))}")
        content = json.loads(raw.read_text(encoding="utf-8"))
        content |= {"command": self._command(run)[-1], "evidence": {**self._identity(run), "run": run}}
        content["evidence"] |= {
            "minutes": round((time.perf_counter() - started) / 60, 2),
            "processor_minutes": round((time.process_time() - cpu_started) / 60, 2),
        }
        for name in {"model", "text"} & content.keys():
            content[name] = self._without_folders(content[name])
        self._write(run, content)
        self._clean(run)

    def commands(self, run: str) -> list[list[str]]:
        """The arguments of `hf-elmo`, several if a run has several steps."""
        part = run.partition("/")[0]
        if part == "domain":
            return domain_commands(run, self.setting, self.folder, self._raw(run))
        if part in ("pos", "wsd"):
            return [probe_command(run, self.setting, self._raw(run))]
        return [finetune_command(run, self.setting)]

    def path(self, run: str) -> Path:
        """The results file of a run."""
        return self.output / f"{run}.json"

    def _prepare(self, run: str) -> Path:
        """The file that the commands will write, in a folder without anything of an earlier attempt."""
        folder = self.setting.work / run
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        if run.startswith("domain/"):
            split_domain(Path(self.setting.files("domain")[0]), self.setting.work / "domain")
            if not run.endswith("before"):
                folder.rmdir()  # pretraining makes it
        return self._raw(run)

    def _raw(self, run: str) -> Path:
        if run.startswith(("domain/", "pos/", "wsd/")):
            return self.setting.work / f"{run}.json"
        return self.setting.work / run / "results.json"

    def _clean(self, run: str) -> None:
        """Deletes what no other run needs: the steps of a training, and the features of random weights."""
        for folder in (self.setting.work / run).glob("seed-*"):
            shutil.rmtree(folder)
        if run.endswith("/random"):
            shutil.rmtree(self.setting.work / "features" / run.replace("/", "-"), ignore_errors=True)

    def _is_done(self, run: str) -> bool:
        try:
            content = json.loads(self.path(run).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False
        known = content.get("evidence", {})
        return {name: known.get(name) for name in self._identity(run)} == self._identity(run)

    def _identity(self, run: str) -> dict[str, Any]:
        """What the results depend on: the commands, and the weights, for random ones the shape."""
        system = run.replace("-", "/").rpartition("/")[2]
        return {
            "commands": self._command(run),
            "model_sha256": None if system in ("without", "random") else self.weights,
            "config_sha256": self.shape if system == "random" else None,
            "quick": self.setting.quick,
        }

    def _command(self, run: str) -> list[str]:
        return [shlex.join(["hf-elmo", *self._shown(command)]) for command in self.commands(run)]

    def _shown(self, command: list[str]) -> list[str]:
        return [str(self._without_folders(word)) for word in command if word != "--overwrite"]

    def _without_folders(self, word: Any) -> Any:
        """A word of a command, or a list of them, without the folders of this machine."""
        if isinstance(word, list):
            return [self._without_folders(one) for one in word]
        if word == str(self.folder):
            return Path(self.setting.elmo).name
        for folder in (self.setting.data, self.setting.work):
            if Path(word).is_relative_to(folder):
                return Path(word).relative_to(folder).as_posix()
        return os.path.basename(word) if os.path.isabs(word) else word

    def _write(self, run: str, content: dict[str, Any]) -> None:
        path = self.path(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".partial")
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(temporary, path)


# --- The command line ------------------------------------------------------------------------------------------------


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        prog="evidence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(parts())
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="with the files of the tasks")
    parser.add_argument("--elmo", default=MINI_NAME, metavar="FOLDER", help=f"{MODEL_HELP} (default: %(default)s)")
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="PART", help=f"of {', '.join(names)}; default: all"
    )
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, metavar="FOLDER", help="for results and pictures (default: %(default)s)"
    )
    parser.add_argument(
        "--work", type=Path, metavar="FOLDER", help="for features and models, which may be deleted (default: a cache)"
    )
    parser.add_argument(
        "--word-vectors", default="glove-6b-50d", metavar="FILE", help="a file or a package (default: %(default)s)"
    )
    parser.add_argument(
        "--wordnet", type=Path, metavar="FILE", help="index.sense of WordNet 3.0 (default: that of a PyPI package)"
    )
    parser.add_argument("--quick", action="store_true", help="only see that everything runs; needs another --output")
    return parser.parse_args(argv)


def _check(arguments: argparse.Namespace) -> None:
    """Finds what would fail later."""
    if arguments.quick and arguments.output.resolve() == OUTPUT.resolve():
        raise ValueError(f"--quick measures nothing that {OUTPUT} should keep: give another --output.")
    runs = [run for part in arguments.only for run in parts()[part]]
    needed = {name for run in runs for name in FILES[DATA_OF_PART[run.partition("/")[0]]]}
    missing = sorted(name for name in needed if not (arguments.data / name).exists())
    if missing:
        raise FileNotFoundError(f"{arguments.data} lacks {', '.join(missing)}. Give the folder that has it as --data.")
    check_matplotlib()


def _word_vectors(name: str) -> str:
    """The name of a package as it is, a file with its whole path."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def main(argv: Sequence[str] | None = None) -> int:
    arguments = arguments_of(argv)
    try:
        _check(arguments)
        wordnet = arguments.wordnet
        if "wsd" in arguments.only and wordnet is None:
            wordnet = wordnet_index(cache_folder())
        setting = Setting(
            data=arguments.data.resolve(),
            work=(arguments.work or cache_folder() / "evidence").resolve(),
            elmo=arguments.elmo,
            word_vectors=_word_vectors(arguments.word_vectors),
            wordnet=wordnet,
            quick=arguments.quick,
        )
        evidence = Evidence(setting, arguments.output)
        _run_all(evidence, arguments.only)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"evidence: error: {error}", file=sys.stderr)
        return 1
    return 0


def _run_all(evidence: Evidence, names: Sequence[str]) -> None:
    runs_of = parts(evidence.setting.quick)
    wanted = list(dict.fromkeys(run for name in names for run in runs_of[name]))
    missing = evidence.missing(wanted)
    print(f"{len(wanted)} runs, {len(wanted) - len(missing)} of them done already", file=sys.stderr)
    for run in logging.tqdm(missing, desc="evidence", unit=" runs"):
        if evidence.missing([run]):  # another process may have done it meanwhile
            print(f"--- {run}", file=sys.stderr, flush=True)
            evidence.do(run)
    for name in names:
        contents = {run: json.loads(evidence.path(run).read_text(encoding="utf-8")) for run in runs_of[name]}
        path = evidence.output / name / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"{name}: {len(contents)} runs, picture {draw(name, contents, path)}")


if __name__ == "__main__":
    sys.exit(main())
