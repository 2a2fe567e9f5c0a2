"""Which processes a manifest asks for. Pure: no process is started here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.resource import BlockServer, Spec
from blockswarm_wire.span import Span, uncovered

_MAX_PROCESSES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model as a server's command line names it: absolute folder, or repository with revision."""

    place: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.place if self.revision is None else f"{self.place}@{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """One block server to run."""

    server_id: str
    source: Source
    model: str
    span: Span
    dtype: str
    device: str
    threads: int | None
    cache_tokens: int
    drain_seconds: int

    def arguments(self) -> list[str]:
        """Its command line, without addresses and peers."""
        options = {
            "--model": self.source.place,
            "--revision": self.source.revision,
            "--name": self.model,
            "--blocks": str(self.span),
            "--dtype": self.dtype,
            "--device": self.device,
            "--threads": self.threads,
            "--cache-tokens": self.cache_tokens,
            "--drain-seconds": self.drain_seconds,
            "--server-id": self.server_id,
        }
        return [part for flag, value in options.items() if value is not None for part in (flag, str(value))]


def plan(
    manifest: Sequence[BlockServer], *, base: Path, num_blocks: Callable[[Source], int]
) -> list[ServerPlan]:
    """The servers of a manifest, replicas one by one.

    What only a cluster can do is refused where the model depends on it (a volume, a Secret), and otherwise not read:
    spec.pod, spec.compute.gpu, spec.cache.volume, spec.update, spec.restart.

    Args:
        manifest: documents; their names are unique already.
        base: folder that relative model paths start from: the manifest's own.
        num_blocks: how many blocks a model has; asked once a model.

    Raises:
        InvalidArgument: a block that no server covers, a span beyond the model's end, too many processes, or a model
            that only a cluster can reach.
    """
    for document in manifest:
        _check_source(document)
    servers = [server for document in manifest for server in _replicas(document, base)]
    if len(servers) > _MAX_PROCESSES:
        raise InvalidArgument(
            f"the manifest asks for {len(servers)} servers, more than {_MAX_PROCESSES} on one machine: "
            "lower spec.replicas"
        )
    groups: dict[tuple[str, Source, str], list[BlockServer]] = {}
    for document in manifest:
        key = (document.spec.model.name, source(document.spec, base), document.spec.dtype)
        groups.setdefault(key, []).append(document)
    for (model, where, dtype), documents in groups.items():
        _check_coverage(f"model {model!r} ({dtype}, {where})", documents, num_blocks(where))
    return servers


def source(spec: Spec, base: Path) -> Source:
    """Where a spec's model comes from."""
    wanted = spec.model.source
    if wanted.hub is not None:
        return Source(place=wanted.hub.repo, revision=wanted.hub.revision)
    return Source(place=str((base / Path(str(wanted.path)).expanduser()).resolve()))


def _replicas(document: BlockServer, base: Path) -> list[ServerPlan]:
    spec, metadata = document.spec, document.metadata
    prefix = metadata.name if metadata.namespace == "default" else f"{metadata.namespace}.{metadata.name}"
    return [
        ServerPlan(
            server_id=f"{prefix[-58:].lstrip('-.')}-{number}",
            source=source(spec, base),
            model=spec.model.name,
            span=spec.blocks.span,
            dtype=spec.dtype,
            device=spec.compute.device,
            threads=spec.compute.threads,
            cache_tokens=spec.cache.tokens,
            drain_seconds=spec.drain_seconds,
        )
        for number in range(spec.replicas)
    ]


def _check_source(document: BlockServer) -> None:
    source, name = document.spec.model.source, document.metadata.name
    if source.volume is not None:
        raise InvalidArgument(
            f"{name}: spec.model.source.volume is a volume of Kubernetes, which this machine cannot mount: "
            "name the model's folder with source.path, or its repository with source.hub"
        )
    if source.hub is not None and source.hub.token_secret is not None:
        raise InvalidArgument(
            f"{name}: spec.model.source.hub.tokenSecret is a Secret of Kubernetes, which this machine does not have: "
            "remove it and set HF_TOKEN in the environment"
        )


def _check_coverage(model: str, documents: Sequence[BlockServer], num_blocks: int) -> None:
    for document in documents:
        span = document.spec.blocks.span
        if span.end > num_blocks:
            raise InvalidArgument(
                f"{document.metadata.name}: spec.blocks {span} ends beyond {model}, which has {num_blocks} "
                f"blocks: set blocks.end to {num_blocks} or less"
            )
    spans = [document.spec.blocks.span for document in documents if document.spec.replicas]
    missing = uncovered(spans, num_blocks)
    if missing:
        ranges = ", ".join(str(span) for span in _ranges(missing))
        raise InvalidArgument(
            f"no BlockServer covers blocks {ranges} of {model}: add one with spec.blocks of that range and "
            f"spec.replicas of 1 or more, or widen another (the model has blocks 0:{num_blocks})"
        )


def _ranges(blocks: Sequence[int]) -> list[Span]:
    """Sorted block numbers as spans."""
    spans: list[Span] = []
    for block in blocks:
        if spans and spans[-1].end == block:
            spans[-1] = Span(spans[-1].start, block + 1)
        else:
            spans.append(Span(block, block + 1))
    return spans
