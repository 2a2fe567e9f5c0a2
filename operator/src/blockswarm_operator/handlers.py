"""The only file with kopf's decorators: indexes fill the view, events poke lanes. Nothing else happens here.

No timers, daemons or change handlers: they would put finalizers and annotations on resources that people own.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import kopf

from blockswarm_operator import names, observed
from blockswarm_operator.kinds import CHILDREN, KINDS
from blockswarm_operator.lanes import Lanes
from blockswarm_operator.login import credentials
from blockswarm_operator.settings import Settings
from blockswarm_operator.view import Key, Resource, View
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.resource import parse_block_server

_OURS = {names.MANAGED_BY: names.MANAGER}

# An object → its key in the index, and what we keep of it.
_Reader = Callable[[Mapping[str, Any]], tuple[Any, Any]]


@dataclass(slots=True)
class Memo:
    """What handlers share: kopf copies its memo for each object, this one stays one."""

    view: View
    lanes: Lanes[Key]
    last: dict[str, Any] = field(default_factory=dict)

    def __copy__(self) -> "Memo":
        return self

    def news(self, uid: str, what: Any, event: Mapping[str, Any]) -> bool:
        """Whether what we read of an object changed with this event."""
        if event.get("type") == "DELETED":
            return self.last.pop(uid, None) is not None
        if self.last.get(uid) == what:
            return False
        self.last[uid] = what
        return True


def kopf_settings(ours: Settings) -> kopf.OperatorSettings:
    """kopf's settings: no posting, no peering, no scanning; only objects of ours are watched."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.request_timeout = 10
    settings.watching.server_timeout = 600
    settings.watching.chunk_size = 500
    for group, version, plural in (KINDS[kind] for kind in ("Pod", *CHILDREN)):
        key = (group, version, plural) if group else (version, plural)
        settings.watching.label_selectors[key] = names.SELECTOR
    return settings


def resource(body: Mapping[str, Any]) -> tuple[Key, Resource]:
    """A BlockServer and its lane. One that cannot be read has a lane of its own."""
    meta = body["metadata"]
    spec, fault = None, ""
    try:
        spec = parse_block_server(_plain(body)).spec.as_kubernetes()
        model = names.model_id(meta["namespace"], spec)
    except InvalidArgument as error:
        fault, model = str(error), f"unreadable-{meta['uid']}"
    found = Resource(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=int(meta.get("generation") or 0),
        deleting=bool(meta.get("deletionTimestamp")),
        spec=spec,
        fault=fault,
        status=_plain(body.get("status") or {}),
    )
    return (meta["namespace"], model), found


def register(registry: kopf.OperatorRegistry) -> None:
    """Register all handlers."""

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return credentials()

    def watch(kind: str, read: _Reader, **only: Any) -> None:
        reading = _Once(read)

        @kopf.index(*KINDS[kind], id=kind, registry=registry, **only)
        async def fill(body: Any, **_: Any) -> Any:
            key, value = reading(body)
            return {key: value}

        @kopf.on.event(*KINDS[kind], id=f"{kind}-event", registry=registry, **only)
        async def seen(event: Any, body: Any, memo: Any, **indices: Any) -> None:
            _fill_view(memo.view, indices)
            key, value = reading(body)
            _react(memo, key, value, event)
            if event.get("type") == "DELETED":
                reading.forget(body)

    watch("BlockServer", resource)
    watch("Pod", _pod, labels=_OURS)
    watch("Node", _node)
    for kind in CHILDREN:
        watch(kind, _child_reader(kind), labels=_OURS)


class _Once:
    """Reads an object once for all handlers of one event: reading a BlockServer checks its whole spec."""

    def __init__(self, read: _Reader) -> None:
        self._read = read
        self._last: dict[str, tuple[str, tuple[Any, Any]]] = {}

    def __call__(self, body: Mapping[str, Any]) -> tuple[Any, Any]:
        meta = body["metadata"]
        uid, version = str(meta["uid"]), str(meta.get("resourceVersion"))
        last = self._last.get(uid)
        if last is None or last[0] != version:
            last = self._last[uid] = (version, self._read(body))
        return last[1]

    def forget(self, body: Mapping[str, Any]) -> None:
        """The object is gone."""
        self._last.pop(str(body["metadata"]["uid"]), None)


def _react(memo: Memo, key: Any, value: Any, event: Mapping[str, Any]) -> None:
    if isinstance(value, observed.Node):
        if memo.news(f"node/{value.name}", value, event):
            for lane in memo.view.keys_on(value.name):
                memo.lanes.poke(lane)
        return
    # Of a BlockServer its status is ours: writing it is no news.
    what = (value.generation, value.deleting, value.fault) if isinstance(value, Resource) else value
    if memo.news(value.uid, what, event) and key[1]:
        memo.lanes.poke(key)


def _fill_view(view: View, indices: Mapping[str, Any]) -> None:
    view.resources, view.pods, view.nodes = indices["BlockServer"], indices["Pod"], indices["Node"]
    view.children = [indices[kind] for kind in CHILDREN]


def _pod(body: Mapping[str, Any]) -> tuple[Any, Any]:
    found = observed.pod(body)
    return (found.namespace, found.model), found


def _node(body: Mapping[str, Any]) -> tuple[Any, Any]:
    found = observed.node(body)
    return found.name, found


def _child_reader(kind: str) -> _Reader:
    def read(body: Mapping[str, Any]) -> tuple[Any, Any]:
        budget = kind == "PodDisruptionBudget"
        found = observed.budget(body) if budget else observed.child(body, kind)
        return (found.namespace, found.model), found

    return read


def _plain(value: Any) -> Any:
    """kopf's read-only views as dicts and lists. Equal words are one object: each body comes with its own copies."""
    if isinstance(value, Mapping):
        return {sys.intern(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return sys.intern(value) if isinstance(value, str) else value
