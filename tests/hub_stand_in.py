"""A local stand-in for the Hugging Face Hub, so that tests can push and load by repository id without a network.

It speaks the part of the Hub's HTTP interface that `huggingface_hub` and transformers use for model repositories:
creating a repository or a branch, uploading (plain files inside the commit, large files through Git LFS), listing and
downloading. Everything lives in memory; every commit keeps the full set of its files.

Not imitated: Xet storage (switched off in the clients' environment, which makes them fall back to Git LFS), pull
requests, tags, datasets and Spaces, byte ranges, `.gitignore` rules and the check of a model card's metadata.

The clients read `HF_ENDPOINT` when they are imported, hence they run in a process of their own:

    with HubStandIn() as hub:
        run_client("from huggingface_hub import HfApi; HfApi().create_repo('user/name')", hub.environment())
        assert ("POST", "/api/repos/create") in hub.requests
"""

import base64
import fnmatch
import hashlib
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

USER = "user"  # owner of the token, and of repositories created without a namespace
DEFAULT_BRANCH = "main"
CLIENT_TIMEOUT = 300  # seconds; a client that waits longer hangs

# The Hub stores a file with Git LFS if its name matches, if it is not text, or if it is large.
LFS_PATTERNS = (
    "*.bin",
    "*.gz",
    "*.h5",
    "*.hdf5",
    "*.npy",
    "*.npz",
    "*.onnx",
    "*.pt",
    "*.pth",
    "*.safetensors",
    "*.zip",
)
LFS_SIZE = 10_000_000

# A variable of the developer's own shell must not leak into a client: another cache, token, endpoint or proxy.
FOREIGN_VARIABLES = re.compile(r"(HF|HUGGINGFACE|HUGGING_FACE|TRANSFORMERS)_.*|(HTTP|HTTPS|ALL)_PROXY", re.IGNORECASE)


def run_client(code: str, environment: dict[str, str]) -> str:
    """Runs Python code in a fresh process and returns what it printed.

    Args:
        code: Program text, as for `python -c`.
        environment: The complete environment of the process, see `HubStandIn.environment`.

    Raises:
        RuntimeError: The program ended with an error; the message carries its standard error.
    """
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=CLIENT_TIMEOUT
    )
    if result.returncode != 0:
        raise RuntimeError(f"The client process ended with code {result.returncode}:\n{result.stderr}")
    return result.stdout


@dataclass(frozen=True)
class StoredFile:
    """One version of one file, with the identifiers the Hub gives it."""

    content: bytes
    is_lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def pointer(self) -> bytes:
        """What git itself stores in place of a large file."""
        text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n"
        return text.encode()

    @property
    def git_oid(self) -> str:
        blob = self.pointer if self.is_lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(blob) + blob).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.is_lfs else self.git_oid


@dataclass(frozen=True)
class Commit:
    oid: str
    parents: tuple[str, ...]
    title: str
    message: str
    date: str
    files: dict[str, StoredFile]


@dataclass
class Repository:
    repo_id: str
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)  # by commit hash
    branches: dict[str, str] = field(default_factory=dict)  # branch name -> hash of its newest commit
    lfs_objects: dict[str, bytes] = field(default_factory=dict)  # by sha256; uploaded, not necessarily committed

    def add_commit(self, branch: str, title: str, message: str, files: dict[str, StoredFile]) -> Commit:
        parents = (self.branches[branch],) if branch in self.branches else ()
        content = [
            self.repo_id,
            len(self.commits),
            parents,
            title,
            [(path, files[path].etag) for path in sorted(files)],
        ]
        oid = hashlib.sha1(json.dumps(content).encode()).hexdigest()
        date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.commits[oid] = Commit(oid, parents, title, message, date, files)
        self.branches[branch] = oid
        return self.commits[oid]

    def resolve(self, revision: str) -> Commit:
        """Returns the commit that a branch name or a commit hash points to."""
        oid = self.branches.get(revision, revision)
        if oid not in self.commits:
            raise Refusal(404, f"{self.repo_id} has no revision {revision!r}", code="RevisionNotFound")
        return self.commits[oid]

    def history(self, revision: str) -> list[Commit]:
        """Returns the commits that lead to a revision, the newest first."""
        commits = [self.resolve(revision)]
        while commits[-1].parents:
            commits.append(self.commits[commits[-1].parents[0]])
        return commits


