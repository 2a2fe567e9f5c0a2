"""What the operator's tests are about: pods, records, servers, budgets, BlockServers, made with few words."""

import copy
from dataclasses import replace
from typing import Any

from blockswarm_operator import names
from blockswarm_operator.coverage import Server
from blockswarm_operator.handlers import resource
from blockswarm_operator.observed import Budget, Node, Pod
from blockswarm_operator.settings import Settings
from blockswarm_operator.view import Key, Resource
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.record import ServerRecord, ServerView, State, Statement, merge
from blockswarm_wire.span import Span

NOW = 1_000_000.0
FINGERPRINT = "ab" * 32
MODEL_KEY = model_key("demo", FINGERPRINT)
SETTINGS = Settings(directory="dns:///directory.system.svc:31340", server_image="example.org/server:1")


def pod(name: str, bs: str = "first", group: str = "", **values: Any) -> Pod:
    """A running pod that is ready, of BlockServer `bs`."""
    fields: dict[str, Any] = {
        "namespace": "models",
        "name": name,
        "uid": f"uid-{name}",
        "block_server": bs,
        "model": "m",
        "group": group or f"group-{bs}",
        "template": "new",
        "node": "node-1",
        "ip": "10.0.0.1",
        "phase": "Running",
        "created": 100.0,
        "directory": SETTINGS.directory,
        "ready": True,
        "started": True,
    }
    return Pod(**fields | values)


def record(server_id: str, span: Span, **values: Any) -> ServerRecord:
    """What a server says about itself."""
    fields: dict[str, Any] = {
        "server_id": server_id,
        "state": State.ONLINE,
        "model": "demo",
        "num_blocks": 100,
        "start": span.start,
        "end": span.end,
        "address": "10.0.0.1:31330",
        "instance": f"run-{server_id}",
        "fingerprint": FINGERPRINT,
        "issued_at": NOW,
        "kv_capacity": 1000,
    }
    return ServerRecord(**fields | values)


def server(
    name: str,
    span: str = "0:10",
    *,
    state: State | None = State.ONLINE,
    sessions: int = 0,
    cordoned: bool = False,
    lost: bool = False,
    stated: State | None = None,
    kv_promised: int = 0,
    **of_pod: Any,
) -> Server:
    """A server that is online. `state`: what it says itself, None = nothing; `stated`: what the operator stated."""
    of = pod(name, **of_pod)
    where = Span.parse(span)
    said = (
        record(of.uid, where, state=state, sessions=sessions, kv_promised=kv_promised)
        if state is not None
        else None
    )
    statement = None
    if stated is not None:
        statement = Statement(
            server_id=of.uid, state=stated, instance=said.instance if said else "", issued_at=NOW
        )
    node = Node(name=of.node, ready="Unknown" if lost else "True", cordoned=cordoned)
    return Server(pod=of, span=where, node=node, view=merge(said, statement, now=NOW))


def view(one: Server) -> ServerView:
    """What the directory shows of a server that it knows."""
    assert one.view is not None
    return one.view


def budget(group: str, floor: int, healthy: int, *, settled: bool = True) -> Budget:
    """A disruption budget as it lies in the cluster."""
    return Budget(
        kind="PodDisruptionBudget",
        namespace="models",
        name=names.budget_name(group),
        uid=f"uid-{group}",
        model="m",
        block_server="",
        generation=1,
        applied="",
        group=group,
        min_available=floor,
        current_healthy=healthy,
        settled=settled,
    )


def block_server(name: str = "first", **spec: Any) -> dict[str, Any]:
    """A BlockServer as the API server gives it; `spec` is merged into a small one."""
    body: dict[str, Any] = {
        "apiVersion": "blockswarm.io/v1alpha1",
        "kind": "BlockServer",
        "metadata": {"name": name, "namespace": "models", "uid": f"uid-of-{name}", "generation": 1},
        "spec": {
            "model": {"name": "demo", "source": {"hub": {"repo": "org/demo"}}},
            "blocks": {"start": 0, "end": 10},
        },
    }
    return _merged(body, {"spec": spec})


def lane(body: dict[str, Any]) -> Key:
    """The lane of a BlockServer."""
    return resource(body)[0]


def read(body: dict[str, Any], **values: Any) -> Resource:
    """A BlockServer as the operator holds it."""
    return replace(resource(body)[1], **values)


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    out = copy.deepcopy(one)
    for key, value in other.items():
        out[key] = (
            _merged(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
        )
    return out
