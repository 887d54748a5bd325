"""Recipient list: a copy of a message for each recipient."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from ..destination import Destination, DestinationLike, to_destination
from ..errors import RejectMessageError
from ..message import Message
from ..step import FlowStep, Outputs, Send
from .message_selector import MessagePredicate, SelectorLike, to_predicate

MAX_RECIPIENTS_COUNT: Final = 1_000


class Recipient(msgspec.Struct, frozen=True):
    """A destination that gets only the messages that match a condition."""

    to: DestinationLike
    condition: SelectorLike


RecipientFunction: TypeAlias = Callable[[Message[Any]], Iterable[DestinationLike]]
RecipientLike: TypeAlias = DestinationLike | Recipient | RecipientFunction


class RecipientList(FlowStep):
    """Send a message to each of its recipients, once even if several entries name the same one.

        RecipientList("audit", Recipient("billing", "json.total > 0"), lambda message: message.body.subscribers)

    An entry is a destination, a `Recipient` with a condition, or a function that returns the destinations of a
    message. Such a function must check names that it reads from the message; otherwise any program that publishes
    could send to any queue. A message without recipients is sent to `otherwise`; if that is None, it continues in
    the flow. A message with more than `recipients_max` recipients is rejected.
    """

    def __init__(
        self,
        *recipients: RecipientLike,
        otherwise: DestinationLike | None = None,
        recipients_max: int = MAX_RECIPIENTS_COUNT,
    ) -> None:
        self._entries = tuple(map(_to_entry, recipients))
        self._otherwise = otherwise
        self._recipients_max = recipients_max

    def process(self, message: Message[Any]) -> Outputs:
        found = self.recipients_of(message)
        if found:
            return [Send(each, message) for each in found]
        return (message if self._otherwise is None else Send(self._otherwise, message),)

    def recipients_of(self, message: Message[Any]) -> list[Destination]:
        """Return the recipients of a message, without `otherwise`."""
        found: dict[tuple[type[Destination], str], Destination] = {}
        for entry in self._entries:
            for each in _recipients_of(entry, message):
                destination = to_destination(each)
                found.setdefault((type(destination), destination.name), destination)
                if len(found) > self._recipients_max:
                    raise RejectMessageError(
                        f"more than {self._recipients_max} recipients (recipients_max)"
                    )
        return list(found.values())

    def destinations(self) -> Iterable[DestinationLike]:
        for entry in self._entries:
            if isinstance(entry, _Conditional):
                yield entry.to
            elif not callable(entry):
                yield entry
        if self._otherwise is not None:
            yield self._otherwise


class _Conditional(msgspec.Struct, frozen=True):
    to: Destination
    matches: MessagePredicate


_Entry: TypeAlias = Destination | _Conditional | RecipientFunction


def _to_entry(recipient: RecipientLike) -> _Entry:
    if isinstance(recipient, Recipient):
        return _Conditional(to_destination(recipient.to), to_predicate(recipient.condition))
    if isinstance(recipient, str):
        return to_destination(recipient)
    return recipient


def _recipients_of(entry: _Entry, message: Message[Any]) -> Iterator[DestinationLike]:
    if isinstance(entry, _Conditional):
        if entry.matches(message):
            yield entry.to
    elif callable(entry):
        yield from entry(message)
    else:
        yield entry
