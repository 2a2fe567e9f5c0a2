"""Every pod of the chart is as locked up as it can be, and so is that of the sample application."""

import pytest
import yaml
from rendering import ROOT, VARIANTS, of_kind, pods, render

RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
WORKLOADS = ("Deployment", "StatefulSet")
SAMPLE = ROOT / "manifests" / "samples" / "application.yaml"


@pytest.fixture(params=[*VARIANTS, SAMPLE.name])
def things(request):
    if request.param == SAMPLE.name:
        return list(yaml.safe_load_all(SAMPLE.read_text()))
    return render(VARIANTS[request.param])


@pytest.fixture(params=VARIANTS)
def chart(request):
    return render(VARIANTS[request.param])


def containers(things):
    for where, pod in pods(things):
        spec = pod["spec"]
        assert "initContainers" not in spec
        for container in spec["containers"]:
            yield f"{where}/{container['name']}", spec, container


# --- pods -------------------------------------------------------------------------------------------------------------


def test_pods_are_restricted(things):
    for where, pod in pods(things):
        spec = pod["spec"]
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True, where
        assert security["runAsUser"] >= 10000, where
        assert security["runAsGroup"] >= 10000, where
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, where
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}, where
        assert {next(iter(volume.keys() - {"name"})) for volume in spec["volumes"]} <= RESTRICTED_VOLUMES, (
            where
        )
        assert spec["enableServiceLinks"] is False, where


def test_containers_are_restricted(things):
    for where, _, container in containers(things):
        security = container["securityContext"]
        assert security == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        }, where
        assert not any("hostPort" in port for port in container.get("ports", [])), where


def test_containers_have_requests_and_limits(things):
    for where, _, container in containers(things):
        for part in ("requests", "limits"):
            assert container["resources"][part].keys() >= {"cpu", "memory", "ephemeral-storage"}, where


def test_what_is_written_has_a_bound(things):
    for where, pod in pods(things):
        for volume in pod["spec"]["volumes"]:
            if "emptyDir" in volume:
                assert "sizeLimit" in volume["emptyDir"], (where, volume)


def test_images_are_pinned_and_pulled_once(things):
    for where, _, container in containers(things):
        assert "@sha256:" in container["image"] or container["image"].rpartition(":")[2] not in (
            "",
            "latest",
        ), where
        assert container["imagePullPolicy"] == "IfNotPresent", where


def test_no_shell_runs(things):
    for where, _, container in containers(things):
        words = container.get("command", [])
        assert not {"sh", "bash", "/bin/sh", "/bin/bash"} & set(words), where


def test_no_secret_is_put_into_the_environment(things):
    for where, _, container in containers(things):
        assert "envFrom" not in container, where
        assert not any("secretKeyRef" in item.get("valueFrom", {}) for item in container["env"]), where
        names = [item["name"] for item in container["env"]]
        assert len(names) == len(set(names)), where


def test_mounts_and_volumes_belong_together(things):
    for where, spec, container in containers(things):
        claims = {"identity"} if "identity" not in {v["name"] for v in spec["volumes"]} else set()
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert mounted - volumes <= claims, where
        assert volumes <= mounted, where
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}, where
        assert {"name": "HOME", "value": "/tmp"} in container["env"], where


# --- workloads --------------------------------------------------------------------------------------------------------


def test_what_runs_for_long_is_probed_at_ports_it_has(chart):
    for workload in of_kind(chart, *WORKLOADS):
        [container] = workload["spec"]["template"]["spec"]["containers"]
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_replicas_avoid_each_other(chart):
    for workload in of_kind(chart, *WORKLOADS):
        spec = workload["spec"]
        anti = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
        [term] = anti["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
        assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == spec["selector"]["matchLabels"]


def test_no_version_is_in_a_pod_or_a_selector(chart):
    for workload in of_kind(chart, *WORKLOADS):
        template, selector = (
            workload["spec"]["template"]["metadata"]["labels"],
            workload["spec"]["selector"]["matchLabels"],
        )
        assert selector.items() <= template.items()
        for labels in (template, selector):
            assert (
                not {"app.kubernetes.io/version", "helm.sh/chart", "app.kubernetes.io/managed-by"}
                & labels.keys()
            )


def test_the_parts_select_only_themselves(chart):
    labels = {where: pod["metadata"]["labels"] for where, pod in pods(chart)}
    for workload in of_kind(chart, *WORKLOADS):
        selector = workload["spec"]["selector"]["matchLabels"].items()
        mine = f"{workload['kind']}/{workload['metadata']['name']}"
        assert [where for where, found in labels.items() if selector <= found.items()] == [mine]
