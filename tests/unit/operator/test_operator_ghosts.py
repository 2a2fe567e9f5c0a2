"""Objects that vanished while a watch did not look."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from operator_objects import MODEL_KEY

from blockswarm_operator import cluster as cluster_module
from blockswarm_operator import ghosts, names
from blockswarm_operator.cluster import ApiError
from blockswarm_operator.kinds import CHILDREN
from blockswarm_operator.view import View

LANE = ("default", MODEL_KEY)


@dataclass
class One:
    uid: str


class Api:
    """What the API server has: kind → uids. Notes what it is asked."""

    def __init__(self, view):
        self.view = view
        self.objects = {kind: view.uids(kind) for kind in ("BlockServer", "Pod", "Node", *CHILDREN)}
        self.asked = []
        self.away = None

    async def list_uids(self, kind, namespace, selector=""):
        if self.away:
            raise self.away
        self.asked.append((kind, namespace, selector))
        return self.objects[kind]


@pytest.fixture
def api():
    index: Any = {LANE: [One("a"), One("b")]}
    nodes = {"node-1": [One("n")]}
    return Api(View(resources=index, pods=index, nodes=nodes, children=[index] * len(CHILDREN)))


async def _look(monkeypatch, api, *changes, namespaces=()):
    """Run with one of `changes` made at each look; how long was slept before each, and whether it ended by itself."""
    left, pauses = list(changes), []

    async def sleep(seconds):
        pauses.append(seconds)
        if not left:
            raise asyncio.CancelledError
        left.pop(0)()

    monkeypatch.setattr(ghosts.asyncio, "sleep", sleep)
    try:
        await ghosts.until_ghosts(api.view, api, namespaces)
    except asyncio.CancelledError:
        return pauses, False
    return pauses, True


def _nothing():
    pass


@pytest.mark.parametrize("kind", ["BlockServer", "Pod", "Node", *CHILDREN])
async def test_what_is_missing_at_two_looks_is_a_ghost(monkeypatch, api, kind):
    api.objects[kind] = set()
    pauses, ended = await _look(monkeypatch, api, _nothing, _nothing)
    assert ended
    assert pauses == [120, 20]


async def test_an_event_that_comes_late_is_no_ghost(monkeypatch, api):
    def deleted():
        api.objects["Pod"] = {"a"}

    def told():
        api.view.pods = {LANE: [One("a")]}

    assert await _look(monkeypatch, api, deleted, told, _nothing) == ([120, 20, 120, 120], False)


async def test_two_that_are_late_one_after_the_other_are_no_ghosts(monkeypatch, api):
    def first():
        api.objects["Pod"] = {"a"}

    def second():
        api.objects["Pod"] = {"b", "c"}
        api.view.pods = {LANE: [One("a"), One("c")]}

    assert not (await _look(monkeypatch, api, first, second))[1]


@pytest.mark.parametrize("trouble", [ApiError(503, "etcd"), TypeError("a bug")])
async def test_new_objects_and_an_api_server_that_is_away_are_no_ghosts(monkeypatch, api, trouble):
    def made():
        api.objects["BlockServer"] = {"a", "b", "new"}

    def away():
        api.away = trouble

    assert await _look(monkeypatch, api, made, away, away) == ([120] * 4, False)


async def test_it_looks_where_the_watches_look(monkeypatch, api):
    await _look(monkeypatch, api, _nothing, namespaces=["one", "two"])
    assert [asked for asked in api.asked if asked[0] in ("BlockServer", "Pod", "Node")] == [
        ("BlockServer", "one", ""),
        ("BlockServer", "two", ""),
        ("Pod", "one", names.SELECTOR),
        ("Pod", "two", names.SELECTOR),
        ("Node", "", ""),
    ]


async def test_lists_come_in_pages(stub_api, cluster, metrics):
    async def answer(request):
        last = "continue" in request.query
        uid = "second" if last else "first"
        more = {} if last else {"continue": "more"}
        items = None if "replicasets" in request.path else [{"metadata": {"uid": uid}}]
        return web.json_response({"metadata": more, "items": items})

    stub_api.answer = answer
    assert await cluster.list_uids("Pod", "", "a=b") == {"first", "second"}
    assert await cluster.list_uids("ReplicaSet", "default") == set(), "an API server says null"
    accept = cluster_module._METADATA
    assert [(asked.path, asked.query, asked.accept) for asked in stub_api.asked[:2]] == [
        ("/api/v1/pods", {"limit": "500", "labelSelector": "a=b"}, accept),
        ("/api/v1/pods", {"limit": "500", "labelSelector": "a=b", "continue": "more"}, accept),
    ]
    assert stub_api.asked[2].path == "/apis/apps/v1/namespaces/default/replicasets"
    counted = {s.labels["resource"] for m in metrics.api_requests.collect() for s in m.samples}
    assert counted == {"pods", "replicasets"}
