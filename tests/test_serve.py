"""hf-elmo serve: answers are those without a server, whatever comes, and however much at once."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import safetensors.numpy
from test_onnx import LABELS, model_for
from tiny import SENTENCES, random_model, tiny_config, words_of
from transformers import pipeline

from hf_elmo import ElmoEmbedder, ElmoForTokenClassification, ElmoTokenizer
from hf_elmo.cli import main
from hf_elmo.conversion.onnx_export import export_onnx
from hf_elmo.elmo_batches import Batcher, Prepared
from hf_elmo.elmo_onnx import ElmoOnnx
from hf_elmo.elmo_server import Limits, OnnxBackend
from hf_elmo.scripts import bench_serving, measuring, serve
from hf_elmo.scripts.results_table import speed_table
from hf_elmo.scripts.serve import TorchBackend, load_backend

TAGS = {"id2label": LABELS, "use_crf": True, "crf_scheme": "BIO"}
TEXTS = [*SENTENCES, "", "It's a “river bank”—isn’t it?", "lone \ud800 surrogate"]


def save(folder, model):
    model.save_pretrained(folder / "model")
    ElmoTokenizer().save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """What was exported of a model of vectors."""
    folder = tmp_path_factory.mktemp("vectors")
    export_onnx(save(folder, random_model()), folder / "onnx")
    return folder / "onnx"


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    model = model_for("token-classification", **TAGS)
    return save(tmp_path_factory.mktemp("tagger"), model)


class Running:
    """A server in a process of its own."""

    def __init__(self, process, port):
        self.process = process
        self.port = port

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, **headers):
        """The status, the headers and the body of an answer."""
        connection = self.connect()
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def post(self, path, content):
        status, headers, body = self.ask("POST", path, json.dumps(content), Content_Type="application/json")
        return status, json.loads(body) if headers["content-type"] == "application/json" else body

    def get(self, path):
        status, _, body = self.ask("GET", path)
        return status, json.loads(body)

    def wait_until(self, **figures):
        """Until /health says this."""
        for _ in range(600):
            found = self.get("/health")[1]
            if all(found[name] == value for name, value in figures.items()):
                return
            time.sleep(0.02)
        raise AssertionError(f"/health never said {figures}, but {found}")

    def end(self):
        """Ends it gently; its exit code and what it printed."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@contextmanager
