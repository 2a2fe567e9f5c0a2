"""What the API server shows of pods, nodes and children, cut down to what decisions need."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from blockswarm_operator import names

Body = Mapping[str, Any]
_OPTION = "--directory="
# Characters kept of what a container said last.
_WORDS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of a BlockServer. `created`: Unix seconds. `trouble`: why its container does not run, as (reason, text).

    `directory`: the target to which its server announces itself.
    """

    namespace: str
    name: str
    uid: str
    block_server: str
    model: str
    group: str
    template: str
    node: str
    ip: str
    phase: str
    created: float
    directory: str = ""
    ready: bool = False
    started: bool = False
    deleting: bool = False
    deletion_cost: int | None = None
    unschedulable: str = ""
    trouble: tuple[str, str] | None = None
    restarts: int = 0

    @property
    def gone(self) -> bool:
        """Whether its process has ended for good."""
        return self.phase in ("Failed", "Succeeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node. `ready`: "True", "False" or "Unknown" (nothing heard of it)."""

    name: str
    uid: str = ""
    ready: str = "True"
    cordoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """An object that the operator applied.

    `labels`: those that the operator sets. `owners`: uids. `foreign`: managers that own a part of its spec besides us.
    `replicas`: of a ReplicaSet. `failure`: why it cannot create pods, "" = it can.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    model: str
    block_server: str
    generation: int
    applied: str
    labels: tuple[tuple[str, str], ...] = ()
    owners: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    deleting: bool = False
    replicas: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Child):
    """A PodDisruptionBudget. `settled`: its controller has seen this generation and no eviction is under way."""

    group: str = ""
    min_available: int = 0
    current_healthy: int = 0
    settled: bool = False


def pod(body: Body) -> Pod:
    """A pod from its object."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    labels = meta.get("labels") or {}
    conditions = {item["type"]: item for item in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    container = _server_in(status.get("containerStatuses"))
    cost = (meta.get("annotations") or {}).get(names.DELETION_COST)
    return Pod(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        block_server=labels.get(names.BLOCK_SERVER, ""),
        model=labels.get(names.MODEL, ""),
        group=labels.get(names.SPAN_GROUP, ""),
        template=labels.get(names.TEMPLATE, ""),
        node=spec.get("nodeName") or "",
        ip=status.get("podIP") or "",
        phase=status.get("phase") or "Pending",
        created=seconds(meta.get("creationTimestamp")),
        directory=_directory(spec),
        ready=conditions.get("Ready", {}).get("status") == "True",
        started=bool((container.get("state") or {}).get("running")),
        deleting=bool(meta.get("deletionTimestamp")),
        deletion_cost=int(cost) if cost and cost.lstrip("-").isdigit() else None,
        unschedulable=scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else "",
        trouble=_trouble(container),
        restarts=int(container.get("restartCount") or 0),
    )


def node(body: Body) -> Node:
    """A node from its object."""
    conditions = {item["type"]: item for item in (body.get("status") or {}).get("conditions") or ()}
    return Node(
        name=body["metadata"]["name"],
        uid=body["metadata"].get("uid", ""),
        ready=conditions.get("Ready", {}).get("status", "Unknown"),
        cordoned=bool((body.get("spec") or {}).get("unschedulable")),
    )


def child(body: Body, kind: str) -> Child:
    """An applied object, of whatever kind."""
    return Child(**_child(body, kind))


def budget(body: Body) -> Budget:
    """A PodDisruptionBudget from its object."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    wanted = spec.get("minAvailable")
    return Budget(
        **_child(body, "PodDisruptionBudget"),
        group=(meta.get("labels") or {}).get(names.SPAN_GROUP, ""),
        min_available=wanted if isinstance(wanted, int) else 0,
        current_healthy=int(status.get("currentHealthy") or 0),
        settled=status.get("observedGeneration") == meta.get("generation")
        and not status.get("disruptedPods"),
    )


def seconds(timestamp: str | None) -> float:
    """Unix seconds of a Kubernetes timestamp; 0 without one."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def _child(body: Body, kind: str) -> dict[str, Any]:
    meta = body["metadata"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    return {
        "kind": kind,
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "model": labels.get(names.MODEL, ""),
        "block_server": labels.get(names.BLOCK_SERVER, ""),
        # Services have no generation: their resourceVersion moves only when somebody writes them.
        "generation": int(meta.get("generation") or meta.get("resourceVersion") or 0),
        "applied": notes.get(names.APPLIED, ""),
        "labels": tuple(sorted((key, labels[key]) for key in names.OWN_LABELS if key in labels)),
        "owners": tuple(sorted(owner["uid"] for owner in meta.get("ownerReferences") or ())),
        "foreign": _foreign(meta.get("managedFields") or ()),
        "deleting": bool(meta.get("deletionTimestamp")),
        "replicas": int((body.get("spec") or {}).get("replicas") or 0),
        "failure": _failure((body.get("status") or {}).get("conditions") or ()),
    }


def _failure(conditions: Any) -> str:
    """What a ReplicaSet says that cannot create pods: a quota, or an admission webhook."""
    found = (one for one in conditions if one["type"] == "ReplicaFailure" and one["status"] == "True")
    return next((str(one.get("message") or one.get("reason") or "")[:500] for one in found), "")


def _foreign(entries: Any) -> tuple[str, ...]:
    """Managers, besides the operator and Kubernetes' own controllers' status, that own a part of the spec."""
    found = set()
    for entry in entries:
        owns_spec = "f:spec" in (entry.get("fieldsV1") or {}) and not entry.get("subresource")
        if owns_spec and entry.get("manager") != names.MANAGER:
            found.add(str(entry.get("manager")))
    return tuple(sorted(found))


def _server_in(containers: Any) -> Body:
    """The server's among containers or their statuses: others may have put theirs beside it."""
    found: Body = next((one for one in containers or () if one.get("name") == names.CONTAINER), {})
    return found


def _directory(spec: Body) -> str:
    """The server's argument --directory, "" without one."""
    container = _server_in(spec.get("containers"))
    given = (
        str(word).removeprefix(_OPTION) for word in container.get("args") or () if word.startswith(_OPTION)
    )
    return next(given, "")


def _last_words(log: str) -> str:
    """The last whole lines of a log, which tell why it ended, as many as fit; of one that is too long its end.

    Lines of the structured log are left out where there are others: a process says in plain words why it ends.
    """
    lines = log.strip().splitlines()
    text = "\n".join([line for line in lines if not line.startswith("{")] or lines)
    if len(text) <= _WORDS:
        return text
    end = text[-_WORDS:]
    _, cut, whole = end.partition("\n")
    return whole if cut else end


def _trouble(container: Mapping[str, Any]) -> tuple[str, str] | None:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    ended = state.get("terminated") or last.get("terminated")
    waiting = state.get("waiting") or {}
    reason, text = waiting.get("reason", ""), waiting.get("message", "")
    if ended and reason in ("", "CrashLoopBackOff"):
        code = int(ended.get("exitCode") or 0)
        if state.get("running") and code == 0:
            return None
        why = "OOMKilled" if ended.get("reason") == "OOMKilled" else f"Exit{code}"
        return why, _last_words(ended.get("message") or "")
    if reason in ("", "ContainerCreating", "PodInitializing"):
        return None
    return reason, text[:500]
