"""A node without a kubelet: its pods are made to run and to serve, and to leave, by this process."""

import threading
import time
import traceback
from datetime import UTC, datetime
from typing import Any

from blockswarm_wire.record import ServerRecord, State
from kube.fake_directory import FakeDirectory, fingerprint
from kube.kubectl import Object
from kube.rest import MERGE, Rest

LABEL = "blockswarm.test/fake-node"
_TAINT = {"key": LABEL, "value": "true", "effect": "NoSchedule"}
# What a pod needs to land here, and nothing else does.
POD = {"nodeSelector": {LABEL: "true"}, "tolerations": [{"key": LABEL, "operator": "Exists"}]}
_SECONDS = 0.1
_BEAT_SECONDS = 3.0


class FakeNode:
    """Use as a context manager. `blocks`: of every model that its pods serve."""

    def __init__(self, rest: Rest, directory: FakeDirectory, *, name: str = "fake", blocks: int = 30) -> None:
        self._rest, self._directory, self._name, self._blocks = rest, directory, name, blocks
        self._stop = threading.Event()
        self._serving: dict[str, str] = {}
        self._beaten = 0.0
        self._address = 0

    def __enter__(self) -> "FakeNode":
        meta = {"name": self._name, "labels": {LABEL: "true", "kubernetes.io/hostname": self._name}}
        self._rest.call("DELETE", f"/api/v1/nodes/{self._name}")
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": [_TAINT]}}
        made = self._rest.call("POST", "/api/v1/nodes", node)
        assert made.ok, made
        self._beat()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._rest.call("DELETE", f"/api/v1/nodes/{self._name}")

    def _run(self) -> None:
        while not self._stop.wait(_SECONDS):
            try:
                if time.monotonic() - self._beaten > _BEAT_SECONDS:
                    self._beat()
                found = self._rest.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self._name}")
                pods = {pod["metadata"]["uid"]: pod for pod in found.json()["items"]} if found.ok else None
                if pods is not None:
                    self._look_after(pods)
            except Exception:  # a node that is late does less harm than one that is gone
                traceback.print_exc()

    def _look_after(self, pods: dict[str, Object]) -> None:
        for uid in self._serving.keys() - pods.keys():
            self._directory.remove(self._serving.pop(uid), uid)
        for uid, pod in pods.items():
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            if "deletionTimestamp" in meta:
                self._rest.call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
            elif uid not in self._serving:
                self._address += 1
                address = f"10.255.{self._address // 250}.{self._address % 250 + 1}"
                if self._rest.call("PATCH", f"{path}/status", _running(address), content=MERGE).ok:
                    record = server_record(pod, address, blocks=self._blocks)
                    self._serving[uid] = record.model_key
                    self._directory.put(record)

    def _beat(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        room = {"cpu": "64", "memory": "256Gi", "pods": "200"}
        status = {"conditions": [condition], "capacity": room, "allocatable": room}
        answer = self._rest.call(
            "PATCH", f"/api/v1/nodes/{self._name}/status", {"status": status}, content=MERGE
        )
        assert answer.ok, answer
        self._beaten = time.monotonic()


def server_record(pod: Object, address: str, *, blocks: int) -> ServerRecord:
    """What the server in a pod would say of itself, read off its arguments."""
    arguments = dict(one.split("=", 1) for one in pod["spec"]["containers"][0]["args"])
    start, end = map(int, arguments["--blocks"].split(":"))
    model, uid = arguments["--name"], pod["metadata"]["uid"]
    return ServerRecord(
        server_id=uid,
        state=State.ONLINE,
        model=model,
        num_blocks=blocks,
        start=start,
        end=end,
        address=f"{address}:31330",
        instance=uid.replace("-", "")[:16],
        fingerprint=fingerprint(model),
        issued_at=time.time(),
        kv_capacity=4096,
        has_embedding=True,
        has_head=True,
    )


def _running(address: str) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    state = {"running": {"startedAt": now}}
    container = {
        "name": "server",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    }
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    return {
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [{**container, "state": state}],
        }
    }
