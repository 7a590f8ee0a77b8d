# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The command `hf-elmo serve`: vectors and labels of a model over HTTP.

A model folder is run by torch, and what `hf-elmo export onnx` wrote by onnxruntime. `hf_elmo/elmo_server.py` has the
server itself.
"""

import argparse
import importlib.util
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers.utils import logging

from hf_elmo import ElmoEmbedder, ElmoForSequenceClassification, ElmoForTokenClassification, ElmoTokenizer
from hf_elmo.cli import Command
from hf_elmo.conversion.verify import load_config, load_exactly
from hf_elmo.elmo_batches import Prepared
from hf_elmo.elmo_onnx import MODEL_FILE, ElmoOnnx, text_labels, word_labels
from hf_elmo.elmo_server import (
    Backend,
    Limits,
    OnnxBackend,
    add_server_arguments,
    describe,
    limits_of,
    listen,
    missing,
    serve,
)
from hf_elmo.embedder import POOLINGS, check_layers
from hf_elmo.packing import sentence_by_sentence
from hf_elmo.shipped_model import MODEL_HELP, model_folder, name_of_folder

TASKS: dict[str, tuple[str, Any]] = {
    "ElmoForTokenClassification": ("token-classification", ElmoForTokenClassification),
    "ElmoForSequenceClassification": ("sequence-classification", ElmoForSequenceClassification),
}


class TorchBackend:
    """A model folder, run by torch.

    Args:
        folder: Of a model with its tokenizer.
        batch_tokens: Words to compute at a time.
        threads: That compute; by default torch's choice.
        device: Where to compute; by default on the GPU if there is one.
        batch_invariant: Whether texts are computed one by one, so that answers are the same to the last bit whatever
            they are computed with; by default so if the model starts from a warm state.
    """

    def __init__(
        self,
        folder: Path,
        batch_tokens: int,
        threads: int | None = None,
        device: str | None = None,
        batch_invariant: bool | None = None,
    ):
        if threads is not None and threads < 1:
            raise ValueError(f"--threads {threads} is not possible: it must be 1 or more.")
        self.config = load_config(folder)
        self.batch_tokens = batch_tokens
        self.threads = threads
        architecture = (self.config.architectures or ["ElmoModel"])[0]
        self.task, head_class = TASKS.get(architecture, ("features", None))
        self.tokenizer, self._splitter = (ElmoTokenizer.from_pretrained(folder) for _ in range(2))  # one a thread
        self.head: Any = None
        self.embedder: ElmoEmbedder | None = None
        where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if head_class is None:
            self.embedder = ElmoEmbedder.from_pretrained(
                folder, device=where, dtype=torch.float32, batch_invariant=batch_invariant
            )
        else:
            self.head = load_exactly(folder, torch.float32, head_class).eval().to(where)
            if self.config.use_elmo:
                self.embedder = ElmoEmbedder(self.head, self.tokenizer, batch_invariant=batch_invariant)
        if self.config.predicate_embedding_size and self.head is not None:
            raise ValueError(f"{folder} labels semantic roles, and a request has no place for the predicates.")
        self.batch_invariant = bool(batch_invariant) if self.embedder is None else self.embedder.batch_invariant
        self.can_embed = self.embedder is not None
        self.can_predict = self.head is not None
        self.reads_pairs = self.task == "sequence-classification" and self.config.num_sentences == 2
        names = cast(dict[int, str], self.config.id2label)
        self.labels = [names[number] for number in sorted(names)] if self.can_predict else []
        self.description = describe(name_of_folder(folder), "torch", self.config.to_dict(), self.task, self.labels)

    def start(self) -> None:
        """Threads are counted for each thread that begins some."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)

    def prepare(self, text: Any, pair: Any = None) -> Prepared:
        words = [text if isinstance(text, list) else self._splitter.tokenize(text)]
        if pair is not None:
            words.append(pair if isinstance(pair, list) else self._splitter.tokenize(pair))
        boundaries = int(self.tokenizer.add_bos_token) + int(self.tokenizer.add_eos_token)
        everything = [word for sentence in words for word in sentence]
        return Prepared(everything, len(everything) + boundaries * len(words), words)

    def check_vectors(self, layers: Any, pooling: Any) -> None:
        check_layers(self.config, layers)
        if pooling is not None and pooling not in POOLINGS:
            allowed = ", ".join(map(repr, POOLINGS))
            raise ValueError(f"pooling={pooling!r} is not possible: it is {allowed}, or None.")

    def embed(self, texts: Sequence[Prepared], layers: Any, pooling: Any, keep_boundaries: bool) -> list[np.ndarray]:
        assert self.embedder is not None  # or nobody would ask
        return list(
            self.embedder.encode(
                [text.words for text in texts],
                layers,
                pooling,
                batch_tokens=self.batch_tokens,
                dtype=torch.float32,
                is_split_into_words=True,
                keep_boundaries=keep_boundaries,
                show_progress=False,
            )
        )

    @torch.inference_mode()
    def predict(self, texts: Sequence[Prepared]) -> list[Any]:
        found: list[Any] = [None] * len(texts)
        for rows in self._batches([text.length for text in texts]):
            batch = [texts[row].content for row in rows]
            pairs = [content[1] for content in batch] if self.reads_pairs else None
            encoded = self.tokenizer(
                [content[0] for content in batch],
                pairs,
                is_split_into_words=True,
                padding=True,
                padding_side="right",
                return_tensors="pt",
            )
            with sentence_by_sentence() if self.batch_invariant else nullcontext():
                logits = self.head(**encoded.to(self.head.device)).logits.cpu().numpy()
            for number, row in enumerate(rows):
                found[row] = self._labels(texts[row].words, logits[number])
        return found

    def _labels(self, words: list[str], logits: np.ndarray) -> Any:
        if self.task == "sequence-classification":
            return text_labels(logits, self.labels, self.config.problem_type)
        first = int(self.tokenizer.add_bos_token)
        return word_labels(words, logits[first : first + len(words)], self.labels)

    def _batches(self, lengths: list[int]) -> list[list[int]]:
        """Numbers of texts to read together: of similar length, and not too many words."""
        batches: list[list[int]] = []
        for row in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            fits = batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= self.batch_tokens
            if self.batch_invariant or not fits:
                batches.append([])
            batches[-1].append(row)
        return batches


