from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Entry(_message.Message):
    __slots__ = ("server_id", "record", "statement")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    record: bytes
    statement: bytes
    def __init__(self, server_id: _Optional[str] = ..., record: _Optional[bytes] = ..., statement: _Optional[bytes] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("model_key", "entries")
    MODEL_KEY_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    model_key: str
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    def __init__(self, model_key: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("stored",)
    STORED_FIELD_NUMBER: _ClassVar[int]
    stored: int
    def __init__(self, stored: _Optional[int] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("model_key",)
    MODEL_KEY_FIELD_NUMBER: _ClassVar[int]
    model_key: str
    def __init__(self, model_key: _Optional[str] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("entries", "peers")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    peers: int
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., peers: _Optional[int] = ...) -> None: ...

class ModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Model(_message.Message):
    __slots__ = ("key", "name", "num_blocks", "fingerprint")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    key: str
    name: str
    num_blocks: int
    fingerprint: str
    def __init__(self, key: _Optional[str] = ..., name: _Optional[str] = ..., num_blocks: _Optional[int] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class ModelsResponse(_message.Message):
    __slots__ = ("models", "peers")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    peers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., peers: _Optional[_Iterable[str]] = ...) -> None: ...
