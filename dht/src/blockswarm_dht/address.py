"""Addresses as people write them ("host:port") and as libp2p wants them (multiaddrs)."""

import ipaddress
import re

from blockswarm_wire.errors import InvalidArgument

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})")


def split_address(text: str, *, field: str) -> tuple[str, int]:
    """Read "host:port" or "[ipv6]:port"; an empty host means all IPv4 interfaces.

    Raises:
        InvalidArgument: naming `field`, when it is neither or the port is not 0…65535.
    """
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidArgument(f"{field} {text[:80]!r}: write an IPv6 address in brackets, as in [::1]:31330")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidArgument(f"{field} {text[:80]!r} is not host:port, for example 0.0.0.0:31330")
    if host and not _is_ip(host) and not _NAME.fullmatch(host):
        raise InvalidArgument(
            f"{field} {text[:80]!r}: {host[:80]!r} is neither an IP address nor a host name"
        )
    return host or "0.0.0.0", int(port)


def to_multiaddr(text: str, *, field: str) -> str:
    """The TCP multiaddr of "host:port"; text that is a multiaddr already is returned as it is."""
    if text.startswith("/"):
        return text
    host, port = split_address(text, field=field)
    if not _is_ip(host):
        return f"/dns4/{host}/tcp/{port}"
    return f"/ip{ipaddress.ip_address(host).version}/{host}/tcp/{port}"


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
