"""Who the operator is to the API server: its pod's service account, or KUBECONFIG outside a cluster."""

import dataclasses
import os
from collections.abc import Mapping

import kopf


def credentials(env: Mapping[str, str] = os.environ) -> kopf.ConnectionInfo:
    """Server and credentials as they are now; a service account's token changes every hour or so.

    Raises:
        kopf.LoginError: neither is there.
    """
    settings = kopf.OperatorSettings()
    info = kopf.login_with_service_account(settings=settings)
    if info is not None:
        host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
        if host:
            # By address: the API server must be reachable also while the cluster's DNS is not.
            info = dataclasses.replace(
                info, server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
            )
        return info
    info = kopf.login_with_kubeconfig(settings=settings)
    if info is None:
        raise kopf.LoginError("no service account here, and no KUBECONFIG: set it to run outside a cluster")
    return info
