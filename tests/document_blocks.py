"""Runs the blocks of a document as its reader would, and compares what they print with what the document says.

In the pages of docs/, blocks are run in their order, in an empty folder, with one set of Python names for a page:

- `python` is executed.
- `bash` has either commands of `hf-elmo`, one a line, or commands of the shell. `pip install` is not run, but the
  extras that it names must exist.
- `text` is what the block before it printed on standard output; `...` stands for anything.

Other languages are shown only. With `python tests/document_blocks.py PAGE ...` the `text` blocks are written anew,
except where `...` fits what is printed.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hf_elmo import cli

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
    for block in blocks(path.read_text(encoding="utf-8")):
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


def named_extras(text: str) -> set[str]:
    """The extras of this package that a text names."""
    return {name for names in EXTRAS.findall(text) for name in names.split(",")}


def is_said(printed: str, said: str) -> bool:
    """Whether a document says what was printed."""
    return doctest.OutputChecker().check_output(said, printed, FLAGS)


def updated(path: Path) -> str:
    """The text of a page with what its blocks print now."""
    text = path.read_text(encoding="utf-8")
    for block, printed in reversed(list(run_page(path))):
        if not is_said(printed, block.body):
            text = text[: block.start] + printed + text[block.start + len(block.body) :]
    return text


def main() -> None:
    """Writes what is printed into the pages that are named."""
    os.environ["COLUMNS"] = WIDTH
    for page in [Path(name).resolve() for name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            text = updated(page)
            os.chdir(page.parent)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
