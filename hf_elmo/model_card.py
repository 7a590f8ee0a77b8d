# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Model cards of models: only what was read from their files, told by the run, published or measured.

Names and settings come from outside. Nothing in them can end a line, a table cell or a block of the card.
"""

import json
import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import quote

import torch
import transformers
from huggingface_hub import EvalResult, ModelCardData

from .configuration_elmo import ElmoConfig
from .tokenization_elmo import ElmoTokenizer
from .version import __version__

UNKNOWN_LICENSE = "unknown"
TAGS = ("elmo", "word-embeddings")
EXAMPLES = ("The river bank was muddy.", "The bank lent money.")
TASK_WEIGHTS = (
    "The weights of the layers (`model.layer_weights()`) are fresh: all layers count the same until they are trained."
)
LANGUAGE_MODEL = (
    "`AutoModelForPreTraining` loads the language model with its softmax instead, for perplexities or to train it "
    "further."
)
MODES = {
    "stream": "reading the text as one stream, with the state carried on from sentence to sentence",
    "sentences": "reading every sentence by itself",
}
VECTORS = "An ELMo model: every word of a sentence becomes a vector that depends on the whole sentence."
# What a model is, by the class it was saved from: what the Hub calls it, the class that loads it, a first sentence.
KINDS = {
    "ElmoModel": ("feature-extraction", "AutoModel", VECTORS),
    "ElmoForPreTraining": ("feature-extraction", "AutoModel", VECTORS),
    "ElmoForTokenClassification": (
        "token-classification",
        "AutoModelForTokenClassification",
        "Gives every word of a sentence a label, from its ELMo vector, which depends on the whole sentence.",
    ),
    "ElmoForSequenceClassification": (
        "text-classification",
        "AutoModelForSequenceClassification",
        "Gives a text, or a pair of texts, a label, from the ELMo vectors of its words.",
    ),
    "ElmoForQuestionAnswering": (
        "question-answering",
        "AutoModelForQuestionAnswering",
        "Finds the answer to a question in a text, from the ELMo vectors of its words.",
    ),
    "ElmoForMultipleChoice": (
        "multiple-choice",
        "AutoModelForMultipleChoice",
        "Chooses one of several texts, from the ELMo vectors of their words.",
    ),
}
READING = {
    "characters": "read letter by letter, so there are no unknown words.",
    "words": "looked up in a vocabulary.",
    "both": "looked up in a vocabulary and read letter by letter.",
}
SPLITTINGS = {
    "moses": "like the training text of the published English models (Moses rules, straight quotes)",
    "whitespace": "at white space only",
}


@dataclass(frozen=True, kw_only=True)
class CorpusFacts:
    """The text that a model was trained on; `None` where nobody counted.

    Args:
        files: Number of files.
        sentences: Number of sentences.
        tokens: Number of words, repetitions included.
        unknown_share: Share of the words that are not in the vocabulary.
    """

    files: int | None = None
    sentences: int | None = None
    tokens: int | None = None
    unknown_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """A pretraining run.

    Args:
        command: What was run.
        settings: All settings by name.
        steps: Steps of the optimizer.
        epochs: How often the text was read.
        words: Words that were read, repetitions included.
        seconds: How long it took.
        hardware: What it ran on.
        versions: Versions of libraries by name.
        start: What was taken from another model (a `StartReport` as text); `None` if the weights began at random.
        weights_of_step: After which step the weights were as they are in the folder; `None` for the last.
    """

    command: str
    settings: Mapping[str, Any]
    steps: int
    epochs: float
    words: int
    seconds: float
    hardware: str
    versions: Mapping[str, str]
    start: str | None = None
    weights_of_step: int | None = None


@dataclass(frozen=True, kw_only=True)
class HeldOutFigures:
    """Perplexities over the whole vocabulary on text that was not trained on.

    Args:
        files: Names of the files.
        mode: How the text was read: `"stream"` or `"sentences"`.
        forward_perplexity: Of the words, predicted from the left.
        backward_perplexity: Of the words, predicted from the right.
        perplexity: Geometric mean of both.
        words: How many were predicted in each direction.
        unknown_share: Share of the words that are not in the vocabulary.
        command: What measures it again.
        unigram_perplexity: What guessing by the frequency of words alone reaches.
    """

    files: Sequence[str]
    mode: Literal["stream", "sentences"]
    forward_perplexity: float
    backward_perplexity: float
    perplexity: float
    words: int
    unknown_share: float
    command: str
    unigram_perplexity: float | None = None


def converted_model_card(
    name: str,
    config: ElmoConfig,
    tokenizer: ElmoTokenizer,
    *,
    num_parameters: int,
    dialect: str,
    sources: Sequence[tuple[str, str]],
    parity: str,
    has_softmax: bool = False,
    license: str = UNKNOWN_LICENSE,
    languages: Sequence[str] = (),
) -> str:
    """The text of the card.

    Args:
        name: Name of the model.
        config: Its config.
        tokenizer: Its tokenizer.
        num_parameters: Number of weights taken from the source.
        dialect: The format it was converted from.
        sources: Name and SHA-256 of each source file.
        parity: One sentence that says how far it is from the source.
        has_softmax: Whether it is a language model.
        license: Licence of the weights, as the Hub spells it.
        languages: Codes of the languages it was trained on.

    Raises:
        ValueError: If the licence or a language is not spelled as the Hub demands.
    """
    origin = f"Converted from {dialect} by hf-elmo {__version__}."
    source = [
        f"Converted from {dialect} with hf-elmo {__version__}, transformers {transformers.__version__} and "
        f"torch {torch.__version__}. The source files:",
        _table(("file", "SHA-256"), [(f"`{_one_line(file)}`", f"`{checksum}`") for file, checksum in sources]),
    ]
    return _card(
        name,
        config,
        tokenizer,
        front_matter=_front_matter(name, license, languages),
        origin=origin,
        weights=("Weights from the source", num_parameters),
        sections=["## Where it comes from", *source, parity],
        limits=["The source files do not say on which text the model was trained.", TASK_WEIGHTS],
        license_text=license_section(license, "converted"),
        language_model=LANGUAGE_MODEL if has_softmax else "",
    )


def pretrained_model_card(
    name: str,
    config: ElmoConfig,
    tokenizer: ElmoTokenizer,
    *,
    num_parameters: int,
    training: TrainingFacts,
    corpus: CorpusFacts | None = None,
    heldout: HeldOutFigures | None = None,
    plots: Sequence[str] = (),
    license: str = UNKNOWN_LICENSE,
    languages: Sequence[str] = (),
) -> str:
    """The text of the card of a model that `hf-elmo pretrain` trained.

    Args:
        name: Name of the model.
        config: Its config, with the softmax that it was trained with.
        tokenizer: Its tokenizer.
        num_parameters: Number of its weights.
        training: How it was trained.
        corpus: On which text.
        heldout: How well it predicts other text; the Hub gets these figures, too.
        plots: Names of pictures, relative to the folder of the card.
        license: Licence of the weights, as the Hub spells it.
        languages: Codes of the languages it was trained on.

    Raises:
        ValueError: If the licence or a language is not spelled as the Hub demands, or a picture is not in the folder.
    """
    results = [] if heldout is None else _eval_results(heldout)
    limits = [TASK_WEIGHTS]
    if heldout is None:
        limits.insert(0, "Nothing is known about how well it predicts text: none was held out.")
    return _card(
        name,
        config,
        tokenizer,
        front_matter=_front_matter(name, license, languages, results),
        origin=f"Trained with hf-elmo {__version__}.",
        weights=("Weights", num_parameters),
        sections=[
            *_training_sections(config, training, corpus),
            *([] if heldout is None else _heldout_sections(config, heldout)),
            *_plot_sections(config, plots),
        ],
        limits=limits,
        license_text=license_section(license, "trained"),
        language_model=LANGUAGE_MODEL,
    )


def check_license(license: str) -> None:
    """Refuses a licence that the Hub would not take for one."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", license):
        raise ValueError(
            f"The licence {license!r} is not spelled as on the Hub: small letters, digits, '.', '+' and '-', such as "
            f"apache-2.0, cc-by-4.0, other or {UNKNOWN_LICENSE}."
        )


