"""The only file with kopf's decorators: indexes fill the view, events poke lanes. Nothing else happens here.

No timers, daemons or change handlers: they would put finalizers and annotations on resources that people own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import kopf

from blockswarm_operator import names, observed
from blockswarm_operator.lanes import Lanes
from blockswarm_operator.login import credentials
from blockswarm_operator.settings import Settings
from blockswarm_operator.view import Key, Resource, View
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.resource import parse_block_server

_OURS = {names.MANAGED_BY: names.MANAGER}
_OWNED = (
    ("apps", "v1", "replicasets", "ReplicaSet"),
    ("", "v1", "services", "Service"),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
)


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
    for group, version, plural in (("", "v1", "pods"), *(row[:3] for row in _OWNED)):
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

    def watch(
        place: tuple[str, str, str],
        index_id: str,
        read: Callable[[Mapping[str, Any]], tuple[Any, Any]],
        **only: Any,
    ) -> None:
        @kopf.index(*place, id=index_id, registry=registry, **only)
        async def fill(body: Any, **_: Any) -> Any:
            key, value = read(body)
            return {key: value}

        @kopf.on.event(*place, id=f"{index_id}-event", registry=registry, **only)
        async def seen(event: Any, body: Any, memo: Any, **indices: Any) -> None:
            _fill_view(memo.view, indices)
            key, value = read(body)
            _react(memo, key, value, event)

    watch(("blockswarm.io", "v1alpha1", "blockservers"), "resources", resource)
    watch(("", "v1", "pods"), "pods", _pod, labels=_OURS)
    watch(("", "v1", "nodes"), "nodes", _node)
    for group, version, plural, kind in _OWNED:
        watch((group, version, plural), f"{plural}_of", _reader(kind), labels=_OURS)


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
    view.resources, view.pods, view.nodes = indices["resources"], indices["pods"], indices["nodes"]
    view.children = [indices[f"{plural}_of"] for _, _, plural, _ in _OWNED]


def _pod(body: Mapping[str, Any]) -> tuple[Any, Any]:
    found = observed.pod(body)
    return (found.namespace, found.model), found


def _node(body: Mapping[str, Any]) -> tuple[Any, Any]:
    found = observed.node(body)
    return found.name, found


def _reader(kind: str) -> Callable[[Mapping[str, Any]], tuple[Any, Any]]:
    def read(body: Mapping[str, Any]) -> tuple[Any, Any]:
        budget = kind == "PodDisruptionBudget"
        found = observed.budget(body) if budget else observed.child(body, kind)
        return (found.namespace, found.model), found

    return read


def _plain(value: Any) -> Any:
    """kopf's read-only views as dicts and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
