"""What the operator tells about a BlockServer."""

from typing import Annotated, Literal

from pydantic import Field

from blockswarm_wire.resource.part import Part, by_key

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
LongCount = Annotated[int, Field(ge=0, le=2**53)]
Text = Annotated[str, Field(max_length=253)]


class Condition(Part):
    """One thing that is true, false or not known of the BlockServer."""

    type: Annotated[str, Field(min_length=1, max_length=316, pattern=r"^[A-Za-z0-9_./-]+$")]
    """Accepted, Scheduled, ModelLoaded, Published, Ready, Progressing or Drifted."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: LongCount | None = None
    """Generation of the resource that it was found for."""
    last_transition_time: Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
    """When the status changed last."""
    reason: Annotated[
        str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ]
    """Why, in one word."""
    message: Annotated[str, Field(max_length=32_768)]
    """Why, and what to do, for a person."""


class ServerStatus(Part):
    """One server."""

    pod: Text
    """Name of its pod."""
    node: Text | None = None
    """Node of the pod."""
    server_id: Text | None = None
    """Id of the server in the swarm: the uid of its pod."""
    state: Annotated[str, Field(max_length=40)] | None = None
    """State in the swarm: JOINING, ONLINE, DRAINING or OFFLINE."""
    sessions: Count | None = None
    """Open sessions."""
    occupancy: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Promised part of its KV cache, in percent."""


class KeyValueCache(Part):
    """KV caches of all servers together, in tokens x batch rows."""

    capacity_tokens: LongCount | None = None
    """What they hold at most."""
    promised_tokens: LongCount | None = None
    """What is promised to open sessions."""
    used_tokens: LongCount | None = None
    """What is held now."""
    occupancy: Annotated[str, Field(max_length=20)] | None = None
    """Promised part of the capacity, such as 12%."""


class Status(Part):
    """What was found."""

    observed_generation: LongCount | None = None
    """Generation of the resource that the status was found for."""
    replicas: Count | None = None
    """Pods that exist."""
    ready_replicas: Count | None = None
    """Servers that are ONLINE."""
    updated_replicas: Count | None = None
    """Pods of the newest template."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods, for the scale subresource."""
    blocks: Annotated[str, Field(max_length=20)] | None = None
    """The range of blocks, such as 0:10."""
    ready: Annotated[str, Field(max_length=20)] | None = None
    """Ready and wanted servers, such as 2/2."""
    sessions: Count | None = None
    """Open sessions of all servers."""
    nodes: Annotated[str, Field(max_length=4096)] | None = None
    """Nodes of the pods."""
    reason: Annotated[str, Field(max_length=1024)] | None = None
    """Reason of the condition that is worst."""
    kv: KeyValueCache | None = None
    """KV caches of all servers together, in tokens x batch rows."""
    conditions: Annotated[list[Condition], by_key("type", 16)] = Field(default=[])
    """What is true, false or not known."""
    servers: Annotated[list[ServerStatus], by_key("pod", 2048)] = Field(default=[])
    """The servers one by one."""
