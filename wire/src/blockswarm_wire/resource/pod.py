"""What a BlockServer may say about its pods."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from blockswarm_wire.resource.part import (
    Annotations,
    DnsLabel,
    Labels,
    Loose,
    MountPath,
    ObjectName,
    Part,
    Quantities,
    SubPath,
    by_key,
    checked,
    rule,
    text,
    unique,
)
from blockswarm_wire.resource.placement import Affinity, Toleration, TopologySpread

OWN_PREFIX = "blockswarm.io/"
OWN_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of")
OWN_VARIABLES = (
    "POD_IP", "POD_UID", "POD_NAME", "NODE_NAME", "HOME", "HF_HOME", "HF_TOKEN", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
OWN_VOLUMES = ("model", "cache", "tmp")
OWN_FOLDERS = ("/model", "/cache", "/tmp")

_LABELS_MESSAGE = (
    f"labels: keys that start with {OWN_PREFIX} and {', '.join(OWN_LABELS)} belong to the operator; "
    "choose other keys"
)
_ANNOTATIONS_MESSAGE = (
    f"annotations: keys that start with {OWN_PREFIX} belong to the operator; choose other keys"
)
_ENV_MESSAGE = (
    f"name: {', '.join(OWN_VARIABLES)} are set by the operator; remove the entry "
    "(a Hub token is named by model.source.hub.tokenSecret)"
)
_VALUE_MESSAGE = "value and valueFrom exclude each other; keep one"
_VOLUME_MESSAGE = f"name: {', '.join(OWN_VOLUMES)} are volumes of the operator; choose another name"
_FOLDER_MESSAGE = f"mountPath: {', '.join(OWN_FOLDERS)} are mounted by the operator; choose another folder"
_MOUNTS_MESSAGE = (
    "volumeMounts: each name must be that of an entry of volumes; add the volume or correct the name"
)


def _listed(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


class SecretName(Part):
    """A Secret of the same namespace."""

    name: ObjectName
    """Name of the Secret."""


class EnvironmentVariable(Part):
    """One environment variable of the server."""

    model_config = checked(
        rule(f"!(self.name in {_listed(OWN_VARIABLES)})", _ENV_MESSAGE, ".name"),
        rule("!has(self.value) || !has(self.valueFrom)", _VALUE_MESSAGE),
    )

    name: Annotated[
        str,
        text(
            r"^[A-Za-z_.-][A-Za-z0-9_.-]*$",
            "must be made of letters, digits, '_', '.' and '-', and start with no digit",
            most=200,
        ),
    ]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=8192)] | None = None
    """Its value; $(NAME) stands for an earlier variable."""
    value_from: Loose | None = None
    """Kubernetes' EnvVarSource, such as secretKeyRef or configMapKeyRef."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name in OWN_VARIABLES:
            raise ValueError(_ENV_MESSAGE)
        if self.value is not None and self.value_from is not None:
            raise ValueError(_VALUE_MESSAGE)
        return self


class Volume(Part):
    """One more volume of the pod: a name, and one of Kubernetes' volume sources beside it."""

    model_config = ConfigDict(
        extra="allow", **checked(rule(f"!(self.name in {_listed(OWN_VOLUMES)})", _VOLUME_MESSAGE, ".name"))
    )

    name: DnsLabel
    """Name by which volumeMounts refer to it."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name in OWN_VOLUMES:
            raise ValueError(_VOLUME_MESSAGE)
        return self


class VolumeMount(Part):
    """Where a volume of `volumes` is seen in the server."""

    model_config = checked(
        rule(
            f"!{_listed(OWN_FOLDERS)}.exists(own, self.mountPath == own || self.mountPath.startsWith(own + '/'))",
            _FOLDER_MESSAGE,
            ".mountPath",
        )
    )

    name: DnsLabel
    """Name of the volume."""
    mount_path: MountPath
    """Folder in the container."""
    read_only: bool | None = None
    """Mount it read-only."""
    recursive_read_only: Literal["Disabled", "IfPossible", "Enabled"] | None = None
    """Whether what is mounted below is read-only too."""
    sub_path: SubPath | None = None
    """Folder inside the volume; absent = its root."""
    sub_path_expr: SubPath | None = None
    """The same with $(NAME) standing for a variable."""
    mount_propagation: Literal["None", "HostToContainer", "Bidirectional"] | None = None
    """Whether mounts made later are seen."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(self.mount_path == own or self.mount_path.startswith(own + "/") for own in OWN_FOLDERS):
            raise ValueError(_FOLDER_MESSAGE)
        return self


