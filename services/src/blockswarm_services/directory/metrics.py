"""The directory's Prometheus metrics. Coverage is computed when asked for; no server or peer ids in labels."""

import time
from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blockswarm_dht.node import SwarmNode
from blockswarm_services.directory.mirror import Mirror

_RESULTS = ("shown", "confirmed", "unconfirmed", "refused")


class DirectoryMetrics:
    """Counters that the service adds to, and a registry that shows everything."""

    def __init__(self, mirror: Mirror, node: SwarmNode) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._published = Counter(
            "blockswarm_directory_published_entries",
            "Entries of Publish requests: refused, records shown, statements that another member confirmed or not.",
            ["result"],
            registry=self.registry,
        )
        for result in _RESULTS:
            self._published.labels(result)
        self.registry.register(_Swarm(mirror, node))

    def published(self, result: str, entries: int) -> None:
        self._published.labels(result).inc(entries)


class _Swarm(Collector):
    def __init__(self, mirror: Mirror, node: SwarmNode) -> None:
        self._mirror = mirror
        self._node = node

    def collect(self) -> Iterator[Metric]:
        node, mirror = self._node, self._mirror
        for name, text, value in (
            ("peers", "DHT members that this directory sees; 0 = it is alone.", node.connected),
            (
                "missing_peers",
                "Configured DHT peers that do not answer; the DHT may be split.",
                node.missing_peers,
            ),
            ("stored_keys", "DHT keys that this directory keeps for the swarm.", node.stored_keys),
            ("servers", "Servers that this directory knows.", mirror.store.size()),
            ("watchers", "Open Watch streams.", mirror.watchers),
        ):
            yield GaugeMetricFamily(f"blockswarm_directory_{name}", text, value=value)
        block = GaugeMetricFamily(
            "blockswarm_block_coverage", "Servers that serve this block.", labels=["model", "block"]
        )
        least = GaugeMetricFamily(
            "blockswarm_coverage_min", "Servers that serve the least covered block.", labels=["model"]
        )
        for key, counts in sorted(mirror.store.coverage(time.time()).items()):
            least.add_metric([key], min(counts))
            for number, count in enumerate(counts):
                block.add_metric([key, str(number)], count)
        yield block
        yield least
