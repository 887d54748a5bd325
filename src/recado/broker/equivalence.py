"""Equivalence of repeated declarations. Error texts are RabbitMQ's."""

from collections.abc import Iterable

import msgspec

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable

from . import checks
from .arguments import (
    DEDUPLICATION_ARGUMENTS,
    QUEUE_TYPE_ARGUMENTS,
    ExchangeSettings,
    QueueSettings,
)


def check_queue_equivalent(
    described: str, existing: QueueSettings, requested: QueueSettings
) -> None:
    """Raise `PreconditionFailedError` if a repeated declaration differs from the existing queue.

    `described` names the queue in the error. Exclusive access is checked by the vhost.
    """
    _check_fields(described, existing, requested, ("durable", "auto_delete"))
    names = QUEUE_TYPE_ARGUMENTS[existing.queue_type]
    _check_arguments(described, existing.arguments, requested.arguments, names)


def check_exchange_equivalent(
    described: str, existing: ExchangeSettings, requested: ExchangeSettings
) -> None:
    """Raise `PreconditionFailedError` if a repeated declaration differs from the existing exchange."""
    if existing.exchange_type != requested.exchange_type:
        raise _inequivalent_error(
            "type", described, f"'{requested.exchange_type}'", f"'{existing.exchange_type}'"
        )
    _check_fields(described, existing, requested, ("durable", "auto_delete", "internal"))
    names = ("alternate-exchange", *DEDUPLICATION_ARGUMENTS)
    _check_arguments(described, existing.arguments, requested.arguments, names)


def _check_fields(
    described: str, existing: msgspec.Struct, requested: msgspec.Struct, fields: Iterable[str]
) -> None:
    for field in fields:
        current, received = getattr(existing, field), getattr(requested, field)
        if current != received:
            raise _inequivalent_error(
                field,
                described,
                f"'{checks.format_value(received)}'",
                f"'{checks.format_value(current)}'",
            )


def _check_arguments(
    described: str, existing: FieldTable, requested: FieldTable, names: Iterable[str]
) -> None:
    for name in names:
        if name in existing and name in requested:
            current, received = existing[name], requested[name]
            if checks.to_comparable(current) != checks.to_comparable(received):
                raise _inequivalent_error(
                    name,
                    described,
                    f"'{checks.format_value(received)}'",
                    f"'{checks.format_value(current)}'",
                )
        elif (name in existing or name in requested) and not _is_default(name, existing, requested):
            raise _inequivalent_error(
                name,
                described,
                _describe_argument(requested, name),
                _describe_argument(existing, name),
            )


def _is_default(name: str, existing: FieldTable, requested: FieldTable) -> bool:
    """Whether one declaration names the default queue type and the other names none."""
    return name == "x-queue-type" and "classic" in (existing.get(name), requested.get(name))


def _describe_argument(arguments: FieldTable, name: str) -> str:
    if name not in arguments:
        return "none"
    value = arguments[name]
    return f"the value '{checks.format_value(value)}' of type '{checks.type_name(value)}'"


def _inequivalent_error(
    argument: str, described: str, received: str, current: str
) -> PreconditionFailedError:
    return PreconditionFailedError(
        f"inequivalent arg '{argument}' for {described}: received {received} but current is {current}"
    )
