"""Handshakes of hostile clients: valid, nearly valid, and as another user.

users   fuzz     may use the names of the fuzzer only
        argon    the same with a password that takes time to verify
        witness  may do everything; its password is not known here
"""

from __future__ import annotations

from random import Random
from typing import Final

from bench.fuzz import values
from recado.amqp.frames import (
    FRAME_MAX_DEFAULT_BYTES,
    FRAME_MIN_BYTES,
    PROTOCOL_HEADER,
    encode_method_frame,
)
from recado.amqp.methods import ConnectionOpen, ConnectionStartOk, ConnectionTuneOk
from recado.amqp.values import FieldTable, LongString, encode_table

PASSWORD: Final = b"hostile"

GREETINGS: Final = (
    b"AMQP\x00\x00\x09\x00",
    b"AMQP\x01\x01\x00\x09",
    b"AMQP\x00\x01\x00\x00",
    b"AMQP\x03\x01\x00\x00",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x00" * 64,
    b"AMQ",
)


def log_in(rng: Random, user: str = "fuzz") -> list[bytes]:
    """Return a valid handshake, in one of the variants of real clients."""
    return [PROTOCOL_HEADER, start_ok(rng, user, PASSWORD), *tune_and_open(rng)]


def start_ok(rng: Random, user: str, password: bytes) -> bytes:
    properties = client_properties(rng)
    if rng.random() < 0.5:
        response = b"\0" + user.encode() + b"\0" + password
        return encode_method_frame(0, ConnectionStartOk(properties, "PLAIN", response))
    login: FieldTable = {"LOGIN": user, "PASSWORD": LongString(password)}
    return encode_method_frame(
        0, ConnectionStartOk(properties, "AMQPLAIN", encode_table(login)[4:])
    )


def client_properties(rng: Random) -> FieldTable:
    capabilities: FieldTable = {
        capability: rng.random() < 0.7
        for capability in (
            "authentication_failure_close",
            "consumer_cancel_notify",
            "connection.blocked",
            "basic.nack",
        )
    }
    return {"product": "fuzz", "capabilities": capabilities, **values.table(rng)}


def tune_and_open(rng: Random) -> list[bytes]:
    tune = ConnectionTuneOk(
        rng.choice((0, 16, 2047)),
        rng.choice((0, FRAME_MIN_BYTES, FRAME_MAX_DEFAULT_BYTES)),
        rng.choice((0, 1, 60)),
    )
    return [encode_method_frame(0, tune), encode_method_frame(0, ConnectionOpen("/"))]


def refused(rng: Random) -> list[bytes]:
    """A handshake that must not succeed."""
    match rng.randrange(7):
        case 0:
            return [rng.choice(GREETINGS)]
        case 1:
            wrong = rng.choice((b"", b"guess", b"\0", PASSWORD + b"\0", b"x" * 4000))
            user = rng.choice(("fuzz", "argon", "nobody", "", "guest", "witness"))
            return [PROTOCOL_HEADER, start_ok(rng, user, wrong), *tune_and_open(rng)]
        case 2:
            # Straight to the goal, without a name.
            return [PROTOCOL_HEADER, *tune_and_open(rng)]
        case 3:
            mechanism = rng.choice(("EXTERNAL", "ANONYMOUS", "", "x" * 255, "plain"))
            method = ConnectionStartOk({}, mechanism, b"\0fuzz\0" + PASSWORD)
            return [PROTOCOL_HEADER, encode_method_frame(0, method), *tune_and_open(rng)]
        case 4:
            response = rng.choice((b"", b"\0\0", b"fuzz\0fuzz\0" + PASSWORD, b"\xff" * 9))
            method = ConnectionStartOk({}, rng.choice(("PLAIN", "AMQPLAIN")), response)
            return [PROTOCOL_HEADER, encode_method_frame(0, method)]
        case 5:
            limits = rng.choice(((65535, 0, 0), (0, 2**32 - 1, 0), (0, 1, 0), (0, 4095, 65535)))
            tune = encode_method_frame(0, ConnectionTuneOk(*limits))
            return [PROTOCOL_HEADER, start_ok(rng, "fuzz", PASSWORD), tune]
        case _:
            vhost = rng.choice(("", "elsewhere", "//", "x" * 255, "é"))
            opening = encode_method_frame(0, ConnectionOpen(vhost))
            return [*log_in(rng)[:3], opening]
