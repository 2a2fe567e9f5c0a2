"""KV promises: never beyond the capacity, oldest first, everything given back."""

from fractions import Fraction

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from blockswarm_services.server.ledger import Ledger, promise
from blockswarm_wire.errors import NeverFits


def test_a_promise_counts_the_blocks_that_are_used():
    assert promise(2, 100, 5, 10) == 100
    assert promise(1, 10, 1, 3) == Fraction(10, 3)


def test_what_never_fits_is_refused_at_once():
    with pytest.raises(NeverFits, match="11 KV tokens; this server has 10"):
        Ledger(10).request(1, Fraction(11))


def test_the_oldest_is_served_first_also_when_a_younger_one_would_fit():
    ledger = Ledger(10)
    assert ledger.request(1, Fraction(8))
    assert not ledger.request(2, Fraction(5))
    assert not ledger.request(3, Fraction(1))
    assert ledger.queue_position(3) == 1
    assert ledger.release(1) == [2, 3]


class LedgerMachine(RuleBasedStateMachine):
    """Against a plain list: who holds what, who waits in which order."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(100)
        self.held: dict[int, int] = {}
        self.waiting: list[tuple[int, int]] = []
        self.next = 0

    @rule(amount=st.integers(0, 100))
    def ask(self, amount):
        self.next += 1
        granted = self.ledger.request(self.next, Fraction(amount))
        assert granted == (not self.waiting and sum(self.held.values()) + amount <= 100)
        if granted:
            self.held[self.next] = amount
        else:
            self.waiting.append((self.next, amount))

    @precondition(lambda self: self.held or self.waiting)
    @rule(data=st.data())
    def give_back(self, data):
        key = data.draw(st.sampled_from([*self.held, *(key for key, _ in self.waiting)]))
        served = self.ledger.release(key)
        self.held.pop(key, None)
        self.waiting = [item for item in self.waiting if item[0] != key]
        expected = []
        while self.waiting and sum(self.held.values()) + self.waiting[0][1] <= 100:
            head, amount = self.waiting.pop(0)
            self.held[head] = amount
            expected.append(head)
        assert served == expected

    @invariant()
    def books_agree(self):
        assert self.ledger.promised == sum(self.held.values()) <= 100
        assert self.ledger.waiting == len(self.waiting)


TestLedger = LedgerMachine.TestCase
