"""The Kubernetes objects that tests apply, as plain dicts."""

from pathlib import Path
from typing import Any

from kube.kubectl import Object

MODELS = "models"
MODEL_NAME = "smollm2-135m-instruct"
CLAIM = "smollm2"


def namespace(name: str) -> Object:
    """A namespace that takes restricted pods only."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def folder_claim(name: str, folder: Path, space: str) -> list[Object]:
    """A claim on a folder of the nodes, and the volume that fulfils it: restricted pods may not name the folder."""
    common: Object = {
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
    }
    of_claim = f"{space}-{name}"
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": of_claim},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": space, "name": name},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            **common,
            "volumeName": of_claim,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return [volume, claim]


def block_server(name: str, start: int, end: int, *, space: str = MODELS, **spec: Any) -> Object:
    """A BlockServer of the demo model on the claim `smollm2`, small enough for a laptop. `spec`: fields to set."""
    claim = {"persistentVolumeClaim": {"claimName": CLAIM}}
    return {
        "apiVersion": "blockswarm.io/v1alpha1",
        "kind": "BlockServer",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "model": {"name": MODEL_NAME, "source": {"volume": claim}},
            "blocks": {"start": start, "end": end},
            "replicas": 1,
            "cache": {"tokens": 4096},
            "compute": {"threads": 1},
            "drainSeconds": 20,
            "pod": {"resources": {"requests": {"cpu": "50m", "memory": "300Mi"}}},
            **spec,
        },
    }


def config_map(name: str, files: dict[str, str], space: str) -> Object:
    """Files by name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": space},
        "data": files,
    }


def pod(
    name: str,
    image: str,
    command: list[str],
    *,
    space: str,
    volumes: dict[str, Object],
    env: dict[str, str] | None = None,
    node: str | None = None,
    labels: dict[str, str] | None = None,
) -> Object:
    """A restricted pod of one container. `volumes`: mount path → volume source; read-only, besides /tmp."""
    mounted = {"/tmp": {"emptyDir": {}}, **volumes}
    placed = {"kubernetes.io/hostname": node} if node is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space, "labels": labels or {}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": placed,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": command,
                    "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
                    "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": f"v{number}", "mountPath": path, "readOnly": path != "/tmp"}
                        for number, path in enumerate(mounted)
                    ],
                }
            ],
            "volumes": [{"name": f"v{number}", **source} for number, source in enumerate(mounted.values())],
        },
    }
