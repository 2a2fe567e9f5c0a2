"""The whole resource."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from blockswarm_wire.resource.part import DnsName, Part
from blockswarm_wire.resource.spec import Spec

API_VERSION = "blockswarm.io/v1alpha1"
KIND = "BlockServer"


class Metadata(Part):
    """Name and namespace; the rest of Kubernetes' metadata is accepted and not read."""

    model_config = ConfigDict(extra="ignore")

    name: DnsName
    """Name of the BlockServer; its objects and pods are named after it."""
    namespace: Annotated[str, Field(max_length=63)] = "default"
    """Namespace of the BlockServer."""


class BlockServer(Part):
    """A wish for servers of one span of one model."""

    api_version: Literal["blockswarm.io/v1alpha1"]
    """Version of the resource's form."""
    kind: Literal["BlockServer"]
    """Kind of the resource."""
    metadata: Metadata
    """Name and namespace; the rest of Kubernetes' metadata is accepted and not read."""
    spec: Spec
    """What is wanted."""
