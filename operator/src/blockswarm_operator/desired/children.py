"""The children of one BlockServer, and the budget of one span group."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blockswarm_operator import names
from blockswarm_operator.desired.pod import Manifest
from blockswarm_operator.kinds import api_version
from blockswarm_wire import limits

_PORTS = (
    ("grpc", limits.SERVER_PORT),
    ("dht", limits.SERVER_DHT_PORT),
    ("metrics", limits.METRICS_PORT),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The BlockServer that children belong to."""

    name: str
    namespace: str
    uid: str
    model: str
    group: str


def children(owner: Owner, template: Manifest, replicas: int, *, network_policy: bool) -> list[Manifest]:
    """ReplicaSet, headless Service and, if asked for, NetworkPolicy."""
    found = [service(owner), replica_set(owner, template, replicas)]
    return [*found, policy(owner)] if network_policy else found


def replica_set(owner: Owner, template: Manifest, replicas: int) -> Manifest:
    """A ReplicaSet of fixed name. Its template may change: pods of the old one stay until they are told to leave."""
    return _child("ReplicaSet", owner) | {
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {names.BLOCK_SERVER: owner.name}},
            "template": template,
        }
    }


def service(owner: Owner) -> Manifest:
    """A headless Service: names for people and monitoring; clients find servers by the DHT."""
    return _child("Service", owner) | {
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.BLOCK_SERVER: owner.name},
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in _PORTS
            ],
        }
    }


def policy(owner: Owner) -> Manifest:
    """Lets in what servers serve, from anywhere in the cluster, and nothing else."""
    ports = [{"port": port, "protocol": "TCP"} for _, port in _PORTS]
    return _child("NetworkPolicy", owner) | {
        "spec": {
            "podSelector": {"matchLabels": {names.BLOCK_SERVER: owner.name}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"namespaceSelector": {}}], "ports": ports}],
        }
    }


def budget(group: str, owners: Sequence[Owner], min_available: int) -> Manifest:
    """The budget of a span group, owned by all its BlockServers: it goes with the last of them."""
    first = owners[0]
    return {
        "apiVersion": api_version("PodDisruptionBudget"),
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": names.budget_name(group),
            "namespace": first.namespace,
            "labels": _labels() | {names.MODEL: first.model, names.SPAN_GROUP: group},
            "ownerReferences": [
                _reference(owner, controller=False) for owner in sorted(owners, key=lambda o: o.uid)
            ],
        },
        "spec": {
            "minAvailable": min_available,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {names.SPAN_GROUP: group}},
        },
    }


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with the hash of itself, by which a later pass sees that nothing is to be done."""
    meta = dict(manifest["metadata"])
    meta["annotations"] = {**meta.get("annotations", {}), names.APPLIED: names.digest(manifest)}
    return {**manifest, "metadata": meta}


def surplus(owned: Iterable[tuple[str, str]], wanted: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """(kind, name) of those owned that are not wanted any more."""
    return set(owned) - {(item["kind"], item["metadata"]["name"]) for item in wanted}


def _child(kind: str, owner: Owner) -> Manifest:
    return {
        "apiVersion": api_version(kind),
        "kind": kind,
        "metadata": {
            "name": owner.name,
            "namespace": owner.namespace,
            "labels": _labels()
            | {names.BLOCK_SERVER: owner.name, names.MODEL: owner.model, names.SPAN_GROUP: owner.group},
            "ownerReferences": [_reference(owner, controller=True)],
        },
    }


def _labels() -> dict[str, str]:
    return {names.NAME: "blockserver", names.MANAGED_BY: names.MANAGER, names.PART_OF: "blockswarm"}


def _reference(owner: Owner, *, controller: bool) -> Manifest:
    return {
        "apiVersion": api_version("BlockServer"),
        "kind": "BlockServer",
        "name": owner.name,
        "uid": owner.uid,
        **({"controller": True, "blockOwnerDeletion": True} if controller else {}),
    }
