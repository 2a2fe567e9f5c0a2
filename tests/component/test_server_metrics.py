"""What a server counts: replays apart from progress, passes, and the state that it is in."""

import torch

from block_server import RawLeg, serving
from blockswarm_services.server.metrics import Metrics
from blockswarm_wire.passes import Pass, write_pass
from blockswarm_wire.record import State
from blockswarm_wire.span import Span
from blockswarm_wire.tensor import encode
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import block_server_pb2_grpc as pb_grpc

HIDDEN = 64


def hidden(tokens: int, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, tokens, HIDDEN, generator=torch.Generator().manual_seed(0))


def value(host, name: str, **labels: str) -> float | None:
    return host.metrics.registry.get_sample_value(f"blockswarm_{name}", labels)


async def test_a_leg_that_begins_with_a_replay_is_one_and_its_tokens_are_no_progress(host):
    async with serving(host) as address:
        leg = RawLeg(address)
        await leg.open(host)
        await leg.step(seq=1, position=0, hidden=encode(hidden(7)), want=pb.WANT_NOTHING)
        await leg.step(seq=2, position=7, hidden=encode(hidden(1)), want=pb.WANT_NOTHING)
        await leg.step(seq=3, position=8, hidden=encode(hidden(1)))
        await leg.close()
    assert value(host, "replays_total") == 1
    assert value(host, "tokens_total", phase="replay") == 8
    assert value(host, "tokens_total", phase="decode") == 1
    assert value(host, "tokens_total", phase="prefill") == 0
    assert value(host, "step_seconds_count", phase="replay") == 2


async def test_a_new_leg_is_no_replay_and_counts_the_blocks_that_it_uses(host):
    async with serving(host) as address:
        leg = RawLeg(address)
        await leg.open(host, start=1)
        await leg.step(seq=1, position=0, hidden=encode(hidden(5, batch=2)))
        await leg.close()
    assert value(host, "replays_total") == 0
    assert value(host, "tokens_total", phase="prefill") == 10
    assert value(host, "block_tokens_total", phase="prefill") == 10


async def test_a_pass_is_counted(host):
    async with serving(host) as address:
        leg = RawLeg(address)
        call = pb_grpc.BlockServerStub(leg.channel).Forward()
        what = Pass(span=Span(0, 2), fingerprint=host.fingerprint, tensors={pb.HIDDEN: hidden(6)})
        for part in write_pass(what):
            await call.write(part)
        await call.done_writing()
        async for _ in call:
            pass
        await leg.close()
    assert value(host, "tokens_total", phase="pass") == 6
    assert value(host, "block_tokens_total", phase="pass") == 12
    assert value(host, "step_seconds_count", phase="pass") == 1


def test_exactly_one_state_is_one():
    state = State.JOINING
    registry = Metrics(lambda: state).registry
    for state in (State.JOINING, State.ONLINE, State.DRAINING):
        (family,) = (f for f in registry.collect() if f.name == "blockswarm_server_state")
        assert {s.labels["state"]: s.value for s in family.samples} == {
            "joining": state is State.JOINING,
            "online": state is State.ONLINE,
            "draining": state is State.DRAINING,
        }


def test_a_loading_server_says_what_it_is_going_to_serve_but_offers_no_kv():
    names = {family.name for family in Metrics(lambda: State.JOINING).registry.collect()}
    assert "blockswarm_server_info" in names
    assert "blockswarm_kv_cache_capacity_tokens" not in names