def check_language(language: str) -> None:
    """Refuses a language that the Hub would not take for one."""
    if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]+)*|multilingual|code", language):
        raise ValueError(f"The language {language!r} is not a code such as en, ko or pt-BR.")


def folder_model_card(
    name: str,
    config: ElmoConfig,
    tokenizer: ElmoTokenizer,
    *,
    num_parameters: int,
    license: str = UNKNOWN_LICENSE,
    languages: Sequence[str] = (),
) -> str:
    """The text of the card of a model of which nothing is known but its folder.

    Args:
        name: Name of the model.
        config: Its config.
        tokenizer: Its tokenizer.
        num_parameters: Number of its weights.
        license: Licence of the weights, as the Hub spells it.
        languages: Codes of the languages it was trained on.

    Raises:
        ValueError: If the licence or a language is not spelled as the Hub demands.
    """
    architecture = (config.architectures or ["ElmoModel"])[0]
    head = KINDS[architecture][0] != "feature-extraction"
    return _card(
        name,
        config,
        tokenizer,
        front_matter=_front_matter(name, license, languages, pipeline_tag=KINDS[architecture][0]),
        origin=f"This card was made with hf-elmo {__version__} from the folder of the model.",
        weights=("Weights", num_parameters),
        sections=_label_sections(config),
        limits=["The folder does not say on which text the model was trained.", *([] if head else [TASK_WEIGHTS])],
        license_text=license_section(license, "published"),
        language_model=LANGUAGE_MODEL if architecture == "ElmoForPreTraining" else "",
    )