class UploadTicket(NamedTuple):
    """The permission, given by the LFS batch endpoint, to upload one announced object."""

    repository: Repository
    sha256: str
    size: int


@dataclass(frozen=True)
class Response:
    body: Any = b""  # bytes are sent as they are, everything else as JSON
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


class Refusal(Exception):
    """Ends a request with an error status.

    Args:
        status: HTTP status.
        message: What is wrong.
        code: The Hub's name for the error, from which the clients choose the exception they raise.
        commit: The commit in which something is missing; the clients remember that it is.
        details: Further entries of the answer's body.
    """

    def __init__(
        self, status: int, message: str, code: str | None = None, commit: str | None = None, **details: str
    ) -> None:
        super().__init__(message)
        one_line = message.encode("unicode_escape").decode()  # a path may hold what a header must not
        headers = {"X-Error-Message": one_line, "X-Error-Code": code, "X-Repo-Commit": commit}
        present = {name: value for name, value in headers.items() if value is not None}
        self.response = Response({"error": message, **details}, present, status)


class HubStandIn:
    """Serves an empty Hub on a free loopback port while the `with` block runs.

    Attributes:
        endpoint: Address for `HF_ENDPOINT`.
        token: The one token that may write.
        requests: Method and path (without the query) of every request so far.
    """

    def __init__(self) -> None:
        self.token = "hf_stand_in"
        self.requests: list[tuple[str, str]] = []
        self.repositories: dict[str, Repository] = {}
        self.upload_tickets: dict[str, UploadTicket] = {}
        self.lock = threading.Lock()

    def __enter__(self) -> "HubStandIn":
        self._home = tempfile.TemporaryDirectory()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.hub = self  # type: ignore[attr-defined]
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._home.cleanup()

    def environment(self, home: str | os.PathLike | None = None) -> dict[str, str]:
        """Returns the complete environment of a client process.

        Args:
            home: Folder for the client's caches (`HF_HOME`); another folder is another, empty cache.
                By default a temporary one, shared by all clients of this stand-in.
        """
        inherited = {name: value for name, value in os.environ.items() if not FOREIGN_VARIABLES.fullmatch(name)}
        return {
            **inherited,
            "HF_ENDPOINT": self.endpoint,
            "HF_TOKEN": self.token,
            "HF_HOME": str(Path(self._home.name if home is None else home).absolute()),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }

    def commits(self, repo_id: str, revision: str = DEFAULT_BRANCH) -> list[str]:
        """Returns the commit hashes of a branch, the newest first and the Hub's own initial commit last."""
        with self.lock:
            return [commit.oid for commit in self.repositories[repo_id].history(revision)]

    def files(self, repo_id: str, revision: str = DEFAULT_BRANCH) -> dict[str, bytes]:
        """Returns the files of a branch or commit, large files with their content and not as LFS pointers.

        As on the Hub, every repository starts with a `.gitattributes` file.
        """
        with self.lock:
            return {path: file.content for path, file in self.repositories[repo_id].resolve(revision).files.items()}


