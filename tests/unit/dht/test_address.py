"""Addresses as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockswarm_dht.address import split_address, to_multiaddr
from blockswarm_wire.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "host", "port", "multiaddr"),
    [
        ("127.0.0.1:5", "127.0.0.1", 5, "/ip4/127.0.0.1/tcp/5"),
        (":80", "0.0.0.0", 80, "/ip4/0.0.0.0/tcp/80"),
        ("[::1]:31330", "::1", 31330, "/ip6/::1/tcp/31330"),
        (
            "directory-0.swarm.svc:31341",
            "directory-0.swarm.svc",
            31341,
            "/dns4/directory-0.swarm.svc/tcp/31341",
        ),
    ],
)
def test_good_addresses(text: str, host: str, port: int, multiaddr: str) -> None:
    assert split_address(text, field="--listen") == (host, port)
    assert to_multiaddr(text, field="--listen") == multiaddr
    assert to_multiaddr(multiaddr, field="--listen") == multiaddr


@pytest.mark.parametrize("text", ["", "host", "host:", "host:65536", "host:-1", "::1:5", "a b:5", "host:٣"])
def test_bad_addresses_name_the_flag(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--listen"):
        split_address(text, field="--listen")


@given(st.text(max_size=30))
def test_any_text_gives_an_address_or_a_named_error(text: str) -> None:
    try:
        host, port = split_address(text, field="--listen")
    except InvalidArgument:
        return
    assert host
    assert 0 <= port <= 65535
