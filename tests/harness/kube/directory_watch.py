"""What a directory says about the servers of a model, with the times at which it changed its mind."""

from collections.abc import Callable
from typing import Any, Self

from kube.kubectl import Kubectl
from kube.talking_pod import TalkingPod


class DirectoryWatch:
    """Watches one model from a pod. Use as a context manager: the first view is there inside.

    Args:
        kubectl: for the namespace that the watching pod runs in.
        image: of the client.
        target: the directory, as pods reach it.
        model: name of a model that is served.
        node: where the watching pod runs.

    Attributes:
        history: (Unix seconds, server id → state) at every change.
    """

    def __init__(
        self, kubectl: Kubectl, image: str, target: str, model: str, *, node: str | None = None
    ) -> None:
        self.history: list[tuple[float, dict[str, str]]] = []
        arguments = [target, model]
        self._pod = TalkingPod(
            kubectl, image, "watch_directory.py", arguments, self._take, name="directory-watch", node=node
        )

    def __enter__(self) -> Self:
        self._pod.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._pod.__exit__(*error)

    @property
    def states(self) -> dict[str, str]:
        """Server id → state, now."""
        return self.history[-1][1]

    def online(self) -> set[str]:
        """Ids of the servers that are ONLINE now."""
        return {server for server, state in self.states.items() if state == "ONLINE"}

    def when(
        self, server_id: str, right: Callable[[str | None], bool], *, after: float = 0.0
    ) -> float | None:
        """When, after a time, the state of a server (None: unknown) was first right; None if never."""
        times = (at for at, states in self.history if at >= after and right(states.get(server_id)))
        return next(times, None)

    def state(self) -> str:
        """For errors."""
        return "\n".join(f"{at:.2f} {states}" for at, states in self.history[-10:])

    def _take(self, line: dict[str, Any]) -> None:
        # After an interruption the log is read anew.
        if not self.history or line["t"] > self.history[-1][0]:
            self.history.append((line["t"], line["states"]))
