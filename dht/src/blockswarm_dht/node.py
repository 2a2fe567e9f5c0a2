"""SwarmNode: this process as a member of the DHT."""

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from blockswarm_dht import schema
from blockswarm_dht.address import split_address, to_multiaddr
from blockswarm_dht.daemon import TiedP2P
from blockswarm_dht.hivemind_core import DHTID, DHTNode, P2PDaemonError
from blockswarm_dht.readback import Entry, confirmed
from blockswarm_dht.repair import FindPeers, RepairLoop, parse_peer
from blockswarm_dht.schema import Found
from blockswarm_dht.storage import SafeStorage
from blockswarm_wire import limits
from blockswarm_wire.errors import BlockSwarmError, InvalidArgument, Unreachable
from blockswarm_wire.record import (
    MODELS_KEY,
    ModelEntry,
    ServerRecord,
    Statement,
    block_key,
    check_fresh,
    operator_subkey,
    parse_block_key,
)

logger = logging.getLogger(__name__)

Row = tuple[ServerRecord | None, Statement | None, str]
OnFound = Callable[[Found], None]

# hivemind's default of 3 s makes a store with 2 of 7 peers silent take 6 s; with this one it takes 1 s.
_RPC_SECONDS = 0.5
_STORE_SECONDS = 8.0
_LOOKUP_SECONDS = 8.0
_FIRST_ROUND_SECONDS = 3.0


