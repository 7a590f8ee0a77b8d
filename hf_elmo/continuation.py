# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Where training goes on: a language model from any ELMo folder, with the folder's vocabulary or another one.

What reads characters fits every vocabulary. The softmax belongs to words, and so does the table of a model that looks
words up: their rows move with the words. Padding becomes the last word id, as the language model needs it.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedConfig

from hf_elmo.conversion.verify import load_config

from .configuration_elmo import ElmoConfig
from .hub import sha256_of
from .modeling_elmo import WARM_STATE, ElmoModel
from .modeling_elmo_pretraining import ElmoForPreTraining
from .softmax import ElmoSoftmax
from .tokenization_elmo import ElmoTokenizer, word_tokenizer
from .vocabulary import SPECIAL_WORDS

PathLike: TypeAlias = str | os.PathLike[str]
Shapes: TypeAlias = dict[str, tuple[int, ...]]

WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"

# The parts of a model that weights are named after: those within `ElmoModel`, and those around it.
BILM_PARTS = ("character_encoder", "bilstm")
MIXES, ALIGNMENT, INITIAL_STATE = "mixes", "alignment", "initial_state"
SOFTMAX = "softmax"
TABLE = "character_encoder.word_embedding.weight"  # of words, within `ElmoModel`
HEAD_PARTS = ("classifier", "crf", "predicate_embedding", "qa_outputs", "task_lstm", "word_vectors")

# What a task chose, and what makes one vector of the layers for it: a language model begins anew with the defaults.
RESET_FIELDS = (
    "initial_state",
    "layer_combination",
    "num_output_representations",
    "mix_layer_norm",
    "use_alignment",
    "use_elmo",
    "freeze_bilm",
    "elmo_dropout",
    "mix_l2",
    "word_vector_size",
    "word_vector_vocab_size",
    "train_word_vectors",
    "predicate_embedding_size",
    "task_lstm_size",
    "task_lstm_layers",
    "task_dropout",
    "elmo_at_output",
    "use_crf",
    "crf_scheme",
    "pooling",
    "num_sentences",
)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SOFTMAX_KINDS = ("full", "sampled", "adaptive")

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token")
NO_WORDS_SIZE = len(SPECIAL_TOKENS) + 1  # and padding


# --- What comes out --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StartReport:
    """What a model took from a folder, and what it did not.

    Args:
        folder: The folder.
        weights: SHA-256 of each file of weights.
        parameters_taken: Trainable numbers that come from the folder.
        parameters_fresh: Trainable numbers that do not.
        softmax: Whether all rows of the softmax come from the folder, some, or none.
        softmax_reason: Why the softmax is what it is.
        words_shared: Words of the new vocabulary that the folder's has, too; `<S>`, `</S>` and `<UNK>` are counted.
        words_new: Words of the new vocabulary that the folder's does not have.
        words_dropped: Words of the folder's vocabulary that the new one does not have.
        left_behind: Parts of the folder's model that were not taken.
        table_rows_taken: Rows of the table of words that come from the folder, that of padding included; `None` if
            the model has no such table.
        table_rows_fresh: Rows of the table of words that do not.
    """

    folder: str
    weights: dict[str, str]
    parameters_taken: int
    parameters_fresh: int
    softmax: Literal["kept", "partly", "fresh"]
    softmax_reason: str
    words_shared: int
    words_new: int
    words_dropped: int
    left_behind: tuple[str, ...]
    table_rows_taken: int | None = None
    table_rows_fresh: int | None = None

    @property
    def share(self) -> float:
        """Share of the new vocabulary that the folder's has, too."""
        return self.words_shared / (self.words_shared + self.words_new)

    def to_dict(self) -> dict[str, Any]:
        """All figures, ready for JSON."""
        return {**asdict(self), "left_behind": list(self.left_behind), "share": self.share}

    def __str__(self) -> str:
        words = self.words_shared + self.words_new
        lines = [
            f"from {self.folder}: {self.parameters_taken:,} parameters taken, {self.parameters_fresh:,} fresh",
            f"softmax {self.softmax}: {self.softmax_reason}",
            f"{words:,} words, {self.words_shared:,} ({self.share:.2%}) of them in the folder's vocabulary, "
            f"{self.words_new:,} new; {self.words_dropped:,} dropped",
        ]
        if self.table_rows_taken is not None:
            lines.append(f"table of words: {self.table_rows_taken:,} rows taken, {self.table_rows_fresh:,} fresh")
        if self.left_behind:
            lines.append(f"left behind: {', '.join(self.left_behind)}")
        lines += [f"{checksum}  {name}" for name, checksum in self.weights.items()]
        return "\n".join(lines)


