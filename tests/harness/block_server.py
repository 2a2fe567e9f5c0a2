"""A block server inside the test's own process and event loop, behind real gRPC on loopback."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import torch

from blockswarm_services.server.engine import Engine
from blockswarm_services.server.legs import Legs
from blockswarm_services.server.metrics import Metrics
from blockswarm_services.server.model import SpanModel
from blockswarm_services.server.rpc import BlockServerRpc, Host
from blockswarm_wire.limits import CHANNEL_OPTIONS, MAX_SESSIONS, SERVER_OPTIONS
from blockswarm_wire.model.source import open_model
from blockswarm_wire.record import State
from blockswarm_wire.span import Span
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import block_server_pb2_grpc as pb_grpc


def make_host(
    folder: Path, span: Span, num_blocks: int, *, cache_tokens: int = 4096, max_sessions: int = MAX_SESSIONS
):
    """A Host as the server's own main makes it, for a float32 model folder."""
    source = open_model(folder)
    model, engine = SpanModel.load(source, span, dtype=torch.float32), Engine()
    legs, metrics = Legs(len(span), cache_tokens, max_sessions), Metrics(lambda: State.ONLINE)
    metrics.watch(legs, model.bytes_per_token, lambda: engine.queued)
    return Host(
        server_id=f"server-{span.start}-{span.end}",
        instance=uuid.uuid4().hex[:16],
        model_name=folder.name,
        fingerprint=source.fingerprint("float32"),
        num_blocks=num_blocks,
        span=span,
        quantization="none",
        model=model,
        engine=engine,
        legs=legs,
        metrics=metrics,
    )


@contextlib.asynccontextmanager
async def serving(host: Host) -> AsyncIterator[str]:
    """Serve `host` on a free loopback port; its address."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    pb_grpc.add_BlockServerServicer_to_server(BlockServerRpc(host), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
        host.engine.stop()


class RawLeg:
    """A leg driven message by message, as a hostile or broken client would."""

    def __init__(self, address: str, channel: grpc.aio.Channel | None = None) -> None:
        self.channel = channel or grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self.call = pb_grpc.BlockServerStub(self.channel).Infer()

    @classmethod
    def on(cls, channel: grpc.aio.Channel) -> "RawLeg":
        """Another leg on an existing connection."""
        return cls("", channel)

    async def open(self, host: Host, **changes) -> pb.InferResponse:
        fields = {
            "protocol_version": 1,
            "session_id": uuid.uuid4().hex,
            "leg_id": "leg",
            "epoch": 1,
            "start": host.span.start,
            "end": host.span.end,
            "max_batch": 2,
            "max_length": 64,
            "fingerprint": host.fingerprint,
        }
        await self.call.write(pb.InferRequest(open=pb.Open(**(fields | changes))))
        return await self.read()

    async def send(self, **fields) -> None:
        await self.call.write(pb.InferRequest(step=pb.Step(**fields)))

    async def read(self) -> pb.InferResponse:
        """The next message that is not a sign of life; EOF when the stream has ended, well or not."""
        while True:
            try:
                response = await self.call.read()
            except grpc.aio.AioRpcError:
                return grpc.aio.EOF
            if response is grpc.aio.EOF or response.WhichOneof("body") != "progress":
                return response

    async def step(self, **fields) -> pb.InferResponse:
        await self.send(**fields)
        return await self.read()

    async def close(self) -> None:
        self.call.cancel()
        await self.channel.close()
