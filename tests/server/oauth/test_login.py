"""Logins with tokens over AMQP, new tokens of open connections, and the end of a connection with its token."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest

from recado.amqp.frames import PROTOCOL_HEADER, encode_content, encode_method_frame
from recado.amqp.methods import (
    BasicPublish,
    ConnectionClose,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
)
from recado.amqp.properties import Properties, encode_properties
from recado.broker.scopes import TokenUser
from recado.server import connection
from recado.server.oauth.claims import TokenRules
from recado.server.oauth.keys import LOAD_INTERVAL_S, KeySet
from recado.server.oauth.login import TokenLogin
from recado.server.oauth.verifier import TokenVerifier
from recado.server.refusal_log import INTERVAL_S
from recado.server.server import Server
from recado.server.throttle import FREE_FAILURES_COUNT

from ..harness import Guest, in_the_loop, new_server, skip, soon, turns
from .provider import RESOURCE, Provider, ec_key, rsa_key

ALL = ("read:*/*", "write:*/*", "configure:*/*")


class Clock:
    """The clock of the system, which a test changes."""

    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s

    async def skip(self, seconds: float) -> None:
        self.ahead_s += seconds
        await skip(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(connection, "now_ms", lambda: int(found.now() * 1000))
    return found


async def serve(provider: Provider, clock: Clock | None = None) -> Server:
    """Return a server that accepts the tokens of a provider, with its keys loaded."""
    server, algorithms = new_server(), ("RS256", "ES256")
    keys = KeySet(provider.document, "source", algorithms, server.loop.time)
    rules = TokenRules(RESOURCE, f"{RESOURCE}.")
    now = time.time if clock is None else clock.now
    server.authenticator.tokens = TokenLogin(server, TokenVerifier(rules, keys, algorithms, now))
    await soon(keys.load())
    return server


async def open_connection(server: Server, token: str, user: str = "") -> Guest:
    guest = Guest(server)
    close = await guest.greet(user, token.encode())
    assert close is None, close
    return guest


async def answers(guest: Guest, *methods: Method, channel: int = 0) -> list[Method]:
    guest.send(*((channel, method) for method in methods))
    await turns(20)
    return guest.methods()


# ── logins ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("username", ["", "anybody", "guest"])
@in_the_loop
async def test_the_user_is_that_of_the_token(username: str) -> None:
    """The user name that the client sends is ignored, as by RabbitMQ."""
    provider = Provider()
    guest = await open_connection(await serve(provider), provider.token(*ALL), username)
    assert await guest.call(QueueDeclare("q")) == [QueueDeclareOk("q", 0, 0)]
    access = guest.protocol.session.access
    assert access is not None
    assert access.user.name == "ana"


@in_the_loop
async def test_permissions_are_the_scopes() -> None:
    provider = Provider()
    guest = await open_connection(
        await serve(provider),
        provider.token("configure:*/mine-*", "write:*/mine-*", "write:*/amq.topic/eu.*"),
    )
    assert await guest.call(QueueDeclare("mine-1")) == [QueueDeclareOk("mine-1", 0, 0)]
    [close] = await guest.call(QueueDeclare("other"))
    assert "access to queue 'other' in vhost '/' refused for user 'ana'" in str(close)


@pytest.mark.parametrize(("key", "allowed"), [("eu.rio", True), ("us.rio", False)])
@in_the_loop
async def test_routing_keys_of_topic_exchanges(key: str, allowed: bool) -> None:
    provider = Provider()
    scope = "write:*/amq.topic/eu.*"
    guest = await open_connection(await serve(provider), provider.token(scope))
    publish = encode_method_frame(1, BasicPublish("amq.topic", key))
    guest.feed(publish + encode_content(1, encode_properties(Properties()), b"x", 131_072))
    await turns()
    refusals = [str(method) for method in guest.methods()]
    assert bool(refusals) is not allowed
    assert allowed or f"access to topic '{key}' in exchange 'amq.topic'" in refusals[0]


@in_the_loop
async def test_a_token_does_not_open_other_vhosts() -> None:
    provider = Provider()
    close = await Guest(await serve(provider)).greet("", provider.token("read:other/*").encode())
    assert close is not None
    assert close.reply_text == "NOT_ALLOWED - access to vhost '/' refused for user 'ana'"


@in_the_loop
async def test_refused_tokens(caplog: pytest.LogCaptureFixture) -> None:
    """The client is not told why. Passwords are not throttled because of them, nor other tokens."""
    provider = Provider()
    server = await serve(provider)
    refused = {
        "the token expired": provider.token(exp=time.time() - 5),
        "the token is for another audience": provider.token(aud="other"),
        "the token is not valid before": provider.token(nbf=time.time() + 60),
        "the token or its signature is not valid": Provider(rsa_key(1)).token(),
        "the header of the token is malformed": "ey.a.b",
    }
    texts = []
    for reason, token in refused.items():
        for _ in range(FREE_FAILURES_COUNT):
            close = await Guest(server).greet("guest", token.encode())
            assert close is not None
            texts.append(close.reply_text)
        assert caplog.text.count(f"login refused: {reason}") == 1, "once for all of them"
        assert token not in caplog.text
        await skip(INTERVAL_S + 1)
        await skip(INTERVAL_S + 1)
    mechanism = "Login was refused using authentication mechanism PLAIN."
    assert {text.startswith(f"ACCESS_REFUSED - {mechanism}") for text in texts} == {True}
    assert len(set(texts)) == 1
    await open_connection(server, provider.token(*ALL), "guest")
    assert await Guest(server).greet() is None


@in_the_loop
async def test_passwords_stay_possible() -> None:
    server = await serve(Provider())
    assert await Guest(server).greet() is None
    assert await Guest(server).greet(password=b"wrong") is not None


@in_the_loop
async def test_without_the_setting_a_token_is_a_password() -> None:
    server = new_server()
    assert await Guest(server).greet("guest", Provider().token(*ALL).encode()) is not None
    assert await server.authenticator.check_token(Provider().token(*ALL).encode(), "::1") is None


@in_the_loop
async def test_a_login_waits_for_a_new_key() -> None:
    provider = Provider()
    server = await serve(provider)
    provider.rotate(ec_key(), "two")
    await skip(LOAD_INTERVAL_S)
    guest = await open_connection(server, provider.token(*ALL))
    assert await guest.call(QueueDeclare("q")) == [QueueDeclareOk("q", 0, 0)]


@in_the_loop
async def test_a_login_that_waits_is_refused_if_there_is_no_such_key() -> None:
    provider = Provider()
    server = await serve(provider)
    await skip(LOAD_INTERVAL_S)
    close = await Guest(server).greet("", provider.token(header={"kid": "other"}).encode())
    assert close is not None
    assert close.reply_code == 403


@pytest.mark.parametrize("kid", ["one", "other"])
@in_the_loop
async def test_a_client_that_leaves_while_its_key_is_loaded(kid: str) -> None:
    provider = Provider()
    server = await serve(provider)
    provider.rotate(ec_key(), "two")
    await skip(LOAD_INTERVAL_S)
    guest = Guest(server)
    token = provider.token(*ALL, header={"kid": "two" if kid == "one" else kid})
    greeting = asyncio.ensure_future(guest.greet("", token.encode()))
    await turns()
    guest.wire.abort()
    assert server.authenticator.tokens is not None
    await soon(asyncio.wait(server.authenticator.tokens.tasks))
    await turns()
    assert [method.name for method in guest.methods()] == []
    greeting.cancel()


# ── the end of a token ────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_a_connection_ends_with_its_token(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    server = await serve(provider, clock)
    guest = await open_connection(server, provider.token(*ALL, exp=time.time() + 300))
    for _ in range(5):
        await clock.skip(59)
    assert guest.methods() == []
    await clock.skip(6)
    [close] = guest.methods()
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 320
    assert close.reply_text == (
        "CONNECTION_FORCED - broker forced connection closure with reason 'credential expired'"
    )
    assert "closing connection: token expired (peer=127.0.0.1)" in caplog.text


@in_the_loop
async def test_the_clock_of_the_system_decides(clock: Clock) -> None:
    """It may be set while a connection is open."""
    provider = Provider()
    server = await serve(provider, clock)
    guest = await open_connection(server, provider.token(*ALL, exp=time.time() + 100_000))
    clock.ahead_s += 100_001
    await skip(60)
    [close] = guest.methods()
    assert close.name == "connection.close"


@in_the_loop
async def test_a_token_that_expires_during_the_handshake(clock: Clock) -> None:
    provider = Provider()
    server = await serve(provider, clock)
    guest = Guest(server)
    guest.feed(PROTOCOL_HEADER)
    token = provider.token(*ALL, exp=time.time() + 3)
    greeting = asyncio.ensure_future(guest.greet("", token.encode()))
    await turns(1)
    greeting.cancel()
    await clock.skip(5)
    assert not guest.wire.open or guest.wire.ended or guest.methods()


@in_the_loop
async def test_a_closed_connection_leaves_no_timer(clock: Clock) -> None:
    provider = Provider()
    server = await serve(provider, clock)
    guest = await open_connection(server, provider.token(*ALL))
    wire = weakref.ref(guest.wire)
    guest.wire.abort()
    await turns()
    del guest
    gc.collect()
    assert wire() is None


# ── new tokens ────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_a_new_token_prolongs_the_connection(clock: Clock) -> None:
    provider = Provider()
    server = await serve(provider, clock)
    guest = await open_connection(server, provider.token(*ALL, exp=time.time() + 50))
    new = provider.token(*ALL, exp=time.time() + 500).encode()
    assert await answers(guest, ConnectionUpdateSecret(new, "x")) == [ConnectionUpdateSecretOk()]
    await clock.skip(55)
    assert await guest.call(QueueDeclare("q")) == [QueueDeclareOk("q", 0, 0)]
    for _ in range(8):
        await clock.skip(59)
    [close] = guest.methods()
    assert close.name == "connection.close"


@in_the_loop
async def test_a_new_token_changes_the_permissions() -> None:
    """Of this connection, for its open channels as well; not of another one with the same user."""
    provider = Provider()
    server = await serve(provider)
    guest, other = [await open_connection(server, provider.token(*ALL)) for _ in range(2)]
    new = provider.token("configure:%2F/new-*").encode()
    assert await answers(guest, ConnectionUpdateSecret(new, "")) == [ConnectionUpdateSecretOk()]
    assert await guest.call(QueueDeclare("new-1")) == [QueueDeclareOk("new-1", 0, 0)]
    [close] = await guest.call(QueueDeclare("q"))
    assert close.name == "channel.close"
    assert await other.call(QueueDeclare("q")) == [QueueDeclareOk("q", 0, 0)]


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": "eve"}, "the new token is of another user"),
        ({"scope": "rabbitmq.read:other/*"}, "the new token is not for the vhost"),
        ({"exp": 5}, "the token expired"),
        ({"aud": "other"}, "the token is for another audience"),
    ],
)
@in_the_loop
async def test_refused_new_tokens(
    claims: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    guest = await open_connection(await serve(provider), provider.token(*ALL))
    new = provider.token(*ALL, **claims)
    [close] = await answers(guest, ConnectionUpdateSecret(new.encode(), ""))
    assert isinstance(close, ConnectionClose)
    assert (close.reply_code, close.failed_class, close.failed_method) == (530, 10, 70)
    assert close.reply_text == "NOT_ALLOWED - New secret was refused by one of the backends"
    assert f"new token refused: {reason}" in caplog.text
    assert new not in caplog.text


@pytest.mark.parametrize("secret", [b"", b"secret", b"\xff", b"x" * 20_000])
@in_the_loop
async def test_a_password_does_not_replace_a_token(secret: bytes) -> None:
    provider = Provider()
    guest = await open_connection(await serve(provider), provider.token(*ALL))
    [close] = await answers(guest, ConnectionUpdateSecret(secret, ""))
    assert close.name == "connection.close"


@in_the_loop
async def test_a_new_token_with_a_new_key(clock: Clock) -> None:
    """It is confirmed when the key is loaded; the client may work meanwhile."""
    provider = Provider()
    server = await serve(provider, clock)
    guest = await open_connection(server, provider.token(*ALL))
    provider.rotate(ec_key(), "two")
    await skip(LOAD_INTERVAL_S)
    new = provider.token("read:*/*").encode()
    guest.send((0, ConnectionUpdateSecret(new, "")), (1, QueueDeclare("q")))
    assert server.authenticator.tokens is not None
    await soon(asyncio.wait(server.authenticator.tokens.tasks))
    await turns()
    assert {method.name for method in guest.methods()} == {
        "connection.update-secret-ok",
        "queue.declare-ok",
    }
    [close] = await guest.call(QueueDeclare("q2"))
    assert close.name == "channel.close"


@in_the_loop
async def test_a_refused_new_token_with_an_unknown_key() -> None:
    provider = Provider()
    server = await serve(provider)
    guest = await open_connection(server, provider.token(*ALL))
    await skip(LOAD_INTERVAL_S)
    new = provider.token(*ALL, header={"kid": "other"}).encode()
    guest.send((0, ConnectionUpdateSecret(new, "")))
    await soon(guest.wire.wrote.wait())
    [close] = guest.methods()
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 530


@in_the_loop
async def test_a_connection_that_closes_while_its_new_key_is_loaded() -> None:
    provider = Provider()
    server = await serve(provider)
    guest = await open_connection(server, provider.token(*ALL))
    provider.rotate(ec_key(), "two")
    await skip(LOAD_INTERVAL_S)
    guest.send((0, ConnectionUpdateSecret(provider.token(*ALL).encode(), "")))
    guest.send((0, ConnectionClose(200, "bye")))
    assert server.authenticator.tokens is not None
    await soon(asyncio.wait(server.authenticator.tokens.tasks))
    await turns()
    assert [method.name for method in guest.methods()] == ["connection.close-ok"]


@in_the_loop
async def test_a_user_with_a_password_may_send_any_secret() -> None:
    guest = Guest(await serve(Provider()))
    assert await guest.greet() is None
    for secret in (b"new", Provider().token().encode()):
        answer = await answers(guest, ConnectionUpdateSecret(secret, ""))
        assert answer == [ConnectionUpdateSecretOk()]
    access = guest.protocol.session.access
    assert access is not None
    assert not isinstance(access.user, TokenUser)
