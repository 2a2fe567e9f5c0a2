"""The command line of `blockswarm-server`, parsed once into a frozen object. Imports nothing heavy."""

import argparse
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from blockswarm_wire import limits
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.fingerprint import DTYPES, QUANTIZATIONS
from blockswarm_wire.span import Span

_SERVER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to run one block server. Defaults as in `blockswarm-server --help`."""

    model: str
    revision: str | None
    name: str
    span: Span
    dtype: str
    quantization: str
    device: str
    peers: tuple[str, ...]
    directories: tuple[str, ...]
    listen: str
    announce: str | None
    dht_listen: str
    dht_announce: str | None
    metrics_listen: str
    server_id: str
    cache_tokens: int
    drain_seconds: float
    threads: int | None
    deterministic: bool
    ready_file: Path | None
    cache_dir: Path | None


def parse(argv: Sequence[str] | None = None) -> Settings:
    """Settings from command-line words; exits with status 2 and one clear line where they are wrong."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        span = Span.parse(args.blocks)
    except InvalidArgument as error:
        parser.error(f"--blocks: {error}")
    if not _SERVER_ID.fullmatch(args.server_id):
        parser.error("--server-id: 1 to 64 letters, digits, '.', '_' or '-'")
    if args.cache_tokens < 1 or args.drain_seconds < 0 or (args.threads is not None and args.threads < 1):
        parser.error("--cache-tokens and --threads must be at least 1, --drain-seconds at least 0")
    name = args.name or Path(args.model.rstrip("/")).name
    return Settings(
        model=args.model,
        revision=args.revision,
        name=name,
        span=span,
        dtype=args.dtype,
        quantization=args.quantization,
        device=args.device,
        peers=tuple(args.peer),
        directories=tuple(args.directory),
        listen=args.listen,
        announce=args.announce,
        dht_listen=args.dht_listen,
        dht_announce=args.dht_announce,
        metrics_listen=args.metrics_listen,
        server_id=args.server_id,
        cache_tokens=args.cache_tokens,
        drain_seconds=args.drain_seconds,
        threads=args.threads,
        deterministic=args.deterministic,
        ready_file=args.ready_file,
        cache_dir=args.cache_dir,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="blockswarm-server", description="Serve one span of a model's transformer blocks."
    )
    add = parser.add_argument
    add("--model", required=True, help="folder with config.json and safetensors, or a Hub repository id")
    add("--revision", help="branch, tag or commit of a Hub repository (default: main)")
    add("--cache-dir", type=Path, help="where Hub files are kept (default: the Hub library's own)")
    add("--name", help="label under which clients see the model (default: last part of --model)")
    add("--blocks", required=True, metavar="START:END", help="half-open range of blocks, for example 0:10")
    add(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="type of weights and computation (default: float32)",
    )
    add("--quantization", choices=QUANTIZATIONS, default="none", help="(default: none)")
    add("--device", default="cpu", help="cpu or cuda (default: cpu)")
    add("--peer", action="append", default=[], metavar="MULTIADDR", help="DHT peer to join; may be repeated")
    add(
        "--directory",
        action="append",
        default=[],
        metavar="TARGET",
        help="directories that name DHT peers and hear of changes of state; repeatable",
    )
    add("--listen", default=f"0.0.0.0:{limits.SERVER_PORT}", help="gRPC host:port; port 0 = any free one")
    add(
        "--announce",
        help="host[:port] under which clients reach this server (default: --listen's host, or for 0.0.0.0 the address "
        "of this machine's name)",
    )
    add("--dht-listen", default=f"0.0.0.0:{limits.SERVER_DHT_PORT}", help="DHT peer host:port")
    add("--dht-announce", help="host under which other DHT peers reach this one (default: --announce's host)")
    add(
        "--metrics-listen",
        default=f"0.0.0.0:{limits.METRICS_PORT}",
        help="/healthz, /readyz, /metrics host:port",
    )
    add("--server-id", default=_default_id(), help="stable name of this server (default: host name)")
    add("--cache-tokens", type=int, default=16384, help="KV capacity in tokens x batch rows (default: 16384)")
    add(
        "--drain-seconds",
        type=float,
        default=60.0,
        help="how long SIGTERM waits for sessions to move (default: 60)",
    )
    add("--threads", type=int, help="CPU threads (default: torch's choice)")
    add(
        "--deterministic",
        action="store_true",
        help="outputs equal those of the unsplit model bit for bit; slower on a CPU",
    )
    add("--ready-file", type=Path, help="JSON file that is written when the server is ONLINE")
    return parser


def _default_id() -> str:
    name = os.environ.get("HOSTNAME") or socket.gethostname()
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:64] or "server"
