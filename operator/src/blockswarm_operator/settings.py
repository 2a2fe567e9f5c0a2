"""What the operator is told by its environment, read once into a frozen object."""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from blockswarm_wire.errors import InvalidArgument

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_FALSE, _TRUE = ("", "0", "false", "no"), ("1", "true", "yes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to run the operator. The variables carry the prefix BLOCKSWARM_.

    directory: DIRECTORY, gRPC target of the directories, such as "dns:///blockswarm-directory.blockswarm-system.svc:31340".
    server_image, pull_policy: SERVER_IMAGE, SERVER_IMAGE_PULL_POLICY, of block servers that name none.
    namespaces: NAMESPACES, comma-separated; none = the whole cluster.
    lease_namespace, lease_name: LEASE_NAMESPACE, LEASE_NAME, where the replicas agree on the one that works.
    identity: IDENTITY, this replica's name there; the host name by default.
    metrics_listen: METRICS_LISTEN, host:port of /healthz, /readyz and /metrics.
    network_policy: NETWORK_POLICY, whether each BlockServer gets a NetworkPolicy.
    """

    directory: str
    server_image: str
    pull_policy: str = "IfNotPresent"
    namespaces: tuple[str, ...] = ()
    lease_namespace: str = "default"
    lease_name: str = "blockswarm-operator"
    identity: str = ""
    metrics_listen: str = "0.0.0.0:9090"
    network_policy: bool = False

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Settings from environment variables.

        Raises:
            InvalidArgument: names the variable and what it must be.
        """

        def get(name: str, default: str = "") -> str:
            return env.get(f"BLOCKSWARM_{name}", "").strip() or default

        for name in ("DIRECTORY", "SERVER_IMAGE"):
            if not get(name):
                raise InvalidArgument(f"BLOCKSWARM_{name} is not set; the chart sets it")
        policy = get("SERVER_IMAGE_PULL_POLICY", "IfNotPresent")
        if policy not in _PULL_POLICIES:
            raise InvalidArgument(
                f"BLOCKSWARM_SERVER_IMAGE_PULL_POLICY must be one of {', '.join(_PULL_POLICIES)}"
            )
        flag = get("NETWORK_POLICY").lower()
        if flag not in _FALSE + _TRUE:
            raise InvalidArgument("BLOCKSWARM_NETWORK_POLICY must be true or false")
        return cls(
            directory=get("DIRECTORY"),
            server_image=get("SERVER_IMAGE"),
            pull_policy=policy,
            namespaces=tuple(name for name in re.split(r"[,\s]+", get("NAMESPACES")) if name),
            lease_namespace=get("LEASE_NAMESPACE", "default"),
            lease_name=get("LEASE_NAME", "blockswarm-operator"),
            identity=get("IDENTITY", socket.gethostname()),
            metrics_listen=get("METRICS_LISTEN", "0.0.0.0:9090"),
            network_policy=flag in _TRUE,
        )
