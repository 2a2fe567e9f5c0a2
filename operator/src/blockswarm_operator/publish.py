"""What the operator states about servers: the things that a server cannot say itself."""

from collections.abc import Collection, Iterable, Mapping

from blockswarm_operator.coverage import Server
from blockswarm_wire.record import ServerRecord, ServerView, State, Statement

# A quiet model is looked at every 15 s, and a statement lasts 30 s.
REFRESH_SECONDS = 10.0


def statements(
    servers: Iterable[Server],
    views: Mapping[str, ServerView],
    *,
    vanished: Iterable[str],
    dead: Iterable[str],
    now: float,
) -> dict[str, Statement]:
    """Server id → statement, for all about whom there is something to say.

    Args:
        servers: whose pods exist.
        views: by server id, as the directory shows them.
        vanished: ids of servers whose pods existed and do not any more.
        dead: ids of servers on lost nodes that did not answer a health call.
        now: Unix seconds.
    """
    gone, said = set(vanished), {}
    silent = set(dead)
    for server in servers:
        found = _about(server, silent)
        if found is None:
            continue
        state, reason = found
        said[server.pod.uid] = _statement(server.pod.uid, state, reason, views.get(server.pod.uid), now)
    for server_id in gone:
        view = views.get(server_id)
        if view is not None and view.record is not None:
            said[server_id] = _statement(server_id, State.OFFLINE, "its pod is gone", view, now)
    return said


def _about(server: Server, silent: set[str]) -> tuple[State, str] | None:
    pod, record = server.pod, server.view.record if server.view is not None else None
    if record is None:
        # Failed pods, and those of lost nodes, may lie about for days: nobody waits for them.
        # Those of another directory are not on their way to this one.
        if pod.gone or pod.deleting or server.lost or server.stranded:
            return None
        return State.JOINING, "its pod is " + ("loading" if pod.started else "pending")
    if pod.gone:
        return State.OFFLINE, f"its pod is {pod.phase}"
    if server.lost and pod.uid in silent:
        return State.OFFLINE, f"node {pod.node} is lost"
    if pod.deleting:
        return State.DRAINING, "its pod is being deleted"
    if server.cordoned:
        return State.DRAINING, f"node {pod.node} is cordoned"
    return None


def _statement(server_id: str, state: State, reason: str, view: ServerView | None, now: float) -> Statement:
    record: ServerRecord | None = view.record if view is not None else None
    # OFFLINE and DRAINING name the process they are about: its successor must not inherit them.
    instance = record.instance if record is not None and state is not State.JOINING else ""
    return Statement(server_id=server_id, state=state, instance=instance, reason=reason[:200], issued_at=now)


def due(
    wanted: Mapping[str, Statement], sent: Mapping[str, Statement], *, staying: Collection[str], now: float
) -> dict[str, Statement]:
    """Those to send now: new ones and changed ones at once, JOINING and DRAINING again after a while, OFFLINE once.

    A DRAINING that is no longer true is taken back by JOINING, which says nothing about a server that has a record.

    Args:
        wanted: what is true, by server id.
        sent: what was stated last.
        staying: ids of servers whose pods exist and run.
        now: Unix seconds.
    """
    out = {}
    for server_id, statement in wanted.items():
        before = sent.get(server_id)
        changed = before is None or (before.state, before.instance) != (statement.state, statement.instance)
        old = before is not None and now - before.issued_at >= REFRESH_SECONDS
        if changed or (old and statement.state is not State.OFFLINE):
            out[server_id] = statement
    for server_id, before in sent.items():
        if server_id not in wanted and server_id in staying and before.state is State.DRAINING:
            out[server_id] = Statement(
                server_id=server_id, state=State.JOINING, reason="drain taken back", issued_at=now
            )
    return out
