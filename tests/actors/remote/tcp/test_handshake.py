"""How a connection begins: proofs that fit one connection, and one end of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.faults import BadFrame
from recado.actors.remote.sealed.frame import Seal, Sealer
from recado.actors.remote.tcp.handshake import GREETING, MAGIC, Handshake

cookies = st.sampled_from(["", "one", "another"])
challenges = st.binary(min_size=16, max_size=16)


@given(cookies, cookies, challenges, challenges, st.booleans(), st.booleans())
def test_two_ends_accept_each_other_if_their_cookies_allow_it(
    one: str, other: str, first: bytes, second: bytes, strict: bool, also_strict: bool
) -> None:
    caller_seal = Seal(one, required=strict and bool(one))
    called_seal = Seal(other, required=also_strict and bool(other))
    caller = Handshake(caller_seal, first, calls=True)
    called = Handshake(called_seal, second, calls=False)
    assert len(caller.greeting) == GREETING
    from_caller, from_called = caller.answer(called.greeting), called.answer(caller.greeting)
    assert bool(called.accepts(from_caller)) == (one == other or (not one and not also_strict))
    assert bool(caller.accepts(from_called)) == (one == other or (not other and not strict))


def ends(first: bytes, second: bytes) -> tuple[Handshake, Handshake]:
    seal = Seal("secret", required=True)
    return Handshake(seal, first, calls=True), Handshake(seal, second, calls=False)


def test_a_proof_is_worth_nothing_on_another_connection() -> None:
    caller, called = ends(bytes(16), b"1" * 16)
    proof = caller.answer(called.greeting)
    called.answer(caller.greeting)
    assert called.accepts(proof)
    _, next_life = ends(bytes(16), b"2" * 16)
    next_life.answer(caller.greeting)
    assert not next_life.accepts(proof)


def test_a_proof_is_not_accepted_from_the_wrong_end() -> None:
    caller, called = ends(bytes(16), bytes(16))
    assert not caller.accepts(caller.answer(called.greeting))
    assert not called.accepts(called.answer(caller.greeting))


def test_no_mac_of_a_frame_is_a_proof() -> None:
    caller, called = ends(bytes(16), b"1" * 16)
    called.answer(caller.greeting)
    frame = Sealer(Seal("secret"), bytes(16)).seal(caller.greeting + called.greeting)
    assert not called.accepts(frame[25:41])


def test_what_is_no_greeting_is_told() -> None:
    caller, _ = ends(bytes(16), bytes(16))
    with pytest.raises(BadFrame, match="not a node"):
        caller.answer(b"HTTP/1.1 400 Bad Request")
    assert caller.greeting.startswith(MAGIC)
