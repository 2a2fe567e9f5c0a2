"""What an `Open` may ask for: checked field by field before anything is reserved."""

import math
import re
from typing import TYPE_CHECKING

from blockswarm_wire import limits
from blockswarm_wire.errors import (
    Draining,
    InvalidArgument,
    Unsupported,
    UnsupportedVersion,
    WrongModel,
    WrongSpan,
)
from blockswarm_wire.span import Span
from blockswarm_wire.v1 import block_server_pb2 as pb

if TYPE_CHECKING:
    from blockswarm_services.server.rpc import Host

_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{limits.MAX_ID_BYTES - 1}}}")


def check_open(open_: pb.Open, host: "Host") -> Span:
    """The range of blocks that the Open asks for.

    Raises:
        UnsupportedVersion, InvalidArgument, Unsupported: the caller's mistake.
        WrongModel, WrongSpan, Draining: go elsewhere.
    """
    check_version(open_.protocol_version)
    for field in ("session_id", "leg_id"):
        if not _ID.fullmatch(getattr(open_, field)):
            raise InvalidArgument(
                f"{field}: 1 to {limits.MAX_ID_BYTES} letters, digits, '.', '_', ':' or '-'"
            )
    if open_.epoch < 1:
        raise InvalidArgument("epoch: counts from 1")
    if not 1 <= open_.max_batch <= limits.MAX_BATCH:
        raise InvalidArgument(f"max_batch: {open_.max_batch} is not of 1…{limits.MAX_BATCH}")
    if not 1 <= open_.max_length <= limits.MAX_LENGTH:
        raise InvalidArgument(f"max_length: {open_.max_length} is not of 1…{limits.MAX_LENGTH}")
    if not (math.isfinite(open_.alloc_timeout_seconds) and open_.alloc_timeout_seconds >= 0):
        raise InvalidArgument("alloc_timeout_seconds: must be finite and not negative")
    span = check_range(open_.start, open_.end, open_.fingerprint, open_.adapter, host)
    if host.draining:
        raise Draining("this server is leaving and takes no new legs")
    return span


def open_timeout(open_: pb.Open) -> float:
    """Seconds that the Open may wait for memory."""
    return min(open_.alloc_timeout_seconds, limits.MAX_ALLOC_TIMEOUT_SECONDS)


def check_version(version: int) -> None:
    """Refuse another major version of the protocol."""
    if version != limits.PROTOCOL_VERSION:
        raise UnsupportedVersion(
            f"protocol_version: the client speaks {version}, this server {limits.PROTOCOL_VERSION}: "
            "install matching versions"
        )


def check_range(start: int, end: int, fingerprint: str, adapter: str, host: "Host") -> Span:
    """The range start:end of this server's model.

    Raises:
        WrongModel: another fingerprint. WrongSpan: blocks that are not here. Unsupported: an adapter.
    """
    if fingerprint != host.fingerprint:
        raise WrongModel(
            f"fingerprint: this server holds {host.model_name} {host.fingerprint[:8]}, not {fingerprint[:8] or 'empty'}"
        )
    if adapter:
        raise Unsupported(f"adapter: {adapter[:40]!r} is not loaded here; leave the field empty")
    if end <= start:
        raise InvalidArgument(f"end: {end} must be greater than start {start}")
    if start < host.span.start or end > host.span.end:
        raise WrongSpan(f"blocks {start}:{end} are not here; this server holds {host.span}")
    return Span(start, end)