def _card(
    name: str,
    config: ElmoConfig,
    tokenizer: ElmoTokenizer,
    *,
    front_matter: str,
    origin: str,
    weights: tuple[str, int],
    sections: Sequence[str],
    limits: Sequence[str],
    license_text: str,
    language_model: str = "",
    use: str | None = None,
) -> str:
    return fill_template(
        config,
        tokenizer,
        front_matter=front_matter,
        name=_one_line(name),
        origin=origin,
        use=use or _use(name, config, tokenizer),
        facts=_table(("", ""), [(weights[0], f"{weights[1]:,}"), *_facts(config, tokenizer).items()]),
        text=" ".join(filter(None, [_text(config, tokenizer), language_model])),
        sections=sections,
        limits=limits,
        license_text=license_text,
    )


def fill_template(
    config: ElmoConfig,
    tokenizer: ElmoTokenizer,
    *,
    sections: Sequence[str],
    limits: Sequence[str],
    citations: Sequence[str] = (),
    words_limit: str | None = None,
    **parts: str,
) -> str:
    """The template with its parts; those that are empty leave no empty lines."""
    template = resources.files("hf_elmo.model_cards").joinpath("template.md").read_text("utf-8")
    for name, content in (("sections", sections), ("citations", citations)):
        if not any(content):
            template = re.sub(rf"\n\${name}\n", "", template)
    return string.Template(template).substitute(
        parts,
        what=KINDS[(config.architectures or ["ElmoModel"])[0]][2],
        reading=READING[config.word_input],
        sections="\n\n".join(filter(None, sections)),
        limits="\n".join(f"- {limit}" for limit in limits),
        words_limit=words_limit or _words_limit(config, tokenizer),
        citations="\n\n".join(_block(citation, "bibtex") for citation in citations),
    )


def _front_matter(
    name: str,
    license: str,
    languages: Sequence[str],
    results: Sequence[EvalResult] = (),
    tags: Sequence[str] = (),
    pipeline_tag: str = "feature-extraction",
    **more: Any,
) -> str:
    """What the Hub reads."""
    check_license(license)
    for language in languages:
        check_language(language)
    return ModelCardData(
        license=license,
        language=list(languages) or None,
        library_name="transformers",
        pipeline_tag=pipeline_tag,
        tags=[*TAGS, *tags],
        model_name=_one_line(name) if results else None,
        eval_results=list(results) or None,
        **more,
    ).to_yaml()


def _use(name: str, config: ElmoConfig, tokenizer: ElmoTokenizer) -> str:
    """How a model is loaded, by its class, as code that runs."""
    architecture = (config.architectures or ["ElmoModel"])[0]
    if KINDS[architecture][0] == "feature-extraction":
        sizes = f"(2, words, {config.hidden_size})"
        return vectors_use(name, _boundaries(tokenizer), sizes, f"{config.num_hidden_layers + 1} layers")
    return _with_note(name, _head_lines(_one_line(name), *KINDS[architecture][:2]))


