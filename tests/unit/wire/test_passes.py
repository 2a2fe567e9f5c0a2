"""The part codec of stateless passes: exact there and back, and closed to whatever is malformed."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blockswarm_wire import passes
from blockswarm_wire.errors import BlockSwarmError, InvalidArgument, UnsupportedVersion
from blockswarm_wire.limits import PASS_PART_BYTES
from blockswarm_wire.passes import Pass, PassReader, read_pass, write_pass
from blockswarm_wire.span import Span
from blockswarm_wire.v1 import block_server_pb2 as pb

ROLES = frozenset({pb.HIDDEN, pb.PROMPTS, pb.GRAD_OUTPUT})
NEEDED = frozenset({pb.HIDDEN})


def example(rows=2, tokens=3, hidden=4, prefix=1, dtype=torch.float32, pad=()):
    tensors = {pb.HIDDEN: torch.randn(rows, tokens, hidden).to(dtype)}
    if prefix:
        tensors[pb.PROMPTS] = torch.randn(2, 1, prefix, hidden).to(dtype)
    tensors[pb.GRAD_OUTPUT] = torch.randn(rows, tokens, hidden).to(dtype)
    return Pass(span=Span(3, 5), fingerprint="f" * 64, tensors=tensors, pad=pad)


def read(parts):
    reader = PassReader(ROLES, NEEDED)
    for part in parts:
        reader.feed(part)
    return reader.result()


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(0, 3),
    tokens=st.integers(1, 4),
    hidden=st.integers(1, 5),
    prefix=st.integers(0, 1),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_there_and_back(rows, tokens, hidden, prefix, dtype):
    sent = example(rows, tokens, hidden, prefix, dtype)
    got = read(write_pass(sent))
    assert (got.span, got.fingerprint, got.pad) == (sent.span, sent.fingerprint, sent.pad)
    assert set(got.tensors) == set(sent.tensors)
    for role, value in sent.tensors.items():
        assert got.tensors[role].dtype == dtype
        assert torch.equal(got.tensors[role], value)


async def test_large_tensors_travel_in_parts_and_reading_stops_at_the_end():
    sent = Pass(span=Span(0, 1), fingerprint="f", tensors={pb.HIDDEN: torch.randn(1, 1100, 1024)})
    parts = list(write_pass(sent))
    assert len(parts) == 3
    assert max(len(part.data) for part in parts) == PASS_PART_BYTES

    async def stream():
        for part in parts:
            yield pb.PassPart(progress=pb.Progress(queue_position=1))
            yield part
        pytest.fail("read beyond the end")

    got = await read_pass(stream(), roles=ROLES, required=NEEDED)
    assert torch.equal(got.tensors[pb.HIDDEN], sent.tensors[pb.HIDDEN])


def test_mask():
    assert example().mask() is None
    assert example(pad=(0, 2)).mask().tolist() == [[True] * 3, [False, False, True]]


def header(**changes):
    part = next(iter(write_pass(example())))
    for name, value in changes.items():
        if isinstance(value, list):
            getattr(part.header, name)[:] = value
        else:
            setattr(part.header, name, value)
    return part


def announced(*tensors):
    part = header()
    del part.header.tensors[:]
    for role, dtype, shape in tensors:
        part.header.tensors.add(role=role, dtype=dtype, shape=shape)
    return part


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (pb.PassPart(), "body"),
        (pb.PassPart(data=b"x"), "before the header"),
        (header(end=3), "span"),
        (header(pad=[0, 4]), "pad"),
        (header(pad=[1]), "pad"),
        (header(pad=[0, 3]), "prefix"),
        (announced(), "hidden is missing"),
        (announced((pb.HIDDEN, 1, (1, 1, 2)), (pb.HIDDEN, 1, (1, 1, 2))), "twice"),
        (announced((pb.GRAD_HIDDEN, 1, (1, 1, 2))), "grad_hidden does not belong"),
        (announced((9, 1, (1, 1, 2))), "role 9"),
        (announced((pb.HIDDEN, 1, (1, 2))), "dimensions"),
        (announced((pb.HIDDEN, 4, (1, 1, 2))), "floating"),
        (announced((pb.HIDDEN, 9, (1, 1, 2))), "dtype"),
        (announced((pb.HIDDEN, 1, (4096, 4096, 4096))), "hidden"),
        (announced((pb.HIDDEN, 1, (2000, 1, 1))), "rows"),
        (announced((pb.HIDDEN, 1, (1, 16, 2**23)), (pb.GRAD_OUTPUT, 1, (1, 16, 2**23))), "together"),
        (announced((pb.HIDDEN, 1, (1, 1, 2)), (pb.GRAD_OUTPUT, 1, (1, 1, 3))), "the same"),
        (announced((pb.HIDDEN, 1, (1, 1, 2)), (pb.PROMPTS, 1, (3, 1, 1, 2))), "prompts"),
        (announced((pb.HIDDEN, 1, (1, 1, 2)), (pb.PROMPTS, 1, (2, 1, 2, 2))), "prefix"),
        (announced(*[(pb.HIDDEN, 1, (1, 1, 2))] * 6), "at most"),
    ],
)
def test_malformed_headers(part, text):
    with pytest.raises(InvalidArgument, match=text):
        read([part])


def test_another_version():
    with pytest.raises(UnsupportedVersion):
        read([header(protocol_version=7)])


def test_bytes_that_disagree_with_the_header():
    first, *data = write_pass(example())
    with pytest.raises(InvalidArgument, match="hidden: the stream ended after 0 of 96"):
        read([first])
    with pytest.raises(InvalidArgument, match="97 bytes came"):
        read([first, pb.PassPart(data=b"x" * 97)])
    with pytest.raises(InvalidArgument, match="more bytes"):
        read([first, *data, pb.PassPart(data=b"x")])
    with pytest.raises(InvalidArgument, match="second"):
        read([first, first])
    with pytest.raises(InvalidArgument, match="without one"):
        read([])


def test_a_header_alone_allocates_nothing():
    reader = PassReader(ROLES, NEEDED)
    reader.feed(announced((pb.HIDDEN, 1, (1, 8, 2**23))))
    assert sum(len(slot.data) for slot in reader._slots) == 0


def test_too_large_a_pass_is_not_sent(monkeypatch):
    monkeypatch.setattr(passes, "MAX_PASS_BYTES", 100)
    with pytest.raises(InvalidArgument, match="fewer rows"):
        next(iter(write_pass(example())))


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_named_error_or_a_pass(data):
    try:
        part = pb.PassPart.FromString(data)
    except Exception:
        return
    with contextlib.suppress(BlockSwarmError):
        read([part])
