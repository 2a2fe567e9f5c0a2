"""Tensors: bit for bit through the wire, and headers that lie are refused before anything is allocated."""

import math
import tracemalloc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockswarm_wire import tensor as codec
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.v1 import tensor_pb2 as pb

torch.set_num_threads(1)
_DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64]


@given(st.sampled_from(_DTYPES), st.lists(st.integers(0, 5), max_size=4), st.integers(0, 2**31))
def test_every_bit_survives(dtype: torch.dtype, shape: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    size = math.prod(shape) * dtype.itemsize
    # Any bits at all, NaN payloads and denormals too.
    raw = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
    tensor = raw.view(dtype).view(shape) if size else torch.empty(shape, dtype=dtype)
    message = pb.Tensor.FromString(codec.encode(tensor).SerializeToString())
    back = codec.decode(message, field="t", dims=len(shape), dtype=dtype)
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert codec.to_bytes(back) == codec.to_bytes(tensor)


def test_views_travel_as_they_look() -> None:
    tensor = torch.arange(12.0).view(3, 4).t()[1:, ::2]
    assert torch.equal(codec.decode(codec.encode(tensor), field="t"), tensor)


def test_what_arrives_is_ours_to_write() -> None:
    tensor = codec.decode(codec.encode(torch.zeros(3)), field="t")
    tensor += 1
    assert tensor.sum() == 3


_dims = st.integers(0, 2**32 - 1)


@given(
    st.one_of(st.integers(0, 6), st.just(99)),
    st.lists(st.one_of(st.integers(0, 4), _dims), max_size=6),
    st.binary(max_size=64),
)
def test_any_header_is_true_or_a_named_error(dtype: int, shape: list[int], data: bytes) -> None:
    message = pb.Tensor(dtype=dtype, shape=shape, data=data)  # type: ignore[arg-type]
    try:
        tensor = codec.decode(message, field="hidden")
    except InvalidArgument:
        return
    assert list(tensor.shape) == shape
    assert tensor.nbytes == len(data)


@pytest.mark.parametrize(
    ("shape", "size", "text"),
    [
        ([2**31, 2**31, 2**31, 2**31], 4, "takes"),
        ([2**32 - 1], 4, "takes"),
        ([3], 8, "takes 12 bytes, but 8 came"),
        ([1, 1, 1, 1, 1], 4, "5 dimensions"),
        ([0, 2**32 - 1], 4, "but 4 came"),
    ],
)
def test_a_lying_header_allocates_nothing(shape: list[int], size: int, text: str) -> None:
    message = pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=shape, data=bytes(size))
    tracemalloc.start()
    with pytest.raises(InvalidArgument, match=text):
        codec.decode(message, field="hidden")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_expectations_are_checked() -> None:
    message = codec.encode(torch.zeros(2, 3))
    with pytest.raises(InvalidArgument, match="2 dimensions, expected 3"):
        codec.decode(message, field="hidden", dims=3)
    with pytest.raises(InvalidArgument, match="dtype float32, expected bfloat16"):
        codec.decode(message, field="hidden", dtype=torch.bfloat16)
    with pytest.raises(InvalidArgument, match="does not travel"):
        codec.encode(torch.zeros(2, dtype=torch.float64), field="hidden")
    with pytest.raises(InvalidArgument, match="5 dimensions"):
        codec.encode(torch.zeros(1, 1, 1, 1, 1))
    with pytest.raises(InvalidArgument, match="float8"):
        codec.torch_dtype("float8")
    assert all(codec.torch_dtype(codec.dtype_name(dtype)) == dtype for dtype in _DTYPES[:3])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_values_count_only_where_looked_at(value: float) -> None:
    tensor = torch.zeros(2, 3, 4)
    codec.check_finite(tensor, field="hidden")
    tensor[1, 0, 2] = value
    with pytest.raises(InvalidArgument, match="hidden: holds NaN or infinity"):
        codec.check_finite(tensor, field="hidden")
    keep = torch.ones(2, 3, dtype=torch.bool)
    keep[1, 0] = False
    codec.check_finite(tensor, field="hidden", keep=keep)
    keep[1, 0], keep[0] = True, False
    with pytest.raises(InvalidArgument):
        codec.check_finite(tensor, field="hidden", keep=keep)
