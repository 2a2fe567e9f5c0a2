"""One gRPC channel an address, shared by every session, ping and pass of a manager."""

import grpc
import grpc.aio

from blockswarm_wire.limits import CHANNEL_OPTIONS


class Channels:
    """Channels by "host:port". Must be used on one event loop."""

    def __init__(self) -> None:
        self._open: dict[str, grpc.aio.Channel] = {}
        self._closed = False

    def get(self, address: str) -> grpc.aio.Channel:
        """The channel to `address`, made at the first call.

        Raises:
            RuntimeError: after `close`.
        """
        if self._closed:
            raise RuntimeError("the sequence manager is closed")
        channel = self._open.get(address)
        if channel is None:
            channel = self._open[address] = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        return channel

    def forget_except(self, addresses: set[str]) -> None:
        """Drop channels to addresses that no server has any more, unless they are connected.

        A connected one may carry the stream of a session whose server is missing from the view for a moment.
        """
        for address in [address for address in self._open if address not in addresses]:
            if self._open[address].get_state() is not grpc.ChannelConnectivity.READY:
                # Dropped, not closed: a session may be waiting on it; its last user's release closes it.
                del self._open[address]

    async def close(self) -> None:
        """Close every channel; streams on them end."""
        self._closed = True
        for channel in self._open.values():
            await channel.close(None)
        self._open.clear()
