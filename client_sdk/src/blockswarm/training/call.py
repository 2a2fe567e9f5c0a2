"""One Forward or Backward call to one server."""

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import torch

from blockswarm.routing.hop import Hop
from blockswarm_wire.errors import (
    TRAILER,
    BlockSwarmError,
    CallerError,
    ServerFault,
    Unreachable,
    from_status,
)
from blockswarm_wire.passes import Pass, PassReader, write_pass
from blockswarm_wire.span import Span
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import block_server_pb2_grpc as pb_grpc

_STATUS_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some batch rows on their way through a range of blocks.

    hidden: [rows, tokens, hidden size].
    prompts: [blocks of the range, rows or 1, prefix, hidden size] or None.
    pad: leading padding per row, () = none.
    """

    hidden: torch.Tensor
    prompts: torch.Tensor | None = None
    pad: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Calls servers of the model `fingerprint`. Times in seconds."""

    fingerprint: str
    server_timeout: float
    silence_timeout: float

    async def forward(self, channel: grpc.aio.Channel, hop: Hop, rows: Rows) -> torch.Tensor:
        """Outputs [rows, tokens, hidden size] of the hop's blocks; errors of the blockswarm_wire tree."""
        what = self._pass(hop, rows, {})
        call = pb_grpc.BlockServerStub(channel).Forward()
        answer = await self._exchange(call, hop, what, frozenset({pb.HIDDEN}))
        return _like(answer, pb.HIDDEN, rows.hidden, hop)

    async def backward(
        self, channel: grpc.aio.Channel, hop: Hop, rows: Rows, grad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Gradients with respect to the rows' hidden states and prompts, given that of the outputs."""
        what = self._pass(hop, rows, {pb.GRAD_OUTPUT: grad.to(rows.hidden.dtype)})
        roles = frozenset({pb.GRAD_HIDDEN} if rows.prompts is None else {pb.GRAD_HIDDEN, pb.GRAD_PROMPTS})
        call = pb_grpc.BlockServerStub(channel).Backward()
        answer = await self._exchange(call, hop, what, roles)
        hidden = _like(answer, pb.GRAD_HIDDEN, rows.hidden, hop)
        return hidden, None if rows.prompts is None else _like(answer, pb.GRAD_PROMPTS, rows.prompts, hop)

    def _pass(self, hop: Hop, rows: Rows, more: dict[pb.TensorRole, torch.Tensor]) -> Pass:
        tensors = {pb.HIDDEN: rows.hidden}
        if rows.prompts is not None:
            tensors[pb.PROMPTS] = rows.prompts
        return Pass(
            span=Span(hop.start, hop.end), fingerprint=self.fingerprint, tensors=tensors | more, pad=rows.pad
        )

    async def _exchange(self, call: Any, hop: Hop, what: Pass, roles: frozenset[pb.TensorRole]) -> Pass:
        try:
            await self._send(call, what)
            return await self._receive(call, hop, roles)
        except TimeoutError:
            raise Unreachable(f"{hop.address} said nothing for {self.silence_timeout:.1f} s") from None
        except (grpc.RpcError, asyncio.InvalidStateError):
            raise await _ended(call, hop) from None
        finally:
            call.cancel()

    async def _send(self, call: Any, what: Pass) -> None:
        patience = self.server_timeout
        for part in write_pass(what):
            async with asyncio.timeout(patience):
                await call.write(part)
            patience = self.silence_timeout
        async with asyncio.timeout(patience):
            await call.done_writing()

    async def _receive(self, call: Any, hop: Hop, roles: frozenset[pb.TensorRole]) -> Pass:
        reader = PassReader(roles, roles)
        while not reader.done:
            async with asyncio.timeout(self.silence_timeout):
                part = await call.read()
            if part is grpc.aio.EOF:  # type: ignore[attr-defined]
                raise await _ended(call, hop)
            try:
                reader.feed(part)
            except CallerError as error:
                raise ServerFault(f"{hop.server_id} sent a malformed answer: {error}") from error
        return reader.result()


async def _ended(call: Any, hop: Hop) -> BlockSwarmError:
    """Why the call is over."""
    try:
        async with asyncio.timeout(_STATUS_SECONDS):
            code, details = await call.code(), await call.details()
            trailer = dict(await call.trailing_metadata() or ()).get(TRAILER)
    except TimeoutError:
        return Unreachable(f"the call to {hop.address} broke without a status")
    if code is grpc.StatusCode.OK:
        return ServerFault(f"{hop.address} ended the call before its answer was complete")
    return from_status(
        code.name, f"{hop.address}: {details}", trailer if isinstance(trailer, bytes) else None
    )


def _like(answer: Pass, role: pb.TensorRole, model: torch.Tensor, hop: Hop) -> torch.Tensor:
    value = answer.tensors[role]
    if value.shape != model.shape:
        raise ServerFault(f"{hop.server_id} answered shape {list(value.shape)} to {list(model.shape)}")
    return value
