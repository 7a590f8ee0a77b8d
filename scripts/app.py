# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""A page to play with a model in the browser: `hf-elmo app`.

The page runs on this machine and loads nothing from elsewhere. `page` makes it for a Space on the Hub, too.
"""

import argparse
import importlib
import inspect
import os
import socket
from collections.abc import Callable
from typing import Any

from hf_elmo.cli import Command
from hf_elmo.pictures import check_matplotlib
from hf_elmo.playground import COMPARISONS, Choice, Comparison, Playground, first_choice, problem
from hf_elmo.shipped_model import MINI_NAME, MODEL_HELP, model_folder

from .demo_contexts import CONTEXTS

EXAMPLES = [sentence for senses in CONTEXTS.values() for contexts in senses.values() for sentence in contexts]
START = "\n".join(
    [
        "They rested on the bank of the river, in the shade of a tree.",
        "The steep bank of the stream was covered with mud.",
        "The bank lent the company a large sum of money.",
        "He borrowed the money from a bank to buy the house.",
    ]
)
CSS = """
#message:not(:has(.elmo-problem)) { display: none; }
.elmo-problem { border-left: 4px solid #d97706; padding: 0.6em 1em; margin: 0; font-size: 1.05em; }
.elmo-query { font-size: 1.1em; margin: 0 0 0.6em; }
.elmo-query b, .elmo-neighbors b, .elmo-contexts b { color: #2674d9; font-weight: 600; }
.elmo-note { opacity: 0.75; font-size: 0.9em; margin-top: 0.8em; }
table.elmo-neighbors, table.elmo-heat, table.elmo-figures { border: 0 !important; }
.elmo-neighbors tr, .elmo-heat tr, .elmo-heat th, .elmo-heat td, .elmo-figures tr { border: 0 !important; }
.elmo-neighbors { border-collapse: collapse; width: 100%; }
.elmo-neighbors td { padding: 0.15em 0.5em; vertical-align: middle; border: 0; }
.elmo-neighbors td:first-child { font-variant-numeric: tabular-nums; width: 3em; }
.elmo-neighbors td.elmo-bars { width: 7em; }
.elmo-bar { background: #2674d9; height: 0.6em; border-radius: 3px; }
.elmo-contexts { margin-bottom: 1em; }
.elmo-maps { display: flex; flex-wrap: wrap; gap: 1.5em; }
.elmo-maps figure { margin: 0; overflow-x: auto; max-width: 100%; }
.elmo-maps figcaption { font-weight: 600; margin-bottom: 0.4em; }
.elmo-heat { border-collapse: collapse; }
.elmo-heat th { font-weight: 500; padding: 0.1em 0.5em; border: 0; text-align: right; }
.elmo-heat td { width: 2.9em; height: 2.1em; text-align: center; font-size: 0.85em; padding: 0; }
.elmo-dense td { width: 2.1em; height: 1.7em; }
.elmo-words th[scope="col"] { height: 6em; vertical-align: bottom; padding: 0; text-align: left; }
.elmo-words th[scope="col"] span { writing-mode: vertical-rl; transform: rotate(180deg); }
.elmo-picture { max-width: 100%; background: #ffffff; border-radius: 6px; }
.elmo-figures th, .elmo-figures td { padding: 0.1em 0.8em; text-align: right; border: 0; }
.elmo-entities li { margin: 0.4em 0; line-height: 1.9; }
.elmo-entities mark { color: #111111; padding: 0.15em 0.4em; border-radius: 5px; }
.elmo-entities mark b { font-size: 0.75em; color: #444444; }
footer { display: none !important; }
"""


def import_gradio() -> Any:
    """The library that makes pages, which sends nothing home; says what to install if it is not there."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        return importlib.import_module("gradio")
    except ImportError as error:
        raise ImportError(
            f"The page is made with gradio, which is not installed or lacks a part ({error}): "
            'pip install "hf-elmo[app]"'
        ) from error


def look() -> dict[str, Any]:
    """Options of `launch`: how the page looks; nothing of it comes from elsewhere, and nothing typed is kept."""
    gradio = import_gradio()
    font = gradio.themes.utils.fonts.LocalFont("Source Sans Pro", weights=(400, 700))  # of the others it has a part
    theme = gradio.themes.Default(font=(font, "sans-serif"), primary_hue="blue")
    options = {"css": CSS, "theme": theme, "ssr_mode": False}
    if "run_history" in inspect.signature(gradio.Blocks.launch).parameters:  # before 6.24 there is none to switch off
        options["run_history"] = False
    return options


def page(playground: Playground) -> Any:
    """The page, a `gradio.Blocks`; `launch` of it serves it."""
    check_matplotlib()
    gradio = import_gradio()
    with gradio.Blocks(title=f"ELMo: {playground.name}", analytics_enabled=False) as blocks:
        gradio.Markdown(
            f"## What ELMo sees in a word\n**{playground.name}** reads every word in its sentence, so one word has a "
            "vector in each context. Type sentences, pick a word, and see where it is used alike."
        )
        with gradio.Row():
            with gradio.Column(scale=2, min_width=320):
                text = gradio.Textbox(START, label="Sentences, one a line", lines=6, max_lines=14, elem_id="sentences")
                read = gradio.Button("Read", variant="primary", elem_id="read")
                sentence = gradio.Dropdown([], label="Sentence", elem_id="sentence", filterable=False)
                word = gradio.Radio([], label="Word", elem_id="word")
            with gradio.Column(scale=3, min_width=420):
                message = gradio.HTML(elem_id="message", padding=False)
                with gradio.Tab("Nearest contexts"):
                    examples = gradio.Checkbox(
                        True, label=f"search {len(EXAMPLES)} example sentences, too", elem_id="examples"
                    )
                    neighbors = gradio.HTML(elem_id="neighbors")
                with gradio.Tab("Layers"):
                    choices = [(label, name) for name, label in COMPARISONS.items()]
                    comparison = gradio.Radio(choices, value="occurrences", label="Compare", elem_id="comparison")
                    heat_map = gradio.HTML(elem_id="heat-map")
                with gradio.Tab("Surprisal"):
                    surprisal = gradio.HTML(elem_id="surprisal")
                with gradio.Tab("Named entities", visible=playground.tagger is not None):
                    entities = gradio.HTML(elem_id="entities")
        wishes = [text, sentence, word, examples, comparison]
        shown = [message, neighbors, heat_map, surprisal, entities]
        handlers = Handlers(playground, gradio)
        for event in (read.click, blocks.load):
            event(handlers.read, [text], [sentence, word], api_visibility="private").then(
                handlers.show, wishes, shown, api_visibility="private"
            )
        sentence.input(handlers.pick, [text, sentence], [word], api_visibility="private").then(
            handlers.show, wishes, shown, api_visibility="private"
        )
        for changed in (word, examples, comparison):
            changed.input(handlers.show, wishes, shown, api_visibility="private")
        gradio.api(handlers.show, api_name="ask")  # for programs, which pick by numbers
    return blocks


class Handlers:
    """What the page does when something in it is changed."""

    def __init__(self, playground: Playground, gradio: Any):
        self.playground = playground
        self.gradio = gradio

    def read(self, text: str) -> tuple[Any, Any]:
        """The choices of sentences and of words."""
        try:
            sentences = self.playground.read(text)
        except ValueError:  # told by `show`, which comes next
            return self.gradio.update(choices=[], value=None), self.gradio.update(choices=[], value=None)
        choice = first_choice(sentences)
        titles = [(f"{number + 1}. {_shortened(' '.join(words))}", number) for number, words in enumerate(sentences)]
        return self.gradio.update(choices=titles, value=choice.sentence), self._words(
            sentences[choice.sentence], choice.word
        )

    def pick(self, text: str, sentence: int) -> Any:
        """The choices of words, of another sentence."""
        try:
            sentences = self.playground.read(text)
        except ValueError:
            return self.gradio.update(choices=[], value=None)
        if not 0 <= sentence < len(sentences):
            return self.gradio.update(choices=[], value=None)
        return self._words(sentences[sentence], first_choice([sentences[sentence], *sentences]).word)

    def show(
        self, text: str, sentence: int | None, word: int | None, examples: bool, comparison: Comparison
    ) -> tuple[str, str, str, str, str]:
        """The message and the four parts; a part that cannot be shown says why."""
        try:
            sentences = self.playground.read(text)
            if sentence is None or word is None:
                raise ValueError("Pick a word of a sentence.")
            choice = Choice(int(sentence), int(word))
            if choice.sentence >= len(sentences):
                raise ValueError("The sentences were changed: read them again, and pick a word.")
        except ValueError as error:
            return problem(error), "", "", "", ""
        others = EXAMPLES if examples else []
        return (
            "",
            _told(lambda: self.playground.neighbors(sentences, choice, others)),
            _told(lambda: self.playground.heat_map(sentences, choice, comparison)),
            _told(lambda: self.playground.surprisal(sentences[choice.sentence])),
            _told(lambda: self.playground.entities(sentences)),
        )

    def _words(self, words: list[str], value: int) -> Any:
        return self.gradio.update(choices=[(word, number) for number, word in enumerate(words)], value=value)


def _told(make: Callable[[], str]) -> str:
    try:
        return make()
    except ValueError as error:
        return problem(error)


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=MINI_NAME, metavar="FOLDER", help=f"{MODEL_HELP} (default)")
    parser.add_argument("--tagger", metavar="FOLDER", help="of a model of hf-elmo finetune tag, to show entities")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets other machines in (default: %(default)s)")
    parser.add_argument("--port", type=int, default=7860, help="(default: %(default)s)")


def _run(arguments: argparse.Namespace) -> None:
    if not 0 < arguments.port < 65536:
        raise ValueError(f"--port {arguments.port} is not possible: it is a number from 1 to 65535.")
    import_gradio()
    with _bound(arguments.host, arguments.port) as place:  # first, as what follows takes a while
        playground = Playground.from_pretrained(
            model_folder(arguments.folder), arguments.tagger, os.path.basename(os.path.normpath(arguments.folder))
        )
        _serve(page(playground), place, arguments.host, arguments.port)


def _bound(host: str, port: int) -> socket.socket:
    """The place where the page will be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.socket(family, socket.SOCK_STREAM)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        place.bind((host, port))
    except OSError as error:
        place.close()
        raise OSError(f"The page cannot be at {host}:{port}: {error}. Give another --port or --host.") from error
    return place


def _serve(blocks: Any, place: socket.socket, host: str, port: int) -> None:
    """Serves the page until it is interrupted.

    `launch` of gradio is not used: it gives up on a slow machine, and behind some proxies.
    """
    gradio, fastapi, uvicorn = import_gradio(), *map(importlib.import_module, ("fastapi", "uvicorn"))
    app = gradio.mount_gradio_app(
        fastapi.FastAPI(), blocks, path="/", server_name=host, server_port=port, show_error=False, **look()
    )
    print(f"The page is at http://{f'[{host}]' if ':' in host else host}:{port} (ctrl-c ends it)", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[place])


APP = Command(
    description="Opens a page to play with a model: type sentences, pick a word, and see its nearest contexts, how "
    "alike its vectors are in each layer, how surprising each word is, and the entities that a tagger finds. It runs "
    "on this machine and needs no network.",
    examples="""  hf-elmo app
  hf-elmo app my-elmo --port 8000
  hf-elmo app my-elmo --tagger ner/model --host 0.0.0.0""",
    add_arguments=_arguments,
    run=_run,
)
