"""One `Infer` stream: open a leg, apply its steps in order, speak at least every second, end with a reason."""

import asyncio
import contextlib
import hashlib
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc

from blockswarm_services.grpc_errors import abort
from blockswarm_services.server import sessions
from blockswarm_services.server.engine import Job, Outcome
from blockswarm_services.server.failpoints import failpoint
from blockswarm_services.server.legs import Leg
from blockswarm_services.server.opening import check_open, open_timeout
from blockswarm_services.server.schedule import Kind
from blockswarm_services.server.step import apply, describe
from blockswarm_wire import limits
from blockswarm_wire.errors import (
    BlockSwarmError,
    Draining,
    Idle,
    InvalidArgument,
    Unsupported,
    to_detail,
)
from blockswarm_wire.span import Span
from blockswarm_wire.v1 import block_server_pb2 as pb

if TYPE_CHECKING:
    from blockswarm_services.server.rpc import Host

logger = logging.getLogger(__name__)
_keys = itertools.count(1)
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
Context = Any  # grpc.aio.ServicerContext[pb.InferRequest, pb.InferResponse]; the stubs know no read()


# The client does not read what it is sent: it could not read this either.
_STALLED = Idle("the client does not read")


class InferStream:
    """Serves one stream of one leg on `host`."""

    def __init__(self, host: "Host", context: Context) -> None:
        self._host = host
        self._context = context
        self._leg: Leg | None = None
        self._job: Job | None = None
        self._reply: pb.InferResponse | None = None
        self._writing = asyncio.Lock()
        self._telling: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle
        self._read_due: tuple[float, BlockSwarmError] | None = None
        self._write_due: float | None = None
        self._late: BlockSwarmError | None = None

    async def run(self) -> None:
        """Serve until the client closes the stream or the leg ends; frees everything that it held."""
        self._task = asyncio.current_task()
        self._watch()
        try:
            await self._serve()
        except asyncio.CancelledError:
            reason = (
                self._leg.reason if self._leg is not None and self._leg.reason is not None else self._late
            )
            if reason is None:
                raise
            assert self._task is not None
            self._task.uncancel()
            await self._settle()
            if reason is not _STALLED:
                await self._abort(reason)
        except BlockSwarmError as error:
            if self._leg is not None and self._leg.reason is None:
                self._leg.reason = error
            await self._settle()
            await self._abort(error)
        finally:
            self._ticker.cancel()
            await self._settle()

    def _watch(self) -> None:
        """Once a second: end the stream when its client is too late with a message, or does not read ours.

        One timer a stream, rather than a timeout around every read and write, which each step would pay for.
        """
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(limits.PROGRESS_SECONDS, self._watch)
        now = loop.time()
        if self._late is None and self._read_due is not None and now >= self._read_due[0]:
            self._late = self._read_due[1]
        elif self._late is None and self._write_due is not None and now >= self._write_due:
            logger.warning("the client does not read; its leg is closed")
            self._late = _STALLED
        else:
            return
        self._ticker.cancel()
        if self._task is not None:
            self._task.cancel()

    async def notify(self, notice: pb.Notice) -> None:
        """Tell the client that the server is leaving."""
        await self._write(pb.InferResponse(notice=notice))

    async def _serve(self) -> None:
        open_ = await self._read_open()
        leg = await self._open(open_)
        await self._write(pb.InferResponse(opened=self._host.opened()))
        logger.info(
            "leg opened",
            extra={"session": leg.name[0], "leg": leg.name[1], "epoch": leg.epoch, "span": str(leg.span)},
        )
        patience = limits.OPEN_WITHOUT_STEP_SECONDS
        while (request := await self._read(patience)) is not None:
            patience = limits.IDLE_SECONDS
            if request.WhichOneof("body") != "step":
                raise InvalidArgument("body: only steps may follow the first message of a stream")
            failpoint("received")
            reply = await self._step(leg, request.step)
            failpoint("computed")
            await self._write(reply)
            failpoint("replied")

    async def _read_open(self) -> pb.Open:
        request = await self._read(limits.FIRST_MESSAGE_SECONDS)
        if request is None or request.WhichOneof("body") != "open":
            raise InvalidArgument("body: the first message of a stream must be `open`")
        failpoint("open")
        return request.open

    async def _read(self, patience: float) -> pb.InferRequest | None:
        due = asyncio.get_running_loop().time() + patience
        self._read_due = (due, Idle(f"no message came for {patience:.0f} s"))
        request = await self._context.read()
        self._read_due = None
        return None if request is _EOF else request

    async def _write(self, response: pb.InferResponse) -> None:
        async with self._writing:
            self._write_due = asyncio.get_running_loop().time() + limits.WRITE_SECONDS
            await self._context.write(response)
            self._write_due = None

    async def _abort(self, error: BlockSwarmError) -> None:
        # A client that does not read does not take the status either; the end of this handler ends the call.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.WRITE_SECONDS):
                await abort(self._context, error)

    async def _open(self, open_: pb.Open) -> Leg:
        span = check_open(open_, self._host)
        task = asyncio.current_task()
        assert task is not None
        state = sessions.LegState(max_batch=open_.max_batch, max_length=open_.max_length)
        leg = Leg(next(_keys), (open_.session_id, open_.leg_id), open_.epoch, span, state, task)
        self._leg = leg
        self._host.streams[leg.key] = self
        await self._host.legs.register(leg, self._say_waiting)
        await self._host.legs.admit(leg, open_timeout(open_), self._say_waiting)
        if self._host.draining:
            raise Draining("this server is leaving and takes no new legs")
        leg.cache = self._host.model.new_cache(span.start, span.end, limit=open_.max_length)
        return leg

    def _say_waiting(self, position: int) -> Awaitable[None]:
        return self._write(pb.InferResponse(progress=pb.Progress(seq=0, queue_position=position)))

    async def _step(self, leg: Leg, step: pb.Step) -> pb.InferResponse:
        mark = digest(step)
        try:
            if sessions.sequence(leg.state, step.seq, mark) and self._reply is not None:
                return self._reply
        except BlockSwarmError as error:
            return _refusal(step.seq, error)
        leg.state = sessions.received(leg.state, step.seq, mark, step.known_error)
        try:
            self._reply = await self._apply(leg, step)
        except BlockSwarmError as error:
            if error.ends_stream:
                raise
            leg.state = sessions.failed(leg.state, step.seq)
            self._reply = _refusal(step.seq, error)
        return self._reply

    async def _apply(self, leg: Leg, step: pb.Step) -> pb.InferResponse:
        request = describe(step)
        plan = sessions.plan(leg.state, request)
        model, work = self._host.model, _checked(step, request, leg.span, self._host)
        kind = Kind.DECODE if request.tokens <= 1 else Kind.PREFILL
        compute = apply(model, leg, plan, work)
        outcome = await self._wait(kind, max(1, request.tokens * request.batch), compute, step.seq)
        leg.cache, output = outcome.value
        leg.state = plan.after
        replay = step.want == pb.WANT_NOTHING
        if replay and step.seq == 1:
            self._host.metrics.replays.inc()
        # After the reply is under way.
        observe, rows = self._host.metrics.observe_step, request.tokens * request.batch
        asyncio.get_running_loop().call_soon(observe, kind, rows, len(leg.span), outcome, replay)
        timing = pb.Timing(queue_seconds=outcome.queue_seconds, compute_seconds=outcome.compute_seconds)
        result = pb.StepResult(seq=step.seq, position=leg.state.position, output=output, timing=timing)
        return pb.InferResponse(result=result)

    async def _wait(self, kind: Kind, rows: int, compute: Callable[[], Any], seq: int) -> Outcome:
        engine, loop = self._host.engine, asyncio.get_running_loop()
        job = self._job = engine.submit(kind, rows, compute)
        beat: asyncio.TimerHandle

        def tell() -> None:
            nonlocal beat
            beat = loop.call_later(limits.PROGRESS_SECONDS, tell)
            if not engine.stuck:  # then silence is the truth: clients fail over, and /healthz is red
                task = loop.create_task(self._say_running(job, seq))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

        beat = loop.call_later(limits.PROGRESS_SECONDS, tell)
        try:
            return await job.future
        finally:
            beat.cancel()

    async def _say_running(self, job: Job, seq: int) -> None:
        progress = pb.Progress(seq=seq, queue_position=self._host.engine.position(job))
        # The reply's own write meets the same trouble and tells of it.
        with contextlib.suppress(grpc.RpcError, grpc.aio.UsageError):
            await self._write(pb.InferResponse(progress=progress))

    async def _settle(self) -> None:
        """Wait until the compute thread lets go of the leg's cache, then give its memory back. Idempotent."""
        leg, self._leg = self._leg, None
        if leg is None:
            return
        leg.ending = True
        job, self._job = self._job, None
        try:
            for task in self._telling:
                task.cancel()
            if job is not None:
                self._host.engine.cancel(job)
                await job.ended()
        finally:
            self._host.streams.pop(leg.key, None)
            self._host.legs.forget(leg)
            self._host.metrics.observe_end(leg)
            logger.info("leg closed", extra={"session": leg.name[0], "leg": leg.name[1], "epoch": leg.epoch})


