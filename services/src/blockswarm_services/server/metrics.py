"""What Prometheus sees of a block server. Used and total, never only a ratio; every series exists at zero."""

import re
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from blockswarm_services.server.engine import Outcome
from blockswarm_services.server.legs import Leg, Legs
from blockswarm_services.server.schedule import Kind
from blockswarm_wire.errors import BY_CODE, LostError

_STEP_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


_PHASES = {Kind.DECODE: "decode", Kind.PREFILL: "prefill", Kind.PASS: "pass"}
_LOST = {cls: _snake(cls.__name__) for cls in BY_CODE.values() if issubclass(cls, LostError)}


class _Kv(Collector):
    """Gauges that are read off the legs at scrape time, so that they cannot drift from the truth."""

    def __init__(self, legs: Legs, bytes_per_token: int, queued: Callable[[], int]) -> None:
        self._legs = legs
        self._bytes = bytes_per_token
        self._queued = queued

    def collect(self) -> Iterator[Metric]:
        used, capacity = self._legs.used, self._legs.capacity
        allocated = sum(leg.cache.nbytes for leg in self._legs.legs if leg.cache is not None)
        for name, text, value in (
            (
                "kv_cache_used_tokens",
                "Tokens x batch rows that open sessions hold, over the whole span.",
                used,
            ),
            (
                "kv_cache_promised_tokens",
                "Tokens x batch rows that open sessions may grow to.",
                self._legs.promised,
            ),
            ("kv_cache_capacity_tokens", "Tokens x batch rows that fit.", capacity),
            ("kv_cache_used_bytes", "Bytes of the tokens that open sessions hold.", used * self._bytes),
            ("kv_cache_allocated_bytes", "Bytes allocated for KV, growth room included.", allocated),
            ("kv_cache_capacity_bytes", "Bytes of the KV tokens that fit.", capacity * self._bytes),
            ("kv_cache_occupancy_ratio", "Used over capacity.", used / capacity if capacity else 0.0),
            ("sessions_active", "Sessions with at least one open leg here.", self._legs.sessions),
            ("legs_active", "Open legs.", len(self._legs.legs)),
            ("opens_waiting", "Opens that wait for KV memory.", self._legs.waiting),
            ("steps_queued", "Steps and passes that wait for the compute thread.", self._queued()),
        ):
            yield GaugeMetricFamily(f"blockswarm_{name}", text, value=float(value))


class Metrics:
    """The registry of one server and what its parts report to it."""

    def __init__(self, legs: Legs, bytes_per_token: int, queued: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Kv(legs, bytes_per_token, queued))
        self.step_seconds = Histogram(
            "blockswarm_step_seconds",
            "Compute seconds of one step.",
            ("phase",),
            buckets=_STEP_BUCKETS,
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "blockswarm_queue_seconds",
            "Seconds that a step waited for the compute thread.",
            ("phase",),
            buckets=_STEP_BUCKETS,
            registry=self.registry,
        )
        self.tokens = Counter(
            "blockswarm_tokens", "Tokens x batch rows computed.", ("phase",), registry=self.registry
        )
        self.lost = Counter(
            "blockswarm_sessions_lost",
            "Legs that this server ended, by reason.",
            ("reason",),
            registry=self.registry,
        )
        self.load_seconds = Gauge(
            "blockswarm_model_load_seconds", "Seconds that loading the span took.", registry=self.registry
        )
        self.info = Gauge(
            "blockswarm_server_info",
            "Always 1; the labels say what this server serves.",
            ("model", "blocks", "dtype", "device", "version"),
            registry=self.registry,
        )
        self._by_kind = {
            kind: (
                self.step_seconds.labels(phase),
                self.queue_seconds.labels(phase),
                self.tokens.labels(phase),
            )
            for kind, phase in _PHASES.items()
        }
        for reason in _LOST.values():
            self.lost.labels(reason)

    def observe_step(self, kind: Kind, rows: int, outcome: Outcome) -> None:
        """One step of `rows` tokens x batch rows was computed."""
        compute, queue, tokens = self._by_kind[kind]
        compute.observe(outcome.compute_seconds)
        queue.observe(outcome.queue_seconds)
        tokens.inc(rows)

    def observe_end(self, leg: Leg) -> None:
        """A leg ended; it counts as lost when this side gave a reason."""
        if isinstance(leg.reason, LostError):
            self.lost.labels(_LOST[type(leg.reason)]).inc()
