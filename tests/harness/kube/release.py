"""The chart, installed as people do it, with the images under test."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kube import objects
from kube.cluster import REPOSITORY, Cluster
from kube.images import Image
from kube.kubectl import Helm, Kubectl

SYSTEM = "blockswarm-system"
NAME = "blockswarm"
CHART = REPOSITORY / "charts" / "blockswarm"


class Release:
    """One helm release.

    Attributes:
        kubectl: for its namespace.
        directory: gRPC target of its directory, for pods.
    """

    def __init__(
        self, cluster: Cluster, images: Mapping[str, Image], *, name: str = NAME, namespace: str = SYSTEM
    ) -> None:
        self.name, self.namespace = name, namespace
        self.kubectl: Kubectl = cluster.kubectl.within(namespace)
        self.directory = f"dns:///{name}-directory.{namespace}.svc:31340"
        self.images = images
        self._helm: Helm = cluster.helm
        self._values = cluster.home / f"{namespace}.{name}.values.json"

    def values(self) -> dict[str, Any]:
        """What these tests set in values.yaml: the images, and the model of `helm test`."""
        found: dict[str, Any] = {part: {"image": _image(image)} for part, image in self.images.items()}
        # An image of the same name with other contents must still replace the pods of a kept cluster.
        for part, image in (("operator", "operator"), ("directory", "server")):
            digest = self.images[image].digest
            found.setdefault(part, {})["podAnnotations"] = {"blockswarm.test/image": digest}
        claim = {"persistentVolumeClaim": {"claimName": objects.CLAIM, "readOnly": True}}
        found["test"] = {"model": "/model", "namespace": objects.MODELS, "volume": claim}
        return found

    def install(self, values: Mapping[str, Any] | None = None, *words: str, chart: Path = CHART) -> str:
        """`helm upgrade --install --wait`; what it printed.

        Args:
            values: laid over `values()`.
            words: more flags.
            chart: another one than the repository's.
        """
        self._values.write_text(json.dumps(_merged(self.values(), values or {})))
        common = ["--namespace", self.namespace, "--values", str(self._values), "--wait", "--timeout", "5m"]
        return self._helm.run("upgrade", "--install", self.name, str(chart), *common, *words, timeout=330)

    def test(self) -> str:
        """`helm test`; what it and its pod printed."""
        words = ["test", self.name, "--namespace", self.namespace, "--timeout", "5m"]
        said = self._helm.run(*words, timeout=330)
        # helm's own --logs looks for the pod in the release's namespace only.
        return said + self.kubectl.within(objects.MODELS).logs(f"{self.name}-test")

    def uninstall(self) -> None:
        """`helm uninstall --wait`."""
        words = ["--namespace", self.namespace, "--wait", "--ignore-not-found"]
        self._helm.run("uninstall", self.name, *words, timeout=330)

    def rollback(self, revision: int) -> None:
        """`helm rollback --wait`."""
        words = ["--namespace", self.namespace, "--wait", "--timeout", "5m"]
        self._helm.run("rollback", self.name, str(revision), *words, timeout=330)

    def leader(self) -> str:
        """Name of the operator pod that works."""
        holder: str = self.kubectl.get("lease", "blockswarm-operator")["spec"].get("holderIdentity") or ""
        return holder

    def directory_pods(self) -> list[str]:
        """Names of the directory's pods."""
        return self._pods("directory")

    def operator_pods(self) -> list[str]:
        """Names of the operator's pods."""
        return self._pods("operator")

    def ready(self) -> bool:
        """Whether every pod that the release wants is up to date and ready, and the operator has a leader."""
        operator = self.kubectl.get("deployment", f"{self.name}-operator")
        directory = self.kubectl.get("statefulset", f"{self.name}-directory")
        return (
            _settled(operator, "availableReplicas")
            and _settled(directory, "readyReplicas")
            and self.leader() in self.operator_pods()
        )

    def _pods(self, component: str) -> list[str]:
        selector = f"app.kubernetes.io/component={component},app.kubernetes.io/instance={self.name}"
        return [pod["metadata"]["name"] for pod in self.kubectl.list("pods", selector)]


def _image(image: Image) -> dict[str, str]:
    path, _, tag = image.name.rpartition(":")
    registry, _, repository = path.partition("/")
    return {"registry": registry, "repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(below[key], value)
        if isinstance(value, dict) and isinstance(below.get(key), dict)
        else value
        for key, value in above.items()
    }
    return {**below, **both}


def _settled(owner: Mapping[str, Any], ready: str) -> bool:
    status, wanted = owner["status"], owner["spec"]["replicas"]
    return (
        status.get("observedGeneration") == owner["metadata"]["generation"]
        and status.get("replicas") == wanted
        and status.get("updatedReplicas", 0) == wanted
        and status.get(ready, 0) == wanted
    )