def digest(step: pb.Step) -> bytes:
    """What makes two steps the same: sha256 would do; blake2b is faster."""
    return hashlib.blake2b(step.SerializeToString(deterministic=True), digest_size=16).digest()


def _refusal(seq: int, error: BlockSwarmError) -> pb.InferResponse:
    return pb.InferResponse(error=pb.StepError(seq=seq, detail=to_detail(error)))


def _checked(step: pb.Step, request: sessions.StepRequest, span: Span, host: "Host") -> pb.Step:
    if step.want not in (pb.WANT_HIDDEN, pb.WANT_NOTHING) or step.WhichOneof("input") == "token_ids":
        raise Unsupported(
            "this server holds neither embedding nor head: send hidden states and ask for hidden states"
        )
    hidden = step.hidden
    if len(hidden.shape) != 3 or hidden.shape[2] != host.model.hidden_size:
        raise InvalidArgument(
            f"hidden: shape {list(hidden.shape)}, expected [batch, tokens, {host.model.hidden_size}]"
        )
    if step.HasField("prompts"):
        _check_prompts(step.prompts.shape, request, span, host)
    return step


def _check_prompts(shape: Any, request: sessions.StepRequest, span: Span, host: "Host") -> None:
    wanted = f"[{len(span)}, {request.batch} or 1, prefix, {host.model.hidden_size}]"
    if len(shape) != 4 or shape[0] != len(span) or shape[1] not in (1, request.batch):
        raise InvalidArgument(f"prompts: shape {list(shape)}, expected {wanted}")
    if shape[3] != host.model.hidden_size:
        raise InvalidArgument(f"prompts: shape {list(shape)}, expected {wanted}")
    if shape[2] > request.tokens:
        raise InvalidArgument(
            f"prompts: prefix of {shape[2]} is longer than the step's {request.tokens} tokens"
        )
