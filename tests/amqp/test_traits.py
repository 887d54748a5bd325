"""Traits, compared with decoding all properties."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import AmqpError
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.traits import (
    DEFAULT_TRAITS,
    DIRECT_REPLY_TO,
    MessageTraits,
    read_traits,
    without_ttl,
)

from .strategies import NOT_UTF8, short_strings, tables, unsigned

TEXTS = st.none() | short_strings()
CHOICES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(Properties.__struct_fields__, TEXTS),
    "headers": st.none() | tables() | st.sampled_from(({"CC": ["a"]}, {"BCC": []}, {"cc": []})),
    "delivery_mode": st.sampled_from((None, 1, 2)),
    "priority": st.none() | unsigned(8),
    "reply_to": TEXTS | st.just(DIRECT_REPLY_TO),
    "expiration": st.none() | unsigned(32).map(str),
    "timestamp": st.none() | unsigned(64),
}
PROPERTIES = st.fixed_dictionaries(CHOICES).map(lambda chosen: Properties(**chosen))


@given(PROPERTIES)
def test_the_traits_are_those_of_the_properties(properties: Properties) -> None:
    headers = properties.headers or {}
    found = read_traits(encode_properties(properties))
    assert found == MessageTraits(
        persistent=properties.delivery_mode == 2,
        priority=properties.priority or 0,
        ttl_ms=None if properties.expiration is None else int(properties.expiration),
        user_id=properties.user_id,
        unbatchable="CC" in headers or "BCC" in headers or properties.reply_to == DIRECT_REPLY_TO,
    )


@given(st.binary(max_size=40) | PROPERTIES.map(encode_properties).map(lambda each: each[:-1]))
def test_what_does_not_decode_has_no_traits(data: bytes) -> None:
    try:
        decode_properties(data)
    except AmqpError:
        with pytest.raises(AmqpError):
            read_traits(data)
    else:
        read_traits(data)


def test_equal_traits_are_one_object() -> None:
    one, other, third = (
        read_traits(encode_properties(Properties(message_id=name, priority=priority)))
        for name, priority in (("a", 1), ("b", 1), ("b", 2))
    )
    assert one is other
    assert one is not third
    assert (
        read_traits(b"\x00\x00")
        is read_traits(encode_properties(Properties(app_id="a")))
        is DEFAULT_TRAITS
    )


def test_long_properties_are_not_remembered_but_have_the_same_traits() -> None:
    long = Properties(headers={"text": "x" * 1000, "CC": ["a"]}, priority=1)
    short = Properties(headers={"CC": ["a"]}, priority=1)
    assert read_traits(encode_properties(long)) is read_traits(encode_properties(short))


@pytest.mark.parametrize(
    ("expiration", "fault"),
    [
        ("abc", "invalid expiration 'abc': no_integer"),
        ("", "invalid expiration '': no_integer"),
        ("-", "invalid expiration '-': no_integer"),
        ("1.5", "invalid expiration '1.5': no_integer"),
        ("٣", "invalid expiration '٣': no_integer"),
        ("-1", "invalid expiration '-1': {value_negative,-1}"),
        ("4294967296", "invalid expiration '4294967296': {value_too_large,4294967296}"),
    ],
)
def test_an_expiration_that_is_none(expiration: str, fault: str) -> None:
    facts = read_traits(encode_properties(Properties(expiration=expiration)))
    assert (facts.ttl_ms, facts.refusal) == (None, fault)


@pytest.mark.parametrize(("expiration", "ttl"), [("0", 0), ("+7", 7), ("007", 7)])
def test_an_expiration_that_is_one(expiration: str, ttl: int) -> None:
    facts = read_traits(encode_properties(Properties(expiration=expiration)))
    assert (facts.ttl_ms, facts.refusal) == (ttl, None)


@pytest.mark.parametrize("mode", [0, 3, 255])
def test_a_delivery_mode_that_is_none(mode: int) -> None:
    facts = read_traits(encode_properties(Properties(delivery_mode=mode, expiration="x")))
    assert facts.refusal == f"invalid delivery mode {mode}: it is 1 or 2"


@given(NOT_UTF8)
def test_text_that_is_not_utf8_is_passed_on(octets: bytes) -> None:
    properties = b"\x00\x10" + bytes((len(octets),)) + octets
    user = read_traits(properties).user_id
    assert user is not None
    assert user.encode(errors="surrogateescape") == octets


def test_a_dead_letter_has_no_time_of_its_own() -> None:
    dying = read_traits(encode_properties(Properties(expiration="7", priority=2)))
    assert without_ttl(dying) is read_traits(encode_properties(Properties(priority=2)))
