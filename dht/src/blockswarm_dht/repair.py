"""Keeps a node connected: to each bootstrap peer, for ever.

A hivemind node forgets a peer at its first unanswered call and never looks for it again. This loop pings every
bootstrap peer, connects to those that are missing, and tells when one came back, so that what the node had announced
can be stored again: a directory that restarted remembers nothing. Two DHTs that started apart become one the same
way, because each knows a peer of the other and does not stop trying.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from blockswarm_dht.hivemind_core import DHTID, Multiaddr, PeerID
from blockswarm_wire.errors import InvalidArgument

logger = logging.getLogger(__name__)

FindPeers = Callable[[], Awaitable[list[str]]]

_MIN_PAUSE = 0.25
_MAX_PAUSE = 3.0
_PROBE_SECONDS = 1.0
_CONNECT_SECONDS = 4.0


def parse_peer(text: str) -> tuple[Any, Any]:
    """Peer id and address of a multiaddr such as /ip4/10.0.0.5/tcp/31341/p2p/12D3Koo….

    Raises:
        InvalidArgument: it is not a TCP multiaddr with a peer id.
    """
    try:
        whole = Multiaddr(text)
        peer_id = PeerID.from_base58(whole["p2p"])
        address = whole.decapsulate(Multiaddr(f"/p2p/{whole['p2p']}"))
        port = address["tcp"]
    except Exception as error:  # hivemind raises many kinds, one for each way to be wrong
        raise InvalidArgument(
            f"--peer {text[:120]!r} is not a multiaddr of the form /ip4/HOST/tcp/PORT/p2p/ID ({type(error).__name__})"
        ) from None
    assert port
    return peer_id, address


class RepairLoop:
    """Pings and re-connects the bootstrap peers of `node` until `close`.

    Args:
        node: a hivemind DHTNode with its P2P.
        peers: multiaddrs known from the start.
        find_peers: asked for more multiaddrs whenever a peer is missing; its failures are logged and survived.
        on_joined: awaited after at least one missing peer came (back).
    """

    def __init__(
        self,
        node: Any,
        peers: Iterable[str],
        *,
        find_peers: FindPeers | None = None,
        on_joined: Callable[[], Awaitable[None]],
    ) -> None:
        self._node = node
        self._find_peers = find_peers
        self._on_joined = on_joined
        self._given: dict[Any, Any] = {}
        self._found: dict[Any, Any] = {}
        self._present: set[Any] = set()
        self._task: asyncio.Task[None] | None = None
        self._first_round = asyncio.Event()
        self._given = self._parse(peers)

    def _parse(self, peers: Iterable[str]) -> dict[Any, Any]:
        parsed = dict(parse_peer(text) for text in peers)
        parsed.pop(self._node.peer_id, None)
        return parsed

    @property
    def _known(self) -> dict[Any, Any]:
        return {**self._given, **self._found}

    @property
    def has_sources(self) -> bool:
        """Whether there is anybody to look for, now or later."""
        return bool(self._known) or self._find_peers is not None

    @property
    def present(self) -> int:
        """Bootstrap peers that answered the last ping."""
        return len(self._present)

    @property
    def known(self) -> int:
        """Bootstrap peers that this node looks for."""
        return len(self._known)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="dht repair")

    async def first_round(self, timeout: float) -> None:
        """Return after every peer was tried once, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._first_round.wait()
        except TimeoutError:
            logger.info("some DHT peers did not answer yet; going on without them")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause = _MIN_PAUSE
        while True:
            try:
                came = await self._round()
                complete = len(self._present) == len(self._known) and bool(self._known)
                pause = _MAX_PAUSE if complete else min(pause * 1.5, _MAX_PAUSE)
                if came:
                    pause = _MIN_PAUSE
                    await self._on_joined()
            except Exception:
                # This loop is what brings the node back; no single failure may end it.
                logger.exception("a round of DHT repair failed")
            self._first_round.set()
            await asyncio.sleep(pause)

    async def _round(self) -> bool:
        if self._find_peers is not None and (not self._known or len(self._present) < len(self._known)):
            try:
                # The newest answer replaces the older ones: a directory may have come back under another identity.
                self._found = self._parse(await asyncio.wait_for(self._find_peers(), _CONNECT_SECONDS))
            except Exception as error:
                logger.debug("no DHT peers from the directory: %s", error)
        peers = list(self._known.items())
        here = await asyncio.gather(*(self._reach(peer_id, address) for peer_id, address in peers))
        now = {peer_id for (peer_id, _), good in zip(peers, here, strict=True) if good}
        came, left = now - self._present, self._present - now
        self._present = now
        for peer_id in left:
            logger.warning("DHT peer lost", extra={"peer": str(peer_id)})
        if came:
            await self._meet_neighbours()
            for peer_id in came:
                logger.info("DHT peer joined", extra={"peer": str(peer_id)})
        return bool(came)

    async def _reach(self, peer_id: Any, address: Any) -> bool:
        """True if the peer answers a ping now, connecting to it first where needed."""
        if peer_id in self._present and await self._ping(peer_id):
            return True
        # p2pd refuses to dial a peer again for longer and longer after each failure (up to 5 minutes), so it is only
        # asked to once something listens there.
        if not await _listens(address):
            return False
        try:
            await asyncio.wait_for(self._node.p2p._client.connect(peer_id, [address]), _CONNECT_SECONDS)
        except Exception as error:
            logger.debug("cannot connect to DHT peer: %s", error, extra={"peer": str(peer_id)})
            return False
        return await self._ping(peer_id)

    async def _ping(self, peer_id: Any) -> bool:
        node = self._node
        found = await node.protocol.call_ping(peer_id)
        if found is None:
            return False
        # hivemind does this in a task of its own; searches that follow at once need it done.
        await node.protocol.update_routing_table(found, peer_id, responded=True)
        # hivemind skips a peer in searches for 5 s × 2^failures after it was silent; it has just spoken.
        node.blacklist.register_success(peer_id)
        return True

    async def _meet_neighbours(self) -> None:
        """Search for our own id, which fills the routing table with the peers nearest to us."""
        try:
            await asyncio.wait_for(
                self._node.find_nearest_nodes([DHTID(self._node.node_id)]), _CONNECT_SECONDS
            )
        except TimeoutError:
            logger.debug("search for DHT neighbours timed out")


async def _listens(address: Any) -> bool:
    """Whether a TCP connection to the multiaddr opens."""
    protocols = {protocol.name: value for protocol, value in address.items()}
    host = next(
        (protocols[name] for name in ("ip4", "ip6", "dns4", "dns6", "dns") if name in protocols), None
    )
    if host is None:
        return True
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(host, int(protocols["tcp"])), _PROBE_SECONDS
        )
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
