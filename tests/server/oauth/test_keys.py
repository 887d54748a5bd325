"""The keys of the provider: which are used, and when they are loaded."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from recado.server.oauth.keys import LOAD_INTERVAL_S, REFRESH_INTERVAL_S, KeySet, parse_keys
from recado.server.oauth.source import KeySourceError

from ..harness import in_the_loop, skip, soon
from .provider import document, ec_key, publish, rsa_key

ALL = ("RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA")


def algorithms_of(*members: dict[str, object]) -> dict[str | None, tuple[str, ...]]:
    found = parse_keys(document(*members), ALL)
    return {kid: key.algorithms for kid, key in found.items() if kid is not None}


def refuse(data: bytes) -> str:
    with pytest.raises(KeySourceError) as refusal:
        parse_keys(data, ALL)
    return str(refusal.value)


# ── documents ─────────────────────────────────────────────────────────────────────────────────────────────


def test_each_kind_of_key_has_its_algorithms() -> None:
    found = algorithms_of(
        publish(rsa_key(), "rsa"),
        publish(ec_key(), "p256"),
        publish(ec_key(ec.SECP384R1()), "p384"),
        publish(ec_key(ec.SECP521R1()), "p521"),
        publish(ed25519.Ed25519PrivateKey.generate(), "ed"),
        publish(rsa_key(), "pss", alg="PS256", use="sig"),
    )
    assert found == {
        "rsa": ("RS256", "PS256"),
        "p256": ("ES256",),
        "p384": ("ES384",),
        "p521": ("ES512",),
        "ed": ("EdDSA",),
        "pss": ("PS256",),
    }


@pytest.mark.parametrize(
    "member",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "x"},  # a shared secret
        {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "x"},
        publish(rsa_key(), "x", use="enc"),
        publish(rsa_key(), "x", alg="HS256"),
        publish(rsa_key(), "x", alg="RS512"),
        publish(rsa_key(), "x", alg="ES256"),
        publish(rsa_key(), "x", alg="none"),
        publish(rsa_key(), "x", alg=["RS256"]),
        publish(rsa.generate_private_key(65537, 1024), "x"),
        publish(ec_key(ec.SECP256K1()), "x"),
        {**publish(ec_key(), "x"), "crv": "P-384"},
        {**publish(ec_key(), "x"), "crv": ["P-256"]},
        {"kty": "OKP", "crv": "X25519", "x": "AAAA", "kid": "x"},
        {"kty": "RSA", "kid": "x"},
        {"kty": "RSA", "n": 5, "e": "AQAB", "kid": "x"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "x"},
        {"kty": ["RSA"], "kid": "x"},
        {"kid": "x"},
        {},
        {**publish(rsa_key()), "kid": 5},
        {**publish(rsa_key()), "kid": ["x"]},
    ],
)
def test_other_keys_are_skipped(member: dict[str, object]) -> None:
    assert algorithms_of(member, publish(rsa_key(), "good")) == {"good": ("RS256", "PS256")}
    assert refuse(document(member)).startswith("no usable key")


def test_private_parts_are_not_read() -> None:
    """Some providers publish too much; then the key is still that of the public part."""
    key = parse_keys(document(publish(rsa_key(), "x", d="AQAB", p="AQAB")), ALL)["x"]
    assert key.public_key == rsa_key().public_key()


def test_the_first_of_two_with_one_id_is_used() -> None:
    keys = parse_keys(document(publish(rsa_key(0), "x"), publish(rsa_key(1), "x")), ALL)
    assert keys["x"].public_key == rsa_key(0).public_key()


def test_a_single_key_is_that_of_tokens_without_an_id() -> None:
    assert parse_keys(document(publish(rsa_key(), "x")), ALL)[None].public_key is not None
    assert parse_keys(document(publish(rsa_key())), ALL).keys() == {None}
    two = document(publish(rsa_key(0), "x"), publish(rsa_key(1), "y"))
    assert parse_keys(two, ALL).keys() == {"x", "y"}


@pytest.mark.parametrize(
    "data",
    [b"", b"no JSON", b"[]", b'{"keys": {}}', b'{"keys": [5]}', b"{}", b"[" * 200_000, b"\xff"],
)
def test_malformed_documents(data: bytes) -> None:
    assert refuse(data) == "not a JSON Web Key Set"


def test_too_many_keys() -> None:
    assert refuse(document(*[{}] * 101)) == "more than 100 keys"
    assert refuse(document()).startswith("no usable key")


# ── loading ───────────────────────────────────────────────────────────────────────────────────────────────


class Source:
    """A document that a test replaces; `gate` keeps a read from ending."""

    def __init__(self) -> None:
        self.document: bytes | None = document(publish(rsa_key(), "one"))
        self.reads = 0
        self.gate = threading.Event()
        self.gate.set()

    def read(self) -> bytes:
        self.reads += 1
        self.gate.wait(60)
        if self.document is None:
            raise KeySourceError("unreachable")
        return self.document

    def key_set(self) -> KeySet:
        return KeySet(self.read, "source", ALL, asyncio.get_running_loop().time)


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(0.001)

    await soon(wait())


@in_the_loop
async def test_keys_are_loaded_at_the_start_and_from_time_to_time() -> None:
    source = Source()
    keys = source.key_set()
    keys.start()
    await until(lambda: keys.find("one") is not None)
    source.document = document(publish(rsa_key(1), "two"))
    await skip(REFRESH_INTERVAL_S)
    await until(lambda: keys.find("two") is not None)
    assert keys.find("one") is None, "a key that the provider withdrew is not trusted"
    assert source.reads == 2
    await keys.stop()


@in_the_loop
async def test_tokens_cause_one_load_per_interval() -> None:
    source = Source()
    keys = source.key_set()
    assert keys.can_load
    await soon(keys.load())
    answers = [keys.can_load]
    for seconds in (LOAD_INTERVAL_S - 0.5, 0.5):
        await skip(seconds)
        answers.append(keys.can_load)
    assert answers == [False, False, True]


@in_the_loop
async def test_several_wait_for_one_load() -> None:
    source = Source()
    source.gate.clear()
    keys = source.key_set()
    loads = [asyncio.ensure_future(keys.load()) for _ in range(5)]
    await until(lambda: source.reads == 1)
    assert keys.can_load, "it is being loaded"
    loads[0].cancel()
    source.gate.set()
    await soon(asyncio.wait(loads))
    assert source.reads == 1
    assert keys.find("one") is not None


@in_the_loop
async def test_a_failure_keeps_the_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "recado.server")
    source = Source()
    keys = source.key_set()
    await soon(keys.load())
    version = keys.version
    for broken in (None, b"nonsense", document()):
        source.document = broken
        await soon(keys.load())
        assert keys.find("one") is not None
    assert keys.version == version
    assert [line.split(":")[0] for line in caplog.messages] == [
        "OAuth keys loaded (source=source keys=1)",
        *["OAuth keys not loaded"] * 3,
    ]
    assert caplog.messages[1] == "OAuth keys not loaded: unreachable (source=source)"


@in_the_loop
async def test_the_version_grows_with_each_change() -> None:
    source = Source()
    keys = source.key_set()
    await soon(keys.load())
    version = keys.version
    await soon(keys.load())
    assert keys.version == version
    source.document = document(publish(rsa_key(1), "one"))
    await soon(keys.load())
    assert keys.version > version


@in_the_loop
async def test_stopping_does_not_wait_for_a_read() -> None:
    source = Source()
    source.gate.clear()
    keys = source.key_set()
    keys.start()
    await until(lambda: source.reads == 1)
    await soon(keys.stop())
    source.gate.set()
    await Source().key_set().stop()
