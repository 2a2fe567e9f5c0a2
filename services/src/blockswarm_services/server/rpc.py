"""The gRPC face of a block server."""

import logging
from dataclasses import dataclass, field
from typing import Any

import blockswarm_wire
from blockswarm_services.grpc_errors import abort
from blockswarm_services.server.engine import Engine
from blockswarm_services.server.infer import InferStream
from blockswarm_services.server.legs import Legs
from blockswarm_services.server.metrics import Metrics
from blockswarm_services.server.model import SpanModel
from blockswarm_services.server.passes import serve_pass
from blockswarm_wire import limits
from blockswarm_wire.errors import BlockSwarmError
from blockswarm_wire.span import Span
from blockswarm_wire.tensor import dtype_name
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import block_server_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Host:
    """What every call of this server shares."""

    server_id: str
    instance: str
    model_name: str
    fingerprint: str
    num_blocks: int
    span: Span
    quantization: str
    model: SpanModel
    engine: Engine
    legs: Legs
    metrics: Metrics
    draining: bool = False
    passes: int = 0
    streams: dict[int, InferStream] = field(default_factory=dict)

    def opened(self) -> pb.Opened:
        """The answer to an accepted Open."""
        return pb.Opened(instance_id=self.instance, max_inflight=limits.MAX_INFLIGHT_STEPS)

    def info(self) -> pb.InfoResponse:
        """What `Info` tells."""
        return pb.InfoResponse(
            protocol_version=limits.PROTOCOL_VERSION,
            server_id=self.server_id,
            instance_id=self.instance,
            model=self.model_name,
            fingerprint=self.fingerprint,
            num_blocks=self.num_blocks,
            start=self.span.start,
            end=self.span.end,
            state=pb.DRAINING_STATE if self.draining else pb.ONLINE,
            dtype=dtype_name(self.model.dtype),
            quantization=self.quantization,
            hidden_size=self.model.hidden_size,
            kv_capacity_tokens=self.legs.capacity,
            kv_promised_tokens=self.legs.promised,
            kv_used_tokens=round(self.legs.used),
            sessions=self.legs.sessions,
            max_sessions=limits.MAX_SESSIONS,
            max_inflight=limits.MAX_INFLIGHT_STEPS,
            max_chunk_tokens=limits.MAX_CHUNK_TOKENS,
            max_message_bytes=limits.MAX_MESSAGE_BYTES,
            open_without_step_seconds=limits.OPEN_WITHOUT_STEP_SECONDS,
            idle_seconds=limits.IDLE_SECONDS,
            version=blockswarm_wire.__version__,
            model_type=self.model.model_type,
            can_truncate=self.model.can_truncate,
        )


class BlockServerRpc(pb_grpc.BlockServerServicer):
    """Dispatches calls; every error leaves with its status and our trailer."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def Infer(self, request_iterator: Any, context: Any) -> None:
        await InferStream(self._host, context).run()

    async def Forward(self, request_iterator: Any, context: Any) -> None:
        await self._pass(context, backward=False)

    async def Backward(self, request_iterator: Any, context: Any) -> None:
        await self._pass(context, backward=True)

    async def Info(self, request: pb.InfoRequest, context: Any) -> pb.InfoResponse:
        return self._host.info()

    async def _pass(self, context: Any, *, backward: bool) -> None:
        try:
            await serve_pass(self._host, context, backward=backward)
        except BlockSwarmError as error:
            await abort(context, error)
