"""What the site takes from elsewhere in the repository: whole documents, tables of figures, results files.

- `<!-- include FILE -->` in a page becomes the text of a file of the repository.
- `<!-- include FILE NAME -->` becomes what stands between `<!-- NAME -->` and `<!-- end of NAME -->` in it.

What stands before such a mark in its line is a link for those who read the page in the repository.

The files in results/ are part of the site, so that links to them work as they do in the repository. The classes are
for the reference: examples of docstrings are code, and arguments have their types and defaults.
"""

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
INCLUDE = re.compile(r"^.*<!-- include ([\w./-]+)(?: (\w+))? -->$", re.MULTILINE)
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
    """The text of a page with what it includes; results/, beside docs/ in the repository, is inside the site."""
    up = "../" * page.file.src_uri.count("/")
    return INCLUDE.sub(_included, markdown.replace(f"]({up}../results/", f"]({up}results/"))


def _included(mark: re.Match[str]) -> str:
    name, part = mark.groups()
    path = ROOT / name
    if not path.is_file():
        raise PluginError(f"A page includes {name}, but the repository has no such file.")
    text = path.read_text(encoding="utf-8")
    if part is None:
        return text
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


class Fields(griffe.Extension):
    """Gives classes whose fields are their arguments a signature: named tuples, and the config, a strict dataclass."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Adds what Python makes of the fields."""
        bases = {str(base).rpartition(".")[2] for base in cls.bases}
        if "__init__" in cls.members or not bases & {"NamedTuple", "PreTrainedConfig"}:
            return
        fields = [member for member in cls.members.values() if member.is_attribute and not member.is_private]
        parameters = [
            griffe.Parameter(
                field.name,
                annotation=field.annotation,
                kind=griffe.ParameterKind.positional_or_keyword,
                default=_default(field),
            )
            for field in fields
            if field.annotation is not None
            and not field.labels & {"property", "cached"}
            and field.name != "model_type"
        ]
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters)))


def _default(field: griffe.Attribute) -> Any:
    """What a field is if nothing is given; of a factory, what it returns."""
    factory = re.fullmatch(r"field\(default_factory=(\w+)\)", str(field.value))
    if factory is None:
        return field.value
    (function,) = ast.parse(textwrap.dedent(field.module[factory[1]].source)).body
    return ast.unparse(function.body[-1].value)


class Constants(griffe.Extension):
    """Shows the value of a default that is the name of a constant."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Puts the values into the signature of a function."""
        for parameter in func.parameters:
            if isinstance(parameter.default, griffe.ExprName) and parameter.default.name.isupper():
                parameter.default = func.modules_collection[parameter.default.canonical_path].value
