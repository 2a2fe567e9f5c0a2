"""Leaving in order: tell every client, let them move, then close what is left with a reason."""

import asyncio
import logging

from blockswarm_services.server.rpc import Host
from blockswarm_wire.errors import Gone
from blockswarm_wire.v1 import block_server_pb2 as pb

logger = logging.getLogger(__name__)
_CLOSE_SECONDS = 5.0


async def drain(host: Host, seconds: float) -> None:
    """Take no new legs, notify the open ones, and wait at most `seconds` until they have left."""
    host.draining = True
    notice = pb.Notice(state=pb.DRAINING_STATE, deadline_seconds=seconds)
    await asyncio.gather(*(stream.notify(notice) for stream in list(host.streams.values())))
    logger.info("draining", extra={"sessions": host.legs.sessions, "seconds": seconds})
    if await host.legs.emptied(seconds):
        return
    left = host.legs.legs
    logger.warning("drain deadline passed", extra={"legs": len(left)})
    for leg in left:
        leg.end(Gone(f"the server stops; this leg did not move within {seconds:.0f} s"))
    await host.legs.emptied(_CLOSE_SECONDS)
