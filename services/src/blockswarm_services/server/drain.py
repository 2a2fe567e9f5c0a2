"""Leaving in order: tell every client, let them move, then close what is left with a reason."""

import asyncio
import logging

from blockswarm_services.server.rpc import Host
from blockswarm_wire.errors import Draining, Gone
from blockswarm_wire.v1 import block_server_pb2 as pb

logger = logging.getLogger(__name__)
_CLOSE_SECONDS = 5.0
_NOTICE_SECONDS = 1.0


async def drain(host: Host, seconds: float) -> None:
    """Take no new legs, notify the open ones, and wait at most `seconds` until they have left."""
    host.draining = True
    notice = pb.Notice(state=pb.DRAINING_STATE, deadline_seconds=seconds)
    for leg in host.legs.legs:
        if leg.cache is None:
            leg.end(Draining("this server is leaving; it had no room yet for this leg"))
    # Not awaited to the end: a client that does not read must not hold up the others.
    notices = [asyncio.create_task(stream.notify(notice)) for stream in list(host.streams.values())]
    if notices:
        await asyncio.wait(notices, timeout=_NOTICE_SECONDS)
    logger.info("draining", extra={"sessions": host.legs.sessions, "seconds": seconds})
    emptied = await host.legs.emptied(seconds)
    for notice_ in notices:
        if notice_.done() and not notice_.cancelled() and (error := notice_.exception()) is not None:
            logger.info("a client was gone before its notice", extra={"cause": type(error).__name__})
    if emptied:
        return
    left = host.legs.legs
    logger.warning("drain deadline passed", extra={"legs": len(left)})
    for leg in left:
        leg.end(Gone(f"the server stops; this leg did not move within {seconds:.0f} s"))
    await host.legs.emptied(_CLOSE_SECONDS)
