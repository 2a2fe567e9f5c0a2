"""Every reference between the chart's objects leads somewhere, and every workload has what belongs to one."""

import pytest
from rendering import NAMESPACE, VARIANTS, of_kind, render

WORKLOADS = ("Deployment", "StatefulSet")


@pytest.fixture(params=VARIANTS)
def things(request):
    return render(VARIANTS[request.param])


def selected(things, selector):
    return [
        w
        for w in of_kind(things, *WORKLOADS)
        if selector.items() <= w["spec"]["template"]["metadata"]["labels"].items()
    ]


def test_services_lead_to_ports_of_a_workload(things):
    for service in of_kind(things, "Service"):
        [workload] = selected(things, service["spec"]["selector"])
        ports = {
            port["name"] for c in workload["spec"]["template"]["spec"]["containers"] for port in c["ports"]
        }
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP"


def test_every_workload_has_a_budget_that_lets_drains_through(things):
    budgets = of_kind(things, "PodDisruptionBudget")
    assert len(budgets) == len(of_kind(things, *WORKLOADS))
    for budget in budgets:
        assert len(selected(things, budget["spec"]["selector"]["matchLabels"])) == 1
        assert budget["spec"]["maxUnavailable"] == 1
        assert "minAvailable" not in budget["spec"]
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_every_workload_is_isolated_both_ways(things):
    policies = of_kind(things, "NetworkPolicy")
    if not policies:
        assert things == render(VARIANTS["no network policies"])
        return
    for workload in of_kind(things, *WORKLOADS):
        labels = workload["spec"]["template"]["metadata"]["labels"].items()
        [policy] = [p for p in policies if p["spec"]["podSelector"]["matchLabels"].items() <= labels]
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        # Every rule names ports or peers: none allows everything.
        for rule in policy["spec"]["ingress"]:
            assert rule["ports"]
        for rule in policy["spec"]["egress"]:
            assert rule.get("ports") or rule.get("to")
        open_ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        [container] = workload["spec"]["template"]["spec"]["containers"]
        assert open_ports == {port["containerPort"] for port in container["ports"]}


def test_service_accounts_exist_or_were_said_to(things):
    made = {account["metadata"]["name"] for account in of_kind(things, "ServiceAccount")}
    for workload in of_kind(things, *WORKLOADS):
        name = workload["spec"]["template"]["spec"]["serviceAccountName"]
        assert name in made | {"mine", "default"}
        assert name != "default" or not made


def test_objects_say_where_they_belong(things):
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    for thing in things:
        meta = thing["metadata"]
        if thing["kind"] in cluster_wide:
            assert "namespace" not in meta
        else:
            assert meta["namespace"] in {NAMESPACE, "models", "more-models"}, (thing["kind"], meta)
        labels = meta["labels"]
        assert labels["app.kubernetes.io/part-of"] == "blockswarm"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        for label in ("name", "instance", "component", "version"):
            assert labels[f"app.kubernetes.io/{label}"], thing["kind"]
