"""The stand-in for the Hub, tried with the real clients and a stock tiny BERT."""

import hashlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_stand_in import HubStandIn, run_client
from safetensors.torch import save_file

# Pushes two versions of a model, a tokenizer, an unchanged configuration, and a folder with custom code.
PUSH = """
import json, os, torch
from huggingface_hub import HfApi
from transformers import BertConfig, BertModel, BertTokenizer

folder = os.environ["FOLDER"]
api = HfApi()
urls = [api.create_repo("user/bert", exist_ok=True) for _ in range(2)]
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "to", "and", "fro"]
tokenizer = BertTokenizer(vocab={token: index for index, token in enumerate(tokens)})
config = BertConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
model = BertModel(config)

first = model.push_to_hub("user/bert")
model.save_pretrained(f"{folder}/first")
tokenizer.push_to_hub("user/bert")
with torch.no_grad():
    model.pooler.dense.bias.add_(1.0)
second = model.push_to_hub("user/bert", commit_message="Better weights")
model.save_pretrained(f"{folder}/second")
unchanged = config.push_to_hub("user/bert")
model.push_to_hub("user/bert", revision="experiment/large bias", commit_message="On a branch")
custom = api.upload_folder(repo_id=api.create_repo("custom").repo_id, folder_path=f"{folder}/custom")
print(json.dumps({"urls": urls, "first": first.oid, "second": second.oid, "unchanged": unchanged.oid}))
"""

# Loads everything by repository id, into an empty cache.
LOAD = """
import json, os, torch
from huggingface_hub import snapshot_download
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoTokenizer

folder, first, token = os.environ["FOLDER"], os.environ["FIRST"], os.environ.pop("HF_TOKEN")
options = {"token": token, "cache_dir": f"{folder}/cache"}

def has_weights(model, version):
    expected, state = load_file(f"{folder}/{version}/model.safetensors"), model.state_dict()
    return expected.keys() <= state.keys() and all(torch.equal(expected[name], state[name]) for name in expected)

newest = AutoModel.from_pretrained("user/bert", **options)
oldest = AutoModel.from_pretrained("user/bert", revision=first, **options)
config = AutoConfig.from_pretrained("user/bert", **options)
tokenizer = AutoTokenizer.from_pretrained("user/bert", **options)
custom = AutoModel.from_pretrained("user/custom", trust_remote_code=True, **options)
print(json.dumps({
    "newest": [has_weights(newest, "first"), has_weights(newest, "second")],
    "oldest": [has_weights(oldest, "first"), has_weights(oldest, "second")],
    "config": [type(config).__name__, config.hidden_size],
    "tokens": tokenizer("fro and to")["input_ids"],
    "custom": [type(custom).__module__.split(".")[0], custom(torch.ones(3)).tolist()],
    "snapshot": sorted(os.listdir(snapshot_download("user/custom", **options))),
}))
"""

