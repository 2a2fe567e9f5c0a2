"""The pod of a block server, from the spec alone (as the resource model dumps it: defaults in, absent fields out)."""

from collections.abc import Mapping
from typing import Any

from blockswarm_operator import names
from blockswarm_operator.settings import Settings
from blockswarm_wire import limits
from blockswarm_wire.span import Span

Manifest = dict[str, Any]
Spec = Mapping[str, Any]

# Closing streams, leaving the DHT and ending p2pd after the drain's own deadline.
STOP_MARGIN_SECONDS = 15
_USER = 65532


def template(name: str, spec: Spec, settings: Settings, *, model: str, group: str) -> Manifest:
    """metadata and spec of the pods; the label `template` is the hash of all the rest."""
    surface = spec["pod"]
    labels = {**surface["labels"], **_labels(name, model, group)}
    meta = {"labels": labels, "annotations": dict(surface["annotations"])}
    if spec["restart"]:
        meta["annotations"]["blockswarm.io/restart"] = spec["restart"]
    body = {"metadata": meta, "spec": _pod(name, spec, settings)}
    labels[names.TEMPLATE] = names.digest(body)
    return body


def _labels(name: str, model: str, group: str) -> dict[str, str]:
    return {
        names.NAME: "blockserver",
        names.MANAGED_BY: names.MANAGER,
        names.PART_OF: "blockswarm",
        names.BLOCK_SERVER: name,
        names.MODEL: model,
        names.SPAN_GROUP: group,
    }


def _pod(name: str, spec: Spec, settings: Settings) -> Manifest:
    surface = spec["pod"]
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
            **surface.get("securityContext", {}),
        },
        "terminationGracePeriodSeconds": spec["drainSeconds"] + STOP_MARGIN_SECONDS,
        "tolerations": [*_patience(surface), *surface["tolerations"]],
        "topologySpreadConstraints": _spread(name, surface["topologySpreadConstraints"]),
        "containers": [_container(spec, settings)],
        "volumes": _volumes(spec),
    }
    for field in (
        "affinity", "nodeSelector", "priorityClassName", "runtimeClassName", "imagePullSecrets", "serviceAccountName",
    ):  # fmt: skip
        if surface.get(field):
            pod[field] = surface[field]
    return pod


def _container(spec: Spec, settings: Settings) -> Manifest:
    surface, gpu = spec["pod"], spec["compute"].get("gpu")
    resources = {key: dict(value) for key, value in surface["resources"].items() if value}
    if gpu:
        resources["limits"] = {**resources.get("limits", {}), gpu["resource"]: str(gpu["count"])}
    return {
        "name": names.CONTAINER,
        "image": surface.get("image", settings.server_image),
        "imagePullPolicy": settings.pull_policy,
        "command": ["blockswarm-server"],
        "args": _arguments(spec, settings),
        "env": [*_environment(spec), *surface["env"]],
        "ports": [
            {"name": port, "containerPort": number, "protocol": "TCP"}
            for port, number in (
                ("grpc", limits.SERVER_PORT),
                ("dht", limits.SERVER_DHT_PORT),
                ("metrics", limits.METRICS_PORT),
            )
        ],
        # Only importing torch comes before /healthz; on a node that starts many servers at once it takes its time.
        # Often, because a small model is loaded soon after, and readiness is not asked for before this has passed.
        "startupProbe": _probe("/healthz", period=1, failures=300),
        "livenessProbe": _probe("/healthz", period=10, failures=3),
        "readinessProbe": _probe("/readyz", period=1, failures=2),
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(spec),
    }


def _arguments(spec: Spec, settings: Settings) -> list[str]:
    source, compute = spec["model"]["source"], spec["compute"]
    span = Span(spec["blocks"]["start"], spec["blocks"]["end"])
    options = {
        "--model": "/model" if "volume" in source else _literal(source["hub"]["repo"]),
        "--name": _literal(spec["model"]["name"]),
        "--blocks": str(span),
        "--dtype": spec["dtype"],
        "--quantization": spec["quantization"],
        "--device": compute["device"],
        "--directory": settings.directory,
        "--listen": f"0.0.0.0:{limits.SERVER_PORT}",
        "--announce": "$(POD_IP)",
        "--dht-listen": f"0.0.0.0:{limits.SERVER_DHT_PORT}",
        "--dht-announce": "$(POD_IP)",
        "--metrics-listen": f"0.0.0.0:{limits.METRICS_PORT}",
        "--server-id": "$(POD_UID)",
        "--cache-tokens": str(spec["cache"]["tokens"]),
        "--drain-seconds": str(spec["drainSeconds"]),
    }
    if "threads" in compute:
        options["--threads"] = str(compute["threads"])
    if "hub" in source:
        options |= {"--revision": _literal(source["hub"]["revision"]), "--cache-dir": "/cache"}
    return [f"{name}={value}" for name, value in options.items()]


def _literal(text: str) -> str:
    """Text in which Kubernetes shall replace nothing: it takes $(NAME) for a variable."""
    return text.replace("$", "$$")


def _environment(spec: Spec) -> list[Manifest]:
    fields = {
        "POD_IP": "status.podIP",
        "POD_UID": "metadata.uid",
        "POD_NAME": "metadata.name",
        "NODE_NAME": "spec.nodeName",
    }
    found: list[Manifest] = [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]
    found += [{"name": "HOME", "value": "/tmp"}, {"name": "HF_HOME", "value": "/cache"}]
    if spec["compute"]["device"] == "cpu":
        # Else the NVIDIA runtime shows every device to a container that asked for none.
        found.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
    secret = spec["model"]["source"].get("hub", {}).get("tokenSecret")
    if secret:
        reference = {"name": secret["name"], "key": secret["key"]}
        found.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    return found


def _volumes(spec: Spec) -> list[Manifest]:
    found: list[Manifest] = [{"name": "tmp", "emptyDir": {}}]
    for name, asked in _own_volumes(spec).items():
        source = {key: value for key, value in asked.items() if key != "subPath"}
        found.append({"name": name, **source})
    return [*found, *spec["pod"]["volumes"]]


def _mounts(spec: Spec) -> list[Manifest]:
    found: list[Manifest] = [{"name": "tmp", "mountPath": "/tmp"}]
    for name, asked in _own_volumes(spec).items():
        mount: Manifest = {"name": name, "mountPath": f"/{name}"}
        if name == "model":
            mount["readOnly"] = True
        if "subPath" in asked:
            mount["subPath"] = asked["subPath"]
        found.append(mount)
    return [*found, *spec["pod"]["volumeMounts"]]


def _own_volumes(spec: Spec) -> dict[str, Manifest]:
    volumes: dict[str, Manifest] = {"cache": spec["cache"].get("volume") or {"emptyDir": {}}}
    if "volume" in spec["model"]["source"]:
        volumes["model"] = spec["model"]["source"]["volume"]
    return volumes


def _patience(surface: Spec) -> list[Manifest]:
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": surface["unreachableSeconds"],
        }
        for key in keys
    ]


def _spread(name: str, asked: list[Manifest]) -> list[Manifest]:
    mine = {"matchLabels": {names.BLOCK_SERVER: name}}
    over_nodes = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "nodeTaintsPolicy": "Honor",
    }
    return [{"labelSelector": mine, **constraint} for constraint in asked or [over_nodes]]


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
