from blockswarm_wire.v1 import errors_pb2 as _errors_pb2
from blockswarm_wire.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Want(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WANT_HIDDEN: _ClassVar[Want]
    WANT_LOGITS: _ClassVar[Want]
    WANT_NOTHING: _ClassVar[Want]

class ServerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVER_STATE_UNSPECIFIED: _ClassVar[ServerState]
    JOINING: _ClassVar[ServerState]
    ONLINE: _ClassVar[ServerState]
    DRAINING_STATE: _ClassVar[ServerState]
    OFFLINE: _ClassVar[ServerState]

class TensorRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TENSOR_ROLE_UNSPECIFIED: _ClassVar[TensorRole]
    HIDDEN: _ClassVar[TensorRole]
    PROMPTS: _ClassVar[TensorRole]
    GRAD_OUTPUT: _ClassVar[TensorRole]
    GRAD_HIDDEN: _ClassVar[TensorRole]
    GRAD_PROMPTS: _ClassVar[TensorRole]
WANT_HIDDEN: Want
WANT_LOGITS: Want
WANT_NOTHING: Want
SERVER_STATE_UNSPECIFIED: ServerState
JOINING: ServerState
ONLINE: ServerState
DRAINING_STATE: ServerState
OFFLINE: ServerState
TENSOR_ROLE_UNSPECIFIED: TensorRole
HIDDEN: TensorRole
PROMPTS: TensorRole
GRAD_OUTPUT: TensorRole
GRAD_HIDDEN: TensorRole
GRAD_PROMPTS: TensorRole

class InferRequest(_message.Message):
    __slots__ = ("open", "step")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    open: Open
    step: Step
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., step: _Optional[_Union[Step, _Mapping]] = ...) -> None: ...

