"""Bans: at once, growing, per instance, and never the reason for a missing block."""

import pytest

from blockswarm.routing.graph import Candidate
from blockswarm.routing.health import HOLD_OFF_SECONDS, Health, admit


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 15), (2, 30), (3, 60), (4, 120), (5, 240), (6, 300), (40, 300)]
)
def test_a_ban_doubles_up_to_five_minutes(failures: int, seconds: float) -> None:
    health = Health()
    for _ in range(failures):
        health.failed("s", "i", 100.0)
    assert health.banned("s", "i", 100.0)
    assert health.banned("s", "i", 100.0 + seconds - 0.01)
    assert not health.banned("s", "i", 100.0 + seconds)


def test_a_new_instance_starts_clean() -> None:
    health = Health()
    health.failed("s", "old", 0.0)
    health.failed("s", "old", 0.0)
    assert not health.banned("s", "new", 0.0)
    health.failed("s", "new", 0.0)
    assert not health.banned("s", "new", 15.0)


def test_success_forgets_only_its_own_instance() -> None:
    health = Health()
    health.failed("s", "i", 0.0)
    health.succeeded("s", "other")
    assert health.banned("s", "i", 1.0)
    health.succeeded("s", "i")
    assert not health.banned("s", "i", 1.0)


def test_a_failed_instance_is_held_off_for_a_second() -> None:
    health = Health()
    assert not health.held_off("s", "i", 5.0)
    health.failed("s", "i", 5.0)
    assert health.held_off("s", "i", 5.0 + HOLD_OFF_SECONDS - 0.01)
    assert not health.held_off("s", "i", 5.0 + HOLD_OFF_SECONDS)
    assert not health.held_off("s", "new", 5.0)


def test_busy_passes() -> None:
    health = Health()
    health.had_no_room("s", 0.0)
    assert health.busy("s", 4.9)
    assert not health.busy("s", 5.0)
    assert not health.banned("s", "i", 0.0)


def _server(name: str, start: int, end: int) -> Candidate:
    return Candidate(server_id=name, start=start, end=end)


def test_banned_servers_come_back_only_where_nobody_else_is() -> None:
    fit = [_server("a", 0, 4)]
    banned = [_server("b", 0, 4), _server("c", 2, 8)]
    admitted = admit(fit, banned, 0, 8)
    assert [(server.server_id, server.banned) for server in admitted] == [("a", False), ("c", True)]
    assert [server.server_id for server in admit(fit, banned, 0, 4)] == ["a"]
