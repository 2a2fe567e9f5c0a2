"""What a BlockServer asks for."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from blockswarm_wire.limits import MAX_BLOCKS
from blockswarm_wire.resource.model import PATH_MESSAGE, Model
from blockswarm_wire.resource.part import (
    Part,
    QualifiedName,
    checked,
    rule,
    text,
)
from blockswarm_wire.resource.pod import PodSurface
from blockswarm_wire.resource.volumes import CacheVolume
from blockswarm_wire.span import Span

_IMMUTABLE = (
    "immutable: running sessions are bound to it; "
    "create a second BlockServer and delete this one when it is Ready"
)
_CUDA_MESSAGE = (
    "compute.gpu: device cuda needs GPUs; name them, such as gpu: {resource: nvidia.com/gpu, count: 1}, "
    "or set device: cpu"
)
_CPU_MESSAGE = "compute.gpu: a server on device cpu must not hold GPUs; remove gpu or set device: cuda"
_CPU_RESOURCES_MESSAGE = (
    "pod.resources: a server on device cpu must not hold GPUs; remove the resource, or set compute.device: cuda "
    "and compute.gpu"
)
_TWICE_MESSAGE = "pod.resources: the resource of compute.gpu is set there alone; remove it here"
_GPU_REMEDY = (
    "resource: is required; name the resource that the nodes offer, such as nvidia.com/gpu or amd.com/gpu"
)


def names_gpu(resource: str) -> bool:
    """Whether a resource of nodes is a GPU or a part of one."""
    return resource.startswith(("nvidia.com/", "amd.com/")) or "gpu" in resource


def _fixed(field: str) -> dict[str, str]:
    # Asked of the parent and with has(): a rule on the field itself is not asked when the field goes or comes.
    expression = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    return rule(expression, f"{field}: {_IMMUTABLE}", f".{field}", "FieldValueForbidden")


class Blocks(Part):
    """The half-open range of transformer blocks to serve."""

    model_config = checked(
        rule(
            "self.end > self.start",
            "end: must be greater than start; end is the block after the last one",
            ".end",
        )
    )

    start: Annotated[int, Field(ge=0, lt=MAX_BLOCKS)]
    """First block, counted from 0."""
    end: Annotated[int, Field(gt=0, le=MAX_BLOCKS)]
    """The block after the last one."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end <= self.start:
            raise ValueError(f"end ({self.end}) must be greater than start ({self.start})")
        return self

    @property
    def span(self) -> Span:
        """The same as a Span."""
        return Span(self.start, self.end)


class Cache(Part):
    """KV cache of one server, and where it keeps what it fetched."""

    tokens: Annotated[int, Field(ge=1, le=2**32)] = 16384
    """Capacity in tokens x batch rows over the blocks of the span."""
    volume: CacheVolume | None = None
    """Volume for what is fetched from the Hub; absent = fetched again by each pod. In a cluster only."""


class Gpu(Part):
    """GPUs of one server."""

    model_config = checked(remedies={"resource": _GPU_REMEDY})

    resource: QualifiedName
    """Resource that the nodes offer, such as nvidia.com/gpu, amd.com/gpu or nvidia.com/mig-1g.10gb."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many of them."""


class Compute(Part):
    """What a server computes on."""

    model_config = checked(
        rule("!self.device.startsWith('cuda') || has(self.gpu)", _CUDA_MESSAGE, ".gpu", "FieldValueRequired"),
        rule("self.device != 'cpu' || !has(self.gpu)", _CPU_MESSAGE, ".gpu", "FieldValueForbidden"),
    )

    device: Annotated[
        str,
        text(
            r"^(cpu|cuda(:[0-9]{1,2})?)$",
            "must be cpu or cuda; in local mode also cuda:1, cuda:2 ...",
            most=7,
        ),
    ] = "cpu"
    """Device of torch: cpu or cuda."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU threads of one server; absent = torch's choice."""
    gpu: Gpu | None = None
    """GPUs of one server; in a cluster only, where device cuda needs them."""

    @model_validator(mode="after")
    def _no_gpu_on_cpu(self) -> Self:
        if self.device == "cpu" and self.gpu is not None:
            raise ValueError(_CPU_MESSAGE)
        return self


class Update(Part):
    """How a change of the template is rolled out."""

    allow_gap: bool = False
    """Whether a block may be without a server for a moment when no spare server fits."""


class Spec(Part):
    """What is wanted."""

    model_config = checked(
        *(_fixed(field) for field in ("model", "blocks", "dtype", "quantization")),
        rule(
            "self.compute.device != 'cpu' || !has(self.pod) || !has(self.pod.resources) || "
            "[has(self.pod.resources.requests) ? self.pod.resources.requests : {}, "
            "has(self.pod.resources.limits) ? self.pod.resources.limits : {}].all(named, named.all(key, "
            "!key.startsWith('nvidia.com/') && !key.startsWith('amd.com/') && !key.contains('gpu')))",
            _CPU_RESOURCES_MESSAGE,
            ".pod.resources",
            "FieldValueForbidden",
        ),
        rule(
            "!has(self.compute.gpu) || !has(self.compute.gpu.resource) || !has(self.pod) || "
            "!has(self.pod.resources) || "
            "[has(self.pod.resources.requests) ? self.pod.resources.requests : {}, "
            "has(self.pod.resources.limits) ? self.pod.resources.limits : {}].all(named, "
            "!(self.compute.gpu.resource in named))",
            _TWICE_MESSAGE,
            ".pod.resources",
            "FieldValueForbidden",
        ),
    )

    model: Model
    """Which model the servers hold a part of. Immutable."""
    blocks: Blocks
    """The half-open range of transformer blocks to serve. Immutable."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Servers of this span."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type in which weights are held and blocks compute. Immutable."""
    quantization: Literal["none"] = "none"
    """How weights are stored. Immutable."""
    cache: Cache = Cache()
    """KV cache of one server, and where it keeps what it fetched."""
    compute: Compute = Compute()
    """What a server computes on."""
    drain_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """How long a stopping server waits for its sessions to move."""
    update: Update = Update()
    """How a change of the template is rolled out."""
    restart: Annotated[str, Field(max_length=100)] = ""
    """Any new text restarts the servers, one at a time."""
    pod: PodSurface = PodSurface()
    """What is added to the pods of the servers."""

    @model_validator(mode="after")
    def _gpu_resources(self) -> Self:
        named = {*self.pod.resources.requests, *self.pod.resources.limits}
        if self.compute.device == "cpu" and any(names_gpu(resource) for resource in named):
            raise ValueError(_CPU_RESOURCES_MESSAGE)
        if self.compute.gpu is not None and self.compute.gpu.resource in named:
            raise ValueError(_TWICE_MESSAGE)
        return self

    def check_for_cluster(self) -> None:
        """Refuse what has a meaning in local mode only, as the API server does.

        Raises:
            ValueError: names the field and the remedy.
        """
        if self.model.source.path is not None:
            raise ValueError(f"spec.model.source.{PATH_MESSAGE}")
        if self.compute.device != "cpu" and self.compute.gpu is None:
            raise ValueError(f"spec.{_CUDA_MESSAGE}")
