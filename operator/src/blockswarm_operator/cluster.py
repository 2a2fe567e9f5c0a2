"""Every call to the Kubernetes API: server-side apply, status, deletion, eviction, events. Plain dicts in and out."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import kopf

from blockswarm_operator import names
from blockswarm_operator.kinds import KINDS, api_version
from blockswarm_operator.login import credentials
from blockswarm_operator.metrics import Metrics

REQUEST_SECONDS = 10.0
# Service account tokens are renewed in their file long before they end.
_LOGIN_SECONDS = 60.0
Manifest = Mapping[str, Any]

_JSON = "application/json"
# Lists without what lies in the objects.
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PAGE = 500
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server refused or failed. `code`: HTTP status, 0 = it did not answer in time."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.code = code


class Cluster:
    """A connection to the API server. Open it with `Cluster.connect()`."""

    def __init__(self, session: aiohttp.ClientSession, metrics: Metrics) -> None:
        self._session = session
        self._metrics = metrics
        self._login = credentials()
        self._login_at = time.monotonic()

    @classmethod
    async def connect(cls, metrics: Metrics) -> "Cluster":
        """Connect as the pod's service account, or as KUBECONFIG says outside a cluster."""
        connector = aiohttp.TCPConnector(limit=32, ssl=credentials().as_ssl_context())
        return cls(aiohttp.ClientSession(connector=connector), metrics)

    async def close(self) -> None:
        await self._session.close()

    async def apply(self, manifest: Manifest) -> dict[str, Any]:
        """Server-side apply; takes back fields that others changed."""
        return await self._call("PATCH", _path(manifest), manifest, _APPLY, **_OURS)

    async def apply_status(self, namespace: str, name: str, status: Manifest) -> dict[str, Any]:
        """Server-side apply of a BlockServer's status."""
        body = {
            "apiVersion": api_version("BlockServer"),
            "kind": "BlockServer",
            "metadata": {"name": name, "namespace": namespace},
            "status": status,
        }
        return await self._call("PATCH", _path(body) + "/status", body, _APPLY, **_OURS)

    async def annotate_pod(self, namespace: str, name: str, uid: str, notes: Manifest) -> None:
        """Set annotations of a pod, if it is still the same one."""
        body = {"metadata": {"uid": uid, "annotations": notes}}
        await self._call("PATCH", _place("Pod", namespace, name), body, _MERGE, fieldManager=names.MANAGER)

    async def evict(self, namespace: str, name: str, uid: str) -> bool:
        """Ask for the eviction of a pod. False: a budget refuses it for now."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._call("POST", _place("Pod", namespace, name) + "/eviction", body, _JSON)
        except ApiError as error:
            if error.code in (404, 409):
                return True
            if error.code == 429:
                return False
            raise
        return True

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete an object, if it is still the same one."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._call("DELETE", _place(kind, namespace, name), body, _JSON)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def create_event(self, event: Manifest) -> None:
        """Post an event."""
        path = _place("Event", event["metadata"]["namespace"], "")
        await self._call("POST", path, event, _JSON)

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object, None if there is none."""
        try:
            return await self._call("GET", _place(kind, namespace, name), None, _JSON)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def list_uids(self, kind: str, namespace: str, selector: str = "") -> set[str]:
        """Uids of all objects of a kind with these labels; `namespace` "": of all namespaces."""
        found: set[str] = set()
        query = {"limit": str(_PAGE), **({"labelSelector": selector} if selector else {})}
        while True:
            page = await self._call(
                "GET", _place(kind, namespace, ""), None, _JSON, accept=_METADATA, **query
            )
            # An API server says null where it has none.
            found |= {item["metadata"]["uid"] for item in page.get("items") or ()}
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return found

    async def create(self, manifest: Manifest) -> None:
        """Create an object that must not exist."""
        kind, meta = manifest["kind"], manifest["metadata"]
        await self._call("POST", _place(kind, meta["namespace"], ""), manifest, _JSON)

    async def replace(self, manifest: Manifest) -> None:
        """Replace an object; refused (409) if it changed since the resourceVersion in the manifest."""
        await self._call("PUT", _path(manifest), manifest, _JSON)

    async def _call(
        self,
        verb: str,
        path: str,
        body: Manifest | None,
        content: str,
        accept: str = _JSON,
        **query: str,
    ) -> dict[str, Any]:
        code = 0
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                login = self._fresh_login()
                async with self._session.request(
                    verb,
                    f"{login.server.rstrip('/')}/{path}",
                    params=query,
                    data=None if body is None else json.dumps(body),
                    headers={"Accept": accept, "Content-Type": content, **login.as_http_headers()},
                ) as response:
                    code, data = response.status, await response.read()
            if code >= 300:
                raise ApiError(code, _message(data))
            answer = json.loads(data) if data else {}
            if not isinstance(answer, dict):
                raise ValueError("the answer is no object")
            return answer
        except (TimeoutError, OSError, aiohttp.ClientError, kopf.LoginError, ValueError) as error:
            raise ApiError(0, f"{verb} {path}: {type(error).__name__}: {error}") from None
        finally:
            self._metrics.api_requests.labels(verb, _resource(path), str(code)).inc()

    def _fresh_login(self) -> kopf.ConnectionInfo:
        if time.monotonic() - self._login_at > _LOGIN_SECONDS:
            self._login, self._login_at = credentials(), time.monotonic()
        return self._login


_OURS = {"fieldManager": names.MANAGER, "force": "true"}


def _path(manifest: Manifest) -> str:
    meta = manifest["metadata"]
    return _place(manifest["kind"], meta["namespace"], meta["name"])


def _place(kind: str, namespace: str, name: str) -> str:
    group, version, plural = KINDS[kind]
    root = f"apis/{group}/{version}" if group else f"api/{version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    tail = f"/{quote(name, safe='')}" if name else ""
    return f"{root}{place}/{plural}{tail}"


def _resource(path: str) -> str:
    parts = path.split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    plural, *rest = parts[2:] if parts[0] == "namespaces" else parts
    return "/".join([plural, *rest[1:]])


def _message(data: Any) -> str:
    try:
        return str(json.loads(data)["message"])[:500]
    except (ValueError, TypeError, KeyError):
        return str(data)[:200]
