"""What `operator_scale` puts into its cluster: made-up nodes, made-up servers in their pods, and watches of its own."""

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from kube.cluster import Cluster
from kube.fake_directory import FakeDirectory
from kube.fake_node import server_record
from kube.kubectl import Object
from kube.rest import Rest

_LABEL = "blockswarm.test/made-up"
_ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
_PODS_A_NODE = 100


class Watch:
    """Follows one kind. Use as a context manager.

    Attributes:
        seen: name → the object as it was seen last.
        last: when the last new name was seen, monotonic seconds.
        texts: (name, value of the restart annotation) → when it was seen first.
    """

    def __init__(self, rest: Rest, path: str) -> None:
        self._rest, self._path = rest, path
        self._stop = threading.Event()
        self.seen: dict[str, Object] = {}
        self.last = 0.0
        self.texts: dict[tuple[str, str], float] = {}

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()

    def event(self, kind: str, one: Object) -> None:
        """Something happened to an object."""
        name, now = one["metadata"]["name"], time.monotonic()
        if kind == "DELETED":
            self.seen.pop(name, None)
            return
        if name not in self.seen:
            self.last = now
        self.seen[name] = one
        notes = one["spec"].get("template", {}).get("metadata", {}).get("annotations", {})
        self.texts.setdefault((name, notes.get("blockswarm.io/restart", "")), now)

    def _run(self) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    listed = self._rest.call("GET", self._path).json()
                    version = listed["metadata"]["resourceVersion"]
                    for one in listed["items"]:
                        self.event("ADDED", one)
                version = self._follow(version)
            except (OSError, http.client.HTTPException, ValueError):
                self._stop.wait(0.2)

    def _follow(self, version: str) -> str:
        connection = http.client.HTTPConnection(self._rest.url.removeprefix("http://"))
        try:
            connection.request(
                "GET", f"{self._path}?watch=1&resourceVersion={version}&allowWatchBookmarks=true"
            )
            answer = connection.getresponse()
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return ""
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.event(event["type"], event["object"])
                if self._stop.is_set():
                    break
            return version
        finally:
            connection.close()


class Servers(Watch):
    """Every pod that is Ready holds a server, which the directory shows as ONLINE."""

    def __init__(self, rest: Rest, directory: FakeDirectory, namespace: str, *, blocks: int) -> None:
        super().__init__(rest, f"/api/v1/namespaces/{namespace}/pods")
        self._directory, self._blocks = directory, blocks
        self._shown: dict[str, str] = {}

    def event(self, kind: str, one: Object) -> None:
        """A pod began or ended."""
        uid, status = one["metadata"]["uid"], one.get("status", {})
        if kind == "DELETED" or "deletionTimestamp" in one["metadata"]:
            if uid in self._shown:
                self._directory.remove(self._shown.pop(uid), uid)
            return
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
        if ready and status.get("podIP") and uid not in self._shown:
            record = server_record(one, status["podIP"], blocks=self._blocks)
            self._shown[uid] = record.model_key
            self._directory.put(record)


class Nodes:
    """Nodes without machines, which kwok keeps alive."""

    # What a pod needs to land there, and on no real node.
    POD: ClassVar[dict[str, Any]] = {
        "nodeSelector": {_LABEL: "true"},
        "tolerations": [{"key": _LABEL, "operator": "Exists"}],
    }

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def create(self, *, pods: int) -> None:
        """As many as so many pods need, and a spare one."""
        numbers = range(pods // _PODS_A_NODE + 2)
        with ThreadPoolExecutor(4) as workers:
            for answer in workers.map(lambda n: self._rest.call("POST", "/api/v1/nodes", _node(n)), numbers):
                assert answer.ok, answer


def _node(number: int) -> Object:
    room = {"cpu": "64", "memory": "512Gi", "pods": str(_PODS_A_NODE + 10)}
    name = f"made-up-{number:02}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": _ANNOTATION,
            "labels": {_LABEL: "true", "kubernetes.io/hostname": name},
        },
        "spec": {"taints": [{"key": _LABEL, "value": "true", "effect": "NoSchedule"}]},
        "status": {"capacity": room, "allocatable": room},
    }


@contextmanager
def kwok(cluster: Cluster, folder: Path) -> Iterator[None]:
    """kwok for the nodes of `Nodes`."""
    selector = ",".join(f"{key}={value}" for key, value in _ANNOTATION.items())
    with (folder / "kwok.log").open("wb") as log:
        process = subprocess.Popen(
            [
                cluster.find("kwok"),
                f"--kubeconfig={cluster.kubeconfig}",
                f"--manage-nodes-with-annotation-selector={selector}",
                # Else the nodes' leases end between two renewals.
                "--node-lease-duration-seconds=10",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)
