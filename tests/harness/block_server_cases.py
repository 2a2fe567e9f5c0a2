"""Wrong and right BlockServers, and wrong and right changes of them: tables for the reader and for the API server."""

import copy
from typing import Any

Manifest = dict[str, Any]
GONE = object()

_SECRET = {"name": "hub"}
SMALL: Manifest = {
    "apiVersion": "blockswarm.io/v1alpha1",
    "kind": "BlockServer",
    "metadata": {"name": "small"},
    "spec": {
        "model": {"name": "demo", "source": {"hub": {"repo": "org/demo"}}},
        "blocks": {"start": 0, "end": 10},
        "replicas": 0,
    },
}
_CLAIM = {"persistentVolumeClaim": {"claimName": "demo"}}
_GPU = {"device": "cuda", "gpu": {"resource": "nvidia.com/gpu", "count": 2}}
_MOUNT = [{"name": "data", "mountPath": "/data"}]

# (path, value, texts of the refusal). Each stands alone on top of the small manifest.
WRONG: list[tuple[str, Any, list[str]]] = [
    # blocks
    ("spec.blocks.end", 0, ["spec.blocks.end", "greater than or equal to 1"]),
    ("spec.blocks.start", 10, ["spec.blocks.end", "must be greater than start"]),
    ("spec.blocks.start", 11, ["spec.blocks.end", "must be greater than start"]),
    ("spec.blocks.start", -1, ["spec.blocks.start", "greater than or equal to 0"]),
    ("spec.blocks.end", 4097, ["spec.blocks.end", "less than or equal to 4096"]),
    ("spec.blocks.end", "10", ["spec.blocks.end", "must be of type integer"]),
    ("spec.blocks.end", GONE, ["spec.blocks.end: Required value"]),
    ("spec.blocks", GONE, ["spec.blocks: Required value"]),
    ("spec", GONE, ["spec: Required value"]),
    # replicas, types
    ("spec.replicas", -1, ["spec.replicas", "greater than or equal to 0"]),
    ("spec.replicas", 1001, ["spec.replicas", "less than or equal to 1000"]),
    ("spec.replicas", "2", ["spec.replicas", "must be of type integer"]),
    ("spec.dtype", "float8", ["spec.dtype", 'supported values: "float32", "bfloat16", "float16"']),
    ("spec.quantization", "int8", ["spec.quantization", 'supported values: "none"']),
    ("spec.replica", 2, ['unknown field "spec.replica"']),
    # the model
    ("spec.model", GONE, ["spec.model: Required value"]),
    ("spec.model.name", GONE, ["spec.model.name: Required value"]),
    ("spec.model.name", "", ["spec.model.name", "at least 1 chars"]),
    ("spec.model.name", "a\nb", ["spec.model.name", "printable characters only; remove line breaks"]),
    ("spec.model.name", "x" * 101, ["spec.model.name", "Too long: may not be more than 100"]),
    (
        "spec.model.source",
        GONE,
        ["spec.model.source", "is required; name a repository with hub, or a volume with volume"],
    ),
    ("spec.model.source", {}, ["spec.model.source", "name exactly one of hub, volume"]),
    ("spec.model.source.volume", _CLAIM, ["spec.model.source", "name exactly one of hub, volume"]),
    (
        "spec.model.source",
        {"path": "models/demo"},
        [
            "spec.model.source.path",
            "no meaning in a cluster; name a repository with hub, or a volume with volume",
        ],
    ),
    (
        "spec.model.source.hub.repo",
        "../../etc",
        ["spec.model.source.hub.repo", "must be a repository id such as"],
    ),
    ("spec.model.source.hub.repo", GONE, ["spec.model.source.hub.repo: Required value"]),
    (
        "spec.model.source.hub.revision",
        "a b",
        ["spec.model.source.hub.revision", "must be a branch, tag or commit"],
    ),
    ("spec.model.source.hub.tokenSecret", {}, ["spec.model.source.hub.tokenSecret.name: Required value"]),
    (
        "spec.model.source.hub.tokenSecret",
        "hub",
        ["spec.model.source.hub.tokenSecret", "must be of type object"],
    ),
    # volumes
    (
        "spec.model.source",
        {"volume": {"subPath": "demo"}},
        ["spec.model.source.volume", "name exactly one of persistentVolumeClaim, nfs"],
    ),
    (
        "spec.model.source",
        {"volume": {**_CLAIM, "nfs": {"server": "nas", "path": "/demo"}}},
        ["spec.model.source.volume", "name exactly one of persistentVolumeClaim, nfs"],
    ),
    (
        "spec.model.source",
        {"volume": {"persistentVolumeClaim": {}}},
        ["spec.model.source.volume.persistentVolumeClaim.claimName: Required value"],
    ),
    (
        "spec.model.source",
        {"volume": {**_CLAIM, "subPath": "../demo"}},
        ["spec.model.source.volume.subPath", "write it without '..'"],
    ),
    (
        "spec.model.source",
        {"volume": {**_CLAIM, "subPath": "/demo"}},
        ["spec.model.source.volume.subPath", "must be a relative path such as"],
    ),
    (
        "spec.model.source",
        {"volume": {"persistantVolumeClaim": {"claimName": "demo"}}},
        ['unknown field "spec.model.source.volume.persistantVolumeClaim"'],
    ),
    (
        "spec.model.source",
        {"volume": {"emptyDir": {}}},
        ['unknown field "spec.model.source.volume.emptyDir"'],
    ),
    ("spec.cache.tokens", 0, ["spec.cache.tokens", "greater than or equal to 1"]),
    ("spec.cache.tokens", 1.5, ["spec.cache.tokens", "must be of type integer"]),
    (
        "spec.cache.volume",
        {**_CLAIM, "emptyDir": {}},
        ["spec.cache.volume", "name exactly one of persistentVolumeClaim, nfs"],
    ),
    # compute
    ("spec.compute.device", "gpu", ["spec.compute.device", "must be cpu or cuda"]),
    (
        "spec.compute.device",
        "cuda",
        ["spec.compute.gpu", "device cuda needs GPUs; name them", "or set device: cpu"],
    ),
    (
        "spec.compute.gpu",
        {"resource": "nvidia.com/gpu", "count": 1},
        ["spec.compute.gpu", "on device cpu must not hold GPUs; remove gpu or set device: cuda"],
    ),
    (
        "spec.compute",
        {"device": "cuda", "gpu": {"count": 2}},
        ["spec.compute.gpu.resource", "name the resource that the nodes offer, such as nvidia.com/gpu"],
    ),
    (
        "spec.compute",
        {"device": "cuda", "gpu": {"resource": "nvidia.com/gpu", "count": 0}},
        ["spec.compute.gpu.count", "greater than or equal to 1"],
    ),
    (
        "spec.compute",
        {"device": "cuda", "gpu": {"resource": "nvidia com"}},
        ["spec.compute.gpu.resource", "must be a qualified name, such as"],
    ),
    ("spec.compute.threads", 0, ["spec.compute.threads", "greater than or equal to 1"]),
    (
        "spec.pod.resources.limits",
        {"nvidia.com/gpu": 1},
        ["spec.pod.resources", "remove the resource, or set compute.device: cuda and compute.gpu"],
    ),
    (
        "spec.pod.resources.requests",
        {"gpu.intel.com/i915": "1"},
        ["spec.pod.resources", "on device cpu must not hold GPUs"],
    ),
    # drain, update, restart
    ("spec.drainSeconds", 0, ["spec.drainSeconds", "greater than or equal to 1"]),
    ("spec.drainSeconds", 3601, ["spec.drainSeconds", "less than or equal to 3600"]),
    ("spec.drainSeconds", "1m", ["spec.drainSeconds", "must be of type integer"]),
    ("spec.update.allowGap", "yes", ["spec.update.allowGap", "must be of type boolean"]),
    ("spec.restart", "x" * 101, ["spec.restart", "Too long: may not be more than 100"]),
    # the name
    ("metadata.name", "x" * 51, ["metadata.name", "at most 50 characters", "choose another name"]),
    ("metadata.name", "demo.a", ["metadata.name", "characters of a-z, 0-9 and -", "choose another name"]),
    ("metadata.name", "7b-a", ["metadata.name", "start with a letter", "choose another name"]),
    # the pod
    ("spec.pod.image", "a b", ["spec.pod.image", "must be an image reference without spaces"]),
    (
        "spec.pod.labels",
        {"blockswarm.io/x": "1"},
        ["spec.pod.labels", "belong to the operator; choose other keys"],
    ),
    (
        "spec.pod.labels",
        {"app.kubernetes.io/name": "mine"},
        ["spec.pod.labels", "belong to the operator; choose other keys"],
    ),
    (
        "spec.pod.annotations",
        {"blockswarm.io/x": "1"},
        ["spec.pod.annotations", "belong to the operator; choose other keys"],
    ),
    ("spec.pod.env", [{"value": "1"}], ["spec.pod.env[0].name: Required value"]),
    (
        "spec.pod.env",
        [{"name": "POD_IP", "value": "1"}],
        ["spec.pod.env[0].name", "set by the operator; remove"],
    ),
    (
        "spec.pod.env",
        [{"name": "HF_TOKEN", "value": "1"}],
        ["spec.pod.env[0].name", "model.source.hub.tokenSecret"],
    ),
    (
        "spec.pod.env",
        [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        ["spec.pod.env[0]", "value and valueFrom exclude each other; keep one"],
    ),
    ("spec.pod.env", [{"name": "A"}, {"name": "A"}], ["spec.pod.env[1]", "Duplicate value"]),
    (
        "spec.pod.volumes",
        [{"name": "model", "emptyDir": {}}],
        ["spec.pod.volumes[0].name", "choose another name"],
    ),
    ("spec.pod.volumeMounts", _MOUNT, ["spec.pod.volumeMounts", "add the volume or correct the name"]),
    (
        "spec.pod",
        {
            "volumes": [{"name": "data", "emptyDir": {}}],
            "volumeMounts": [{"name": "data", "mountPath": "/model/x"}],
        },
        ["spec.pod.volumeMounts[0].mountPath", "choose another folder"],
    ),
    (
        "spec.pod.tolerations",
        [{"effect": "NoSchedule"}],
        ["spec.pod.tolerations[0].key", "set operator: Exists"],
    ),
    (
        "spec.pod.tolerations",
        [{"key": "a", "operator": "Exists", "value": "b"}],
        ["spec.pod.tolerations[0].value", "set operator: Equal"],
    ),
    (
        "spec.pod.tolerations",
        [{"key": "a", "operator": "Exists", "effect": "Never"}],
        ["spec.pod.tolerations[0].effect", 'supported values: "NoSchedule"'],
    ),
    (
        "spec.pod.tolerations",
        [{"operator": "Exists"}] * 33,
        ["spec.pod.tolerations", "must have at most 32 items"],
    ),
    (
        "spec.pod.topologySpreadConstraints",
        [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        ["spec.pod.topologySpreadConstraints[0].maxSkew", "greater than or equal to 1"],
    ),
    (
        "spec.pod.topologySpreadConstraints",
        [{"maxSkew": 1, "topologyKey": "zone"}],
        ["spec.pod.topologySpreadConstraints[0].whenUnsatisfiable: Required value"],
    ),
    ("spec.pod.affinity", {"nodesAffinity": {}}, ['unknown field "spec.pod.affinity.nodesAffinity"']),
    ("spec.pod.resources.limits", {"cpu": 0.5}, ["spec.pod.resources.limits.cpu", "must be of type integer"]),
    (
        "spec.pod.priorityClassName",
        "High",
        ["spec.pod.priorityClassName", "must be the name of an object: a-z"],
    ),
    ("spec.pod.unreachableSeconds", -1, ["spec.pod.unreachableSeconds", "greater than or equal to 0"]),
    (
        "spec",
        {
            **SMALL["spec"],
            "compute": _GPU,
            "pod": {"resources": {"limits": {"nvidia.com/gpu": 2}}},
        },
        ["spec.pod.resources", "the resource of compute.gpu is set there alone; remove it here"],
    ),
]

FULL_POD = {
    "image": "registry.example:5000/server@sha256:" + "0" * 64,
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"pool": "gpu"},
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    },
    "tolerations": [
        {"operator": "Exists"},
        {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
    ],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "high",
    "runtimeClassName": "nvidia",
    "serviceAccountName": "servers",
    "env": [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "B", "value": ""},
    ],
    "volumes": [{"name": "data", "nfs": {"server": "nas", "path": "/data"}}],
    "volumeMounts": [{**_MOUNT[0], "readOnly": True}],
    "resources": {"requests": {"cpu": 2, "memory": "8Gi"}, "limits": {"memory": "16Gi", "rdma/hca": "1"}},
    "labels": {"team": "a"},
    "annotations": {"example.org/note": "b"},
    "securityContext": {"fsGroup": 65532},
    "unreachableSeconds": 0,
}
RIGHT: list[tuple[str, Any]] = [
    ("spec.replicas", 0),
    ("spec.dtype", "bfloat16"),
    ("spec.compute", _GPU),
    ("spec.compute", {"device": "cuda", "gpu": {"resource": "amd.com/gpu"}}),
    ("spec.model.source", {"volume": {**_CLAIM, "subPath": "models/demo"}}),
    ("spec.model.source", {"volume": {"image": {"reference": "registry.example/demo:1"}}}),
    ("spec.model.source", {"volume": {"csi": {"driver": "example.org", "volumeAttributes": {"a": "b"}}}}),
    ("spec.model.source.hub.tokenSecret", _SECRET),
    ("spec.cache.volume", {"emptyDir": {"sizeLimit": "10Gi"}}),
    ("spec.pod", FULL_POD),
    ("metadata.name", "x" * 50),
]

