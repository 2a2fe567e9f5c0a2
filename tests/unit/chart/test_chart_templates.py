"""What the chart renders for the values that people set."""

import pytest
import yaml
from rendering import (
    CHART,
    DIGEST,
    NAMESPACE,
    ROOT,
    VARIANTS,
    container,
    environment,
    helm,
    of_kind,
    one,
    output,
    render,
    variant,
)

from blockswarm_wire.limits import DIRECTORY_DHT_PORT, DIRECTORY_PORT, METRICS_PORT


def test_helm_finds_nothing_to_object():
    done = helm("lint", "--strict", "--kube-version", "1.34.0", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_renders_and_no_object_twice(name):
    things = render(VARIANTS[name])
    keys = [(t["kind"], t["metadata"].get("namespace"), t["metadata"]["name"]) for t in things]
    assert len(keys) == len(set(keys))
    assert {"Deployment", "ServiceAccount", "ClusterRole"} <= {t["kind"] for t in things} | {"ServiceAccount"}


def test_an_older_cluster_is_refused():
    done = helm("template", "blockswarm", str(CHART), "--kube-version", "1.30.9")
    assert "kubeVersion" in done.stderr
    vendor = helm("template", "blockswarm", str(CHART), "--kube-version", "1.31.2-eks-a737599")
    assert vendor.returncode == 0, vendor.stderr


# --- names and images -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "values", "prefix"),
    [
        ("blockswarm", {}, "blockswarm"),
        ("my-blockswarm", {}, "my-blockswarm"),
        ("prod", {}, "prod-blockswarm"),
        ("prod", {"nameOverride": "swarm"}, "prod-swarm"),
        ("prod", {"fullnameOverride": "llm"}, "llm"),
        ("a" * 53, {}, "a" * 40),
    ],
)
def test_objects_carry_the_names_that_others_rely_on(release, values, prefix):
    words = ["template", release, str(CHART), "--namespace", "ns", "--kube-version", "1.34.0"]
    done = helm(*words, *(f"--set={key}={value}" for key, value in values.items()))
    things = [thing for thing in yaml.safe_load_all(done.stdout) if thing]
    one(things, "StatefulSet", f"{prefix}-directory")
    env = environment(container(things, "Deployment", f"{prefix}-operator"))
    assert env["BLOCKSWARM_DIRECTORY"] == f"dns:///{prefix}-directory.ns.svc:{DIRECTORY_PORT}"
    for thing in of_kind(things, "Service"):
        assert len(thing["metadata"]["name"]) <= 63


def test_the_default_images_are_the_charts_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    things = render(VARIANTS["defaults"])
    expected = {
        part: f"ghcr.io/blockswarm/{part}:{chart['appVersion']}" for part in ("operator", "server", "client")
    }
    operator = container(things, "Deployment", "blockswarm-operator")
    assert operator["image"] == expected["operator"]
    assert environment(operator)["BLOCKSWARM_SERVER_IMAGE"] == expected["server"]
    assert container(things, "StatefulSet", "blockswarm-directory")["image"] == expected["server"]
    assert container(things, "Pod", "blockswarm-test")["image"] == expected["client"]
    named = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert {item["name"]: item["image"] for item in named} == expected


def test_the_parts_have_the_charts_version():
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for part in ("wire", "services", "client_sdk", "operator"):
        assert f'\nversion = "{version}"\n' in (ROOT / part / "pyproject.toml").read_text(), part
    for part in ("server", "operator", "client"):
        assert f"\nARG VERSION={version}\n" in (ROOT / f"Dockerfile.{part}").read_text(), part


def test_a_digest_wins_over_a_tag():
    values = {"server": {"image": {"digest": DIGEST, "tag": "1.2.3"}}}
    things = render(variant(values))
    assert (
        container(things, "StatefulSet", "blockswarm-directory")["image"]
        == f"ghcr.io/blockswarm/server@{DIGEST}"
    )


def test_a_mirror_replaces_every_registry_and_brings_its_secret():
    text = output(VARIANTS["mirror"])
    assert "ghcr.io" not in text.replace("ghcr.io/blockswarm in", "")
    assert text.count("mirror.test/blockswarm/") == 4
    assert text.count("- name: mirror\n") == 3


# --- parts ------------------------------------------------------------------------------------------------------------


