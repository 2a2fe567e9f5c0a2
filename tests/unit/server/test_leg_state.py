"""What a step may do to a leg, as tables."""

import pytest

from blockswarm_services.server.sessions import LegState, StepRequest, failed, plan, received, sequence
from blockswarm_wire.errors import Aborted, InvalidArgument, MaxLengthExceeded, OutOfOrder

FRESH = LegState(max_batch=4, max_length=100)
HELD = LegState(max_batch=4, max_length=100, position=10, rows=2, pads=(((0, 3),), ()), seq=5, digest=b"five")


def request(**changes) -> StepRequest:
    fields = {"seq": 6, "position": 10, "batch": 2, "tokens": 1}
    return StepRequest(**(fields | changes))


def test_append_moves_the_position_and_keeps_the_rows():
    done = plan(HELD, request(tokens=3)).after
    assert (done.position, done.rows, done.pads) == (13, 2, (((0, 3),), ()))
    assert done.held == 26


def test_a_smaller_position_truncates_and_cuts_the_padding():
    done = plan(HELD, request(position=2, tokens=1))
    assert done.truncate_to == 2
    assert done.after.pads == (((0, 2),), ())


def test_hypo_ids_set_the_batch_and_take_the_padding_along():
    done = plan(HELD, request(batch=3, hypo_ids=(1, 0, 0)))
    assert done.after.rows == 3
    assert done.after.pads == ((), ((0, 3),), ((0, 3),))


def test_padding_of_a_later_step_is_added_behind():
    done = plan(HELD, request(tokens=4, pad=(2, 0)))
    assert done.after.pads == (((0, 3), (10, 12)), ())


def test_padding_that_continues_a_chunk_joins_it():
    first = plan(FRESH, request(seq=1, position=0, tokens=4, pad=(4, 1))).after
    second = plan(first, request(seq=2, position=4, tokens=4, pad=(2, 0))).after
    assert second.pads == (((0, 6),), ((0, 1),))


def test_a_rollback_to_zero_frees_the_batch():
    assert plan(HELD, request(position=0, batch=4, tokens=2)).after.rows == 4


def test_zero_tokens_are_legal_also_with_an_order_only():
    assert plan(FRESH, request(seq=1, position=0, batch=1, tokens=0)).after.held == 0
    assert plan(HELD, request(tokens=0, hypo_ids=(1, 0))).after.position == 10


@pytest.mark.parametrize(
    ("state", "changes", "error", "text"),
    [
        (HELD, {"position": 11}, InvalidArgument, "ahead"),
        (
            HELD,
            {"tokens": 91},
            MaxLengthExceeded,
            "Maximum length exceeded: prefix 10 \\+ current 91 exceeds",
        ),
        (HELD, {"tokens": 513}, InvalidArgument, "more than 512"),
        (HELD, {"batch": 5}, InvalidArgument, "batch of 5"),
        (HELD, {"batch": 0}, InvalidArgument, "batch of 0"),
        (HELD, {"batch": 3}, InvalidArgument, "the leg holds 2"),
        (HELD, {"hypo_ids": (0, 2)}, InvalidArgument, "hypo_ids: 2 is out of range"),
        (HELD, {"hypo_ids": (0,)}, InvalidArgument, "hypo_ids: 1 entries for 2 rows"),
        (FRESH, {"seq": 1, "position": 0, "hypo_ids": (0, 0)}, InvalidArgument, "holds 0 rows"),
        (HELD, {"pad": (2, 0)}, InvalidArgument, "pad: 2 is longer"),
        (HELD, {"pad": (1,)}, InvalidArgument, "pad: 1 entries for 2 rows"),
    ],
)
def test_a_wrong_step_is_refused_by_name(state, changes, error, text):
    with pytest.raises(error, match=text):
        plan(state, request(**changes))


def test_the_last_step_again_is_a_repetition_unless_it_differs():
    assert sequence(HELD, 5, b"five")
    assert not sequence(HELD, 6, b"six")
    with pytest.raises(OutOfOrder, match="different step"):
        sequence(HELD, 5, b"other")


@pytest.mark.parametrize("seq", [0, 1, 4, 7, 2**40])
def test_a_gap_or_an_old_seq_is_refused(seq):
    with pytest.raises(OutOfOrder, match="does not follow"):
        sequence(HELD, seq, b"any")


def test_steps_sent_before_their_sender_knew_of_an_error_are_not_applied():
    broken = failed(received(HELD, 6, b"six", 0), 6)
    for seq in (7, 8):
        broken = received(broken, seq, b"late", 0)
        with pytest.raises(Aborted, match="step 6 failed"):
            plan(broken, request(seq=seq))
        broken = failed(broken, seq)
    aware = received(broken, 9, b"nine", 6)
    assert plan(aware, request(seq=9)).after.position == 11