def vectors_use(name: str, boundaries: str, sizes: str, layers: str, texts: Sequence[str] | str = EXAMPLES) -> str:
    """How vectors are made, as code that runs, and a note on what runs it.

    Args:
        name: Of the model.
        boundaries: The tokens at the ends of a sentence.
        sizes: The shape of the vectors.
        layers: How many there are.
        texts: Sentences, or a line of code that makes `sentences`, lists of words.
    """
    quoted = _one_line(name)
    made = [texts] if isinstance(texts, str) else []
    given = "sentences, is_split_into_words=True" if made else json.dumps(list(texts), ensure_ascii=False)
    lines = [
        "from transformers import AutoModel, AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{quoted}", trust_remote_code=True)',
        f'model = AutoModel.from_pretrained("{quoted}", trust_remote_code=True)',
        *made,
        f'batch = tokenizer({given}, padding=True, return_tensors="pt")',
        f"vectors = model(**batch).last_hidden_state  # {sizes}, {boundaries} included",
        f"layers = model(**batch, output_hidden_states=True).hidden_states  # {layers}",
    ]
    return _with_note(name, lines)


def _head_lines(name: str, pipeline_tag: str, auto_class: str) -> list[str]:
    if pipeline_tag not in ("token-classification", "text-classification"):
        return [
            f"from transformers import {auto_class}, AutoTokenizer",
            "",
            f'tokenizer = AutoTokenizer.from_pretrained("{name}", trust_remote_code=True)',
            f'model = {auto_class}.from_pretrained("{name}", trust_remote_code=True)',
        ]
    grouped = ', aggregation_strategy="simple"' if pipeline_tag == "token-classification" else ""
    return [
        "from transformers import pipeline",
        "",
        f'label = pipeline("{pipeline_tag}", model="{name}", trust_remote_code=True{grouped})',
        'print(label("John Smith lives in London."))',
    ]


def _with_note(name: str, lines: Sequence[str]) -> str:
    note = (
        f"Replace `{_one_line(name)}` by the path or the Hub name of this folder. The code is in the folder, which is "
        "why it has to be\ntrusted; after `pip install hf-elmo` and `import hf_elmo` the same lines work without "
        "`trust_remote_code=True`."
    )
    return "\n\n".join([_block("\n".join(lines), "python"), note])


def _boundaries(tokenizer: ElmoTokenizer) -> str:
    return _printable(f"{tokenizer.bos_token} and {tokenizer.eos_token}")


def _label_sections(config: ElmoConfig) -> list[str]:
    """The labels of a model that has some."""
    if KINDS[(config.architectures or ["ElmoModel"])[0]][0] not in ("token-classification", "text-classification"):
        return []
    labels = [str(label) for _, label in sorted((config.id2label or {}).items())]
    return ["## Labels", f"{len(labels):,}: {', '.join(map(_code, labels))}."]


def _facts(config: ElmoConfig, tokenizer: ElmoTokenizer) -> dict[str, str]:
    clips = {"cell": config.cell_clip, "output": config.projection_clip if config.project_cells else None}
    projected = f"projected to {config.projection_size}" if config.project_cells else "not projected"
    return {
        "Vector of a word": f"{config.hidden_size} ({config.projection_size} for each direction)",
        "Layers": f"1 for the words by themselves, {config.num_hidden_layers} of LSTMs",
        "LSTM cell": f"{config.cell_size}, {projected}",
        "Clips": ", ".join(f"{part} {'none' if clip is None else f'{clip:g}'}" for part, clip in clips.items()),
        "Skip connections": "yes" if config.use_skip_connections else "no",
        **({} if config.word_input == "characters" else _facts_of_words(config)),
        **({} if config.word_input == "words" else _facts_of_characters(config, tokenizer)),
    }


def _facts_of_words(config: ElmoConfig) -> dict[str, str]:
    return {"Table of words": f"{config.vocab_size:,} rows of {config.word_embedding_size}, padding included"}


