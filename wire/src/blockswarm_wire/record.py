"""What lies in the DHT: a server's own record, the operator's statement about it, and how the two merge.

Records are hints, written by processes that may be gone, mistaken or hostile: `decode` checks every field. The truth
about a server is its handshake.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, Self, TypeVar

import msgpack

from blockswarm_wire import limits
from blockswarm_wire.errors import InvalidArgument, UnsupportedVersion
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.span import Span

MODELS_KEY = "_models"
_OPERATOR_SUFFIX = "@operator"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY = re.compile(r"[a-z0-9-]{1,40}-[0-9a-f]{8}")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):(\d{1,5})")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_MAX_TOKENS = 2**48
_T = TypeVar("_T")


class State(StrEnum):
    """A server's life: loading, serving, leaving, left."""

    JOINING = "JOINING"
    ONLINE = "ONLINE"
    DRAINING = "DRAINING"
    OFFLINE = "OFFLINE"


def block_key(key: str, block: int) -> str:
    """DHT key under which the servers of one block of one model lie."""
    return f"{key}.{block}"


def parse_block_key(text: str) -> tuple[str, int]:
    """Model key and block number of a DHT key.

    Raises:
        InvalidArgument: the text is not a block key.
    """
    key, dot, block = text.rpartition(".")
    if not dot or not _KEY.fullmatch(key) or not block.isascii() or not block.isdigit():
        raise InvalidArgument(f"DHT key {text[:80]!r} is not of the form name-fingerprint.block")
    if int(block[:6]) >= limits.MAX_BLOCKS or len(block) > 5:
        raise InvalidArgument(f"DHT key {text[:80]!r} names a block beyond {limits.MAX_BLOCKS - 1}")
    return key, int(block)


def operator_subkey(server_id: str) -> str:
    """Subkey under which the operator writes: two writers never share one."""
    return server_id + _OPERATOR_SUFFIX


