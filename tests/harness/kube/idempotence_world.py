"""BlockServers with a real API server and its controllers; node, directory and operator belong to this machine.

Between the operator and the API server stands a proxy that lists its writes and can kill it after any of them.
"""

import uuid
from typing import Any

from kube.fake_directory import FakeDirectory
from kube.fake_node import POD
from kube.kubectl import Kubectl, Object
from kube.local_operator import LocalOperator
from kube.rest import MERGE, Rest
from kube.snapshot import Snapshots
from kube.swarm import complete
from kube.waiting import until
from kube.writes_proxy import WritesProxy

SPACE = "idempotence"
DEADLINE = 180.0


def block_server(name: str, start: int, end: int, *, replicas: int = 1) -> Object:
    """One whose pods land on the made-up node only."""
    return {
        "apiVersion": "blockswarm.io/v1alpha1",
        "kind": "BlockServer",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "model": {"name": "idempotence", "source": {"hub": {"repo": "blockswarm/none"}}},
            "blocks": {"start": start, "end": end},
            "replicas": replicas,
            "pod": POD,
        },
    }


LOWER = block_server("lower", 0, 4, replicas=2)
UPPER = block_server("upper", 3, 6)


def counted(replica_set: Object) -> bool:
    """Whether the status of a ReplicaSet is that of its spec: its controller tells late of a pod that has gone."""
    status, wanted = replica_set["status"], replica_set["spec"]["replicas"]
    seen = status.get("observedGeneration") == replica_set["metadata"]["generation"]
    return seen and status["replicas"] == status.get("readyReplicas", 0) == wanted


class World:
    """All that the tests touch. The operator is started and stopped by them."""

    def __init__(
        self,
        kubectl: Kubectl,
        rest: Rest,
        directory: FakeDirectory,
        proxy: WritesProxy,
        operator: LocalOperator,
    ) -> None:
        self.kubectl, self.rest, self.directory, self.proxy = kubectl, rest, directory, proxy
        self.operator = operator
        self.snapshots = Snapshots(rest, SPACE)

    def patch(self, kind: str, name: str, change: Object) -> Object:
        """A merge patch; the object after it."""
        answer = self.rest.call("PATCH", self.snapshots.path(kind, name), change, content=MERGE)
        assert answer.ok, answer
        changed: Object = answer.json()
        return changed

    def child(self, kind: str) -> str:
        """Name of a child of that kind of `lower`."""
        for one in self.snapshots.objects(kind):
            if any(owner["name"] == "lower" for owner in one["metadata"].get("ownerReferences", ())):
                return str(one["metadata"]["name"])
        raise AssertionError(f"lower has no {kind}\n{self.state()}")

    def change_all(self) -> int:
        """All are replaced, and `lower` gets one server more or less. Returns its replicas."""
        replicas = 3 - int(self.kubectl.get("bs", "lower")["spec"]["replicas"])
        self.patch("BlockServer", "lower", {"spec": {"replicas": replicas, "restart": uuid.uuid4().hex}})
        self.patch("BlockServer", "upper", {"spec": {"restart": uuid.uuid4().hex}})
        return replicas

    def remove_all(self) -> None:
        """Delete every BlockServer, and wait until nothing is left of them."""
        self.kubectl.run("delete", "blockservers", "--all")
        until(
            lambda: not self.snapshots.left(), "nothing left", timeout=DEADLINE, every=0.1, state=self.state
        )

    def restart(self, **environment: str) -> None:
        """Stop the operator, and start it, with these variables changed."""
        self.operator.stop()
        self.operator.environment.update(environment)
        self.operator.start()
        self.operator.wait_passes(1, timeout=DEADLINE)

    def wait_whole(self) -> None:
        """Wait until every BlockServer is complete, the controllers have done their part, and nothing is written."""

        def whole() -> bool:
            found, sets = self.kubectl.list("blockservers"), self.kubectl.list("replicasets")
            return bool(found) and all(complete(one) for one in found) and all(counted(one) for one in sets)

        until(whole, "every BlockServer complete", timeout=DEADLINE, every=0.1, state=self.state)
        self.wait_quiet()

    def wait_quiet(self) -> None:
        """Wait until some passes in a row wrote nothing. An operator that was killed is started again."""

        def quiet() -> bool:
            self._revive()
            before = len(self.proxy.writes)
            self.idle_passes(3)
            return self.operator.runs() and len(self.proxy.writes) == before

        until(quiet, "passes that write nothing", timeout=DEADLINE, every=0.0, state=self.state)

    def wait_same(self, wanted: dict[str, Any]) -> None:
        """Wait until all is as in a former snapshot and stays so. An operator that was killed is started again."""

        def same() -> bool:
            self._revive()
            return self.snapshots.comparable() == wanted

        try:
            until(same, "the same state", timeout=DEADLINE, every=0.1, state=self.state)
            self.wait_quiet()
            assert same(), f"the same state does not last\n{self.state()}"
        except (TimeoutError, AssertionError) as error:
            found = self.snapshots.comparable()
            raise AssertionError(f"{error}\n{_differences(wanted, found)}") from None

    def idle_passes(self, count: int) -> None:
        """Let passes happen though nothing changed, or until the operator is killed: its last write may come late."""
        for _ in range(count):
            before = self.operator.passes()
            self.directory.stir()
            until(
                lambda before=before: self.operator.passes() > before or not self.operator.runs(),
                "one more pass",
                timeout=DEADLINE,
                every=0.05,
                state=self.state,
            )

    def _revive(self) -> None:
        if not self.operator.runs():
            self.operator.start()

    def state(self) -> str:
        """Everything that helps to understand a failure."""
        writes = "\n".join(map(str, self.proxy.writes[-40:]))
        left = "\n".join(self.snapshots.left())
        return f"--- objects\n{left}\n--- writes\n{writes}\n--- operator\n{self.operator.log()}"


def _differences(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    keys = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    return "\n".join(f"{key}\n  wanted {wanted.get(key)}\n  found  {found.get(key)}" for key in keys)