# What huggingface_hub alone can do, and what must fail.
ASK = """
import hashlib, json
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download

api = HfApi()
api.create_repo("user/files")
start = api.upload_file(repo_id="user/files", path_in_repo="notes/a.txt", path_or_fileobj=b"text").oid
api.upload_file(repo_id="user/files", path_in_repo="notes/b.dat", path_or_fileobj=b"not\\0text")
api.upload_file(repo_id="user/files", path_in_repo="c.txt", path_or_fileobj=b"more")
api.create_repo("user/secret", private=True)

corrupted = CommitOperationAdd(path_in_repo="weights.bin", path_or_fileobj=b"what arrives")
corrupted.upload_info.sha256 = hashlib.sha256(b"what was promised").digest()

def outcome(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"kinds": kinds, "status": status, "text": f"{error} {error.__cause__}"}
    return {"kinds": [], "status": None, "text": "no error"}

add = {"repo_id": "user/files", "path_in_repo": "d.txt", "path_or_fileobj": b"d"}
outcomes = {
    "create without token": outcome(api.create_repo, "user/anonymous", token=False),
    "create with wrong token": outcome(api.create_repo, "user/anonymous", token="hf_wrong"),
    "create again": outcome(api.create_repo, "user/files"),
    "create dataset": outcome(api.create_repo, "user/data", repo_type="dataset"),
    "upload without token": outcome(api.upload_file, token=False, **add),
    "upload to missing repository": outcome(api.upload_file, **{**add, "repo_id": "user/missing"}),
    "upload to missing branch": outcome(api.upload_file, revision="missing", **add),
    "upload on stale parent": outcome(api.upload_file, parent_commit=start, **add),
    "upload as pull request": outcome(api.upload_file, create_pr=True, **add),
    "corrupted upload": outcome(api.create_commit, "user/files", [corrupted], commit_message="corrupted"),
    "delete missing file": outcome(api.delete_file, "d.txt", "user/files"),
    "missing repository": outcome(hf_hub_download, "user/missing", "config.json"),
    "missing file": outcome(hf_hub_download, "user/files", "config.json"),
    "missing revision": outcome(hf_hub_download, "user/files", "c.txt", revision="missing"),
    "missing folder": outcome(lambda: list(api.list_repo_tree("user/files", "missing"))),
    "private without token": outcome(api.model_info, "user/secret", token=False),
    "private with token": outcome(api.model_info, "user/secret"),
}
info = api.model_info("user/files", files_metadata=True)
listed = {
    "name": api.whoami()["name"],
    "sha": info.sha,
    "siblings": {file.rfilename: [file.size, file.lfs and file.lfs.sha256] for file in info.siblings},
    "tree": [entry.path for entry in api.list_repo_tree("user/files")],
    "folder": [entry.path for entry in api.list_repo_tree("user/files", "notes")],
    "whole tree": [entry.path for entry in api.list_repo_tree("user/files", recursive=True)],
    "commits": [commit.commit_id for commit in api.list_repo_commits("user/files")],
    "branches": {branch.name: branch.target_commit for branch in api.list_repo_refs("user/files").branches},
}
api.delete_folder("notes", "user/files")
print(json.dumps({"outcomes": outcomes, "listed": listed}))
"""

CUSTOM_FILES = {
    "config.json": json.dumps(
        {
            "model_type": "scaler",
            "architectures": ["ScalerModel"],
            "auto_map": {
                "AutoConfig": "configuration_scaler.ScalerConfig",
                "AutoModel": "modeling_scaler.ScalerModel",
            },
        }
    ),
    "configuration_scaler.py": """
from transformers import PreTrainedConfig

class ScalerConfig(PreTrainedConfig):
    model_type = "scaler"
""",
    "modeling_scaler.py": """
import torch
from transformers import PreTrainedModel
from .configuration_scaler import ScalerConfig

class ScalerModel(PreTrainedModel):
    config_class = ScalerConfig

    def __init__(self, config):
        super().__init__(config)
        self.scale = torch.nn.Parameter(torch.zeros(3))
        self.post_init()

    def forward(self, values):
        return self.scale * values
""",
}


@pytest.fixture(scope="module")
def hub() -> Iterator[HubStandIn]:
    with HubStandIn() as hub:
        yield hub


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("client")


@pytest.fixture(scope="module")
def pushed(hub: HubStandIn, folder: Path) -> dict[str, Any]:
    (folder / "custom").mkdir()
    for name, text in CUSTOM_FILES.items():
        (folder / "custom" / name).write_text(text)
    save_file({"scale": torch.tensor([1.0, 2.0, 3.0])}, folder / "custom" / "model.safetensors", {"format": "pt"})
    return json.loads(run_client(PUSH, {**hub.environment(), "FOLDER": str(folder)}))


@pytest.fixture(scope="module")
def loaded(hub: HubStandIn, folder: Path, pushed: dict[str, Any]) -> dict[str, Any]:
    environment = hub.environment(folder / "another_home")
    return json.loads(run_client(LOAD, {**environment, "FOLDER": str(folder), "FIRST": pushed["first"]}))


@pytest.fixture(scope="module")
def asked(hub: HubStandIn) -> dict[str, Any]:
    return json.loads(run_client(ASK, hub.environment()))


