"""Rights: exactly those of the golden file, and what must never be among them."""

from pathlib import Path

import pytest
import yaml
from rendering import NAMESPACE, VARIANTS, of_kind, one, pods, render, variant

GOLDEN = Path(__file__).parent / "golden" / "rbac.yaml"
ROLES = ("Role", "ClusterRole")


def rights(name):
    """Everything about rights that a variant renders, without labels."""
    found = []
    for thing in of_kind(render(VARIANTS[name]), *ROLES, "RoleBinding", "ClusterRoleBinding"):
        meta = thing["metadata"]
        entry = {"kind": thing["kind"], "name": meta["name"]}
        if "namespace" in meta:
            entry["namespace"] = meta["namespace"]
        aggregated = [label for label in meta["labels"] if label.startswith("rbac.authorization.k8s.io/")]
        if aggregated:
            entry["aggregated"] = sorted(label.rpartition("-")[2] for label in aggregated)
        if "rules" in thing:
            entry["rules"] = thing["rules"]
        else:
            entry["role"] = f"{thing['roleRef']['kind']}/{thing['roleRef']['name']}"
            entry["subjects"] = [f"{s['kind']}/{s['namespace']}/{s['name']}" for s in thing["subjects"]]
        found.append(entry)
    return sorted(found, key=lambda e: (e["kind"], e["name"], e.get("namespace", "")))


@pytest.mark.parametrize("name", ["defaults", "some namespaces"])
def test_rights_are_those_of_the_golden_file(name):
    golden = yaml.safe_load(GOLDEN.read_text())
    found = rights(name)
    assert found == golden[name], (
        "rights changed; if that is meant, write them into golden/rbac.yaml:\n"
        + yaml.safe_dump({name: found}, sort_keys=False)
    )


def rules(name):
    for thing in of_kind(render(VARIANTS[name]), *ROLES):
        for rule in thing["rules"]:
            yield thing, rule


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_dangerous_is_granted(name):
    for role, rule in rules(name):
        where = f"{role['kind']}/{role['metadata']['name']}: {rule}"
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert "*" not in words, where
        assert not words & {"secrets", "pods/exec", "pods/attach", "pods/portforward", "serviceaccounts"}, (
            where
        )
        assert not words & {"escalate", "bind", "impersonate", "approve"}, where
        assert not words & {
            "roles",
            "clusterroles",
            "rolebindings",
            "persistentvolumeclaims",
            "namespaces",
        }, where
        if "pods" in rule["resources"]:
            assert not {"create", "delete"} & set(rule["verbs"]), where


def test_with_a_list_of_namespaces_only_reading_nodes_reaches_further():
    things = render(VARIANTS["some namespaces"])
    [cluster] = [
        role for role in of_kind(things, "ClusterRole") if role["metadata"]["name"] == "blockswarm-operator"
    ]
    assert cluster["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}]
    roles = {role["metadata"]["namespace"]: role for role in of_kind(things, "Role")}
    assert roles.keys() == {"models", "more-models", NAMESPACE}
    everywhere = one(render(VARIANTS["defaults"]), "ClusterRole", "blockswarm-operator")
    assert roles["models"]["rules"] == roles["more-models"]["rules"] == everywhere["rules"][1:]


def test_the_operator_alone_has_rights_and_a_token():
    things = render(VARIANTS["test with a model"])
    bound = {
        subject["name"]
        for binding in of_kind(things, "RoleBinding", "ClusterRoleBinding")
        for subject in binding["subjects"]
    }
    assert bound == {"blockswarm-operator"}
    for where, pod in pods(things):
        token = pod["spec"].get("automountServiceAccountToken")
        assert token is (where == "Deployment/blockswarm-operator"), where
    assert all(
        account["automountServiceAccountToken"] is False for account in of_kind(things, "ServiceAccount")
    )


def test_rights_may_be_left_to_others():
    things = render(variant({"rbac": {"create": False}}))
    assert not of_kind(things, *ROLES, "RoleBinding", "ClusterRoleBinding")
    mine = render(variant({"rbac": {"aggregate": False}}))
    assert [role["metadata"]["name"] for role in of_kind(mine, "ClusterRole")] == ["blockswarm-operator"]


def test_the_operator_may_write_the_kinds_that_it_makes():
    from blockswarm_operator.kinds import KINDS

    granted = {
        (group, resource)
        for rule in one(render(VARIANTS["defaults"]), "ClusterRole", "blockswarm-operator")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    for kind, (group, _, plural) in KINDS.items():
        if kind != "Lease":
            assert (group, plural) in granted, kind
