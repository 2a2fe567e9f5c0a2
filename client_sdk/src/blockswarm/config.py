"""What a client may be told about its swarm and its patience."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.limits import CONNECT_SECONDS, MAX_CHUNK_TOKENS, SILENCE_SECONDS

DIRECTORY_VARIABLE = "BLOCKSWARM_DIRECTORY"


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Settings of one client. Times in seconds.

    directory: "host:port", several of them separated by commas, or a gRPC target such as "dns:///name:port"; without
        it and without initial_peers, the environment variable BLOCKSWARM_DIRECTORY counts.
    initial_peers: multiaddrs (with /p2p/) of DHT peers; the client then joins the DHT instead of asking a directory.
    allowed_servers: if given, only these server ids are used.
    blocked_servers: these server ids are never used.
    max_retries: attempts for one range of blocks before the error reaches the caller.
    min_backoff, max_backoff: bounds of the pause between two attempts.
    failover_timeout: how long a session waits for a server of a block that nobody holds.
    connect_timeout: how long the first look at the swarm may take.
    server_timeout: how long one server may take to accept a connection.
    alloc_timeout: how long a server may keep an Open waiting for KV memory.
    dtype: expected dtype of the blocks; None takes it from the swarm.
    silence_timeout: a server that owes an answer and says nothing for this long is gone.
    chunk_tokens: tokens of a prompt sent in one step.
    deterministic: compute the head in torch's own order, so that logits equal those of the unsplit model bit for bit if
        the servers run with --deterministic too; slower on a CPU.
    seed: of the jitter in pauses and random routes; None = different every time.

    Raises:
        InvalidArgument: directory and initial_peers together, or a number out of its range.
    """

    directory: str | None = None
    initial_peers: tuple[str, ...] = ()
    allowed_servers: frozenset[str] | None = None
    blocked_servers: frozenset[str] = frozenset()
    max_retries: int = 8
    min_backoff: float = 0.1
    max_backoff: float = 5.0
    failover_timeout: float = 120.0
    connect_timeout: float = 15.0
    server_timeout: float = CONNECT_SECONDS
    alloc_timeout: float = 60.0
    dtype: str | None = None
    silence_timeout: float = SILENCE_SECONDS
    chunk_tokens: int = MAX_CHUNK_TOKENS
    deterministic: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("initial_peers", "allowed_servers", "blocked_servers"):
            if isinstance(getattr(self, name), str):
                raise InvalidArgument(f"{name} must be a list of strings, not one string")
        object.__setattr__(self, "initial_peers", tuple(self.initial_peers))
        object.__setattr__(self, "blocked_servers", frozenset(self.blocked_servers))
        if self.allowed_servers is not None:
            object.__setattr__(self, "allowed_servers", frozenset(self.allowed_servers))
        if self.directory and self.initial_peers:
            raise InvalidArgument(
                "give directory= or initial_peers=, not both: they are two doors to one swarm"
            )
        if not 1 <= self.chunk_tokens <= MAX_CHUNK_TOKENS:
            raise InvalidArgument(f"chunk_tokens must be 1…{MAX_CHUNK_TOKENS}, not {self.chunk_tokens}")
        if self.max_retries < 1:
            raise InvalidArgument(f"max_retries must be at least 1, not {self.max_retries}")
        if not 0 <= self.min_backoff <= self.max_backoff:
            raise InvalidArgument("backoff must satisfy 0 <= min_backoff <= max_backoff")
        self._check_positive(
            "failover_timeout", "connect_timeout", "server_timeout", "alloc_timeout", "silence_timeout"
        )

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise InvalidArgument(f"{name} must be a finite number of seconds >= 0, not {value}")

    def targets(self) -> tuple[str, ...]:
        """The directories to ask: the `directory` setting, else $BLOCKSWARM_DIRECTORY, split at commas.

        Raises:
            InvalidArgument: neither is set.
        """
        text = self.directory or os.environ.get(DIRECTORY_VARIABLE, "")
        return split_targets(text)


def split_targets(text: str | Iterable[str]) -> tuple[str, ...]:
    """The single targets of a comma-separated list.

    Raises:
        InvalidArgument: nothing in it; tells how to name a swarm.
    """
    parts = text.split(",") if isinstance(text, str) else list(text)
    targets = tuple(part.strip() for part in parts if part.strip())
    if not targets:
        raise InvalidArgument(
            f'no swarm was named: give directory="host:port" or initial_peers=[...], or set {DIRECTORY_VARIABLE}'
        )
    return targets
