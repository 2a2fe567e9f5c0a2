"""`make scale`: 1,000 BlockServers in a cluster of its own, with made-up nodes (kwok) and a made-up directory.

The operator runs as a process of this machine, beside the API server, etcd, the controllers and kwok. Measured are: the
time from its start until the last child of all BlockServers is applied; then, with edits of their specs at a steady
rate, the time from an edit's answer until the ReplicaSet's change is seen, and the requests that it took; and the
process's memory. Exit status 1 when a figure misses its limit.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kube.choice import choose_cluster
from kube.cluster import REPOSITORY, Cluster
from kube.fake_directory import FakeDirectory
from kube.kubectl import Kubectl, Object
from kube.local_operator import LocalOperator
from kube.rest import MERGE, Rest
from kube.waiting import until
from scale_cluster import Nodes, Servers, Watch, kwok

SPACE = "scale"
# BlockServers of one model: four spans that serve, and a fifth one kept at zero servers, whose spec is edited.
SPANS = ((0, 8), (8, 16), (16, 24), (24, 32), (0, 32))
CHILDREN = ("replicasets", "services", "poddisruptionbudgets")
_WORKERS = 8


@dataclass(frozen=True)
class Row:
    """One line of the table. `limit`: the most that is allowed; None = for information."""

    what: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def good(self) -> bool:
        """Whether it is within its limit."""
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        limit = "" if self.limit is None else f"≤ {self.limit:g} {self.unit}"
        return f"| {self.what} | {self.value:.4g} {self.unit} | {limit} |"


class Field:
    """The cluster with its BlockServers, and the operator over it."""

    def __init__(self, rest: Rest, operator: LocalOperator, models: int) -> None:
        self.rest, self.operator, self.models = rest, operator, models
        self.idle = [f"m{model:03}-s4" for model in range(models)]

    def create(self) -> None:
        """All BlockServers, while no operator runs."""
        made = [
            self._block_server(model, index) for model in range(self.models) for index in range(len(SPANS))
        ]
        with ThreadPoolExecutor(_WORKERS) as workers:
            for answer in workers.map(lambda one: self.rest.call("POST", _path("blockservers"), one), made):
                assert answer.ok, answer

    def _block_server(self, model: int, index: int) -> Object:
        start, end = SPANS[index]
        return {
            "apiVersion": "blockswarm.io/v1alpha1",
            "kind": "BlockServer",
            "metadata": {"name": f"m{model:03}-s{index}", "namespace": SPACE},
            "spec": {
                "model": {
                    "name": f"model-{model:03}",
                    "source": {"hub": {"repo": f"scale/model-{model:03}"}},
                },
                "blocks": {"start": start, "end": end},
                "replicas": 0 if index == 4 else 1,
                "pod": Nodes.POD,
            },
        }

    def edit(self, name: str, **spec: Any) -> None:
        """Change a spec."""
        answer = self.rest.call("PATCH", f"{_path('blockservers')}/{name}", {"spec": spec}, content=MERGE)
        assert answer.ok, answer

    def requests(self) -> float:
        """What the operator has written so far, except its lease."""
        name, count = "blockswarm_operator_api_requests_total", self.operator.metric
        verbs = ("PATCH", "POST", "PUT", "DELETE")
        return sum(count(name, verb=verb) - count(name, verb=verb, resource="leases") for verb in verbs)

    def ready(self) -> int:
        """BlockServers that are Ready, as the operator counts them."""
        return int(self.operator.metric("blockswarm_blockserver_condition", type="Ready", status="True"))


def cold(field: Field, watches: dict[str, Watch]) -> list[Row]:
    """Start the operator over everything; wait until all children are there, and then until all is served."""
    wanted = field.models * len(SPANS)
    began = time.monotonic()
    field.operator.start()
    _wait(lambda: all(len(watch.seen) == wanted for watch in watches.values()), "all children", field)
    applied = max(watch.last for watch in watches.values()) - began
    serving = field.models * (len(SPANS) - 1)
    _wait(lambda: field.ready() == serving, f"{serving} BlockServers Ready", field, every=1.0)
    ready = time.monotonic() - began
    return [
        Row(f"cold start until the last child of {wanted} BlockServers is applied", applied, "s", 60),
        Row(f"... until {serving} of them, which have servers, are Ready", ready, "s"),
    ]


def still(field: Field, seconds: float) -> list[Row]:
    """What it costs when nothing changes but the records' times."""
    _quiet(field)
    requests, cpu = field.requests(), _cpu(field.operator.pid)
    threading.Event().wait(seconds)
    used = (_cpu(field.operator.pid) - cpu) / seconds
    return [
        Row("CPU at rest", 100 * used, "% of one core"),
        Row("requests a second at rest", (field.requests() - requests) / seconds, ""),
    ]


