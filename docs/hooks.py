"""What the site takes from elsewhere in the repository: whole documents, tables of figures, results files.

- `<!-- include FILE -->` in a page becomes the text of a file of the repository.
- `<!-- include FILE NAME -->` becomes what stands between `<!-- NAME -->` and `<!-- end of NAME -->` in it.
- `<!-- include-if-there FILE -->` is the same as the first, or nothing if there is no such file.

The files in results/ are part of the site, so that links to them work as they do in the repository. `Examples` is for
the reference, where the examples of docstrings are code.
"""

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
INCLUDE = re.compile(r"^<!-- include(-if-there)? ([\w./-]+)(?: (\w+))? -->$", re.MULTILINE)
RESULTS = (".json", ".png")
EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Adds the results files."""
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in RESULTS:
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page with what it includes."""
    return INCLUDE.sub(_included, markdown)


def _included(mark: re.Match[str]) -> str:
    optional, name, part = mark.groups()
    path = ROOT / name
    if optional and not path.is_file():
        return ""
    if not path.is_file():
        raise PluginError(f"A page includes {name}, but the repository has no such file.")
    text = path.read_text(encoding="utf-8")
    if part is None:
        return re.sub(r"\A# ", "## ", text) if optional else text
    _, begin, rest = text.partition(f"<!-- {part} -->")
    inside, end, _ = rest.partition(f"<!-- end of {part} -->")
    if not begin or not end:
        raise PluginError(f"A page includes the part {part!r} of {name}, but it has no marks of this name.")
    return inside.strip()


class Examples(griffe.Extension):
    """Lets `Example:` of a docstring be what griffe knows as `Examples:`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring of an object, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
