# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""An HTTP server for ELMo, which computes requests that come at the same time together: `hf-elmo serve`.

A copy of this file is in every folder that `hf-elmo export onnx` wrote, where it needs neither torch nor transformers:

    pip install onnxruntime tokenizers numpy fastapi uvicorn
    python my-elmo-onnx/elmo_server.py --port 8000
    curl -H 'Content-Type: application/json' -d '{"texts": ["A river bank."]}' http://127.0.0.1:8000/embed

A request goes this way: its body is read and checked, one thread splits its texts into words, another one computes,
and the answer is written. What waits for the computing thread is taken together, as far as it asks for the same and
fits (`elmo_batches.py`).
The server asks nobody who they are, so by default only programs on the same machine reach it.
"""

import argparse
import asyncio
import io
import json
import math
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

if __package__:
    from .elmo_batches import Batcher, Prepared
else:  # in a folder that was exported
    from elmo_batches import Batcher, Prepared  # type: ignore[import-not-found, no-redef]

FORMATS = ("json", "npy", "safetensors")
JSON_TYPE = "application/json"

# Of a body that is too large, so much is read and thrown away before the answer, as most programs send all of a
# request before they look at what comes back.
DISCARDED_BYTES = 2**26


# --- What a server may be asked for ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """How much is taken at a time; the help of each is that of its option."""

    max_bytes: int = field(default=1_000_000, metadata={"help": "largest body of a request"})
    max_texts: int = field(default=256, metadata={"help": "most texts of a request"})
    max_words: int = field(default=4096, metadata={"help": "most words of all texts of a request"})
    max_requests: int = field(
        default=256, metadata={"help": "most requests that are under way; others are told to come again (503)"}
    )
    batch_tokens: int = field(
        default=2048, metadata={"help": "words, boundaries included, of requests that are computed together"}
    )
    max_wait_ms: float = field(
        default=5.0, metadata={"help": "how long a request waits for others to be computed with, in milliseconds"}
    )
    timeout: float = field(
        default=60.0, metadata={"help": "seconds to wait for the body of a request, and for its answer"}
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            value, lowest = getattr(self, one.name), 0 if one.name == "max_wait_ms" else 1
            if not lowest <= value < math.inf:
                option = one.name.replace("_", "-")
                raise ValueError(f"--{option} {value} is not possible: it must be {lowest} or more.")


class Backend(Protocol):
    """A model, and the program that runs it. One thread calls `prepare`, and another one the other methods."""

    description: dict[str, Any]  # what /info says of it
    can_embed: bool
    can_predict: bool
    reads_pairs: bool

    def start(self) -> None:
        """Called once, by the thread that computes."""

    def prepare(self, text: Any, pair: Any = None) -> Prepared:
        """Splits a text, a string or a list of words, and its second text if there is one."""

    def check_vectors(self, layers: Any, pooling: Any) -> None:
        """Raises ValueError if the model gives no such vectors."""

    def embed(
        self, texts: Sequence[Prepared], layers: Any, pooling: str | None, keep_boundaries: bool
    ) -> list[np.ndarray]:
        """The vectors of each text."""

    def predict(self, texts: Sequence[Prepared]) -> list[Any]:
        """The labels of each text."""


class OnnxBackend:
    """What `hf-elmo export onnx` wrote, run by onnxruntime.

    Args:
        model: An `ElmoOnnx`.
        name: What /info calls the model.
        batch_tokens: Words to compute at a time.
    """

    def __init__(self, model: Any, name: str, batch_tokens: int):
        self.model = model
        self.batch_tokens = batch_tokens
        if "predicate_ids" in model.inputs:
            raise ValueError("This model labels semantic roles, and a request has no place for the predicates.")
        self.can_embed = model.task == "features"
        self.can_predict = model.task in ("token-classification", "sequence-classification")
        if not self.can_embed and not self.can_predict:
            raise ValueError(
                f"The model was exported for the task {model.task}, which is not served: export it with --task "
                "features, token-classification or sequence-classification."
            )
        self.reads_pairs: bool = model.reads_pairs
        self.check_vectors: Callable[[Any, Any], None] = model.check_vectors
        self.description = describe(name, "onnxruntime", model.config, model.task, model.labels)

    def start(self) -> None:
        """Nothing is to be done."""

    def prepare(self, text: Any, pair: Any = None) -> Prepared:
        (sentence,) = self.model.tokenizer.read([text], None if pair is None else [pair])
        first, last = self.model.tokenizer.added_boundaries
        return Prepared(sentence.words[first : len(sentence.words) - last], len(sentence.ids), sentence)

    def embed(
        self, texts: Sequence[Prepared], layers: Any, pooling: str | None, keep_boundaries: bool
    ) -> list[np.ndarray]:
        sentences = [text.content for text in texts]
        return self.model.vectors_of(sentences, layers, pooling, self.batch_tokens, keep_boundaries)

    def predict(self, texts: Sequence[Prepared]) -> list[Any]:
        return self.model.labels_of([text.content for text in texts], self.batch_tokens)


def describe(name: str, runtime: str, config: dict[str, Any], task: str, labels: Sequence[str]) -> dict[str, Any]:
    """What /info says of a model."""
    return {
        "model": name,
        "runtime": runtime,
        "task": task,
        "num_hidden_layers": config["num_hidden_layers"],
        "hidden_size": 2 * config["projection_size"],
        "labels": list(labels),
    }


# --- What requests say -----------------------------------------------------------------------------------------------


class Refused(Exception):
    """An answer other than the one that was asked for.

    Args:
        status: Of HTTP.
        message: What is wrong, what is allowed and what to do.
        headers: Of the answer.
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


