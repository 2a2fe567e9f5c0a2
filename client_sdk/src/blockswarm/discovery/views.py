"""From records and statements to what counts of a server. Pure; the same for both doors."""

from collections.abc import Iterable

from blockswarm_wire.record import ServerRecord, ServerView, Statement, merge

Pair = tuple[ServerRecord | None, Statement | None]


def merged(pairs: Iterable[Pair], *, now: float) -> list[ServerView]:
    """The servers that count at `now` (Unix seconds), sorted by id."""
    views = (merge(record, statement, now=now) for record, statement in pairs)
    return sorted((view for view in views if view is not None), key=lambda view: view.server_id)


def identity(views: Iterable[ServerView]) -> tuple[tuple[object, ...], ...]:
    """What a route depends on: who there is and in which state; load figures are not in it."""
    return tuple(
        (view.server_id, view.state)
        + (
            (view.record.instance, view.record.address, view.record.start, view.record.end)
            if view.record
            else ()
        )
        for view in views
    )
