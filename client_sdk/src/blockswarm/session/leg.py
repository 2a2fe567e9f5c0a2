"""One leg: one stream to one server for one range of blocks."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import grpc.aio
import torch

from blockswarm.routing.hop import Hop
from blockswarm.session.history import Entry
from blockswarm_wire import tensor as codec
from blockswarm_wire.errors import (
    TRAILER,
    Aborted,
    BlockSwarmError,
    InvalidArgument,
    ServerFault,
    Unreachable,
    from_detail,
    from_status,
)
from blockswarm_wire.limits import MAX_INFLIGHT_STEPS, MIN_BYTES_PER_SECOND, PROTOCOL_VERSION
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import block_server_pb2_grpc as pb_grpc
from blockswarm_wire.v1 import tensor_pb2

_TICKS = 12
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
_CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a leg is opened with. Times in seconds."""

    session_id: str
    epoch: int
    fingerprint: str
    max_batch: int
    max_length: int
    alloc_timeout: float
    server_timeout: float
    silence_timeout: float
    hidden_size: int
    dtype: torch.dtype
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """What a step gave: [batch, tokens, hidden size], and the server's seconds."""

    hidden: torch.Tensor
    queue_seconds: float
    compute_seconds: float


class Leg:
    """An open stream. Every method raises errors of the blockswarm_wire tree; after a LostError the leg is dead."""

    def __init__(self, hop: Hop, call: Any, terms: Terms, on_notice: Callable[[pb.Notice], None]) -> None:
        self.hop = hop
        self._call = call
        self._terms = terms
        self._on_notice = on_notice
        self._seq = 0
        self._known_error = 0
        self._heard = 0
        self._waiting: dict[int, asyncio.Future[pb.StepResult]] = {}
        self._opened: asyncio.Future[pb.Opened] = asyncio.get_running_loop().create_future()
        self._dead: BlockSwarmError | None = None
        self._abandoned = False
        self._stalled = False
        self.max_inflight = 1
        self._reader = asyncio.create_task(self._read(), name=f"leg {hop.start}:{hop.end}")

    @classmethod
    async def open(
        cls, channel: grpc.aio.Channel, hop: Hop, terms: Terms, on_notice: Callable[[pb.Notice], None]
    ) -> "Leg":
        """Open a leg for the hop's blocks; waits at most the terms' times."""
        call = pb_grpc.BlockServerStub(channel).Infer()
        leg = cls(hop, call, terms, on_notice)
        try:
            await leg._open()
        except BaseException:
            leg.abandon()
            raise
        return leg

    async def _open(self) -> None:
        terms, hop = self._terms, self.hop
        message = pb.Open(
            protocol_version=PROTOCOL_VERSION,
            session_id=terms.session_id,
            leg_id=f"{hop.start}-{hop.end}",
            epoch=terms.epoch,
            start=hop.start,
            end=hop.end,
            max_batch=terms.max_batch,
            max_length=terms.max_length,
            adapter=terms.adapter,
            fingerprint=terms.fingerprint,
            alloc_timeout_seconds=terms.alloc_timeout,
        )
        await self._write(pb.InferRequest(open=message), terms.server_timeout)
        opened = await self._answer(self._opened, terms.server_timeout)
        # The process that answers, which may be newer than the one that the record told of.
        self.hop = replace(hop, instance=opened.instance_id or hop.instance)
        self.max_inflight = max(1, min(opened.max_inflight, MAX_INFLIGHT_STEPS))

    @property
    def abandoned(self) -> bool:
        """Whether it ended from this side, by `abandon` or a cancelled call: nobody's fault."""
        return self._abandoned

    async def step(self, entry: Entry) -> Output:
        """Send one step and wait for its result."""
        try:
            return await self.result(await self.send(entry), entry)
        except Aborted:
            # An earlier step, whose caller had gone, failed before this one arrived. Now its error is known here.
            return await self.result(await self.send(entry), entry)

    async def send(self, entry: Entry, want: pb.Want = pb.WANT_HIDDEN) -> int:
        """Send one step; its number, for `result`."""
        if self._dead is not None:
            raise self._dead
        self._seq += 1
        seq, hidden = self._seq, entry.hidden
        if hidden is None:
            hidden = torch.empty(entry.batch, 0, self._terms.hidden_size, dtype=self._terms.dtype)
        step = pb.Step(
            seq=seq,
            position=entry.position,
            pad=entry.pad,
            hypo_ids=entry.hypo_ids,
            hidden=codec.encode(hidden, field="inputs"),
            want=want,
            known_error=self._known_error,
        )
        if entry.prompts is not None:
            step.prompts.CopyFrom(codec.encode(entry.prompts, field="prompts"))
        self._waiting[seq] = asyncio.get_running_loop().create_future()
        transit = len(step.hidden.data) / MIN_BYTES_PER_SECOND
        await self._write(pb.InferRequest(step=step), self._terms.silence_timeout + transit)
        return seq

    async def result(self, seq: int, entry: Entry, want: pb.Want = pb.WANT_HIDDEN) -> Output:
        """Wait for the result of step `seq`, which was sent for `entry`."""
        future = self._waiting[seq]
        # Both ways over the slowest link that counts as one: what is in transit is not silence.
        transit = 2 * entry.hidden.nbytes / MIN_BYTES_PER_SECOND if entry.tokens else 0.0
        try:
            result = await self._answer(future, self._terms.silence_timeout + transit)
        finally:
            self._waiting.pop(seq, None)
        if result.position != entry.end:
            raise self._fault(f"answered position {result.position} to a step that ends at {entry.end}")
        output = self._checked(result.output, entry.batch, 0 if want == pb.WANT_NOTHING else entry.tokens)
        return Output(output, result.timing.queue_seconds, result.timing.compute_seconds)

    def _checked(self, message: tensor_pb2.Tensor, rows: int, tokens: int) -> torch.Tensor:
        """The output tensor; what is wrong with it is its server's fault, and must not reach the next one."""
        wanted = [rows, tokens, self._terms.hidden_size]
        if list(message.shape) != wanted:
            raise self._fault(f"answered shape {list(message.shape)[:5]}, expected {wanted}")
        try:
            output = codec.decode(message, field="output", dtype=self._terms.dtype)
            codec.check_finite(output, field="output")
        except InvalidArgument as error:
            raise self._fault(f"answered a bad tensor: {error}") from None
        return output

    async def close(self) -> None:
        """End the stream; the server frees the KV. Waits a moment for the server to say so."""
        self._abandoned = True
        self._kill(Unreachable("the leg was closed"))
        try:
            with contextlib.suppress(Exception):  # whatever the other side does, this leg is over
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._call.done_writing()
                    await self._call.code()
        finally:
            self._call.cancel()
            self._reader.cancel()

    def abandon(self) -> None:
        """Let go of the stream without waiting for its server."""
        self._abandoned = True
        self._kill(Unreachable("the leg was abandoned"))
        self._call.cancel()
        self._reader.cancel()

    def _fault(self, text: str) -> ServerFault:
        error = ServerFault(f"{self.hop.server_id} {text}")
        self._kill(error)
        return error

    async def _write(self, request: pb.InferRequest, patience: float) -> None:
        watch = asyncio.get_running_loop().call_later(patience, self._stall, patience)
        try:
            await self._call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            raise await self._ended() from None
        except asyncio.CancelledError:
            if self._stalled:
                raise await self._ended() from None
            # gRPC ends the whole call when a write is cancelled. That is this side's doing, not the server's.
            self.abandon()
            raise
        finally:
            watch.cancel()

    def _stall(self, patience: float) -> None:
        """The server takes no message: end the call, which ends the write that waits for it."""
        self._stalled = True
        self._kill(Unreachable(f"{self.hop.address} took no message for {patience:.1f} s"))
        self._call.cancel()

    async def _answer(self, future: "asyncio.Future[Any]", patience: float) -> Any:
        # Counted in ticks of this loop, not by the clock: when this process itself was stopped or starved, the time
        # that it lost is not the server's silence.
        loop, silent, heard = asyncio.get_running_loop(), 0, self._heard
        watch: asyncio.TimerHandle

        def tick() -> None:
            nonlocal watch, silent, heard
            silent, heard = (silent + 1, heard) if heard == self._heard else (0, self._heard)
            if silent >= _TICKS:
                self._kill(Unreachable(f"{self.hop.address} said nothing for {patience:.1f} s"))
            else:
                watch = loop.call_later(patience / _TICKS, tick)

        watch = loop.call_later(patience / _TICKS, tick)
        try:
            return await future
        finally:
            watch.cancel()

    async def _read(self) -> None:
        try:
            while (response := await self._call.read()) is not _EOF:
                self._heard += 1
                self._take(response)
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass  # the call's status, read below, says why
        except asyncio.CancelledError:
            self._abandoned = True
            self._kill(Unreachable("the call was cancelled from this side"))
            raise
        self._kill(await self._ended())

    def _take(self, response: pb.InferResponse) -> None:
        kind = response.WhichOneof("body")
        if kind == "result":
            self._settle(response.result.seq, response.result)
        elif kind == "error":
            error = from_detail(response.error.detail)
            if not isinstance(error, Aborted):
                self._known_error = max(self._known_error, response.error.seq)
            self._settle(response.error.seq, error)
        elif kind == "opened" and not self._opened.done():
            self._opened.set_result(response.opened)
        elif kind == "notice":
            self._on_notice(response.notice)

    def _settle(self, seq: int, result: "pb.StepResult | BlockSwarmError") -> None:
        future = self._waiting.get(seq)
        if future is None or future.done():
            return  # a caller that was cancelled does not wait any more
        if isinstance(result, BlockSwarmError):
            future.set_exception(result)
            future.exception()  # a replay that failed earlier does not ask for this one
        else:
            future.set_result(result)

    async def _ended(self) -> BlockSwarmError:
        if self._dead is not None:
            return self._dead
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                code = await self._call.code()
                details = await self._call.details()
                trailers = dict(await self._call.trailing_metadata() or ())
        except TimeoutError:
            return Unreachable(f"the stream to {self.hop.address} broke without a status")
        if code is grpc.StatusCode.OK:
            return Unreachable(f"{self.hop.address} ended the stream")
        trailer = trailers.get(TRAILER)
        return from_status(
            code.name, f"{self.hop.address}: {details}", trailer if isinstance(trailer, bytes) else None
        )

    def _kill(self, error: BlockSwarmError) -> None:
        if self._dead is None:
            self._dead = error
        futures: list[asyncio.Future[Any]] = [self._opened, *self._waiting.values()]
        for future in futures:
            if not future.done():
                future.set_exception(self._dead)
                future.exception()  # nobody may be waiting; that is not "never retrieved"