class Start(NamedTuple):
    """What training goes on with."""

    model: ElmoForPreTraining
    tokenizer: ElmoTokenizer
    report: StartReport


def start_from(
    folder: PathLike,
    vocabulary: Sequence[str] | PathLike | None = None,
    *,
    softmax: str | None = None,
    num_sampled: int | None = None,
    softmax_cutoffs: list[int] | None = None,
    dropout: float | None = None,
    word_splitting: str | None = None,
    seed: int = 0,
) -> Start:
    """Makes a language model of the biLM in a folder, to go on training it.

    The folder may hold a language model, an encoder without a softmax, or a model with a task head, which is left
    behind. Its words may be read by their bytes or code points, from a table, or both. Rows of the softmax and of the
    table are copied, bit by bit, if their words are in the old and in the new vocabulary; the others are fresh, as are
    the mixes. Every weight must be there, in its shape and finite. The model is in evaluation mode.

    The tokenizer is the folder's with the new words; padding has the number after the last word, also if it had
    another one in the folder.

    Args:
        folder: A folder that this library saved.
        vocabulary: A file, or the words themselves in its order, as `ElmoTokenizer` describes it; by default the words
            of the folder's tokenizer. If that has other names for `<S>`, `</S>` and `<UNK>`, the vocabulary may have
            either; the names remain the folder's.
        softmax: `"full"`, `"sampled"` or `"adaptive"`; by default as in the folder's config. A full and a sampled
            softmax have the same rows. An adaptive one is kept only with the same words and cutoffs.
        num_sampled: Wrong words that a sampled softmax draws; by default as in the folder's config.
        softmax_cutoffs: Groups of an adaptive softmax; by default as in the folder's config.
        dropout: Of the language model; by default as in the folder's config.
        word_splitting: How the tokenizer splits text; by default as the folder's tokenizer does.
        seed: Of the fresh weights. The global random state is neither used nor changed.

    Raises:
        ValueError: If the folder is not as it must be, or the settings do not fit it or each other.
        OSError: If a file cannot be read.

    Example:
        start = start_from("elmo-small", "domain-words.txt", softmax="full")
        print(start.report)
    """
    source = _Source.read(Path(folder))
    tokenizer = _new_tokenizer(source, vocabulary, word_splitting)
    config = _new_config(source.config, tokenizer, dropout, softmax, num_sampled, softmax_cutoffs)
    source.check_weights()
    model = _fresh_model(config, source.dtype, seed)
    without_table = {name: tensor for name, tensor in source.bilm.items() if name != TABLE}
    model.elmo.load_state_dict(without_table, strict=False)  # the mixes stay fresh, the rest was checked
    words = _words_of(tokenizer)
    old_rows = {word: row for row, word in enumerate(source.words)}
    rows = {row: old_rows[word] for row, word in enumerate(words) if word in old_rows}
    softmax_taken = _take_softmax(source, model, rows)
    table_rows = _take_table(source, model, tokenizer) if TABLE in source.bilm else None
    return Start(model, tokenizer, _report(source, model, words, rows, softmax_taken, table_rows))


