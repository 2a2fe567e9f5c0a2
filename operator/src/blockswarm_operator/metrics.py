"""The operator's Prometheus metrics, prefix blockswarm_."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from blockswarm_operator.table_gauge import Rows, TableGauge

_Place = tuple[str, str]
_STATUSES = ("True", "False", "Unknown")
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
        # (namespace, model id) → label of the model, block → servers.
        self._covered: dict[_Place, tuple[str, dict[int, int]]] = {}
        # (namespace, name) → (wanted, online), and → type → status.
        self._counts: dict[_Place, tuple[int, int]] = {}
        self._conditions: dict[_Place, dict[str, str]] = {}
        self._register_tables()
        for kind in ("api", "directory", "bug"):
            self.reconcile_errors.labels(kind)
        for result in ("allowed", "refused"):
            self.evictions.labels(result)

    def _register_tables(self) -> None:
        def table(name: str, text: str, labels: Sequence[str], rows: Callable[[], Rows]) -> None:
            TableGauge(f"blockswarm_{name}", text, labels, rows, self.registry)

        table(
            "block_coverage",
            "Servers that are online and hold a block.",
            ("namespace", "model", "model_id", "block"),
            self._coverage_rows,
        )
        table(
            "coverage_min",
            "Least coverage of the wanted blocks.",
            ("namespace", "model", "model_id"),
            self._least_rows,
        )
        table("blockserver_replicas", "Wanted servers.", ("namespace", "name"), lambda: self._count_rows(0))
        table(
            "blockserver_ready_replicas",
            "Online servers.",
            ("namespace", "name"),
            lambda: self._count_rows(1),
        )
        table(
            "blockserver_condition",
            "1 where the condition has this status.",
            ("namespace", "name", "type", "status"),
            self._condition_rows,
        )

    def show_conditions(self, namespace: str, name: str, conditions: Iterable[Mapping[str, str]]) -> None:
        """Set the conditions of one BlockServer."""
        self._conditions[namespace, name] = {item["type"]: item["status"] for item in conditions}

    def show_replicas(self, namespace: str, name: str, *, wanted: int, online: int) -> None:
        """Set the numbers of servers of one BlockServer."""
        self._counts[namespace, name] = (wanted, online)

    def show_coverage(self, key: tuple[str, str], model: str, counts: Mapping[int, int]) -> None:
        """Set the coverage of one model.

        Args:
            key: namespace and id; several models may have one label.
            model: its label.
            counts: block → servers, for every block that is wanted.
        """
        if counts:
            self._covered[key] = (model, dict(counts))
        else:
            self._covered.pop(key, None)

    def forget_block_server(self, namespace: str, name: str) -> None:
        """Drop the series of a BlockServer that is gone."""
        self._counts.pop((namespace, name), None)
        self._conditions.pop((namespace, name), None)

    def _coverage_rows(self) -> Rows:
        for (namespace, identity), (model, counts) in self._covered.items():
            for block, count in counts.items():
                yield (namespace, model, identity, str(block)), count

    def _least_rows(self) -> Rows:
        for (namespace, identity), (model, counts) in self._covered.items():
            yield (namespace, model, identity), min(counts.values())

    def _count_rows(self, which: int) -> Rows:
        for place, counts in self._counts.items():
            yield place, counts[which]

    def _condition_rows(self) -> Rows:
        for place, conditions in self._conditions.items():
            for kind, holds in conditions.items():
                for status in _STATUSES:
                    yield (*place, kind, status), float(holds == status)
