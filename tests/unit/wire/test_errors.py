"""The tree of errors: complete, and the same on both ends."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockswarm_wire import errors
from blockswarm_wire.errors import (
    BY_CODE,
    BlockSwarmError,
    CallerError,
    CapacityError,
    InvalidArgument,
    LostError,
    ServerFault,
    Unreachable,
    from_detail,
    from_status,
    to_detail,
)
from blockswarm_wire.v1 import errors_pb2 as pb

_STATUSES = [status.name for status in grpc.StatusCode]


def test_every_code_has_one_error_and_a_status() -> None:
    codes = {number for number in pb.ErrorCode.values() if number != pb.ERROR_CODE_UNSPECIFIED}
    assert set(BY_CODE) == codes
    assert all(cls.grpc_status in _STATUSES for cls in BY_CODE.values())


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=lambda cls: cls.__name__)
@given(message=st.text(max_size=100), retry=st.one_of(st.none(), st.floats(0.5, 100, width=32)))
def test_each_error_survives_both_ways(cls: type[BlockSwarmError], message: str, retry: float | None) -> None:
    error = cls(message, retry_after=retry)
    data = to_detail(error).SerializeToString()
    for back in (from_detail(pb.ErrorDetail.FromString(data)), from_status(cls.grpc_status, "x", data)):
        assert type(back) is cls
        assert back.message == str(back) == message
        assert back.retry_after == retry


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=lambda cls: cls.__name__)
def test_each_error_says_who_acts_next(cls: type[BlockSwarmError]) -> None:
    kinds = [
        kind for kind in (CallerError, CapacityError, LostError, errors.Aborted) if issubclass(cls, kind)
    ]
    assert len(kinds) == 1
    assert not cls.blames_server or issubclass(cls, LostError)
    assert cls.ends_stream == issubclass(cls, LostError)


def test_what_callers_expect_as_value_error_is_one() -> None:
    assert issubclass(errors.InvalidArgument, ValueError)
    assert issubclass(errors.MaxLengthExceeded, ValueError)


def test_an_unknown_code_fails_over() -> None:
    error = from_detail(pb.ErrorDetail(code=999, message="new"))  # type: ignore[arg-type]
    assert type(error) is ServerFault
    assert str(error) == "unknown error code 999: new"


def test_long_messages_are_cut() -> None:
    assert len(to_detail(InvalidArgument("x" * 10_000)).message) == 2_000


@pytest.mark.parametrize("status", _STATUSES)
@given(details=st.text(max_size=50), trailer=st.one_of(st.none(), st.binary(max_size=60)))
def test_any_end_of_a_call_is_one_of_ours(status: str, details: str, trailer: bytes | None) -> None:
    error = from_status(status, details, trailer)
    assert isinstance(error, BlockSwarmError)
    assert error.code in BY_CODE


def test_a_call_that_ended_without_our_trailer() -> None:
    assert type(from_status("UNAVAILABLE", "refused", None)) is Unreachable
    assert type(from_status("DEADLINE_EXCEEDED", "", None)) is Unreachable
    assert type(from_status("INVALID_ARGUMENT", "bad", None)) is InvalidArgument
    assert type(from_status("UNAVAILABLE", "x", b"\xff\xff\xff")) is ServerFault
