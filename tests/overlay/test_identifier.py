"""Ids: the ring's arithmetic against definitions, ownership, canonical addresses, and the wire form."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recado.overlay.errors import InvalidAddressError
from recado.overlay.identifier import (
    DIGITS_COUNT,
    RING_MODULUS,
    NodeId,
    TopicKey,
    boundary,
    clockwise,
    closeness,
    decode_identifier,
    digit,
    distance,
    encode_identifier,
    is_canonical,
    node_id,
    shared_digits,
    topic_key,
)

POSITIONS = st.integers(0, RING_MODULUS - 1)


@given(POSITIONS, POSITIONS)
def test_the_distance_is_that_of_the_shorter_way(one: int, other: int) -> None:
    assert distance(one, other) == distance(other, one)
    assert distance(one, other) == min(clockwise(one, other), clockwise(other, one))
    assert (one + clockwise(one, other)) % RING_MODULUS == other


@given(POSITIONS, st.one_of(POSITIONS, st.integers(0, 40)))
@example(0, RING_MODULUS // 2)
@example(RING_MODULUS // 2, RING_MODULUS // 2)
def test_the_boundary_of_two_neighbours_is_where_the_nearer_node_changes(
    node: int, gap: int
) -> None:
    """ID2"""
    successor = (node + gap) % RING_MODULUS
    first = boundary(node, successor)
    if gap == 0:
        assert first == node
        return
    assert closeness(first, successor) < closeness(first, node)
    before = (first - 1) % RING_MODULUS
    assert closeness(before, node) <= closeness(before, successor)


@given(POSITIONS, POSITIONS)
def test_digits_are_those_of_the_hexadecimal_form(one: int, other: int) -> None:
    texts = f"{one:032x}", f"{other:032x}"
    digits = [[digit(number, place) for place in range(DIGITS_COUNT)] for number in (one, other)]
    assert digits == [[int(character, 16) for character in text] for text in texts]
    shared = 0
    while shared < DIGITS_COUNT and texts[0][shared] == texts[1][shared]:
        shared += 1
    assert shared_digits(one, other) == shared


def test_a_topic_key_is_the_beginning_of_the_hash_of_its_name() -> None:
    # From `printf jornal | sha256sum`
    assert str(topic_key("jornal")) == "b4bf586aad905d1cca8e619b1cc6068b"


def test_an_id_depends_on_the_secret_and_the_address() -> None:
    ids = {
        node_id(secret, address)
        for secret in (b"one", b"two", b"")
        for address in ("10.0.0.1:4000", "10.0.0.1:4001", "a:4000")
    }
    assert len(ids) == 9
    assert node_id(b"one", "a:4000") == node_id(b"one", "a:4000")


@pytest.mark.parametrize(
    "address",
    ["node-7:1", "10.0.0.1:65535", "[::1]:4000", "[2001:db8::7]:4000", "a_b.example.org:80"],
)
def test_canonical_addresses_are_accepted(address: str) -> None:
    assert is_canonical(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a",
        "a:",
        ":1",
        "a:0",
        "a:01",
        "a:65536",
        "a:٣",
        "A:1",
        "a.:1",
        "-a:1",
        "a..b:1",
        "a b:1",
        "127.1:1",
        "127.0.0.01:1",
        "0x7f000001:1",
        "2130706433:1",
        "::1:1",
        "[::0001]:1",
        "[::ffff:10.0.0.1]:1",
        "[::1%eth0]:1",
        "[2001:DB8::7]:1",
        "[127.0.0.1]:1",
        "a\n:1",
        "é:1",
        "a" * 250 + ":1",
    ],
)
def test_another_spelling_of_an_address_has_no_id(address: str) -> None:
    """Otherwise a node could choose among the ids of all spellings of its address."""
    assert not is_canonical(address)
    with pytest.raises(InvalidAddressError):
        node_id(b"secret", address)


class Letter(msgspec.Struct, array_like=True):
    node: NodeId
    key: TopicKey


@given(POSITIONS, POSITIONS)
def test_identifiers_travel_as_sixteen_bytes(one: int, other: int) -> None:
    encoded = msgspec.msgpack.encode(
        Letter(NodeId(one), TopicKey(other)), enc_hook=encode_identifier
    )
    assert len(encoded) == 1 + 2 * (2 + 16)
    decoded = msgspec.msgpack.decode(encoded, type=Letter, dec_hook=decode_identifier)
    assert decoded == Letter(NodeId(one), TopicKey(other))
    assert type(decoded.node) is NodeId
    assert type(decoded.key) is TopicKey


@pytest.mark.parametrize("value", [b"", bytes(15), bytes(17), 7, "0" * 16, None])
def test_another_form_of_an_identifier_is_refused(value: object) -> None:
    encoded = msgspec.msgpack.encode([value, bytes(16)])
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(encoded, type=Letter, dec_hook=decode_identifier)
