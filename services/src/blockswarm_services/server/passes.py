"""Serving Forward and Backward: read a pass, run it on the compute thread, stream the answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import grpc
import torch

from blockswarm_services.server.model import SpanModel
from blockswarm_services.server.opening import check_range
from blockswarm_services.server.schedule import Kind
from blockswarm_wire import limits
from blockswarm_wire.errors import Busy, Draining, Idle, InvalidArgument
from blockswarm_wire.passes import Pass, PassReader, write_pass
from blockswarm_wire.tensor import check_finite
from blockswarm_wire.v1 import block_server_pb2 as pb

if TYPE_CHECKING:
    from blockswarm_services.server.rpc import Host

_FORWARD = frozenset({pb.HIDDEN, pb.PROMPTS}), frozenset({pb.HIDDEN})
_BACKWARD = frozenset({pb.HIDDEN, pb.PROMPTS, pb.GRAD_OUTPUT}), frozenset({pb.HIDDEN, pb.GRAD_OUTPUT})


async def serve_pass(host: "Host", context: Any, *, backward: bool) -> None:
    """One Forward or Backward call.

    Raises:
        BlockSwarmError: what the call shall end with.
    """
    async with _place(host):
        await _serve(host, context, backward=backward)


@contextlib.asynccontextmanager
async def _place(host: "Host") -> AsyncIterator[None]:
    """One of the few passes at a time: each holds its tensors in memory until it is answered."""
    if host.passes >= limits.MAX_PASSES:
        raise Busy(f"{host.passes} passes are under way, the limit is {limits.MAX_PASSES}", retry_after=0.5)
    host.passes += 1
    try:
        yield
    finally:
        host.passes -= 1


async def _serve(host: "Host", context: Any, *, backward: bool) -> None:
    try:
        async with asyncio.timeout(limits.PASS_READ_SECONDS):
            what = await _read(host, context, backward=backward)
    except TimeoutError:
        raise Idle(f"the pass was not whole within {limits.PASS_READ_SECONDS:.0f} s") from None
    rows = what.tensors[pb.HIDDEN].shape[:2].numel()
    job = host.engine.submit(Kind.PASS, rows, _compute(host, what, backward))
    try:
        while not (await asyncio.wait((job.future,), timeout=limits.PROGRESS_SECONDS))[0]:
            if not host.engine.stuck:
                progress = pb.Progress(queue_position=host.engine.position(job))
                await _write(context, pb.PassPart(progress=progress))
    finally:
        host.engine.cancel(job)  # of use when the caller has gone; a finished job is left alone
    outcome = job.future.result()
    host.metrics.observe_step(Kind.PASS, rows, len(what.span), outcome)
    answer: Pass = outcome.value
    for part in write_pass(answer):
        await _write(context, part)


async def _write(context: Any, part: pb.PassPart) -> None:
    try:
        async with asyncio.timeout(limits.WRITE_SECONDS):
            await context.write(part)
    except TimeoutError:
        raise Idle(f"the answer was not read for {limits.WRITE_SECONDS:.0f} s") from None


async def _read(host: "Host", context: Any, *, backward: bool) -> Pass:
    reader = PassReader(*(_BACKWARD if backward else _FORWARD))
    async for part in _parts(context):
        reader.feed(part)
        if part.WhichOneof("body") == "header":
            assert reader.header is not None
            _check_header(host, reader.header)
        if reader.done:
            break
    return reader.result()


async def _parts(context: Any) -> AsyncIterator[pb.PassPart]:
    while True:
        try:
            async with asyncio.timeout(limits.OPEN_WITHOUT_STEP_SECONDS):
                part = await context.read()
        except TimeoutError:
            raise Idle(f"no part of the pass came for {limits.OPEN_WITHOUT_STEP_SECONDS:.0f} s") from None
        if part is grpc.aio.EOF:  # type: ignore[attr-defined]
            return
        yield part


def _check_header(host: "Host", header: pb.PassHeader) -> None:
    """Refuse before the bytes come what could not be served anyway."""
    if host.draining:
        raise Draining(f"server {host.server_id} is leaving and takes no new passes")
    check_range(header.start, header.end, header.fingerprint, header.adapter, host)
    for announced in header.tensors:
        if announced.shape[-1] != host.model.hidden_size:
            raise InvalidArgument(
                f"{pb.TensorRole.Name(announced.role).lower()}: hidden size {announced.shape[-1]}, "
                f"this model has {host.model.hidden_size}"
            )


def _compute(host: "Host", what: Pass, backward: bool) -> Callable[[], Pass]:
    return lambda: (run_backward if backward else run_forward)(host.model, what)


def run_forward(model: SpanModel, what: Pass) -> Pass:
    """The outputs of a pass."""
    hidden, prompts, mask = _inputs(model, what)
    with torch.no_grad():
        output = model.pass_forward(hidden, prompts, mask=mask, start=what.span.start, end=what.span.end)
    return _answer(what, {pb.HIDDEN: output})


def run_backward(model: SpanModel, what: Pass) -> Pass:
    """The gradients of a pass with respect to its inputs and prompts; the forward pass is run again for them."""
    hidden, prompts, mask = _inputs(model, what)
    check_finite(what.tensors[pb.GRAD_OUTPUT], field="grad_output", keep=what.mask())
    given = what.tensors[pb.GRAD_OUTPUT].to(hidden)
    wanted = [hidden.requires_grad_()]
    if prompts is not None:
        wanted.append(prompts.requires_grad_())
    with torch.enable_grad():
        output = model.pass_forward(hidden, prompts, mask=mask, start=what.span.start, end=what.span.end)
        grads = torch.autograd.grad(output, wanted, given, allow_unused=True)
    full = [torch.zeros_like(of) if grad is None else grad for of, grad in zip(wanted, grads, strict=True)]
    return _answer(what, dict(zip((pb.GRAD_HIDDEN, pb.GRAD_PROMPTS), full, strict=False)))


def _inputs(model: SpanModel, what: Pass) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    hidden = what.tensors[pb.HIDDEN]
    prompts = what.tensors.get(pb.PROMPTS)
    for name, value in (("hidden", hidden), ("prompts", prompts)):
        if value is not None and value.dtype != model.dtype:
            raise InvalidArgument(f"{name}: dtype {value.dtype}, this server computes in {model.dtype}")
    mask = what.mask()
    check_finite(hidden, field="hidden", keep=mask)
    if prompts is not None:
        check_finite(prompts, field="prompts")
        prompts = prompts.to(model.device)
    return hidden.to(model.device), prompts, None if mask is None else mask.to(model.device)


def _answer(what: Pass, tensors: dict[pb.TensorRole, torch.Tensor]) -> Pass:
    cpu = {role: value.detach().to("cpu") for role, value in tensors.items()}
    return Pass(span=what.span, fingerprint=what.fingerprint, tensors=cpu, pad=what.pad)