def edits(field: Field, changes: Watch, rate: float, seconds: float) -> list[Row]:
    """Edit specs at a steady rate; each names a template that the ReplicaSet must get."""
    before, began, count = field.requests(), time.monotonic(), int(rate * seconds)
    sent: dict[int, float] = {}

    def one(number: int) -> None:
        field.edit(field.idle[number % len(field.idle)], restart=f"edit-{number}")
        sent[number] = time.monotonic()

    with ThreadPoolExecutor(_WORKERS) as workers:
        for number in range(count):
            threading.Event().wait(max(0.0, began + number / rate - time.monotonic()))
            workers.submit(one, number)
    assert len(sent) == count, f"{count - len(sent)} edits failed"

    def written(number: int) -> float | None:
        """When this edit, or a later one of the same spec, was seen in the ReplicaSet."""
        same = range(number, count, len(field.idle))
        name = field.idle[number % len(field.idle)]
        times = [changes.texts.get((name, f"edit-{later}")) for later in same]
        return min((at for at in times if at is not None), default=None)

    _wait(lambda: all(written(number) for number in sent), "all edits written", field, every=1.0)
    latencies = sorted(1000 * ((written(number) or 0) - at) for number, at in sent.items())
    _quiet(field)
    each = (field.requests() - before) / count
    return [
        Row(f"edit to write at {rate:g} edits a second, median", statistics.median(latencies), "ms"),
        Row("... p99", latencies[int(0.99 * len(latencies))], "ms", 250),
        Row("requests an edit", each, "", 2),
    ]


def rollouts(field: Field, count: int) -> list[Row]:
    """Restart one server of each of some models: a substitute comes, and the old one leaves."""
    _quiet(field)
    before, began = field.requests(), time.monotonic()
    names = [f"m{model:03}-s0" for model in range(min(count, field.models))]
    for name in names:
        field.edit(name, restart="rollout")
    done = lambda: all(_rolled(field, name) for name in names)  # noqa: E731
    _wait(done, "all rollouts complete", field, every=1.0)
    seconds = time.monotonic() - began
    _quiet(field)
    each = (field.requests() - before) / len(names)
    return [
        Row(f"{len(names)} last servers restarted at once, all moved after", seconds, "s"),
        Row("requests a moved server", each, ""),
    ]


def _rolled(field: Field, name: str) -> bool:
    one = field.rest.call("GET", f"{_path('blockservers')}/{name}").json()
    status = one.get("status", {})
    reasons = {item["type"]: item["reason"] for item in status.get("conditions", ())}
    new = status.get("observedGeneration") == one["metadata"]["generation"]
    return new and reasons.get("Progressing") == "Complete" and status.get("updatedReplicas") == 1


def _quiet(field: Field) -> None:
    """Wait until two seconds pass without a request."""

    def quiet() -> bool:
        before = field.requests()
        threading.Event().wait(2)
        return field.requests() == before

    _wait(quiet, "no more requests", field)


def _wait(done: Callable[[], bool], what: str, field: Field, *, every: float = 0.1) -> None:
    def safe() -> bool:
        try:
            return done()
        except OSError:
            return False

    until(safe, what, timeout=300, every=every, state=field.operator.log)


def _cpu(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


def _memory(pid: int) -> float:
    """The most that was resident at any time, MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _path(plural: str) -> str:
    return f"/apis/blockswarm.io/v1alpha1/namespaces/{SPACE}/{plural}"


@contextmanager
def started(cluster: Cluster) -> Iterator[Kubectl]:
    """The cluster with the CRD and the namespace."""
    try:
        cluster.up(nodes=1)
        crd: Object = yaml.safe_load((REPOSITORY / "manifests" / "crds" / "blockservers.yaml").read_text())
        cluster.kubectl.apply(crd, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        name = f"crd/{crd['metadata']['name']}"
        cluster.kubectl.run("wait", "--for=condition=Established", name, "--timeout=30s")
        yield cluster.kubectl
    finally:
        if not cluster.keep:
            cluster.down()


def main() -> int:
    """Run the benchmark; the exit status."""
    parser = argparse.ArgumentParser(
        prog="operator_scale", description="The operator over 1,000 BlockServers."
    )
    parser.add_argument(
        "--models", type=int, default=200, help="models of 5 BlockServers each (default: 200)"
    )
    parser.add_argument("--rate", type=float, default=20, help="edits a second (default: 20)")
    parser.add_argument("--seconds", type=float, default=60, help="how long edits go on (default: 60)")
    parser.add_argument("--rollouts", type=int, default=50, help="servers restarted at once (default: 50)")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    cluster = choose_cluster()
    with (
        tempfile.TemporaryDirectory() as folder,
        started(cluster) as kubectl,
        Rest(kubectl) as rest,
        FakeDirectory() as directory,
        kwok(cluster, Path(folder)),
        Watch(rest, f"/apis/apps/v1/namespaces/{SPACE}/replicasets") as replica_sets,
        Watch(rest, f"/api/v1/namespaces/{SPACE}/services") as services,
        Watch(rest, f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets") as budgets,
        Servers(rest, directory, SPACE, blocks=32),
    ):
        Nodes(rest).create(pods=options.models * len(SPANS))
        operator = LocalOperator(Path(folder), str(cluster.kubeconfig), directory.target, namespace=SPACE)
        field = Field(rest, operator, options.models)
        field.create()
        rows: list[Row] = []
        watches = dict(zip(CHILDREN, (replica_sets, services, budgets), strict=True))
        try:
            for step in (
                lambda: cold(field, watches),
                lambda: still(field, 20),
                lambda: edits(field, replica_sets, options.rate, options.seconds),
                lambda: rollouts(field, options.rollouts),
                lambda: [Row("memory of the process, at most", _memory(operator.pid), "MiB", 192)],
            ):
                for row in step():
                    rows.append(row)
                    print(row, flush=True)
        finally:
            operator.stop()
    if options.json is not None:
        options.json.write_text(json.dumps([vars(row) for row in rows], indent=1))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