def parse_subkey(subkey: str) -> tuple[str, bool]:
    """(server id, whether it is the operator's) of a subkey."""
    server_id = subkey.removesuffix(_OPERATOR_SUFFIX)
    _text("subkey", server_id, _ID)
    return server_id, server_id != subkey


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """What a server says about itself under each of its blocks.

    Units: `kv_*` tokens x batch rows over the whole span; `*_rps` tokens per second through one block;
    `queue_delay` and `next_pings` seconds; `issued_at` Unix seconds.
    """

    WIRE: ClassVar[Mapping[str, str]] = {
        "server_id": "id", "state": "st", "model": "m", "num_blocks": "n", "start": "s", "end": "e",
        "has_embedding": "em", "has_head": "hd", "address": "a", "metrics_port": "mp", "instance": "i",
        "fingerprint": "f", "forward_rps": "fr", "inference_rps": "ir", "kv_capacity": "kc",
        "kv_promised": "kp", "kv_used": "ku", "sessions": "se", "queue_delay": "q", "adapters": "ad",
        "next_pings": "np", "issued_at": "t",
    }  # fmt: skip

    server_id: str
    state: State
    model: str
    num_blocks: int
    start: int
    end: int
    address: str
    instance: str
    fingerprint: str
    issued_at: float
    has_embedding: bool = False
    has_head: bool = False
    metrics_port: int = 0
    forward_rps: float = 0.0
    inference_rps: float = 0.0
    kv_capacity: int = 0
    kv_promised: int = 0
    kv_used: int = 0
    sessions: int = 0
    queue_delay: float = 0.0
    adapters: tuple[str, ...] = ()
    next_pings: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _text("server_id", self.server_id, _ID)
        _label("model", self.model)
        _integer("num_blocks", self.num_blocks, 1, limits.MAX_BLOCKS)
        _integer("start", self.start, 0, self.num_blocks - 1)
        _integer("end", self.end, self.start + 1, self.num_blocks)
        _text("address", self.address, _ADDRESS)
        _integer("address port", int(self.address.rpartition(":")[2]), 1, 65535)
        _text("instance", self.instance, _ID)
        _text("fingerprint", self.fingerprint, _FINGERPRINT)
        _integer("metrics_port", self.metrics_port, 0, 65535)
        for name in ("has_embedding", "has_head"):
            if type(getattr(self, name)) is not bool:
                raise InvalidArgument(f"{name}: must be true or false")
        for name in ("forward_rps", "inference_rps", "queue_delay", "issued_at"):
            _number(name, getattr(self, name))
        for name in ("kv_capacity", "kv_promised", "kv_used", "sessions"):
            _integer(name, getattr(self, name), 0, _MAX_TOKENS)
        if len(self.adapters) > limits.MAX_ADAPTERS:
            raise InvalidArgument(f"adapters: at most {limits.MAX_ADAPTERS}, got {len(self.adapters)}")
        for adapter in self.adapters:
            _text("adapters", adapter, _ID)
        if len(self.next_pings) > limits.MAX_NEXT_PINGS:
            raise InvalidArgument(f"next_pings: at most {limits.MAX_NEXT_PINGS}, got {len(self.next_pings)}")
        for peer, seconds in self.next_pings.items():
            _text("next_pings", peer, _ID)
            _number("next_pings", seconds)

    @property
    def span(self) -> Span:
        """The blocks that the server holds."""
        return Span(self.start, self.end)

    @property
    def model_key(self) -> str:
        """The DHT key of the model that the server serves."""
        return model_key(self.model, self.fingerprint)

    @property
    def expires_at(self) -> float:
        """When the record stops counting, Unix seconds."""
        return self.issued_at + limits.RECORD_TTL_SECONDS

    def encode(self) -> bytes:
        """msgpack, at most 1 KiB.

        Raises:
            InvalidArgument: the record is larger.
        """
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The record behind `data`. Unknown keys are ignored.

        Raises:
            InvalidArgument: malformed, oversized or out of range.
            UnsupportedVersion: written by a newer major version.
        """
        return _decode(
            cls,
            data,
            state=_state,
            adapters=lambda value: tuple(_sequence("adapters", value)),
            next_pings=lambda value: {k: _float(v) for k, v in _mapping("next_pings", value).items()},
            forward_rps=_float,
            inference_rps=_float,
            queue_delay=_float,
            issued_at=_float,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What the operator knows about a server that the server cannot say itself.

    `instance` names the process that the statement is about; "" = whichever it is.
    """

    WIRE: ClassVar[Mapping[str, str]] = {
        "server_id": "id", "state": "st", "instance": "i", "reason": "r", "issued_at": "t",
    }  # fmt: skip

    server_id: str
    state: State
    issued_at: float
    instance: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        _text("server_id", self.server_id, _ID)
        if self.state is State.ONLINE:
            raise InvalidArgument("state: only the server itself may say ONLINE")
        if self.instance != "":
            _text("instance", self.instance, _ID)
        if not isinstance(self.reason, str) or len(self.reason) > 200:
            raise InvalidArgument("reason: at most 200 characters")
        _number("issued_at", self.issued_at)

    @property
    def expires_at(self) -> float:
        """When the statement stops counting, Unix seconds."""
        return self.issued_at + limits.RECORD_TTL_SECONDS

    def encode(self) -> bytes:
        """msgpack, at most 1 KiB."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The statement behind `data`; errors as in `ServerRecord.decode`."""
        return _decode(cls, data, state=_state, issued_at=_float)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One line of the list of models under the DHT key `_models`."""

    WIRE: ClassVar[Mapping[str, str]] = {"key": "k", "name": "m", "num_blocks": "n", "fingerprint": "f"}

    key: str
    name: str
    num_blocks: int
    fingerprint: str

    def __post_init__(self) -> None:
        _label("name", self.name)
        _integer("num_blocks", self.num_blocks, 1, limits.MAX_BLOCKS)
        _text("fingerprint", self.fingerprint, _FINGERPRINT)
        if self.key != model_key(self.name, self.fingerprint):
            raise InvalidArgument(f"key {str(self.key)[:80]!r} does not match name and fingerprint")

    def encode(self) -> bytes:
        """msgpack, at most 1 KiB."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The entry behind `data`; errors as in `ServerRecord.decode`."""
        return _decode(cls, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """A server as readers see it: its record, if any, and the state that counts."""

    server_id: str
    state: State
    record: ServerRecord | None
    reason: str = ""


def merge(record: ServerRecord | None, statement: Statement | None, *, now: float) -> ServerView | None:
    """What counts of a server's record and the operator's statement about it; expired ones do not.

    OFFLINE beats only the instance that it names, until that instance issues a newer record. JOINING counts only
    while the server has no record. DRAINING ranks an online server last, and never hides it.
    """
    if record is not None and record.expires_at <= now:
        record = None
    if statement is not None and statement.expires_at <= now:
        statement = None
    if record is None:
        if statement is None:
            return None
        return ServerView(
            server_id=statement.server_id, state=statement.state, record=None, reason=statement.reason
        )
    state, reason = record.state, ""
    if statement is not None and _overrules(statement, record):
        state, reason = statement.state, statement.reason
    return ServerView(server_id=record.server_id, state=state, record=record, reason=reason)


def _overrules(statement: Statement, record: ServerRecord) -> bool:
    same = statement.instance == record.instance
    if statement.state is State.OFFLINE:
        return same and record.issued_at <= statement.issued_at
    if statement.state is State.DRAINING:
        return record.state is State.ONLINE and (same or not statement.instance)
    return False


def check_fresh(issued_at: float, *, now: float) -> None:
    """Refuse a record that has expired, or whose writer's clock is ahead.

    Raises:
        InvalidArgument: expired, or issued more than MAX_CLOCK_SKEW_SECONDS in the future.
    """
    if issued_at + limits.RECORD_TTL_SECONDS <= now:
        raise InvalidArgument(f"the record expired {now - issued_at - limits.RECORD_TTL_SECONDS:.1f} s ago")
    if issued_at > now + limits.MAX_CLOCK_SKEW_SECONDS:
        raise InvalidArgument(
            f"the record was issued {issued_at - now:.1f} s in the future: synchronise the clocks (clock skew)"
        )


def _encode(item: Any) -> bytes:
    known: Mapping[str, str] = item.WIRE
    body: dict[str, Any] = {"v": limits.RECORD_VERSION}
    for spec in fields(item):
        value = getattr(item, spec.name)
        if isinstance(value, tuple):
            value = list(value)
        body[known[spec.name]] = value.value if isinstance(value, State) else value
    data: bytes = msgpack.packb(body)
    if len(data) > limits.MAX_RECORD_BYTES:
        raise InvalidArgument(
            f"the record takes {len(data)} bytes, more than {limits.MAX_RECORD_BYTES}: shorten names or lists"
        )
    return data


def _decode(cls: type[_T], data: bytes, **readers: Callable[[Any], Any]) -> _T:
    body = _unpack(data)
    known: Mapping[str, str] = cls.WIRE  # type: ignore[attr-defined]
    values = {}
    for name, short in known.items():
        if short in body:
            reader = readers.get(name)
            values[name] = body[short] if reader is None else reader(body[short])
    try:
        return cls(**values)
    except TypeError as error:
        raise InvalidArgument(f"record lacks a field or holds one of the wrong type: {error}") from None


def _unpack(data: bytes) -> dict[Any, Any]:
    if len(data) > limits.MAX_RECORD_BYTES:
        raise InvalidArgument(f"record of {len(data)} bytes, more than {limits.MAX_RECORD_BYTES}")
    try:
        body = msgpack.unpackb(data, raw=False, strict_map_key=True, ext_hook=_no_extension)
    except InvalidArgument:
        raise
    except Exception as error:  # msgpack raises a family of errors for hostile input, not all of one base
        raise InvalidArgument(f"record is not msgpack: {type(error).__name__}") from None
    version = body.get("v") if isinstance(body, dict) else None
    if type(version) is not int:
        raise InvalidArgument("record is not a map with an integer version `v`")
    if version != limits.RECORD_VERSION:
        raise UnsupportedVersion(f"record version {version}; this program reads {limits.RECORD_VERSION}")
    return dict(body)


def _no_extension(code: int, data: bytes) -> Any:
    raise InvalidArgument(f"record holds a msgpack extension (type {code})")


def _state(value: Any) -> State:
    try:
        return State(value)
    except ValueError:
        raise InvalidArgument(f"state {str(value)[:40]!r} is not one of {', '.join(State)}") from None


def _float(value: Any) -> Any:
    # msgpack may hold whole seconds as an integer; a bool is a mistake.
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def _sequence(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidArgument(f"{name}: must be a list")
    return value


def _mapping(name: str, value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{name}: must be a map")
    return value


def _text(name: str, value: Any, form: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InvalidArgument(f"{name}: {str(value)[:80]!r} is not of the form {form.pattern}")


def _label(name: str, value: Any) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= 100 or not value.isprintable():
        raise InvalidArgument(f"{name}: must be 1 to 100 printable characters")


def _integer(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidArgument(f"{name}: {str(value)[:40]} is not an integer of {low}…{high}")


def _number(name: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InvalidArgument(f"{name}: {str(value)[:40]} is not a number")
    if not math.isfinite(value) or value < 0:
        raise InvalidArgument(f"{name}: must be finite and not negative")
