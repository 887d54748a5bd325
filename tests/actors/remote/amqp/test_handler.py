"""Frames delivered together: each is settled separately, and they are grouped by sender."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.amqp.bridge import DeliveredFrames
from recado.actors.remote.amqp.link import client_id_of
from recado.amqp.properties import Properties, encode_properties


@given(st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=20))
def test_they_are_shared_out_by_their_headers_in_order(headers: list[bytes]) -> None:
    frames = [bytes([number]) for number in range(len(headers))]
    told: list[tuple[int, bool]] = []
    tags = range(7, 7 + len(headers))
    settles = [partial(lambda tag, taken: told.append((tag, taken)), tag) for tag in tags]
    whole = DeliveredFrames(headers, frames, settles)
    parts = list(whole.group_by_header())
    assert [frame for part in parts for frame in part.frames] == frames
    assert [header for part in parts for header in part.headers] == headers
    assert all(len(set(part.headers)) == 1 for part in parts)
    assert all(a.headers[0] != b.headers[0] for a, b in pairwise(parts))
    for part in parts:
        for settle in part.settles:
            settle(True)
    assert told == [(tag, True) for tag in tags]


def test_whose_a_message_is() -> None:
    assert client_id_of(encode_properties(Properties(reply_to="desk"))) == "desk"
    assert client_id_of(encode_properties(Properties())) == ""
    assert client_id_of(b"\xff") == ""
