"""`blockswarm-operator`: wait for the lease, then look after BlockServers until told to stop or the lease is lost."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, cast

import kopf

from blockswarm_operator import health
from blockswarm_operator.cluster import ApiError, Cluster
from blockswarm_operator.collector import Collector
from blockswarm_operator.directory import Directory, DirectoryUnreachable
from blockswarm_operator.ghosts import until_ghosts
from blockswarm_operator.handlers import Memo, kopf_settings, register
from blockswarm_operator.lanes import Lanes
from blockswarm_operator.lease import Lease
from blockswarm_operator.metrics import Metrics
from blockswarm_operator.reconcile import Reconciler
from blockswarm_operator.settings import Settings
from blockswarm_operator.view import Key, View
from blockswarm_wire import logs
from blockswarm_wire.errors import InvalidArgument

logger = logging.getLogger(__name__)

# A pass makes a handful of requests of at most 10 s each.
_STUCK_SECONDS = 120.0


def main() -> None:
    """Entry point of the command."""
    logs.configure("blockswarm-operator")
    try:
        settings = Settings.from_env(os.environ)
    except InvalidArgument as error:
        sys.exit(f"blockswarm-operator: {error}")
    Collector().install()
    sys.exit(asyncio.run(run(settings)))


async def run(settings: Settings) -> int:
    """Run until SIGTERM (returns 0), or until the lease is lost, a watch dies or deletions were missed (returns 1)."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = Metrics()
    cluster = await Cluster.connect(metrics)
    work = _Work(settings, cluster, metrics)
    runner = await health.serve(settings.metrics_listen, metrics.registry, healthy=work.healthy)
    lease = Lease(cluster, settings.lease_namespace, settings.lease_name, settings.identity)
    try:
        if not await _first(stop.wait(), lease.acquire()):
            return 0
        metrics.leader.set(1)
        ended = await _first(stop.wait(), lease.hold(), work.run(stop), work.until_ghosts())
        return 1 if ended else 0
    finally:
        stop.set()
        await work.close()
        await lease.release()
        await runner.cleanup()
        await cluster.close()


class _Work:
    """What only the holder of the lease does."""

    def __init__(self, settings: Settings, cluster: Cluster, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._cluster = cluster
        self._view = View()
        self._lanes: Lanes[Key] = Lanes(lambda key: self._reconciler(key), failed=self._failed)
        self._directory = Directory(settings.directory, self._changed, up=metrics.directory_up.set)
        self._reconciler = Reconciler(self._view, cluster, self._directory, settings, metrics)
        metrics.lanes.set_function(lambda: len(self._lanes))

    def healthy(self) -> bool:
        """Whether every pass ends."""
        return self._lanes.oldest() < _STUCK_SECONDS

    async def run(self, stop: asyncio.Event) -> None:
        """Watch and reconcile until `stop`."""
        registry = kopf.OperatorRegistry()
        register(registry)
        await self._wait_for_the_kind()
        await kopf.operator(
            registry=registry,
            settings=kopf_settings(self._settings),
            memo=Memo(self._view, self._lanes),
            clusterwide=not self._settings.namespaces,
            namespaces=list(self._settings.namespaces),
            # Else kopf asks for the user's name, and the image's user has none.
            identity=cast(Any, self._settings.identity),
            standalone=True,
            stop_flag=stop,
        )

    async def until_ghosts(self) -> None:
        """Return when the watches show what is there no longer."""
        await until_ghosts(self._view, self._cluster, self._settings.namespaces)

    async def close(self) -> None:
        await self._lanes.close()
        await self._directory.close()

    async def _wait_for_the_kind(self) -> None:
        """kopf looks for kinds once; without the CRD it would wait in silence for ever."""
        namespace = next(iter(self._settings.namespaces), self._settings.lease_namespace)
        while True:
            why = "there is no such kind: apply the CustomResourceDefinition"
            try:
                if await self._cluster.read("BlockServer", namespace, "") is not None:
                    return
            except ApiError as error:
                why = str(error)
            logger.warning("the API server does not serve BlockServers yet", extra={"error": why})
            await asyncio.sleep(2)

    def _changed(self, model: str) -> None:
        for key in list(self._view.resources):
            if key[1] == model:
                self._lanes.poke(key)

    def _failed(self, key: Key, error: Exception) -> None:
        kind = {ApiError: "api", DirectoryUnreachable: "directory"}.get(type(error), "bug")
        self._metrics.reconcile_errors.labels(kind).inc()
        logger.warning(
            "pass failed", extra={"lane": key[1], "kind": kind, "error": str(error)}, exc_info=kind == "bug"
        )


async def _first(*waits: Coroutine[Any, Any, Any]) -> bool:
    """Wait for the first to end; False if that was the first of the arguments."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return False
        for task in tasks:
            if task.done():
                task.result()
        return True
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    main()
