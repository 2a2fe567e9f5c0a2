"""The state of one leg as plain data: what a step may do to it, decided before anything is touched."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from blockswarm_wire.errors import Aborted, InvalidArgument, MaxLengthExceeded, OutOfOrder
from blockswarm_wire.limits import MAX_CHUNK_TOKENS
from blockswarm_wire.padding import Ranges, advance


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """A step as its header tells it; the tensors stay bytes.

    `batch` and `tokens` are the first two dimensions of the input.
    """

    seq: int
    position: int
    batch: int
    tokens: int
    pad: Sequence[int] = ()
    hypo_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LegState:
    """What a leg holds between two steps. `rows` is 0 until the first step with tokens."""

    max_batch: int
    max_length: int
    position: int = 0
    rows: int = 0
    pads: tuple[Ranges, ...] = ()
    seq: int = 0
    digest: bytes = b""
    first_error: int = 0

    @property
    def padded(self) -> bool:
        """Whether any position of any row is padding."""
        return any(self.pads)

    @property
    def held(self) -> int:
        """Tokens x batch rows in the cache."""
        return self.rows * self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do to the cache, in this order, and the state afterwards."""

    truncate_to: int
    hypo_ids: tuple[int, ...]
    tokens: int
    rows: int
    pad: tuple[int, ...]
    after: LegState = field(repr=False)


def sequence(state: LegState, seq: int, digest: bytes) -> bool:
    """Whether the step repeats the last one, whose stored reply is then due.

    Raises:
        OutOfOrder: a gap, an older step, or the last seq with other contents. The leg is as before.
    """
    if seq == state.seq and seq > 0:
        if digest != state.digest:
            raise OutOfOrder(f"seq {seq} was already used for a different step")
        return True
    if seq != state.seq + 1:
        raise OutOfOrder(f"seq {seq} does not follow {state.seq}; steps are numbered without gaps")
    return False


def received(state: LegState, seq: int, digest: bytes, known_error: int) -> LegState:
    """The state in which `seq` is used up, whatever becomes of the step."""
    settled = known_error >= state.first_error
    return replace(state, seq=seq, digest=digest, first_error=0 if settled else state.first_error)


def failed(state: LegState, seq: int) -> LegState:
    """The state after step `seq` failed: later ones are refused until their sender knows of it."""
    return replace(state, first_error=state.first_error or seq)


def plan(state: LegState, request: StepRequest) -> Plan:
    """Check a step against the leg and say what to do. `state` is what `received` gave.

    Raises:
        Aborted: sent before its sender knew of an earlier error.
        InvalidArgument: a field is out of range.
        MaxLengthExceeded: the step passes the length that the leg was opened with.
    """
    if state.first_error:
        raise Aborted(f"step {request.seq} was not applied: step {state.first_error} failed before it")
    _check_position(state, request)
    _check_rows(state, request)
    position = request.position + request.tokens
    if position > state.max_length:
        raise MaxLengthExceeded(
            f"Maximum length exceeded: prefix {request.position} + current {request.tokens} "
            f"exceeds pre-allocated maximum {state.max_length}"
        )
    pads = advance(
        state.pads, request.position, batch=request.batch, hypo_ids=request.hypo_ids, pad=request.pad
    )
    after = replace(state, position=position, rows=request.batch, pads=pads)
    return Plan(
        truncate_to=request.position,
        hypo_ids=tuple(request.hypo_ids),
        tokens=request.tokens,
        rows=request.batch,
        pad=tuple(request.pad) or (0,) * request.batch,
        after=after,
    )


def _check_position(state: LegState, request: StepRequest) -> None:
    if request.position > state.position:
        raise InvalidArgument(
            f"position {request.position} is ahead of the leg's {state.position}: send the missing tokens first"
        )
    if request.tokens > MAX_CHUNK_TOKENS:
        raise InvalidArgument(
            f"input: {request.tokens} tokens in one step, more than {MAX_CHUNK_TOKENS}: send chunks"
        )


def _check_rows(state: LegState, request: StepRequest) -> None:
    if not 1 <= request.batch <= state.max_batch:
        raise InvalidArgument(
            f"input: batch of {request.batch} rows, the leg was opened for 1 to {state.max_batch}"
        )
    fresh = state.rows == 0 or request.position == 0
    if request.hypo_ids:
        if len(request.hypo_ids) != request.batch:
            raise InvalidArgument(
                f"hypo_ids: {len(request.hypo_ids)} entries for {request.batch} rows of input"
            )
        worst = max(request.hypo_ids)
        if not state.rows or worst >= state.rows:
            raise InvalidArgument(f"hypo_ids: {worst} is out of range, the leg holds {state.rows} rows")
    elif not fresh and request.batch != state.rows:
        raise InvalidArgument(
            f"input: batch of {request.batch} rows, but the leg holds {state.rows}; name them in hypo_ids"
        )
    if request.pad and len(request.pad) != request.batch:
        raise InvalidArgument(f"pad: {len(request.pad)} entries for {request.batch} rows")
    if request.pad and max(request.pad) > request.tokens:
        raise InvalidArgument(f"pad: {max(request.pad)} is longer than the step's {request.tokens} tokens")