# --- The folder ------------------------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """What is in a folder."""

    folder: Path
    checksums: dict[str, str]
    config: ElmoConfig
    tokenizer: ElmoTokenizer
    words: list[str]  # of the tokenizer, without padding
    bilm: dict[str, Tensor]  # by their names within `ElmoModel`, as the mixes
    mixes: dict[str, Tensor]
    softmax: dict[str, Tensor]  # by their names within `ElmoSoftmax`; empty if the folder has none
    head: list[str]  # parts of a task's model
    prefix: str  # of the names of the biLM and the mixes in the files

    @classmethod
    def read(cls, folder: Path) -> "_Source":
        config: ElmoConfig = load_config(folder)
        if not config.use_elmo:
            raise ValueError(
                f"{folder} is a baseline without ELMo (use_elmo=False), so there is no biLM to go on with."
            )
        tokenizer = _load_tokenizer(folder, config)
        files = _weight_files(folder)
        weights = _load_weights(folder, files)
        prefix = "elmo." if any(name.startswith("elmo.") for name in weights) else ""
        parts = _by_part(folder, weights, prefix)
        return cls(
            folder=folder,
            checksums={name: sha256_of(folder / name) for name in files},
            config=config,
            tokenizer=tokenizer,
            words=_words_of(tokenizer),
            bilm=_without_prefix([parts.pop(part, {}) for part in BILM_PARTS], prefix),
            mixes=_without_prefix([parts.pop(MIXES, {})], prefix),
            softmax=_without_prefix([parts.pop(SOFTMAX, {})], f"{SOFTMAX}."),
            head=sorted(parts),
            prefix=prefix,
        )

    @property
    def dtype(self) -> torch.dtype:
        """That of the weights, but at least float32, as steps of training get lost in less."""
        return torch.float64 if torch.float64 in {tensor.dtype for tensor in self.bilm.values()} else torch.float32

    def check_weights(self) -> None:
        """Refuses weights that are not those of the config and the vocabulary."""
        with torch.device("meta"):  # the sizes may be anything until they are checked
            encoder = ElmoModel(self.config)
        bilm = _shapes({name: t for name, t in encoder.state_dict().items() if name.split(".")[0] in BILM_PARTS})
        _check_tensors(self.folder, bilm, self.bilm, self.prefix)
        if TABLE in self.bilm:
            self._check_words("table of words", self.config.pad_token_id)
        if not self.softmax:
            return
        num_words = self.config.vocab_size - 1
        self._check_words(SOFTMAX, num_words)
        adaptive = self.config.softmax == "adaptive"
        with torch.device("meta"):
            softmax = ElmoSoftmax(
                num_words,
                self.config.projection_size,
                kind="adaptive" if adaptive else "full",
                cutoffs=self.config.softmax_cutoffs,
            )
        _check_tensors(self.folder, _shapes(softmax.state_dict()), self.softmax, f"{SOFTMAX}.")

    def _check_words(self, part: str, padding: int | None) -> None:
        """Refuses a tokenizer whose words cannot be those of the rows of this part."""
        if self.tokenizer.pad_token_id != padding or len(self.tokenizer) != self.config.vocab_size:
            raise ValueError(
                f"{self.folder}: the tokenizer has {len(self.tokenizer)} words with padding as number "
                f"{self.tokenizer.pad_token_id}, but the {part} is for vocab_size={self.config.vocab_size} with "
                f"padding as number {padding}, so it is unknown which row belongs to which word. Put the tokenizer "
                "that the model was trained with into the folder."
            )


def _load_tokenizer(folder: Path, config: ElmoConfig) -> ElmoTokenizer:
    if not (folder / "tokenizer_config.json").is_file():  # without files, transformers makes a tokenizer of defaults
        raise FileNotFoundError(f"{folder} has no tokenizer (tokenizer_config.json). Save the model's there.")
    tokenizer = ElmoTokenizer.from_pretrained(folder, local_files_only=True)
    if tokenizer.max_characters_per_token != config.max_characters_per_token:
        raise ValueError(
            f"{folder}: the tokenizer has max_characters_per_token={tokenizer.max_characters_per_token}, but the "
            f"model {config.max_characters_per_token}. They do not belong together."
        )
    if config.word_input != "words":
        _check_characters(folder, tokenizer, config)
    return tokenizer


def _check_characters(folder: Path, tokenizer: ElmoTokenizer, config: ElmoConfig) -> None:
    """Refuses a tokenizer that has other character ids than the model."""
    characters, usual = tokenizer.characters, ElmoConfig()
    if characters is None:
        markers, size = usual.character_markers, usual.char_vocab_size
        fits = config.character_markers == markers  # and then there are at least as many as bytes need
    else:
        markers, size = characters.markers, len(characters.characters) + 1
        fits = (config.character_markers, config.char_vocab_size) == (markers, size)
    if not fits:
        raise ValueError(
            f"{folder}: the model has character_markers={config.character_markers} and "
            f"char_vocab_size={config.char_vocab_size}, but the tokenizer, which spells words with "
            f"{'bytes' if characters is None else 'code points'}, has {markers} and {size}. They do not belong "
            "together."
        )


