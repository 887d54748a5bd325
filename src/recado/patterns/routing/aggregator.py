"""Aggregator: one message for a group of messages.

    Aggregator(lambda parts: [part.body for part in parts])                  the parts of a splitter
    Aggregator(total, by="json.order", count=3, timeout=60)                   three messages, or those of a minute
    Aggregator(merge, by="correlation_id", complete=has_end)

A group is a row with its count and deadline, and a row for each message, so a message costs the same however large
its group is; only `complete` reads the whole group each time.

PAG1  A message is combined in one group, once; the group is combined when it is complete or its time has passed.
PAG2  A group has at most `group_max` messages, and there are at most `groups_max` groups.
PAG3  A message for a group that was combined in the last `remember` seconds is late: it is sent to `late_to`, or
      dropped. After that time it begins a new group.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from ..destination import DestinationLike
from ..errors import CompositionError, RejectMessageError
from ..message import Message
from ..message_sequence import end_sequence, sequence_of
from ..state.stored_message import MessageCodec
from ..step import Output, Outputs, Send, StatefulStep, StateTransaction
from ..trace_context import link_traces
from .message_field import MessageField, to_key, to_reader

GROUP_MESSAGES_MAX: Final = 10_000
GROUPS_MAX: Final = 100_000
SEQUENCE_REMEMBER_S: Final = 3600.0

Combine: TypeAlias = Callable[[list[Message[Any]]], object]

_DUE_GROUPS_MAX: Final = 100
_SEPARATOR: Final = "\0"
_COUNT_KEY: Final = "count"


class _Group(msgspec.Struct, array_like=True):
    """The row of a group; a combined one is kept to recognise late messages."""

    deadline: float | None
    count: int = 0
    is_combined: bool = False


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Group).decode


class Aggregator(StatefulStep):
    """Collect the messages of a group, and combine them to one.

    Args:
        combine: a function of the messages of a group: by sequence number, or as they arrived. It returns a
            message, or the body of a message with the other properties of the first one.
        by: the field or function that names the group of a message. None: the sequence that a splitter has begun,
            which is complete when all its parts are there.
        count: the group is complete when it has so many messages.
        complete: the group is complete when this function of its messages is true.
        timeout: seconds after its first message at which a group is combined as it is.
        incomplete_to: where the messages of a group go whose time has passed, instead of being combined.
        group_max: further messages of a group are rejected.
        groups_max: messages that would begin more groups are rejected.
        remember: seconds for which a combined group is remembered; None: an hour for sequences, otherwise 0.
        late_to: where late messages go; None drops them.
        body_type: the type of the bodies, unless they are plain values.
        table: the name of the table, unique in the store.
    """

    def __init__(
        self,
        combine: Combine,
        *,
        by: MessageField | None = None,
        count: int | None = None,
        complete: Callable[[list[Message[Any]]], bool] | None = None,
        timeout: float | None = None,
        incomplete_to: DestinationLike | None = None,
        group_max: int = GROUP_MESSAGES_MAX,
        groups_max: int = GROUPS_MAX,
        remember: float | None = None,
        late_to: DestinationLike | None = None,
        body_type: Any = Any,
        table: str = "aggregator",
    ) -> None:
        if by is not None and count is None and complete is None and timeout is None:
            raise CompositionError(
                "an aggregator that groups by a field needs count, complete or timeout: no group would be complete"
            )
        if count is not None and not 0 < count <= group_max:
            raise CompositionError(
                f"count is {count}: it must be at least 1 and at most group_max ({group_max})"
            )
        if incomplete_to is not None and timeout is None:
            raise CompositionError(
                "incomplete_to needs a timeout: no group would ever be incomplete"
            )
        self.table = table
        self._messages_table = f"{table}.messages"
        self._groups_table = f"{table}.groups"
        self._combine = combine
        self._by = by
        self._read = None if by is None else to_reader(by)
        self._count = count
        self._complete = complete
        self._timeout = timeout
        self._incomplete_to = incomplete_to
        self._group_max = group_max
        self._groups_max = groups_max
        self._remember = (
            (SEQUENCE_REMEMBER_S if by is None else 0.0) if remember is None else remember
        )
        self._late_to = late_to
        self._codec = MessageCodec(body_type)

    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        name, number, size = self._place(message)
        stored = state.get(self.table, name)
        if stored is None:
            group = _Group(None if self._timeout is None else state.now + self._timeout)
        else:
            group = _decode(stored)
        if group.is_combined:
            return () if self._late_to is None else (Send(self._late_to, message),)
        key = f"{name}{_SEPARATOR}{group.count if number is None else number:020}"
        if number is not None and state.get(self._messages_table, key) is not None:
            return ()  # a part that was sent twice
        if group.count >= self._group_max:
            raise RejectMessageError(
                f"the group '{name}' has {group.count} messages (group_max) and is not complete"
            )
        state.put(self._messages_table, key, self._codec.encode(message))
        group.count += 1
        is_complete = group.count in (self._count, size)
        if not is_complete and self._complete is not None:
            is_complete = self._complete(self._load(name, state))
        if stored is None:
            self._count_groups(1, state)
        if is_complete:
            return self._finish(name, state, self._combine_all)
        state.put(self.table, name, _encode(group), deadline=group.deadline)
        return ()

    def expire(self, state: StateTransaction) -> Outputs:
        outputs: list[Output] = []
        for name, stored in state.due(self.table, _DUE_GROUPS_MAX):
            if _decode(stored).is_combined:
                state.delete(self.table, name)
            elif self._incomplete_to is None:
                outputs += self._finish(name, state, self._combine_all)
            else:
                outputs += self._finish(name, state, self._send_incomplete)
        return outputs

    def destinations(self) -> Iterable[DestinationLike]:
        return [each for each in (self._late_to, self._incomplete_to) if each is not None]

    def _place(self, message: Message[Any]) -> tuple[str, int | None, int | None]:
        """Return the group of a message, and its number and the size of the group if they are known."""
        if self._by is not None and self._read is not None:
            return to_key(self._read(message), self._by), None, None
        sequence = sequence_of(message)
        if sequence is None:
            raise RejectMessageError(
                "the message cannot be correlated: it is not part of a sequence, and the aggregator has no `by`"
            )
        return to_key(sequence.id, "its sequence id"), sequence.number, sequence.size

    def _load(self, name: str, state: StateTransaction) -> list[Message[Any]]:
        found = state.scan(self._messages_table, f"{name}{_SEPARATOR}")
        return [self._codec.decode(stored) for _, stored in found]

    def _finish(
        self,
        name: str,
        state: StateTransaction,
        to_outputs: Callable[[list[Message[Any]]], Iterable[Output]],
    ) -> list[Output]:
        """End a group: return its outputs, remove its messages, and remember it."""
        outputs = list(to_outputs(self._load(name, state)))
        for key, _ in state.scan(self._messages_table, f"{name}{_SEPARATOR}"):
            state.delete(self._messages_table, key)
        self._count_groups(-1, state)
        if self._remember > 0:
            until = state.now + self._remember
            state.put(self.table, name, _encode(_Group(until, is_combined=True)), deadline=until)
        else:
            state.delete(self.table, name)
        return outputs

    def _combine_all(self, messages: list[Message[Any]]) -> Iterable[Output]:
        combined = self._combine(messages)
        if not isinstance(combined, Message):
            first = messages[0] if self._by is not None else end_sequence(messages[0])
            combined = first.replace(body=combined, message_id=None)
        yield link_traces(combined, messages)

    def _send_incomplete(self, messages: list[Message[Any]]) -> Iterable[Output]:
        assert self._incomplete_to is not None
        for message in messages:
            yield Send(self._incomplete_to, message)

    def _count_groups(self, change: int, state: StateTransaction) -> None:
        count = int(state.get(self._groups_table, _COUNT_KEY) or b"0") + change
        if count > self._groups_max:
            raise RejectMessageError(
                f"{self._groups_max} groups wait for messages (groups_max): no further group is begun"
            )
        state.put(self._groups_table, _COUNT_KEY, b"%d" % count)
