"""A step against the model: runs on the compute thread; either all of it is applied or the leg is as before."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from blockswarm_services.server.failpoints import failpoint
from blockswarm_services.server.kv import LegCache
from blockswarm_services.server.legs import Leg
from blockswarm_services.server.sessions import LegState, Plan, StepRequest
from blockswarm_wire import tensor as codec
from blockswarm_wire.errors import CallerError, InvalidArgument, ServerFault
from blockswarm_wire.limits import MAX_BATCH, MAX_TENSOR_DIMS
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import tensor_pb2

if TYPE_CHECKING:
    from blockswarm_services.server.model import SpanModel

Applied = tuple[LegCache, tensor_pb2.Tensor]


def describe(step: pb.Step) -> StepRequest:
    """The step's header as plain data.

    Raises:
        InvalidArgument: no input, or one of fewer than two dimensions.
    """
    kind = step.WhichOneof("input")
    if kind is None:
        raise InvalidArgument("input: a step needs hidden states or token ids")
    shape = getattr(step, kind).shape
    # Lengths first: a hostile list of millions must not be copied or printed.
    for field, length, limit in (
        (f"{kind}: shape", len(shape), MAX_TENSOR_DIMS),
        ("prompts: shape", len(step.prompts.shape), MAX_TENSOR_DIMS),
        ("pad", len(step.pad), MAX_BATCH),
        ("hypo_ids", len(step.hypo_ids), MAX_BATCH),
    ):
        if length > limit:
            raise InvalidArgument(f"{field}: {length} entries, more than {limit}")
    if len(shape) < 2:
        raise InvalidArgument(f"{kind}: shape {list(shape)} lacks batch or tokens")
    return StepRequest(
        seq=step.seq,
        position=step.position,
        batch=shape[0],
        tokens=shape[1],
        pad=tuple(step.pad),
        hypo_ids=tuple(step.hypo_ids),
    )


def apply(model: "SpanModel", leg: Leg, plan: Plan, step: pb.Step) -> Callable[[], Applied]:
    """The work of one step: decode, check, truncate, reorder, append, encode."""

    def compute() -> Applied:
        hidden = codec.decode(step.hidden, field="hidden", dims=3, dtype=model.dtype)
        keep = _keep(plan) if any(plan.pad) else None
        codec.check_finite(hidden, field="hidden", keep=keep)
        prompts = None
        if step.HasField("prompts"):
            prompts = codec.decode(step.prompts, field="prompts", dims=4, dtype=model.dtype)
            codec.check_finite(prompts, field="prompts")
        failpoint("computing")
        cache = _prepare(model, leg, plan)
        if plan.tokens == 0:
            return cache, codec.encode(hidden)
        try:
            output = _guarded(_forward(model, leg, plan, cache, hidden, prompts), keep)
        except CallerError as error:
            # All that a caller can do wrong was checked before the cache was touched.
            raise ServerFault(f"the step failed half-way: {error}") from error
        return cache, codec.encode(output[:, :0] if step.want == pb.WANT_NOTHING else output)

    return compute


def _prepare(model: "SpanModel", leg: Leg, plan: Plan) -> LegCache:
    """The leg's cache, cut and reordered. A rollback to 0 starts a new one, whatever the model's state is."""
    cache = leg.cache
    if cache is None or plan.truncate_to == 0:
        return model.new_cache(leg.span.start, leg.span.end, limit=leg.state.max_length)
    cache.truncate(plan.truncate_to)
    if plan.hypo_ids:
        cache.reorder(plan.hypo_ids)
    return cache


def _forward(
    model: "SpanModel",
    leg: Leg,
    plan: Plan,
    cache: LegCache,
    hidden: torch.Tensor,
    prompts: torch.Tensor | None,
) -> torch.Tensor:
    mask, positions = None, None
    if plan.after.padded:
        mask = padding_mask(plan.after).to(model.device)
        positions = (mask.long().cumsum(-1) - 1).clamp(min=0)[:, plan.truncate_to :]
    else:
        positions = torch.arange(plan.truncate_to, plan.after.position, device=model.device).unsqueeze(0)
    return model.forward(
        hidden.to(model.device),
        cache,
        mask=mask,
        position_ids=positions,
        prompts=None if prompts is None else prompts.to(model.device),
        prompt_starts=list(plan.pad),
        start=leg.span.start,
        end=leg.span.end,
    )


def padding_mask(state: LegState) -> torch.Tensor:
    """Bool [rows, position]; False = padding."""
    mask = torch.ones(state.rows, state.position, dtype=torch.bool)
    for row, ranges in enumerate(state.pads):
        for start, end in ranges:
            mask[row, start:end] = False
    return mask


def _keep(plan: Plan) -> torch.Tensor:
    """Bool [rows, tokens] of this step; False = padding."""
    starts = torch.tensor(plan.pad).unsqueeze(1)
    return torch.arange(plan.tokens).unsqueeze(0) >= starts


def _guarded(output: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
    output = output.to("cpu")
    if keep is not None:
        output = output.masked_fill(~keep.unsqueeze(-1), 0.0)
    if not bool(torch.isfinite(output).all()):
        # Input and weights were finite, so the fault is on this side: another server may do better.
        raise ServerFault("the blocks produced NaN or infinity")
    return output
