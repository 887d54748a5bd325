"""Export of the definitions of a broker, as a document that RabbitMQ 3.10 and recado import.

Exclusive queues, and queues and exchanges named `amq.…`, are skipped. JSON has fewer types than AMQP: a timestamp
is written in seconds, bytes as text, a decimal as a floating-point number, and every integer is imported as a 64-bit
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec

from recado import __version__
from recado.amqp.values import FieldTable, FieldValue, ScaledDecimal
from recado.broker.access import User
from recado.broker.arguments import ExchangeSettings, QueueSettings
from recado.broker.broker import Broker
from recado.broker.policy import Policy
from recado.broker.queue import Queue
from recado.broker.vhost import Vhost
from recado.server.passwords import find_hash_algorithm

from .document import OWN_PARAMETERS, DefinitionsError

RABBITMQ_VERSION = "3.10.8"  # the RabbitMQ version whose format is written

JsonObject = dict[str, Any]


def export_definitions(broker: Broker, vhost: str | None = None) -> JsonObject:
    """Return all definitions, or those of one vhost in the format that RabbitMQ has for that.

    Raises `DefinitionsError` if the vhost does not exist.
    """
    head, sections = _describe(broker, vhost)
    return {**head, **{key: list(entries) for key, entries in sections.items()}}


def stream_definitions(broker: Broker, vhost: str | None = None) -> Iterator[bytes]:
    """Return the same document as JSON, in small pieces, so that other work can run between them.

    The objects are those that exist now; bindings to objects that are deleted meanwhile are left out. Raises
    `DefinitionsError` if the vhost does not exist.
    """
    head, sections = _describe(broker, vhost)
    return _render(head, sections)


def _render(head: JsonObject, sections: dict[str, Iterable[JsonObject]]) -> Iterator[bytes]:
    yield msgspec.json.encode(head)[:-1]
    for key, entries in sections.items():
        yield f',"{key}":['.encode()
        separator = b""
        for entry in entries:
            yield separator + msgspec.json.encode(entry)
            separator = b","
        yield b"]"
    yield b"}"


def _describe(
    broker: Broker, vhost: str | None
) -> tuple[JsonObject, dict[str, Iterable[JsonObject]]]:
    """Return the fields about the document, and its lists; the entries of long lists are built when they are read."""
    if vhost is not None:
        if vhost not in broker.vhosts:
            raise DefinitionsError(f"there is no vhost '{vhost}'")
        entries = _export_vhost(broker.vhosts[vhost])
        settings = _export_vhost_settings(broker.vhosts[vhost])
        head = {"rabbit_version": RABBITMQ_VERSION, **settings}
        return head, {key: _without_vhost(entries[key]) for key in entries}
    users = [broker.users[name] for name in sorted(broker.users)]
    sections = [_export_vhost(each) for each in broker.vhosts.values()]
    keys = ("parameters", "policies", "queues", "exchanges", "bindings")
    merged = {key: chain.from_iterable([each[key] for each in sections]) for key in keys}
    head = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "recado",
        "product_version": __version__,
    }
    return head, {
        "users": [_export_user(user) for user in users],
        "vhosts": [
            {"name": each.name, **_export_vhost_settings(each)} for each in broker.vhosts.values()
        ],
        "permissions": [
            {
                "user": user.name,
                "vhost": name,
                "configure": permission.configure,
                "write": permission.write,
                "read": permission.read,
            }
            for user in users
            for name, permission in user.permissions.items()
        ],
        "topic_permissions": [
            {
                "user": user.name,
                "vhost": name,
                "exchange": exchange,
                "write": permission.write,
                "read": permission.read,
            }
            for user in users
            for (name, exchange), permission in user.topic_permissions.items()
        ],
        "global_parameters": [
            {"name": name, "value": value}
            for name, value in broker.global_parameters.items()
            if name not in OWN_PARAMETERS
        ],
        **merged,
    }


def _export_vhost(vhost: Vhost[Queue]) -> dict[str, Iterable[JsonObject]]:
    policies = vhost.policies.by_name.values()
    queues = [queue for queue in vhost.queues.values() if _is_public(queue)]
    parameters: list[JsonObject] = [
        {
            "vhost": vhost.name,
            "component": policy.kind,
            "name": policy.name,
            "value": _export_policy(policy),
        }
        for policy in policies
        if policy.operator
    ]
    limits = msgspec.to_builtins(vhost.settings.limits)
    if limits:
        parameters.append(
            {"vhost": vhost.name, "component": "vhost-limits", "name": "limits", "value": limits}
        )
    bindings = [list(exchange.bindings.values()) for exchange in vhost.exchanges.values()]
    return {
        "parameters": parameters,
        "policies": [
            {"vhost": vhost.name, "name": policy.name, **_export_policy(policy)}
            for policy in policies
            if not policy.operator
        ],
        "queues": (
            {
                "name": queue.name,
                "vhost": vhost.name,
                **_export_queue(queue.declared_settings, vhost),
            }
            for queue in queues
        ),
        "exchanges": [
            {
                "name": exchange.name,
                "vhost": vhost.name,
                **_export_exchange(exchange.declared_settings),
            }
            for exchange in vhost.exchanges.values()
            if exchange.name and not exchange.name.startswith("amq.")
        ],
        "bindings": (
            {
                "source": binding.source,
                "vhost": vhost.name,
                "destination": binding.destination.name,
                "destination_type": "queue" if is_queue else "exchange",
                "routing_key": binding.routing_key,
                "arguments": to_json_object(binding.arguments),
            }
            for binding in chain.from_iterable(bindings)
            if not binding.destination.deleted
            and (
                not (is_queue := isinstance(binding.destination, Queue))
                or _is_public(binding.destination)
            )
        ),
    }


def _is_public(queue: Queue) -> bool:
    return queue.owner is None and not queue.name.startswith("amq.")


def _without_vhost(entries: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Return entries as in the document of one vhost."""
    return ({key: entry[key] for key in entry if key != "vhost"} for entry in entries)