def parsed(body: bytes, allowed: Sequence[str]) -> dict[str, Any]:
    """The object that a body holds; refuses what is none, and fields that mean nothing."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(400, f"The body is not JSON: {reason}") from error
    if not isinstance(content, dict):
        raise Refused(400, f'The body is {_kind(content)}, but it must be an object such as {{"texts": ["A text."]}}.')
    unknown = [name for name in content if name not in allowed]
    if unknown:
        raise Refused(400, f"There is no field {unknown[0]!r:.60}: the fields are {', '.join(allowed)}.")
    return content


def texts_of(content: dict[str, Any], name: str, limits: Limits) -> list[Any]:
    """The texts in a field, which are strings or lists of strings."""
    texts = content.get(name)
    if not isinstance(texts, list):
        what = "missing" if texts is None else _kind(texts)
        raise Refused(400, f"{name} is {what}, but it must be a list of texts or of lists of words.")
    if not texts:
        raise Refused(400, f"{name} is empty: give at least one text.")
    if len(texts) > limits.max_texts:
        raise Refused(
            413, f"{name} has {len(texts)} texts, but a request may have {limits.max_texts}: send several requests."
        )
    for number, text in enumerate(texts):
        if isinstance(text, str):
            continue
        if not isinstance(text, list):
            raise Refused(400, f"{name}[{number}] is {_kind(text)}, but a text is a string or a list of words.")
        for place, word in enumerate(text):
            if not isinstance(word, str):
                raise Refused(400, f"{name}[{number}][{place}] is {_kind(word)}, but a word is a string.")
    return texts


def _kind(value: Any) -> str:
    """What a value of JSON is, in words."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _option(content: dict[str, Any], name: str, default: Any, allowed: Sequence[Any]) -> Any:
    value = content.get(name, default)
    if not any(value == one and type(value) is type(one) for one in allowed):
        listed = ", ".join(map(json.dumps, allowed))
        raise Refused(400, f"{name} is {json.dumps(value):.60}, but it must be one of {listed}.")
    return value


# --- What answers say ------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """The body of an answer, and what it is."""

    body: bytes
    media_type: str


