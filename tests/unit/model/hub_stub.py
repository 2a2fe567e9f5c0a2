"""A Hugging Face Hub on loopback, with the few answers that loading a model needs, and faults on demand."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves folders as repositories at one commit, which `main` and "v1" name.

    Attributes:
        repos: repository id → folder.
        requests: (method, file or "info", value of the Range header) in order.
        cut: file → number of bytes after which its next transfers break, one each.
        lie: file → bytes to send instead of its own, one each.
        gated: repositories that may not be read.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Path] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.cut: dict[str, list[int]] = {}
        self.lie: dict[str, list[bytes]] = {}
        self.gated: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fetched(self) -> list[str]:
        """The files whose contents were asked for."""
        return [file for method, file, _ in self.requests if method == "GET" and file != "info"]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def answer(self, call: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(call.path).path)
        if info := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._info(call, info[1], info[2] or "main")
        elif file := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(call, file[1], file[2], file[3])
        else:
            _refuse(call, 404, "")

    def _known(self, call: BaseHTTPRequestHandler, repo: str, revision: str) -> bool:
        if repo in self.gated:
            _refuse(call, 403, "GatedRepo")
        elif repo not in self.repos:
            _refuse(call, 401, "RepoNotFound")
        elif revision not in ("main", "v1", COMMIT):
            _refuse(call, 404, "RevisionNotFound")
        else:
            return True
        return False

    def _info(self, call: BaseHTTPRequestHandler, repo: str, revision: str) -> None:
        self.requests.append((call.command, "info", None))
        if not self._known(call, repo, revision):
            return
        siblings = []
        for file in sorted(self.repos[repo].iterdir()):
            data = file.read_bytes()
            entry: dict[str, Any] = {"rfilename": file.name, "size": len(data), "blobId": _git_id(data)}
            if file.suffix == ".safetensors":
                entry["lfs"] = {"sha256": _sha256(data), "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        body = json.dumps({"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings}).encode()
        _send(call, 200, body, {"Content-Type": "application/json"})

    def _file(self, call: BaseHTTPRequestHandler, repo: str, revision: str, name: str) -> None:
        asked = call.headers.get("Range")
        self.requests.append((call.command, name, asked))
        if not self._known(call, repo, revision):
            return
        file = self.repos[repo] / name
        if not file.is_file():
            _refuse(call, 404, "EntryNotFound")
            return
        data = file.read_bytes()
        etag = _sha256(data) if file.suffix == ".safetensors" else _git_id(data)
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if call.command == "GET" and self.lie.get(name):
            data = self.lie[name].pop(0)
        status, first = 200, 0
        if asked is not None:
            first = int(asked.removeprefix("bytes=").partition("-")[0])
            status, headers["Content-Range"] = 206, f"bytes {first}-{len(data) - 1}/{len(data)}"
        cuts = self.cut.get(name) if call.command == "GET" else None
        _send(call, status, data[first:], headers, cut=cuts.pop(0) if cuts else None)


def _send(
    call: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str], *, cut: int | None = None
) -> None:
    call.send_response(status)
    for name, value in headers.items():
        call.send_header(name, value)
    call.send_header("Content-Length", str(len(body)))
    call.send_header("Connection", "close")
    call.end_headers()
    if call.command != "HEAD":
        call.wfile.write(body if cut is None else body[:cut])
    call.close_connection = True


def _refuse(call: BaseHTTPRequestHandler, status: int, code: str) -> None:
    _send(call, status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
