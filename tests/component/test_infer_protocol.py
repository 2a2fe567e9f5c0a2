"""One leg against a real server, message by message: what is refused, how, and that nobody else notices."""

import asyncio
import contextlib
import time

import grpc
import pytest
import pytest_asyncio
import torch

from block_server import RawLeg, make_host, serving
from blockswarm_wire import limits
from blockswarm_wire.errors import TRAILER, from_status
from blockswarm_wire.span import Span
from blockswarm_wire.tensor import encode
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import errors_pb2 as codes
from blockswarm_wire.v1 import tensor_pb2

HIDDEN = 64


@pytest_asyncio.fixture
async def address(host):
    async with serving(host) as where:
        yield where


@pytest_asyncio.fixture
async def leg(host, address):
    async with raw(address) as made:
        assert (await made.open(host)).WhichOneof("body") == "opened"
        yield made


@contextlib.asynccontextmanager
async def raw(address):
    made = RawLeg(address)
    try:
        yield made
    finally:
        await made.close()


def hidden(tokens=1, batch=1, seed=0, **changes) -> tensor_pb2.Tensor:
    torch.manual_seed(seed)
    message = encode(torch.randn(batch, tokens, HIDDEN))
    for name, value in changes.items():
        if name == "shape":
            message.shape[:] = value
        else:
            setattr(message, name, value)
    return message


async def ending(leg: RawLeg):
    """The error with which a stream ended."""
    assert await leg.read() is grpc.aio.EOF
    trailers = dict(await leg.call.trailing_metadata() or ())
    return from_status((await leg.call.code()).name, await leg.call.details(), trailers.get(TRAILER))


def error_of(response: pb.InferResponse) -> tuple[int, str]:
    assert response.WhichOneof("body") == "error", response
    return response.error.detail.code, response.error.detail.message


WRONG_STEPS = [
    ("hidden size", {"hidden": encode(torch.zeros(1, 1, 32))}, codes.INVALID_ARGUMENT, "hidden: shape"),
    (
        "dtype",
        {"hidden": encode(torch.zeros(1, 1, HIDDEN, dtype=torch.float16))},
        codes.INVALID_ARGUMENT,
        "float16",
    ),
    ("nan", {"hidden": encode(torch.full((1, 1, HIDDEN), float("nan")))}, codes.INVALID_ARGUMENT, "NaN"),
    (
        "infinity",
        {"hidden": encode(torch.full((1, 1, HIDDEN), float("inf")))},
        codes.INVALID_ARGUMENT,
        "infinity",
    ),
    ("too long", {"hidden": hidden(65)}, codes.MAX_LENGTH_EXCEEDED, "Maximum length exceeded"),
    ("position ahead", {"hidden": hidden(), "position": 3}, codes.INVALID_ARGUMENT, "position 3 is ahead"),
    ("pad too long", {"hidden": hidden(2), "pad": [3]}, codes.INVALID_ARGUMENT, "pad: 3 is longer"),
    ("hypo_ids", {"hidden": hidden(), "hypo_ids": [5]}, codes.INVALID_ARGUMENT, "hypo_ids"),
    (
        "lying header",
        {"hidden": hidden(shape=[1, 50, HIDDEN])},
        codes.INVALID_ARGUMENT,
        "takes 12800 bytes, but 256",
    ),
    ("huge header", {"hidden": hidden(shape=[1, 4, 2**31])}, codes.INVALID_ARGUMENT, "hidden: shape"),
    ("unknown dtype", {"hidden": hidden(dtype=77)}, codes.INVALID_ARGUMENT, "unknown dtype 77"),
    ("one dimension", {"hidden": hidden(shape=[HIDDEN])}, codes.INVALID_ARGUMENT, "lacks batch or tokens"),
    ("no input", {}, codes.INVALID_ARGUMENT, "input"),
    ("batch", {"hidden": hidden(1, batch=3)}, codes.INVALID_ARGUMENT, "batch of 3"),
    (
        "token ids",
        {"token_ids": encode(torch.zeros(1, 1, dtype=torch.int64))},
        codes.UNSUPPORTED,
        "embedding",
    ),
    ("logits", {"hidden": hidden(), "want": pb.WANT_LOGITS}, codes.UNSUPPORTED, "head"),
    (
        "prompts",
        {"hidden": hidden(2), "prompts": encode(torch.zeros(3, 1, 1, HIDDEN))},
        codes.INVALID_ARGUMENT,
        "prompts: shape",
    ),
    (
        "nan in prompts",
        {"hidden": hidden(2), "prompts": encode(torch.full((2, 1, 1, HIDDEN), float("nan")))},
        codes.INVALID_ARGUMENT,
        "prompts: holds NaN",
    ),
]


