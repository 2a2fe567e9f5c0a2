"""Who reaches whom, where the network enforces it."""

from rendering import VARIANTS, one, render, variant

from blockswarm_wire.limits import (
    DIRECTORY_DHT_PORT,
    DIRECTORY_PORT,
    METRICS_PORT,
    SERVER_DHT_PORT,
    SERVER_PORT,
)


def rules(policy, way, port):
    """The peers of the rules that name a port."""
    found = [r for r in policy["spec"][way] if port in {p["port"] for p in r.get("ports", [])}]
    return [rule.get("from", rule.get("to")) for rule in found]


def policies(values=None):
    things = render(variant(values) if values else VARIANTS["defaults"])
    return [one(things, "NetworkPolicy", f"blockswarm-{part}") for part in ("operator", "directory")]


def servers(peers):
    return [
        peer
        for peer in peers
        if peer.get("podSelector", {}).get("matchLabels") == {"app.kubernetes.io/name": "blockserver"}
    ]


def test_the_operator_reaches_what_it_works_with_and_no_more():
    operator, _ = policies()
    ports = {port["port"] for rule in operator["spec"]["egress"] for port in rule["ports"]}
    assert ports == {53, 443, 6443, 8443, 16443, DIRECTORY_PORT, SERVER_PORT}
    [to] = rules(operator, "egress", SERVER_PORT)
    assert servers(to)
    assert rules(operator, "ingress", METRICS_PORT) == [None]


def test_servers_of_all_namespaces_reach_the_dht_and_are_reached():
    _, directory = policies()
    [peers] = rules(directory, "ingress", DIRECTORY_DHT_PORT)
    assert [peer["namespaceSelector"] for peer in servers(peers)] == [{}]
    [to] = rules(directory, "egress", SERVER_DHT_PORT)
    assert servers(to)
    others = rules(directory, "egress", DIRECTORY_DHT_PORT)
    assert len(others) == 1


def test_everyone_may_ask_the_directory_unless_clients_are_named():
    _, directory = policies()
    assert rules(directory, "ingress", DIRECTORY_PORT) == [None]
    _, closed = policies(
        {"networkPolicy": {"clientsFrom": [{"namespaceSelector": {"matchLabels": {"llm": "yes"}}}]}}
    )
    [peers] = rules(closed, "ingress", DIRECTORY_PORT)
    components = {
        peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")
        for peer in peers
    }
    assert {"operator", "directory"} <= components, "the operator and the other directories ask too"
    assert servers(peers), "servers find the DHT by the directory"


def test_named_readers_of_metrics_are_the_only_ones():
    named = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    for policy in policies({"networkPolicy": {"metricsFrom": named}}):
        assert rules(policy, "ingress", METRICS_PORT) == [named]


def test_named_members_of_the_dht_are_let_in_and_reached():
    named = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    _, directory = policies({"networkPolicy": {"dhtFrom": named}})
    [peers] = rules(directory, "ingress", DIRECTORY_DHT_PORT)
    assert named[0] in peers
    assert {"to": named} in directory["spec"]["egress"]