def _weight_files(folder: Path) -> list[str]:
    """The names of the files of weights: one, or those that an index lists."""
    if (folder / WEIGHTS).is_file():
        return [WEIGHTS]
    index = folder / WEIGHTS_INDEX
    if not index.is_file():
        raise FileNotFoundError(f"{folder} has no weights: neither {WEIGHTS} nor {WEIGHTS_INDEX} is there.")
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        wrong = [name for name in names if name != Path(name).name]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is not an index of weights: {error!r}. Get the folder again.") from error
    if wrong:
        raise ValueError(f"{index} names {wrong[0]!r}, which is not the name of a file in the folder.")
    return names


def _load_weights(folder: Path, files: list[str]) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for name in files:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing, but {WEIGHTS_INDEX} names it. Get the folder again.")
        try:
            weights |= load_file(folder / name)
        except SafetensorError as error:
            raise ValueError(f"{folder / name} is not a file of weights: {error}. Get the folder again.") from error
    return weights


def _by_part(folder: Path, weights: Mapping[str, Tensor], prefix: str) -> dict[str, dict[str, Tensor]]:
    """The weights of each part of the model; refuses those of no part that is known."""
    beginnings = {f"{prefix}{part}.": part for part in (*BILM_PARTS, MIXES, ALIGNMENT)}
    beginnings |= {f"{part}.": part for part in (SOFTMAX, *HEAD_PARTS)}
    beginnings |= {prefix + name: INITIAL_STATE for name in WARM_STATE}
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        part = next((part for beginning, part in beginnings.items() if name.startswith(beginning)), None)
        if part is None:
            raise ValueError(
                f"{folder}: the weight {name!r} belongs to no part of an ELMo model; its parts are "
                f"{', '.join(dict.fromkeys(beginnings.values()))}."
            )
        parts.setdefault(part, {})[name] = tensor
    return parts


def _without_prefix(parts: list[dict[str, Tensor]], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for part in parts for name, tensor in part.items()}


def _shapes(tensors: Mapping[str, Tensor]) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _check_tensors(folder: Path, expected: Shapes, found: Mapping[str, Tensor], prefix: str) -> None:
    """Refuses weights unless all that are expected are there, and no others, in their shapes and finite."""
    for name in expected:
        if name not in found:
            raise ValueError(f"{folder}: the weight {prefix + name!r} is missing. Get the folder again.")
    for name, tensor in found.items():
        weight = f"{folder}: the weight {prefix + name!r}"
        if name not in expected:
            raise ValueError(f"{weight} is not part of the model that config.json describes.")
        if tuple(tensor.shape) != expected[name]:
            raise ValueError(
                f"{weight} has the shape {tuple(tensor.shape)}, but by config.json it must be {expected[name]}."
            )
        if tensor.dtype not in DTYPES:
            raise ValueError(f"{weight} has the type {tensor.dtype}; it must be one of {', '.join(map(str, DTYPES))}.")
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{weight} holds NaN or infinite values. Take an earlier model.")


# --- The vocabulary and the config -----------------------------------------------------------------------------------


