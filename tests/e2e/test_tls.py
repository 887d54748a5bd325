"""The TLS listener, with certificates made for the run."""

from __future__ import annotations

import asyncio
import hashlib
import ssl

import aio_pika
import pika
import pytest
import trustme
from pika import BlockingConnection
from pika.exceptions import AMQPConnectionError

from workshop.peers import Certificates, Server

from .traffic import Inbox, put


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """A client's context that believes the authority and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


def parameters(server: Server, context: ssl.SSLContext) -> pika.URLParameters:
    """Where and how pika connects."""
    given = pika.URLParameters(server.tls_url)
    given.ssl_options = pika.SSLOptions(context, server_hostname="localhost")
    return given


def test_messages_travel_encrypted(server: Server, authority: trustme.CA) -> None:
    with BlockingConnection(parameters(server, trusting(authority))) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        inbox = Inbox(channel, queue, auto_ack=True)
        body = hashlib.shake_128(b"secret").digest(400_000)
        put(channel, queue, b"small", body, b"after")
        inbox.wait(3)
        assert inbox.bodies == [b"small", body, b"after"]


def test_a_client_that_trusts_others_does_not_connect(server: Server) -> None:
    with pytest.raises((AMQPConnectionError, ssl.SSLError)):
        BlockingConnection(parameters(server, trusting(trustme.CA())))


def test_a_plain_client_on_the_tls_port_gets_nowhere_and_harms_nobody(
    server: Server, authority: trustme.CA
) -> None:
    plain = pika.URLParameters(server.url)
    plain.port = server.tls_port
    plain.socket_timeout = plain.stack_timeout = 10
    with pytest.raises(AMQPConnectionError):
        BlockingConnection(plain)
    BlockingConnection(parameters(server, trusting(authority))).close()


def test_aio_pika_over_tls(server: Server, certificates: Certificates) -> None:
    async def scenario() -> None:
        url = f"{server.tls_url}?cafile={certificates.ca}"
        async with asyncio.timeout(15), await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), queue.name)
            message = await queue.get(no_ack=True)
            assert message.body == b"hello"

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_today_are_spoken(
    server: Server, authority: trustme.CA, version: ssl.TLSVersion
) -> None:
    context = trusting(authority)
    context.minimum_version = context.maximum_version = version
    BlockingConnection(parameters(server, context)).close()
