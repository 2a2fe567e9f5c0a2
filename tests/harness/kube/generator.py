"""An application pod that generates tokens, and what the test sees of it."""

import itertools
import json
from dataclasses import dataclass, field
from typing import Any, Self

from kube import objects
from kube.kubectl import Kubectl
from kube.talking_pod import TalkingPod
from kube.waiting import until


@dataclass
class Run:
    """One generation. `times` are the pod's own monotonic seconds; `chains`: server ids in use at each token."""

    generator: "Generator"
    number: int
    pace: float
    ids: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    chains: list[list[str]] = field(default_factory=list)
    ended: bool = False
    error: str | None = None

    @property
    def chain(self) -> list[str]:
        """Server ids in use at the last token, in order of blocks."""
        return self.chains[-1]

    @property
    def longest_gap(self) -> tuple[float, int]:
        """(seconds, number of the token that came after them), without the pause that the application makes."""
        pairs = itertools.pairwise(self.times)
        return max((later - sooner - self.pace, number) for number, (sooner, later) in enumerate(pairs, 1))

    def take(self, line: dict[str, Any]) -> None:
        """A line that the pod printed. The same line may come again."""
        if "error" in line:
            self.error, self.ended = line["error"], True
        elif "end" in line:
            self.ended = True
        elif line["n"] == len(self.ids):
            self.times.append(line["t"])
            self.chains.append(line["chain"])
            self.ids.append(line["id"])

    def wait(self, count: int, *, timeout: float = 180.0) -> None:
        """Wait for `count` more tokens than there are now, or for its end."""
        wanted = len(self.ids) + count
        self._until(
            lambda: len(self.ids) >= wanted, f"token {wanted}, {len(self.ids)} at first", timeout=timeout
        )

    def finish(self, *, timeout: float = 180.0) -> Self:
        """Wait for its own end."""
        self._until(lambda: False, "its end", timeout=timeout)
        return self

    def stop(self) -> Self:
        """Let it end after its present token."""
        self._cancel()
        return self.finish()

    def _cancel(self) -> None:
        if not self.ended:
            self.generator.pod.write(f"stop-{self.number}", "{}")

    def _until(self, done: Any, what: str, *, timeout: float) -> None:
        state = self.generator.pod.state
        text = f"run {self.number}: {what}"
        until(lambda: done() or self.ended, text, timeout=timeout, every=0.05, state=state)
        assert self.error is None, f"run {self.number} after {len(self.ids)} tokens: {self.error}"


class Generator:
    """The application. Use as a context manager: it is connected to the swarm inside.

    Attributes:
        pod: what it runs in.
        hello: what it said when it was connected.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        image: str,
        directory: str,
        *,
        name: str = "generator",
        node: str | None = None,
    ) -> None:
        self._runs: dict[int, Run] = {}
        self.hello: dict[str, Any] = {}
        self.pod = TalkingPod(
            kubectl,
            image,
            "generate_tokens.py",
            ["/model", directory, "/tmp"],
            self._take,
            name=name,
            node=node,
            volumes={"/model": {"persistentVolumeClaim": {"claimName": objects.CLAIM, "readOnly": True}}},
        )

    def __enter__(self) -> Self:
        self.pod.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.pod.__exit__(*error)

    def begin(self, prompt: list[int], *, tokens: int, pace: float = 0.0) -> Run:
        """Begin a generation of at most `tokens` tokens, with a pause of `pace` seconds after each.

        The application makes one after the other: those that failed tests have left are ended.
        """
        for left in self._runs.values():
            left._cancel()
        run = Run(self, len(self._runs) + 1, pace)
        self._runs[run.number] = run
        order = {"prompt": prompt, "tokens": tokens, "pace": pace}
        self.pod.write(f"start-{run.number}", json.dumps(order))
        return run

    def _take(self, line: dict[str, Any]) -> None:
        if "ready" in line:
            self.hello = line
        elif line["run"] in self._runs:
            self._runs[line["run"]].take(line)
