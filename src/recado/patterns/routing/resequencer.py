"""Resequencer: messages in the order of their sequence numbers.

    Resequencer()                                             the parts of a splitter
    Resequencer(by="json.account", sequence="json.version")   a stream of numbers for each account

A message that arrives early is held until those before it have come. If they do not come within `wait` seconds, or
`held_max` messages are held, the missing numbers are skipped.

PRS1  The numbers of a group are released in ascending order, each once.
PRS2  A group holds at most `held_max` messages, and none longer than `wait` seconds for each gap before it.
PRS3  A message whose number was released or skipped is late: it is sent to `late_to`, or dropped.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ..destination import DestinationLike
from ..errors import CompositionError, RejectMessageError
from ..message import Message
from ..message_sequence import sequence_of
from ..state.stored_message import MessageCodec
from ..step import Output, Outputs, Send, StatefulStep, StateTransaction
from .message_field import MessageField, to_key, to_reader

HELD_MESSAGES_MAX: Final = 1000
WAIT_S: Final = 10.0
FORGET_S: Final = 24 * 3600.0

_NUMBERS_MAX: Final = 10**18
_DUE_GROUPS_MAX: Final = 100
_SEPARATOR: Final = "\0"


class _NumberedGroup(msgspec.Struct, array_like=True):
    """The row of a group: the number that is released next, and how many messages are held."""

    next: int
    held: int = 0
    gap_until: float = 0.0  # when the numbers before the first held message are skipped


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_NumberedGroup).decode


class Resequencer(StatefulStep):
    """Release the messages of each group in the order of their numbers.

    Args:
        by: the field or function that names the group of a message; None: the sequence that a splitter has begun.
        sequence: the field or function with the number of a message; None: the number in that sequence.
        start: the first number of each group.
        wait: seconds to wait for missing numbers before they are skipped.
        held_max: if more messages of a group would be held, the missing numbers are skipped at once.
        forget: seconds after its last message at which a group is forgotten; it then begins at `start` again.
        late_to: where late and repeated messages go; None drops them.
        body_type: the type of the bodies, unless they are plain values.
        table: the name of the table, unique in the store.
    """

    def __init__(
        self,
        *,
        by: MessageField | None = None,
        sequence: MessageField | None = None,
        start: int = 1,
        wait: float = WAIT_S,
        held_max: int = HELD_MESSAGES_MAX,
        forget: float = FORGET_S,
        late_to: DestinationLike | None = None,
        body_type: Any = Any,
        table: str = "resequencer",
    ) -> None:
        if (by is None) != (sequence is None):
            raise CompositionError(
                "a resequencer needs both `by` and `sequence`, or neither to use the sequence headers"
            )
        self.table = table
        self._held_table = f"{table}.held"
        self._by = by
        self._read_group = None if by is None else to_reader(by)
        self._read_number = None if sequence is None else to_reader(sequence)
        self._start = start
        self._wait = wait
        self._held_max = held_max
        self._forget = forget
        self._late_to = late_to
        self._codec = MessageCodec(body_type)

    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        name, number = self._place(message)
        stored = state.get(self.table, name)
        group = _NumberedGroup(self._start) if stored is None else _decode(stored)
        key = _key(name, number)
        if number < group.next or (
            number > group.next and state.get(self._held_table, key) is not None
        ):
            return () if self._late_to is None else (Send(self._late_to, message),)
        outputs: list[Output] = []
        if number == group.next:
            outputs.append(message)
            group.next += 1
            outputs += self._release(name, group, state)
        else:
            state.put(self._held_table, key, self._codec.encode(message))
            group.held += 1
            if group.held == 1:
                group.gap_until = state.now + self._wait
            if group.held > self._held_max:
                outputs += self._skip_gap(name, group, state)
        self._save(name, group, state)
        return outputs

    def expire(self, state: StateTransaction) -> Outputs:
        outputs: list[Output] = []
        for name, stored in state.due(self.table, _DUE_GROUPS_MAX):
            group = _decode(stored)
            if group.held == 0:
                state.delete(self.table, name)
            else:
                outputs += self._skip_gap(name, group, state)
                self._save(name, group, state)
        return outputs

    def destinations(self) -> Iterable[DestinationLike]:
        return () if self._late_to is None else (self._late_to,)

    def _place(self, message: Message[Any]) -> tuple[str, int]:
        """Return the group and the number of a message."""
        if self._by is None or self._read_group is None or self._read_number is None:
            sequence = sequence_of(message)
            if sequence is None:
                raise RejectMessageError(
                    "the message is not part of a sequence, and the resequencer has no `by`"
                )
            return to_key(sequence.id, "its sequence id"), sequence.number
        number = self._read_number(message)
        if type(number) is float and number.is_integer():
            number = int(number)
        if type(number) is not int or not 0 <= number < _NUMBERS_MAX:
            raise RejectMessageError(
                f"the sequence number of the message is {number!r:.100}, not a whole number"
            )
        return to_key(self._read_group(message), self._by), number

    def _release(self, name: str, group: _NumberedGroup, state: StateTransaction) -> list[Output]:
        """Return the held messages that follow without a gap."""
        outputs: list[Output] = []
        while group.held:
            key = _key(name, group.next)
            stored = state.get(self._held_table, key)
            if stored is None:
                if outputs:  # another gap
                    group.gap_until = state.now + self._wait
                break
            state.delete(self._held_table, key)
            outputs.append(self._codec.decode(stored))
            group.next += 1
            group.held -= 1
        return outputs

    def _skip_gap(self, name: str, group: _NumberedGroup, state: StateTransaction) -> list[Output]:
        """Go on with the first held message."""
        prefix = f"{name}{_SEPARATOR}"
        first, _ = next(iter(state.scan(self._held_table, prefix)))
        group.next = int(first.removeprefix(prefix))
        return self._release(name, group, state)

    def _save(self, name: str, group: _NumberedGroup, state: StateTransaction) -> None:
        deadline = group.gap_until if group.held else state.now + self._forget
        state.put(self.table, name, _encode(group), deadline=deadline)


def _key(name: str, number: int) -> str:
    return f"{name}{_SEPARATOR}{number:020}"
