"""The operator as a process of this machine, outside the cluster: it can be killed at any moment and asked at once."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from blockswarm_services.local.child import tied
from kube.waiting import until

_NUMBER = re.compile(r"^(?P<series>\S+?)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$")


class LocalOperator:
    """Started and killed any number of times; each time it goes on where the former one stopped.

    Args:
        folder: for its kubeconfig and log.
        api: URL of an API server that asks nobody who he is, or the path of a kubeconfig.
        directory: target of the directory.
        namespace: the only one that it looks after; "" = all.
        environment: more variables.

    Attributes:
        environment: of the next process.
    """

    def __init__(
        self,
        folder: Path,
        api: str,
        directory: str,
        *,
        namespace: str = "",
        lease: str = "default",
        **environment: str,
    ) -> None:
        self._log = folder / "operator.log"
        kubeconfig = Path(api)
        if api.startswith("http"):
            kubeconfig = folder / "kubeconfig"
            kubeconfig.write_text(json.dumps(_kubeconfig(api)))
        self.port = _free_port()
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "BLOCKSWARM_DIRECTORY": directory,
            "BLOCKSWARM_SERVER_IMAGE": "blockswarm.test/none:1",
            "BLOCKSWARM_NAMESPACES": namespace,
            "BLOCKSWARM_LEASE_NAMESPACE": namespace or lease,
            # The same each time: a successor need not wait for the end of its own lease.
            "BLOCKSWARM_IDENTITY": "local",
            "BLOCKSWARM_METRICS_LISTEN": f"127.0.0.1:{self.port}",
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; nothing is awaited."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                tied([sys.executable, "-m", "blockswarm_operator.main"]),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def runs(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL. Does not wait: it may be called from where the operator's own request is answered."""
        assert self._process is not None
        self._process.kill()

    def wait(self, timeout: float = 20.0) -> int:
        """Wait for its end; the exit status."""
        assert self._process is not None
        return self._process.wait(timeout)

    def stop(self) -> None:
        """SIGTERM, and wait; nothing if it does not run."""
        if self._process is not None and self.runs():
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's series that have these labels.

        Raises:
            OSError: it does not answer.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except http.client.HTTPException as error:  # it was killed while it answered
            raise OSError(f"half an answer: {error!r}") from error
        total = 0.0
        for line in text.splitlines():
            found = _NUMBER.match(line)
            wanted = [f'{key}="{value}"' for key, value in labels.items()]
            if found and found["series"] == name and all(one in (found["labels"] or "") for one in wanted):
                total += float(found["value"])
        return total

    def passes(self) -> float:
        """How many passes have ended; 0 while it starts."""
        try:
            return self.metric("blockswarm_operator_reconcile_seconds_count")
        except OSError:
            return 0.0

    def wait_passes(self, wanted: float, *, timeout: float = 60.0) -> None:
        """Wait until so many passes have ended in all."""
        until(
            lambda: self.passes() >= wanted,
            f"pass {wanted:.0f} of the operator",
            timeout=timeout,
            every=0.05,
            state=self.log,
        )

    def log(self) -> str:
        """Its last words."""
        return "\n".join(self._log.read_text().splitlines()[-40:]) if self._log.exists() else ""


def _kubeconfig(url: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "here", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
