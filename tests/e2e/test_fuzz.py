"""Hostile clients against a broker of our own: the fuzz benchmark, with ten thousand frames.

The seed is fixed, so that a failure here is the same on every machine; `./dev bench fuzz` takes another
each time, and a hundred times as many frames. And since a fuzzer that sees nothing always passes: what it
would say of brokers that misbehave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bench import fuzz
from bench.aims import load_aims
from bench.fuzz import case, target
from bench.fuzz.answers import Answers
from bench.fuzz.hostile import Outcome, one
from bench.plan import Plan
from recado.amqp.frames import PROTOCOL_HEADER, encode_method_frame
from recado.amqp.methods import ChannelClose, ConnectionClose, ConnectionStart
from workshop.peers import HOST, Server

SEED = 20
FRAMES = 10_000


@pytest.mark.searching
def test_ten_thousand_mutated_frames_hurt_nobody() -> None:
    aims = load_aims("fuzz", fuzz.SCENARIOS)
    rounds = fuzz.fuzz(Plan(rounds=2), SEED, FRAMES)
    assert sum(each.outcome.frames for each in rounds) >= FRAMES
    for each in rounds:  # without a data folder, and with one
        assert each.testimony.trips > 0
        assert {name: value for name, value in each.figures.items() if value > aims[name]} == {}


def test_a_case_can_be_made_again() -> None:
    first = [case.make(SEED, number) for number in range(100)]
    assert [case.make(SEED, number) for number in range(100)] == first
    assert [case.make(SEED + 1, number) for number in range(100)] != first
    assert all(b"".join(each.frames) == b"".join(each.pieces) for each in first)


START = encode_method_frame(0, ConnectionStart())


@pytest.mark.parametrize(
    ("said", "codes", "fault"),
    [
        (START, [], None),
        (PROTOCOL_HEADER, [], None),
        (START + encode_method_frame(3, ChannelClose(404, "NOT_FOUND - no queue")), [404], None),
        (START + encode_method_frame(0, ConnectionClose(541, "INTERNAL_ERROR - oh")), [541], "oh"),
        (START + encode_method_frame(0, ConnectionClose(501, "FRAME_ERROR")), [501], "explanation"),
        (START + b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x32\xce", [], "cannot be read"),
        (START[:-1] + b"\x00" * 9, [], "without its end"),
        (b"HTTP/1.1 400 Bad Request", [], "type 72"),
    ],
)
def test_what_a_broker_says_is_checked(said: bytes, codes: list[int], fault: str | None) -> None:
    whole, by_bytes = Answers(), Answers()
    whole.feed(said)
    for octet in said:
        by_bytes.feed(bytes((octet,)))
    for answers in (whole, by_bytes):
        assert answers.codes == codes
        assert (fault is None) if answers.fault is None else (fault or "none") in answers.fault


Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def played_to(accept: Accept) -> Outcome:
    """What becomes of one client of a broker that accepts like this."""
    outcome = Outcome()
    async with await asyncio.start_server(accept, HOST, 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        server = Server("crooked", port, pid=0, log=Path("/dev/null"))
        finishing = next(
            each
            for each in (case.make(SEED, number) for number in range(100))
            if each.ending is case.Ending.FINISH
        )
        await one(server, finishing, outcome)
    return outcome


def test_a_broker_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.fuzz.hostile.PATIENCE_S", 0.2)
    left = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await left.wait()

    async def scenario() -> Outcome:
        outcome = await played_to(never_answer)
        left.set()
        return outcome

    outcome = asyncio.run(scenario())
    assert outcome.slowest == 0.2
    assert "no end" in outcome.faults[0]


def test_a_broker_that_talks_nonsense_is_found() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"what did you say?")
        writer.close()

    outcome = asyncio.run(played_to(babble))
    assert "a frame of type" in outcome.faults[0]


def test_a_trace_in_the_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        'fine\nTraceback (most recent call last):\n  File "x", line 1\nKeyError: 1\nfine again\n'
    )
    server = Server("recado", 0, pid=0, log=log)
    assert target.traces(server) == [
        'Traceback (most recent call last):\n  File "x", line 1\nKeyError: 1'
    ]
