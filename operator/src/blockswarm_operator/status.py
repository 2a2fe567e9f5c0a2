"""The status of a BlockServer, and when a change of it is worth writing."""

from collections.abc import Mapping, Sequence
from typing import Any

from blockswarm_operator import names
from blockswarm_operator.conditions import Condition, dated, worst
from blockswarm_operator.coverage import Server
from blockswarm_wire.span import Span

# Occupancy and sessions change with every step of every session; people and autoscalers do not look that often.
QUIET_SECONDS = 30.0
QUIET_POINTS = 5
_MAX_SERVERS = 1000
# What the resource definition takes at most: a server may say anything of itself.
_MAX_COUNT, _MAX_TOKENS, _MAX_PERCENT = 2**31 - 1, 2**53, 1000


def status(
    name: str,
    span: Span,
    replicas: int,
    template: str,
    servers: Sequence[Server],
    found: Sequence[Condition],
    *,
    blind: bool,
    before: Mapping[str, Any],
    generation: int,
    now: str,
) -> dict[str, Any]:
    """The whole status of one BlockServer.

    Args:
        template: hash of the newest template.
        servers: of this BlockServer.
        found: its conditions.
        blind: the directory cannot be believed: what only it knows stays as it was.
        before: the status as it lies in the cluster.
        now: RFC 3339.
    """
    alive = [s for s in servers if not s.pod.deleting and not s.pod.gone]
    online = [s for s in alive if s.online]
    conditions = dated(found, before.get("conditions") or (), generation=generation, now=now)
    if blind:
        known = min(int(before.get("readyReplicas") or 0), sum(s.pod.ready for s in alive))
        kv, sessions = before.get("kv") or _kv(alive), int(before.get("sessions") or 0)
        rows = [row for row in before.get("servers") or () if row["pod"] in {s.pod.name for s in alive}]
    else:
        known, kv = len(online), _kv(alive)
        sessions = min(sum(s.sessions for s in alive), _MAX_COUNT)
        rows = [_server(s) for s in servers if not s.pod.gone]
    nodes = sorted({s.pod.node for s in alive if s.pod.node})
    return {
        "observedGeneration": generation,
        "replicas": len(alive),
        "readyReplicas": known,
        "updatedReplicas": sum(s.pod.template == template for s in alive),
        "selector": f"{names.BLOCK_SERVER}={name}",
        "blocks": str(span),
        "ready": f"{known}/{replicas}",
        "sessions": sessions,
        "nodes": ",".join(nodes)[:4000],
        "reason": worst(conditions),
        "kv": kv,
        "conditions": conditions,
        "servers": rows[:_MAX_SERVERS],
    }


def worth_writing(after: Mapping[str, Any], before: Mapping[str, Any], *, age: float) -> bool:
    """Whether to write: anything but load changed, or load changed by much and was not written lately.

    Args:
        age: seconds since the last write.
    """
    if _without_load(after) != _without_load(before):
        return True
    if age < QUIET_SECONDS:
        return False
    if after["sessions"] != before.get("sessions"):
        return True
    return abs(_points(after) - _points(before)) >= QUIET_POINTS or (_points(after) == 0) != (
        _points(before) == 0
    )


def _without_load(status: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in status.items() if key not in ("sessions", "kv")}
    kept["servers"] = [
        {key: value for key, value in server.items() if key not in ("sessions", "occupancy")}
        for server in status.get("servers") or ()
    ]
    kept["capacity"] = (status.get("kv") or {}).get("capacityTokens")
    return kept


def _points(status: Mapping[str, Any]) -> int:
    text = str((status.get("kv") or {}).get("occupancy") or "0%").rstrip("%")
    return int(text) if text.isdigit() else 0


def _kv(servers: Sequence[Server]) -> dict[str, Any]:
    records = [s.view.record for s in servers if s.view is not None and s.view.record is not None]
    capacity = sum(record.kv_capacity for record in records)
    promised = sum(record.kv_promised for record in records)
    return {
        "capacityTokens": min(capacity, _MAX_TOKENS),
        "promisedTokens": min(promised, _MAX_TOKENS),
        "usedTokens": min(sum(record.kv_used for record in records), _MAX_TOKENS),
        "occupancy": f"{_percent(promised, capacity)}%",
    }


def _server(server: Server) -> dict[str, Any]:
    record = server.view.record if server.view is not None else None
    return {
        "pod": server.pod.name,
        "node": server.pod.node,
        "serverId": server.pod.uid,
        "state": str(server.view.state) if server.view is not None else "",
        "sessions": min(server.sessions, _MAX_COUNT),
        "occupancy": _percent(record.kv_promised, record.kv_capacity) if record is not None else 0,
    }


def _percent(part: int, whole: int) -> int:
    return min(round(100 * part / whole), _MAX_PERCENT) if whole else 0
