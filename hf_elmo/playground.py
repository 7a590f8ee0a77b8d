# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""What the page of `hf-elmo app` shows of a model, as HTML: `Playground`.

Nothing here needs the library that makes the page. Whatever a visitor types is shown as text, never as markup.

Shapes are written with these letters: L LSTM layers, T words of a sentence, N contexts that are compared, D numbers of
a vector.
"""

import base64
import os
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from transformers import pipeline

from .checked_loading import class_of, load_checked, load_config
from .embedder import ElmoEmbedder
from .modeling_elmo_heads import ElmoForTokenClassification
from .modeling_elmo_pretraining import ElmoForPreTraining
from .neighbors import Context, Neighbor, _normalized, layer_name, nearest_contexts
from .scoring import SentenceScore
from .surprisal_picture import plot_surprisal
from .tokenization_elmo import ElmoTokenizer

MOST_SENTENCES = 40
MOST_WORDS = 60  # of a sentence
MOST_CHARACTERS = 10_000  # of all sentences
NEAREST = 5  # contexts for each layer
SHOWN_SIDE = 60  # characters on each side of a word
NUMBERS_UP_TO = 12  # rows of a heat map that has room for numbers

Comparison: TypeAlias = Literal["occurrences", "words"]
COMPARISONS: dict[Comparison, str] = {
    "occurrences": "the word in all sentences",
    "words": "all words of its sentence",
}
# Colours of kinds of entities, on which black is easy to read.
MARKS = ("#fde68a", "#a7f3d0", "#bfdbfe", "#fbcfe8", "#ddd6fe", "#fed7aa")


@dataclass(frozen=True)
class Choice:
    """A word that was picked.

    Args:
        sentence: Number of its sentence, from 0.
        word: Its number in the sentence, from 0.
    """

    sentence: int
    word: int


class Playground:
    """Reads the sentences of a visitor with a model, and shows what it makes of a word in them.

    Args:
        embedder: Gives the vectors.
        language_model: Gives the surprisal of words; `None` if the model has no softmax.
        tagger: A token-classification pipeline that finds entities; `None` without.
        name: Of the model.
    """

    def __init__(
        self,
        embedder: ElmoEmbedder,
        language_model: ElmoForPreTraining | None = None,
        tagger: Any = None,
        name: str = "",
    ):
        self.embedder = embedder
        self.language_model = language_model
        self.tagger = tagger
        self.name = name

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], tagger: str | os.PathLike[str] | None = None, name: str | None = None
    ) -> "Playground":
        """Loads a model folder, and that of a tagger if there is one.

        Raises:
            FileNotFoundError: If a folder has no model.
            ValueError: If a model is not whole, or the tagger is none.
        """
        folder = Path(folder)
        tokenizer = ElmoTokenizer.from_pretrained(folder)
        is_language_model = class_of(folder, load_config(folder)) is ElmoForPreTraining
        model = load_checked(folder)
        return cls(
            ElmoEmbedder(model, tokenizer),
            model if is_language_model else None,
            None if tagger is None else load_tagger(tagger),
            name or folder.resolve().name,
        )

    # --- What was typed ----------------------------------------------------------------------------------------------

    def read(self, text: str) -> list[list[str]]:
        """The words of each sentence of a text, which has a sentence a line.

        Raises:
            ValueError: If there is nothing to read, or too much; says so to the visitor.
        """
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"The text has {len(text):,} characters; this page reads up to {MOST_CHARACTERS:,}.")
        sentences = [words for line in text.splitlines() if (words := self.embedder.words(line))]
        if not sentences:
            raise ValueError("There is nothing to read yet: type a sentence, or several, one a line.")
        if len(sentences) > MOST_SENTENCES:
            raise ValueError(f"These are {len(sentences)} sentences; this page reads up to {MOST_SENTENCES}.")
        for number, words in enumerate(sentences, start=1):
            if len(words) > MOST_WORDS:
                raise ValueError(
                    f"Sentence {number} has {len(words)} words; this page reads up to {MOST_WORDS}. Cut it into lines."
                )
        return sentences

    # --- What is shown -----------------------------------------------------------------------------------------------

    def neighbors(self, sentences: Sequence[Sequence[str]], choice: Choice, others: Sequence[str] = ()) -> str:
        """The contexts in which words are used most alike, for each layer, the last layer first.

        Args:
            sentences: The words of each sentence.
            choice: The word.
            others: Sentences to search, too.
        """
        _check(sentences, choice)
        if len(sentences) + len(others) < 2:
            raise ValueError("There is nothing to compare with: type a second sentence, or search the examples, too.")
        texts: list[Any] = [*map(list, sentences), *others]
        query = list(sentences[choice.sentence])
        found = nearest_contexts(
            self.embedder, query, choice.word, texts, top_k=NEAREST, show_progress=False
        )  # by cosine, in each layer
        tables = [
            f"<h4>{escape(layer_name(layer))}</h4>{_neighbor_table(layer, near)}"
            for layer, near in reversed(found.by_layer.items())
        ]
        note = f"Compared with {found.contexts:,} words of {found.sentences:,} sentences, by the cosine of vectors."
        return f'{_quoted(found.query)}{"".join(tables)}<p class="elmo-note">{note}</p>'

    def heat_map(
        self, sentences: Sequence[Sequence[str]], choice: Choice, comparison: Comparison = "occurrences"
    ) -> str:
        """How alike the vectors of contexts are, as a coloured table for each layer.

        Args:
            sentences: The words of each sentence.
            choice: The word.
            comparison: Whether to compare its occurrences in all sentences, or all words of its sentence.
        """
        _check(sentences, choice)
        if comparison not in COMPARISONS:
            raise ValueError(f"comparison={comparison!r} is not possible; choose one of {', '.join(COMPARISONS)}.")
        contexts = _contexts(sentences, choice, comparison)
        if len(contexts) < 2:
            word = sentences[choice.sentence][choice.word]
            raise ValueError(
                f"The word {word!r} is there only once: pick one that several sentences have, or compare "
                f"{COMPARISONS['words']}."
            )
        read = sorted({cast(int, context.sentence) for context in contexts})
        encoded = self.embedder.encode(
            [list(sentences[number]) for number in read], layers="all", is_split_into_words=True
        )
        by_sentence: dict[int, Any] = dict(zip(read, encoded, strict=True))
        vectors = np.stack(
            [by_sentence[cast(int, context.sentence)][:, context.position] for context in contexts], axis=1
        )  # (L + 1, N, D)
        tables = [
            f"<figure><figcaption>{_caption(layer)}</figcaption>{_heat_table(of_layer, contexts)}</figure>"
            for layer, of_layer in enumerate(_cosines(vectors))
        ]
        legend = "".join(f"<li>{_in_sentence(context)}</li>" for context in contexts)
        kept = (
            f'<ol class="elmo-contexts">{legend}</ol>'
            if comparison == "occurrences"
            else _quoted(contexts[choice.word])
        )
        note = "Cosines of vectors: dark blue is 1, white the smallest of the layer."
        return f'{kept}<div class="elmo-maps">{"".join(tables)}</div><p class="elmo-note">{note}</p>'

    def surprisal(self, sentence: Sequence[str]) -> str:
        """The surprisal of each word of a sentence, from the left and from the right, as a picture and its figures."""
        if self.language_model is None:
            raise ValueError(
                f"{self.name} is an encoder without a softmax, as published weights are, so it predicts no words. "
                "Train one with hf-elmo pretrain --init-from, or open the page with elmo-mini."
            )
        score = self.language_model.score([list(sentence)], self.embedder.tokenizer)[0]
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as lacking:
            warnings.simplefilter("always")
            picture = plot_surprisal(score, Path(folder, "surprisal.png")).read_bytes()
        shown = base64.b64encode(picture).decode()
        boxes = " The fonts here lack some characters, which are boxes in the picture." if lacking else ""
        return (
            f'<img class="elmo-picture" alt="surprisal of each word" src="data:image/png;base64,{shown}">'
            f"<details{' open' if lacking else ''}><summary>figures</summary>{_surprisal_table(score)}</details>"
            f'<p class="elmo-note">The higher, the less the model expected the word.{boxes}</p>'
        )

    def entities(self, sentences: Sequence[Sequence[str]]) -> str:
        """The sentences with the entities that the tagger finds in them."""
        if self.tagger is None:
            raise ValueError(
                "No tagger was given. Train one with hf-elmo finetune tag, and open the page with --tagger FOLDER."
            )
        kinds: dict[str, str] = {}
        lines = []
        for words in sentences:
            text = " ".join(words)
            line, end = "", 0
            for entity in self.tagger(text):
                kind = str(entity.get("entity_group", entity.get("entity")))
                colour = kinds.setdefault(kind, MARKS[len(kinds) % len(MARKS)])
                marked = escape(text[entity["start"] : entity["end"]])
                line += f'{escape(text[end : entity["start"]])}<mark style="background:{colour}">{marked}'
                line += f" <b>{escape(kind)}</b></mark>"
                end = entity["end"]
            lines.append(f"<li>{line}{escape(text[end:])}</li>")
        none = "" if kinds else '<p class="elmo-note">The tagger found nothing in these sentences.</p>'
        return f'<ol class="elmo-entities">{"".join(lines)}</ol>{none}'


def load_tagger(folder: str | os.PathLike[str]) -> Any:
    """The pipeline of a folder that `hf-elmo finetune tag` wrote."""
    config = load_config(folder)
    found = class_of(Path(folder), config)
    if found is not ElmoForTokenClassification:
        raise ValueError(
            f"{folder} holds a {found.__name__}, which labels no words. Give the folder of a tagger, as hf-elmo "
            "finetune tag writes it."
        )
    return pipeline(
        "token-classification",
        model=load_checked(folder),
        tokenizer=cast(Any, ElmoTokenizer.from_pretrained(folder)),
        aggregation_strategy="simple",
    )


def problem(error: Exception) -> str:
    """A mistake, told to the visitor."""
    return f'<p class="elmo-problem" role="alert">{escape(str(error))}</p>'


def first_choice(sentences: Sequence[Sequence[str]]) -> Choice:
    """A word worth looking at: the longest one that several sentences have, or the longest of the first sentence."""
    counts: dict[str, int] = {}
    for words in sentences:
        for word in {word.casefold() for word in words}:
            counts[word] = counts.get(word, 0) + 1
    words = [word.casefold() for word in sentences[0]]
    best = max(range(len(words)), key=lambda number: (counts[words[number]] > 1, len(words[number])))
    return Choice(0, best)


# --- Their parts -----------------------------------------------------------------------------------------------------


def _check(sentences: Sequence[Sequence[str]], choice: Choice) -> None:
    if not 0 <= choice.sentence < len(sentences) or not 0 <= choice.word < len(sentences[choice.sentence]):
        raise ValueError("The sentences were changed: read them again, and pick a word.")


def _contexts(sentences: Sequence[Sequence[str]], choice: Choice, comparison: Comparison) -> list[Context]:
    if comparison == "words":
        words = tuple(sentences[choice.sentence])
        return [Context(words, position, choice.sentence) for position in range(len(words))]
    picked = sentences[choice.sentence][choice.word].casefold()
    return [
        Context(tuple(words), position, number)
        for number, words in enumerate(sentences)
        for position, word in enumerate(words)
        if word.casefold() == picked
    ]


def _cosines(vectors: np.ndarray) -> np.ndarray:
    """(L + 1, N, N) of vectors (L + 1, N, D)."""
    unit = _normalized(vectors)
    return np.einsum("lnd,lmd->lnm", unit, unit)


def _caption(layer: int) -> str:
    return "layer 0, without context" if layer == 0 else f"layer {layer}"


def _in_sentence(context: Context) -> str:
    """A word in its sentence, which is cut where it is long."""
    before, after = context.sides()
    left = before if len(before) <= SHOWN_SIDE else f"… {before[-SHOWN_SIDE:]}"
    right = after if len(after) <= SHOWN_SIDE else f"{after[:SHOWN_SIDE]} …"
    return f"{escape(left)} <b>{escape(context.word)}</b> {escape(right)}".strip()


def _quoted(context: Context) -> str:
    return f'<p class="elmo-query">{_in_sentence(context)}</p>'


def _neighbor_table(layer: int, neighbors: Sequence[Neighbor]) -> str:
    rows = []
    for neighbor in neighbors:
        what = f"<b>{escape(neighbor.context.word)}</b>" if layer == 0 else _in_sentence(neighbor.context)
        times = f" <i>({neighbor.occurrences:,} times)</i>" if neighbor.occurrences > 1 else ""
        bar = f'<div class="elmo-bar" style="width:{100 * max(neighbor.cosine, 0):.0f}%"></div>'
        rows.append(f"<tr><td>{neighbor.cosine:.2f}</td><td class='elmo-bars'>{bar}</td><td>{what}{times}</td></tr>")
    return f'<table class="elmo-neighbors">{"".join(rows)}</table>'


def _heat_table(cosines: np.ndarray, contexts: Sequence[Context]) -> str:
    """A table of cosines (N, N); its rows and columns have numbers, and their words if these differ."""
    same = len({context.word.casefold() for context in contexts}) == 1
    names = [str(number) if same else escape(context.word) for number, context in enumerate(contexts, start=1)]
    lowest = min(float(cosines.min()), 0.9)
    head = "".join(f'<th scope="col"><span>{name}</span></th>' for name in names)
    rows = []
    for name, row in zip(names, cosines, strict=True):
        cells = "".join(
            _heat_cell(float(value), lowest, len(names) <= NUMBERS_UP_TO, f"{name}, {other}")
            for other, value in zip(names, row, strict=True)
        )
        rows.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    kind = "elmo-heat" + ("" if same else " elmo-words") + (" elmo-dense" if len(names) > NUMBERS_UP_TO else "")
    return f'<table class="{kind}"><tr><td></td>{head}</tr>{"".join(rows)}</table>'


def _heat_cell(value: float, lowest: float, with_number: bool, title: str) -> str:
    """White for the lowest value, dark blue for 1."""
    share = min(max((value - lowest) / (1 - lowest), 0.0), 1.0)
    red, green, blue = (round(255 + share * (dark - 255)) for dark in (8, 64, 129))
    text = f"{value:.2f}" if with_number else ""
    colour = "#ffffff" if share > 0.55 else "#111111"
    return f'<td style="background:rgb({red},{green},{blue});color:{colour}" title="{title}: {value:.3f}">{text}</td>'


def _surprisal_table(score: SentenceScore) -> str:
    rows = []
    for row in score.rows():
        figures = [row[f"{direction}_surprisal_bits"] for direction in ("forward", "backward", "combined")]
        cells = "".join(f"<td>{'' if figure is None else f'{figure:.1f}'}</td>" for figure in figures)
        star = "*" if row["kind"] == "unknown" else ""
        rows.append(f"<tr><th scope='row'>{escape(row['word'])}{star}</th>{cells}</tr>")
    head = "<tr><th>word</th><th>from the left</th><th>from the right</th><th>both</th></tr>"
    return f'<table class="elmo-figures">{head}{"".join(rows)}</table><p>in bits; * not in the vocabulary</p>'


__all__ = ["Choice", "Playground", "load_tagger"]