def send(
    hub: HubStandIn, method: str, path: str, body: Any = None, token: str | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Sends one request without any client library; an iterator is sent in chunks."""
    connection = http.client.HTTPConnection(hub.endpoint.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path, body, {} if token is None else {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def announce(hub: HubStandIn, repo_id: str, content: bytes) -> str:
    """Announces a large file and returns the path it has to be uploaded to."""
    objects = [{"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}]
    body = json.dumps({"operation": "upload", "transfers": ["basic"], "objects": objects})
    _, _, answer = send(hub, "POST", f"/{repo_id}.git/info/lfs/objects/batch", body, hub.token)
    return json.loads(answer)["objects"][0]["actions"]["upload"]["href"].removeprefix(hub.endpoint)


@pytest.fixture
def empty_repository() -> Iterator[HubStandIn]:
    with HubStandIn() as hub:
        assert send(hub, "POST", "/api/repos/create", json.dumps({"name": "empty"}), hub.token)[0] == 200
        yield hub


# Pushing and loading


def test_push_stores_what_was_saved(hub: HubStandIn, folder: Path, pushed: dict[str, Any]) -> None:
    assert pushed["urls"] == [f"{hub.endpoint}/user/bert"] * 2
    files = hub.files("user/bert")
    assert files.keys() == {
        ".gitattributes",
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert files["model.safetensors"] == (folder / "second" / "model.safetensors").read_bytes()
    assert files["config.json"] == (folder / "second" / "config.json").read_bytes()


def test_each_push_makes_a_commit_and_keeps_the_old_one(hub: HubStandIn, folder: Path, pushed: dict[str, Any]) -> None:
    commits = hub.commits("user/bert")
    assert len(commits) == 4  # the Hub's own, the model, the tokenizer, the model again; not the same configuration
    assert [commits[0], commits[2]] == [pushed["second"], pushed["first"]]
    assert pushed["unchanged"] == pushed["second"]
    old = hub.files("user/bert", pushed["first"])
    assert old["model.safetensors"] == (folder / "first" / "model.safetensors").read_bytes()
    assert "tokenizer.json" not in old


def test_weights_go_through_lfs_and_text_through_the_commit(hub: HubStandIn, pushed: dict[str, Any]) -> None:
    files = hub.repositories["user/bert"].resolve("main").files
    assert {path for path, file in files.items() if file.is_lfs} == {"model.safetensors"}
    assert ("POST", "/user/bert.git/info/lfs/objects/batch") in hub.requests
    assert ("POST", "/api/models/user/bert/commit/main") in hub.requests
    # Two versions of BERT and one custom model: content that the repository has already is not sent again.
    assert sum(method == "PUT" for method, _ in hub.requests) == 3


def test_push_to_another_branch(hub: HubStandIn, pushed: dict[str, Any]) -> None:
    assert hub.files("user/bert", "experiment/large bias") == hub.files("user/bert")
    assert ("POST", "/api/models/user/bert/branch/experiment%2Flarge%20bias") in hub.requests


def test_model_by_repository_id_has_the_newest_weights(
    hub: HubStandIn, pushed: dict[str, Any], loaded: dict[str, Any]
) -> None:
    assert loaded["newest"] == [False, True]
    assert loaded["config"] == ["BertConfig", 8]
    addresses = {f"/user/bert/resolve/{name}/model.safetensors" for name in (pushed["second"], "main")}
    assert addresses & {path for method, path in hub.requests if method == "GET"}


def test_model_by_commit_hash_has_the_old_weights(loaded: dict[str, Any]) -> None:
    assert loaded["oldest"] == [True, False]


def test_tokenizer_by_repository_id(loaded: dict[str, Any]) -> None:
    assert loaded["tokens"] == [2, 7, 6, 5, 3]


def test_custom_code_by_repository_id(loaded: dict[str, Any]) -> None:
    assert loaded["custom"] == ["transformers_modules", [1.0, 2.0, 3.0]]
    assert loaded["snapshot"] == sorted([".gitattributes", "model.safetensors", *CUSTOM_FILES])


def test_client_keeps_to_its_own_folders(folder: Path, loaded: dict[str, Any]) -> None:
    assert (folder / "cache" / "models--user--bert").is_dir()
    assert (folder / "another_home" / "modules" / "transformers_modules").is_dir()


# Listing and refusing


def test_listings(hub: HubStandIn, asked: dict[str, Any]) -> None:
    listed = asked["listed"]
    deletion, *commits = hub.commits("user/files")
    assert listed["name"] == "user"
    assert listed["sha"] == commits[0]
    assert listed["commits"] == commits
    assert listed["branches"] == {"main": commits[0]}
    assert listed["siblings"] == {
        ".gitattributes": [len(hub.files("user/files")[".gitattributes"]), None],
        "c.txt": [4, None],
        "notes/a.txt": [4, None],
        "notes/b.dat": [8, hashlib.sha256(b"not\0text").hexdigest()],
    }
    assert listed["tree"] == [".gitattributes", "c.txt", "notes"]
    assert listed["folder"] == ["notes/a.txt", "notes/b.dat"]
    assert listed["whole tree"] == [".gitattributes", "c.txt", "notes", "notes/a.txt", "notes/b.dat"]
    assert hub.files("user/files", deletion).keys() == {".gitattributes", "c.txt"}


@pytest.mark.parametrize(
    ("attempt", "kind", "status"),
    [
        ("create without token", "HfHubHTTPError", 401),
        ("create with wrong token", "HfHubHTTPError", 401),
        ("create again", "HfHubHTTPError", 409),
        ("create dataset", "BadRequestError", 400),
        ("upload without token", "HfHubHTTPError", 401),
        ("upload to missing repository", "RepositoryNotFoundError", 404),
        ("upload to missing branch", "RevisionNotFoundError", 404),
        ("upload on stale parent", "HfHubHTTPError", 412),
        ("upload as pull request", "BadRequestError", 400),
        ("delete missing file", "EntryNotFoundError", 404),
        ("missing repository", "RepositoryNotFoundError", 404),
        ("missing file", "EntryNotFoundError", 404),
        ("missing revision", "RevisionNotFoundError", 404),
        ("missing folder", "EntryNotFoundError", 404),
        ("private without token", "RepositoryNotFoundError", 401),
    ],
)
def test_refused(asked: dict[str, Any], attempt: str, kind: str, status: int) -> None:
    outcome = asked["outcomes"][attempt]
    assert kind in outcome["kinds"], outcome["text"]
    assert outcome["status"] == status


def test_private_repository_is_open_to_its_owner(asked: dict[str, Any]) -> None:
    assert asked["outcomes"]["private with token"]["text"] == "no error"


def test_refused_writes_leave_nothing_behind(hub: HubStandIn, asked: dict[str, Any]) -> None:
    assert "user/anonymous" not in hub.repositories
    assert len(hub.commits("user/files")) == 5  # the Hub's own, three uploads, one deletion
    assert hub.files("user/files").keys() == {".gitattributes", "c.txt"}


def test_corrupted_lfs_upload_is_refused(hub: HubStandIn, asked: dict[str, Any]) -> None:
    outcome = asked["outcomes"]["corrupted upload"]
    assert "RuntimeError" in outcome["kinds"], outcome["text"]
    promised, arrived = (hashlib.sha256(text).hexdigest() for text in (b"what was promised", b"what arrives"))
    assert f"announced 12 bytes with sha256 {promised}, received 12 with sha256 {arrived}" in outcome["text"]
    assert promised not in hub.repositories["user/files"].lfs_objects


def test_truncated_lfs_upload_is_refused(empty_repository: HubStandIn) -> None:
    path = announce(empty_repository, "user/empty", b"complete")
    assert send(empty_repository, "PUT", path, b"comp")[0] == 400
    assert send(empty_repository, "PUT", path, b"complete")[0] == 200


def test_upload_in_chunks(empty_repository: HubStandIn) -> None:
    path = announce(empty_repository, "user/empty", b"one two")
    assert send(empty_repository, "PUT", path, iter([b"one", b" two"]))[0] == 200
    assert list(empty_repository.repositories["user/empty"].lfs_objects.values()) == [b"one two"]


def test_upload_address_cannot_be_guessed(empty_repository: HubStandIn) -> None:
    assert send(empty_repository, "PUT", "/lfs-storage/guess", b"content", empty_repository.token)[0] == 403


def test_commit_of_a_large_file_that_was_never_uploaded_is_refused(empty_repository: HubStandIn) -> None:
    header = {"key": "header", "value": {"summary": "title", "description": ""}}
    file = {"key": "lfsFile", "value": {"path": "weights.bin", "algo": "sha256", "oid": "0" * 64, "size": 1}}
    body = "\n".join(json.dumps(line) for line in (header, file))
    status, _, answer = send(empty_repository, "POST", "/api/models/user/empty/commit/main", body, "hf_stand_in")
    assert status == 400
    assert b"was never uploaded" in answer
    assert len(empty_repository.commits("user/empty")) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/api/repos/create",
        "/api/models/user/empty/branch/other",
        "/api/models/user/empty/preupload/main",
        "/api/models/user/empty/commit/main",
        "/user/empty.git/info/lfs/objects/batch",
    ],
)
@pytest.mark.parametrize("token", [None, "hf_wrong"])
def test_every_write_needs_the_token(empty_repository: HubStandIn, path: str, token: str | None) -> None:
    assert send(empty_repository, "POST", path, "{}", token)[0] == 401
    assert send(empty_repository, "POST", path, "not JSON", empty_repository.token)[0] in (200, 400)


def test_wrong_token_is_refused_even_for_public_files(empty_repository: HubStandIn) -> None:
    path = "/user/empty/resolve/main/.gitattributes"
    assert send(empty_repository, "GET", path)[0] == 200
    assert send(empty_repository, "GET", path, token="hf_wrong")[0] == 401


def test_download_headers(empty_repository: HubStandIn) -> None:
    path = announce(empty_repository, "user/empty", b"weights")
    send(empty_repository, "PUT", path, b"weights")
    sha256 = hashlib.sha256(b"weights").hexdigest()
    header = {"key": "header", "value": {"summary": "title", "description": ""}}
    large = {"key": "lfsFile", "value": {"path": "a/w.bin", "algo": "sha256", "oid": sha256, "size": 7}}
    plain = {"key": "file", "value": {"path": "a.txt", "encoding": "base64", "content": "aGVsbG8K"}}
    body = "\n".join(json.dumps(line) for line in (header, large, plain))
    assert send(empty_repository, "POST", "/api/models/user/empty/commit/main", body, "hf_stand_in")[0] == 200

    status, headers, content = send(empty_repository, "HEAD", "/user/empty/resolve/main/a/w.bin")
    assert (status, content, headers["Content-Length"]) == (200, b"", "7")
    assert (headers["X-Linked-Etag"], headers["X-Linked-Size"]) == (f'"{sha256}"', "7")
    assert headers["X-Repo-Commit"] == empty_repository.commits("user/empty")[0]
    status, headers, content = send(empty_repository, "GET", "/user/empty/resolve/main/a.txt")
    assert (status, content, headers["X-Linked-Etag"]) == (200, b"hello\n", None)
    assert headers["ETag"] == '"ce013625030ba8dba906f756967f9e9ca394464a"'  # `git hash-object` of the same content


def test_unusual_path_is_answered(empty_repository: HubStandIn) -> None:
    status, headers, _ = send(empty_repository, "GET", "/user/empty/resolve/main/%E2%82%AC%0D%0AX-Forged:1")
    assert (status, headers["X-Error-Code"], headers["X-Forged"]) == (404, "EntryNotFound", None)


def test_requests_are_recorded_in_order(empty_repository: HubStandIn) -> None:
    send(empty_repository, "GET", "/api/models/user/empty?blobs=True")
    send(empty_repository, "GET", "/nowhere")
    assert empty_repository.requests == [
        ("POST", "/api/repos/create"),
        ("GET", "/api/models/user/empty"),
        ("GET", "/nowhere"),
    ]


def test_environment_replaces_the_settings_of_the_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_HUB_CACHE", "TRANSFORMERS_OFFLINE", "https_proxy"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("UNRELATED", "kept")
    with HubStandIn() as hub:
        environment = hub.environment(tmp_path)
        assert not {"HF_HUB_CACHE", "TRANSFORMERS_OFFLINE", "https_proxy"} & environment.keys()
        assert environment["HF_HOME"] == str(tmp_path)
        printed = run_client("import os; print(os.environ['HF_ENDPOINT'], os.environ['UNRELATED'])", environment)
        assert printed == f"{hub.endpoint} kept\n"


def test_failing_client_raises_with_its_error_output() -> None:
    with HubStandIn() as hub, pytest.raises(RuntimeError, match=r"code 1:[\s\S]*ZeroDivisionError"):
        run_client("1 / 0", hub.environment())
