"""The numbers that both ends of a connection rely on. Tokens, bytes or seconds, as the names say."""

PROTOCOL_VERSION = 1

# Messages. A chunk of hidden states stays well below the message limit, so that headers never tip it over.
MAX_MESSAGE_BYTES = 16 * 2**20
MAX_CHUNK_TOKENS = 512
MAX_CHUNK_BYTES = 8 * 2**20
MAX_TENSOR_DIMS = 4
# A pass (Forward, Backward) travels in parts of this size; its tensors together are bounded by the second figure.
PASS_PART_BYTES = 4 * 2**20
MAX_PASS_BYTES = 512 * 2**20
# Tokens x batch rows of one pass: it holds the compute thread, so it must not be long.
MAX_PASS_TOKENS = 16_384
MAX_PASSES = 4
PASS_READ_SECONDS = 120.0
MAX_CALLS = 4_096

# Legs and sessions.
MAX_INFLIGHT_STEPS = 4
MAX_SESSIONS = 256
MAX_BATCH = 1024
MAX_LENGTH = 2**20
MAX_ID_BYTES = 64
FIRST_MESSAGE_SECONDS = 10.0
OPEN_WITHOUT_STEP_SECONDS = 60.0
# A peer that takes nothing of what it is sent for this long has stalled.
WRITE_SECONDS = 30.0
IDLE_SECONDS = 30 * 60.0
MAX_ALLOC_TIMEOUT_SECONDS = 600.0

# A server speaks at least every PROGRESS_SECONDS while it owes an answer; after SILENCE_SECONDS without a word it is
# gone, whatever the size of the step.
PROGRESS_SECONDS = 1.0
SILENCE_SECONDS = 3.0
# The slowest link that may still carry a chunk: a message in transit is not a server's silence.
MIN_BYTES_PER_SECOND = 4 * 2**20
# One piece of work that runs longer than this is stuck; no chunk and no pass comes near it.
STUCK_SECONDS = 180.0
CONNECT_SECONDS = 3.0

# Records in the DHT.
RECORD_VERSION = 1
RECORD_TTL_SECONDS = 30.0
HEARTBEAT_SECONDS = 10.0
MAX_RECORD_BYTES = 1024
MAX_EXPIRY_SECONDS = 120.0
# hivemind tolerates clocks that are this far apart.
MAX_CLOCK_SKEW_SECONDS = 3.0
MAX_ADAPTERS = 8
MAX_NEXT_PINGS = 8
MAX_BLOCKS = 4096

# Default ports.
SERVER_PORT = 31330
SERVER_DHT_PORT = 31331
DIRECTORY_PORT = 31340
DIRECTORY_DHT_PORT = 31341
METRICS_PORT = 9090

# gRPC keepalive that notices a frozen peer in seconds. `ping_timeout_ms` is what decides (its default is 60 s), and the
# server must permit the pings by this exact option name, or it ends the connection with too_many_pings.
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)
CHANNEL_OPTIONS = (
    *_KEEPALIVE,
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
SERVER_OPTIONS = (
    *_KEEPALIVE,
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),
)