class Resources(Part):
    """What one server asks of its node; GPUs are asked for by `compute.gpu`."""

    requests: Quantities = Field(default={})
    """What is set aside for the server, such as cpu: 4 and memory: 16Gi."""
    limits: Quantities = Field(default={})
    """The most the server may take."""


class PodSurface(Part):
    """What is added to the pods of the servers."""

    model_config = checked(
        rule(
            f"!has(self.labels) || self.labels.all(key, !key.startsWith('{OWN_PREFIX}') && "
            f"!(key in {_listed(OWN_LABELS)}))",
            _LABELS_MESSAGE,
            ".labels",
        ),
        rule(
            f"!has(self.annotations) || self.annotations.all(key, !key.startsWith('{OWN_PREFIX}'))",
            _ANNOTATIONS_MESSAGE,
            ".annotations",
        ),
        rule(
            "!has(self.volumeMounts) || self.volumeMounts.all(mount, has(self.volumes) && "
            "self.volumes.exists(volume, volume.name == mount.name))",
            _MOUNTS_MESSAGE,
            ".volumeMounts",
        ),
    )

    image: (
        Annotated[str, text(r"^[^ \t\r\n]+$", "must be an image reference without spaces", most=500)] | None
    ) = None
    """Image of the server; absent = the operator's."""
    image_pull_secrets: Annotated[list[SecretName], by_key("name", 16), AfterValidator(unique("name"))] = (
        Field(default=[])
    )
    """Secrets by which images are pulled."""
    node_selector: Labels = Field(default={})
    """Labels that a node must have."""
    affinity: Affinity | None = None
    """Which nodes, and which other pods, the pods are drawn to or kept from."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(default=[])
    """Taints of nodes that the pods put up with."""
    topology_spread_constraints: Annotated[list[TopologySpread], Field(max_length=16)] = Field(default=[])
    """How the pods are spread; empty = over nodes, where that is possible."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods, such as nvidia."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of the pods; its token is not mounted."""
    env: Annotated[list[EnvironmentVariable], by_key("name", 64), AfterValidator(unique("name"))] = Field(
        default=[]
    )
    """More environment variables of the server."""
    volumes: Annotated[list[Volume], by_key("name", 32), AfterValidator(unique("name"))] = Field(default=[])
    """More volumes of the pods."""
    volume_mounts: Annotated[
        list[VolumeMount], by_key("mount_path", 32), AfterValidator(unique("mount_path"))
    ] = Field(default=[])
    """Where those volumes are seen in the server."""
    resources: Resources = Resources()
    """What one server asks of its node; GPUs are asked for by `compute.gpu`."""
    labels: Labels = Field(default={})
    """More labels of the pods."""
    annotations: Annotations = Field(default={})
    """More annotations of the pods."""
    security_context: Loose | None = None
    """Fields over those of the pods' security context (Kubernetes' PodSecurityContext), such as fsGroup."""
    unreachable_seconds: Annotated[int, Field(ge=0, le=86_400)] = 30
    """How long a pod waits for its unreachable node to return before it is replaced elsewhere."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(key.startswith(OWN_PREFIX) or key in OWN_LABELS for key in self.labels):
            raise ValueError(_LABELS_MESSAGE)
        if any(key.startswith(OWN_PREFIX) for key in self.annotations):
            raise ValueError(_ANNOTATIONS_MESSAGE)
        if not {mount.name for mount in self.volume_mounts} <= {volume.name for volume in self.volumes}:
            raise ValueError(_MOUNTS_MESSAGE)
        return self
