"""A history fed to an empty leg gives what the live leg holds, whatever was rolled back or reordered in between."""

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockswarm.session.history import Entry, History, composed


@dataclass
class Rows:
    """A leg as plain lists: what each row's cache holds, token by token. Tokens are (chunk, index in chunk)."""

    rows: list[list[tuple[int, int]]] = field(default_factory=list)

    def apply(self, entry: Entry) -> None:
        if not self.rows or entry.position == 0:
            self.rows = [[] for _ in range(entry.batch)]
        assert all(len(row) >= entry.position for row in self.rows), "position ahead of the leg"
        self.rows = [row[: entry.position] for row in self.rows]
        if entry.hypo_ids and entry.position:
            self.rows = [list(self.rows[row]) for row in entry.hypo_ids]
        assert len(self.rows) == entry.batch
        for number, row in enumerate(self.rows):
            row.extend((id_of(entry) + number, index) for index in range(entry.tokens))


def id_of(entry: Entry) -> int:
    return int(entry.hidden[0, 0, 0]) * 1000 if entry.tokens else 0


@st.composite
def step_lists(draw):
    """Steps as a session would make them: (position, tokens, batch, hypo_ids) in any legal order."""
    position, batch, steps = 0, draw(st.integers(1, 3)), []
    for number in range(draw(st.integers(1, 12))):
        at = draw(st.one_of(st.just(position), st.integers(0, position)))
        order: tuple[int, ...] = ()
        if at and draw(st.booleans()):
            order = tuple(draw(st.lists(st.integers(0, batch - 1), min_size=1, max_size=4)))
            batch = len(order)
        elif at == 0:
            batch = draw(st.integers(1, 3))
        tokens = draw(st.integers(0, 5))
        steps.append(make(number + 1, at, tokens, batch, order))
        position = at + tokens
    return steps, draw(st.integers(0, position))


def make(number: int, position: int, tokens: int, batch: int = 1, order: tuple[int, ...] = ()) -> Entry:
    hidden = torch.full((batch, tokens, 1), float(number)) if tokens else None
    return Entry(position=position, tokens=tokens, batch=batch, hidden=hidden, hypo_ids=order)


@given(step_lists())
def test_replay_gives_what_the_live_leg_holds(case):
    steps, _ = case
    live, history = Rows(), History()
    for step in steps:
        live.apply(step)
        history.add(step)
    again = Rows()
    for entry in history.entries:
        again.apply(entry)
    end = history.position
    assert [row[:end] for row in again.rows] == [row[:end] for row in live.rows] or end == 0


@given(step_lists())
def test_replay_after_a_rollback_gives_the_live_leg_rolled_back(case):
    steps, end = case
    live, history = Rows(), History()
    for step in steps:
        live.apply(step)
        history.add(step)
    history.rollback(end)
    assert history.position == end
    again = Rows()
    for entry in history.entries:
        again.apply(entry)
    if end:
        assert [row[:end] for row in again.rows] == [row[:end] for row in live.rows]


@given(step_lists())
def test_a_trimmed_replay_never_truncates(case):
    steps, end = case
    history = History()
    for step in steps:
        history.add(step)
    history.rollback(end)
    whole, trimmed, position = Rows(), Rows(), 0
    for entry in history.trimmed():
        assert entry.position == position
        position = entry.end
        trimmed.apply(entry)
    assert position == end
    for entry in history.entries:
        whole.apply(entry)
    if end:
        assert trimmed.rows == [row[:end] for row in whole.rows]


@given(step_lists(), st.integers(0, 11))
def test_restore_undoes_everything_since_the_mark(case, at):
    steps, end = case
    history = History()
    for step in steps[:at]:
        history.add(step)
    mark, before = history.mark(), (history.entries, history.position)
    for step in steps[at:]:
        history.add(step)
    history.rollback(min(end, history.position))
    history.restore(mark)
    assert (history.entries, history.position) == before


def test_a_cut_entry_stays_whole_and_a_dropped_one_leaves_its_order_behind():
    history = History()
    history.add(make(1, 0, 4, batch=2))
    history.add(make(2, 4, 1, batch=2, order=(1, 0)))
    history.rollback(3)
    first, order = history.entries
    assert (first.position, first.tokens) == (0, 4)
    assert (order.position, order.tokens, order.hypo_ids) == (3, 0, (1, 0))


def test_a_rollback_ahead_is_refused():
    history = History()
    history.add(make(1, 0, 4))
    with pytest.raises(ValueError, match="ahead"):
        history.rollback(5)


def test_orders_compose_left_to_right():
    assert composed([(), (1, 0, 1), (2, 2), ()]) == (1, 1)
