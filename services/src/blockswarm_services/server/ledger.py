"""KV memory as promises: what may be admitted, in which order the waiting are served. Pure."""

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from fractions import Fraction

from blockswarm_wire.errors import NeverFits


def promise(max_batch: int, max_length: int, blocks: int, span_blocks: int) -> Fraction:
    """What a leg may grow to, in tokens x batch rows over the whole span."""
    return Fraction(max_batch * max_length * blocks, span_blocks)


@dataclass(slots=True)
class Ledger:
    """Promises against a capacity, both in tokens x batch rows over the span. First come, first served."""

    capacity: int
    promised: Fraction = Fraction(0)
    _granted: dict[int, Fraction] = field(default_factory=dict)
    _waiting: "OrderedDict[int, Fraction]" = field(default_factory=OrderedDict)

    def request(self, key: int, amount: Fraction) -> bool:
        """Ask for `amount`; True = granted at once, False = waiting in line.

        Raises:
            NeverFits: more than the whole capacity.
        """
        if amount > self.capacity:
            raise NeverFits(
                f"max_batch x max_length asks for {math.ceil(amount)} KV tokens; this server has {self.capacity}: "
                "open a shorter session or give the server a larger cache"
            )
        if not self._waiting and self.promised + amount <= self.capacity:
            self._grant(key, amount)
            return True
        self._waiting[key] = amount
        return False

    def release(self, key: int) -> list[int]:
        """Give back what `key` holds or waits for; the keys that are granted because of it, in order."""
        self.promised -= self._granted.pop(key, Fraction(0))
        self._waiting.pop(key, None)
        served = []
        while self._waiting:
            head, amount = next(iter(self._waiting.items()))
            # The oldest is served first, also when a younger one would fit: nobody starves.
            if self.promised + amount > self.capacity:
                break
            del self._waiting[head]
            self._grant(head, amount)
            served.append(head)
        return served

    def queue_position(self, key: int) -> int:
        """How many wait before `key`; 0 when it does not wait."""
        return list(self._waiting).index(key) if key in self._waiting else 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def _grant(self, key: int, amount: Fraction) -> None:
        self._granted[key] = amount
        self.promised += amount
