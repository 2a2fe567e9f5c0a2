"""Pods as targets of a Prometheus whose build lacks discovery by Kubernetes, as Debian's does: over http_sd instead.

The labels are those that kubernetes_sd with role pod gives, so that relabelling is the same.
"""

import json
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_META = "__meta_kubernetes_"


class PodTargets:
    """Serves the list on a free port of loopback. Use as a context manager.

    Args:
        api: "host:port" of a `kubectl proxy`.
        namespaces: whose pods are listed.
    """

    def __init__(self, api: str, namespaces: Iterable[str]) -> None:
        self._api, self._namespaces = api, list(namespaces)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    body = json.dumps(list(outer._targets())).encode()
                except OSError as error:  # Prometheus keeps the targets that it has
                    self.send_error(503, str(error))
                    return
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where Prometheus asks."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> "PodTargets":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _targets(self) -> Iterator[dict[str, Any]]:
        for namespace in self._namespaces:
            url = f"http://{self._api}/api/v1/namespaces/{namespace}/pods"
            with urllib.request.urlopen(url, timeout=10) as answer:
                pods = json.load(answer)["items"]
            for pod in pods:
                yield from _ports(pod)


def _ports(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One target for each declared port of a pod that has an address."""
    meta, status = pod["metadata"], pod["status"]
    if not status.get("podIP"):
        return
    common = {
        f"{_META}namespace": meta["namespace"],
        f"{_META}pod_name": meta["name"],
        f"{_META}pod_phase": status["phase"],
        f"{_META}pod_node_name": pod["spec"].get("nodeName", ""),
    }
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            labels = {
                **common,
                f"{_META}pod_container_port_name": port.get("name", ""),
                f"{_META}pod_container_port_number": str(port["containerPort"]),
            }
            yield {"targets": [f"{status['podIP']}:{port['containerPort']}"], "labels": labels}
