"""The `BlockServer` custom resource: one typed model, read by local mode and by the operator."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.limits import MAX_BLOCKS
from blockswarm_wire.span import Span

API_VERSION = "blockswarm.io/v1alpha1"
KIND = "BlockServer"
_MAX_MANIFEST_BYTES = 2**20
_MAX_DOCUMENTS = 1_000


class _Part(BaseModel):
    # Strict: YAML already has types, and "2" for a number is a mistake worth telling.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        strict=True,
        use_attribute_docstrings=True,
    )


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must hold printable characters only")
    return value


Label = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)]
DnsName = Annotated[str, Field(min_length=1, max_length=50, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


class HubSource(_Part):
    """A repository of the Hugging Face Hub."""

    repo: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w.-]+(/[\w.-]+)?$")]
    """Repository id, such as `HuggingFaceTB/SmolLM2-135M-Instruct`."""
    revision: Annotated[str, Field(min_length=1, max_length=100)] = "main"
    """Branch, tag or commit. Name a commit where replicas must never differ."""


class ModelSource(_Part):
    """Where the model folder comes from: exactly one of the fields."""

    path: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """A local folder with config.json and safetensors; relative to the manifest's folder."""
    hub: HubSource | None = None
    """A Hub repository."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.hub is None):
            raise ValueError("name exactly one of path, hub")
        return self


class Model(_Part):
    """Which model the server holds a part of."""

    name: Label
    """Label under which clients see the model; identity is its contents."""
    source: ModelSource


class Blocks(_Part):
    """The half-open range of transformer blocks to serve."""

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


class Cache(_Part):
    """KV cache of one server."""

    tokens: Annotated[int, Field(ge=1, le=2**32)] = 16384
    """Capacity in tokens x batch rows over the blocks of the span."""


class Compute(_Part):
    """What a server computes on."""

    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d{1,2})?)$")] = "cpu"
    """torch device."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU threads of one server; absent = torch's choice."""


class Update(_Part):
    """How a change of the template is rolled out."""

    allow_gap: bool = False
    """Whether a block may be without a server for a moment when no spare server fits."""


class Spec(_Part):
    """What is wanted."""

    model: Model
    blocks: Blocks
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Servers of this span."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type in which weights are held and blocks compute."""
    quantization: Literal["none"] = "none"
    cache: Cache = Cache()
    compute: Compute = Compute()
    drain_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """How long a stopping server waits for its sessions to move."""
    update: Update = Update()
    restart: Annotated[str, Field(max_length=100)] = ""
    """Any new text restarts the servers, one at a time."""


class Metadata(_Part):
    """Name and labels; the rest of Kubernetes' metadata is accepted and not read."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    name: DnsName
    namespace: Annotated[str, Field(max_length=63)] = "default"


class BlockServer(_Part):
    """A wish for servers of one span of one model."""

    api_version: Literal["blockswarm.io/v1alpha1"]
    kind: Literal["BlockServer"]
    metadata: Metadata
    spec: Spec


def load_manifest(text: str, *, origin: str) -> list[BlockServer]:
    """The BlockServers of a YAML file with one or more documents.

    Args:
        text: contents of the file.
        origin: its name, for errors.

    Raises:
        InvalidArgument: names the document, the field and what is wrong with it. Also: no document, two of one name.
    """
    if len(text.encode()) > _MAX_MANIFEST_BYTES:
        raise InvalidArgument(f"{origin}: larger than {_MAX_MANIFEST_BYTES} bytes")
    found: dict[tuple[str, str], BlockServer] = {}
    for number, document in enumerate(_documents(text, origin), start=1):
        server = _parse(document, f"{origin}: document {number}")
        key = (server.metadata.namespace, server.metadata.name)
        if key in found:
            raise InvalidArgument(
                f"{origin}: document {number}: metadata.name {server.metadata.name!r} is used by an earlier "
                "document; give each BlockServer a name of its own"
            )
        found[key] = server
    if not found:
        raise InvalidArgument(f"{origin}: holds no BlockServer document")
    return list(found.values())


def _documents(text: str, origin: str) -> Iterator[Any]:
    try:
        for number, document in enumerate(yaml.load_all(text, Loader=_Loader)):
            if number >= _MAX_DOCUMENTS:
                raise InvalidArgument(f"{origin}: more than {_MAX_DOCUMENTS} documents")
            if document is not None:
                yield document
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"{origin}: is not YAML: {' '.join(str(error).split())[:300]}") from None


class _Loader(yaml.SafeLoader):
    """YAML without aliases (which let a small file grow without bound) and without repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not supported", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = getattr(key_node, "value", None)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"repeated key {key!r}", key_node.start_mark
                )
            seen.add(key if isinstance(key, str) else id(key_node))
        return super().construct_mapping(node, deep)


def _parse(document: Any, where: str) -> BlockServer:
    if not isinstance(document, dict):
        raise InvalidArgument(f"{where}: must be a mapping with apiVersion, kind, metadata and spec")
    try:
        return BlockServer.model_validate(document)
    except ValidationError as error:
        raise InvalidArgument(f"{where}: " + "; ".join(_problems(error))) from None


def _problems(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False)[:10]:
        field = ".".join(str(part) for part in problem["loc"]) or "document"
        if problem["type"] == "extra_forbidden":
            yield f"{field}: unknown field; remove it or correct its spelling"
        elif problem["type"] == "missing":
            yield f"{field}: is required"
        else:
            yield f"{field}: {problem['msg'].removeprefix('Value error, ')} (got {str(problem['input'])[:60]!r})"
