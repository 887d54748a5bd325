"""A second declaration must want what is there already, or it is refused. Texts are RabbitMQ's."""

from collections.abc import Iterable

import msgspec

from recado.amqp.errors import PreconditionFailed
from recado.amqp.values import Table

from . import checks
from .arguments import UNDERSTOOD, WINDOW_ARGUMENTS, ExchangeSettings, QueueSettings


def check_queue_equivalent(queue: str, existing: QueueSettings, wanted: QueueSettings) -> None:
    """Refuses a second declaration that wants another queue than the one there is.

    `queue` is its description. Who may see an exclusive queue is the vhost's affair.
    """
    _check_fields(queue, existing, wanted, ("durable", "auto_delete"))
    names = UNDERSTOOD[existing.queue_type]
    _check_arguments(queue, existing.arguments, wanted.arguments, names)


def check_exchange_equivalent(
    exchange: str, existing: ExchangeSettings, wanted: ExchangeSettings
) -> None:
    """Refuses a second declaration that wants another exchange than the one there is."""
    if existing.kind != wanted.kind:
        raise _inequivalent("type", exchange, f"'{wanted.kind}'", f"'{existing.kind}'")
    _check_fields(exchange, existing, wanted, ("durable", "auto_delete", "internal"))
    names = ("alternate-exchange", *WINDOW_ARGUMENTS)
    _check_arguments(exchange, existing.arguments, wanted.arguments, names)


def _check_fields(
    where: str, existing: msgspec.Struct, wanted: msgspec.Struct, fields: Iterable[str]
) -> None:
    for field in fields:
        current, received = getattr(existing, field), getattr(wanted, field)
        if current != received:
            raise _inequivalent(
                field, where, f"'{checks.shown(received)}'", f"'{checks.shown(current)}'"
            )


def _check_arguments(where: str, existing: Table, wanted: Table, names: Iterable[str]) -> None:
    for name in names:
        if name in existing and name in wanted:
            current, received = existing[name], wanted[name]
            if checks.comparable(current) != checks.comparable(received):
                raise _inequivalent(
                    name, where, f"'{checks.shown(received)}'", f"'{checks.shown(current)}'"
                )
        elif (name in existing or name in wanted) and not _is_default(name, existing, wanted):
            raise _inequivalent(name, where, _typed(wanted, name), _typed(existing, name))


def _is_default(name: str, existing: Table, wanted: Table) -> bool:
    """Whether a type of queue was left out here and there named as what it is anyway."""
    return name == "x-queue-type" and "classic" in (existing.get(name), wanted.get(name))


def _typed(arguments: Table, name: str) -> str:
    if name not in arguments:
        return "none"
    value = arguments[name]
    return f"the value '{checks.shown(value)}' of type '{checks.type_name(value)}'"


def _inequivalent(argument: str, where: str, received: str, current: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"inequivalent arg '{argument}' for {where}: received {received} but current is {current}"
    )