def test_directories_find_each_other_and_keep_their_place():
    things = render(VARIANTS["defaults"])
    spec = one(things, "StatefulSet", "blockswarm-directory")["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"]) == (3, "Parallel")
    service = one(things, "Service", spec["serviceName"])["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    ports = {port["name"]: port["port"] for port in service["ports"]}
    assert ports == {"grpc": DIRECTORY_PORT, "dht": DIRECTORY_DHT_PORT, "metrics": METRICS_PORT}


def test_the_directory_understands_its_command_line():
    from blockswarm_dht.address import split_address
    from blockswarm_services.directory.main import parse_arguments

    program, *words = container(render(VARIANTS["defaults"]), "StatefulSet", "blockswarm-directory")[
        "command"
    ]
    assert program == "blockswarm-directory"
    options = parse_arguments([word.replace("$(POD_IP)", "10.1.2.3") for word in words])
    assert split_address(options.dht_announce, field="--dht-announce") == ("10.1.2.3", DIRECTORY_DHT_PORT)
    assert options.directory == [f"dns:///blockswarm-directory.{NAMESPACE}.svc:{DIRECTORY_PORT}"]
    assert options.listen.endswith(f":{DIRECTORY_PORT}")
    assert options.metrics_listen.endswith(f":{METRICS_PORT}")


@pytest.mark.parametrize(
    ("name", "namespaces"), [("defaults", ()), ("some namespaces", ("models", "more-models"))]
)
def test_the_operator_understands_its_environment(name, namespaces):
    from blockswarm_operator.settings import Settings

    env = environment(container(render(VARIANTS[name]), "Deployment", "blockswarm-operator"))
    assert env.pop("BLOCKSWARM_LEASE_NAMESPACE")["fieldRef"]["fieldPath"] == "metadata.namespace"
    assert env.pop("BLOCKSWARM_IDENTITY")["fieldRef"]["fieldPath"] == "metadata.name"
    settings = Settings.from_env(env)
    assert settings.namespaces == namespaces
    assert settings.metrics_listen == f"0.0.0.0:{METRICS_PORT}"
    assert settings.lease_name == "blockswarm-operator"
    assert settings.network_policy is False


def test_every_variable_that_the_operator_gets_is_one_that_it_reads():
    logs = ROOT / "wire" / "src" / "blockswarm_wire" / "logs.py"
    code = "".join(path.read_text() for path in (*(ROOT / "operator" / "src").rglob("*.py"), logs))
    env = environment(container(render(VARIANTS["defaults"]), "Deployment", "blockswarm-operator"))
    for name in env.keys() - {"HOME"}:
        assert name in code or f'"{name.removeprefix("BLOCKSWARM_")}"' in code, name


def test_an_identity_may_have_a_volume():
    things = render(VARIANTS["persistent"])
    spec = one(things, "StatefulSet", "blockswarm-directory")["spec"]
    [claim] = spec["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["metadata"]["name"] not in {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert (
        "volumeClaimTemplates"
        not in one(render(VARIANTS["defaults"]), "StatefulSet", "blockswarm-directory")["spec"]
    )


def test_a_directory_elsewhere_replaces_that_of_the_release():
    things = render(VARIANTS["directory elsewhere"])
    assert not [t for t in things if t["metadata"]["name"].endswith("-directory")]
    assert environment(container(things, "Deployment", "blockswarm-operator"))["BLOCKSWARM_DIRECTORY"] == (
        "dns:///far.example:4000"
    )
    egress = one(things, "NetworkPolicy", "blockswarm-operator")["spec"]["egress"]
    assert {"port": 4000, "protocol": "TCP"} in [port for rule in egress for port in rule["ports"]]


def test_existing_service_accounts_are_used_and_not_made():
    things = render(VARIANTS["other service accounts"])
    assert not of_kind(things, "ServiceAccount")
    deployment = one(things, "Deployment", "blockswarm-operator")
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
    for binding in of_kind(things, "RoleBinding", "ClusterRoleBinding"):
        assert [subject["name"] for subject in binding["subjects"]] == ["mine"]


# --- the CRD ----------------------------------------------------------------------------------------------------------


def test_the_crd_is_a_template_that_survives_the_release():
    crd = one(render(VARIANTS["defaults"]), "CustomResourceDefinition", "blockservers.blockswarm.io")
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    source = yaml.safe_load((ROOT / "manifests" / "crds" / "blockservers.yaml").read_text())
    assert crd["spec"] == source["spec"]
    assert not (CHART / "crds").exists(), "helm never upgrades what lies there"


def test_the_crd_may_stay_out_or_go_with_the_release():
    assert not of_kind(render(VARIANTS["no CRD"]), "CustomResourceDefinition")
    [crd] = of_kind(render(VARIANTS["CRD goes with the release"]), "CustomResourceDefinition")
    assert "helm.sh/resource-policy" not in crd["metadata"].get("annotations", {})


@pytest.mark.parametrize("name", VARIANTS)
def test_no_block_server_belongs_to_the_release(name):
    assert not of_kind(render(VARIANTS[name]), "BlockServer")
