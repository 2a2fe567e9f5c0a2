"""`blockswarm restart`: let the operator replace the servers of a BlockServer, one at a time."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockswarm_wire.errors import BlockSwarmError, InvalidArgument, Unreachable
from blockswarm_wire.resource import API_VERSION

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_PLURAL = "blockservers"
_TIMEOUT_SECONDS = 10.0
_IN_CLUSTER_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_EXTRA = (
    "`blockswarm restart` needs the Kubernetes client: pip install 'blockswarm[kubernetes]', or do the same with "
    '`kubectl patch bs NAME --type=merge -p \'{"spec":{"restart":"any new text"}}\'`'
)


def restart(
    name: Annotated[str, typer.Argument(help="Name of the BlockServer.")],
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Its namespace. Default: the context's.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Context of the kubeconfig. Default: the current one.")
    ] = None,
) -> None:
    """Restart the servers of a BlockServer in Kubernetes, one at a time and without a gap."""
    client, own_namespace = _connect(context)
    namespace = namespace or own_namespace
    text = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    _patch(client, namespace, name, {"spec": {"restart": text}})
    typer.echo(f"{namespace}/{name} restarts: `kubectl get bs {name} -n {namespace} -w` shows how far it is")


def _connect(context: str | None) -> tuple["ApiClient", str]:
    """A client of the API server, and the namespace that calls are about unless told."""
    try:
        from kubernetes import client
        from kubernetes import config as unannotated
    except ImportError:
        raise InvalidArgument(_EXTRA) from None
    config: Any = unannotated
    settings = client.Configuration()
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    found = any(Path(file).exists() for file in files.split(os.pathsep))
    try:
        if not found and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=settings)
            return client.ApiClient(settings), _IN_CLUSTER_NAMESPACE.read_text().strip()
        config.load_kube_config(config_file=files, context=context, client_configuration=settings)
        contexts, active = config.list_kube_config_contexts(config_file=files)
    except (config.ConfigException, OSError) as error:
        raise InvalidArgument(
            f"no cluster is known: {error}; name a kubeconfig with KUBECONFIG, and one of its contexts with --context"
        ) from None
    chosen = next((one for one in contexts if one["name"] == context), active)
    return client.ApiClient(settings), chosen["context"].get("namespace") or "default"


def _patch(client: "ApiClient", namespace: str, name: str, change: dict[str, Any]) -> None:
    from kubernetes.client import CustomObjectsApi
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    group, _, version = API_VERSION.partition("/")
    try:
        CustomObjectsApi(client).patch_namespaced_custom_object(
            group,
            version,
            namespace,
            _PLURAL,
            name,
            change,
            field_manager="blockswarm-restart",
            _content_type="application/merge-patch+json",
            _request_timeout=_TIMEOUT_SECONDS,
        )
    except ApiException as error:
        raise _told(error, namespace, name) from None
    except HTTPError as error:
        raise Unreachable(f"the API server cannot be reached: {error}") from None


def _told(error: Any, namespace: str, name: str) -> BlockSwarmError:
    """An answer of the API server as the error that says who acts next."""
    if error.status == 404:
        return InvalidArgument(
            f"there is no BlockServer {name} in namespace {namespace}: `kubectl get bs --all-namespaces` lists them"
        )
    if error.status in (401, 403):
        return InvalidArgument(
            f"you may not change BlockServer {name} in namespace {namespace}: ask for the verb patch on "
            f"{_PLURAL}.{API_VERSION.partition('/')[0]} ({error.reason})"
        )
    said = " ".join(str(error.body or error.reason).split())[:500]
    return BlockSwarmError(f"the API server answered {error.status}: {said}")
