"""What a directory says about the servers of a model, with the times at which it changed its mind."""

from collections.abc import Callable
from typing import Any, Self

from kube.kubectl import Kubectl
from kube.talking_pod import TalkingPod
from kube.waiting import until

# Servers that a former test took away are shown until their records expire, half a minute later.
_FIRST_SECONDS = 120.0
Facts = dict[str, Any]


class DirectoryWatch:
    """Watches one model from a pod. Use as a context manager: inside, what is served is seen.

    Args:
        kubectl: for the namespace that the watching pod runs in.
        image: of the client.
        target: the directory, as pods reach it.
        model: its name.
        node: where the watching pod runs.
        served: whether the model is served already.
        expect: ids of servers: it waits until just these are shown, each as ONLINE, and forgets what was said before.

    Attributes:
        history: (Unix seconds, server id → what is said of it: see watch_directory.py) at every change.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        image: str,
        target: str,
        model: str,
        *,
        node: str | None = None,
        served: bool = True,
        expect: set[str] | None = None,
    ) -> None:
        self.history: list[tuple[float, dict[str, Facts]]] = []
        self._served, self._expect = served, expect
        self._pod = TalkingPod(
            kubectl,
            image,
            "watch_directory.py",
            [target, model],
            self._take,
            name="directory-watch",
            node=node,
        )

    def __enter__(self) -> Self:
        self._pod.__enter__()
        try:
            self._await_first()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._pod.__exit__(*error)

    @property
    def views(self) -> list[tuple[float, dict[str, str]]]:
        """(Unix seconds, server id → state) at every change, from the first server on."""
        return [(at, _states(servers)) for at, servers in self.history if servers]

    @property
    def states(self) -> dict[str, str]:
        """Server id → state, now."""
        return _states(self.history[-1][1])

    def online(self) -> set[str]:
        """Ids of the servers that are ONLINE now."""
        return {server for server, state in self.states.items() if state == "ONLINE"}

    def when(
        self, server_id: str, right: Callable[[str | None], bool], *, after: float = 0.0
    ) -> float | None:
        """When, after a time, the state of a server (None: unknown) was first right; None if never."""
        said = ((at, servers.get(server_id, {}).get("state")) for at, servers in self.history if at >= after)
        return next((at for at, state in said if right(state)), None)

    def state(self) -> str:
        """For errors."""
        return "\n".join(f"{at:.2f} {servers}" for at, servers in self.history[-15:])

    def _await_first(self) -> None:
        if self._expect is not None:
            said = f"exactly {sorted(self._expect)} ONLINE"
            count = until(self._as_expected, said, timeout=_FIRST_SECONDS, every=0.1, state=self.state)
            # In place: the pod's thread appends meanwhile.
            del self.history[: count - 1]
        elif self._served:
            until(lambda: self.states, "the directory's first view", timeout=_FIRST_SECONDS)

    def _as_expected(self) -> int:
        """How many views there are, if the last one is as expected, else 0."""
        count = len(self.history)
        wanted = dict.fromkeys(self._expect or (), "ONLINE")
        return count if count and _states(self.history[count - 1][1]) == wanted else 0

    def _take(self, line: dict[str, Any]) -> None:
        # After an interruption the log is read anew.
        if not self.history or line["t"] > self.history[-1][0]:
            self.history.append((line["t"], line["servers"]))


def _states(servers: dict[str, Facts]) -> dict[str, str]:
    return {server_id: facts["state"] for server_id, facts in servers.items()}