class _Handler(BaseHTTPRequestHandler):
    """Finds the endpoint that serves a request, checks the token and writes the answer."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes; together with delayed ACKs that costs 40 ms

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def serve(self) -> None:
        self.hub: HubStandIn = self.server.hub  # type: ignore[attr-defined]
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.body = self.read_body()
        with self.hub.lock:
            self.hub.requests.append((self.command, url.path))
            try:
                response = self.answer(url.path)
            except Refusal as refusal:
                response = refusal.response
            except (KeyError, ValueError) as error:
                response = Response({"error": f"malformed request: {error!r}"}, status=400)
        self.send(response)

    do_GET = do_HEAD = do_POST = do_PUT = serve

    def answer(self, path: str) -> Response:
        authorization = self.headers.get("Authorization")
        self.is_authorized = authorization == f"Bearer {self.hub.token}"
        if authorization is not None and not self.is_authorized:
            raise Refusal(401, "Invalid credentials in Authorization header")
        wanted_method = "GET" if self.command == "HEAD" else self.command
        for method, pattern, endpoint, needs_token in ENDPOINTS:
            match = re.fullmatch(pattern, path)
            if match is None or method != wanted_method:
                continue
            if needs_token and not self.is_authorized:
                raise Refusal(401, f"{self.command} {path} needs an Authorization header with the Hub token")
            return endpoint(self, **{name: unquote(value or "") for name, value in match.groupdict().items()})
        raise Refusal(404, f"the stand-in has no endpoint for {self.command} {path}")

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def send(self, response: Response) -> None:
        is_file = isinstance(response.body, bytes)
        content = response.body if is_file else json.dumps(response.body).encode()
        self.send_response(response.status)
        self.send_header("Content-Type", "application/octet-stream" if is_file else "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def repository(self, repo_id: str) -> Repository:
        repository = self.hub.repositories.get(repo_id)
        if repository is None:
            raise Refusal(404, f"there is no model repository {repo_id}", code="RepoNotFound")
        if repository.private and not self.is_authorized:
            raise Refusal(401, f"{repo_id} is private or does not exist", code="RepoNotFound")
        return repository


# The endpoints. Each takes the request and the named parts of its path, and returns the answer.


def who_am_i(request: _Handler) -> Response:
    return Response({"type": "user", "name": USER, "orgs": [], "auth": {"type": "access_token"}})


def validate_card(request: _Handler) -> Response:
    return Response({"errors": [], "warnings": []})


def create_repository(request: _Handler) -> Response:
    wanted = json.loads(request.body)
    if wanted.get("type", "model") != "model":
        raise Refusal(400, f"the stand-in keeps model repositories only, not a {wanted['type']}")
    repo_id = f"{wanted.get('organization') or USER}/{wanted['name']}"
    url = f"{request.hub.endpoint}/{repo_id}"
    if repo_id in request.hub.repositories:
        raise Refusal(409, f"the repository {repo_id} exists already", url=url)
    repository = Repository(repo_id, private=wanted.get("visibility") == "private")
    attributes = "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LFS_PATTERNS)
    files = {".gitattributes": StoredFile(attributes.encode(), is_lfs=False)}
    repository.add_commit(DEFAULT_BRANCH, "initial commit", "", files)
    request.hub.repositories[repo_id] = repository
    return Response({"url": url, "name": repo_id})


def create_branch(request: _Handler, repo_id: str, branch: str) -> Response:
    repository = request.repository(repo_id)
    if branch in repository.branches:
        raise Refusal(409, f"{repo_id} has a branch {branch!r} already")
    start = json.loads(request.body or b"{}").get("startingPoint", DEFAULT_BRANCH)
    repository.branches[branch] = repository.resolve(start).oid
    return Response({})


def preupload(request: _Handler, repo_id: str, revision: str) -> Response:
    """Tells which of the files about to be uploaded go through Git LFS, and what the branch has in their place now."""
    commit = request.repository(repo_id).resolve(revision)
    files = []
    for announced in json.loads(request.body)["files"]:
        path = announced["path"]
        is_lfs = (
            any(fnmatch.fnmatch(path, pattern) for pattern in LFS_PATTERNS)
            or b"\0" in base64.b64decode(announced["sample"])
            or announced["size"] > LFS_SIZE
        )
        present = commit.files.get(path)
        files.append(
            {
                "path": path,
                "uploadMode": "lfs" if is_lfs else "regular",
                "shouldIgnore": False,
                "oid": None if present is None else present.etag,
            }
        )
    return Response({"files": files, "commitOid": commit.oid})


def lfs_batch(request: _Handler, repo_id: str) -> Response:
    """Hands out one upload address per announced object that the repository does not have yet."""
    repository = request.repository(repo_id)
    batch = json.loads(request.body)
    if batch["operation"] != "upload" or "basic" not in batch["transfers"]:
        raise Refusal(422, "the stand-in offers LFS uploads by basic transfer only")
    objects = []
    for announced in batch["objects"]:
        sha256, size = announced["oid"], announced["size"]
        answer = {"oid": sha256, "size": size}
        if sha256 not in repository.lfs_objects:
            ticket = secrets.token_hex(16)
            request.hub.upload_tickets[ticket] = UploadTicket(repository, sha256, size)
            answer["actions"] = {"upload": {"href": f"{request.hub.endpoint}/lfs-storage/{ticket}"}}
        objects.append(answer)
    return Response({"transfer": "basic", "objects": objects})


def lfs_upload(request: _Handler, ticket: str) -> Response:
    """Stores an object. As with the Hub's storage, the secret address stands for the Authorization header."""
    if ticket not in request.hub.upload_tickets:
        raise Refusal(403, "this upload address was never handed out")
    repository, sha256, size = request.hub.upload_tickets[ticket]
    received = hashlib.sha256(request.body).hexdigest()
    if (received, len(request.body)) != (sha256, size):
        message = f"announced {size} bytes with sha256 {sha256}, received {len(request.body)} with sha256 {received}"
        raise Refusal(400, message)
    repository.lfs_objects[sha256] = request.body
    return Response()


