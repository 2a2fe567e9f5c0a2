"""Events for what a person should see: a condition that turned, a lost node, a gap that was allowed."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from blockswarm_operator import names
from blockswarm_operator.conditions import Condition

# Changes of these reasons are told; the others change with every ordinary start.
_WARNINGS = {
    "InvalidSpec", "Unschedulable", "ImagePullFailed", "ModelInvalid", "OutOfMemory", "CrashLoop", "ConfigError",
    "DirectoryUnreachable", "NoServerOnline", "NoSpareCapacity", "NameTaken", "TemplateChanged", "NodeLost",
    "GapAllowed", "Refused", "CannotEvict",
}  # fmt: skip
_NORMAL = {
    ("Ready", "ServerOnline"), ("Ready", "ScaledToZero"), ("Progressing", "RollingOut"), ("Progressing", "Complete"),
}  # fmt: skip


def turned(found: Sequence[Condition], before: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(reason, message) of conditions whose reason changed to one that a person should see."""
    old = {item["type"]: item["reason"] for item in before}
    told = []
    for one in found:
        known = one.reason in _WARNINGS or (one.type, one.reason) in _NORMAL
        first_calm = one.type not in old and one.reason not in _WARNINGS
        waiting = one.reason == "NoServerOnline" and old.get(one.type) in (None, "ScaledToZero")
        if known and old.get(one.type) != one.reason and not first_calm and not waiting:
            told.append((one.reason, one.message))
    return told


def event(
    namespace: str,
    name: str,
    uid: str,
    reason: str,
    message: str,
    *,
    identity: str,
    now: datetime | None = None,
) -> dict[str, Any]:
    """An Event about a BlockServer, as the API takes it."""
    moment = now or datetime.now(UTC)
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{int(moment.timestamp() * 1e6):x}", "namespace": namespace},
        "eventTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if reason in _WARNINGS else "Normal",
        "reason": reason,
        "action": "Reconcile",
        "note": message[:1000],
        "reportingController": names.MANAGER,
        "reportingInstance": identity[:120],
        "regarding": {
            "apiVersion": "blockswarm.io/v1alpha1",
            "kind": "BlockServer",
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
    }
