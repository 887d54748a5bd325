"""The signature of tokens: algorithms, keys and their rotation, and everything that is not a valid token."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from recado.server.oauth import verifier as module
from recado.server.oauth.claims import TokenError, TokenRules
from recado.server.oauth.keys import LOAD_INTERVAL_S, KeySet
from recado.server.oauth.source import KeySourceError
from recado.server.oauth.verifier import TOKEN_MAX_BYTES, VERIFIED_MAX_COUNT, TokenVerifier

from ..harness import in_the_loop, skip, soon
from .provider import ISSUER, RESOURCE, PrivateKey, Provider, document, ec_key, publish, rsa_key

ALL = ("RS256", "RS384", "PS256", "ES256", "EdDSA")


def new_verifier(
    provider: Provider | Callable[[], bytes],
    algorithms: tuple[str, ...] = ALL,
    now: Callable[[], float] = time.time,
) -> TokenVerifier:
    """Return a verifier with the keys of a provider, which are not loaded yet."""
    read = provider.document if isinstance(provider, Provider) else provider
    keys = KeySet(read, "source", algorithms, asyncio.get_running_loop().time)
    rules = TokenRules(RESOURCE, f"{RESOURCE}.", issuer=ISSUER)
    return TokenVerifier(rules, keys, algorithms, now)


async def loaded(verifier: TokenVerifier) -> TokenVerifier:
    await soon(verifier.keys.load())
    return verifier


def refuse(verifier: TokenVerifier, token: str | bytes) -> str:
    with pytest.raises(TokenError) as refusal:
        verifier.check_now(token.encode() if isinstance(token, str) else token)
    return str(refusal.value)


def encode(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# ── valid ones ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "PS256", "ES256", "EdDSA"])
@in_the_loop
async def test_algorithms(algorithm: str) -> None:
    keys: dict[str, PrivateKey] = {"ES256": ec_key(), "EdDSA": Ed25519PrivateKey.generate()}
    provider = Provider(keys.get(algorithm, rsa_key()))
    verifier = await loaded(new_verifier(provider))
    user = verifier.check_now(provider.token("read:*/*", algorithm=algorithm).encode())
    assert user is not None
    assert user.name == "ana"
    assert user.may_enter("/")


@in_the_loop
async def test_a_token_without_the_id_of_its_key() -> None:
    provider = Provider()
    verifier = await loaded(new_verifier(provider))
    token = jwt.encode(provider.claims(), provider.key, "RS256")
    assert verifier.check_now(token.encode()) is not None


@in_the_loop
async def test_the_user_of_a_token_is_kept_while_it_is_valid() -> None:
    provider, clock = Provider(), [time.time()]
    verifier = await loaded(new_verifier(provider, now=lambda: clock[0]))
    token = provider.token("read:*/*").encode()
    user = verifier.check_now(token)
    assert verifier.check_now(token) is user
    clock[0] += 601
    assert "expired" in refuse(verifier, token)


@in_the_loop
async def test_kept_users_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERIFIED_MAX_COUNT", 2)
    assert VERIFIED_MAX_COUNT > 2
    provider = Provider(ec_key())
    verifier = await loaded(new_verifier(provider))
    tokens = [provider.token(jti=str(number)).encode() for number in range(3)]
    users = [verifier.check_now(token) for token in tokens]
    assert verifier.check_now(tokens[1]) is users[1]
    assert verifier.check_now(tokens[2]) is users[2]
    assert verifier.check_now(tokens[0]) is not users[0]


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_keys_rotate() -> None:
    provider = Provider()
    verifier = new_verifier(provider)
    first = provider.token().encode()
    assert verifier.check_now(first) is None, "the keys are not loaded yet"
    user = await verifier.check(first)
    assert user.name == "ana"
    provider.rotate(ec_key(), "two")
    second = provider.token().encode()
    assert refuse(verifier, second) == "the key of the token is unknown (kid='two')"
    await skip(LOAD_INTERVAL_S)
    assert verifier.check_now(second) is None
    assert (await verifier.check(second)).name == "ana"
    assert provider.requests == 2
    assert "unknown (kid='one')" in refuse(verifier, first), "also if it was accepted before"


@in_the_loop
async def test_invented_keys_do_not_load_more_often() -> None:
    provider = Provider()
    verifier = await loaded(new_verifier(provider))
    for number in range(50):
        token = provider.token(header={"kid": str(number)}).encode()
        with pytest.raises(TokenError, match="unknown"):
            await verifier.check(token)
    assert provider.requests == 1


@in_the_loop
async def test_the_key_of_another_token_does_not_help() -> None:
    """A token signed by a stranger who names the id of a known key."""
    provider, stranger = Provider(), Provider(rsa_key(1))
    verifier = await loaded(new_verifier(provider))
    assert refuse(verifier, stranger.token()) == "the token or its signature is not valid"


@in_the_loop
async def test_keys_that_cannot_be_loaded() -> None:
    def fail() -> bytes:
        raise KeySourceError("unreachable")

    verifier = new_verifier(fail)
    token = Provider().token().encode()
    for _ in range(2):
        with pytest.raises(TokenError, match="unknown"):
            await verifier.check(token)


@in_the_loop
async def test_not_too_many_logins_wait_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX_COUNT", 3)
    provider = Provider()
    verifier = new_verifier(provider)
    tokens = [provider.token(jti=str(number)).encode() for number in range(5)]
    results = await asyncio.gather(*map(verifier.check, tokens), return_exceptions=True)
    refused = [str(result) for result in results if isinstance(result, TokenError)]
    assert refused == ["too many logins wait for the keys of their tokens"] * 2
    assert (await verifier.check(tokens[0])).name == "ana"


@in_the_loop
async def test_a_login_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEY_TIMEOUT_S", 0.01)
    answered = asyncio.Event()

    async def load() -> None:
        await answered.wait()

    verifier = new_verifier(Provider())
    monkeypatch.setattr(verifier.keys, "load", load)
    with pytest.raises(TokenError, match="could not be loaded in time"):
        await verifier.check(Provider().token().encode())


@in_the_loop
async def test_a_load_that_takes_longer_than_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load() -> None:
        pass

    verifier = new_verifier(Provider())
    monkeypatch.setattr(verifier.keys, "load", load)
    with pytest.raises(TokenError, match="the key of the token is unknown"):
        await verifier.check(Provider().token().encode())


# ── forged ones ───────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_no_signature() -> None:
    provider = Provider()
    verifier = await loaded(new_verifier(provider))
    for algorithm in ("none", "None", "NONE", ""):
        header = {"alg": algorithm, "kid": "one"}
        token = f"{encode(header)}.{encode(provider.claims())}."
        assert "algorithm of the token is not allowed" in refuse(verifier, token)
    head, payload, _ = provider.token().split(".")
    assert refuse(verifier, f"{head}.{payload}.") == "the token or its signature is not valid"


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
@in_the_loop
async def test_a_public_key_is_not_a_shared_secret(encoding: Encoding) -> None:
    """The classic forgery: HS256 with the public key, which everybody knows, as the secret."""
    provider = Provider()
    verifier = await loaded(new_verifier(provider))
    secret = provider.key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encode({'alg': 'HS256', 'kid': 'one'})}.{encode(provider.claims())}"
    digest = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    answer = refuse(verifier, f"{signed}.{encode(digest)}")
    assert answer == "the algorithm of the token is not allowed (alg='HS256')"


@in_the_loop
async def test_only_allowed_algorithms() -> None:
    provider = Provider()
    verifier = await loaded(new_verifier(provider, ("RS256",)))
    assert verifier.check_now(provider.token().encode()) is not None
    assert "not allowed (alg='RS384')" in refuse(verifier, provider.token(algorithm="RS384"))


@in_the_loop
async def test_an_algorithm_of_another_kind_of_key() -> None:
    provider = Provider()
    verifier = await loaded(new_verifier(provider))
    stranger = Provider(ec_key())
    assert "not for its algorithm (kid='one')" in refuse(verifier, stranger.token())
    limited = document(publish(rsa_key(), "one", alg="RS256"))
    verifier = await loaded(new_verifier(lambda: limited))
    assert "not for its algorithm" in refuse(verifier, provider.token(algorithm="RS384"))


@in_the_loop
async def test_changed_parts() -> None:
    provider = Provider(ec_key())
    verifier = await loaded(new_verifier(provider))
    head, payload, signature = provider.token("read:*/*").split(".")
    more = encode({**provider.claims(), "scope": ["rabbitmq.tag:administrator"]})
    other_head = encode({"alg": "ES256", "kid": "one", "typ": "other"})
    for token in (
        f"{head}.{more}.{signature}",
        f"{other_head}.{payload}.{signature}",
        f"{head}.{payload}.{signature[:-4]}",
        f"{head}.{payload}.{signature}.{signature}",
        f"{head}.{payload}.AAAA",
        f"{head}.{payload}.!",
        f"{head}.!.{signature}",
        f"{head}..{signature}",
    ):
        assert refuse(verifier, token) == "the token or its signature is not valid"


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"], "exp": 1},
        {"crit": []},
        {"crit": ["b64"], "b64": False},
        {"b64": False},
    ],
)
@in_the_loop
async def test_extensions_that_are_not_understood(header: dict[str, object]) -> None:
    provider = Provider()
    verifier = await loaded(new_verifier(provider))
    signed = f"{encode({'alg': 'RS256', 'kid': 'one', **header})}.{encode(provider.claims())}"
    algorithm = jwt.get_algorithm_by_name("RS256")
    signature = algorithm.sign(signed.encode(), provider.key)
    assert refuse(verifier, f"{signed}.{encode(signature)}") == (
        "the token or its signature is not valid"
    )


@in_the_loop
async def test_keys_in_the_token_are_not_used() -> None:
    stranger = Provider(rsa_key(1))
    verifier = await loaded(new_verifier(Provider()))
    for header in (
        {"jwk": publish(rsa_key(1), "one")},
        {"jku": "https://stranger.test/jwks.json"},
        {"x5u": "https://stranger.test/certificate.pem"},
    ):
        assert "signature" in refuse(verifier, stranger.token(header=header))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"ey",
        b"ey..",
        b"...",
        b"\xff\xfe.a.b",
        b"eyJ\x00.a.b",
        b"e30.e30.e30",
        encode([]).encode() + b".a.b",
        encode({"alg": 5}).encode() + b".a.b",
        encode({"alg": "RS256", "kid": 5}).encode() + b".a.b",
        encode({"alg": "RS256", "kid": ["one"]}).encode() + b".a.b",
        encode(b"[" * 3_000).encode() + b".a.b",
        encode(b'{"alg": "RS256", "kid": "one", "x": ' + b"[" * 2_000).encode() + b".a.b",
        encode({"alg": "RS256", "kid": "one", "x": "x" * 4_000}).encode() + b".a.b",
        b"ey" + b"a" * TOKEN_MAX_BYTES + b".a.b",
        b"ey." + b"a" * TOKEN_MAX_BYTES + b".b",
        b"ey" + b"." * TOKEN_MAX_BYTES,
    ],
)
@in_the_loop
async def test_garbage(token: bytes) -> None:
    """It is refused with a reason, and the reason does not repeat it."""
    verifier = await loaded(new_verifier(Provider()))
    assert len(refuse(verifier, token)) < 100


@pytest.mark.parametrize("payload", [b"", b"5", b"[]", b"null", b"{", b"[" * 5_000, b"\xff"])
@in_the_loop
async def test_signed_garbage(payload: bytes) -> None:
    provider = Provider()
    verifier = await loaded(new_verifier(provider))
    token = jwt.PyJWS().encode(payload, rsa_key(), "RS256", headers={"kid": "one"})
    assert refuse(verifier, token) == "the token or its signature is not valid"


@in_the_loop
async def test_reasons_do_not_repeat_long_names_of_keys() -> None:
    verifier = await loaded(new_verifier(Provider()))
    token = Provider().token(header={"kid": "k" * 500})
    assert refuse(verifier, token) == f"the key of the token is unknown (kid='{'k' * 64}')"
