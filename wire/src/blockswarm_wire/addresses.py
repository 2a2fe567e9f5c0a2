"""The addresses behind a gRPC target: for what must reach every replica of a service rather than any one."""

import asyncio
import socket

from blockswarm_wire.errors import Unreachable


async def addresses_of(target: str, *, seconds: float) -> list[str]:
    """Each "host:port" that `target` stands for, sorted; the IPv4 ones if there are any, else the IPv6 ones.

    Args:
        target: "host:port", "[ipv6]:port" or "dns:///name:port".
        seconds: how long the name service may take.

    Raises:
        Unreachable: the name is not known, or the name service does not answer in time.
    """
    name, _, number = target.removeprefix("dns:///").rpartition(":")
    try:
        if not 0 < int(number) <= 65535:
            raise ValueError("the port is not 1…65535")
        async with asyncio.timeout(seconds):
            found = await asyncio.get_running_loop().getaddrinfo(
                name.strip("[]"), int(number), type=socket.SOCK_STREAM
            )
    except TimeoutError:
        raise Unreachable(f"{target}: the name service did not answer within {seconds:g} s") from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"{target}: {error}") from None
    heads: list[tuple[int, str, int]] = [(family, str(at[0]), int(at[1])) for family, _, _, _, at in found]
    addresses = {f"{host}:{port}" for family, host, port in heads if family == socket.AF_INET}
    addresses = addresses or {f"[{host}]:{port}" for family, host, port in heads if family == socket.AF_INET6}
    if not addresses:
        raise Unreachable(f"{target}: the name has no IP address")
    return sorted(addresses)
