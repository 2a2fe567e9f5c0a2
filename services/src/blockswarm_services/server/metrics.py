"""What Prometheus sees of a block server. Used and total, never only a ratio; every series exists at zero.

The registry is there before the model is: a server that loads says so. KV, sessions and queues follow with `watch`.
"""

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
from blockswarm_wire.record import State

_STEP_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


_PHASES = {Kind.DECODE: "decode", Kind.PREFILL: "prefill", Kind.PASS: "pass"}
# Steps that only rebuild KV, whatever their size: they are no progress of a generation.
_REPLAY = "replay"
_STATES = (State.JOINING, State.ONLINE, State.DRAINING)
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


class _Life(Collector):
    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "blockswarm_server_state",
            "1 for the state that this server is in, 0 for the others.",
            labels=["state"],
        )
        now = self._state()
        for state in _STATES:
            family.add_metric([state.lower()], float(state is now))
        yield family


class Metrics:
    """The registry of one server and what its parts report to it.

    state: asked at every scrape.
    """

    def __init__(self, state: Callable[[], State]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Life(state))
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
        self.block_tokens = Counter(
            "blockswarm_block_tokens",
            "Tokens x batch rows x blocks computed; over the model's blocks, summed over servers: tokens of the swarm.",
            ("phase",),
            registry=self.registry,
        )
        self.replays = Counter(
            "blockswarm_replays",
            "Legs that were rebuilt here by replay, because another server was lost or left.",
            registry=self.registry,
        )
        self.lost = Counter(
            "blockswarm_sessions_lost",
            "Legs that this server ended, by reason.",
            ("reason",),
            registry=self.registry,
        )
        self.load_seconds = Gauge(
            "blockswarm_model_load_seconds",
            "Seconds that loading the span took; 0 until it is loaded.",
            registry=self.registry,
        )
        self.info = Gauge(
            "blockswarm_server_info",
            "Always 1; the labels say what this server serves.",
            ("model", "blocks", "dtype", "device", "version"),
            registry=self.registry,
        )
        self._by_phase = {
            phase: (
                self.step_seconds.labels(phase),
                self.queue_seconds.labels(phase),
                self.tokens.labels(phase),
                self.block_tokens.labels(phase),
            )
            for phase in (*_PHASES.values(), _REPLAY)
        }
        for reason in _LOST.values():
            self.lost.labels(reason)

    def watch(self, legs: Legs, bytes_per_token: int, queued: Callable[[], int]) -> None:
        """Show the KV, the sessions and the queue too; once, when the model is loaded."""
        self.registry.register(_Kv(legs, bytes_per_token, queued))

    def observe_step(
        self, kind: Kind, rows: int, blocks: int, outcome: Outcome, replay: bool = False
    ) -> None:
        """One step of `rows` tokens x batch rows went through `blocks` blocks."""
        compute, queue, tokens, block_tokens = self._by_phase[_REPLAY if replay else _PHASES[kind]]
        compute.observe(outcome.compute_seconds)
        queue.observe(outcome.queue_seconds)
        tokens.inc(rows)
        block_tokens.inc(rows * blocks)

    def observe_end(self, leg: Leg) -> None:
        """A leg ended; it counts as lost when this side gave a reason."""
        if isinstance(leg.reason, LostError):
            self.lost.labels(_LOST[type(leg.reason)]).inc()
