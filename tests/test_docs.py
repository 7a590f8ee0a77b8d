"""The pages of docs/: their blocks run and print what they say, their links lead somewhere, and the site builds."""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from document_blocks import HUB, WIDTH, blocks, is_said, named_extras, run_page
from hub_stand_in import HubStandIn, run_client

import hf_elmo
from hf_elmo import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LANGUAGES = {"python", "bash", "text", "console"}

EXTRAS = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE))

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\((?!https?://)([^)\s]*)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
INCLUDE = re.compile(r"<!-- include ([\w.]+) -->")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]+")

EXECUTED = [
    page for page in PAGES if page != HUB and any(b.language in ("python", "bash") for b in blocks(page.read_text()))
]


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """An empty folder, the current one; what a page changes in Python's path is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path
    sys.modules.pop("elmo_onnx", None)


@pytest.mark.parametrize("page", EXECUTED, ids=name_of)
def test_blocks_print_what_the_page_says(page, reader):
    for block, printed in run_page(page):
        assert is_said(printed, block.body), (
            f"{name_of(page)}:{block.line} says\n{block.body}\nbut this is printed:\n{printed}\nIf that is right: "
            f"python tests/document_blocks.py docs/{name_of(page)}"
        )


def test_blocks_about_the_hub(reader):
    """A folder is made and gets its card; who talks to the Hub is a process of its own, and the last one is new."""
    parts = blocks(HUB.read_text(encoding="utf-8"))
    (make, *others, remote), commands, said = (
        [block.body for block in parts if block.language == language] for language in ("python", "console", "text")
    )
    exec(make, {})
    lines = [line.removeprefix("$ hf-elmo ").split() for line in "".join(commands).splitlines()]
    of_folder = [words for words in lines if words[1] == "my-elmo"]
    assert [words[0] for words in of_folder] == ["card", "verify"]
    assert all(cli.main(words) == 0 for words in of_folder)
    with HubStandIn() as hub:
        printed = run_client("\n".join(others), hub.environment())
        remote = remote.replace("your-name", "user").replace("COMMIT", hub.commits("user/my-elmo")[0])
        printed += run_client(remote, hub.environment())
    assert is_said(printed, "".join(said)), printed
    assert {"README.md", "model.safetensors", "modeling_elmo.py"} < hub.files("user/my-elmo").keys()


def test_a_page_that_says_something_else_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    ((block, printed),) = run_page(page)
    assert (printed, is_said(printed, block.body)) == ("2\n", False)
    page.write_text("```bash\nhf-elmo nonsense\n```\n")
    with pytest.raises(AssertionError, match="hf-elmo nonsense"):
        list(run_page(page))
    page.write_text("```text\n3\n```\n")
    with pytest.raises(AssertionError, match="no block before this one prints anything"):
        list(run_page(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    assert {block.language for block in blocks(text)} <= LANGUAGES
    assert named_extras(text) <= EXTRAS
    for block in blocks(text):
        if block.language == "console":  # needs files that the reader has
            for line in block.body.splitlines():
                if line.startswith("$ curl "):
                    assert list(json.loads(shlex.split(line)[-1])) == ["texts"]  # as test_serve.py sends it
                else:
                    cli.parse(line.removeprefix("$ hf-elmo ").split())
    names = {name for lines in cli.sections().values() for name in lines}
    for code in INLINE.findall(FENCED.sub("", text)):
        if code.startswith("hf-elmo "):
            assert code.split()[1] in {*names, "--help", "--version", "COMMAND"}, f"{name_of(page)}: `{code}`"


def test_options_that_pages_name_exist():
    known = set()
    for words in cli.COMMANDS:
        known |= {option.replace("_", "-") for option in cli._parser(words.split())[1]}
    for page in PAGES:
        for code in INLINE.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
            for option in OPTION.findall(code) if code.startswith(("hf-elmo ", "--")) else ():
                assert option.replace("_", "-") in known, f"{name_of(page)} names {option}"


def anchors(page: Path) -> set[str]:
    """The places of a page that a link can lead to."""
    text = page.read_text(encoding="utf-8")
    for name in INCLUDE.findall(text):
        text += (ROOT / name).read_text(encoding="utf-8")
    return {
        re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
        for heading in HEADING.findall(FENCED.sub("", text))
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{name_of(page)} links to {link}"
        assert not anchor or anchor in anchors(target), f"{name_of(page)} links to {link}"


def test_every_public_name_is_in_the_reference():
    listed = " ".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    documented = {location.rpartition(".")[2] for location in re.findall(r"^::: (\S+)$", listed, re.MULTILINE)}
    assert set(hf_elmo.__all__) - documented == {"ELMO_MINI", "ElmoPreTrainedModel", "__version__"}


@pytest.mark.parametrize("page", sorted((DOCS / "api").glob("*.md")), ids=name_of)
def test_the_reference_says_where_a_name_is_imported_from(page):
    text = page.read_text(encoding="utf-8")
    for location in re.findall(r"^::: (\S+)$", text, re.MULTILINE):
        module, _, name = location.rpartition(".")
        public = name in hf_elmo.__all__ or name in ("ElmoTaskModel", "ElmoLanguageModel")  # their bases
        assert f"`{'hf_elmo' if public else module}`" in text, location
        assert public or name in vars(importlib.import_module(module)), location


def test_results_that_the_code_names_exist():
    for path in sorted((ROOT / "hf_elmo").glob("*.py")):
        for name in re.findall(r"`(results/[\w/.]+)`", path.read_text(encoding="utf-8")):
            assert (ROOT / name).is_file(), f"{path.name} names {name}"


def told_of(page: str, name: str) -> list[str]:
    """What a page of the reference says of each argument of this name, as text."""
    items = re.findall(r'<li class="doc-section-item.*?</li>', page, re.DOTALL)
    texts = [" ".join(re.sub(r"<[^>]+>", "", item).split()) for item in items]
    return [text.removeprefix(f"{name} ") for text in texts if text.startswith(f"{name} ")]


def check_reference(written: dict[str, str]) -> None:
    """Arguments have their types and defaults, also where Python makes them of fields; a result is told once."""
    model, embedder = written["api/model.html"], written["api/embedder.html"]
    assert told_of(model, "cell_size") == ["(int, default: 4096 ) – Width of the LSTM cells."]
    assert told_of(model, "char_cnn_filters")[0].startswith("(list[list[int]], default: [[1, 32], [2, 32]")
    assert told_of(model, "weights") == ["(Tensor) – One for each layer (L + 1,), which sum to 1."]
    assert {text.split(" )")[0] for text in told_of(embedder, "batch_tokens")} == {"(int, default: 4096"}
    assert len(told_of(embedder, "Any")) == 1, "a result of several lines is one thing"


def test_the_site_builds_without_a_warning(tmp_path):
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site]
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert "WARNING" not in finished.stderr
    written = {path.relative_to(site).as_posix(): path.read_text("utf-8") for path in site.rglob("*.html")}
    assert {name_of(page).removesuffix(".md") + ".html" for page in PAGES} <= written.keys()
    for name, text in written.items():
        assert not re.search(r'<(script|img|iframe)[^>]*src="(https?:)?//', text), f"{name} loads from elsewhere"
        assert not re.search(r'<link[^>]*rel="(stylesheet|preconnect)"[^>]*href="(https?:)?//', text), name
    assert (site / "results" / "parity" / "migrating.json").is_file()
    assert "9.5e-07" in written["migrating.html"]
    assert "end of speed" not in written["results.html"]
    assert "bench_inference.json" in written["results.html"]
    assert 'id="hf_elmo.embedder.ElmoEmbedder.encode"' in written["api/embedder.html"]
    check_reference(written)
    assert '<span class="gp">&gt;&gt;&gt; </span>' in written["api/tokenizer.html"], "examples are shown as code"


# --- What else stands beside the code --------------------------------------------------------------------------------


def test_citation_is_of_this_version():
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert content["version"] == hf_elmo.__version__
    assert content["license"] == "Apache-2.0"
    assert content["references"][0]["title"] == "Deep Contextualized Word Representations"


def test_hooks_before_a_commit_need_no_network():
    content = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in content["repos"]] == ["local"]
    assert {hook["language"] for hook in content["repos"][0]["hooks"]} == {"system"}


def test_continuous_integration_runs_what_a_developer_runs():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    assert ".ci/run" in steps
    assert any("twine check --strict" in step for step in steps)
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.10", "3.11", "3.12", "3.13"]