def create_commit(request: _Handler, repo_id: str, branch: str) -> Response:
    repository = request.repository(repo_id)
    head = repository.resolve(branch)
    if branch not in repository.branches:
        raise Refusal(400, f"{branch!r} is not a branch of {repo_id}; commits go on top of a branch")
    if "create_pr" in request.query:
        raise Refusal(400, "the stand-in has no pull requests")
    header, *operations = [json.loads(line) for line in request.body.splitlines()]
    if header["value"].get("parentCommit", head.oid) != head.oid:
        raise Refusal(412, f"the newest commit of {branch!r} is {head.oid}, not {header['value']['parentCommit']}")
    files = dict(head.files)
    for operation in operations:
        apply_operation(repository, files, operation["key"], operation["value"])
    title, message = header["value"]["summary"], header["value"]["description"]
    commit = repository.add_commit(branch, title, message, files)
    url = f"{request.hub.endpoint}/{repo_id}/commit/{commit.oid}"
    return Response({"success": True, "commitOid": commit.oid, "commitUrl": url})


def apply_operation(repository: Repository, files: dict[str, StoredFile], kind: str, value: dict[str, str]) -> None:
    """Changes the files of a coming commit by one line of the commit request."""
    path = value["path"]
    if kind == "file":
        files[path] = StoredFile(base64.b64decode(value["content"], validate=True), is_lfs=False)
    elif kind == "lfsFile":
        if value["oid"] not in repository.lfs_objects:
            raise Refusal(400, f"the content of {path}, sha256 {value['oid']}, was never uploaded")
        files[path] = StoredFile(repository.lfs_objects[value["oid"]], is_lfs=True)
    elif kind in ("deletedFile", "deletedFolder"):
        folder = path.rstrip("/") + "/"
        gone = [name for name in files if (name == path if kind == "deletedFile" else name.startswith(folder))]
        if not gone:
            raise Refusal(404, f"there is no {path} to delete", code="EntryNotFound")
        for name in gone:
            del files[name]
    else:
        raise Refusal(400, f"the stand-in knows no commit operation {kind!r}")


def model_info(request: _Handler, repo_id: str, revision: str = DEFAULT_BRANCH) -> Response:
    repository = request.repository(repo_id)
    commit = repository.resolve(revision)
    return Response(
        {
            "id": repo_id,
            "author": repo_id.split("/")[0],
            "sha": commit.oid,
            "lastModified": commit.date,
            "private": repository.private,
            "gated": False,
            "disabled": False,
            "tags": [],
            "siblings": [sibling(path, file, "blobs" in request.query) for path, file in sorted(commit.files.items())],
        }
    )


def sibling(path: str, file: StoredFile, with_metadata: bool) -> dict[str, Any]:
    """Describes a file as the model info does."""
    if not with_metadata:
        return {"rfilename": path}
    size = len(file.content)
    lfs = {"sha256": file.sha256, "size": size, "pointerSize": len(file.pointer)} if file.is_lfs else None
    return {"rfilename": path, "size": size, "blobId": file.git_oid, "lfs": lfs}


