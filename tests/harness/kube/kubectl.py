"""kubectl and helm as typed calls: objects are plain dicts, errors carry what the program said."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockswarm_services.local.child import tied

Object = dict[str, Any]


class CommandError(Exception):
    """A command that failed. `said`: its stderr."""

    def __init__(self, command: list[str], said: str) -> None:
        super().__init__(f"{' '.join(command)[:300]}: {said.strip()[-2000:]}")
        self.said = said


def call(
    command: list[str], *, stdin: str | None = None, timeout: float, env: Mapping[str, str] | None = None
) -> str:
    """stdout of a command.

    Raises:
        CommandError: it failed, or took longer than `timeout` seconds.
    """
    environment = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout, env=environment
        )
    except subprocess.TimeoutExpired:
        raise CommandError(command, f"no answer within {timeout:.0f} s") from None
    if done.returncode:
        raise CommandError(command, done.stderr or done.stdout)
    return done.stdout


@dataclass(frozen=True)
class Kubectl:
    """kubectl with one kubeconfig. Without `namespace`, calls about namespaced kinds must name one."""

    kubeconfig: Path
    program: str = "kubectl"
    namespace: str | None = None

    def within(self, namespace: str) -> "Kubectl":
        """The same for another namespace."""
        return Kubectl(self.kubeconfig, self.program, namespace)

    def command(self, *words: str) -> list[str]:
        """The whole command line, for a process of one's own."""
        scope = ["--namespace", self.namespace] if self.namespace else []
        return [self.program, "--kubeconfig", str(self.kubeconfig), *scope, *words]

    def run(self, *words: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """stdout of `kubectl words...`."""
        return call(self.command(*words), stdin=stdin, timeout=timeout)

    def spawn(self, *words: str) -> subprocess.Popen[str]:
        """A kubectl that goes on: a watch, a log or a forwarded port. It ends with the thread that calls this."""
        return subprocess.Popen(
            tied(self.command(*words)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )

    def get(self, kind: str, name: str) -> Object:
        """One object."""
        found: Object = json.loads(self.run("get", kind, name, "-o", "json"))
        return found

    def find(self, kind: str, name: str) -> Object | None:
        """One object, None if there is none."""
        text = self.run("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def list(self, kind: str, selector: str = "") -> list[Object]:
        """All objects of a kind; of all namespaces where this has none."""
        scope = [] if self.namespace else ["--all-namespaces"]
        items: list[Object] = json.loads(self.run("get", kind, *scope, "-l", selector, "-o", "json"))["items"]
        return items

    def apply(self, *objects: Object) -> None:
        """`kubectl apply -f -`."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.run("apply", "-f", "-", stdin=json.dumps(items))

    def patch(self, kind: str, name: str, change: Object, *words: str) -> None:
        """A merge patch."""
        self.run("patch", kind, name, "--type=merge", "-p", json.dumps(change), *words)

    def delete(self, kind: str, *names: str, wait: bool = True, grace: int | None = None) -> None:
        """Delete objects; absent ones are fine."""
        words = [f"--wait={str(wait).lower()}", "--ignore-not-found"]
        if grace is not None:
            words += [f"--grace-period={grace}", *(["--force"] if grace == 0 else [])]
        self.run("delete", kind, *names, *words, timeout=180)

    def exec(self, pod: str, *command: str, stdin: str | None = None, timeout: float = 30.0) -> str:
        """stdout of a command inside a pod."""
        interactive = ["-i"] if stdin is not None else []
        return self.run("exec", *interactive, pod, "--", *command, stdin=stdin, timeout=timeout)

    def logs(self, pod: str, *, tail: int = -1, previous: bool = False) -> str:
        """What a pod's container printed."""
        return self.run("logs", pod, f"--tail={tail}", *(["--previous"] if previous else []))

    def evict(self, pod: str) -> str | None:
        """Ask the API to evict a pod; the refusal's text, None when it was granted."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        try:
            self.run("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
        except CommandError as error:
            return error.said
        return None


@dataclass(frozen=True)
class Helm:
    """helm with one kubeconfig. `home`: where it keeps its own files."""

    kubeconfig: Path
    home: Path
    program: str = "helm"

    def run(self, *words: str, timeout: float = 300.0) -> str:
        """stdout of `helm words...`."""
        homes = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return call([self.program, "--kubeconfig", str(self.kubeconfig), *words], timeout=timeout, env=homes)


def condition(thing: Object, kind: str) -> Object:
    """A condition of an object's status; an empty dict if it has none of that type."""
    conditions = (thing.get("status") or {}).get("conditions") or []
    return next((found for found in conditions if found["type"] == kind), {})


def is_true(thing: Object, kind: str) -> bool:
    """Whether a condition of an object is True."""
    return condition(thing, kind).get("status") == "True"
