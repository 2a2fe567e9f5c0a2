"""How many servers hold each block, as a directory says, at every moment of a test."""

from typing import Any, Self

from kube.kubectl import Kubectl
from kube.talking_pod import TalkingPod

# A server's span: start and end.
Span = tuple[int, int]


class CoverageWatch:
    """Watches one model from a pod, whether it is served yet or not. Use as a context manager.

    Args:
        kubectl: for the namespace that the watching pod runs in.
        image: of the client.
        target: the directory, as pods reach it.
        model: its name.

    Attributes:
        history: (Unix seconds, server id → what it serves) at every change.
    """

    def __init__(self, kubectl: Kubectl, image: str, target: str, model: str) -> None:
        self.history: list[tuple[float, dict[str, Span]]] = []
        self._pod = TalkingPod(
            kubectl, image, "watch_coverage.py", [target, model], self._take, name="coverage-watch"
        )

    def __enter__(self) -> Self:
        self._pod.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._pod.__exit__(*error)

    @property
    def serving(self) -> dict[str, Span]:
        """Server id → what it serves, now."""
        return self.history[-1][1]

    def least(self, blocks: range, *, since: float) -> tuple[int, float]:
        """The smallest coverage of any of the blocks since then (Unix seconds), and when it was."""
        first = max((index for index, (at, _) in enumerate(self.history) if at <= since), default=0)
        return min((_least(serving, blocks), at) for at, serving in self.history[first:])

    def since(self, server_id: str) -> float | None:
        """When a server began to serve; None if it does not."""
        times = [at for at, serving in self.history if server_id in serving]
        return times[0] if times else None

    def state(self) -> str:
        """For errors."""
        return "\n".join(f"{at:.2f} {serving}" for at, serving in self.history[-15:])

    def _take(self, line: dict[str, Any]) -> None:
        # After an interruption the log is read anew.
        if not self.history or line["t"] > self.history[-1][0]:
            serving = {key: (start, end) for key, (start, end) in line["serving"].items()}
            self.history.append((line["t"], serving))


def _least(serving: dict[str, Span], blocks: range) -> int:
    return min(sum(start <= block < end for start, end in serving.values()) for block in blocks)