def list_tree(request: _Handler, repo_id: str, revision: str, folder: str) -> Response:
    commit = request.repository(repo_id).resolve(revision)
    prefix = f"{folder}/" if folder else ""
    paths = [path for path in sorted(commit.files) if path.startswith(prefix)]
    if folder and not paths:
        raise Refusal(404, f"{repo_id} has no folder {folder}", code="EntryNotFound", commit=commit.oid)
    is_recursive = request.query.get("recursive", "false").lower() == "true"
    entries = {}
    for path in paths:
        parts = path.removeprefix(prefix).split("/")
        for depth in range(1, len(parts) if is_recursive else min(len(parts), 2)):
            subfolder = prefix + "/".join(parts[:depth])
            oid = hashlib.sha1(f"{commit.oid}/{subfolder}".encode()).hexdigest()
            entries[subfolder] = {"type": "directory", "path": subfolder, "oid": oid, "size": 0}
        if is_recursive or len(parts) == 1:
            entries[path] = tree_file(path, commit.files[path])
    return Response(list(entries.values()))


def tree_file(path: str, file: StoredFile) -> dict[str, Any]:
    """Describes a file as the tree listing does."""
    entry = {"type": "file", "path": path, "oid": file.git_oid, "size": len(file.content)}
    if file.is_lfs:
        entry["lfs"] = {"oid": file.sha256, "size": len(file.content), "pointerSize": len(file.pointer)}
    return entry


def list_commits(request: _Handler, repo_id: str, revision: str) -> Response:
    return Response(
        [
            {
                "id": commit.oid,
                "title": commit.title,
                "message": commit.message,
                "date": commit.date,
                "authors": [{"user": USER}],
            }
            for commit in request.repository(repo_id).history(revision)
        ]
    )


def list_references(request: _Handler, repo_id: str) -> Response:
    branches = [
        {"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid}
        for name, oid in request.repository(repo_id).branches.items()
    ]
    return Response({"branches": branches, "tags": [], "converts": [], "pullRequests": []})


def download(request: _Handler, repo_id: str, revision: str, path: str) -> Response:
    commit = request.repository(repo_id).resolve(revision)
    file = commit.files.get(path)
    if file is None:
        message = f"{repo_id} has no file {path} in commit {commit.oid}"
        raise Refusal(404, message, code="EntryNotFound", commit=commit.oid)
    headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{file.etag}"'}
    if file.is_lfs:
        headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(len(file.content))}
    return Response(file.content, headers)


REPO = r"(?P<repo_id>[^/]+/[^/]+)"
ENDPOINTS: list[tuple[str, str, Callable[..., Response], bool]] = [
    # method (GET serves HEAD too), path, function, whether it needs the token
    ("GET", "/api/whoami-v2", who_am_i, True),
    ("POST", "/api/validate-yaml", validate_card, False),
    ("POST", "/api/repos/create", create_repository, True),
    ("POST", f"/api/models/{REPO}/branch/(?P<branch>[^/]+)", create_branch, True),
    ("POST", f"/api/models/{REPO}/preupload/(?P<revision>[^/]+)", preupload, True),
    ("POST", rf"/{REPO}\.git/info/lfs/objects/batch", lfs_batch, True),
    ("PUT", "/lfs-storage/(?P<ticket>[^/]+)", lfs_upload, False),  # the ticket is the permission
    ("POST", f"/api/models/{REPO}/commit/(?P<branch>[^/]+)", create_commit, True),
    ("GET", f"/api/models/{REPO}", model_info, False),
    ("GET", f"/api/models/{REPO}/revision/(?P<revision>[^/]+)", model_info, False),
    ("GET", f"/api/models/{REPO}/tree/(?P<revision>[^/]+)(/(?P<folder>.+))?", list_tree, False),
    ("GET", f"/api/models/{REPO}/commits/(?P<revision>[^/]+)", list_commits, False),
    ("GET", f"/api/models/{REPO}/refs", list_references, False),
    ("GET", f"/{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", download, False),
]