@pytest.mark.parametrize(
    ("fields", "code", "text"), [case[1:] for case in WRONG_STEPS], ids=[c[0] for c in WRONG_STEPS]
)
async def test_a_wrong_step_is_refused_and_the_leg_goes_on_as_if_it_had_not_come(
    host, address, leg, fields, code, text
):
    async with raw(address) as untouched:
        await untouched.open(host)
        want = [await untouched.step(seq=n + 1, position=n, hidden=hidden(seed=n)) for n in range(3)]
    first = await leg.step(seq=1, position=0, hidden=hidden(seed=0))
    found, message = error_of(await leg.step(**({"seq": 2, "position": 1} | fields)))
    assert (found, text in message) == (code, True), message
    second = await leg.step(seq=3, position=1, hidden=hidden(seed=1), known_error=2)
    third = await leg.step(seq=4, position=2, hidden=hidden(seed=2), known_error=2)
    for got, expected in zip((first, second, third), want, strict=True):
        assert got.result.output == expected.result.output


WRONG_OPENS = [
    ("fingerprint", {"fingerprint": "0" * 64}, codes.WRONG_MODEL, "fingerprint"),
    ("no fingerprint", {"fingerprint": ""}, codes.WRONG_MODEL, "fingerprint"),
    ("span", {"start": 0, "end": 3}, codes.WRONG_SPAN, "0:3 are not here; this server holds 0:2"),
    ("empty span", {"start": 1, "end": 1}, codes.INVALID_ARGUMENT, "greater than start"),
    ("version", {"protocol_version": 9}, codes.UNSUPPORTED_VERSION, "speaks 9"),
    ("epoch", {"epoch": 0}, codes.INVALID_ARGUMENT, "epoch"),
    ("batch", {"max_batch": 0}, codes.INVALID_ARGUMENT, "max_batch"),
    ("length", {"max_length": 2**31}, codes.INVALID_ARGUMENT, "max_length"),
    (
        "never fits",
        {"max_batch": 2, "max_length": 300},
        codes.NEVER_FITS,
        "600 KV tokens; this server has 512",
    ),
    ("session id", {"session_id": ""}, codes.INVALID_ARGUMENT, "session_id"),
    ("leg id", {"leg_id": "x" * 65}, codes.INVALID_ARGUMENT, "leg_id"),
    ("timeout", {"alloc_timeout_seconds": float("nan")}, codes.INVALID_ARGUMENT, "alloc_timeout"),
    ("adapter", {"adapter": "lora"}, codes.UNSUPPORTED, "adapter"),
]


@pytest.mark.parametrize(
    ("fields", "code", "text"), [case[1:] for case in WRONG_OPENS], ids=[c[0] for c in WRONG_OPENS]
)
async def test_a_wrong_open_ends_the_stream_with_a_named_error(host, address, fields, code, text):
    async with raw(address) as leg:
        assert await leg.open(host, **fields) is grpc.aio.EOF
        error = await ending(leg)
        assert (error.code, text in str(error)) == (code, True), error
    assert host.legs.promised == 0
    assert not host.legs.legs


async def test_the_first_message_must_be_an_open(host, address):
    async with raw(address) as leg:
        await leg.send(seq=1, position=0, hidden=hidden())
        assert "must be `open`" in str(await ending(leg))


async def test_the_last_seq_again_gets_the_stored_reply_and_is_not_applied_twice(host, leg):
    first = await leg.step(seq=1, position=0, hidden=hidden(4))
    again = await leg.step(seq=1, position=0, hidden=hidden(4))
    assert again == first
    assert host.legs.used == 4
    code, message = error_of(await leg.step(seq=1, position=0, hidden=hidden(4, seed=1)))
    assert (code, "different step" in message) == (codes.OUT_OF_ORDER, True)


async def test_a_skipped_seq_is_refused_and_the_right_one_still_works(host, leg):
    code, _ = error_of(await leg.step(seq=2, position=0, hidden=hidden()))
    assert code == codes.OUT_OF_ORDER
    assert (await leg.step(seq=1, position=0, hidden=hidden())).result.position == 1


