"""A gauge whose series are made at each scrape from a table."""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

Rows = Iterable[tuple[Sequence[str], float]]


class TableGauge(Collector):
    """A gauge for very many series: prometheus_client keeps 1.4 KB for each of its own.

    Args:
        labels: names.
        rows: called at each scrape; (values of the labels, value) of each series.
    """

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        rows: Callable[[], Rows],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._text, self._labelnames, self._rows = name, text, tuple(labels), rows
        registry.register(self)

    def describe(self) -> list[GaugeMetricFamily]:
        """Its name and meaning."""
        return [GaugeMetricFamily(self._name, self._text, labels=self._labelnames)]

    def collect(self) -> list[GaugeMetricFamily]:
        """All its series."""
        (family,) = self.describe()
        for values, value in self._rows():
            family.add_metric(values, value)
        return [family]
