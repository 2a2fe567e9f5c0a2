"""Calls to the API server: what each asks for, and that each ends in time with a result or an error that says why."""

import asyncio
import socket

import pytest
from operator_api import hangs_up, hangs_up_in_the_body, says, silent, silent_after_the_head, write_kubeconfig

from blockswarm_operator import cluster as module
from blockswarm_operator.cluster import ApiError, Cluster

APPLY, MERGE, JSON = "application/apply-patch+yaml", "application/merge-patch+json", "application/json"
OURS = {"fieldManager": "blockswarm-operator", "force": "true"}
SET = {"kind": "ReplicaSet", "metadata": {"name": "first", "namespace": "models"}, "spec": {"replicas": 2}}
LEASE = {"kind": "Lease", "metadata": {"name": "operator", "namespace": "system"}}
EVENT = {"kind": "Event", "metadata": {"name": "first.1", "namespace": "models"}}

CALLS = {
    "apply": lambda cluster: cluster.apply(SET),
    "apply_status": lambda cluster: cluster.apply_status("models", "first", {"ready": "1/2"}),
    "annotate_pod": lambda cluster: cluster.annotate_pod("models", "pod", "uid-1", {"note": None}),
    "evict": lambda cluster: cluster.evict("models", "pod", "uid-1"),
    "delete": lambda cluster: cluster.delete("Service", "models", "first", "uid-1"),
    "create_event": lambda cluster: cluster.create_event(EVENT),
    "read": lambda cluster: cluster.read("Lease", "system", "operator"),
    "list_uids": lambda cluster: cluster.list_uids("Node", ""),
    "create": lambda cluster: cluster.create(LEASE),
    "replace": lambda cluster: cluster.replace(LEASE),
}
POD, LEASES = "/api/v1/namespaces/models/pods/pod", "/apis/coordination.k8s.io/v1/namespaces/system/leases"


def _counted(metrics):
    """(verb, resource, code) → requests."""
    samples = [one for family in metrics.api_requests.collect() for one in family.samples]
    return {
        tuple(one.labels[label] for label in ("verb", "resource", "code")): one.value
        for one in samples
        if one.name.endswith("_total")
    }


# --- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "verb", "path", "query", "content", "body"),
    [
        ("apply", "PATCH", "/apis/apps/v1/namespaces/models/replicasets/first", OURS, APPLY, SET),
        (
            "apply_status",
            "PATCH",
            "/apis/blockswarm.io/v1alpha1/namespaces/models/blockservers/first/status",
            OURS,
            APPLY,
            {
                "apiVersion": "blockswarm.io/v1alpha1",
                "kind": "BlockServer",
                "metadata": {"name": "first", "namespace": "models"},
                "status": {"ready": "1/2"},
            },
        ),
        (
            "annotate_pod",
            "PATCH",
            POD,
            {"fieldManager": "blockswarm-operator"},
            MERGE,
            {"metadata": {"uid": "uid-1", "annotations": {"note": None}}},
        ),
        (
            "evict",
            "POST",
            f"{POD}/eviction",
            {},
            JSON,
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "pod", "namespace": "models"},
                "deleteOptions": {"preconditions": {"uid": "uid-1"}},
            },
        ),
        (
            "delete",
            "DELETE",
            "/api/v1/namespaces/models/services/first",
            {},
            JSON,
            {"propagationPolicy": "Background", "preconditions": {"uid": "uid-1"}},
        ),
        ("create_event", "POST", "/apis/events.k8s.io/v1/namespaces/models/events", {}, JSON, EVENT),
        ("read", "GET", f"{LEASES}/operator", {}, JSON, None),
        ("create", "POST", LEASES, {}, JSON, LEASE),
        ("replace", "PUT", f"{LEASES}/operator", {}, JSON, LEASE),
    ],
)
async def test_what_a_call_asks_for(stub_api, cluster, name, verb, path, query, content, body):
    await CALLS[name](cluster)
    assert stub_api.asked == [(verb, path, query, content, JSON, "Bearer first", body)]


async def test_a_token_is_read_again_before_it_ends(monkeypatch, stub_api, cluster, kubeconfig):
    write_kubeconfig(kubeconfig, stub_api.port, token="second")
    await CALLS["read"](cluster)
    monkeypatch.setattr(module, "_LOGIN_SECONDS", -1.0)
    await CALLS["read"](cluster)
    assert [asked.token for asked in stub_api.asked] == ["Bearer first", "Bearer second"]


async def test_a_token_that_cannot_be_read_for_a_moment_is_a_call_that_failed(
    monkeypatch, stub_api, cluster, kubeconfig
):
    monkeypatch.setattr(module, "_LOGIN_SECONDS", -1.0)
    kubeconfig.rename(kubeconfig.with_suffix(".away"))
    with pytest.raises(ApiError) as told:
        await CALLS["read"](cluster)
    assert told.value.code == 0
    kubeconfig.with_suffix(".away").rename(kubeconfig)
    await CALLS["read"](cluster)
    assert len(stub_api.asked) == 1


async def test_requests_are_counted_by_what_they_are_about(stub_api, cluster, metrics):
    await CALLS["evict"](cluster)
    await CALLS["apply_status"](cluster)
    await CALLS["list_uids"](cluster)
    stub_api.answer = says(429, {"message": "the budget does not allow it"})
    for _ in range(2):
        await CALLS["evict"](cluster)
    assert _counted(metrics) == {
        ("POST", "pods/eviction", "200"): 1,
        ("POST", "pods/eviction", "429"): 2,
        ("PATCH", "blockservers/status", "200"): 1,
        ("GET", "nodes", "200"): 1,
    }


