"""Volumes that hold a model folder or what is fetched from the Hub: any one of Kubernetes' volume sources."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from blockswarm_wire.resource.part import Loose, ObjectName, Part, SubPath, checked, only_one, rule


class ClaimVolume(Part):
    """A PersistentVolumeClaim of the same namespace."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim."""
    read_only: bool | None = None
    """Attach the volume read-only."""


class ImageVolume(Part):
    """An OCI image or artifact whose files are the volume."""

    reference: Annotated[str, Field(min_length=1, max_length=500)]
    """Image reference, best with a digest."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled."""


class NfsVolume(Part):
    """A folder of an NFS server."""

    server: Annotated[str, Field(min_length=1, max_length=253)]
    """Host name or address."""
    path: Annotated[str, Field(min_length=1, max_length=1000)]
    """Exported folder."""
    read_only: bool | None = None
    """Mount the volume read-only."""


class HostPathVolume(Part):
    """A folder of the node. Namespaces with the Pod Security level baseline or restricted refuse it."""

    path: Annotated[str, Field(min_length=1, max_length=1000)]
    """Folder on the node."""
    type: Annotated[str, Field(max_length=20)] | None = None
    """What must be there, such as Directory."""


_SUB_PATH_RULE = rule(
    "!has(self.subPath) || !self.subPath.contains('..')",
    "subPath: must stay inside the volume; write it without '..'",
    ".subPath",
)


def _one_of(names: tuple[str, ...]) -> dict[str, str]:
    given = ", ".join(f"has(self.{name})" for name in names)
    return rule(f"[{given}].filter(given, given).size() == 1", f"name exactly one of {', '.join(names)}")


class _Volume(Part):
    SOURCES: ClassVar[tuple[str, ...]] = ()

    sub_path: SubPath | None = None
    """Folder inside the volume; absent = its root."""
    persistent_volume_claim: ClaimVolume | None = None
    """A PersistentVolumeClaim of the same namespace."""
    nfs: NfsVolume | None = None
    """A folder of an NFS server."""
    csi: Loose | None = None
    """Kubernetes' CSIVolumeSource: a volume that a CSI driver makes for the pod."""
    ephemeral: Loose | None = None
    """Kubernetes' EphemeralVolumeSource: a claim made from a template for each pod."""
    host_path: HostPathVolume | None = None
    """A folder of the node. Namespaces with the Pod Security level baseline or restricted refuse it."""
    azure_file: Loose | None = None
    """Kubernetes' AzureFileVolumeSource."""
    fc: Loose | None = None
    """Kubernetes' FCVolumeSource."""
    iscsi: Loose | None = None
    """Kubernetes' ISCSIVolumeSource."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sub_path is not None and ".." in self.sub_path:
            raise ValueError("subPath must stay inside the volume; write it without '..'")
        only_one(self.SOURCES, self.as_kubernetes())
        return self

    def volume_source(self) -> dict[str, Any]:
        """The one source, as the volume of a pod names it: {"persistentVolumeClaim": {...}}."""
        return {key: value for key, value in self.as_kubernetes().items() if key != "subPath"}


_COMMON = ("persistentVolumeClaim", "nfs", "csi", "ephemeral", "hostPath", "azureFile", "fc", "iscsi")


class ModelVolume(_Volume):
    """A volume that holds a model folder: config.json and safetensors. It is mounted read-only."""

    SOURCES: ClassVar[tuple[str, ...]] = (*_COMMON, "image")
    model_config = checked(_one_of(SOURCES), _SUB_PATH_RULE)

    image: ImageVolume | None = None
    """An OCI image or artifact whose files are the volume."""


class CacheVolume(_Volume):
    """A volume for what is fetched from the Hub."""

    SOURCES: ClassVar[tuple[str, ...]] = (*_COMMON, "emptyDir")
    model_config = checked(_one_of(SOURCES), _SUB_PATH_RULE)

    empty_dir: Loose | None = None
    """Kubernetes' EmptyDirVolumeSource: empty at first, gone with the pod."""
