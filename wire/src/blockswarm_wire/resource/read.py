"""Read BlockServers: strictly from a file, leniently from an API server."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.resource.block_server import BlockServer
from blockswarm_wire.resource.part import PATTERNS

_MAX_MANIFEST_BYTES = 2**20
_MAX_DOCUMENTS = 1_000


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


def parse_block_server(body: Mapping[str, Any]) -> BlockServer:
    """The BlockServer of an object as an API server gives it.

    Its status and the fields that only a later version knows are not read: a schema that is newer than its reader
    must not stop what runs.

    Raises:
        InvalidArgument: names the field and the remedy. Also: what has a meaning in local mode only.
    """
    parts = ("apiVersion", "kind", "metadata", "spec")
    document = {key: _plain(body[key]) for key in parts if key in body}
    try:
        server = _without_unknown(document)
        server.spec.check_for_cluster()
    except ValidationError as error:
        raise InvalidArgument("; ".join(_problems(error))) from None
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    return server


def _without_unknown(document: dict[str, Any]) -> BlockServer:
    try:
        return BlockServer.model_validate(document)
    except ValidationError as error:
        # The model's own switch for this would also drop the volume sources that it keeps as they are.
        unknown = [one["loc"] for one in error.errors(include_url=False) if one["type"] == "extra_forbidden"]
        if not unknown:
            raise
        document = copy.deepcopy(document)
        for path in unknown:
            place: Any = document
            for part in path[:-1]:
                place = place[part]
            del place[path[-1]]
        return BlockServer.model_validate(document)


def _plain(value: Any) -> Any:
    """Views of mappings as dicts, which the strict model asks for."""
    return dict(value) if isinstance(value, Mapping) and not isinstance(value, dict) else value


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
            message = problem["msg"].removeprefix("Value error, ")
            if problem["type"] == "string_pattern_mismatch":
                message = PATTERNS.get(problem["ctx"]["pattern"], message)
            yield f"{field}: {message} (got {str(problem['input'])[:60]!r})"
