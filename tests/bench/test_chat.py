"""The benchmark of the chat: its aims, and that its simulated users read what they write."""

from __future__ import annotations

from bench.aims import load_aims
from bench.chat import SCENARIOS, Size, take
from bench.chat.users import User


def test_the_aims_are_those_that_were_agreed() -> None:
    assert load_aims("chat", SCENARIOS) == {
        "room-100-p95": 200,
        "room-500-p95": 200,
        "room-500-memory": 400,
    }


def test_every_user_reads_every_message() -> None:
    figures = take(Size("tiny", 4, 20.0, 0.5, full_only=False))
    assert figures["written"] == 10
    assert figures["received"] == 40
    assert 0 < figures["p50_ms"] <= figures["tiny-p95"]
    assert figures["tiny-cpu"] > 0


def test_frames_are_split_wherever_they_are_cut() -> None:
    contents = [b"a" * 5, b"b" * 200, b"c" * 70_000, b""]
    headers = [
        b"\x81\x05",
        b"\x81\x7e\x00\xc8",
        b"\x81\x7f" + (70_000).to_bytes(8, "big"),
        b"\x81\x00",
    ]
    data = b"".join(header + body for header, body in zip(headers, contents, strict=True))
    for size in (1_000, 7, 69_000):
        user = User.__new__(User)
        user._received = bytearray()
        found = []
        for start in range(0, len(data), size):
            found += user.take_frames(data[start : start + size])
        assert found == contents