class InferResponse(_message.Message):
    __slots__ = ("opened", "result", "error", "progress", "notice")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    result: StepResult
    error: StepError
    progress: Progress
    notice: Notice
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., result: _Optional[_Union[StepResult, _Mapping]] = ..., error: _Optional[_Union[StepError, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("protocol_version", "session_id", "leg_id", "epoch", "start", "end", "max_batch", "max_length", "adapter", "fingerprint", "alloc_timeout_seconds")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LEG_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ALLOC_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    session_id: str
    leg_id: str
    epoch: int
    start: int
    end: int
    max_batch: int
    max_length: int
    adapter: str
    fingerprint: str
    alloc_timeout_seconds: float
    def __init__(self, protocol_version: _Optional[int] = ..., session_id: _Optional[str] = ..., leg_id: _Optional[str] = ..., epoch: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., max_batch: _Optional[int] = ..., max_length: _Optional[int] = ..., adapter: _Optional[str] = ..., fingerprint: _Optional[str] = ..., alloc_timeout_seconds: _Optional[float] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("instance_id", "max_inflight")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    max_inflight: int
    def __init__(self, instance_id: _Optional[str] = ..., max_inflight: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("seq", "position", "pad", "hypo_ids", "prompts", "hidden", "token_ids", "want", "known_error")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    HYPO_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    KNOWN_ERROR_FIELD_NUMBER: _ClassVar[int]
    seq: int
    position: int
    pad: _containers.RepeatedScalarFieldContainer[int]
    hypo_ids: _containers.RepeatedScalarFieldContainer[int]
    prompts: _tensor_pb2.Tensor
    hidden: _tensor_pb2.Tensor
    token_ids: _tensor_pb2.Tensor
    want: Want
    known_error: int
    def __init__(self, seq: _Optional[int] = ..., position: _Optional[int] = ..., pad: _Optional[_Iterable[int]] = ..., hypo_ids: _Optional[_Iterable[int]] = ..., prompts: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., hidden: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., token_ids: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., want: _Optional[_Union[Want, str]] = ..., known_error: _Optional[int] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("seq", "position", "output", "timing")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    seq: int
    position: int
    output: _tensor_pb2.Tensor
    timing: Timing
    def __init__(self, seq: _Optional[int] = ..., position: _Optional[int] = ..., output: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("queue_seconds", "compute_seconds")
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    queue_seconds: float
    compute_seconds: float
    def __init__(self, queue_seconds: _Optional[float] = ..., compute_seconds: _Optional[float] = ...) -> None: ...

class StepError(_message.Message):
    __slots__ = ("seq", "detail")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    seq: int
    detail: _errors_pb2.ErrorDetail
    def __init__(self, seq: _Optional[int] = ..., detail: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("seq", "queue_position")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    seq: int
    queue_position: int
    def __init__(self, seq: _Optional[int] = ..., queue_position: _Optional[int] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("state", "deadline_seconds")
    STATE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    state: ServerState
    deadline_seconds: float
    def __init__(self, state: _Optional[_Union[ServerState, str]] = ..., deadline_seconds: _Optional[float] = ...) -> None: ...

class PassHeader(_message.Message):
    __slots__ = ("protocol_version", "start", "end", "fingerprint", "adapter", "pad", "tensors")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    start: int
    end: int
    fingerprint: str
    adapter: str
    pad: _containers.RepeatedScalarFieldContainer[int]
    tensors: _containers.RepeatedCompositeFieldContainer[TensorHeader]
    def __init__(self, protocol_version: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., fingerprint: _Optional[str] = ..., adapter: _Optional[str] = ..., pad: _Optional[_Iterable[int]] = ..., tensors: _Optional[_Iterable[_Union[TensorHeader, _Mapping]]] = ...) -> None: ...

class TensorHeader(_message.Message):
    __slots__ = ("role", "dtype", "shape")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    role: TensorRole
    dtype: _tensor_pb2.DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, role: _Optional[_Union[TensorRole, str]] = ..., dtype: _Optional[_Union[_tensor_pb2.DType, str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class PassPart(_message.Message):
    __slots__ = ("header", "data", "progress")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    header: PassHeader
    data: bytes
    progress: Progress
    def __init__(self, header: _Optional[_Union[PassHeader, _Mapping]] = ..., data: _Optional[bytes] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InfoResponse(_message.Message):
    __slots__ = ("protocol_version", "server_id", "instance_id", "model", "fingerprint", "num_blocks", "start", "end", "has_embedding", "has_head", "state", "dtype", "quantization", "hidden_size", "kv_capacity_tokens", "kv_promised_tokens", "kv_used_tokens", "sessions", "max_sessions", "max_inflight", "max_chunk_tokens", "max_message_bytes", "open_without_step_seconds", "idle_seconds", "adapters", "version", "model_type", "can_truncate")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HAS_EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    HAS_HEAD_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    KV_CAPACITY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_PROMISED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_USED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OPEN_WITHOUT_STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    CAN_TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    server_id: str
    instance_id: str
    model: str
    fingerprint: str
    num_blocks: int
    start: int
    end: int
    has_embedding: bool
    has_head: bool
    state: ServerState
    dtype: str
    quantization: str
    hidden_size: int
    kv_capacity_tokens: int
    kv_promised_tokens: int
    kv_used_tokens: int
    sessions: int
    max_sessions: int
    max_inflight: int
    max_chunk_tokens: int
    max_message_bytes: int
    open_without_step_seconds: float
    idle_seconds: float
    adapters: _containers.RepeatedScalarFieldContainer[str]
    version: str
    model_type: str
    can_truncate: bool
    def __init__(self, protocol_version: _Optional[int] = ..., server_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., model: _Optional[str] = ..., fingerprint: _Optional[str] = ..., num_blocks: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., has_embedding: _Optional[bool] = ..., has_head: _Optional[bool] = ..., state: _Optional[_Union[ServerState, str]] = ..., dtype: _Optional[str] = ..., quantization: _Optional[str] = ..., hidden_size: _Optional[int] = ..., kv_capacity_tokens: _Optional[int] = ..., kv_promised_tokens: _Optional[int] = ..., kv_used_tokens: _Optional[int] = ..., sessions: _Optional[int] = ..., max_sessions: _Optional[int] = ..., max_inflight: _Optional[int] = ..., max_chunk_tokens: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., open_without_step_seconds: _Optional[float] = ..., idle_seconds: _Optional[float] = ..., adapters: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., model_type: _Optional[str] = ..., can_truncate: _Optional[bool] = ...) -> None: ...