def _export_user(user: User) -> JsonObject:
    """Export a user.

    RabbitMQ does not support argon2: a user with such a hash cannot log in there until it gets a password.
    """
    algorithm = find_hash_algorithm(user.password_hash)
    entry: JsonObject = {
        "name": user.name,
        "password_hash": user.password_hash if algorithm is not None else "",
        "hashing_algorithm": f"rabbit_password_hashing_{algorithm or 'sha256'}",
        "tags": list(user.tags),
        "limits": msgspec.to_builtins(user.limits),
    }
    if user.password_hash and algorithm is None:
        entry["recado_password_hash"] = user.password_hash
    return entry


def _export_policy(policy: Policy) -> JsonObject:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": to_json_object(policy.definition),
        "priority": policy.priority,
    }


def _export_vhost_settings(vhost: Vhost[Queue]) -> JsonObject:
    """Export the settings that are not defaults. RabbitMQ reads them from `metadata`. Limits are parameters."""
    settings = vhost.settings
    metadata = {
        "description": settings.description,
        "tags": list(settings.tags),
        "default_queue_type": settings.default_queue_type,
    }
    metadata = {key: value for key, value in metadata.items() if value}
    return {**metadata, "metadata": metadata} if metadata else {}


def _export_queue(declared: QueueSettings, vhost: Vhost[Queue]) -> JsonObject:
    """Export a queue.

    A queue that is declared while the vhost has a default queue type gets it as an argument. So a queue without
    the argument is older than the default; its type is written as a field, or an import would apply the default.
    """
    has_type_argument = "x-queue-type" in declared.arguments
    needs_type = vhost.settings.default_queue_type is not None and not has_type_argument
    return {
        **({"type": declared.queue_type} if needs_type else {}),
        "durable": declared.durable,
        "auto_delete": declared.auto_delete,
        "arguments": to_json_object(declared.arguments),
    }


def _export_exchange(declared: ExchangeSettings) -> JsonObject:
    return {
        "type": declared.exchange_type,
        "durable": declared.durable,
        "auto_delete": declared.auto_delete,
        "internal": declared.internal,
        "arguments": to_json_object(declared.arguments),
    }


def to_json_object(table: FieldTable) -> JsonObject:
    return {key: _to_json(value) for key, value in table.items()}


def _to_json(value: FieldValue) -> Any:
    match value:
        case dict():
            return to_json_object(value)
        case list():
            return [_to_json(element) for element in value]
        case bytes():
            return value.decode(errors="replace")
        case datetime():
            return int(value.timestamp())
        case ScaledDecimal():
            return value.digits / 10**value.scale
        case bool() | None | str():
            return value
        case int():
            return int(value)
        case _:
            return float(value)
