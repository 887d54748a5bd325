"""Logins with OAuth 2 tokens by pika, aio-pika and over HTTP, with the keys of a provider over HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import aio_pika
import pika
import pytest
from pika import BlockingConnection
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

import recado
from recado.server.oauth import keys

from ..console.http import Api
from ..server.oauth.provider import ISSUER, RESOURCE, Provider, ec_key, rsa_key

LIFETIME_S = 4  # of a token that expires: long enough for some logins
ALL = ("read:*/*", "write:*/*", "configure:*/*")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def broker(provider: Provider) -> Iterator[recado.Broker]:
    with provider.serve() as url:
        config: dict[str, dict[str, object]] = {
            "oauth": {
                "resource_server_id": RESOURCE,
                "jwks_url": url,
                "issuer": ISSUER,
                "leeway": 0.0,
                "preferred_username_claims": ["user_name"],
            },
            "management": {"port": 0},
            "access": {"vhosts": ["/", "orders"]},
        }
        with recado.Broker(config=config) as running:
            yield running


def log_in(broker: recado.Broker, token: str, vhost: str = "/") -> BlockingConnection:
    credentials = pika.PlainCredentials("ignored", token)
    parameters = pika.ConnectionParameters(
        "127.0.0.1", broker.port, vhost, credentials, blocked_connection_timeout=60
    )
    return BlockingConnection(parameters)


def open_api(broker: recado.Broker, token: str, scheme: str = "Bearer") -> Api:
    assert broker.management_port is not None
    if scheme == "Basic":
        return Api(broker.management_port, "ignored", token)
    return Api(broker.management_port, headers={"authorization": f"{scheme} {token}"})


# ── AMQP ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_of_a_user_with_a_token(broker: recado.Broker, provider: Provider) -> None:
    with log_in(broker, provider.token(*ALL)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"hello", pika.BasicProperties(user_id="ana"))
        assert channel.basic_get("q", auto_ack=True)[2] == b"hello"
        [found] = Api(broker.management_port or 0).get("/api/connections")
        assert (found["user"], found["auth_mechanism"]) == ("ana", "PLAIN")


def test_refused_operations(broker: recado.Broker, provider: Provider) -> None:
    token = provider.token("configure:*/mine", "write:orders/mine", "read:*/*", user_name="joe")
    with log_in(broker, token, "orders") as connection:
        channel = connection.channel()
        channel.queue_declare("mine")
        with pytest.raises(ChannelClosedByBroker, match="refused for user 'joe'"):
            channel.queue_declare("other")
    with pytest.raises(ProbableAccessDeniedError, match="access to vhost '/' refused"):
        log_in(broker, provider.token("read:orders/*"))
    for refused in (provider.token(*ALL, exp=time.time() - 1), Provider(rsa_key(1)).token(*ALL)):
        with pytest.raises(ProbableAuthenticationError):
            log_in(broker, refused)


def test_topics(broker: recado.Broker, provider: Provider) -> None:
    with log_in(broker, provider.token("write:*/amq.topic/eu.*", "read:*/*")) as connection:
        channel = connection.channel()
        channel.basic_publish("amq.topic", "eu.rio", b"")
        channel.confirm_delivery()
        with pytest.raises(ChannelClosedByBroker, match=r"access to topic 'us\.rio'"):
            channel.basic_publish("amq.topic", "us.rio", b"")


def test_keys_rotate_while_the_broker_runs(
    broker: recado.Broker, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = log_in(broker, provider.token(*ALL))
    provider.rotate(ec_key(), "two")
    monkeypatch.setattr(keys, "LOAD_INTERVAL_S", 0.0)
    log_in(broker, provider.token(*ALL)).close()
    old.channel().queue_declare("q")  # a connection lasts as long as its token
    old.close()


def test_what_ends_with_a_token(broker: recado.Broker, provider: Provider) -> None:
    """A connection, unless it renews the token; and HTTP requests."""
    expires = time.time() + LIFETIME_S
    token = provider.token("tag:management", *ALL, exp=expires)
    ended, renewed = log_in(broker, token), log_in(broker, token)
    channel = renewed.channel()
    renewed.update_secret(provider.token("configure:*/new"), "renewal")
    api = open_api(broker, token)
    assert api.request("GET", "/api/whoami").status == 200
    with pytest.raises(ConnectionClosedByBroker, match="credential expired") as closed:
        ended.process_data_events(time_limit=60)
    assert closed.value.reply_code == 320
    assert expires <= time.time()
    assert api.request("GET", "/api/whoami").status == 401
    channel.queue_declare("new")
    with pytest.raises(ChannelClosedByBroker):
        channel.queue_declare("old")
    with pytest.raises(ConnectionClosedByBroker, match="New secret was refused"):
        renewed.update_secret(provider.token(*ALL, sub="eve"), "")


def test_aio_pika_renews_its_token(broker: recado.Broker, provider: Provider) -> None:
    async def scenario() -> None:
        connection = await aio_pika.connect(
            host="127.0.0.1", port=broker.port, login="x", password=provider.token(*ALL)
        )
        async with connection:
            await connection.update_secret(provider.token(*ALL), reason="renewal")
            channel = await connection.channel()
            await channel.declare_queue("q")

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_passwords_stay_possible(broker: recado.Broker) -> None:
    BlockingConnection(pika.URLParameters(broker.url)).close()
    assert Api(broker.management_port or 0).get("/api/whoami")["name"] == "guest"


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Basic"])
def test_administration_with_a_token(
    broker: recado.Broker, provider: Provider, scheme: str
) -> None:
    api = open_api(broker, provider.token("tag:administrator", *ALL, user_name="joe"), scheme)
    assert api.get("/api/whoami") == {"name": "joe", "tags": ["administrator"]}
    assert api.put("/api/vhosts/new", {}) == 201
    assert api.put("/api/users/eve", {"password": "x", "tags": ""}) == 201
    assert api.put("/api/queues/new/q", {"durable": True}) == 201
    publish = {
        "routing_key": "q",
        "payload": "hello",
        "payload_encoding": "string",
        "properties": {},
    }
    assert api.post("/api/exchanges/new/amq.default/publish", publish).body == {"routed": True}
    get = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert api.post("/api/queues/new/q/get", get).body[0]["payload"] == "hello"
    users = {user["name"] for user in api.get("/api/users")}
    assert users == {"guest", "eve"}, "the user of a token is not stored"


@pytest.mark.parametrize(
    ("scopes", "path", "status"),
    [
        (ALL, "/api/overview", 401),
        (("tag:management",), "/api/overview", 200),
        (("tag:management",), "/api/queues/orders", 401),
        (("tag:management", "read:orders/*"), "/api/queues/orders", 200),
        (("tag:management", "read:orders/*"), "/api/queues/%2F", 401),
        (("tag:management", "read:*/*"), "/api/nodes", 401),
        (("tag:monitoring",), "/api/nodes", 200),
        (("tag:monitoring",), "/api/users", 401),
        (("tag:policymaker",), "/api/policies/orders", 401),
        (("tag:policymaker", "read:orders/*"), "/api/policies/orders", 200),
        (("tag:administrator",), "/api/users", 200),
        (("tag:other",), "/api/overview", 401),
    ],
)
def test_tags_and_vhosts(
    broker: recado.Broker, provider: Provider, scopes: tuple[str, ...], path: str, status: int
) -> None:
    api = open_api(broker, provider.token(*scopes))
    assert api.request("GET", path).status == status


def test_only_its_vhosts_are_visible(broker: recado.Broker, provider: Provider) -> None:
    api = open_api(broker, provider.token("tag:management", "read:orders/*"))
    assert [vhost["name"] for vhost in api.get("/api/vhosts")] == ["orders"]
    assert api.put("/api/queues/orders/q", {}) == 401
    api = open_api(broker, provider.token("tag:management", "configure:orders/q"))
    assert api.put("/api/queues/orders/q", {}) == 201


@pytest.mark.parametrize("scheme", ["Bearer", "Basic"])
def test_refused_requests(broker: recado.Broker, provider: Provider, scheme: str) -> None:
    tokens = [
        provider.token("tag:administrator", exp=time.time() - 1),
        provider.token("tag:administrator", aud="other"),
        provider.token("tag:administrator", iss="https://other.test"),
        Provider(rsa_key(1)).token("tag:administrator"),
        provider.token("tag:administrator")[:-2],
        "ey.a.b",
        "guest",
        "",
    ]
    for token in tokens:
        reply = open_api(broker, token, scheme).request("GET", "/api/whoami")
        assert reply.status == 401, token
        assert reply.headers["www-authenticate"].startswith("Basic")
        assert "expired" not in reply.body


def test_tokens_are_not_in_the_log(
    broker: recado.Broker, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token, expired = provider.token("tag:administrator", *ALL), provider.token(exp=5)
    log_in(broker, token).close()
    for each in (token, expired):
        for scheme in ("Bearer", "Basic"):
            open_api(broker, each, scheme).put("/api/vhosts/v", {})
    ours = [line for line in caplog.records if line.name.startswith("recado")]
    assert any(line.name == "recado.audit" for line in ours)
    assert any("login refused: the token expired" in line.getMessage() for line in ours)
    for each in (token, expired):
        for part in each.split("."):
            assert not any(part in line.getMessage() for line in ours)
