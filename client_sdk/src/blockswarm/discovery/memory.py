"""What was seen of a model's servers, so that a source that is away or has forgotten does not empty the view. Pure.

A record counts until it expires, whether or not the latest answer holds it: a server that leaves says OFFLINE, and a
directory that has just restarted knows nobody until the servers announce themselves again. While the source is away
nothing expires; when it is back, the servers have GRACE_SECONDS to be heard of.
"""

from collections.abc import Iterable
from typing import TypeVar

from blockswarm.discovery.views import Pair, merged
from blockswarm_wire.record import ServerRecord, ServerView, Statement

_T = TypeVar("_T", ServerRecord, Statement)

# Longer than a server takes to find the returned directory (3 s) and to announce itself (10 s).
GRACE_SECONDS = 15.0


class Memory:
    """The newest record and statement of each server, by model key. Times are Unix seconds."""

    def __init__(self) -> None:
        self._pairs: dict[str, dict[str, Pair]] = {}
        self._views: dict[str, list[ServerView]] = {}
        self._away_since: float | None = None
        # Until `_grace_until`, what expired after `_expired_from` still counts.
        self._grace_until = 0.0
        self._expired_from = 0.0

    @property
    def stale(self) -> bool:
        """Whether the source is away."""
        return self._away_since is not None

    def away(self, now: float) -> None:
        """The source does not answer."""
        if self._away_since is None:
            self._away_since = now if now >= self._grace_until else self._expired_from

    def update(self, key: str, answer: Iterable[Pair], now: float) -> list[ServerView]:
        """Take the source's answer; the servers that count now, by id."""
        if self._away_since is not None:
            self._expired_from, self._grace_until = self._away_since, now + GRACE_SECONDS
            self._away_since = None
        known = self._pairs.setdefault(key, {})
        for record, statement in answer:
            item = record or statement
            if item is not None:
                before = known.get(item.server_id, (None, None))
                known[item.server_id] = (_newer(before[0], record), _newer(before[1], statement))
        at = min(self._expired_from, now) if now < self._grace_until else now
        for server_id, pair in list(known.items()):
            if all(half is None or half.expires_at <= at for half in pair):
                del known[server_id]
        self._views[key] = merged(known.values(), now=at)
        return list(self._views[key])

    def recall(self, key: str) -> list[ServerView] | None:
        """The servers that counted last; None = this model was never seen."""
        views = self._views.get(key)
        return None if views is None else list(views)


def _newer(old: _T | None, new: _T | None) -> _T | None:
    if old is None or new is None:
        return new if old is None else old
    return new if new.issued_at >= old.issued_at else old