def _words_of(tokenizer: ElmoTokenizer) -> list[str]:
    """The words by their ids, without padding."""
    vocabulary = tokenizer.get_vocab()
    vocabulary.pop(tokenizer.pad_token)
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _new_tokenizer(
    source: _Source, vocabulary: Sequence[str] | PathLike | None, word_splitting: str | None
) -> ElmoTokenizer:
    old = source.tokenizer
    kept = ("word_splitting", "max_characters_per_token", "segmenter", "unicode_normalization")
    options: dict[str, Any] = {
        **{name: getattr(old, name) for name in kept},
        **{name: str(getattr(old, name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")},
    }
    if word_splitting is not None:
        options["word_splitting"] = word_splitting
    if vocabulary is None:
        if len(old) <= NO_WORDS_SIZE:
            raise ValueError(
                f"{source.folder} has no vocabulary, only {_no_words(old)}: a language model needs words to predict. "
                "Give a vocabulary; `hf-elmo vocab` makes one from your text."
            )
        tokenizer = _tokenizer_of_known_words(source.words, options)
    else:
        tokenizer = _tokenizer_of_vocabulary(vocabulary, options)
    if len(tokenizer) <= NO_WORDS_SIZE:
        raise ValueError(
            f"The vocabulary has no words, only {_no_words(tokenizer)}. `hf-elmo vocab` makes one from your text."
        )
    if tokenizer.pad_token_id != len(tokenizer) - 1:
        raise ValueError(
            f"The vocabulary has the word {tokenizer.pad_token}, which stands for padding and is never predicted. "
            "Take it out; padding gets the number after the last word."
        )
    if old.characters is not None:
        tokenizer.set_characters(old.characters)
    return tokenizer


def _no_words(tokenizer: ElmoTokenizer) -> str:
    return f"{', '.join(str(getattr(tokenizer, name)) for name in SPECIAL_TOKENS)} and padding"


def _tokenizer_of_known_words(words: list[str], options: dict[str, Any]) -> ElmoTokenizer:
    """A tokenizer of the words of another one, which may be such as no file of words could hold."""
    rust = word_tokenizer(words, unknown=options["unk_token"], padding=options["pad_token"])
    return ElmoTokenizer(tokenizer_object=rust, add_bos_token=True, add_eos_token=True, **options)


def _tokenizer_of_vocabulary(vocabulary: Sequence[str] | PathLike, options: dict[str, Any]) -> ElmoTokenizer:
    """A tokenizer by way of a file, which is where words are checked."""
    if isinstance(vocabulary, (str, os.PathLike)):
        name, lines = str(vocabulary), _lines_of(Path(vocabulary))
    else:
        name, lines = "the vocabulary", list(vocabulary)
        for number, word in enumerate(lines, start=1):
            if not isinstance(word, str) or "\n" in word:
                raise ValueError(f"{name}: word {number} is {word!r}, but must be a string without line ends.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vocab.txt")
        path.write_bytes("".join(f"{word}\n" for word in _with_names(lines, options)).encode("utf-8"))
        try:
            return ElmoTokenizer(path, **options)
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), name)) from error


def _lines_of(path: Path) -> list[str]:
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}. Give a file of words, one a line.") from error
    return lines[:-1] if lines[-1] == "" else lines


def _with_names(lines: list[str], options: dict[str, Any]) -> list[str]:
    """The lines of a vocabulary with the tokenizer's names for what `hf-elmo vocab` calls `<S>`, `</S>`, `<UNK>`."""
    names = dict(zip(SPECIAL_WORDS, (options[token] for token in SPECIAL_TOKENS), strict=True))
    words = [line.removesuffix("\r") for line in lines]
    present = set(words)
    if present.issuperset(names.values()) or not present.issuperset(names):
        return lines
    return [names.get(word, line) for word, line in zip(words, lines, strict=True)]


def _new_config(
    old: ElmoConfig,
    tokenizer: ElmoTokenizer,
    dropout: float | None,
    softmax: str | None,
    num_sampled: int | None,
    softmax_cutoffs: list[int] | None,
) -> ElmoConfig:
    """The config of the biLM, with the word ids of the vocabulary and the softmax that is asked for."""
    kind = old.softmax if softmax is None else softmax
    if kind not in SOFTMAX_KINDS:
        raise ValueError(f"softmax={kind!r} is not known: it must be one of {', '.join(SOFTMAX_KINDS)}.")
    if num_sampled is not None and kind != "sampled":
        raise ValueError(f"num_sampled={num_sampled} is for the sampled softmax, but this one is {kind}.")
    if softmax_cutoffs is not None and kind != "adaptive":
        raise ValueError(f"softmax_cutoffs={softmax_cutoffs} is for the adaptive softmax, but this one is {kind}.")
    if softmax_cutoffs is None and kind == "adaptive":
        softmax_cutoffs = old.softmax_cutoffs
        if softmax_cutoffs is None:
            raise ValueError(
                f"An adaptive softmax needs softmax_cutoffs, which the folder's {old.softmax} one does not have: give "
                "the word ids where its groups begin."
            )
    num_words = len(tokenizer) - 1
    num_sampled = old.num_sampled if num_sampled is None else num_sampled
    if kind == "sampled" and num_sampled > num_words:
        raise ValueError(
            f"A sampled softmax that draws num_sampled={num_sampled:,} words does not fit a vocabulary of "
            f"{num_words:,}. Give softmax='full', or a num_sampled of at most {num_words:,}."
        )
    settings = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "softmax": kind,
        "num_sampled": num_sampled,
        "softmax_cutoffs": softmax_cutoffs,
    }
    if dropout is not None:
        settings["dropout"] = dropout
    return ElmoConfig(**{**_bilm_settings(old), **settings})