def _facts_of_characters(config: ElmoConfig, tokenizer: ElmoTokenizer) -> dict[str, str]:
    filters = ", ".join(f"{count} of width {width}" for width, count in config.char_cnn_filters)
    known = "" if tokenizer.characters is None else f", for {len(tokenizer.characters.known):,} code points"
    return {
        "Characters": f"{config.max_characters_per_token} a word, vectors of {config.char_embedding_size}{known}",
        "Convolutions": f"{filters}; {config.char_cnn_activation}",
        "Highway layers": str(config.num_highway_layers),
    }


def _text(config: ElmoConfig, tokenizer: ElmoTokenizer) -> str:
    splitting = SPLITTINGS.get(tokenizer.word_splitting, tokenizer.word_splitting)
    sentences = [f"Raw text is split {splitting}."]
    if tokenizer.segmenter:
        sentences.append(
            f"The training text was split by {_cell(tokenizer.segmenter)}, which the tokenizer does not run: split "
            "your text in the same way."
        )
    sentences.append("For text that is split already, pass lists of words with `is_split_into_words=True`.")
    if tokenizer.unicode_normalization is not None:
        sentences.append(
            f"Raw text is put into the form {tokenizer.unicode_normalization} of Unicode, which the model expects; "
            "words in lists are taken as they are."
        )
    sentences.append(_vocabulary(config, tokenizer))
    if tokenizer.characters is not None and config.word_input != "words":
        sentences.append(
            f"Words are spelled with code points, of which the model knows {len(tokenizer.characters.known):,}; all "
            "others are one and the same to it (`tokenizer.coverage` counts them)."
        )
    return " ".join(sentences)


def _vocabulary(config: ElmoConfig, tokenizer: ElmoTokenizer) -> str:
    words, unknown = len(tokenizer), _code(str(tokenizer.unk_token))
    if words <= 4:
        return f"There is no word vocabulary: `input_ids` are all {unknown}, and the model reads `character_ids`."
    outside = {
        "characters": "words outside it are spelled all the same",
        "words": f"words outside it are all {unknown} to the model",
        "both": f"words outside it are {unknown} and told apart by their characters only",
    }
    return f"The word vocabulary has {words:,} entries; {outside[config.word_input]}."


def _words_limit(config: ElmoConfig, tokenizer: ElmoTokenizer) -> str:
    longest = config.max_characters_per_token - 2
    if tokenizer.characters is not None:
        return f"Words are cut after {longest} code points."
    if config.word_input == "words":
        return "Words outside the vocabulary cannot be told apart."
    return f"Words are cut after {longest} bytes of UTF-8."


def license_section(license: str, made: str) -> str:
    """What the card says of the licence; `made` is what was done when it was stated."""
    if license == UNKNOWN_LICENSE:
        return (
            f"The licence of these weights was not stated when they were {made}: ask whoever made them. The code "
            "files in this folder are under Apache-2.0."
        )
    return (
        f"`{license}` for the weights, as stated by whoever {made} them. The code files in this folder are under "
        "Apache-2.0."
    )


# --- What is said of pretraining -------------------------------------------------------------------------------------


def _training_sections(config: ElmoConfig, training: TrainingFacts, corpus: CorpusFacts | None) -> list[str]:
    rows = [
        ("Text", "" if corpus is None else _corpus(corpus)),
        ("Steps", f"{training.steps:,}"),
        ("Weights of step", "" if training.weights_of_step is None else f"{training.weights_of_step:,}"),
        ("Epochs", f"{training.epochs:,.4g}"),
        ("Words read", f"{training.words:,}"),
        ("Softmax in training", _softmax(config)),
        ("Time", _duration(training.seconds)),
        ("Hardware", _cell(training.hardware)),
        (
            "Software",
            ", ".join(f"{_cell(library)} {_cell(version)}" for library, version in training.versions.items()),
        ),
    ]
    settings = [(_code(key), _code(_value(value))) for key, value in training.settings.items()]
    start = ["The weights were random at the beginning."]
    if training.start is not None:
        start = ["What it began with:", _block(training.start, "text")]
    return [
        "## How it was trained",
        _block(training.command, "bash"),
        *start,
        _table(("", ""), [row for row in rows if row[1]]),
        *(["All settings:", _table(("setting", "value"), settings)] if settings else []),
    ]


