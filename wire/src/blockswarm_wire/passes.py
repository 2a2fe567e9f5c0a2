"""A stateless pass (Forward, Backward) as a stream of parts: one header that announces every tensor, then their bytes.

`PassReader` knows nothing of sockets; `read_pass` drives it from any stream of parts. Needs torch.
"""

from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass, field

import torch

from blockswarm_wire import tensor as codec
from blockswarm_wire.errors import InvalidArgument, UnsupportedVersion
from blockswarm_wire.limits import (
    MAX_BATCH,
    MAX_PASS_BYTES,
    MAX_PASS_TOKENS,
    PASS_PART_BYTES,
    PROTOCOL_VERSION,
)
from blockswarm_wire.span import Span
from blockswarm_wire.v1 import block_server_pb2 as pb

# Each role at most once.
_MAX_TENSORS = 5
_DIMS = {pb.HIDDEN: 3, pb.PROMPTS: 4, pb.GRAD_OUTPUT: 3, pb.GRAD_HIDDEN: 3, pb.GRAD_PROMPTS: 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one direction of a pass carries.

    span: blocks, absolute numbers.
    fingerprint: of the model.
    pad: leading padding per batch row, () = none anywhere.
    tensors: by role; HIDDEN and gradients [batch, tokens, hidden], PROMPTS [blocks, batch or 1, prefix, hidden].
    """

    span: Span
    fingerprint: str
    tensors: dict[pb.TensorRole, torch.Tensor]
    pad: tuple[int, ...] = ()
    adapter: str = ""

    def mask(self) -> torch.Tensor | None:
        """bool [batch, tokens], False = padding; None = no padding anywhere."""
        if not any(self.pad):
            return None
        tokens = self.tensors[pb.HIDDEN].shape[1]
        return torch.arange(tokens)[None] >= torch.tensor(self.pad)[:, None]


def write_pass(what: Pass) -> Iterator[pb.PassPart]:
    """The parts of a pass, none larger than PASS_PART_BYTES plus a small header.

    Raises:
        InvalidArgument: its tensors together are larger than MAX_PASS_BYTES; tells what to send instead.
    """
    headers = [
        pb.TensorHeader(role=role, dtype=codec.wire_dtype(value.dtype, field=_name(role)), shape=value.shape)
        for role, value in what.tensors.items()
    ]
    size = sum(value.nbytes for value in what.tensors.values())
    if size > MAX_PASS_BYTES:
        raise InvalidArgument(
            f"the pass takes {size} bytes, more than {MAX_PASS_BYTES}: send fewer rows or tokens at once"
        )
    header = pb.PassHeader(
        protocol_version=PROTOCOL_VERSION,
        start=what.span.start,
        end=what.span.end,
        fingerprint=what.fingerprint,
        adapter=what.adapter,
        pad=what.pad,
        tensors=headers,
    )
    yield pb.PassPart(header=header)
    for value in what.tensors.values():
        data = memoryview(codec.to_bytes(value))
        for start in range(0, len(data), PASS_PART_BYTES):
            yield pb.PassPart(data=bytes(data[start : start + PASS_PART_BYTES]))


@dataclass(slots=True)
class _Slot:
    role: pb.TensorRole
    dtype: torch.dtype
    shape: tuple[int, ...]
    size: int
    data: bytearray = field(default_factory=bytearray)


class PassReader:
    """Puts a pass together again. Holds no more memory than the bytes that really came.

    Args:
        roles: the tensors that may come; those of `required` must.
    """

    def __init__(self, roles: frozenset[pb.TensorRole], required: frozenset[pb.TensorRole]) -> None:
        self._roles = roles
        self._required = required
        self._header: pb.PassHeader | None = None
        self._slots: list[_Slot] = []
        self._filling = 0

    def feed(self, part: pb.PassPart) -> None:
        """Take the next part; parts that only say "still alive" change nothing.

        Raises:
            InvalidArgument: malformed, oversized, or out of place; nothing larger than the part was allocated.
            UnsupportedVersion: the other end speaks another version.
        """
        kind = part.WhichOneof("body")
        if kind == "header":
            self._take_header(part.header)
        elif kind == "data":
            self._take_data(part.data)
        elif kind != "progress":
            raise InvalidArgument("body: a part holds a header, data or progress")

    @property
    def span(self) -> Span | None:
        """The blocks asked for, once the header is there."""
        return None if self._header is None else Span(self._header.start, self._header.end)

    @property
    def header(self) -> pb.PassHeader | None:
        """The checked header, None before it came."""
        return self._header

    @property
    def done(self) -> bool:
        """Whether everything that the header announces is there."""
        return self._header is not None and self._filling == len(self._slots)

    def result(self) -> Pass:
        """The pass.

        Raises:
            InvalidArgument: the stream ended too early; names what is missing.
        """
        if self._header is None:
            raise InvalidArgument("header: the stream ended without one")
        if not self.done:
            slot = self._slots[self._filling]
            raise InvalidArgument(
                f"{_name(slot.role)}: the stream ended after {len(slot.data)} of {slot.size} bytes"
            )
        return Pass(
            span=Span(self._header.start, self._header.end),
            fingerprint=self._header.fingerprint,
            adapter=self._header.adapter,
            pad=tuple(self._header.pad),
            tensors={slot.role: _tensor(slot) for slot in self._slots},
        )

    def _take_header(self, header: pb.PassHeader) -> None:
        if self._header is not None:
            raise InvalidArgument("header: a second one came")
        if header.protocol_version != PROTOCOL_VERSION:
            raise UnsupportedVersion(
                f"protocol_version {header.protocol_version}, this end speaks {PROTOCOL_VERSION}"
            )
        Span(header.start, header.end)
        if len(header.tensors) > _MAX_TENSORS:
            raise InvalidArgument(f"tensors: {len(header.tensors)} announced, at most {_MAX_TENSORS}")
        slots = [self._slot(announced) for announced in header.tensors]
        roles = [slot.role for slot in slots]
        if len(set(roles)) != len(roles):
            raise InvalidArgument(f"tensors: a role came twice: {', '.join(map(_name, roles))}")
        missing = self._required - set(roles)
        if missing:
            raise InvalidArgument(f"tensors: {', '.join(sorted(map(_name, missing)))} is missing")
        if sum(slot.size for slot in slots) > MAX_PASS_BYTES:
            raise InvalidArgument(
                f"tensors: together larger than {MAX_PASS_BYTES} bytes; send fewer rows at once"
            )
        _check_shapes({slot.role: slot.shape for slot in slots}, header)
        self._header, self._slots = header, slots
        self._skip_full()

    def _slot(self, announced: pb.TensorHeader) -> _Slot:
        if announced.role not in self._roles:
            raise InvalidArgument(f"tensors: {_name(announced.role)} does not belong into this stream")
        name = _name(announced.role)
        dtype, size = codec.checked_header(
            announced.dtype, announced.shape, field=name, max_bytes=MAX_PASS_BYTES
        )
        if len(announced.shape) != _DIMS[announced.role]:
            raise InvalidArgument(
                f"{name}: {len(announced.shape)} dimensions, expected {_DIMS[announced.role]}"
            )
        if not dtype.is_floating_point:
            raise InvalidArgument(f"{name}: dtype {codec.dtype_name(dtype)} is not a floating-point one")
        return _Slot(announced.role, dtype, tuple(announced.shape), size)

    def _take_data(self, data: bytes) -> None:
        if self._header is None:
            raise InvalidArgument("data: came before the header")
        if self.done:
            raise InvalidArgument("data: more bytes came than the header announces")
        slot = self._slots[self._filling]
        if len(data) > PASS_PART_BYTES or len(slot.data) + len(data) > slot.size:
            raise InvalidArgument(
                f"{_name(slot.role)}: {len(slot.data) + len(data)} bytes came, the header announces {slot.size} in "
                f"parts of at most {PASS_PART_BYTES}"
            )
        slot.data += data
        self._skip_full()

    def _skip_full(self) -> None:
        while self._filling < len(self._slots):
            slot = self._slots[self._filling]
            if len(slot.data) < slot.size:
                return
            self._filling += 1


async def read_pass(
    parts: AsyncIterable[pb.PassPart],
    *,
    roles: frozenset[pb.TensorRole],
    required: frozenset[pb.TensorRole],
) -> Pass:
    """The pass behind a stream of parts; stops reading as soon as it is complete.

    Args:
        parts: as they come; deadlines are the caller's.
        roles: tensors that may come.
        required: tensors that must come.

    Raises:
        InvalidArgument: malformed, oversized or cut short.
        UnsupportedVersion: the other end speaks another version.
    """
    reader = PassReader(roles, required)
    async for part in parts:
        reader.feed(part)
        if reader.done:
            break
    return reader.result()


def _check_shapes(shapes: dict[pb.TensorRole, tuple[int, ...]], header: pb.PassHeader) -> None:
    rows = [shapes[role] for role in (pb.HIDDEN, pb.GRAD_OUTPUT, pb.GRAD_HIDDEN) if role in shapes]
    if any(shape != rows[0] for shape in rows):
        raise InvalidArgument(f"tensors: shapes {[list(shape) for shape in rows]} must be the same")
    batch, tokens = rows[0][:2] if rows else (0, 0)
    if batch > MAX_BATCH:
        raise InvalidArgument(f"hidden: {batch} rows, at most {MAX_BATCH}")
    if batch * tokens > MAX_PASS_TOKENS:
        raise InvalidArgument(
            f"hidden: {batch} rows of {tokens} tokens, at most {MAX_PASS_TOKENS} tokens in one pass: send fewer rows"
        )
    if header.pad and (len(header.pad) != batch or max(header.pad) > tokens):
        raise InvalidArgument(
            f"pad: {len(header.pad)} entries up to {max(header.pad)} for {batch} rows of {tokens}"
        )
    for role in (pb.PROMPTS, pb.GRAD_PROMPTS):
        shape = shapes.get(role)
        if shape is None or not rows:
            continue
        blocks, width, prefix, hidden = shape
        longest = max(header.pad, default=0)
        if blocks != header.end - header.start or width not in (1, batch) or hidden != rows[0][2]:
            raise InvalidArgument(
                f"{_name(role)}: shape {list(shape)}, expected [{header.end - header.start}, 1 or {batch}, prefix, "
                f"{rows[0][2]}]"
            )
        if prefix > tokens - longest:
            raise InvalidArgument(
                f"{_name(role)}: prefix of {prefix} is longer than the {tokens - longest} tokens of the shortest row"
            )


def _tensor(slot: _Slot) -> torch.Tensor:
    if not slot.size:
        return torch.empty(slot.shape, dtype=slot.dtype)
    return torch.frombuffer(slot.data, dtype=slot.dtype).view(slot.shape)


def _name(role: int) -> str:
    known: dict[int, str] = {value: name for name, value in pb.TensorRole.items()}
    return known.get(role, f"role {role}").lower()
