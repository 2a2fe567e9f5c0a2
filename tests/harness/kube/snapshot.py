"""What a namespace holds of the operator's doing, in a form that two runs can be compared in."""

from collections.abc import Callable
from typing import Any

from kube.kubectl import Object
from kube.rest import Rest
from kube.waiting import Transient

_CHILDREN = {
    "ReplicaSet": "apis/apps/v1/namespaces/{}/replicasets",
    "Service": "api/v1/namespaces/{}/services",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
_ALL = {
    "BlockServer": "apis/blockswarm.io/v1alpha1/namespaces/{}/blockservers",
    **_CHILDREN,
    "Pod": "api/v1/namespaces/{}/pods",
    "EndpointSlice": "apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
}
# Different in every run, or of no interest.
_META = ("name", "labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp")
_APPLIED = "blockswarm.io/applied"
_TEMPLATE = "blockswarm.io/template"
_RESTART = "blockswarm.io/restart"


class Snapshots:
    """Of one namespace."""

    def __init__(self, rest: Rest, namespace: str) -> None:
        self._rest, self._namespace = rest, namespace

    def path(self, kind: str, name: str) -> str:
        """Of one object."""
        return f"/{_ALL[kind].format(self._namespace)}/{name}"

    def objects(self, kind: str) -> list[Object]:
        """All objects of a kind.

        Raises:
            OSError: no answer.
            Transient: the API server cannot answer now.
        """
        answer = self._rest.call("GET", "/" + _ALL[kind].format(self._namespace))
        if answer.busy:
            raise Transient(f"{kind}: {answer}")
        assert answer.ok, answer
        items: list[Object] = answer.json()["items"]
        return items

    def versions(self) -> dict[str, str]:
        """resourceVersion of each BlockServer and of each of its children."""
        return {
            f"{kind} {one['metadata']['name']}": one["metadata"]["resourceVersion"]
            for kind in ("BlockServer", *_CHILDREN)
            for one in self.objects(kind)
        }

    def left(self) -> list[str]:
        """Kind and name of everything that is there."""
        return [f"{kind} {one['metadata']['name']}" for kind in _ALL for one in self.objects(kind)]

    def comparable(self) -> dict[str, Any]:
        """Everything that two runs must agree on: no uids, no times, no generated names."""
        found: dict[str, Any] = {}
        for kind in ("BlockServer", *_CHILDREN):
            for one in self.objects(kind):
                found[f"{kind} {one['metadata']['name']}"] = _READ.get(kind, _plain)(one)
        found["pods"] = sorted((_pod(pod) for pod in self.objects("Pod")), key=str)
        return found


def _meta(one: Object) -> Object:
    meta = {key: value for key, value in one["metadata"].items() if key in _META}
    notes = dict(meta.get("annotations", {}))
    # A hash of the owners' uids too.
    meta["annotations"] = notes | ({_APPLIED: "..."} if notes.pop(_APPLIED, "") else {})
    meta["ownerReferences"] = [
        (owner["kind"], owner["name"], owner.get("controller", False))
        for owner in sorted(meta.get("ownerReferences", []), key=lambda owner: owner["name"])
    ]
    return meta


def _plain(one: Object) -> Object:
    spec = {key: value for key, value in one["spec"].items() if key not in ("clusterIP", "clusterIPs")}
    return {"metadata": _meta(one), "spec": spec}


def _replica_set(one: Object) -> Object:
    found = _plain(one)
    template = found["spec"]["template"]["metadata"]
    template["labels"] = _without(template["labels"], _TEMPLATE)
    template["annotations"] = _without(template.get("annotations") or {}, _RESTART)
    status = one["status"]
    return found | {"ready": (status["replicas"], status.get("readyReplicas", 0))}


def _block_server(one: Object) -> Object:
    status = dict(one.get("status", {}))
    return {
        "metadata": _meta(one),
        "spec": _without(one["spec"], "restart"),
        "current": status.pop("observedGeneration", 0) == one["metadata"]["generation"],
        "conditions": [
            {key: condition[key] for key in ("type", "status", "reason", "message")}
            for condition in status.pop("conditions", [])
        ],
        "servers": [
            {key: value for key, value in server.items() if key not in ("pod", "serverId")}
            for server in status.pop("servers", [])
        ],
        "status": status,
    }


def _pod(pod: Object) -> Object:
    meta = pod["metadata"]
    labels = _without(meta["labels"], _TEMPLATE)
    notes = _without(meta.get("annotations") or {}, _RESTART)
    return {"labels": labels, "annotations": notes, "leaving": "deletionTimestamp" in meta}


def _without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


_READ: dict[str, Callable[[Object], Object]] = {"ReplicaSet": _replica_set, "BlockServer": _block_server}
