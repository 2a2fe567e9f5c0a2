"""`blockswarm-directory`: a DHT bootstrap node with a gRPC door and a metrics endpoint."""

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from blockswarm_dht.address import split_address
from blockswarm_dht.directories import find_peers
from blockswarm_dht.node import SwarmNode
from blockswarm_services.directory.metrics import DirectoryMetrics
from blockswarm_services.directory.mirror import Mirror
from blockswarm_services.directory.rpc import DirectoryService
from blockswarm_services.health import start_health_server
from blockswarm_services.termination import write_termination_message
from blockswarm_wire import logs
from blockswarm_wire.errors import BlockSwarmError, InvalidArgument
from blockswarm_wire.limits import DIRECTORY_DHT_PORT, DIRECTORY_PORT, METRICS_PORT, SERVER_OPTIONS
from blockswarm_wire.v1 import directory_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)

_STOP_SECONDS = 2.0
_SERVICE = "blockswarm.v1.Directory"


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(
        prog="blockswarm-directory",
        description="Bootstrap node of a swarm's DHT, with a gRPC API to read and publish its records.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--listen", default=f"0.0.0.0:{DIRECTORY_PORT}", help="gRPC address host:port (port 0: any)")
    add("--dht-listen", default=f"0.0.0.0:{DIRECTORY_DHT_PORT}", help="DHT address host:port (port 0: any)")
    add("--dht-announce", default=None, help="host:port under which others reach the DHT address")
    add("--peer", action="append", default=[], metavar="MULTIADDR", help="DHT peer to join; repeatable")
    add("--directory", action="append", default=[], metavar="TARGET",
        help="gRPC address of another directory to join, host:port or dns:///name:port; repeatable")  # fmt: skip
    add("--identity", default=None, metavar="FILE", help="key of this DHT node; made if missing")
    add("--metrics-listen", default=f"0.0.0.0:{METRICS_PORT}", help="/healthz, /readyz and /metrics")
    add("--ready-file", default=None, metavar="FILE", help="written as JSON once everything is up")
    return parser.parse_args(arguments)


def check_port(listen: str, *, field: str) -> None:
    """Raise InvalidArgument naming `field` when the address cannot be bound. gRPC's own error names nothing."""
    host, port = split_address(listen, field=field)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InvalidArgument(f"{field} {listen}: {error.strerror}; choose another port") from None


class Directory:
    """All the parts of a running directory, started and stopped in order."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._stop = asyncio.Event()
        self._failure: str | None = None

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; returns the exit status.

        Raises:
            InvalidArgument: an address is malformed or taken; names the flag.
        """
        options = self._options
        check_port(options.listen, field="--listen")
        check_port(options.metrics_listen, field="--metrics-listen")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        node = await SwarmNode.create(
            listen=options.dht_listen,
            announce=options.dht_announce,
            initial_peers=options.peer,
            find_peers=find_peers(options.directory) if options.directory else None,
            identity_path=options.identity,
        )
        node.on_p2pd_death = self._p2pd_died
        try:
            await self._serve(node)
        finally:
            await node.shutdown()
        if self._failure is not None:
            write_termination_message(self._failure)
            return 1
        return 0

    async def _serve(self, node: SwarmNode) -> None:
        options, mirror = self._options, Mirror(node)
        metrics = DirectoryMetrics(mirror, node)
        service, checks = DirectoryService(mirror, node, metrics), health.aio.HealthServicer()  # type: ignore[attr-defined]
        server = grpc.aio.server(options=SERVER_OPTIONS)
        pb_grpc.add_DirectoryServicer_to_server(service, server)
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        host, _ = split_address(options.listen, field="--listen")
        port = server.add_insecure_port(options.listen)
        mirror.start()
        await server.start()
        for name in ("", _SERVICE):
            await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
        http, metrics_port = await start_health_server(
            options.metrics_listen,
            registry=metrics.registry,
            healthy=lambda: node.p2pd_alive and mirror.alive,
            ready=lambda: mirror.synced and not self._stop.is_set(),
        )
        self._announce_ready(host, port, metrics_port, node)
        await self._stop.wait()
        await checks.enter_graceful_shutdown()
        service.close()
        await server.stop(_STOP_SECONDS)
        await mirror.close()
        await http.close()

    def _p2pd_died(self, status: int) -> None:
        self._failure = f"p2pd, the DHT daemon, ended with status {status}"
        self._stop.set()

    def _announce_ready(self, host: str, port: int, metrics_port: int, node: SwarmNode) -> None:
        metrics_host, _ = split_address(self._options.metrics_listen, field="--metrics-listen")
        facts = {
            "address": f"{_reachable(host)}:{port}",
            "peers": node.peers,
            "pid": os.getpid(),
            "metrics": f"{_reachable(metrics_host)}:{metrics_port}",
        }
        logger.info("directory ready", extra=facts)
        if self._options.ready_file is not None:
            target = Path(self._options.ready_file)
            fresh = target.with_name(f".{target.name}.{os.getpid()}")
            fresh.write_text(json.dumps(facts))
            fresh.replace(target)


def _reachable(host: str) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{shown}]" if ":" in shown else shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a directory; exit status 0 after SIGTERM, 1 when it failed, 2 when the command line cannot work."""
    options = parse_arguments(arguments)
    logs.configure("directory")
    try:
        return asyncio.run(Directory(options).run())
    except InvalidArgument as error:
        print(f"blockswarm-directory: {error}", file=sys.stderr)  # noqa: T201  # the command line's own answer
        return 2
    except BlockSwarmError as error:
        write_termination_message(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
