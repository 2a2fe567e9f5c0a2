"""A pass survives servers that fail, in either direction, and blames only those that are to blame."""

import pytest
import torch

from blockswarm.config import ClientConfig
from blockswarm.routing.hop import Hop, MissingBlocks
from blockswarm.session.failures import SessionLost
from blockswarm.training import autograd
from blockswarm.training.autograd import remote_pass
from blockswarm.training.chain import Chain
from blockswarm_wire.errors import CacheFull, Draining, InvalidArgument, Unreachable

BLOCKS = 6


def block(number, hidden, prompts):
    if prompts is not None:
        prefix = prompts.shape[1]
        hidden = torch.cat([hidden[:, :prefix] + prompts, hidden[:, prefix:]], dim=1)
    return hidden * (1 + number / 10) + torch.tanh(hidden)


def whole(hidden, prompts, start=0, end=BLOCKS):
    for number in range(start, end):
        hidden = block(number, hidden, None if prompts is None else prompts[number - start])
    return hidden


class Manager:
    """Servers with spans and scripted failures; computes what they would."""

    def __init__(self, servers, **settings):
        self.num_blocks = BLOCKS
        self.fingerprint = "f" * 64
        self.config = ClientConfig(min_backoff=0.001, max_backoff=0.002, dtype="float32", **settings)
        self.servers = servers
        self.failures = {}
        self.blamed, self.busy, self.praised, self.asked = [], [], [], []

    def fail(self, server, *errors):
        self.failures.setdefault(server, []).extend(errors)

    def channel(self, address):
        return address

    async def make_sequence(self, start, end, *, mode, exclude):
        assert mode == "max_throughput"
        hops, at = [], start
        while at < end:
            found = [
                (stop, server)
                for server, (first, stop) in self.servers.items()
                if server not in exclude and first <= at < stop
            ]
            if not found:
                raise MissingBlocks("tiny", [(at, end)])
            stop, server = max(found, key=lambda pair: (pair[0], pair[1]))
            hops.append(Hop(server, "i", server, at, min(stop, end)))
            at = hops[-1].end
        return hops

    async def changed(self, timeout):
        return False

    def on_failure(self, server_id, instance, error):
        self.blamed.append(server_id)

    def on_success(self, server_id, instance):
        self.praised.append(server_id)

    def on_busy(self, server_id):
        self.busy.append(server_id)

    # what Chain asks of a Caller
    def take(self, what, hop):
        self.asked.append((what, hop.server_id, hop.start, hop.end))
        errors = self.failures.get(f"{what} {hop.server_id}", [])
        if errors:
            raise errors.pop(0)

    async def forward(self, channel, hop, rows):
        self.take("forward", hop)
        return whole(rows.hidden, rows.prompts, hop.start, hop.end)

    async def backward(self, channel, hop, rows, grad):
        self.take("backward", hop)
        hidden = rows.hidden.clone().requires_grad_()
        prompts = None if rows.prompts is None else rows.prompts.clone().requires_grad_()
        output = whole(hidden, prompts, hop.start, hop.end)
        wanted = [hidden] if prompts is None else [hidden, prompts]
        grads = torch.autograd.grad(output, wanted, grad)
        return grads[0], grads[1] if len(grads) > 1 else None


@pytest.fixture
def make(monkeypatch):
    monkeypatch.setattr(Chain, "_caller", lambda self: self.manager)
    two = {"a": (0, 3), "b": (0, 3), "c": (3, 6), "d": (3, 5), "e": (5, 6)}
    return lambda servers=two, **settings: Manager(servers, **settings)


def check(manager, *, rows=2, tokens=5, width=1, start=0, end=BLOCKS):
    torch.manual_seed(0)
    hidden = torch.randn(rows, tokens, 4, requires_grad=True)
    prompts = torch.randn(end - start, width, 2, 4, requires_grad=True)
    grad = torch.randn(rows, tokens, 4)
    got = remote_pass(manager, hidden, prompts, start=start, end=end)
    want = whole(hidden, prompts, start, end)
    torch.testing.assert_close(got, want)
    grads = torch.autograd.grad(want, [hidden, prompts], grad, retain_graph=True)
    got.backward(grad)
    torch.testing.assert_close(hidden.grad, grads[0])
    torch.testing.assert_close(prompts.grad, grads[1])