def json_answer(content: Any) -> Answer:
    return Answer(json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii"), JSON_TYPE)


def vectors_answer(vectors: Sequence[np.ndarray], words: list[list[str]], format: str, pooled: bool) -> Answer:
    """The vectors of texts in a format.

    JSON has `vectors` and `words`, in the order of the texts. An npy file holds one array: that of the only text, or a
    row for each pooled text. A file of safetensors has an array for each text, named by its number, and in its
    metadata the `words`.
    """
    if format == "json":
        return json_answer({"vectors": [array.tolist() for array in vectors], "words": words})
    if format == "npy":
        file = io.BytesIO()
        np.save(file, np.stack(vectors) if pooled else vectors[0])
        return Answer(file.getvalue(), "application/x-npy")
    return Answer(_safetensors(vectors, {"words": json.dumps(words)}), "application/x-safetensors")


def _safetensors(arrays: Sequence[np.ndarray], metadata: dict[str, str]) -> bytes:
    """A file with these arrays, named 0, 1 and so on: the length of the header, the header, the numbers."""
    header: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for number, array in enumerate(arrays):
        end = start + array.nbytes
        header[str(number)] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode("ascii")
    text += b" " * (-len(text) % 8)
    numbers = [np.ascontiguousarray(array, dtype="<f4").tobytes() for array in arrays]
    return b"".join([len(text).to_bytes(8, "little"), text, *numbers])


# --- The server ------------------------------------------------------------------------------------------------------


class Server:
    """Answers requests, as an application of FastAPI.

    Args:
        backend: The model.
        limits: How much is taken at a time.
    """

    def __init__(self, backend: Backend, limits: Limits):
        self.backend = backend
        self.limits = limits
        self.under_way = 0
        self.answered = 0
        self._batcher: Batcher | None = None
        self._splitter = ThreadPoolExecutor(1, thread_name_prefix="elmo-words")

    def app(self) -> Any:
        """The application.

        Raises:
            ImportError: If FastAPI is not installed.
        """
        try:
            from fastapi import FastAPI, Request, Response
            from starlette.exceptions import HTTPException
        except ImportError as error:
            raise missing(error) from error

        @asynccontextmanager
        async def lifespan(_: Any) -> AsyncIterator[None]:
            limits = self.limits
            self._batcher = Batcher(self._compute, limits.batch_tokens, limits.max_wait_ms / 1000, self.backend.start)
            yield
            await asyncio.to_thread(self._batcher.close)
            self._splitter.shutdown()

        app = FastAPI(title="hf-elmo", docs_url=None, redoc_url=None, lifespan=lifespan)

        async def answered(asked: Coroutine[Any, Any, Answer]) -> Response:
            try:
                answer = await asked
            except Refused as refused:
                content = json_answer({"error": refused.message})
                return Response(content.body, refused.status, refused.headers, content.media_type)
            return Response(answer.body, 200, None, answer.media_type)

        @app.post("/embed", openapi_extra=_body_schema(EMBED_FIELDS))
        async def embed(request: Request) -> Response:
            """The vectors of texts."""
            return await answered(self._within_limits(request, self.embed))

        @app.post("/predict", openapi_extra=_body_schema(PREDICT_FIELDS))
        async def predict(request: Request) -> Response:
            """The labels of texts or of their words."""
            return await answered(self._within_limits(request, self.predict))

        @app.get("/health")
        async def health() -> Response:
            """Whether the server works, and how much it does."""
            return await answered(self.health())

        @app.get("/info")
        async def info() -> Response:
            """What the model is, and what may be asked for."""
            return await answered(self.info())

        @app.exception_handler(HTTPException)
        async def refuse(request: Request, error: HTTPException) -> Response:
            paths = "POST /embed, POST /predict, GET /health, GET /info"
            message = f"{request.method} {request.url.path:.60}: {error.detail}. There is {paths}."
            content = json_answer({"error": message})
            return Response(content.body, error.status_code, error.headers, content.media_type)

        @app.exception_handler(Exception)
        async def fail(request: Request, error: Exception) -> Response:
            content = json_answer({"error": "The server made a mistake, which its log has."})
            return Response(content.body, 500, None, content.media_type)

        return app

    # --- Endpoints ---------------------------------------------------------------------------------------------------

    async def health(self) -> Answer:
        batcher = self._batcher
        if batcher is None or not batcher.is_alive:
            raise Refused(503, "The thread that computes has ended: start the server anew.")
        figures = {"under_way": self.under_way, "answered": self.answered, "batches": batcher.batches}
        return json_answer({"status": "ok", **figures})

    async def info(self) -> Answer:
        can = [name for name, on in (("embed", self.backend.can_embed), ("predict", self.backend.can_predict)) if on]
        return json_answer({**self.backend.description, "endpoints": can, "limits": asdict(self.limits)})

    async def embed(self, request: Any) -> Answer:
        if not self.backend.can_embed:
            raise Refused(404, "This model gives no vectors, but labels: POST /predict.")
        content = parsed(await self._body(request), tuple(EMBED_FIELDS))
        texts = texts_of(content, "texts", self.limits)
        layers, pooling = content.get("layers", "mix"), content.get("pooling")
        try:
            self.backend.check_vectors(layers, pooling)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        keep_boundaries = _option(content, "keep_boundaries", False, (False, True))
        format = _option(content, "format", "json", FORMATS)
        if format == "npy" and pooling is None and len(texts) > 1:
            raise Refused(
                400, "An npy file holds one array: give one text, or pooling, or choose the format safetensors."
            )
        prepared = await self._prepare(texts, None)
        vectors = await self._result(request, ("embed", layers, pooling, keep_boundaries), prepared)
        words = [text.words for text in prepared]
        return await asyncio.to_thread(vectors_answer, vectors, words, format, pooling is not None)

    async def predict(self, request: Any) -> Answer:
        if not self.backend.can_predict:
            raise Refused(404, "This model gives no labels, but vectors: POST /embed.")
        content = parsed(await self._body(request), tuple(PREDICT_FIELDS))
        texts = texts_of(content, "texts", self.limits)
        pairs = None
        if self.backend.reads_pairs:
            pairs = texts_of(content, "pairs", self.limits)
            if len(pairs) != len(texts):
                raise Refused(400, f"There are {len(texts)} texts, but {len(pairs)} pairs: give each text one.")
        elif content.get("pairs") is not None:
            raise Refused(400, "This model reads single texts, but pairs are given: leave them out.")
        prepared = await self._prepare(texts, pairs)
        labels = await self._result(request, ("predict",), prepared)
        return await asyncio.to_thread(json_answer, {"predictions": labels})

    def _compute(self, key: tuple[Any, ...], texts: list[Prepared]) -> list[Any]:
        return self.backend.embed(texts, *key[1:]) if key[0] == "embed" else self.backend.predict(texts)

    # --- Their steps -------------------------------------------------------------------------------------------------

    async def _within_limits(self, request: Any, endpoint: Callable[[Any], Coroutine[Any, Any, Answer]]) -> Answer:
        """What the endpoint answers, unless too many requests are under way."""
        if self.under_way >= self.limits.max_requests:
            await self._discard(request)
            raise Refused(
                503,
                f"{self.under_way} requests are under way already, as many as are taken: come again later.",
                {"Retry-After": "1"},
            )
        self.under_way += 1
        try:
            answer = await endpoint(request)
        finally:
            self.under_way -= 1
        self.answered += 1
        return answer

    async def _body(self, request: Any) -> bytes:
        """The body of a request, as far as it is JSON, small enough and in time."""
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != JSON_TYPE:
            await self._discard(request)
            raise Refused(415, f"The body is of the type {media_type[:60]!r}, but it must be {JSON_TYPE}.")
        too_large = Refused(
            413,
            f"The body is larger than {self.limits.max_bytes} bytes: send several requests.",
            {"Connection": "close"},
        )
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self.limits.max_bytes:
            await self._discard(request)
            raise too_large
        try:
            body = await asyncio.wait_for(self._read(request), self.limits.timeout)
        except asyncio.TimeoutError as error:
            message = f"The body did not come within {self.limits.timeout:g} seconds."
            raise Refused(408, message, {"Connection": "close"}) from error
        if body is None:
            await self._discard(request)
            raise too_large
        return body

    async def _read(self, request: Any) -> bytes | None:
        """The body, or nothing if it is too large."""
        parts, size = [], 0
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "The request ended before its body did.")
            part = message.get("body", b"")
            size += len(part)
            if size > self.limits.max_bytes:
                return None
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _discard(self, request: Any) -> None:
        """Reads the body without keeping it, unless it is very large, or its sender waits for a word first."""
        announced = request.headers.get("content-length", "")
        if "expect" in request.headers or (announced.isdecimal() and int(announced) > DISCARDED_BYTES):
            return

        async def read() -> None:
            size = 0
            while size <= DISCARDED_BYTES:
                message = await request.receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return

        try:
            await asyncio.wait_for(read(), self.limits.timeout)
        except asyncio.TimeoutError:
            return

    async def _prepare(self, texts: list[Any], pairs: list[Any] | None) -> list[Prepared]:
        """Splits the texts into words; refuses too many of them."""

        def prepare() -> list[Prepared]:
            if pairs is None:
                return [self.backend.prepare(text) for text in texts]
            return [self.backend.prepare(text, pair) for text, pair in zip(texts, pairs, strict=True)]

        try:
            prepared = await asyncio.get_running_loop().run_in_executor(self._splitter, prepare)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        words = sum(len(text.words) for text in prepared)
        if words > self.limits.max_words:
            raise Refused(
                413, f"The texts have {words} words, but a request may have {self.limits.max_words}: send several."
            )
        return prepared

    async def _result(self, request: Any, key: tuple[Any, ...], texts: list[Prepared]) -> list[Any]:
        """What is computed, unless it takes too long or nobody waits for it any more."""
        assert self._batcher is not None  # there is one as long as there are requests
        result = self._batcher.submit(key, texts)
        waiting = asyncio.wrap_future(result)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            done, _ = await asyncio.wait(
                (waiting, gone), timeout=self.limits.timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            gone.cancel()
        if waiting in done:
            return waiting.result()
        waiting.cancel()  # and the job with it, if it still waits
        if done:
            raise Refused(499, "The client has gone.")
        raise Refused(
            504,
            f"There was no answer within {self.limits.timeout:g} seconds: send less at a time, or come again later.",
        )


async def _disconnected(request: Any) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def missing(error: ImportError) -> ImportError:
    """What to say if the packages of the server are not there."""
    return ImportError(
        f"A server needs {error.name or 'fastapi'}, which is not installed: "
        'pip install "hf-elmo[serve]" (or fastapi and uvicorn)'
    )


# Fields of the requests, as JSON schema says it.
_TEXTS = {
    "type": "array",
    "items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "minItems": 1,
}
EMBED_FIELDS: dict[str, Any] = {
    "texts": {**_TEXTS, "description": "texts, or lists of words"},
    "layers": {
        "anyOf": [{"enum": ["mix", "top", "average", "all"]}, {"type": "integer", "minimum": 0}],
        "default": "mix",
    },
    "pooling": {"enum": ["mean", "max", "mean_max", "boundary", None], "default": None},
    "keep_boundaries": {"type": "boolean", "default": False},
    "format": {"enum": list(FORMATS), "default": "json"},
}
PREDICT_FIELDS: dict[str, Any] = {
    "texts": {**_TEXTS, "description": "texts, or lists of words"},
    "pairs": {**_TEXTS, "description": "second texts, if the model reads pairs"},
}


def _body_schema(properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": ["texts"], "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {JSON_TYPE: {"schema": schema}}}}


