"""Tensors on the wire: a header that must agree with the bytes before anything is allocated. Needs torch."""

import math
from collections.abc import Sequence
from typing import Final

import torch

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.limits import MAX_MESSAGE_BYTES, MAX_TENSOR_DIMS
from blockswarm_wire.v1 import tensor_pb2 as pb

_TO_TORCH: Final[dict[int, torch.dtype]] = {
    pb.DTYPE_FLOAT32: torch.float32,
    pb.DTYPE_FLOAT16: torch.float16,
    pb.DTYPE_BFLOAT16: torch.bfloat16,
    pb.DTYPE_INT64: torch.int64,
}
_TO_WIRE: Final[dict[torch.dtype, pb.DType]] = {
    torch.float32: pb.DTYPE_FLOAT32,
    torch.float16: pb.DTYPE_FLOAT16,
    torch.bfloat16: pb.DTYPE_BFLOAT16,
    torch.int64: pb.DTYPE_INT64,
}
_NAMES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a name such as "bfloat16".

    Raises:
        InvalidArgument: not a dtype that blocks compute in.
    """
    if name not in _NAMES:
        raise InvalidArgument(f"dtype {name!r} is not one of {', '.join(_NAMES)}")
    return _NAMES[name]


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a torch dtype, such as "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def wire_dtype(dtype: torch.dtype, *, field: str) -> pb.DType:
    """The wire's number for a dtype.

    Raises:
        InvalidArgument: the dtype does not travel.
    """
    if dtype not in _TO_WIRE:
        allowed = ", ".join(dtype_name(known) for known in _TO_WIRE)
        raise InvalidArgument(f"{field}: dtype {dtype_name(dtype)} does not travel; use one of {allowed}")
    return _TO_WIRE[dtype]


def checked_header(
    dtype: int, shape: Sequence[int], *, field: str, max_bytes: int
) -> tuple[torch.dtype, int]:
    """The torch dtype and the number of bytes that a header announces.

    Raises:
        InvalidArgument: unknown dtype, more than 4 dimensions, or more than `max_bytes`.
    """
    if dtype not in _TO_TORCH:
        raise InvalidArgument(f"{field}: unknown dtype {dtype}")
    if len(shape) > MAX_TENSOR_DIMS:
        raise InvalidArgument(f"{field}: {len(shape)} dimensions, more than {MAX_TENSOR_DIMS}")
    size = math.prod(shape) * _TO_TORCH[dtype].itemsize
    if size > max_bytes:
        raise InvalidArgument(f"{field}: shape {list(shape)} takes {size} bytes, more than {max_bytes}")
    return _TO_TORCH[dtype], size


def encode(tensor: torch.Tensor, *, field: str = "tensor") -> pb.Tensor:
    """`tensor` of at most 4 dimensions as a message; copies it to the CPU where needed."""
    dtype = wire_dtype(tensor.dtype, field=field)
    if tensor.dim() > MAX_TENSOR_DIMS:
        raise InvalidArgument(f"{field}: {tensor.dim()} dimensions, more than {MAX_TENSOR_DIMS}")
    return pb.Tensor(dtype=dtype, shape=tensor.shape, data=to_bytes(tensor))


def to_bytes(tensor: torch.Tensor) -> bytes:
    """Row-major little-endian bytes of a tensor."""
    plain = tensor.detach().cpu()
    if plain.dtype is torch.bfloat16:
        plain = plain.view(torch.int16)  # numpy knows no bfloat16, and none is needed: only the bytes matter
    return plain.numpy().tobytes()


def from_bytes(data: bytes, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """A tensor that owns its memory. The caller has checked that the sizes agree."""
    if not data:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(tuple(shape))


def decode(
    message: pb.Tensor, *, field: str, dims: int | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The tensor behind `message`.

    Args:
        message: as received.
        field: what to call it in errors.
        dims: the number of dimensions it must have.
        dtype: the dtype that it must have.

    Raises:
        InvalidArgument: header and bytes disagree, or not what was asked for; nothing was allocated.
    """
    found, size = checked_header(message.dtype, message.shape, field=field, max_bytes=MAX_MESSAGE_BYTES)
    if size != len(message.data):
        raise InvalidArgument(
            f"{field}: shape {list(message.shape)} of {dtype_name(found)} takes {size} bytes, "
            f"but {len(message.data)} came"
        )
    if dims is not None and len(message.shape) != dims:
        raise InvalidArgument(f"{field}: {len(message.shape)} dimensions, expected {dims}")
    if dtype is not None and found != dtype:
        raise InvalidArgument(f"{field}: dtype {dtype_name(found)}, expected {dtype_name(dtype)}")
    return from_bytes(message.data, found, message.shape)


def check_finite(tensor: torch.Tensor, *, field: str, keep: torch.Tensor | None = None) -> None:
    """Refuse NaN and infinity.

    Args:
        tensor: [batch, tokens, …].
        field: what to call it in errors.
        keep: bool [batch, tokens]; rows that are False are padding and not looked at.

    Raises:
        InvalidArgument: a value is not finite.
    """
    finite = torch.isfinite(tensor)
    if keep is not None:
        finite = finite | ~keep.view(*keep.shape, *([1] * (tensor.dim() - keep.dim())))
    if not bool(finite.all()):
        raise InvalidArgument(f"{field}: holds NaN or infinity")
