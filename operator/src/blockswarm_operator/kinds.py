"""Where the kinds that the operator touches lie in the Kubernetes API: kind → (group, version, plural)."""

KINDS = {
    "BlockServer": ("blockswarm.io", "v1alpha1", "blockservers"),
    "Pod": ("", "v1", "pods"),
    "Node": ("", "v1", "nodes"),
    "ReplicaSet": ("apps", "v1", "replicasets"),
    "Service": ("", "v1", "services"),
    "NetworkPolicy": ("networking.k8s.io", "v1", "networkpolicies"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "Event": ("events.k8s.io", "v1", "events"),
    "Lease": ("coordination.k8s.io", "v1", "leases"),
}
# Kinds that the operator makes for BlockServers.
CHILDREN = ("ReplicaSet", "Service", "NetworkPolicy", "PodDisruptionBudget")


def api_version(kind: str) -> str:
    """As a manifest says it, such as apps/v1 or v1."""
    group, version, _ = KINDS[kind]
    return f"{group}/{version}" if group else version
