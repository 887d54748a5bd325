"""Datagrams, and the URL of a group: what comes from the network or a user and is not what it should be."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.feeds.transport.datagram import Datagram, decode, encode
from recado.feeds.transport.udp import (
    MAX_DATAGRAM_BYTES,
    MAX_DATAGRAM_HEADER_BYTES,
    MulticastGroup,
    parse_group,
)

NAMES = st.text(st.characters(codec="utf-8"), max_size=60)
DATAGRAMS = st.builds(Datagram, st.booleans(), NAMES, NAMES, NAMES, st.binary(max_size=300))


@given(DATAGRAMS)
def test_what_is_written_is_read(datagram: Datagram) -> None:
    assert decode(encode(datagram)) == datagram


@given(DATAGRAMS, st.data())
def test_a_head_that_is_cut_is_none_of_ours(datagram: Datagram, data: st.DataObject) -> None:
    whole = encode(datagram)
    head = len(whole) - len(datagram.packet)
    assert decode(whole[: data.draw(st.integers(0, head - 1))]) is None


@given(st.binary(max_size=200))
def test_nothing_that_comes_raises(data: bytes) -> None:
    decode(data)


@given(DATAGRAMS, st.integers(0, 3))
def test_another_head_is_none_of_ours(datagram: Datagram, at: int) -> None:
    data = bytearray(encode(datagram))
    data[at] ^= 0x80
    assert decode(bytes(data)) is None


def test_the_longest_names_leave_room() -> None:
    longest = "n" * 255
    packet = bytes(MAX_DATAGRAM_BYTES - MAX_DATAGRAM_HEADER_BYTES)
    largest = Datagram(True, longest, longest, longest, packet)
    assert len(encode(largest)) <= MAX_DATAGRAM_BYTES


def test_a_group() -> None:
    assert parse_group("udp://239.255.42.1:4242") == MulticastGroup("239.255.42.1", 4242)
    text = "udp://239.255.42.1:4242?interface=10.0.0.1&ttl=1&rate=1000000"
    assert parse_group(text) == MulticastGroup("239.255.42.1", 4242, "10.0.0.1", 1, 1_000_000)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("amqp://239.255.42.1:1", "must begin with udp://, not amqp://"),
        ("udp://localhost:1", "'localhost' is not a multicast address"),
        ("udp://10.0.0.1:1", "'10.0.0.1' is not a multicast address"),
        ("udp://239.255.42.1", "needs a port"),
        ("udp://239.255.42.1:0", "needs a port"),
        ("udp://239.255.42.1:70000", "needs a port"),
        ("udp://239.255.42.1:1?ttl=2", "ttl=2 must be 0 (this machine)"),
        ("udp://239.255.42.1:1?interface=eth0", "interface=eth0 is not the address"),
        ("udp://239.255.42.1:1?interface=239.1.1.1", "is not the address of an interface"),
        ("udp://239.255.42.1:1?rate=fast", "rate=fast"),
        ("udp://239.255.42.1:1?rate=10", "rate=10 must be at least 60000"),
        ("udp://239.255.42.1:1?colour=red", "unknown option 'colour'"),
    ],
)
def test_a_group_that_cannot_be(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        parse_group(url)