# Objects that exist, by name: what is added on top of the small manifest.
EXISTING: dict[str, list[tuple[str, Any]]] = {
    "plain": [],
    "full": [
        ("spec.dtype", "bfloat16"),
        ("spec.quantization", "none"),
        ("spec.model.source.hub.revision", "v1"),
        ("spec.model.source.hub.tokenSecret", {"name": "hub", "key": "token"}),
    ],
    "claim": [("spec.model.source", {"volume": {**_CLAIM, "subPath": "models/demo"}})],
    "driver": [("spec.model.source", {"volume": {"csi": {"driver": "example.org", "readOnly": True}}})],
}
BOUND = "immutable: running sessions are bound to it; create a second BlockServer"
# (name of the existing object, path, new value, field that is blamed)
FIXED: list[tuple[str, str, Any, str]] = [
    ("plain", "spec.model.name", "other", "spec.model"),
    ("plain", "spec.model.source.hub.repo", "org/other", "spec.model"),
    ("plain", "spec.model.source.hub.revision", "v2", "spec.model"),
    ("plain", "spec.model.source.hub.tokenSecret", _SECRET, "spec.model"),
    ("plain", "spec.model.source", {"volume": _CLAIM}, "spec.model"),
    ("plain", "spec.blocks.start", 1, "spec.blocks"),
    ("plain", "spec.blocks.end", 11, "spec.blocks"),
    ("plain", "spec.dtype", "float16", "spec.dtype"),
    ("full", "spec.dtype", "float32", "spec.dtype"),
    ("full", "spec.dtype", GONE, "spec.dtype"),
    ("full", "spec.model.source.hub.revision", "v2", "spec.model"),
    ("full", "spec.model.source.hub.revision", GONE, "spec.model"),
    ("full", "spec.model.source.hub.tokenSecret.name", "other", "spec.model"),
    ("full", "spec.model.source.hub.tokenSecret.key", "other", "spec.model"),
    ("full", "spec.model.source.hub.tokenSecret", GONE, "spec.model"),
    ("claim", "spec.model.source.volume.persistentVolumeClaim.claimName", "other", "spec.model"),
    ("claim", "spec.model.source.volume.persistentVolumeClaim.readOnly", True, "spec.model"),
    ("claim", "spec.model.source.volume.subPath", "models/other", "spec.model"),
    ("claim", "spec.model.source.volume.subPath", GONE, "spec.model"),
    ("claim", "spec.model.source", {"hub": {"repo": "org/demo"}}, "spec.model"),
    ("driver", "spec.model.source.volume.csi.driver", "other.example.org", "spec.model"),
    ("driver", "spec.model.source.volume.csi.readOnly", GONE, "spec.model"),
    ("driver", "spec.model.source.volume.csi.fsType", "ext4", "spec.model"),
    ("driver", "spec.model.source.volume.subPath", "demo", "spec.model"),
]
# Fields that an update cannot even take away, or give another value: (name, path, new value, texts).
KEPT: list[tuple[str, str, Any, list[str]]] = [
    ("plain", "spec.model", GONE, ["spec.model: Required value"]),
    ("plain", "spec.model.name", GONE, ["spec.model.name: Required value"]),
    ("plain", "spec.model.source", GONE, ["spec.model.source", "is required; name a repository"]),
    ("plain", "spec.blocks", GONE, ["spec.blocks: Required value"]),
    ("plain", "spec.blocks.start", GONE, ["spec.blocks.start: Required value"]),
    ("plain", "spec.blocks.end", GONE, ["spec.blocks.end: Required value"]),
    ("plain", "spec.quantization", "int8", ["spec.quantization", 'supported values: "none"']),
    ("plain", "spec.drainSeconds", 0, ["spec.drainSeconds", "greater than or equal to 1"]),
    ("plain", "spec.compute", {"device": "cuda"}, ["spec.compute.gpu", "device cuda needs GPUs"]),
]
CHANGES: list[tuple[str, str, Any]] = [
    ("plain", "spec.dtype", "float32"),
    ("plain", "spec.quantization", "none"),
    ("plain", "spec.model.source.hub.revision", "main"),
    ("full", "spec.quantization", GONE),
    ("full", "spec.model.source.hub.tokenSecret.key", GONE),
    ("plain", "spec.replicas", 3),
    ("plain", "spec.drainSeconds", 5),
    ("plain", "spec.restart", "again"),
    ("plain", "spec.update", {"allowGap": True}),
    ("plain", "spec.cache.tokens", 4096),
    ("plain", "spec.compute", _GPU),
    ("plain", "spec.pod", FULL_POD),
]


def changed(manifest: Manifest, *changes: tuple[str, Any]) -> Manifest:
    """A manifest with other values at some paths; GONE takes a field away."""
    manifest = copy.deepcopy(manifest)
    for path, value in changes:
        *folders, last = path.split(".")
        place = manifest
        for folder in folders:
            place = place.setdefault(folder, {})
        if value is GONE:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return manifest


def existing(name: str) -> Manifest:
    """One of EXISTING, whole."""
    return changed(SMALL, ("metadata.name", name), *EXISTING[name])