def serving(*command):
    process = subprocess.Popen(
        [sys.executable, *map(str, command), "--port", "0", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("serving "), line + process.stderr.read()
        yield Running(process, int(line.rpartition(":")[2]))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def on_its_own(folder, *options):
    """Serves an exported folder by its own program, which is there in no time."""
    return serving(folder / "elmo_server.py", *options)


# The same where nothing else can be imported.
WITHOUT_TORCH = """
import runpy, sys
sys.modules.update(torch=None, transformers=None, hf_elmo=None)
sys.path.insert(0, sys.argv[1])
runpy.run_path(f"{sys.argv[1]}/elmo_server.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def server(exported):
    limits = ("--max-bytes", "20000", "--max-texts", "20", "--max-words", "200", "--max-requests", "64")
    with serving("-c", WITHOUT_TORCH, exported, *limits) as running:
        yield running
        code, out, err = running.end()
        assert (code, err) == (0, "")  # nothing that came made it fail
        assert re.fullmatch(r"stopped after (1 answer|\d+ answers)\n", out)


# --- The same answers ------------------------------------------------------------------------------------------------


def assert_vectors(found, expected):
    assert len(found) == len(expected)
    for ours, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.reshape(ours, right.shape), right, atol=1e-6, rtol=0)


def test_vectors_are_those_without_a_server(server, exported):
    model = ElmoOnnx(exported, threads=1)
    for layers in ("mix", "top", "average", "all", 0):
        status, answer = server.post("/embed", {"texts": TEXTS, "layers": layers})
        assert status == 200
        assert_vectors(answer["vectors"], model.encode(TEXTS, layers))
    assert answer["words"] == [model.tokenizer.words(text) for text in TEXTS]
    for pooling in ("mean", "max", "mean_max", "boundary"):
        _, answer = server.post("/embed", {"texts": TEXTS, "pooling": pooling, "keep_boundaries": True})
        assert_vectors(answer["vectors"], model.encode(TEXTS, "mix", pooling, keep_boundaries=True))
    mixed = [SENTENCES[0], SENTENCES[2].split(), []]
    _, answer = server.post("/embed", {"texts": mixed, "pooling": None})
    assert_vectors(answer["vectors"], [model.encode([text])[0] for text in mixed])
    assert answer["words"][1:] == mixed[1:]


def test_vectors_as_files(server, exported, tmp_path):
    model = ElmoOnnx(exported, threads=1)
    expected = model.encode(TEXTS, "all")
    status, body = server.post("/embed", {"texts": TEXTS, "layers": "all", "format": "safetensors"})
    assert status == 200
    found = safetensors.numpy.load(body)
    assert_vectors([found[str(number)] for number in range(len(TEXTS))], expected)
    (tmp_path / "vectors.safetensors").write_bytes(body)
    with safetensors.safe_open(tmp_path / "vectors.safetensors", "numpy") as file:
        assert json.loads(file.metadata()["words"]) == [model.tokenizer.words(text) for text in TEXTS]
    for texts, options in ((TEXTS[:1], {"layers": "all"}), (TEXTS, {"layers": "all", "pooling": "mean"})):
        status, body = server.post("/embed", {"texts": texts, "format": "npy", **options})
        assert status == 200
        (tmp_path / "vectors.npy").write_bytes(body)
        right = model.encode(texts, **options)
        np.testing.assert_allclose(
            np.load(tmp_path / "vectors.npy"), right[0] if len(texts) == 1 else right, atol=1e-6
        )


def test_many_at_once(server, exported):
    model = ElmoOnnx(exported, threads=1)
    requests = [
        {"texts": [TEXTS[number % 7], TEXTS[(3 * number) % 7]], "layers": ("mix", "top", 0)[number % 3]}
        for number in range(60)
    ]
    expected = [model.encode(request["texts"], request["layers"]) for request in requests]
    with ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(lambda request: server.post("/embed", request), requests))
    for (status, answer), right in zip(answers, expected, strict=True):
        assert status == 200
        assert_vectors(answer["vectors"], right)


def test_answers_on_a_connection_that_is_kept_do_not_wait_for_the_network(server):
    """A body that is sent only when its head was acknowledged takes 40 ms or more, each time."""
    connection, seconds = server.connect(), []
    for _ in range(30):
        start = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        seconds.append(time.perf_counter() - start)
    connection.close()
    assert min(seconds[1:]) < 0.03


def test_health_and_info(server, exported):
    status, health = server.get("/health")
    assert status == 200
    assert health["status"] == "ok"
    assert health["under_way"] == 0
    status, info = server.get("/info")
    assert status == 200
    assert info["model"] == exported.name
    assert (info["runtime"], info["task"], info["endpoints"]) == ("onnxruntime", "features", ["embed"])
    assert (info["num_hidden_layers"], info["hidden_size"], info["labels"]) == (2, 12, [])
    assert info["limits"]["max_texts"] == 20
    status, schema = server.get("/openapi.json")
    assert set(schema["paths"]) == {"/embed", "/predict", "/health", "/info"}


# --- What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("", 400, "The body is not JSON: Expecting value"),
        ('{"texts": ["A', 400, "The body is not JSON: Unterminated string"),
        (b'{"texts": ["\xff"]}', 400, "The body is not JSON: 'utf-8' codec can't decode"),
        ("[" * 15000, 400, "The body is not JSON: it is nested too deeply"),
        ('["A text"]', 400, "The body is a list, but it must be an object such as"),
        ("{}", 400, "texts is missing, but it must be a list of texts"),
        ('{"texts": "A text"}', 400, "texts is a string, but it must be a list of texts"),
        ('{"texts": []}', 400, "texts is empty: give at least one text"),
        ('{"texts": ["A", 7]}', 400, r"texts\[1\] is a number, but a text is a string or a list of words"),
        ('{"texts": [null]}', 400, r"texts\[0\] is null, but a text is"),
        ('{"texts": [["A", true]]}', 400, r"texts\[0\]\[1\] is true or false, but a word is a string"),
        ('{"texts": [[["A"]]]}', 400, r"texts\[0\]\[0\] is a list, but a word is a string"),
        ('{"texts": ["A"], "layer": 1}', 400, "no field 'layer': the fields are texts, layers, pooling, keep_b"),
        ('{"texts": ["A"], "layers": 3}', 400, "layers=3 is not possible: it is 'mix', 'top', .* number from 0 to 2"),
        ('{"texts": ["A"], "layers": true}', 400, "layers=True is not possible"),
        ('{"texts": ["A"], "layers": {}}', 400, r"layers=\{\} is not possible"),
        ('{"texts": ["A"], "pooling": "sum"}', 400, "pooling='sum' is not possible: it is 'mean'"),
        ('{"texts": ["A"], "pooling": []}', 400, r"pooling=\[\] is not possible"),
        ('{"texts": ["A"], "keep_boundaries": 1}', 400, "keep_boundaries is 1, but it must be one of false, true"),
        ('{"texts": ["A"], "format": "csv"}', 400, 'format is "csv", but it must be one of "json", "npy", "safet'),
        ('{"texts": ["A", "B"], "format": "npy"}', 400, "An npy file holds one array: give one text, or pooling"),
        (json.dumps({"texts": ["A"] * 21}), 413, "texts has 21 texts, but a request may have 20: send several"),
        (json.dumps({"texts": ["A b " * 101]}), 413, "The texts have 202 words, but a request may have 200"),
        (json.dumps({"texts": ["A" * 20000]}), 413, "The body is larger than 20000 bytes: send several requests"),
        (b" " * 5_000_000, 413, "The body is larger than 20000 bytes"),
    ],
)
def test_bad_bodies(server, body, status, message):
    found, _, answer = server.ask("POST", "/embed", body, Content_Type="application/json; charset=utf-8")
    assert found == status
    assert re.search(message, json.loads(answer)["error"])


def test_bodies_of_unknown_size(server):
    """They come in chunks, and are counted as they come."""

    def ask(chunks):
        connection = server.connect()
        try:
            connection.request("POST", "/embed", chunks, {"Content-Type": "application/json"}, encode_chunked=True)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    assert ask(iter([b'{"texts": [', b'"A"]}']))[1]["words"] == [["A"]]
    status, answer = ask(b" " * 10_000 for _ in range(50))
    assert (status, answer["error"]) == (413, "The body is larger than 20000 bytes: send several requests.")


def test_bad_requests(server):
    status, headers, body = server.ask("GET", "/embed")
    assert (status, headers["allow"]) == (405, "POST")
    assert re.match(r"GET /embed: Method Not Allowed. There is POST /embed", json.loads(body)["error"])
    status, _, body = server.ask("GET", "/nowhere")
    assert status == 404
    assert json.loads(body)["error"].startswith("GET /nowhere: Not Found. There is POST /embed, POST /predict, GET")
    status, _, body = server.ask("POST", "/embed", '{"texts": ["A"]}', Content_Type="text/plain")
    assert status == 415
    assert json.loads(body)["error"] == "The body is of the type 'text/plain', but it must be application/json."
    assert server.post("/predict", {"texts": ["A"]}) == (
        404,
        {"error": "This model gives no labels, but vectors: POST /embed."},
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")  # and goes
    server.wait_until(under_way=0)


def test_a_sender_that_waits_is_refused_before_it_sends(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(
            b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 30000\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


# --- Much at once, and the end ---------------------------------------------------------------------------------------


def test_requests_under_way_are_answered_at_the_end(exported):
    """Requests wait for others to be computed with; meanwhile there are too many, and the server is told to end."""
    requests = [{"texts": [text]} for text in (*SENTENCES, *SENTENCES)][:8]
    expected = [ElmoOnnx(exported, threads=1).encode(request["texts"]) for request in requests]
    with (
        on_its_own(exported, "--max-wait-ms", "3000", "--max-requests", "8") as server,
        ThreadPoolExecutor(8) as clients,
    ):
        answers = [clients.submit(server.post, "/embed", request) for request in requests]
        server.wait_until(under_way=8)
        status, headers, body = server.ask("POST", "/embed", '{"texts": ["A"]}', Content_Type="application/json")
        assert (status, headers["retry-after"]) == (503, "1")
        assert re.match("8 requests are under way already, as many as are taken: come", json.loads(body)["error"])
        assert server.get("/health")[1] == {"status": "ok", "under_way": 8, "answered": 0, "batches": 0}
        assert server.end() == (0, "stopped after 8 answers\n", "")
        for answer, right in zip(answers, expected, strict=True):
            status, content = answer.result()
            assert status == 200
            assert_vectors(content["vectors"], right)
        with pytest.raises(ConnectionRefusedError):
            server.get("/health")


def test_what_takes_too_long(exported):
    with on_its_own(exported, "--max-wait-ms", "60000", "--timeout", "1", "--batch-tokens", "20") as server:
        assert server.post("/embed", {"texts": ["A text"]}) == (
            504,
            {"error": "There was no answer within 1 seconds: send less at a time, or come again later."},
        )
        connection = server.connect()
        connection.putrequest("POST", "/embed")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "100")
        connection.endheaders(b"{")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (408, b'{"error":"The body did not come within 1 seconds."}')
        connection.close()
        connection = server.connect()
        connection.request("POST", "/embed", '{"texts": ["A text"]}', {"Content-Type": "application/json"})
        server.wait_until(under_way=1)
        connection.close()  # nobody waits for it any more
        server.wait_until(under_way=0)
        assert server.post("/embed", {"texts": ["A " * 18]})[0] == 200  # which is enough to be computed at once
        assert server.get("/health")[1]["batches"] == 1  # those that nobody waits for any more were not computed


# A server whose model fails at a certain word.
FAILING = """
import sys
sys.path.insert(0, sys.argv[1])
import elmo_server

class Failing(elmo_server.OnnxBackend):
    def embed(self, texts, *options):
        if any("fail" in text.words for text in texts):
            raise RuntimeError("on purpose")
        return super().embed(texts, *options)

elmo_server.OnnxBackend = Failing
sys.exit(elmo_server.main())
"""


def test_a_mistake_of_the_server_is_logged_and_does_not_end_it(exported):
    with serving("-c", FAILING, exported) as server:
        assert server.post("/embed", {"texts": ["fail"]}) == (
            500,
            {"error": "The server made a mistake, which its log has."},
        )
        assert server.post("/embed", {"texts": ["go on"]})[0] == 200
        assert server.get("/health")[1]["under_way"] == 0
        code, _, log = server.end()
        assert code == 0
        assert "RuntimeError: on purpose" in log


# --- Jobs together ---------------------------------------------------------------------------------------------------


class Recorded:
    """What a batcher computed, and when it may."""

    def __init__(self):
        self.batches = []
        self.go = threading.Event()

    def __call__(self, key, texts):
        self.go.wait(30)
        self.batches.append((key, [text.content for text in texts]))
        if any(text.content == "bad" for text in texts):
            raise ValueError("bad text")
        return [text.content.upper() for text in texts]


def texts(*contents, length=1):
    return [Prepared([], length, content) for content in contents]


@pytest.fixture
def recorded():
    """A batcher that is busy with the first job until it may go on."""
    recorded = Recorded()
    recorded.batcher = Batcher(recorded, batch_tokens=4, max_wait=0.0, start=lambda: None)
    first = recorded.batcher.submit(("first",), texts("zero"))
    while not first.running():
        time.sleep(0.001)
    yield recorded
    recorded.go.set()
    recorded.batcher.close()


def test_jobs_that_ask_for_the_same_are_computed_together(recorded):
    submit = recorded.batcher.submit
    jobs = [submit(("k",), texts("a", "b")), submit(("other",), texts("c")), submit(("k",), texts("d"))]
    jobs += [submit(("k",), texts("e", length=9)), submit(("k",), texts("f"))]
    gone = submit(("k",), texts("gone"))
    gone.cancel()
    recorded.go.set()
    assert [job.result(30) for job in jobs] == [["A", "B"], ["C"], ["D"], ["E"], ["F"]]
    assert recorded.batches[1:] == [
        (("k",), ["a", "b", "d"]),
        (("other",), ["c"]),
        (("k",), ["e"]),
        (("k",), ["f"]),
    ]


def test_only_the_job_to_blame_fails(recorded):
    jobs = [recorded.batcher.submit(("k",), texts(content)) for content in ("a", "bad", "c")]
    recorded.go.set()
    assert jobs[0].result(30) == ["A"]
    with pytest.raises(ValueError, match="bad text"):
        jobs[1].result(30)
    assert jobs[2].result(30) == ["C"]


def test_a_closed_batcher_finishes_its_work(recorded):
    job = recorded.batcher.submit(("k",), texts("a"))
    recorded.go.set()
    recorded.batcher.close()
    assert job.result(0) == ["A"]
    with pytest.raises(RuntimeError, match="has been closed"):
        recorded.batcher.submit(("k",), texts("b"))


# --- Models with a head, and torch -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command(tagger):
    """torch serves vectors and labels, to several clients at once, until it is told to end."""
    tag = pipeline("token-classification", model=str(tagger), ignore_labels=[])
    labels = tag(SENTENCES)
    vectors = ElmoEmbedder.from_pretrained(tagger).encode(SENTENCES, "all")
    with serving("-m", "hf_elmo", "serve", tagger) as server, ThreadPoolExecutor(8) as clients:
        numbers = [number % len(SENTENCES) for number in range(24)]

        def ask(number):
            content = {"texts": [SENTENCES[number]]}
            return server.post("/predict", content), server.post("/embed", {**content, "layers": "all"})

        for number, ((status, predicted), (code, embedded)) in zip(numbers, clients.map(ask, numbers), strict=True):
            assert (status, code) == (200, 200)
            assert_vectors(embedded["vectors"], [vectors[number]])
            (found,) = predicted["predictions"]
            assert [entry["label"] for entry in found] == [entry["entity"] for entry in labels[number]]
            np.testing.assert_allclose(
                [entry["score"] for entry in found], [entry["score"] for entry in labels[number]], atol=1e-6
            )
        info = server.get("/info")[1]
        assert (info["runtime"], info["task"]) == ("torch", "token-classification")
        assert info["labels"] == list(LABELS.values())
        assert info["endpoints"] == ["embed", "predict"]
        assert server.end() == (0, "stopped after 48 answers\n", "")


@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_labels_of_pairs(tmp_path, kind):
    folder = save(tmp_path, model_for("sequence-classification", num_labels=3, num_sentences=2))
    if kind == "onnx":
        export_onnx(folder, tmp_path / "onnx")
    backend = load_backend(tmp_path / "onnx" if kind == "onnx" else folder, Limits(batch_tokens=30), threads=1)
    assert backend.reads_pairs
    classify = pipeline("text-classification", model=str(folder))
    pairs = [{"text": text, "text_pair": pair} for text, pair in zip(SENTENCES, SENTENCES[::-1], strict=True)]
    prepared = [backend.prepare(pair["text"], pair["text_pair"]) for pair in pairs]
    for found, right in zip(backend.predict(prepared), classify(pairs), strict=True):
        assert found["label"] == right["label"]
        assert abs(found["score"] - right["score"]) <= 1e-6


def test_answers_that_are_the_same_in_any_company(tmp_path):
    model = random_model(tiny_config(cell_size=64, projection_size=48, **TAGS), model_class=ElmoForTokenClassification)
    folder = save(tmp_path, model)
    backend = TorchBackend(folder, 1000, batch_invariant=True)
    prepared = [backend.prepare(text) for text in TEXTS]
    together = backend.embed(prepared, "all", None, False), backend.predict(prepared)
    for text, vectors, labels in zip(prepared, *together, strict=True):
        np.testing.assert_array_equal(backend.embed([text], "all", None, False)[0], vectors)
        assert backend.predict([text]) == [labels]


def test_pairs_that_do_not_fit(tmp_path):
    folder = save(tmp_path, model_for("sequence-classification", num_labels=3, num_sentences=2))
    export_onnx(folder, tmp_path / "onnx")
    with on_its_own(tmp_path / "onnx") as server:
        for content, message in (
            ({"texts": ["A"]}, "pairs is missing, but it must be a list of texts"),
            ({"texts": ["A"], "pairs": ["B", "C"]}, "There are 1 texts, but 2 pairs: give each text one"),
            ({"texts": ["A"], "pairs": [["B"]]}, "Some texts are strings and some are lists of words"),
        ):
            status, answer = server.post("/predict", content)
            assert status == 400
            assert answer["error"].startswith(message)
        assert server.post("/predict", {"texts": ["A"], "pairs": ["B"]})[0] == 200
        assert server.post("/embed", {"texts": ["A"]})[0] == 404


def test_a_head_without_elmo_has_no_vectors(tmp_path):
    settings = {"use_elmo": False, "word_vector_size": 3, "word_vector_vocab_size": 3}
    model = model_for("token-classification", **settings)
    model.save_pretrained(tmp_path)
    tokenizer = ElmoTokenizer()
    tokenizer.set_word_vectors(["cat"])
    tokenizer.save_pretrained(tmp_path)
    backend = TorchBackend(tmp_path, 100)
    assert (backend.can_embed, backend.can_predict) == (False, True)
    (found,) = backend.predict([backend.prepare(words_of(SENTENCES)[0])])
    assert [entry["word"] for entry in found] == SENTENCES[0].split()


# --- The benchmark ---------------------------------------------------------------------------------------------------


def test_benchmark(exported, tmp_path, monkeypatch, capsys):
    """Both programs are measured; here one server, which is there in no time, stands for both."""

    @contextmanager
    def served(folder, threads, *options):
        assert threads == 1
        assert set(options) <= {"--batch-invariant"}
        with on_its_own(exported) as server:
            yield server.port

    output = tmp_path / "bench_serving.json"
    arguments = ["--quick", "--threads", "1", "--model", str(exported.parent / "model"), "--output", str(output)]
    monkeypatch.setattr(measuring, "_only_trying", False)
    monkeypatch.setattr(bench_serving, "served", served)
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    bench_serving.main()
    figures = json.loads(output.read_text())
    command = "python -m hf_elmo.scripts.bench_serving --quick --threads 1 --model model --output bench_serving.json"
    assert figures["command"] == command
    assert output.with_suffix(".png").read_bytes()[1:4] == b"PNG"
    runs = [(result["runtime"], result["connections"]) for result in figures["results"]]
    runtimes = ["torch", "torch, batch-invariant", "onnxruntime"]
    assert runs == [(runtime, connections) for runtime in runtimes for connections in (1, 4)]
    for result in figures["results"]:
        assert (result["answers"], result["errors"]) == (20, {})
        assert result["apart"] < 1e-5 < result["largest_value"]
        times = result["latency_ms"]
        assert 0 < times["p50"] <= times["p95"] <= times["p99"] <= times["highest"]
        assert 1 <= result["texts_per_batch"] <= result["connections"]
    assert capsys.readouterr().out.count("0 errors") == 6
    output.write_text(json.dumps(figures | {"quick": False}).replace('"model"', '"small"'))
    lines = speed_table(tmp_path).splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == [
        f"`hf-elmo serve` by {runtime}, 4 clients, texts of 1 to 50 words" for runtime in runtimes
    ]
    assert all(re.search(r"\d+ requests/s, p95 \d+ ms, 0 errors, .* apart", line) for line in lines)


def test_errors_are_counted():
    """Of a server that is not there, and of one that refuses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    replies = bench_serving.ask(port, [["A"], ["B"], ["C"]], connections=2)
    assert [reply.status for reply in replies] == ["ConnectionRefusedError"] * 3
    rounds = [{"seconds": 1.0, "latencies": [0.1, 0.2], "errors": Counter({"503": 1}), "texts_per_batch": 1.0}]
    figures = bench_serving.summary([one | {"apart": 0.0, "largest_value": 1.0} for one in rounds * 2])
    assert (figures["answers"], figures["errors"]) == (2, {"503": 2})


# --- Mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes(tmp_path, capsys, tagger, exported):
    def error(*arguments):
        assert main(["serve", *map(str, arguments)]) == 1
        return capsys.readouterr().err

    assert "--max-texts 0 is not possible: it must be 1 or more." in error(tagger, "--max-texts", "0")
    assert "--max-wait-ms -1.0 is not possible: it must be 0 or more." in error(tagger, "--max-wait-ms", "-1")
    assert "--port 70000 is not possible: it must be from 0 to 65535." in error(tagger, "--port", "70000")
    assert "--threads 0 is not possible" in error(tagger, "--port", "0", "--threads", "0")
    assert "is no model folder: it has no config.json" in error(tmp_path, "--port", "0")
    assert "--device is for torch, but" in error(exported, "--port", "0", "--device", "cpu")
    assert "--batch-invariant is for torch, but" in error(exported, "--port", "0", "--batch-invariant")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"The server cannot listen at 127.0.0.1, port {port}: Address" in error(tagger, "--port", port)


def test_models_that_are_not_served(tmp_path):
    export_onnx(save(tmp_path, model_for("lm", vocab_size=4)), tmp_path / "onnx")
    with pytest.raises(ValueError, match="exported for the task lm, which is not served: export it with --task feat"):
        OnnxBackend(ElmoOnnx(tmp_path / "onnx"), "lm", 100)
    folder = save(tmp_path / "roles", model_for("token-classification", id2label=LABELS, predicate_embedding_size=2))
    with pytest.raises(ValueError, match="labels semantic roles, and a request has no place for the predicates"):
        TorchBackend(folder, 100)
    export_onnx(folder, tmp_path / "roles" / "onnx")
    with pytest.raises(ValueError, match="labels semantic roles, and a request has no place for the predicates"):
        OnnxBackend(ElmoOnnx(tmp_path / "roles" / "onnx"), "roles", 100)


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_missing_package_is_named(capsys, monkeypatch, tagger, package):
    found = serve.importlib.util.find_spec
    monkeypatch.setattr(serve.importlib.util, "find_spec", lambda name: None if name == package else found(name))
    assert main(["serve", os.fspath(tagger)]) == 1
    expected = (
        f'A server needs {package}, which is not installed: pip install "hf-elmo[serve]" (or fastapi and uvicorn)'
    )
    assert capsys.readouterr().err == f"hf-elmo: error: {expected}\n"