def _bilm_settings(config: ElmoConfig) -> dict[str, Any]:
    """What the config says that is ELMo's, not a task's, nor of every model."""
    own = {field.name for field in fields(ElmoConfig)} - {field.name for field in fields(PreTrainedConfig)}
    return {name: getattr(config, name) for name in sorted(own.difference(RESET_FIELDS))}


# --- The model -------------------------------------------------------------------------------------------------------


def _fresh_model(config: ElmoConfig, dtype: torch.dtype, seed: int) -> ElmoForPreTraining:
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed accelerators
        model = ElmoForPreTraining(config)
    return cast(Any, model).to(dtype).eval()


class _Taken(NamedTuple):
    """What became of the folder's softmax."""

    status: Literal["kept", "partly", "fresh"]
    reason: str
    parameters: int


@torch.no_grad()
def _take_softmax(source: _Source, model: ElmoForPreTraining, rows: dict[int, int]) -> _Taken:
    """Copies what the folder's softmax knows; `rows` has the folder's row for each row that both have."""
    if not source.softmax:
        return _Taken("fresh", "the folder has none", 0)
    num_words = model.config.vocab_size - 1
    if "adaptive" not in (source.config.softmax, model.config.softmax):
        for name, tensor in source.softmax.items():
            _copy_rows(tensor, model.softmax.get_parameter(name), rows)
        status: Literal["kept", "partly"] = "kept" if len(rows) == num_words else "partly"
        reason = f"{len(rows):,} of {num_words:,} rows are the folder's"
        return _Taken(status, reason, len(rows) * (model.config.projection_size + 1))
    same_words = num_words == len(source.words) and rows == {row: row for row in range(num_words)}
    if same_words and source.config.softmax_cutoffs == model.config.softmax_cutoffs:
        model.softmax.load_state_dict(source.softmax)
        parameters = sum(tensor.numel() for tensor in source.softmax.values())
        return _Taken("kept", "the words and the cutoffs are the folder's", parameters)
    return _Taken("fresh", "an adaptive softmax is kept only with the same words and cutoffs", 0)


@torch.no_grad()
def _take_table(source: _Source, model: ElmoForPreTraining, tokenizer: ElmoTokenizer) -> int:
    """Copies the rows of words that both tables have, and that of padding; says how many."""
    ours, theirs = tokenizer.get_vocab(), source.tokenizer.get_vocab()
    rows = {row: theirs[word] for word, row in ours.items() if word in theirs}
    _copy_rows(source.bilm[TABLE], model.elmo.get_parameter(TABLE), rows)
    return len(rows)


def _copy_rows(source: Tensor, target: Tensor, rows: dict[int, int]) -> None:
    """Copies rows of weights; `rows` has the row of the source for each row of the target that gets one."""
    ours, theirs = torch.tensor(list(rows)), torch.tensor(list(rows.values()))
    target.index_copy_(0, ours, source.index_select(0, theirs).to(target.dtype))


def _report(
    source: _Source,
    model: ElmoForPreTraining,
    words: list[str],
    rows: dict[int, int],
    softmax: _Taken,
    table_rows: int | None,
) -> StartReport:
    left_behind = list(source.head)
    if not _are_fresh(source.mixes, model):
        left_behind.append(MIXES)
    if source.softmax and softmax.status == "fresh":
        left_behind.append(SOFTMAX)
    taken = softmax.parameters + sum(tensor.numel() for name, tensor in source.bilm.items() if name != TABLE)
    taken += (table_rows or 0) * model.config.word_embedding_size
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return StartReport(
        folder=str(source.folder),
        weights=source.checksums,
        parameters_taken=taken,
        parameters_fresh=trainable - taken,
        softmax=softmax.status,
        softmax_reason=softmax.reason,
        words_shared=len(rows),
        words_new=len(words) - len(rows),
        words_dropped=len(source.words) - len(rows),
        left_behind=tuple(left_behind),
        table_rows_taken=table_rows,
        table_rows_fresh=None if table_rows is None else model.config.vocab_size - table_rows,
    )


def _are_fresh(mixes: Mapping[str, Tensor], model: ElmoForPreTraining) -> bool:
    """Whether a folder's mixes are none or those that a model begins with, so that nothing is lost with them."""
    fresh = model.elmo.state_dict()
    return all(name in fresh and torch.equal(tensor.to(model.dtype), fresh[name]) for name, tensor in mixes.items())


__all__ = ["Start", "StartReport", "start_from"]
