"""How a connection begins: proofs that fit one connection, and one end of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.errors import InvalidFrameError
from recado.actors.remote.tcp.handshake import HELLO_BYTES, MAGIC, Handshake
from recado.actors.remote.wire.frame import FrameAuthenticator, FrameSigner

cookies = st.sampled_from(["", "one", "another"])
challenges = st.binary(min_size=16, max_size=16)


@given(cookies, cookies, challenges, challenges, st.booleans(), st.booleans())
def test_two_ends_accept_each_other_if_their_cookies_allow_it(
    one: str, other: str, first: bytes, second: bytes, strict: bool, also_strict: bool
) -> None:
    caller_seal = FrameAuthenticator(one, required=strict and bool(one))
    called_seal = FrameAuthenticator(other, required=also_strict and bool(other))
    caller = Handshake(caller_seal, first, is_initiator=True)
    called = Handshake(called_seal, second, is_initiator=False)
    assert len(caller.hello) == HELLO_BYTES
    from_caller, from_called = caller.respond(called.hello), called.respond(caller.hello)
    assert bool(called.verify_proof(from_caller)) == (one == other or (not one and not also_strict))
    assert bool(caller.verify_proof(from_called)) == (one == other or (not other and not strict))


def ends(first: bytes, second: bytes) -> tuple[Handshake, Handshake]:
    seal = FrameAuthenticator("secret", required=True)
    return Handshake(seal, first, is_initiator=True), Handshake(seal, second, is_initiator=False)


def test_a_proof_is_worth_nothing_on_another_connection() -> None:
    caller, called = ends(bytes(16), b"1" * 16)
    proof = caller.respond(called.hello)
    called.respond(caller.hello)
    assert called.verify_proof(proof)
    _, next_life = ends(bytes(16), b"2" * 16)
    next_life.respond(caller.hello)
    assert not next_life.verify_proof(proof)


def test_a_proof_is_not_accepted_from_the_wrong_end() -> None:
    caller, called = ends(bytes(16), bytes(16))
    assert not caller.verify_proof(caller.respond(called.hello))
    assert not called.verify_proof(called.respond(caller.hello))


def test_no_mac_of_a_frame_is_a_proof() -> None:
    caller, called = ends(bytes(16), b"1" * 16)
    called.respond(caller.hello)
    frame = FrameSigner(FrameAuthenticator("secret"), bytes(16)).sign(caller.hello + called.hello)
    assert not called.verify_proof(frame[25:41])


def test_what_is_no_greeting_is_told() -> None:
    caller, _ = ends(bytes(16), bytes(16))
    with pytest.raises(InvalidFrameError, match="not a recado actor node"):
        caller.respond(b"HTTP/1.1 400 Bad Request")
    assert caller.hello.startswith(MAGIC)
