from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_CODE_UNSPECIFIED: _ClassVar[ErrorCode]
    INVALID_ARGUMENT: _ClassVar[ErrorCode]
    MAX_LENGTH_EXCEEDED: _ClassVar[ErrorCode]
    NEVER_FITS: _ClassVar[ErrorCode]
    OUT_OF_ORDER: _ClassVar[ErrorCode]
    STALE_EPOCH: _ClassVar[ErrorCode]
    UNSUPPORTED: _ClassVar[ErrorCode]
    UNSUPPORTED_VERSION: _ClassVar[ErrorCode]
    CACHE_FULL: _ClassVar[ErrorCode]
    TOO_MANY_SESSIONS: _ClassVar[ErrorCode]
    BUSY: _ClassVar[ErrorCode]
    WRONG_MODEL: _ClassVar[ErrorCode]
    WRONG_SPAN: _ClassVar[ErrorCode]
    FENCED: _ClassVar[ErrorCode]
    DRAINING: _ClassVar[ErrorCode]
    GONE: _ClassVar[ErrorCode]
    IDLE: _ClassVar[ErrorCode]
    EVICTED: _ClassVar[ErrorCode]
    INTERNAL: _ClassVar[ErrorCode]
    CANNOT_TRUNCATE: _ClassVar[ErrorCode]
    UNREACHABLE: _ClassVar[ErrorCode]
    ABORTED: _ClassVar[ErrorCode]
ERROR_CODE_UNSPECIFIED: ErrorCode
INVALID_ARGUMENT: ErrorCode
MAX_LENGTH_EXCEEDED: ErrorCode
NEVER_FITS: ErrorCode
OUT_OF_ORDER: ErrorCode
STALE_EPOCH: ErrorCode
UNSUPPORTED: ErrorCode
UNSUPPORTED_VERSION: ErrorCode
CACHE_FULL: ErrorCode
TOO_MANY_SESSIONS: ErrorCode
BUSY: ErrorCode
WRONG_MODEL: ErrorCode
WRONG_SPAN: ErrorCode
FENCED: ErrorCode
DRAINING: ErrorCode
GONE: ErrorCode
IDLE: ErrorCode
EVICTED: ErrorCode
INTERNAL: ErrorCode
CANNOT_TRUNCATE: ErrorCode
UNREACHABLE: ErrorCode
ABORTED: ErrorCode

class ErrorDetail(_message.Message):
    __slots__ = ("code", "message", "retry_after")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    message: str
    retry_after: float
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., message: _Optional[str] = ..., retry_after: _Optional[float] = ...) -> None: ...