def _corpus(corpus: CorpusFacts) -> str:
    counts = {"files": corpus.files, "sentences": corpus.sentences, "words": corpus.tokens}
    parts = [f"{count:,} {what}" for what, count in counts.items() if count is not None]
    if corpus.unknown_share is not None:
        parts.append(f"{corpus.unknown_share:.2%} of the words not in the vocabulary")
    return ", ".join(parts)


def _softmax(config: ElmoConfig) -> str:
    return {
        "full": "full",
        "sampled": f"sampled, {config.num_sampled:,} wrong words",
        "adaptive": f"adaptive, groups begin at the words {', '.join(map(str, config.softmax_cutoffs or []))}",
    }[config.softmax]


def _heldout_sections(config: ElmoConfig, heldout: HeldOutFigures) -> list[str]:
    if heldout.mode not in MODES:
        raise ValueError(f"mode={heldout.mode!r} is not possible; choose one of {', '.join(MODES)}.")
    rows = [(name, f"{value:,.2f}") for name, value in _perplexities(heldout).items()]
    if heldout.unigram_perplexity is not None:
        rows.append(("the frequency of words alone, for comparison", f"{heldout.unigram_perplexity:,.2f}"))
    softmax = "adaptive softmax" if config.softmax == "adaptive" else "full softmax"
    return [
        "## How well it predicts words",
        _table(("a word predicted from", "perplexity"), rows),
        f"Measured on {', '.join(map(_code, heldout.files))}: {heldout.words:,} words, of which "
        f"{heldout.unknown_share:.2%} are not in the vocabulary and count as `<UNK>`, with the {softmax} over all "
        f"{config.vocab_size - 1:,} words, {MODES[heldout.mode]}. Only models with the same vocabulary can be "
        "compared by it. To measure it again:",
        _block(heldout.command, "bash"),
    ]


def _perplexities(heldout: HeldOutFigures) -> dict[str, float]:
    return {
        "the left (forward)": heldout.forward_perplexity,
        "the right (backward)": heldout.backward_perplexity,
        "both (geometric mean)": heldout.perplexity,
    }


def _eval_results(heldout: HeldOutFigures) -> list[EvalResult]:
    """The perplexities in the Hub's form, if they are numbers."""
    names = ", ".join(_one_line(Path(file).name) for file in heldout.files)
    return [
        EvalResult(
            task_type="text-generation",  # the Hub's word for language models
            task_name="Language modelling in both directions",
            dataset_type="text",
            dataset_name=names,
            metric_type="perplexity",
            metric_name=f"Perplexity from {name}",
            metric_value=value,
        )
        for name, value in _perplexities(heldout).items()
        if math.isfinite(value)
    ]


def _plot_sections(config: ElmoConfig, plots: Sequence[str]) -> list[str]:
    for plot in plots:
        path = PurePosixPath(plot)
        if path.is_absolute() or ".." in path.parts or not path.name:
            raise ValueError(f"The picture {plot!r} is not in the folder of the card. Give its name relative to it.")
    if not plots:
        return []
    images = [f"![{_one_line(PurePosixPath(plot).stem).replace('_', ' ')}]({quote(plot)})" for plot in plots]
    note = "The loss is that of the sampled softmax, not a likelihood." if config.softmax == "sampled" else ""
    return ["## Curves", note, *images]


# --- Markdown --------------------------------------------------------------------------------------------------------


def _table(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join([f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)])


def _one_line(text: str) -> str:
    """A file name for the middle of a line: nothing in it can end the line or the table cell."""
    return re.sub(r"[^\w.+ -]", "_", text)


def _printable(text: str) -> str:
    """The text with escapes for line ends and other signs that nobody sees."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def _cell(text: str) -> str:
    """The text for the middle of a line, as it is: nothing in it is Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>|~&$]|:(?=//))", r"\\\1", _printable(text).strip())


def _code(text: str) -> str:
    """The text in the face of code, if there is nothing in it that would end that."""
    text = _printable(text)
    return _cell(text) if re.search(r"^\s|\s$|^$|[`|\\]", text) else f"`{text}`"


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)


def _block(text: str, language: str) -> str:
    """Lines of code between fences that are longer than any in them."""
    lines = "\n".join(map(_printable, text.strip("\n").split("\n")))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", lines)), default=0))
    return f"{fence}{language}\n{lines}\n{fence}"


def _duration(seconds: float) -> str:
    """The two largest units, such as `3 h 20 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days:,} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
