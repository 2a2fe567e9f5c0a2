"""A Prometheus on this machine that scrapes the pods of a cluster, with our alert rules.

It reaches pods through the API server (`kubectl proxy`), so that it works with every kind of cluster. Its targets carry
the labels that PodMonitor and ServiceMonitor give them.
"""

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

import boards
from blockswarm_services.local.child import tied
from kube.kubectl import Kubectl
from kube.pod_targets import PodTargets
from kube.waiting import Transient, until

# A scrape passes the API server, which a busy machine may hold up for seconds. While scrapes of a pod fail, its series
# are gone.
_SCRAPE_SECONDS = 5
_SCRAPE_TIMEOUT_SECONDS = 4
_EVALUATION_SECONDS = 2
# What Grafana would fill in for $__rate_interval.
RATE_INTERVAL = f"{4 * _SCRAPE_SECONDS}s"
# How long a condition lasts before its alert fires here; hours and minutes would be too long for a test. Longer than it
# takes to get over some scrapes that failed.
PATIENCE_SECONDS = 20
# It is about failures that go on for longer than what it looks back at; a single one is in order.
_PATIENT = ("BlockSwarmOperatorErrors",)
_POD_PATH = "/api/v1/namespaces/$1/pods/$2:$3/proxy/metrics"
_META = "__meta_kubernetes_"


class NoAnswer(Transient):
    """Prometheus cannot answer now."""


class Prometheus:
    """Use as a context manager: it answers inside.

    Args:
        kubectl: of the cluster.
        namespaces: whose pods are scraped.
        home: folder for its files.
    """

    def __init__(self, kubectl: Kubectl, namespaces: Iterable[str], home: Path) -> None:
        self._kubectl, self._namespaces, self._home = kubectl, list(namespaces), home
        self._children: list[subprocess.Popen[str]] = []
        self._open = contextlib.ExitStack()
        self._url = ""

    def __enter__(self) -> "Prometheus":
        program = shutil.which("prometheus")
        if program is None:
            pytest.fail("prometheus is missing: install it (Debian: apt-get install prometheus)")
        try:
            api = self._open_proxy()
            targets = self._open.enter_context(PodTargets(api, self._namespaces))
            self._start(program, self._config(api, targets.url))
            until(
                lambda: self.ask("/api/v1/status/runtimeinfo"),
                "Prometheus answers",
                timeout=60,
                state=self.log,
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for child in reversed(self._children):
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._open.close()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now: {"metric": labels, "value": [time, text]}."""
        answer: dict[str, Any] = self.ask("/api/v1/query", query=expression)
        found: list[dict[str, Any]] = answer["result"]
        return found

    def values(self, label_values: str) -> list[str]:
        """What a Grafana variable of the form label_values(series, label) offers."""
        series, _, label = label_values.removeprefix("label_values(").removesuffix(")").rpartition(",")
        found: list[str] = self.ask(f"/api/v1/label/{label.strip()}/values", **{"match[]": series})
        return found

    def firing(self) -> dict[str, list[dict[str, Any]]]:
        """Alerts that fire, by name."""
        found: dict[str, list[dict[str, Any]]] = {}
        for alert in self.ask("/api/v1/alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with its health and its alerts."""
        return [rule for group in self.ask("/api/v1/rules")["groups"] for rule in group["rules"]]

    def evaluated_since(self, moment: float) -> bool:
        """Whether every rule was evaluated after `moment` (Unix seconds)."""
        return all(
            datetime.fromisoformat(rule["lastEvaluation"][:19] + "+00:00").timestamp() > moment
            for rule in self.rules()
        )

    def pass_rounds(self, seconds: float) -> None:
        """Wait until all rules were evaluated on what was scraped `seconds` from now."""
        moment = time.time() + seconds + _SCRAPE_SECONDS + _SCRAPE_TIMEOUT_SECONDS
        until(lambda: self.evaluated_since(moment), "the rules are evaluated", timeout=seconds + 60)

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an API answer.

        Raises:
            NoAnswer: nobody answers now.
            AssertionError: the question is refused.
        """
        url = f"{self._url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            said = f"{path} {parameters}: {error.code} {error.read().decode(errors='replace')}"
            raise (NoAnswer if error.code >= 500 else AssertionError)(said) from None
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"{path} {parameters}: {error!r}") from error

    def log(self) -> str:
        """Its last words."""
        return (self._home / "log").read_text()[-3000:]

    def _open_proxy(self) -> str:
        proxy = self._kubectl.spawn("proxy", "--port=0")
        self._children.append(proxy)
        assert proxy.stdout is not None
        line = proxy.stdout.readline()
        assert "Starting to serve on" in line, line
        return line.split()[-1]

    def _start(self, program: str, config: dict[str, Any]) -> None:
        (self._home / "rules.yaml").write_text(yaml.safe_dump(_impatient()))
        (self._home / "prometheus.yaml").write_text(yaml.safe_dump(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            listen = f"127.0.0.1:{free.getsockname()[1]}"
        command = [
            program,
            f"--config.file={self._home / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._home / 'data'}",
            f"--web.listen-address={listen}",
        ]
        with (self._home / "log").open("w") as log:
            self._children.append(
                subprocess.Popen(tied(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True)
            )
        self._url = f"http://{listen}"

    def _config(self, api: str, targets: str) -> dict[str, Any]:
        place = [f"{_META}namespace", f"{_META}pod_name"]
        port = f"{_META}pod_container_port"
        job = {
            "job_name": "blockswarm",
            "honor_labels": True,
            "http_sd_configs": [{"url": targets, "refresh_interval": f"{_SCRAPE_SECONDS}s"}],
            "relabel_configs": [
                {"action": "keep", "source_labels": [f"{port}_name"], "regex": "metrics"},
                {"action": "drop", "source_labels": [f"{_META}pod_phase"], "regex": "Failed|Succeeded"},
                _relabel([*place, f"{port}_number"], "__metrics_path__", "(.+);(.+);(.+)", _POD_PATH),
                _relabel([*place], "instance", "(.+);(.+)", "$1/$2"),
                _relabel([place[0]], "namespace"),
                _relabel([place[1]], "pod"),
                {"target_label": "__address__", "replacement": api},
            ],
        }
        return {
            "global": {
                "scrape_interval": f"{_SCRAPE_SECONDS}s",
                "scrape_timeout": f"{_SCRAPE_TIMEOUT_SECONDS}s",
                "evaluation_interval": f"{_EVALUATION_SECONDS}s",
            },
            "rule_files": [str(self._home / "rules.yaml")],
            "scrape_configs": [job],
        }


def _relabel(sources: list[str], target: str, regex: str = "(.*)", text: str = "$1") -> dict[str, Any]:
    return {"source_labels": sources, "target_label": target, "regex": regex, "replacement": text}


def _impatient() -> dict[str, Any]:
    """The chart's rules, which fire after PATIENCE_SECONDS."""
    loaded: dict[str, Any] = yaml.safe_load(boards.RULES.read_text())
    for group in loaded["groups"]:
        for rule in group["rules"]:
            if "alert" in rule and rule["alert"] not in _PATIENT:
                rule["for"] = f"{PATIENCE_SECONDS}s"
    return loaded
