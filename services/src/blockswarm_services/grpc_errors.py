"""How a gRPC handler ends a call with one of our errors: status, message, and the detail in a trailer."""

from typing import Any, NoReturn

import grpc

from blockswarm_wire.errors import TRAILER, BlockSwarmError, to_detail


async def abort(context: "grpc.aio.ServicerContext[Any, Any]", error: BlockSwarmError) -> NoReturn:
    """End the call with `error`, so that `blockswarm_wire.errors.from_status` gives it back on the other side."""
    detail = to_detail(error).SerializeToString()
    await context.abort(
        grpc.StatusCode[error.grpc_status], error.message[:2_000], trailing_metadata=((TRAILER, detail),)
    )
    raise AssertionError("abort returned")
