"""What clients remember: forgetful and absent sources do not empty the view, and the dead do not live for ever."""

from blockswarm.discovery.memory import GRACE_SECONDS, Memory
from blockswarm.discovery.views import Pair
from blockswarm_wire.record import ServerRecord, ServerView, State, Statement


def _record(name: str, at: float, state: State = State.ONLINE) -> Pair:
    record = ServerRecord(
        server_id=name,
        state=state,
        model="demo",
        num_blocks=8,
        start=0,
        end=8,
        address="10.0.0.1:1",
        instance="i",
        fingerprint="ab" * 32,
        issued_at=at,
    )
    return record, None


def _ids(views: list[ServerView] | None) -> list[str]:
    return [view.server_id for view in views or []]


def test_a_forgetful_answer_keeps_what_has_not_expired() -> None:
    memory = Memory()
    assert memory.recall("k") is None
    memory.update("k", [_record("a", 100.0), _record("b", 110.0)], 111.0)
    assert _ids(memory.update("k", [], 129.0)) == ["a", "b"]
    assert _ids(memory.update("k", [], 131.0)) == ["b"]
    assert _ids(memory.update("k", [], 141.0)) == []


def test_older_news_do_not_replace_newer_ones() -> None:
    memory = Memory()
    memory.update("k", [_record("a", 110.0, State.DRAINING)], 110.0)
    views = memory.update("k", [_record("a", 105.0)], 111.0)
    assert [view.state for view in views] == [State.DRAINING]


def test_halves_from_different_answers_are_merged() -> None:
    memory = Memory()
    memory.update("k", [_record("a", 100.0)], 100.0)
    said = Statement(server_id="a", state=State.OFFLINE, instance="i", issued_at=101.0)
    assert [view.state for view in memory.update("k", [(None, said)], 102.0)] == [State.OFFLINE]


def test_nothing_expires_while_the_source_is_away_and_for_a_grace_after() -> None:
    memory = Memory()
    memory.update("k", [_record("a", 100.0), _record("b", 100.0)], 101.0)
    memory.away(105.0)
    assert memory.stale
    assert _ids(memory.recall("k")) == ["a", "b"]
    assert _ids(memory.update("k", [], 500.0)) == ["a", "b"]
    assert not memory.stale
    memory.update("k", [_record("a", 505.0)], 506.0)
    assert _ids(memory.update("k", [], 500.0 + GRACE_SECONDS - 1)) == ["a", "b"]
    assert _ids(memory.update("k", [], 500.0 + GRACE_SECONDS)) == ["a"]


def test_a_second_outage_within_the_grace_extends_it() -> None:
    memory = Memory()
    memory.update("k", [_record("a", 100.0)], 101.0)
    memory.away(105.0)
    memory.update("k", [], 500.0)
    memory.away(503.0)
    assert _ids(memory.update("k", [], 600.0)) == ["a"]
    assert _ids(memory.update("k", [], 616.0)) == []