async def test_steps_in_flight_behind_a_failed_one_are_not_applied(host, leg):
    await leg.send(seq=1, position=0, hidden=hidden(2))
    await leg.send(seq=2, position=2, hidden=hidden(shape=[1, 9, HIDDEN]))
    await leg.send(seq=3, position=0, hidden=hidden(1))
    assert (await leg.read()).WhichOneof("body") == "result"
    assert error_of(await leg.read())[0] == codes.INVALID_ARGUMENT
    assert error_of(await leg.read())[0] == codes.ABORTED
    assert host.legs.used == 2
    done = await leg.step(seq=4, position=2, hidden=hidden(1), known_error=2)
    assert done.result.position == 3


async def test_a_higher_epoch_fences_the_older_stream_and_frees_its_memory_first(host, address):
    async with raw(address) as old, raw(address) as new, raw(address) as stale:
        await old.open(host, session_id="s", epoch=1, max_batch=2, max_length=200)
        await old.step(seq=1, position=0, hidden=hidden(3))
        opened = await new.open(host, session_id="s", epoch=2, max_batch=2, max_length=200)
        assert opened.WhichOneof("body") == "opened"
        assert (await ending(old)).code == codes.FENCED
        assert host.legs.used == 0
        assert await stale.open(host, session_id="s", epoch=2) is grpc.aio.EOF
        assert (await ending(stale)).code == codes.STALE_EPOCH
        assert (await new.step(seq=1, position=0, hidden=hidden())).result.position == 1


async def test_a_stale_epoch_is_refused_also_after_the_newer_one_has_closed(host, address):
    async with raw(address) as new:
        await new.open(host, session_id="s", epoch=5)
    await settled(host)
    async with raw(address) as late:
        await late.open(host, session_id="s", epoch=4)
        assert (await ending(late)).code == codes.STALE_EPOCH


async def test_an_open_waits_for_memory_says_so_and_times_out(host, address):
    async with raw(address) as first, raw(address) as second, raw(address) as third:
        await first.open(host, max_batch=1, max_length=400)
        waiting = asyncio.create_task(
            second.open(host, max_batch=1, max_length=400, alloc_timeout_seconds=30)
        )
        began = time.monotonic()
        assert await third.open(host, max_batch=1, max_length=400, alloc_timeout_seconds=0.2) is grpc.aio.EOF
        error = await ending(third)
        assert error.code == codes.CACHE_FULL
        assert error.retry_after
        assert time.monotonic() - began < 5
        assert not waiting.done()
        await first.close()
        assert (await asyncio.wait_for(waiting, 5)).WhichOneof("body") == "opened"


async def test_a_client_that_vanishes_gives_its_memory_back(host, address):
    for _ in range(5):
        async with raw(address) as leg:
            await leg.open(host)
            await leg.step(seq=1, position=0, hidden=hidden(8, batch=2))
            assert (host.legs.used, host.legs.promised) == (16, 128)
        await settled(host)
        assert (host.legs.used, host.legs.promised, host.legs.sessions) == (0, 0, 0)


async def test_a_leg_over_a_part_of_the_span_counts_its_blocks_only(host, address):
    async with raw(address) as leg:
        await leg.open(host, start=1, end=2)
        await leg.step(seq=1, position=0, hidden=hidden(8))
        assert (host.legs.used, host.legs.promised) == (4, 64)


async def test_opens_without_a_step_are_bounded_and_closed(folder, monkeypatch):
    monkeypatch.setattr(limits, "OPEN_WITHOUT_STEP_SECONDS", 1.0)
    host = make_host(folder, Span(0, 2), 3, cache_tokens=2**20, max_sessions=50)
    async with serving(host) as address:
        channel, kept, opened, refused = RawLeg(address).channel, [], 0, 0
        for _ in range(5000 // 100):
            calls = [one_open(channel, host, kept) for _ in range(100)]
            for answer in await asyncio.gather(*calls):
                opened += answer == "opened"
                refused += answer == codes.TOO_MANY_SESSIONS
            assert len(host.legs.legs) <= 50
        assert opened + refused == 5000
        assert opened >= 50
        await settled(host)
        assert host.legs.promised == 0
        await channel.close()


async def one_open(channel, host, kept):
    """Open and never step; what came of it. The stream is left to the server to close."""
    leg = RawLeg.on(channel)
    kept.append(leg.call)
    answer = await leg.open(host)
    return "opened" if answer is not grpc.aio.EOF else (await ending(leg)).code


async def settled(host, timeout: float = 5.0) -> None:
    """Wait until no leg is open."""
    assert await host.legs.emptied(timeout)