# --- what is answered -------------------------------------------------------------------------------------------------

REFUSALS = (400, 401, 403, 404, 408, 409, 410, 422, 429, 500, 503, 504)
# Where an answer that is no success is no error either.
DONE = {
    ("evict", 404): True,
    ("evict", 409): True,
    ("evict", 429): False,
    ("delete", 404): None,
    ("delete", 409): None,
    ("read", 404): None,
}


async def _outcome(cluster, name):
    """What a call returns, or the code and the text of its error."""
    try:
        return await CALLS[name](cluster)
    except ApiError as error:
        return error.code, str(error)


@pytest.mark.parametrize("name", CALLS)
async def test_a_refusal_is_an_error_with_its_code_where_it_does_not_say_that_all_is_done(
    stub_api, cluster, name
):
    found = {}
    for code in REFUSALS:
        stub_api.answer = says(code, {"kind": "Status", "message": "it says why"})
        found[code] = await _outcome(cluster, name)
    assert found == {code: DONE.get((name, code), (code, f"{code}: it says why")) for code in REFUSALS}
    assert len(stub_api.asked) == len(REFUSALS), "whoever calls decides whether it is tried again"


@pytest.mark.parametrize("code", [200, 201, 202])
async def test_success(stub_api, cluster, code):
    stub_api.answer = says(code, {"metadata": {"generation": 3}})
    assert await CALLS["evict"](cluster) is True
    assert await CALLS["delete"](cluster) is None
    for name in ("apply", "apply_status", "read"):
        assert await CALLS[name](cluster) == {"metadata": {"generation": 3}}
    stub_api.answer = says(code, text="")
    assert await CALLS["apply"](cluster) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"message": "%s"}' % ("x" * 600), "x" * 500),
        ("<html>no upstream</html>", "<html>no upstream</html>"),
        ("x" * 600, "x" * 190),
        ('{"kind": "Status"}', "Status"),
        ('["message"]', "message"),
        ("null", "null"),
        ("", ""),
    ],
)
async def test_a_refusal_in_any_words_is_told_in_short(stub_api, cluster, text, told):
    stub_api.answer = says(503, text=text)
    code, message = await _outcome(cluster, "apply")
    assert code == 503
    assert told in message
    assert len(message) <= 510


async def test_a_list_that_breaks_off_is_no_list(stub_api, cluster):
    """Else what the lost pages hold would seem to be gone."""

    async def answer(request):
        last = "continue" in request.query
        item = {"metadata": {"uid": "first"}}
        page = says(410, {"message": "expired"}) if last else says(200, _page([item], "more"))
        return await page(request)

    stub_api.answer = answer
    assert await _outcome(cluster, "list_uids") == (410, "410: expired")


def _page(items, more):
    return {"metadata": {"continue": more}, "items": items}


# --- no answer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [silent, silent_after_the_head])
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_gets_no_answer_in_time_ends(monkeypatch, stub_api, cluster, metrics, name, answer):
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.1)
    stub_api.answer = answer
    async with asyncio.timeout(20):
        code, message = await _outcome(cluster, name)
    assert code == 0
    assert "TimeoutError" in message
    assert [code for _, _, code in _counted(metrics)] == ["0"]


@pytest.mark.parametrize("name", CALLS)
async def test_a_connection_that_ends_early_is_no_answer(stub_api, cluster, name):
    for answer in (hangs_up, hangs_up_in_the_body):
        stub_api.answer = answer
        code, message = await _outcome(cluster, name)
        assert code == 0
        assert "TimeoutError" not in message


@pytest.mark.parametrize("name", CALLS)
async def test_a_success_that_is_no_object_is_no_answer(stub_api, cluster, name):
    for text in ("<html>sign in</html>", '{"metadata": ', "null", "5", '["metadata"]', "[]"):
        stub_api.answer = says(200, text=text)
        code, message = await _outcome(cluster, name)
        assert code == 0, text
        assert "TimeoutError" not in message


@pytest.mark.parametrize("name", CALLS)
async def test_where_nobody_listens_a_call_ends_at_once(kubeconfig, metrics, name):
    with socket.socket() as taken:
        # Bound, so that nobody else takes the port, but it does not listen.
        taken.bind(("127.0.0.1", 0))
        write_kubeconfig(kubeconfig, taken.getsockname()[1])
        cluster = await Cluster.connect(metrics)
        try:
            code, message = await _outcome(cluster, name)
        finally:
            await cluster.close()
    assert code == 0
    assert "Cannot connect" in message
    assert [code for _, _, code in _counted(metrics)] == ["0"]


async def test_the_shorter_time_of_the_caller_counts(stub_api, cluster):
    """A holder of the lease must know in time that it could not renew it."""
    stub_api.answer = silent
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await CALLS["read"](cluster)


async def test_after_a_call_without_an_answer_the_next_one_gets_its_own(monkeypatch, stub_api, cluster):
    stub_api.answer = silent_after_the_head
    with monkeypatch.context() as patch:
        patch.setattr(module, "REQUEST_SECONDS", 0.1)
        assert (await _outcome(cluster, "read"))[0] == 0
    stub_api.answer = says(200, {"metadata": {"name": "operator"}})
    assert await CALLS["read"](cluster) == {"metadata": {"name": "operator"}}
