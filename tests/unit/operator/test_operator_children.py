"""ReplicaSet, Service, NetworkPolicy and budget: names, selectors, owners, and the seal of what was applied."""

from operator_objects import SETTINGS, block_server, lane, read

from blockswarm_operator import names
from blockswarm_operator.desired.children import (
    Owner,
    budget,
    children,
    policy,
    replica_set,
    sealed,
    service,
    surplus,
)
from blockswarm_operator.desired.pod import template
from blockswarm_wire.span import Span

OWNER = Owner(name="first", namespace="models", uid="u1", model="m1", group="g1")
OTHER = Owner(name="second", namespace="models", uid="u0", model="m1", group="g1")
TEMPLATE = template("first", read(block_server()).spec, SETTINGS, model="m1", group="g1")


def _made(policy=True):
    return {one["kind"]: one for one in children(OWNER, TEMPLATE, 2, network_policy=policy)}


def test_the_children_of_a_block_server():
    assert _made().keys() == {"ReplicaSet", "Service", "NetworkPolicy"}
    assert _made(policy=False).keys() == {"ReplicaSet", "Service"}
    for one in _made().values():
        meta = one["metadata"]
        assert (meta["name"], meta["namespace"]) == ("first", "models")
        assert meta["labels"] == {
            names.NAME: "blockserver",
            names.MANAGED_BY: names.MANAGER,
            names.PART_OF: "blockswarm",
            names.BLOCK_SERVER: "first",
            names.MODEL: "m1",
            names.SPAN_GROUP: "g1",
        }
        assert meta["ownerReferences"] == [
            {
                "apiVersion": "blockswarm.io/v1alpha1",
                "kind": "BlockServer",
                "name": "first",
                "uid": "u1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


def test_selectors_select_the_pods_by_a_label_that_no_rollout_changes():
    pods = TEMPLATE["metadata"]["labels"]
    selectors = [
        replica_set(OWNER, TEMPLATE, 2)["spec"]["selector"]["matchLabels"],
        service(OWNER)["spec"]["selector"],
        policy(OWNER)["spec"]["podSelector"]["matchLabels"],
    ]
    assert selectors == [{names.BLOCK_SERVER: "first"}] * 3
    assert pods[names.BLOCK_SERVER] == "first"
    assert budget("g1", [OWNER], 1)["spec"]["selector"]["matchLabels"].items() <= pods.items()


def test_the_replica_set_has_the_template_as_it_is():
    spec = replica_set(OWNER, TEMPLATE, 2)["spec"]
    assert (spec["replicas"], spec["template"]) == (2, TEMPLATE)


def test_the_service_is_headless_and_names_pods_that_are_not_ready_too():
    spec = service(OWNER)["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert {port["name"]: port["port"] for port in spec["ports"]} == {
        "grpc": 31330,
        "dht": 31331,
        "metrics": 9090,
    }
    assert all(port["targetPort"] == port["name"] for port in spec["ports"])


def test_the_policy_lets_in_what_servers_serve():
    spec = policy(OWNER)["spec"]
    (rule,) = spec["ingress"]
    assert {port["port"] for port in rule["ports"]} == {31330, 31331, 9090}
    assert spec["policyTypes"] == ["Ingress"]


def test_a_budget_belongs_to_all_block_servers_of_its_span_and_to_none_alone():
    one = budget("g1", [OWNER, OTHER], 1)
    assert one["metadata"]["name"] == "bs-g1"
    assert [owner["uid"] for owner in one["metadata"]["ownerReferences"]] == ["u0", "u1"]
    assert not any("controller" in owner for owner in one["metadata"]["ownerReferences"])
    assert one["spec"]["minAvailable"] == 1
    assert one["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget("g1", [OTHER, OWNER], 1) == one


def test_the_seal_tells_whether_anything_is_to_be_done():
    first = sealed(service(OWNER))
    assert first == sealed(service(OWNER))
    note = first["metadata"]["annotations"][names.APPLIED]
    assert note == names.digest(service(OWNER))
    assert "annotations" not in service(OWNER)["metadata"]
    again = sealed(replica_set(OWNER, TEMPLATE, 3))["metadata"]["annotations"][names.APPLIED]
    assert again != sealed(replica_set(OWNER, TEMPLATE, 2))["metadata"]["annotations"][names.APPLIED]


def test_what_is_not_wanted_any_more():
    owned = [("Service", "first"), ("NetworkPolicy", "first")]
    assert surplus(owned, children(OWNER, TEMPLATE, 1, network_policy=False)) == {("NetworkPolicy", "first")}
    assert surplus(owned, children(OWNER, TEMPLATE, 1, network_policy=True)) == set()


# --- names ------------------------------------------------------------------------------------------------------------


def test_servers_of_one_model_share_a_lane_whatever_their_spans():
    first = lane(block_server("a"))
    assert lane(block_server("b", blocks={"start": 10, "end": 20}, replicas=3, restart="x")) == first
    for other in (
        {"dtype": "bfloat16"},
        {"model": {"name": "x"}},
        {"model": {"source": {"hub": {"revision": "v2"}}}},
    ):
        assert lane(block_server("a", **other)) != first
    elsewhere = block_server("a")
    elsewhere["metadata"]["namespace"] = "other"
    assert lane(elsewhere)[1] != first[1]


def test_servers_of_one_span_share_a_group():
    assert names.span_group("m", Span(0, 10)) == names.span_group("m", Span(0, 10))
    others = {
        names.span_group("m", Span(0, 11)),
        names.span_group("m", Span(1, 10)),
        names.span_group("n", Span(0, 10)),
    }
    assert names.span_group("m", Span(0, 10)) not in others
    assert names.budget_name("0123456789") == "bs-0123456789"


def test_a_digest_does_not_hang_on_the_order_of_keys():
    assert names.digest({"a": 1, "b": [1, 2]}) == names.digest({"b": [1, 2], "a": 1})
    assert names.digest([1, 2]) != names.digest([2, 1])
