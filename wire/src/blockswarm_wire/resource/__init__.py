"""The `BlockServer` custom resource: one typed model, read by local mode and by the operator.

The CustomResourceDefinition is generated from it (`blockswarm_wire.crd`): docstrings become descriptions, bounds stay
bounds, and each check across fields stands beside the rule by which the API server makes the same check.
"""

from blockswarm_wire.resource.block_server import API_VERSION, KIND, BlockServer, Metadata
from blockswarm_wire.resource.model import HubSource, Model, ModelSource, TokenSecret
from blockswarm_wire.resource.part import DnsName, Label, Part
from blockswarm_wire.resource.placement import Affinity, Toleration, TopologySpread
from blockswarm_wire.resource.pod import (
    EnvironmentVariable,
    PodSurface,
    Resources,
    SecretName,
    Volume,
    VolumeMount,
)
from blockswarm_wire.resource.read import load_manifest, parse_block_server
from blockswarm_wire.resource.spec import (
    Blocks,
    Cache,
    Compute,
    Gpu,
    Spec,
    Update,
)
from blockswarm_wire.resource.status import Condition, KeyValueCache, ServerStatus, Status
from blockswarm_wire.resource.volumes import CacheVolume, ModelVolume

__all__ = [
    "API_VERSION",
    "KIND",
    "Affinity",
    "BlockServer",
    "Blocks",
    "Cache",
    "CacheVolume",
    "Compute",
    "Condition",
    "DnsName",
    "EnvironmentVariable",
    "Gpu",
    "HubSource",
    "KeyValueCache",
    "Label",
    "Metadata",
    "Model",
    "ModelSource",
    "ModelVolume",
    "Part",
    "PodSurface",
    "Resources",
    "SecretName",
    "ServerStatus",
    "Spec",
    "Status",
    "TokenSecret",
    "Toleration",
    "TopologySpread",
    "Update",
    "Volume",
    "VolumeMount",
    "load_manifest",
    "parse_block_server",
]
