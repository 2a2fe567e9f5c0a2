"""A block server from start to end: join, load, serve, drain, leave."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import time
import uuid

import grpc
import torch
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

import blockswarm_wire
from blockswarm_dht.address import split_address
from blockswarm_dht.directories import find_peers
from blockswarm_dht.node import SwarmNode
from blockswarm_services.health import HealthServer
from blockswarm_services.server.announce import Announcer
from blockswarm_services.server.directories import Directories
from blockswarm_services.server.drain import drain
from blockswarm_services.server.engine import Engine
from blockswarm_services.server.legs import Legs
from blockswarm_services.server.metrics import Metrics
from blockswarm_services.server.model import SpanModel
from blockswarm_services.server.rpc import BlockServerRpc, Host
from blockswarm_services.server.settings import Settings
from blockswarm_services.server.startup import (
    LoadProgress,
    advertised,
    port_of,
    unless,
    write_ready_file,
)
from blockswarm_services.server.throughput import Throughput, measure
from blockswarm_services.termination import write_termination_message
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.limits import MAX_CALLS, MAX_SESSIONS, SERVER_OPTIONS
from blockswarm_wire.model.anatomy import read_config
from blockswarm_wire.model.source import ModelFolder, open_model
from blockswarm_wire.record import ServerRecord, State
from blockswarm_wire.tensor import torch_dtype
from blockswarm_wire.v1 import block_server_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)
_LEAVE_SECONDS = 2.0


class BlockServer:
    """Everything that one server process runs, in the order of its life."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._instance = uuid.uuid4().hex[:16]
        self._stop = asyncio.Event()
        self._failure = ""
        self._server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # an alias that mypy does not see
        self._throughput = Throughput(0.0, 0.0)
        self._host: Host | None = None
        self._folder: ModelFolder
        self._fingerprint = ""
        self._num_blocks = 0
        self._address = ""
        self._metrics = Metrics(self._state)
        self._came_online = asyncio.Event()
        self._endpoint = HealthServer(self._metrics.registry, self._alive, self._ready, self._settled)
        self._node: SwarmNode
        self._announcer: Announcer

    async def run(self) -> int:
        """Serve until told to stop; the process's exit status."""
        port = self._bind()
        self._address = advertised(self._settings.announce, self._settings.listen, port)
        self._catch_signals()
        await self._open_endpoint()
        await unless(self._stop, self._identify)
        if self._stop.is_set():
            return 0
        await self._join()
        try:
            await self._load()
            if not self._stop.is_set():
                await self._serve()
            await self._stop.wait()
            await self._leave()
        finally:
            await self._close()
        if self._failure:
            write_termination_message(self._failure)
            return 1
        return 0

    def _bind(self) -> int:
        host, port = split_address(self._settings.listen, field="--listen")
        try:
            return self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:
            raise InvalidArgument(
                f"--listen: cannot listen on {self._settings.listen}; is the port in use? "
                "Choose another one, or 0 for any free port"
            ) from None

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            logger.warning("second signal, leaving at once")
            os._exit(1)
        logger.info("stopping", extra={"signal": signal.Signals(number).name})
        self._stop.set()

    async def _open_endpoint(self) -> None:
        """Health and metrics, from the start: loading may take long, and is no illness."""
        settings = self._settings
        self._metrics.info.labels(
            settings.name, str(settings.span), settings.dtype, settings.device, blockswarm_wire.__version__
        ).set(1)
        try:
            await self._endpoint.start(settings.metrics_listen)
        except OSError as error:
            raise InvalidArgument(
                f"--metrics-listen: cannot listen on {settings.metrics_listen}: {error}"
            ) from None

    def _identify(self) -> None:
        settings = self._settings
        self._folder = open_model(settings.model, revision=settings.revision, cache_dir=settings.cache_dir)
        self._fingerprint = self._folder.fingerprint(settings.dtype, settings.quantization)
        self._num_blocks = int(read_config(self._folder).num_hidden_layers)
        if settings.span.end > self._num_blocks:
            raise InvalidArgument(
                f"--blocks: {settings.span} reaches beyond the model's {self._num_blocks} blocks (0:{self._num_blocks})"
            )

    async def _join(self) -> None:
        settings = self._settings
        host = settings.dht_announce or self._address.rpartition(":")[0]
        self._node = await SwarmNode.create(
            listen=settings.dht_listen,
            announce=None if port_of(settings.dht_listen) == 0 else f"{host}:{port_of(settings.dht_listen)}",
            initial_peers=settings.peers,
            find_peers=find_peers(settings.directories) if settings.directories else None,
        )
        self._node.on_p2pd_death = lambda status: self._fail(f"p2pd died with status {status}")
        self._announcer = Announcer(self._node, Directories(settings.directories), self._describe)
        self._announcer.start()

    async def _load(self) -> None:
        settings, began = self._settings, time.perf_counter()
        model = await unless(
            self._stop,
            lambda: SpanModel.load(
                self._folder,
                settings.span,
                dtype=torch_dtype(settings.dtype),
                device=settings.device,
                deterministic=settings.deterministic,
                progress=LoadProgress(),
            ),
        )
        if model is None:
            return
        measured = await unless(self._stop, lambda: measure(model, settings.span.start, settings.span.end))
        if measured is None:
            return
        self._throughput = measured
        # What is here now stays for good: the collector need not look at it again in the middle of a step.
        gc.collect()
        gc.freeze()
        self._host = self._assemble(model)
        self._metrics.load_seconds.set(time.perf_counter() - began)
        logger.info(
            "model loaded",
            extra={"blocks": str(settings.span), "seconds": round(time.perf_counter() - began, 2)},
        )

    def _assemble(self, model: SpanModel) -> Host:
        settings, engine = self._settings, Engine()
        legs = Legs(len(settings.span), settings.cache_tokens, MAX_SESSIONS)
        self._metrics.watch(legs, model.bytes_per_token, lambda: engine.queued)
        return Host(
            server_id=settings.server_id,
            instance=self._instance,
            model_name=settings.name,
            fingerprint=self._fingerprint,
            num_blocks=self._num_blocks,
            span=settings.span,
            quantization=settings.quantization,
            model=model,
            engine=engine,
            legs=legs,
            metrics=self._metrics,
        )

    async def _serve(self) -> None:
        host = self._host
        assert host is not None
        pb_grpc.add_BlockServerServicer_to_server(BlockServerRpc(host), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        await self._server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        self._announcer.say(State.ONLINE)
        self._watcher = asyncio.create_task(self._watch(), name="watch")

    async def _watch(self) -> None:
        """Say that the server is ready when its record was read back; end the process when the engine dies."""
        assert self._host is not None
        while not self._stop.is_set():
            if not self._came_online.is_set() and self._announcer.online.is_set():
                self._came_online.set()
                logger.info(
                    "server ready", extra={"address": self._address, "blocks": str(self._settings.span)}
                )
                if self._settings.ready_file is not None:
                    write_ready_file(self._settings.ready_file, self._ready_facts())
            if not self._host.engine.alive:
                self._fail("the compute thread died")
            news = [] if self._came_online.is_set() else [self._announcer.online]
            await _first(self._stop, *news, timeout=1.0)

    def _ready_facts(self) -> dict[str, object]:
        return {
            "address": self._address,
            "metrics": f"{self._address.rpartition(':')[0]}:{self._endpoint.port}",
            "instance": self._instance,
            "pid": os.getpid(),
            "peers": [str(peer) for peer in self._node.peers],
        }

    def _state(self) -> State:
        if self._host is None:
            return State.JOINING
        if self._stop.is_set():
            return State.DRAINING
        return State.ONLINE if self._announcer.online.is_set() else State.JOINING

    def _alive(self) -> bool:
        host = self._host
        return not self._failure and (host is None or (host.engine.alive and not host.engine.stuck))

    def _ready(self) -> bool:
        return self._alive() and self._state() is State.ONLINE

    async def _settled(self) -> None:
        """Return when the server is ready, or stops."""
        await _first(self._stop, self._came_online)

    def _fail(self, cause: str) -> None:
        self._failure = self._failure or cause
        self._stop.set()

    async def _leave(self) -> None:
        host = self._host
        if host is None or self._failure:
            return
        self._announcer.say(State.DRAINING)
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        await drain(host, self._settings.drain_seconds)

    async def _close(self) -> None:
        if not self._failure:
            await self._announcer.close(deadline=_LEAVE_SECONDS)
        await self._server.stop(0.5)
        if self._host is not None:
            self._host.engine.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._node.shutdown()

    def _describe(self, state: State, issued_at: float) -> ServerRecord:
        settings, host = self._settings, self._host
        legs = host.legs if host is not None else None
        return ServerRecord(
            server_id=settings.server_id,
            state=state,
            model=settings.name,
            num_blocks=self._num_blocks,
            start=settings.span.start,
            end=settings.span.end,
            address=self._address,
            metrics_port=self._endpoint.port,
            instance=self._instance,
            fingerprint=self._fingerprint,
            forward_rps=round(self._throughput.forward_rps, 1),
            inference_rps=round(self._throughput.inference_rps, 1),
            kv_capacity=settings.cache_tokens,
            kv_promised=legs.promised if legs else 0,
            kv_used=round(legs.used) if legs else 0,
            sessions=legs.sessions if legs else 0,
            queue_delay=round(host.engine.queue_delay, 4) if host else 0.0,
            issued_at=issued_at,
        )


async def serve(settings: Settings) -> int:
    """Run one block server; its exit status."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    return await BlockServer(settings).run()


async def _first(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Wait until one of `events` is set, at most `timeout` seconds (None: as long as it takes)."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
