"""One tree of errors that says who acts next, and its mapping to the wire and back.

`CallerError`: the request is wrong; repeating it anywhere fails again. `CapacityError`: nothing is wrong, there is no
room; retry later or elsewhere. `LostError`: this server no longer serves this leg; fail over. `Aborted`: not applied,
because an earlier step of the leg failed; do what that step's error says.
"""

from typing import ClassVar

from blockswarm_wire.v1 import errors_pb2 as pb

TRAILER = "blockswarm-error-bin"
_MAX_MESSAGE = 2_000


class BlockSwarmError(Exception):
    """Root of the tree. `retry_after`: seconds after which a retry makes sense, None = not known."""

    code: ClassVar[pb.ErrorCode] = pb.ERROR_CODE_UNSPECIFIED
    grpc_status: ClassVar[str] = "UNKNOWN"
    ends_stream: ClassVar[bool] = False
    blames_server: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message


class CallerError(BlockSwarmError):
    """The caller must change the request."""

    grpc_status = "INVALID_ARGUMENT"


class InvalidArgument(CallerError, ValueError):
    """A field of the request is malformed; the message names the field and the remedy."""

    code = pb.INVALID_ARGUMENT


class MaxLengthExceeded(CallerError, ValueError):
    """The step would pass the length that the session was opened with."""

    code = pb.MAX_LENGTH_EXCEEDED
    grpc_status = "OUT_OF_RANGE"


class NeverFits(CallerError):
    """The session asks for more KV memory than the server has in all."""

    code = pb.NEVER_FITS
    grpc_status = "OUT_OF_RANGE"


class OutOfOrder(CallerError):
    """A step's seq repeats an older step with other contents, or leaves a gap."""

    code = pb.OUT_OF_ORDER
    grpc_status = "FAILED_PRECONDITION"


class StaleEpoch(CallerError):
    """An Open whose epoch is not higher than that of the leg it names."""

    code = pb.STALE_EPOCH
    grpc_status = "FAILED_PRECONDITION"


class Unsupported(CallerError):
    """This model or this server cannot do what was asked."""

    code = pb.UNSUPPORTED
    grpc_status = "UNIMPLEMENTED"


class UnsupportedVersion(CallerError):
    """The two ends speak different major versions."""

    code = pb.UNSUPPORTED_VERSION
    grpc_status = "UNIMPLEMENTED"


class CapacityError(BlockSwarmError):
    """No room now: retry later or on another server. Nobody is to blame."""

    grpc_status = "RESOURCE_EXHAUSTED"


class CacheFull(CapacityError):
    """No KV memory came free within the Open's alloc_timeout."""

    code = pb.CACHE_FULL


class TooManySessions(CapacityError):
    """The server holds as many sessions as it may."""

    code = pb.TOO_MANY_SESSIONS


class Busy(CapacityError):
    """The server has as much work as it may take."""

    code = pb.BUSY


class LostError(BlockSwarmError):
    """This server no longer serves the leg: rebuild it, here or elsewhere."""

    ends_stream = True
    grpc_status = "UNAVAILABLE"


class WrongModel(LostError):
    """The server at this address holds other weights than the fingerprint says."""

    code = pb.WRONG_MODEL
    grpc_status = "FAILED_PRECONDITION"
    blames_server = True


class WrongSpan(LostError):
    """The server at this address does not hold the blocks asked for."""

    code = pb.WRONG_SPAN
    grpc_status = "FAILED_PRECONDITION"
    blames_server = True


class Fenced(LostError):
    """A newer epoch of the same leg was opened; this stream is over."""

    code = pb.FENCED
    grpc_status = "ABORTED"


class Draining(LostError):
    """The server is leaving and takes no new legs."""

    code = pb.DRAINING


class Gone(LostError):
    """The server ended the leg because it stops."""

    code = pb.GONE
    blames_server = True


class Idle(LostError):
    """The leg was closed because it sent no step for too long."""

    code = pb.IDLE
    grpc_status = "DEADLINE_EXCEEDED"


class Evicted(LostError):
    """The leg's KV memory was taken for an older session; move it by replay."""

    code = pb.EVICTED


class ServerFault(LostError):
    """The server failed while computing; the cause is in its log."""

    code = pb.INTERNAL
    grpc_status = "INTERNAL"
    blames_server = True


class CannotTruncate(LostError):
    """The model's state cannot be rolled back: rebuild the leg by replay."""

    code = pb.CANNOT_TRUNCATE
    grpc_status = "FAILED_PRECONDITION"


class Unreachable(LostError):
    """No connection, a broken one, or silence for longer than a live server may be silent."""

    code = pb.UNREACHABLE
    blames_server = True


class Aborted(BlockSwarmError):
    """Not applied, because an earlier step of the same leg failed."""

    code = pb.ABORTED
    grpc_status = "ABORTED"


def _leaves(cls: type[BlockSwarmError]) -> list[type[BlockSwarmError]]:
    own = [cls] if "code" in vars(cls) and cls.code != pb.ERROR_CODE_UNSPECIFIED else []
    return own + [leaf for sub in cls.__subclasses__() for leaf in _leaves(sub)]


BY_CODE: dict[int, type[BlockSwarmError]] = {leaf.code: leaf for leaf in _leaves(BlockSwarmError)}

# What a call that ended without our trailer means: the transport, or a process that is not ours, spoke.
_BY_STATUS: dict[str, type[BlockSwarmError]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "OUT_OF_RANGE": InvalidArgument,
    "UNIMPLEMENTED": WrongSpan,
    "RESOURCE_EXHAUSTED": Busy,
}
# gRPC's own words for a message above the limit, which no retry makes smaller.
_TOO_LARGE = "larger than max"


def to_detail(error: BlockSwarmError) -> pb.ErrorDetail:
    """The error as a message; long texts are cut to 2,000 characters."""
    return pb.ErrorDetail(
        code=error.code, message=error.message[:_MAX_MESSAGE], retry_after=error.retry_after or 0.0
    )


def from_detail(detail: pb.ErrorDetail) -> BlockSwarmError:
    """The error that `to_detail` was given. A code that this version does not know fails over."""
    cls = BY_CODE.get(detail.code, ServerFault)
    message = detail.message[:_MAX_MESSAGE]
    if detail.code not in BY_CODE:
        message = f"unknown error code {detail.code}: {message}"
    return cls(message, retry_after=detail.retry_after if detail.retry_after > 0 else None)


def from_status(status: str, details: str, trailer: bytes | None) -> BlockSwarmError:
    """The error behind a call that ended with gRPC `status`.

    Args:
        status: name of the gRPC status, such as "UNAVAILABLE".
        details: the status message.
        trailer: bytes of the trailer named TRAILER, if the call carried one.
    """
    if trailer is not None:
        try:
            return from_detail(pb.ErrorDetail.FromString(trailer))
        except Exception:  # protobuf raises DecodeError, which differs by implementation
            return ServerFault(f"the server's error trailer is malformed ({status}: {details[:200]})")
    cls = InvalidArgument if _TOO_LARGE in details else _BY_STATUS.get(status, Unreachable)
    return cls(f"{status}: {details[:_MAX_MESSAGE]}")
