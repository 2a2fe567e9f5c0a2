"""Passes in parts: whole again on the other side, and any other order of parts is refused."""

from collections.abc import Iterable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blockswarm_wire.errors import BlockSwarmError, InvalidArgument, UnsupportedVersion
from blockswarm_wire.limits import PASS_PART_BYTES, PROTOCOL_VERSION
from blockswarm_wire.passes import Pass, PassReader, write_pass
from blockswarm_wire.span import Span
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import tensor_pb2

torch.set_num_threads(1)
_ROLES = frozenset({pb.HIDDEN, pb.PROMPTS, pb.GRAD_OUTPUT})
_REQUIRED = frozenset({pb.HIDDEN})


def _read(parts: Iterable[pb.PassPart]) -> Pass:
    reader = PassReader(_ROLES, _REQUIRED)
    for part in parts:
        reader.feed(pb.PassPart.FromString(part.SerializeToString()))
    return reader.result()


def _pass(
    batch: int = 2, tokens: int = 3, hidden: int = 4, prefix: int | None = None, pad: tuple[int, ...] = ()
) -> Pass:
    tensors = {pb.HIDDEN: torch.randn(batch, tokens, hidden)}
    if prefix is not None:
        tensors[pb.PROMPTS] = torch.randn(3, 1, prefix, hidden)
    return Pass(span=Span(2, 5), fingerprint="ab" * 32, tensors=tensors, pad=pad)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(0, 4), st.integers(1, 5), st.booleans())
def test_a_pass_survives_the_trip(batch: int, tokens: int, hidden: int, prompts: bool) -> None:
    sent = _pass(batch, tokens, hidden, 1 if prompts and tokens else None)
    got = _read(write_pass(sent))
    assert (got.span, got.fingerprint, got.pad) == (sent.span, sent.fingerprint, sent.pad)
    assert got.tensors.keys() == sent.tensors.keys()
    assert all(torch.equal(got.tensors[role], sent.tensors[role]) for role in sent.tensors)


def test_large_tensors_come_in_bounded_parts() -> None:
    sent = _pass(1, 3, PASS_PART_BYTES // 4)
    parts = list(write_pass(sent))
    assert len(parts) == 4
    assert max(part.ByteSize() for part in parts) < PASS_PART_BYTES + 1024
    assert torch.equal(_read(parts).tensors[pb.HIDDEN], sent.tensors[pb.HIDDEN])


def test_padding_is_told_as_a_mask() -> None:
    got = _read(write_pass(_pass(pad=(0, 2))))
    mask = got.mask()
    assert mask is not None
    assert mask.tolist() == [[True] * 3, [False, False, True]]
    assert _pass().mask() is None


_header = next(iter(write_pass(_pass()))).header


def _changed(**values: object) -> pb.PassPart:
    header = pb.PassHeader()
    header.CopyFrom(_header)
    for name, value in values.items():
        if isinstance(value, list):
            header.ClearField(name)  # type: ignore[arg-type]
            getattr(header, name).extend(value)
        else:
            setattr(header, name, value)
    return pb.PassPart(header=header)


def _announced(
    role: int = pb.HIDDEN, shape: tuple[int, ...] = (2, 3, 4), dtype: int = tensor_pb2.DTYPE_FLOAT32
) -> pb.TensorHeader:
    return pb.TensorHeader(role=role, dtype=dtype, shape=shape)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (pb.PassPart(), "a part holds"),
        (pb.PassPart(data=b"x"), "before the header"),
        (_changed(start=5, end=5), "start < end"),
        (_changed(tensors=[]), "hidden is missing"),
        (_changed(tensors=[_announced()] * 2), "came twice"),
        (_changed(tensors=[_announced(pb.GRAD_HIDDEN)]), "does not belong"),
        (_changed(tensors=[_announced()] * 9), "at most 5"),
        (_changed(tensors=[_announced(shape=(2, 3))]), "2 dimensions, expected 3"),
        (_changed(tensors=[_announced(shape=(2**31, 2**31, 2**31))]), "more than"),
        (_changed(tensors=[_announced(dtype=77)]), "unknown dtype"),
        (_changed(tensors=[_announced(dtype=tensor_pb2.DTYPE_INT64)]), "floating-point"),
        (_changed(tensors=[_announced(shape=(2000, 1, 1))]), "at most 1024"),
        (_changed(tensors=[_announced(), _announced(pb.GRAD_OUTPUT, (2, 3, 5))]), "must be the same"),
        (_changed(tensors=[_announced(), _announced(pb.PROMPTS, (2, 1, 1, 4))]), "expected"),
        (_changed(tensors=[_announced(), _announced(pb.PROMPTS, (3, 1, 4, 4))]), "longer than"),
        (_changed(pad=[1]), "pad: 1 entries"),
        (_changed(pad=[1, 4]), "pad: 2 entries"),
    ],
)
def test_bad_first_parts_are_named(first: pb.PassPart, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        PassReader(_ROLES, _REQUIRED).feed(first)


def test_another_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        PassReader(_ROLES, _REQUIRED).feed(_changed(protocol_version=PROTOCOL_VERSION + 1))


def test_wrong_sequences_are_named() -> None:
    header, data = list(write_pass(_pass()))
    with pytest.raises(InvalidArgument, match="ended without one"):
        _read([])
    with pytest.raises(InvalidArgument, match="ended after 0 of 96 bytes"):
        _read([header])
    with pytest.raises(InvalidArgument, match="a second one"):
        _read([header, header])
    with pytest.raises(InvalidArgument, match="more bytes came"):
        _read([header, data, data])
    with pytest.raises(InvalidArgument, match="97 bytes came"):
        _read([header, pb.PassPart(data=bytes(97))])


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_any_parts_give_a_pass_or_a_named_error(raw: list[bytes]) -> None:
    parts = [pb.PassPart(data=data) for data in raw]
    try:
        got = _read([pb.PassPart(header=_header), *parts])
    except BlockSwarmError:
        return
    assert got.tensors[pb.HIDDEN].nbytes == sum(map(len, raw))


@given(
    st.lists(st.integers(0, 2**32 - 1), max_size=5),
    st.integers(0, 6),
    st.integers(0, 5),
    st.lists(st.integers(0, 9), max_size=3),
)
def test_any_header_is_taken_or_named(shape: list[int], role: int, dtype: int, pad: list[int]) -> None:
    part = _changed(tensors=[_announced(role, tuple(shape), dtype)], pad=pad)
    reader = PassReader(_ROLES, _REQUIRED)
    try:
        reader.feed(part)
    except BlockSwarmError:
        assert reader.header is None