class SwarmNode:
    """One DHT member inside the running event loop. Make it with `create`, end it with `shutdown`.

    on_p2pd_death: set it to be told once, with p2pd's exit status, when the daemon ends before `shutdown`.
    on_found: set it to be told of every record or statement that this node is asked to keep for the DHT.
    """

    def __init__(self, p2p: Any, node: Any, storage: SafeStorage) -> None:
        self._p2p = p2p
        self._node = node
        self._storage = storage
        self._repair: RepairLoop | None = None
        self._watch: asyncio.Task[None] | None = None
        self._own: dict[tuple[str, str], Entry] = {}
        self._peers: list[str] = []
        self._closing = False
        self.on_p2pd_death: Callable[[int], None] | None = None
        self.on_found: OnFound | None = None

    @classmethod
    async def create(
        cls,
        *,
        listen: str | None,
        announce: str | None = None,
        initial_peers: Sequence[str] = (),
        find_peers: FindPeers | None = None,
        identity_path: str | os.PathLike[str] | None = None,
        client_mode: bool = False,
    ) -> Self:
        """Start p2pd and join the DHT. Peers that are away do not matter: they are tried for ever.

        Args:
            listen: "host:port" (port 0 = any) or a multiaddr; None with client_mode.
            announce: "host:port" or multiaddr under which others reach this node, if not that of `listen`.
            initial_peers: multiaddrs with /p2p/ of nodes to join.
            find_peers: asked for more such multiaddrs while some are missing (`directories.find_peers`).
            identity_path: file of this node's key, made if missing; None = a new identity.
            client_mode: read and write only; keep nothing for others and take no connections.

        Raises:
            InvalidArgument: a malformed address or peer, or `listen` is taken (names --dht-listen).
            Unreachable: p2pd does not start.
        """
        for text in initial_peers:
            parse_peer(text)
        p2p = await _start_p2pd(listen, announce, identity_path, client_mode)
        try:
            return await cls._join(p2p, initial_peers, find_peers, client_mode)
        except BaseException:
            await p2p.shutdown()
            raise

    @classmethod
    async def _join(
        cls, p2p: Any, peers: Sequence[str], find_peers: FindPeers | None, client_mode: bool
    ) -> Self:
        node = await DHTNode.create(
            p2p=p2p,
            # Bound to the peer id, so that a node that restarts with its identity keeps its place.
            node_id=DHTID.generate(source=p2p.peer_id.to_bytes()),
            wait_timeout=_RPC_SECONDS,
            record_validator=schema.SchemaValidator(time.time),
            client_mode=client_mode,
            # Caches would answer with yesterday's records; every read here wants the latest.
            cache_locally=False,
            cache_nearest=0,
            cache_on_store=False,
            cache_refresh_before_expiry=0,
        )
        storage = SafeStorage()
        node.protocol.storage, node.protocol.cache = storage, SafeStorage()
        self = cls(p2p, node, storage)
        storage.on_stored = self._tell
        if not client_mode:
            self._peers = [str(address) for address in await p2p.get_visible_maddrs()]
        self._repair = RepairLoop(node, peers, find_peers=find_peers, on_joined=self._store_again)
        self._repair.start()
        self._watch = asyncio.create_task(self._watch_p2pd(), name="p2pd watch")
        if peers or find_peers:
            await self._repair.first_round(_FIRST_ROUND_SECONDS)
        return self

    @property
    def peers(self) -> list[str]:
        """Multiaddrs (with /p2p/) under which others join through this node; none in client mode."""
        return list(self._peers)

    @property
    def peer_id(self) -> str:
        return str(self._node.peer_id)

    @property
    def connected(self) -> int:
        """Other members that this node knows and has not found silent; 0 = it is alone."""
        return len(self._node.protocol.routing_table.uid_to_peer_id)

    @property
    def missing_peers(self) -> int:
        """Initial peers that did not answer the last ping. Above 0 the DHT may be split in two."""
        assert self._repair is not None
        return self._repair.known - self._repair.present

    @property
    def looks_for_peers(self) -> bool:
        """Whether this node was told of others to join."""
        assert self._repair is not None
        return self._repair.has_sources

    @property
    def p2pd_alive(self) -> bool:
        return bool(self._p2p._child is not None and self._p2p._child.returncode is None)

    @property
    def p2pd_pid(self) -> int:
        return int(self._p2p.pid)

    @property
    def stored_keys(self) -> int:
        """DHT keys that this node keeps for the swarm."""
        return len(self._storage)

    async def store_server(self, record: ServerRecord) -> bool:
        """Write a server's record under each of its blocks and its model into the list of models.

        Returns:
            True when every one was read back from another member. False: try again at the next heartbeat.

        Raises:
            InvalidArgument: the record is expired, from the future (clock skew), or not newer than the last one.
        """
        check_fresh(record.issued_at, now=time.time())
        key, expires = record.model_key, record.expires_at
        last = self._own.get((block_key(key, record.start), record.server_id))
        if last is not None and last.expires_at >= expires:
            raise InvalidArgument(
                f"record of {record.server_id} must be issued later than the last one: expiry decides in the DHT"
            )
        value = schema.pack_record(record)
        entries = [
            Entry(block_key(key, block), record.server_id, value, expires) for block in record.span.blocks()
        ]
        listed_until = record.issued_at + limits.MAX_EXPIRY_SECONDS - limits.MAX_CLOCK_SKEW_SECONDS
        entries.append(Entry(MODELS_KEY, key, schema.model_of(record).encode(), listed_until))
        return len(await self._store(entries)) == len(entries)

    async def store_statements(self, model_key: str, statements: Sequence[Statement]) -> int:
        """Write the operator's statements about servers of one model, in one go.

        Returns:
            How many were read back from another member.

        Raises:
            InvalidArgument: malformed model key, or a statement is expired or from the future (clock skew).
        """
        parse_block_key(block_key(model_key, 0))
        entries = []
        for statement in statements:
            check_fresh(statement.issued_at, now=time.time())
            value = schema.pack_statement(model_key, statement)
            subkey = operator_subkey(statement.server_id)
            entries.append(Entry(block_key(model_key, 0), subkey, value, statement.expires_at))
        return len(await self._store(entries))

    async def lookup(self, model_key: str, num_blocks: int) -> list[Row]:
        """Every (record, statement, server id) of a model that any reachable member holds, by server id.

        Raises:
            InvalidArgument: malformed model key or a number of blocks beyond the limit.
            Unreachable: no answer within 8 s.
        """
        parse_block_key(block_key(model_key, max(0, num_blocks - 1)))
        keys = [block_key(model_key, block) for block in range(num_blocks)]
        rows: dict[str, list[Any]] = {}
        for found in (await self._get(keys)).values():
            for subkey, value in found.items():
                self._put(rows, model_key, subkey, value)
        return [(row[0], row[1], server_id) for server_id, row in sorted(rows.items())]

    async def models(self) -> list[ModelEntry]:
        """Every model that some server announced in the last two minutes, by key."""
        found = (await self._get([MODELS_KEY])).get(MODELS_KEY, {})
        entries = []
        for value in found.values():
            try:
                entries.append(schema.decode_model(value))
            except BlockSwarmError as error:
                logger.warning("model entry in the DHT ignored: %s", error)
        return sorted(entries, key=lambda entry: entry.key)

    async def shutdown(self) -> None:
        """Leave the DHT and end p2pd. Records stay until they expire: announce OFFLINE first."""
        self._closing = True
        if self._repair is not None:
            await self._repair.close()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        try:
            # It says goodbye to p2pd, which may be gone already.
            await asyncio.wait_for(self._node.shutdown(), 2.0)
        except Exception as error:
            logger.debug("DHT node did not leave in order: %s", error)
        await self._p2p.shutdown()

    async def _store(self, entries: list[Entry]) -> set[Entry]:
        for entry in entries:
            self._own[entry.key, entry.subkey] = entry
        good: set[Entry] = set()
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await self._node.store_many(
                    [entry.key for entry in entries],
                    [
                        entry.value if isinstance(entry.value, bytes) else list(entry.value)
                        for entry in entries
                    ],
                    [entry.expires_at for entry in entries],
                    subkeys=[entry.subkey for entry in entries],
                    exclude_self=self._node.protocol.client_mode,
                )
                good = await confirmed(self._node, entries)
        except TimeoutError:
            logger.warning("DHT store timed out")
        missing = len(entries) - len(good)
        if missing:
            logger.warning("DHT store not confirmed", extra={"entries": len(entries), "missing": missing})
        return good

    async def _store_again(self) -> None:
        """Give everything of ours that still counts to peers that have (again) come."""
        now = time.time()
        self._own = {slot: entry for slot, entry in self._own.items() if entry.expires_at > now}
        if self._own:
            await self._store(list(self._own.values()))

    async def _get(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        try:
            found = await asyncio.wait_for(
                self._node.get_many(list(keys), sufficient_expiration_time=float("inf")), _LOOKUP_SECONDS
            )
        except TimeoutError:
            raise Unreachable(f"the DHT did not answer within {_LOOKUP_SECONDS:.0f} s") from None
        return {
            key: {subkey: item.value for subkey, item in result.value.items()}
            for key, result in found.items()
            if result is not None and isinstance(result.value, dict)
        }

    def _put(self, rows: dict[str, list[Any]], model_key: str, subkey: str, value: Any) -> None:
        try:
            found = schema.unpack_value(subkey, value)
        except BlockSwarmError as error:
            logger.warning("value in the DHT ignored: %s", error)
            return
        if found.model_key != model_key or isinstance(found.item, ModelEntry):
            return
        row = rows.setdefault(found.item.server_id, [None, None])
        place = 0 if isinstance(found.item, ServerRecord) else 1
        # The copies under different blocks may differ in age for a moment.
        if row[place] is None or row[place].issued_at < found.item.issued_at:
            row[place] = found.item

    def _tell(self, key: bytes, subkey: str, data: bytes) -> None:
        if self.on_found is None:
            return
        try:
            self.on_found(schema.decode_serialized(key, subkey, data))
        except BlockSwarmError:
            logger.debug("stored value is not a record")

    async def _watch_p2pd(self) -> None:
        status = await self._p2p.wait_for_exit()
        await self._p2p.drop_tasks()
        if self._closing:
            return
        logger.error("p2pd ended", extra={"status": status})
        if self.on_p2pd_death is not None:
            self.on_p2pd_death(status)


async def _start_p2pd(
    listen: str | None, announce: str | None, identity: str | os.PathLike[str] | None, client_mode: bool
) -> Any:
    options: dict[str, object]
    if client_mode:
        options = {"noListenAddrs": True, "dhtClient": True}
    elif listen is None:
        raise InvalidArgument("a DHT node that is not a client needs an address to listen on (--dht-listen)")
    else:
        where = _claim_port(listen, fixed=announce is not None)
        options = {"hostAddrs": where, "dhtServer": True}
        if announce is not None:
            options["announceAddrs"] = _announced(announce, where)
    try:
        return await TiedP2P.create(options, identity_path=None if identity is None else os.fspath(identity))
    except P2PDaemonError as error:
        raise Unreachable(f"p2pd, the DHT daemon, did not start: {error}") from error


def _claim_port(listen: str, *, fixed: bool) -> str:
    """The multiaddr to listen on, checked to be free. `fixed`: choose a port now where any would do."""
    if listen.startswith("/"):
        return listen
    host, port = split_address(listen, field="--dht-listen")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
            raise InvalidArgument(f"--dht-listen {listen}: the port {reason}; choose another one") from None
        if fixed:
            port = probe.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return to_multiaddr(f"{shown}:{port}", field="--dht-listen")


def _announced(announce: str, where: str) -> str:
    """The announced multiaddr; a port of 0 is that of the listening socket."""
    address = to_multiaddr(announce, field="--announce")
    if address.endswith("/tcp/0"):
        return address.removesuffix("0") + where.rpartition("/")[2]
    if "/tcp/0/" in address:
        raise InvalidArgument(f"--announce {announce[:80]}: give a port that others can reach, not 0")
    return address
