"""Discovery through one or several directories over gRPC."""

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc.aio

from blockswarm.config import DIRECTORY_VARIABLE, split_targets
from blockswarm.discovery.door import OnChange
from blockswarm.discovery.memory import Memory
from blockswarm.discovery.views import Pair
from blockswarm_wire.errors import TRAILER, BlockSwarmError, LostError, Unreachable, from_status
from blockswarm_wire.limits import CHANNEL_OPTIONS
from blockswarm_wire.record import ModelEntry, ServerRecord, ServerView, Statement
from blockswarm_wire.v1 import directory_pb2 as pb
from blockswarm_wire.v1 import directory_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_CALL_SECONDS = 3.0
# A directory speaks at least every 10 s on a watch.
_WATCH_SILENCE_SECONDS = 15.0
_FIRST_PAUSE = 0.2
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs
_LONGEST_PAUSE = 3.0


class DirectoryDiscovery:
    """Asks the directory that answered last; goes on to the next one when it does not.

    Args:
        targets: "host:port" or "dns:///name:port", several separated by commas or as a list; empty =
            $BLOCKSWARM_DIRECTORY.

    Raises:
        InvalidArgument: no target.
    """

    def __init__(self, targets: str | Sequence[str] = "") -> None:
        self._targets = split_targets(targets or os.environ.get(DIRECTORY_VARIABLE, ""))
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._current = 0
        self._memory = Memory()
        self._models: list[ModelEntry] | None = None
        self._watches: set[asyncio.Task[None]] = set()

    @property
    def stale(self) -> bool:
        """True while no directory answers and memory is used."""
        return self._memory.stale

    @property
    def targets(self) -> tuple[str, ...]:
        return self._targets

    async def models(self) -> list[ModelEntry]:
        """See Discovery.models."""
        try:
            answer = await self._ask(lambda stub: stub.Models(pb.ModelsRequest(), timeout=_CALL_SECONDS))
        except LostError:
            if self._models is None:
                raise
            return list(self._models)
        self._models = [
            ModelEntry(key=m.key, name=m.name, num_blocks=m.num_blocks, fingerprint=m.fingerprint)
            for m in answer.models
        ]
        return list(self._models)

    async def peers(self) -> list[str]:
        """DHT addresses (multiaddrs) of the directory that answers, for those who want to join the DHT."""
        answer = await self._ask(lambda stub: stub.Models(pb.ModelsRequest(), timeout=_CALL_SECONDS))
        return list(answer.peers)

    async def lookup(self, model_key: str, num_blocks: int) -> list[ServerView]:
        """See Discovery.lookup."""
        request = pb.LookupRequest(model_key=model_key)
        try:
            answer = await self._ask(lambda stub: stub.Lookup(request, timeout=_CALL_SECONDS))
        except LostError:
            known = self._memory.recall(model_key)
            if known is None:
                raise
            return known
        return self._take(model_key, answer)

    def watch(self, model_key: str, num_blocks: int, on_change: OnChange) -> asyncio.Task[None]:
        """See Discovery.watch. Must be called on the event loop that the calls run on."""
        task = asyncio.create_task(self._watch(model_key, on_change), name=f"watch {model_key}")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)
        return task

    async def close(self) -> None:
        """See Discovery.close."""
        tasks = list(self._watches)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close(None)
        self._channels.clear()

    def _stub(self, target: str) -> Any:
        channel = self._channels.get(target)
        if channel is None:
            options = (*CHANNEL_OPTIONS, ("grpc.lb_policy_name", "round_robin"))
            channel = self._channels[target] = grpc.aio.insecure_channel(target, options=options)
        return pb_grpc.DirectoryStub(channel)

    async def _ask(self, call: Callable[[Any], Awaitable[_T]]) -> _T:
        """The first answer of the targets, starting with the one that answered last."""
        causes: list[str] = []
        for _ in self._targets:
            target = self._targets[self._current]
            try:
                answer = await call(self._stub(target))
            except grpc.aio.AioRpcError as error:
                problem = _translate(error)
                if not isinstance(problem, LostError):
                    raise problem from None
                causes.append(f"{target}: {problem}")
                self._current = (self._current + 1) % len(self._targets)
                continue
            return answer
        self._memory.away(time.time())
        raise Unreachable(
            f"no directory answers ({'; '.join(causes)}); is it running, and is the address right?"
        )

    def _take(self, model_key: str, answer: pb.LookupResponse) -> list[ServerView]:
        return self._memory.update(model_key, (_pair(entry) for entry in answer.entries), time.time())

    async def _watch(self, model_key: str, on_change: OnChange) -> None:
        shown: list[ServerView] | None = None
        pause = _FIRST_PAUSE
        while True:
            target = self._targets[self._current]
            try:
                call = self._stub(target).Watch(pb.LookupRequest(model_key=model_key))
                while True:
                    answer = await asyncio.wait_for(call.read(), _WATCH_SILENCE_SECONDS)
                    if answer is _EOF:
                        break
                    pause = _FIRST_PAUSE
                    views = self._take(model_key, answer)
                    if views != shown:
                        shown = views
                        on_change(list(views))
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                logger.debug("watch of %s ended: %r", target, error)
            finally:
                call.cancel()
            self._current = (self._current + 1) % len(self._targets)
            if self._current == 0:
                self._memory.away(time.time())
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)


def _pair(entry: pb.Entry) -> Pair:
    """The entry's halves; one that cannot be read counts as absent."""
    record, statement = None, None
    try:
        record = ServerRecord.decode(entry.record) if entry.record else None
        statement = Statement.decode(entry.statement) if entry.statement else None
    except BlockSwarmError as error:
        logger.warning("entry of the directory ignored: %s", error, extra={"server_id": entry.server_id})
    return record, statement


def _translate(error: grpc.aio.AioRpcError) -> BlockSwarmError:
    trailers: Any = error.trailing_metadata() or ()
    data: bytes | None = next((value for key, value in trailers if key == TRAILER), None)
    if data is None and error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return Unreachable("something else than a directory listens there")
    return from_status(error.code().name, error.details() or "", data)
