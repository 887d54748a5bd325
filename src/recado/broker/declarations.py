"""Declarations by clients, over AMQP and HTTP: permissions, equivalence, limits, and the creation.

The order of checks is RabbitMQ's, because clients can observe it: permission, then existence, then equivalence.
An entity that exists already is not created, so the permissions on the exchanges that its arguments name are not
needed.
"""

from recado.amqp.values import FieldTable

from .arguments import parse_queue_arguments
from .broker import Broker
from .exchange import check_exchange_type
from .queue import ExclusiveOwner, Queue
from .routing import VhostAccess


def declare_queue(
    broker: Broker,
    access: VhostAccess,
    requested_name: str,
    *,
    durable: bool,
    exclusive: bool = False,
    auto_delete: bool = False,
    arguments: FieldTable,
    connection: ExclusiveOwner | None,
    now: int,
) -> Queue:
    """Return the queue of this name; it is created if it does not exist, and named by the broker without a name.

    Raises `AmqpError`: the user may not declare it, the arguments are invalid, the queue exists with others or is
    exclusive to another connection, or the vhost has reached its limit.
    """
    permissions, vhost = access.permissions, access.vhost
    name = requested_name or f"amq.gen-{broker.new_name()}"
    permissions.check_configure("queue", name)
    broker.usage.queues_declared += 1
    settings = parse_queue_arguments(
        name,
        vhost.name,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments=arguments,
        server_named=not requested_name,
        default_type=vhost.settings.default_queue_type,
    )
    if requested_name:
        existing = vhost.find_equivalent_queue(name, settings, connection)
        if existing is not None:
            return existing
    broker.check_queue_limit(vhost, name)
    if settings.dead_letter_exchange is not None:
        permissions.check_read("queue", name)
        permissions.check_write("exchange", settings.dead_letter_exchange)
    owner = connection if settings.exclusive else None
    return broker.create_queue(vhost, name, settings, owner, now)


def declare_exchange(
    access: VhostAccess,
    name: str,
    exchange_type: str,
    *,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: FieldTable,
) -> None:
    """Create an exchange unless it exists.

    Raises `AmqpError`: the user may not declare it, the arguments are invalid, or the exchange exists with others.
    """
    permissions, vhost = access.permissions, access.vhost
    check_exchange_type(exchange_type)
    permissions.check_configure("exchange", name)
    alternate = arguments.get("alternate-exchange")
    if isinstance(alternate, str) and name not in vhost.exchanges:
        permissions.check_read("exchange", name)
        permissions.check_write("exchange", alternate)
    vhost.declare_exchange(
        name,
        exchange_type,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments,
    )
