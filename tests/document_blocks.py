"""Runs the blocks of a document as its reader would, and compares what they print with what the document says.

In the pages of docs/, blocks are run in their order, in an empty folder, with one set of Python names for a page:

- `python` is executed.
- `bash` has either commands of `hf-elmo`, one a line, or commands of the shell. `pip install` is not run, but the
  extras that it names must exist. `make demo` runs the program that the Makefile names; `make test` is not run.
- `text` is what the block before it printed on standard output; `...` stands for anything.

Other languages are shown only. In the README, whose other blocks need files of the reader, only blocks that have a
`text` block behind them are run here.

With `python tests/document_blocks.py PAGE ...`, or without a page for all of them, the `text` blocks are written anew,
except where `...` fits what is printed. Between lines of `...`, a part is found by its first line, and stays as long
as it is.
"""

import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from hf_elmo import cli

ROOT = Path(__file__).parents[1]
READMES = {"README.md", "README.ko.md"}
HUB = ROOT / "docs" / "tutorials" / "hub.md"  # what it does takes a process with another Hub
LEFT_OUT = "..."  # a line that stands for any number of lines

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXTRAS = re.compile(r"hf-elmo\[([\w,]+)\]")
WIDTH = "100"  # of the terminal that the help of commands is written for
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    language: str
    body: str
    start: int  # where its body begins in the text
    line: int  # of its fence, from 1


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a text that have a language."""
    return [
        Block(found[1], found[2], found.start(2), text.count("\n", 0, found.start()) + 1)
        for found in BLOCK.finditer(text)
    ]


def run_page(path: Path) -> Iterator[tuple[Block, str]]:
    """Runs the blocks of a page in the current folder; gives each `text` block with what was printed."""
    names: dict = {"__name__": "__main__"}
    printed: str | None = None
    of_page = blocks(path.read_text(encoding="utf-8"))
    if path.name in READMES:
        shown = {number for number, block in enumerate(of_page) if block.language == "text"}
        of_page = [block for number, block in enumerate(of_page) if number in shown or number + 1 in shown]
    for block in of_page:
        if block.language == "text":
            assert printed is not None, f"{path.name}:{block.line}: no block before this one prints anything"
            yield block, printed
            printed = None
        elif block.language in ("python", "bash"):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                if block.language == "python":
                    exec(compile(block.body, f"{path.name}:{block.line}", "exec"), names)
                else:
                    run_commands(block.body)
            printed = output.getvalue()


def run_commands(block: str) -> None:
    """Runs a block of bash: commands of hf-elmo in this process, as importing torch takes long, others in a shell."""
    lines = [line for line in block.replace("\\\n", " ").splitlines() if shlex.split(line, comments=True)]
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    if targets:
        assert len(targets) == len(lines), f"make stands with other commands: {block}"
        run_targets(targets)
        return
    own = [line for line in lines if line.startswith("hf-elmo ")]
    if not own:
        installed = [line for line in lines if line.startswith("pip install ")]
        assert installed in ([], lines), f"pip install stands with other commands: {block}"
        if not installed:
            shell = subprocess.run(["bash", "-euc", block], capture_output=True, text=True)
            assert shell.returncode == 0, f"{block}\n{shell.stderr}"
            print(shell.stdout, end="")
        return
    for line in lines:
        program, *argv = shlex.split(line, comments=True)
        if program == "pip":
            continue
        assert program == "hf-elmo", f"no other program may stand in a block with hf-elmo: {line}"
        try:
            code = cli.main(argv)
        except SystemExit as end:  # of --help
            code = end.code
        assert code == 0, line


def run_targets(targets: list[str]) -> None:
    """Runs the module that a target of the Makefile runs, in this process; the target of the tests is left out."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in targets:
        if target != "test":
            recipe = re.search(rf"^{target}:.*\n\t@?\$\(BIN\)/python -m (\S+)$", makefile, re.MULTILINE)
            assert recipe is not None, f"the Makefile does not run one module for `make {target}`"
            assert importlib.import_module(recipe[1]).main([]) == 0, target


def named_extras(text: str) -> set[str]:
    """The extras of this package that a text names."""
    return {name for names in EXTRAS.findall(text) for name in names.split(",")}


def is_said(printed: str, said: str) -> bool:
    """Whether a document says what was printed."""
    return doctest.OutputChecker().check_output(said, printed, FLAGS)


def renewed(said: str, printed: str) -> str:
    """A `text` block with what is printed now, and with the same parts of it."""
    if LEFT_OUT not in said.splitlines():
        return printed
    lines = printed.splitlines()
    result: list[str] = []
    for is_left_out, part in groupby(said.splitlines(), LEFT_OUT.__eq__):
        shown = list(part)
        if not is_left_out:
            assert shown[0] in lines, f"this line is no longer printed, so nobody knows what to show: {shown[0]}"
            start = lines.index(shown[0])
            shown = lines[start : start + len(shown)]
        result += shown
    return "".join(f"{line}\n" for line in result)


def updated(path: Path) -> str:
    """The text of a page with what its blocks print now."""
    text = path.read_text(encoding="utf-8")
    for block, printed in reversed(list(run_page(path))):
        if not is_said(printed, block.body):
            text = text[: block.start] + renewed(block.body, printed) + text[block.start + len(block.body) :]
    return text


def main() -> None:
    """Writes what is printed into the pages that are named, or into all pages that need no Hub."""
    os.environ["COLUMNS"] = WIDTH
    pages = [ROOT / name for name in sorted(READMES)] + sorted(set((ROOT / "docs").rglob("*.md")) - {HUB})
    for page in [Path(name).resolve() for name in sys.argv[1:]] or pages:
        print(page.relative_to(ROOT), file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            text = updated(page)
            os.chdir(page.parent)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