# --- Running it ------------------------------------------------------------------------------------------------------


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where to listen, and an option for each limit."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free (default: %(default)s)")
    parser.add_argument("--threads", type=int, metavar="N", help="that compute (default: one for each core)")
    for one in fields(Limits):
        parser.add_argument(
            f"--{one.name.replace('_', '-')}",
            type=type(one.default),
            default=one.default,
            metavar="N",
            help=f"{one.metadata['help']} (default: %(default)s)",
        )


def limits_of(arguments: argparse.Namespace) -> Limits:
    """The limits that the arguments say."""
    return Limits(**{one.name: getattr(arguments, one.name) for one in fields(Limits)})


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections.

    Raises:
        OSError: If the address cannot be listened at.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"--port {port} is not possible: it must be from 0 to {2**16 - 1}.")
    try:
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
    except OSError as error:
        raise OSError(f"The server cannot listen at {host}, port {port}: {error.strerror or error}.") from error
    # Connections inherit it. Otherwise the body of an answer waits until its head is acknowledged, 40 ms on Linux.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def serve(backend: Backend, limits: Limits, listening: socket.socket) -> None:
    """Answers requests until the process is told to end (SIGTERM, or Ctrl+C), and then those that are under way."""
    try:
        import uvicorn
    except ImportError as error:
        raise missing(error) from error
    server = Server(backend, limits)
    config = uvicorn.Config(
        server.app(),
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(limits.timeout),
    )
    host, port = listening.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    print(f"serving {backend.description['model']} at http://{address}", flush=True)
    # uvicorn ends its work at these signals and then raises them anew, which is not to end the process once more.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print(f"stopped after {server.answered} {'answer' if server.answered == 1 else 'answers'}", flush=True)


def main() -> int:
    """Serves the folder that this file is in, without torch."""
    parser = argparse.ArgumentParser(description="Serves a model that hf-elmo export onnx wrote.")
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(__file__).resolve().parent, help="default: where this file is"
    )
    add_server_arguments(parser)
    arguments = parser.parse_args()
    from elmo_onnx import ElmoOnnx  # type: ignore[import-not-found]

    try:
        limits = limits_of(arguments)
        model = ElmoOnnx(arguments.folder, arguments.threads)
        backend = OnnxBackend(model, arguments.folder.resolve().name, limits.batch_tokens)
        with listen(arguments.host, arguments.port) as listening:
            serve(backend, limits, listening)
    except (ValueError, OSError, ImportError) as error:
        print(f"elmo_server: error: {error}", file=sys.stderr)
        return 1
    return 0


__all__ = ["Backend", "Batcher", "Limits", "OnnxBackend", "Prepared", "Server", "add_server_arguments", "serve"]


if __name__ == "__main__":
    sys.exit(main())
