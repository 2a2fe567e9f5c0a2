"""The API server over plain HTTP, through `kubectl proxy`: for what must be fast, or is asked many times at once."""

import http.client
import json
import re
import subprocess
import threading
from types import TracebackType
from typing import Any

from kube.kubectl import Kubectl

MERGE = "application/merge-patch+json"


class Rest:
    """Requests from any thread; one connection each. Use as a context manager.

    Attributes:
        url: where the proxy listens, such as "http://127.0.0.1:35123".
    """

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._local = threading.local()

    def __enter__(self) -> "Rest":
        self._proxy = self._kubectl.spawn("proxy", "--port=0")
        assert self._proxy.stdout is not None
        line = self._proxy.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, f"kubectl proxy: {line}"
        self.url = f"http://{found[0]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._proxy.terminate()
        try:
            self._proxy.wait(10)
        except subprocess.TimeoutExpired:
            self._proxy.kill()

    def call(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json"
    ) -> "Answer":
        """One request; errors of the API are answers too.

        Raises:
            OSError: no answer.
        """
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content, "Accept": "application/json"}
        for last in (False, True):
            connection = self._connection()
            try:
                connection.request(method, path, data, headers)
                response = connection.getresponse()
                return Answer(response.status, response.read())
            except (http.client.HTTPException, OSError) as error:
                # The proxy closes idle connections: a fresh one tells whether that was all.
                connection.close()
                if last:
                    raise OSError(f"{method} {path}: {error!r}") from error
        raise AssertionError

    def _connection(self) -> http.client.HTTPConnection:
        if not hasattr(self._local, "connection"):
            host = self.url.removeprefix("http://")
            self._local.connection = http.client.HTTPConnection(host, timeout=30)
        connection: http.client.HTTPConnection = self._local.connection
        return connection


class Answer:
    """What the API server said."""

    def __init__(self, status: int, data: bytes) -> None:
        self.status = status
        self._data = data

    @property
    def ok(self) -> bool:
        """Whether it did what was asked."""
        return self.status < 300

    @property
    def busy(self) -> bool:
        """Whether the API server could not answer now. Not for an eviction: there 429 is a budget's refusal."""
        return self.status == 429 or self.status >= 500

    def json(self) -> Any:
        """The body."""
        return json.loads(self._data)

    def __repr__(self) -> str:
        return f"{self.status} {self._data[:300].decode(errors='replace')}"
