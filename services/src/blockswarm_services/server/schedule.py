"""What the compute thread does next: a pure choice over what is waiting."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

# Prefill rows that one round may take besides all decodes: bounds how long a decode waits.
PREFILL_BUDGET = 512


class Kind(IntEnum):
    """Order of service within a round."""

    DECODE = 0
    PREFILL = 1
    PASS = 2


@dataclass(frozen=True, slots=True)
class Ready:
    """A piece of work whose inputs are there. `rows` = tokens x batch rows; lower `arrival` came earlier."""

    kind: Kind
    rows: int
    arrival: int


def pick(ready: Sequence[Ready], budget: int = PREFILL_BUDGET) -> list[int]:
    """Indices of the work of the next round, in order of service.

    Every decode, then prefill chunks and stateless passes in order of arrival within `budget` rows; the first of them
    always, since one that is larger than the budget must not starve.
    """
    decodes = [index for index, work in enumerate(ready) if work.kind is Kind.DECODE]
    others = sorted(
        (index for index, work in enumerate(ready) if work.kind is not Kind.DECODE),
        key=lambda index: ready[index].arrival,
    )
    round_ = sorted(decodes, key=lambda index: ready[index].arrival)
    taken = 0
    for index in others:
        if taken and taken + ready[index].rows > budget:
            break
        round_.append(index)
        taken += ready[index].rows
    return round_
