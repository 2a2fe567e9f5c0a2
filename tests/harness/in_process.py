"""A swarm inside the test's process: servers behind real gRPC on loopback, found without a DHT."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from block_server import make_host, serving
from blockswarm import AutoDistributedModelForCausalLM, loop
from blockswarm.discovery.door import OnChange
from blockswarm.models import auto
from blockswarm_services.server.rpc import Host
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.record import ModelEntry, ServerRecord, ServerView, State
from blockswarm_wire.span import Span


class FixedDiscovery:
    """Always the same servers."""

    stale = False

    def __init__(self, hosts: Sequence[Host], addresses: Sequence[str]) -> None:
        self._hosts, self._addresses = hosts, addresses

    async def models(self) -> list[ModelEntry]:
        host = self._hosts[0]
        key = model_key(host.model_name, host.fingerprint)
        entry = ModelEntry(
            key=key, name=host.model_name, num_blocks=host.num_blocks, fingerprint=host.fingerprint
        )
        return [entry]

    async def lookup(self, model_key: str, num_blocks: int) -> list[ServerView]:
        return [
            ServerView(server_id=host.server_id, state=State.ONLINE, record=_record(host, address))
            for host, address in zip(self._hosts, self._addresses, strict=True)
        ]

    def watch(self, model_key: str, num_blocks: int, on_change: OnChange) -> asyncio.Task[None]:
        async def work() -> None:
            on_change(await self.lookup(model_key, num_blocks))
            await asyncio.Event().wait()

        return asyncio.create_task(work())

    async def close(self) -> None:
        pass


def _record(host: Host, address: str) -> ServerRecord:
    return ServerRecord(
        server_id=host.server_id,
        state=State.ONLINE,
        model=host.model_name,
        num_blocks=host.num_blocks,
        start=host.span.start,
        end=host.span.end,
        address=address,
        instance=host.instance,
        fingerprint=host.fingerprint,
        kv_capacity=host.legs.capacity,
        forward_rps=1.0,
        inference_rps=1.0,
        issued_at=time.time(),
    )


@contextlib.contextmanager
def swarm(folder: Path, spans: Sequence[Span]) -> Iterator[Any]:
    """The model of a folder, loaded as users do, with its blocks in servers of these spans."""
    hosts = [make_host(folder, span, spans[-1].end) for span in spans]
    stack = contextlib.AsyncExitStack()

    async def start() -> list[str]:
        return [await stack.enter_async_context(serving(host)) for host in hosts]

    discovery = FixedDiscovery(hosts, loop.run(start()))
    try:
        with mock.patch.object(auto, "open_discovery", return_value=discovery):
            yield AutoDistributedModelForCausalLM.from_pretrained(
                folder, directory="127.0.0.1:1", deterministic=True
            )
    finally:
        loop.run(stack.aclose())