@pytest.mark.parametrize("width", [1, 2])
def test_outputs_and_gradients(make, width):
    manager = make()
    check(manager, width=width)
    assert [asked[:2] for asked in manager.asked] == [
        ("forward", "b"), ("forward", "c"), ("backward", "c"), ("backward", "b"),
    ]  # fmt: skip
    assert not manager.blamed


def test_part_of_the_model(make):
    check(make(), start=1, end=5)


@pytest.mark.parametrize("width", [1, 5])
def test_many_rows_go_in_parts(make, monkeypatch, width):
    monkeypatch.setattr(autograd, "TOKENS_PER_PART", 10)
    manager = make()
    check(manager, rows=5, width=width)
    assert len(manager.asked) == 3 * 4


def test_a_server_lost_on_the_way_there(make):
    manager = make()
    manager.fail("forward c", Unreachable("gone"))
    check(manager)
    assert manager.blamed == ["c"]
    assert [asked[1:] for asked in manager.asked[:4]] == [
        ("b", 0, 3), ("c", 3, 6), ("d", 3, 5), ("e", 5, 6),
    ]  # fmt: skip


def test_a_server_lost_on_the_way_back_is_replaced_by_two(make):
    manager = make()
    manager.fail("backward c", Unreachable("gone"))
    check(manager)
    assert manager.blamed == ["c"]
    assert [asked[:2] for asked in manager.asked[2:]] == [
        ("backward", "c"), ("forward", "d"), ("forward", "e"), ("backward", "e"), ("backward", "d"), ("backward", "b"),
    ]  # fmt: skip


def test_nobody_is_blamed_for_draining_or_being_full(make):
    manager = make()
    manager.fail("forward b", Draining("leaving"))
    manager.fail("forward c", CacheFull("full"))
    check(manager)
    assert manager.blamed == []
    assert manager.busy == ["c"]


def test_the_only_server_is_asked_again(make):
    manager = make({"a": (0, 6)})
    manager.fail("forward a", Unreachable("once"), Unreachable("twice"))
    check(manager)


def test_the_callers_mistake_is_not_retried(make):
    manager = make()
    manager.fail("forward b", InvalidArgument("hidden: wrong"))
    with pytest.raises(InvalidArgument, match="hidden: wrong"):
        remote_pass(manager, torch.zeros(1, 2, 4), None, start=0, end=6)
    assert len(manager.asked) == 1
    assert not manager.blamed


def test_it_gives_up_and_tells_every_attempt(make):
    manager = make({"a": (0, 6)}, max_retries=2)
    manager.fail("forward a", *[Draining(f"number {n}") for n in range(9)])
    with pytest.raises(SessionLost, match=r"(?s)number 0.*number 1.*number 2"):
        remote_pass(manager, torch.zeros(1, 2, 4), None, start=0, end=6)


def test_nobody_serves_a_block(make):
    with pytest.raises(SessionLost, match="3:6"):
        remote_pass(make({"a": (0, 3)}), torch.zeros(1, 2, 4), None, start=0, end=6)


@pytest.mark.parametrize(
    ("inputs", "prompts", "pad", "text"),
    [
        (torch.zeros(2, 4), None, None, "inputs"),
        (torch.zeros(2, 3, 4), torch.zeros(5, 1, 1, 4), None, "prompts"),
        (torch.zeros(2, 3, 4), torch.zeros(6, 3, 1, 4), None, "prompts"),
        (torch.zeros(2, 3, 4), torch.zeros(6, 1, 1, 5), None, "prompts"),
        (torch.zeros(2, 3, 4), torch.zeros(6, 1, 4, 4), None, "prefix"),
        (torch.zeros(2, 3, 4), torch.zeros(6, 1, 2, 4), [2, 0], "prefix"),
        (torch.zeros(2, 3, 4), None, [1], "pad"),
        (torch.zeros(2, 3, 4), None, [4, 0], "pad"),
    ],
)
def test_shapes_are_checked_before_anything_is_sent(make, inputs, prompts, pad, text):
    manager = make()
    with pytest.raises(InvalidArgument, match=text):
        remote_pass(manager, inputs, prompts, start=0, end=6, pad=pad)
    assert not manager.asked


def test_empty_input_stays_here(make):
    manager = make()
    assert remote_pass(manager, torch.zeros(1, 0, 4), None, start=0, end=6).shape == (1, 0, 4)
    assert not manager.asked
