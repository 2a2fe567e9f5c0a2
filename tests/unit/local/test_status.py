from blockswarm_services.local.status import describe
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.record import ModelEntry, ServerRecord, ServerView, State

PRINT = "a" * 64
MODEL = ModelEntry(key=model_key("tiny", PRINT), name="tiny", num_blocks=4, fingerprint=PRINT)


def view(name: str, start: int, end: int, state: State = State.ONLINE, **fields) -> ServerView:
    record = ServerRecord(
        server_id=name, state=state, model="tiny", num_blocks=4, start=start, end=end, address="10.0.0.1:5",
        instance=f"i-{name}", fingerprint=PRINT, issued_at=1.0, **fields,
    )  # fmt: skip
    return ServerView(server_id=name, state=state, record=record)


def test_a_server_has_exactly_the_fields_of_the_contract():
    answer = describe(MODEL, [view("a", 0, 4, kv_capacity=9, kv_used=3, sessions=2)], None)
    assert answer == {
        "model": "tiny",
        "blocks": 4,
        "coverage_min": 1,
        "servers": [
            {
                "id": "a", "start": 0, "end": 4, "state": "ONLINE", "address": "10.0.0.1:5", "instance": "i-a",
                "kv_tokens_total": 9, "kv_tokens_used": 3, "sessions": 2,
            }
        ],
    }  # fmt: skip


def test_a_local_swarm_adds_process_ids():
    answer = describe(MODEL, [view("a", 0, 4), view("b", 0, 4)], {"a": 17})
    assert [server["pid"] for server in answer["servers"]] == [17, None]


def test_coverage_counts_online_servers_of_the_weakest_block():
    views = [
        view("a", 0, 3),
        view("b", 0, 4),
        view("c", 2, 4, State.JOINING),
        view("d", 0, 4, State.DRAINING),
    ]
    assert describe(MODEL, views, None)["coverage_min"] == 1
    assert describe(MODEL, views[2:], None)["coverage_min"] == 0


def test_servers_are_sorted_by_span_and_a_statement_without_a_record_is_left_out():
    lost = ServerView(server_id="x", state=State.JOINING, record=None)
    views = [view("z", 2, 4), view("b", 0, 2), lost, view("a", 0, 2)]
    assert [server["id"] for server in describe(MODEL, views, None)["servers"]] == ["a", "b", "z"]
