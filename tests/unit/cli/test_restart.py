"""`blockswarm restart` against a server that stands in for the Kubernetes API."""

import builtins
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from blockswarm.cli.app import main

PATH = "/apis/blockswarm.io/v1alpha1/namespaces/{}/blockservers/{}"


class FakeApi(ThreadingHTTPServer):
    """Answers each PATCH with `status` and keeps (path, content type, body)."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.seen = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: FakeApi

    def do_PATCH(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.partition("?")[0]
        self.server.seen.append((path, self.headers["Content-Type"], json.loads(body)))
        answer = json.dumps({"kind": "Status", "message": "spec.restart: too odd"}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words):
        pass


@pytest.fixture
def api():
    with FakeApi() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def kubeconfig(tmp_path, monkeypatch):
    def write(url):
        contexts = [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "there", "context": {"cluster": "c", "user": "u", "namespace": "models"}},
        ]
        text = yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": contexts,
            }
        )
        (tmp_path / "config").write_text(text)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return write


@pytest.fixture
def command(capsys):
    def run(*words):
        with pytest.raises(SystemExit) as end:
            main(["restart", *words])
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("words", "namespace"),
    [
        ([], "default"),
        (["--context", "there"], "models"),
        (["--context", "there", "-n", "other"], "other"),
        (["--namespace", "other"], "other"),
    ],
)
def test_the_restart_text_is_patched_in_the_namespace_that_is_meant(
    api, kubeconfig, command, words, namespace
):
    kubeconfig(api.url)
    code, out, _ = command("demo", *words)
    assert code == 0
    assert f"{namespace}/demo restarts" in out
    ((path, content_type, body),) = api.seen
    assert path == PATH.format(namespace, "demo")
    assert content_type == "application/merge-patch+json"
    assert body.keys() == {"spec"}
    assert body["spec"].keys() == {"restart"}


def test_each_restart_is_a_new_text(api, kubeconfig, command):
    kubeconfig(api.url)
    command("demo")
    first = api.seen[0][2]
    while len({json.dumps(body) for _, _, body in api.seen}) == 1 and len(api.seen) < 10:
        command("demo")
    assert api.seen[-1][2] != first


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (404, 2, "there is no BlockServer demo in namespace default"),
        (403, 2, "ask for the verb patch on blockservers.blockswarm.io"),
        (401, 2, "you may not change"),
        (422, 1, "the API server answered 422: .*spec.restart: too odd"),
        (500, 1, "the API server answered 500"),
    ],
)
def test_a_refusal_tells_what_to_do(api, kubeconfig, command, status, code, text):
    import re

    kubeconfig(api.url)
    api.status = status
    found, _, err = command("demo")
    assert found == code
    assert re.search(text, err)
    assert "Traceback" not in err


def test_nobody_answers(kubeconfig, command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        kubeconfig(f"http://127.0.0.1:{taken.getsockname()[1]}")
        code, _, err = command("demo")
    assert code == 1
    assert "the API server cannot be reached" in err


@pytest.mark.parametrize("words", [["--context", "nowhere"], []])
def test_no_cluster_is_known(tmp_path, kubeconfig, command, monkeypatch, words):
    if words:
        kubeconfig("http://127.0.0.1:1")
    else:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    code, _, err = command("demo", *words)
    assert code == 2
    assert "name a kubeconfig with KUBECONFIG" in err


def test_without_the_extra_it_is_named(kubeconfig, command, monkeypatch):
    real = builtins.__import__

    def absent(name, *rest):
        if name.partition(".")[0] == "kubernetes":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    code, _, err = command("demo")
    assert code == 2
    assert "pip install 'blockswarm[kubernetes]'" in err
