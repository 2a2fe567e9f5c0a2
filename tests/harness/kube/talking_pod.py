"""A pod that runs one of our small programs, whose JSON lines a test reads as they come."""

import json
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from kube import objects
from kube.kubectl import CommandError, Kubectl, Object
from kube.waiting import until

HERE = Path(__file__).parent


class TalkingPod:
    """Runs `python PROGRAM arguments...`. Use as a context manager: the program has said its first line inside.

    Args:
        kubectl: for the namespace to run in.
        image: has Python, and what the program imports.
        program: a file of this folder; it prints one JSON object a line.
        listen: called with every line, in a thread; after an interruption with all of them again.
        volumes: mount path → volume source.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        image: str,
        program: str,
        arguments: list[str],
        listen: Callable[[dict[str, Any]], None],
        *,
        name: str,
        node: str | None = None,
        volumes: Mapping[str, Object] | None = None,
    ) -> None:
        assert kubectl.namespace is not None
        self.name, self.kubectl = name, kubectl
        self._listen = listen
        self._closing = threading.Event()
        self._heard = threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._objects = [
            objects.config_map(name, {program: (HERE / program).read_text()}, kubectl.namespace),
            objects.pod(
                name,
                image,
                ["python", f"/app/{program}", *arguments],
                space=kubectl.namespace,
                volumes={"/app": {"configMap": {"name": name}}, **(volumes or {})},
                env={"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"},
                node=node,
            ),
        ]

    def __enter__(self) -> Self:
        self.kubectl.delete("pod", self.name, grace=0)
        self.kubectl.apply(*self._objects)
        self._follower.start()
        try:
            until(self._heard.is_set, f"the first line of {self.name}", timeout=180, state=self.state)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self.kubectl.delete("pod", self.name, grace=0)
        self._follower.join(30)

    @property
    def node(self) -> str:
        """Where it runs."""
        node: str = self.kubectl.get("pod", self.name)["spec"]["nodeName"]
        return node

    def write(self, file: str, text: str) -> None:
        """Put a file into its /tmp."""
        until(lambda: self._write(file, text), f"{file} given to {self.name}", timeout=60, state=self.state)

    def state(self) -> str:
        """Its last words."""
        try:
            return f"--- {self.name}\n{self.kubectl.logs(self.name, tail=30)}"
        except CommandError as error:
            return str(error)

    def _write(self, file: str, text: str) -> bool:
        self.kubectl.exec(self.name, "tee", f"/tmp/{file}", stdin=text)
        return True

    def _follow(self) -> None:
        while not self._closing.is_set():
            log = self.kubectl.spawn("logs", "--follow", self.name)
            threading.Thread(target=self._end, args=(log,), daemon=True).start()
            assert log.stdout is not None
            for line in log.stdout:
                # A line that a broken stream has cut comes whole with the next one.
                if (said := _parsed(line)) is not None:
                    self._listen(said)
                    self._heard.set()
            log.wait()
            self._closing.wait(0.5)

    def _end(self, log: subprocess.Popen[str]) -> None:
        while log.poll() is None:
            if self._closing.wait(0.2):
                log.kill()


def _parsed(line: str) -> dict[str, Any] | None:
    """The object that a line holds; None if it is something else, or half of one."""
    try:
        said = json.loads(line)
    except json.JSONDecodeError:
        return None
    return said if isinstance(said, dict) else None
