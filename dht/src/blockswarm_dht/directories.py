"""Finding DHT peers by asking directories over gRPC, for those who know an address but no peer id."""

import asyncio
import logging
from collections.abc import Sequence

import grpc

from blockswarm_dht.repair import FindPeers
from blockswarm_wire.limits import CHANNEL_OPTIONS
from blockswarm_wire.v1 import directory_pb2 as pb
from blockswarm_wire.v1 import directory_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)

_ASK_SECONDS = 3.0


def find_peers(targets: Sequence[str]) -> FindPeers:
    """A function that asks every directory of `targets` for its DHT addresses and returns all that it learns.

    Args:
        targets: "host:port" or "dns:///name:port"; each is asked on a new connection, so that a name that stands for
            several directories gives another one now and then.
    """

    async def ask(target: str) -> list[str]:
        options = (*CHANNEL_OPTIONS, ("grpc.lb_policy_name", "round_robin"))
        try:
            async with grpc.aio.insecure_channel(target, options=options) as channel:
                answer = await pb_grpc.DirectoryStub(channel).Models(pb.ModelsRequest(), timeout=_ASK_SECONDS)
        except grpc.aio.AioRpcError as error:
            logger.debug("directory did not answer", extra={"target": target, "status": error.code().name})
            return []
        return list(answer.peers)

    async def ask_all() -> list[str]:
        answers = await asyncio.gather(*(ask(target) for target in targets))
        return [peer for answer in answers for peer in answer]

    return ask_all
