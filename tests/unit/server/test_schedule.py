"""The order in which waiting work is served."""

from hypothesis import given
from hypothesis import strategies as st

from blockswarm_services.server.schedule import Kind, Ready, pick

work = st.builds(Ready, st.sampled_from(Kind), st.integers(1, 2000), st.integers(0, 100))


def test_decodes_come_first_then_prefill_in_order_of_arrival():
    ready = [
        Ready(Kind.PREFILL, 100, 1),
        Ready(Kind.DECODE, 1, 3),
        Ready(Kind.PREFILL, 100, 0),
        Ready(Kind.DECODE, 1, 2),
    ]
    assert pick(ready) == [3, 1, 2, 0]


def test_prefill_is_cut_at_the_budget_but_a_chunk_above_it_is_served():
    ready = [Ready(Kind.PREFILL, 900, 0), Ready(Kind.PREFILL, 1, 1)]
    assert pick(ready, budget=512) == [0]


@given(st.lists(work, min_size=1, max_size=20))
def test_every_round_serves_all_decodes_and_the_oldest_other_work(ready):
    chosen = pick(ready)
    assert len(set(chosen)) == len(chosen)
    assert {i for i, item in enumerate(ready) if item.kind is Kind.DECODE} <= set(chosen)
    others = [item.arrival for item in ready if item.kind is not Kind.DECODE]
    if others:
        assert min(others) in [ready[i].arrival for i in chosen if ready[i].kind is not Kind.DECODE]
