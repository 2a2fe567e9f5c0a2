"""A namespace full of small servers that are evicted, cordoned and restarted, and a watch over their coverage.

A model of its own name is served in small spans, so that servers start fast and have a lane of their own.
"""

import time
from collections.abc import Callable
from typing import Any

from kube import objects
from kube.coverage_watch import CoverageWatch
from kube.kubectl import Kubectl, Object
from kube.rest import Rest
from kube.swarm import BLOCK_SERVER, complete
from kube.waiting import Transient, until

SPACE = "evictions"
MODEL = "evictions"
SMALL = {"requests": {"cpu": "20m", "memory": "150Mi"}}
_MOVE_SECONDS = 240.0


def block_server(name: str, start: int, end: int, *, replicas: int = 1, pod: Object | None = None) -> Object:
    """A BlockServer of the model of these tests. `pod`: what is set in spec.pod."""
    made = objects.block_server(name, start, end, space=SPACE, replicas=replicas, drainSeconds=5)
    made["spec"]["model"]["name"] = MODEL
    made["spec"]["pod"] = {"resources": SMALL, **(pod or {})}
    return made


class EvictionField:
    """What tests do in the namespace."""

    def __init__(self, kubectl: Kubectl, rest: Rest, watch: CoverageWatch) -> None:
        self.kubectl, self.rest, self.watch = kubectl, rest, watch

    def put(self, *made: Object) -> None:
        """Apply BlockServers, and wait until they are complete."""
        self.kubectl.apply(*made)
        self.wait_complete(*(one["metadata"]["name"] for one in made))

    def wait_complete(self, *names: str) -> None:
        """Wait until BlockServers are complete, and the directory shows all their servers."""

        def done() -> bool:
            found = {one["metadata"]["name"]: one for one in self.kubectl.list("blockservers")}
            shown = self.watch.serving
            return all(complete(found[name]) for name in names) and all(
                pod["metadata"]["uid"] in shown for name in names for pod in self.pods(name)
            )

        self.wait(done, f"{', '.join(names)} complete")

    def wait(self, done: Callable[[], Any], what: str) -> Any:
        """`until`, with the state of everything in the error."""
        return until(done, what, timeout=_MOVE_SECONDS, every=0.2, state=self.state)

    def clear(self) -> None:
        """Delete all BlockServers, and wait until their pods are gone."""
        self.kubectl.run("delete", "blockservers", "--all")
        self.wait(lambda: not self.pods(), "no pods")

    def pods(self, name: str | None = None) -> list[Object]:
        """The pods, of one BlockServer or of all."""
        return self.kubectl.list("pods", BLOCK_SERVER if name is None else f"{BLOCK_SERVER}={name}")

    def uids(self, name: str | None = None) -> set[str]:
        """Of the pods, of one BlockServer or of all."""
        return {pod["metadata"]["uid"] for pod in self.pods(name)}

    def pod(self, name: str) -> Object:
        """The only pod of a BlockServer that is not leaving."""
        staying = [pod for pod in self.pods(name) if "deletionTimestamp" not in pod["metadata"]]
        assert len(staying) == 1, [pod["metadata"]["name"] for pod in staying]
        return staying[0]

    def evict(self, pod: Object, *, really: bool = True) -> int:
        """Status of an eviction: 201 granted, 429 refused by a budget, 404 and 409 gone. `really`: else a dry run."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        options = {"preconditions": {"uid": uid}, **({} if really else {"dryRun": ["All"]})}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": SPACE},
            "deleteOptions": options,
        }
        return self.rest.call("POST", f"/api/v1/namespaces/{SPACE}/pods/{name}/eviction", body).status

    def free(self, pod: Object) -> bool:
        """Whether a pod may leave now, or has begun to."""
        answer = self.rest.call("GET", f"/api/v1/namespaces/{SPACE}/pods/{pod['metadata']['name']}")
        if answer.busy:
            raise Transient(f"{pod['metadata']['name']}: {answer.status}")
        if answer.status == 404 or "deletionTimestamp" in answer.json()["metadata"]:
            return True
        return self.evict(pod, really=False) == 201

    def freed_after(self, pod: Object, substitute: str) -> float:
        """Seconds from when a substitute was ONLINE until a pod was free.

        Both are asked for all the time: `kubectl logs` may tell late of the one, when the other has long been so.
        """
        name = pod["metadata"]["name"]
        online: float | None = None
        free: float | None = None

        def both() -> tuple[float, float] | None:
            nonlocal online, free
            if free is None and self.free(pod):
                free = time.time()
            online = self.watch.since(substitute)
            return None if online is None or free is None else (online, free)

        def state() -> str:
            return f"{substitute} ONLINE: {online}, {name} free: {free}\n{self.state()}"

        what = f"{substitute} ONLINE and {name} free"
        began, ended = until(both, what, timeout=_MOVE_SECONDS, every=0.05, state=state)
        return max(ended - began, 0.0)

    def state(self) -> str:
        """Everything that helps to understand a failure."""
        conditions = [
            f"{one['metadata']['name']}: {found['type']}={found['status']} {found['reason']}: {found['message']}"
            for one in self.kubectl.list("blockservers")
            for found in one.get("status", {}).get("conditions", [])
        ]
        return "\n".join(
            [self.kubectl.run("get", "bs,pods,pdb", "-o", "wide"), *conditions, self.watch.state()]
        )
