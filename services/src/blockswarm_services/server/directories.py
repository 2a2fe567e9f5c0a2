"""Show a record to every directory at once: each looks into the DHT now and then only, and clients of all must know."""

import asyncio
import logging
from collections.abc import Sequence

import grpc

from blockswarm_wire.addresses import addresses_of
from blockswarm_wire.errors import Unreachable
from blockswarm_wire.limits import CHANNEL_OPTIONS
from blockswarm_wire.record import ServerRecord
from blockswarm_wire.v1 import directory_pb2 as pb
from blockswarm_wire.v1 import directory_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)
_SHOW_SECONDS = 1.0


class Directories:
    """The directories behind `targets` ("host:port" or "dns:///name:port"), of which some may be away."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = tuple(targets)

    async def show(self, record: ServerRecord) -> None:
        """Returns within two seconds. A directory that is missed finds the record in the DHT at its next look."""
        entry = pb.Entry(server_id=record.server_id, record=record.encode())
        request = pb.PublishRequest(model_key=record.model_key, entries=[entry])
        await asyncio.gather(*(self._show_behind(target, request) for target in self._targets))

    async def _show_behind(self, target: str, request: pb.PublishRequest) -> None:
        try:
            addresses = await addresses_of(target, seconds=_SHOW_SECONDS)
        except Unreachable as error:
            logger.debug("directory not found", extra={"target": target, "error": str(error)})
            return
        await asyncio.gather(*(_publish(address, request) for address in addresses))


async def _publish(address: str, request: pb.PublishRequest) -> None:
    try:
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            await pb_grpc.DirectoryStub(channel).Publish(request, timeout=_SHOW_SECONDS)
    except grpc.aio.AioRpcError as error:
        logger.debug("directory not told", extra={"address": address, "status": error.code().name})
