"""A small stand-in for the Hugging Face Hub: the endpoints that huggingface_hub uses, in memory."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_local_stand_in_token"


class Repository:
    """Files by commit; the last commit is the branch main."""

    def __init__(self, private: bool) -> None:
        self.private = private
        self.commits: dict[str, dict[str, bytes]] = {hashlib.sha1(b"").hexdigest(): {}}

    @property
    def head(self) -> str:
        return list(self.commits)[-1]

    def commit(self, lines: list[dict[str, Any]]) -> str:
        files = dict(self.commits[self.head])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        sha = hashlib.sha1(repr((len(self.commits), files)).encode()).hexdigest()
        self.commits[sha] = files
        return sha


class Hub:
    """The server, in a thread."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str]] = []
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def reply(self, status: int, content: Any, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self, code: str) -> None:
        self.reply(404, {"error": code}, X_Error_Code=code, X_Error_Message=code)

    @property
    def may_write(self) -> bool:
        return self.headers.get("authorization") == f"Bearer {TOKEN}"

    def found(self, name: str) -> Repository | None:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not self.may_write):
            self.missing("RepoNotFound")
            return None
        return repository

    def do_POST(self) -> None:
        self.hub.requests.append((self.command, self.path))
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self.may_write:
            self.reply(401, {"error": "Invalid credentials"})
        elif self.path == "/api/repos/create":
            self.create(json.loads(body))
        elif self.path == "/api/validate-yaml":
            self.reply(200, {"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/\w+", self.path):
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]
            self.reply(200, {"files": modes})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", self.path):
            lines = [json.loads(line) for line in body.splitlines()]
            sha = self.hub.repositories[found[1]].commit(lines)
            address = f"{self.hub.address}/{found[1]}/commit/{sha}"
            self.reply(200, {"commitUrl": address, "commitOid": sha})
        else:
            self.missing("EntryNotFound")

    def create(self, content: dict[str, Any]) -> None:
        name = f"{content['organization']}/{content['name']}"
        private = content.get("visibility") == "private" or content.get("private", False)
        if name in self.hub.repositories:
            address = f"{self.hub.address}/{name}"
            self.reply(409, {"error": "You already created this model repo", "url": address})
            return
        self.hub.repositories[name] = Repository(private)
        self.reply(200, {"url": f"{self.hub.address}/{name}", "name": name})

    def do_GET(self) -> None:
        self.hub.requests.append((self.command, self.path))
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            self.info(found[1], found[2] or "main")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
            if (repository := self.found(found[1])) is not None:
                files = repository.commits[self.sha(repository, found[2]) or repository.head]
                self.reply(200, [_entry(name, content) for name, content in files.items()])
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.file(*found.groups())
        else:
            self.missing("EntryNotFound")

    do_HEAD = do_GET

    def sha(self, repository: Repository, revision: str) -> str | None:
        return (
            repository.head
            if revision == "main"
            else revision
            if (revision in repository.commits)
            else None
        )

    def info(self, name: str, revision: str) -> None:
        if (repository := self.found(name)) is None:
            return
        if (sha := self.sha(repository, revision)) is None:
            self.missing("RevisionNotFound")
            return
        siblings = [{"rfilename": file} for file in repository.commits[sha]]
        content = {"id": name, "modelId": name, "sha": sha, "private": repository.private}
        self.reply(200, content | {"siblings": siblings, "tags": [], "downloads": 0, "likes": 0})

    def file(self, name: str, revision: str, file: str) -> None:
        if (repository := self.found(name)) is None:
            return
        sha = self.sha(repository, revision)
        content = repository.commits[sha].get(file) if sha else None
        if content is None or sha is None:
            self.missing("EntryNotFound")
            return
        etag = f'"{_entry(file, content)["oid"]}"'
        self.reply(200, content, ETag=etag, X_Repo_Commit=sha, Accept_Ranges="bytes")


def _entry(name: str, content: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return {"type": "file", "path": name, "size": len(content), "oid": oid}
