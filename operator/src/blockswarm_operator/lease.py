"""Which replica works: a Lease that one of them holds. The decision is pure, the loop is thin."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from blockswarm_operator.cluster import ApiError, Cluster

logger = logging.getLogger(__name__)

LEASE_SECONDS = 6
_PERIOD = 1.0
# The holder gives up before another one may take over.
_GIVE_UP_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """A state of the Lease and when it was seen first, on this machine's monotonic clock."""

    holder: str
    renewed: str
    at: float


def sighting(lease: Mapping[str, Any], last: Sighting | None, now: float) -> Sighting:
    """What is seen now: old news keep their time. Clocks of other machines are never compared with ours."""
    spec = lease.get("spec") or {}
    holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
    if last is not None and (last.holder, last.renewed) == (holder, renewed):
        return last
    return Sighting(holder, renewed, now)


def may_take(seen: Sighting, identity: str, now: float) -> bool:
    """Whether the Lease is ours, nobody's, or of somebody who has not renewed it for its whole time."""
    return seen.holder in ("", identity) or now - seen.at >= LEASE_SECONDS


class Lease:
    """Holds, renews and gives back one Lease."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, identity: str) -> None:
        self._cluster = cluster
        self._place = (namespace, name)
        self._identity = identity
        self._last: Sighting | None = None

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(_PERIOD)
        logger.info("lease acquired", extra={"identity": self._identity})

    async def hold(self) -> None:
        """Renew until that fails for too long, then return: the caller must stop working at once."""
        renewed = time.monotonic()
        while (left := renewed + _GIVE_UP_SECONDS - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await asyncio.sleep(_PERIOD)
                    began = time.monotonic()
                    held = await self._try()
            except TimeoutError:
                break
            if held:
                renewed = began
            elif self._last is not None and self._last.holder not in ("", self._identity):
                break
        logger.error("lease lost", extra={"identity": self._identity})

    async def release(self) -> None:
        """Give the Lease back, so that another replica need not wait for its end."""
        try:
            async with asyncio.timeout(2):
                lease = await self._cluster.read("Lease", *self._place)
                if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                    await self._cluster.replace(self._renewed(lease, holder=""))
        except (ApiError, TimeoutError) as error:
            logger.warning("lease not released", extra={"error": str(error)})

    async def _try(self) -> bool:
        try:
            async with asyncio.timeout(2):
                lease = await self._cluster.read("Lease", *self._place)
                if lease is None:
                    await self._cluster.create(self._renewed(self._blank()))
                    return True
                now = time.monotonic()
                self._last = sighting(lease, self._last, now)
                if not may_take(self._last, self._identity, now):
                    return False
                await self._cluster.replace(self._renewed(lease))
                self._last = None  # what was seen is not true any more
                return True
        except (ApiError, TimeoutError) as error:
            if not isinstance(error, ApiError) or error.code != 409:
                logger.warning("lease not renewed", extra={"error": str(error)})
            return False

    def _blank(self) -> dict[str, Any]:
        namespace, name = self._place
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {},
        }

    def _renewed(self, lease: Mapping[str, Any], *, holder: str | None = None) -> dict[str, Any]:
        spec, now = dict(lease.get("spec") or {}), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        taking = self._identity if holder is None else holder
        if spec.get("holderIdentity") != taking:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        spec |= {"holderIdentity": taking, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        return {**lease, "spec": spec}
