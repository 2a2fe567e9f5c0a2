"""The operator's Prometheus metrics, prefix blockswarm_."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_PASS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """All metrics of one operator process, in a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"blockswarm_{name}", text, labels, registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"blockswarm_{name}", text, labels, registry=self.registry)

        self.reconcile_seconds = Histogram(
            "blockswarm_operator_reconcile_seconds",
            "Duration of one pass over a model.",
            buckets=_PASS_BUCKETS,
            registry=self.registry,
        )
        self.reconcile_errors = counter(
            "operator_reconcile_errors", "Passes that failed and are tried again, by what failed.", "kind"
        )
        self.api_requests = counter(
            "operator_api_requests", "Requests to the Kubernetes API.", "verb", "resource", "code"
        )
        self.last_success = gauge(
            "operator_last_success_timestamp_seconds", "When a pass ended well last, Unix seconds."
        )
        self.lanes = gauge("operator_lanes", "Models that are looked after.")
        self.leader = gauge("operator_leader", "Whether this replica holds the lease.")
        self.evictions = counter("operator_evictions", "Evictions asked for, by result.", "result")
        self.directory_up = gauge("operator_directory_up", "Whether the directory answered last.")
        self.coverage = gauge(
            "block_coverage", "Servers that are online and hold a block.", "namespace", "model", "block"
        )
        self.coverage_min = gauge(
            "coverage_min", "Least coverage of the wanted blocks.", "namespace", "model"
        )
        self.replicas = gauge("blockserver_replicas", "Wanted servers.", "namespace", "name")
        self.ready_replicas = gauge("blockserver_ready_replicas", "Online servers.", "namespace", "name")
        self.condition = gauge(
            "blockserver_condition",
            "1 where the condition has this status.",
            "namespace",
            "name",
            "type",
            "status",
        )
        self._covered: dict[tuple[str, str], frozenset[int]] = {}
        for kind in ("api", "directory", "bug"):
            self.reconcile_errors.labels(kind)
        for result in ("allowed", "refused"):
            self.evictions.labels(result)

    def show_conditions(self, namespace: str, name: str, conditions: Iterable[Mapping[str, str]]) -> None:
        """Set the condition gauges of one BlockServer."""
        for item in conditions:
            for status in ("True", "False", "Unknown"):
                value = 1 if item["status"] == status else 0
                self.condition.labels(namespace, name, item["type"], status).set(value)

    def show_coverage(self, namespace: str, model: str, counts: Mapping[int, int]) -> None:
        """Set the coverage gauges of one model: block → servers, for every block that is wanted."""
        # Only what is unwanted now is dropped: looking for it among all series would take longer with every model.
        before = self._covered.pop((namespace, model), frozenset())
        for block in before - counts.keys():
            self.coverage.remove(namespace, model, str(block))
        for block, count in counts.items():
            self.coverage.labels(namespace, model, str(block)).set(count)
        if counts:
            self._covered[namespace, model] = frozenset(counts)
            self.coverage_min.labels(namespace, model).set(min(counts.values()))
        elif before:
            self.coverage_min.remove(namespace, model)

    def forget_block_server(self, namespace: str, name: str) -> None:
        """Drop the series of a BlockServer that is gone."""
        for gauge in (self.replicas, self.ready_replicas, self.condition):
            gauge.remove_by_labels({"namespace": namespace, "name": name})