def load_backend(
    folder: Path,
    limits: Limits,
    threads: int | None = None,
    device: str | None = None,
    batch_invariant: bool | None = None,
) -> Backend:
    """The model of a folder, with the program that runs it."""
    if not (folder / MODEL_FILE).is_file():
        return TorchBackend(folder, limits.batch_tokens, threads, device, batch_invariant)
    for option, value in (("--device", device), ("--batch-invariant", batch_invariant)):
        if value is not None:
            raise ValueError(f"{option} is for torch, but {folder} was exported for onnxruntime: leave it out.")
    return OnnxBackend(ElmoOnnx(folder, threads), folder.resolve().name, limits.batch_tokens)


# --- The command -----------------------------------------------------------------------------------------------------


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=model_folder, metavar="FOLDER", help=f"{MODEL_HELP}; or what hf-elmo export onnx wrote"
    )
    add_server_arguments(parser)
    parser.add_argument("--device", help="such as cpu or cuda:1, for torch (default: cuda if there is one)")
    parser.add_argument(
        "--batch-invariant",
        action=argparse.BooleanOptionalAction,
        help="for torch: compute texts one by one, so that answers are the same to the last bit whatever comes at the "
        "same time; slower (default: if the model starts from a warm state)",
    )


def _run(arguments: argparse.Namespace) -> None:
    limits = limits_of(arguments)
    for package in ("fastapi", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise missing(ImportError(name=package))
    logging.disable_progress_bar()  # weights are read once, and the log of a server has no place for it
    with listen(arguments.host, arguments.port) as listening:
        backend = load_backend(
            arguments.folder, limits, arguments.threads, arguments.device, arguments.batch_invariant
        )
        serve(backend, limits, listening)


SERVE = Command(
    description="Serves vectors and labels of a model over HTTP. POST /embed takes a JSON object with texts (strings "
    "or lists of words), and if you like layers, pooling, keep_boundaries and format (json, npy or safetensors); POST "
    "/predict takes texts, and pairs if the model reads them; GET /info says what the model is, GET /health whether "
    "it works. Requests that come at the same time are computed together. It stops at SIGTERM or Ctrl+C, once the "
    "requests under way are answered. Nobody is asked for a password: beyond your own machine, put it behind "
    "something that asks.",
    examples="""  hf-elmo serve my-elmo
  hf-elmo serve my-tagger-onnx --port 9000 --threads 2 --max-wait-ms 2
  hf-elmo serve my-elmo --host 0.0.0.0 --max-texts 64 --max-words 1000 --max-requests 100 --timeout 10""",
    add_arguments=_arguments,
    run=_run,
)
