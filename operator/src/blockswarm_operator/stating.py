"""Statements to the directory about servers of one model: who joins, leaves or is gone, and who must be asked first."""

import asyncio
import logging
import time

from blockswarm_operator.directory import Directory, DirectoryUnreachable
from blockswarm_operator.observe import Look
from blockswarm_operator.publish import due, statements
from blockswarm_operator.view import Key, View
from blockswarm_wire.record import State

logger = logging.getLogger(__name__)


class Speaker:
    """Says what servers cannot say themselves. Remembers servers until it is known that they are gone."""

    def __init__(self, view: View, directory: Directory) -> None:
        self._view = view
        self._directory = directory
        self._there: dict[Key, set[str]] = {}

    async def state(self, key: Key, seen: Look) -> bool:
        """State what is due; False when nobody took it."""
        known = self._directory.known(key[1])
        there = self._there.setdefault(key, _told_before(seen))
        there |= {server.pod.uid for server in seen.servers}
        gone = there - {pod.uid for pod in self._view.pods_of(key)}
        dead = await self._dead(seen)
        now = time.time()
        views = known.views(now)
        staying = {s.pod.uid for s in seen.servers if not s.pod.deleting and not s.pod.gone}
        said = statements(seen.servers, views, vanished=gone, dead=dead, now=now)
        try:
            await self._directory.publish(key[1], due(said, known.stated, staying=staying, now=now))
        except DirectoryUnreachable as error:
            logger.warning("statements not taken", extra={"model": key[1], "error": str(error)})
            return False
        if known.heard:
            there -= {one for one in gone if one not in views or views[one].state is State.OFFLINE}
        return True

    def forget(self, key: Key) -> None:
        """The model has no BlockServer any more."""
        self._there.pop(key, None)

    async def _dead(self, seen: Look) -> set[str]:
        """Servers on lost nodes that do not answer: a node may look lost because the API server was away."""
        doubtful = {
            server.pod.uid: server.view.record.address
            for server in seen.servers
            if server.lost and server.view is not None and server.view.record is not None
        }
        answers = await asyncio.gather(*(self._directory.healthy(address) for address in doubtful.values()))
        return {uid for uid, alive in zip(doubtful, answers, strict=True) if not alive}


def _told_before(seen: Look) -> set[str]:
    """Servers that the statuses name: those that a former process knew of."""
    rows = [row for one in seen.asks for row in one.resource.status.get("servers") or ()]
    return {str(row["serverId"]) for row in rows if row.get("serverId")}
