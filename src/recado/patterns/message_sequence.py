"""Message sequences: of which whole a message is a part, in headers.

A splitter and a scatter-gather number the messages that they make; aggregators and resequencers read the numbers.

    recado.sequence-id        names the whole
    recado.sequence-number    1, 2, …
    recado.sequence-size      how many parts the whole has; absent while that is unknown
    recado.sequence-outer     the sequences around this one, outermost first: a list of [id, number, size]

A part that is split again begins an inner sequence, and the outer one is restored when the inner parts have been
joined. Headers come from any program, so their types are checked and the nesting is limited.
"""

from typing import Any, Final, TypeVar

import msgspec

from .errors import RejectMessageError
from .message import Message

T = TypeVar("T")

SEQUENCE_ID_HEADER: Final = "recado.sequence-id"
SEQUENCE_NUMBER_HEADER: Final = "recado.sequence-number"
SEQUENCE_SIZE_HEADER: Final = "recado.sequence-size"
OUTER_SEQUENCES_HEADER: Final = "recado.sequence-outer"
SEQUENCE_LEVELS_MAX: Final = 8


class MessageSequence(msgspec.Struct, frozen=True):
    """A message is number `number` of the `size` parts of the whole `id`; size None: unknown."""

    id: str
    number: int
    size: int | None = None


def sequence_of(message: Message[Any]) -> MessageSequence | None:
    """Return the innermost sequence of a message, or None if it is part of none.

    Raises `RejectMessageError` if the headers have wrong types or numbers.
    """
    headers = message.headers
    if SEQUENCE_ID_HEADER not in headers:
        return None
    names = (SEQUENCE_ID_HEADER, SEQUENCE_NUMBER_HEADER, SEQUENCE_SIZE_HEADER)
    return _check(*(headers.get(name) for name in names))


def begin_sequence(message: Message[T], sequence: MessageSequence) -> Message[T]:
    """Return the message as a part of a sequence; a sequence that it has becomes the outer one.

    Raises `RejectMessageError` if more than `SEQUENCE_LEVELS_MAX` sequences would be nested.
    """
    current = sequence_of(message)
    outer = _outer_sequences(message)
    if current is not None:
        if len(outer) + 2 > SEQUENCE_LEVELS_MAX:
            raise RejectMessageError(
                f"more than {SEQUENCE_LEVELS_MAX} nested sequences: the message is split again and again"
            )
        outer = [*outer, current]
    return _with_sequences(message, sequence, outer)


def end_sequence(message: Message[T]) -> Message[T]:
    """Return the message without its innermost sequence; the one around it is restored."""
    outer = _outer_sequences(message)
    return _with_sequences(message, outer[-1] if outer else None, outer[:-1])


def _with_sequences(
    message: Message[T], sequence: MessageSequence | None, outer: list[MessageSequence]
) -> Message[T]:
    nested = [[each.id, each.number, *([] if each.size is None else [each.size])] for each in outer]
    return message.with_headers(
        {
            SEQUENCE_ID_HEADER: sequence and sequence.id,
            SEQUENCE_NUMBER_HEADER: sequence and sequence.number,
            SEQUENCE_SIZE_HEADER: sequence and sequence.size,
            OUTER_SEQUENCES_HEADER: nested or None,
        }
    )


def _outer_sequences(message: Message[Any]) -> list[MessageSequence]:
    nested = message.headers.get(OUTER_SEQUENCES_HEADER)
    if nested is None:
        return []
    if (
        not isinstance(nested, list)
        or len(nested) >= SEQUENCE_LEVELS_MAX
        or not all(isinstance(each, list) and 2 <= len(each) <= 3 for each in nested)
    ):
        raise RejectMessageError(f"invalid header {OUTER_SEQUENCES_HEADER}")
    return [_check(*each) for each in nested]


def _check(id: Any, number: Any, size: Any = None) -> MessageSequence:  # noqa: A002  # its name in the header
    is_size_valid = size is None or (type(size) is int and size > 0)
    if not isinstance(id, str) or not (type(number) is int and number > 0) or not is_size_valid:
        raise RejectMessageError(
            f"invalid sequence headers: id {id!r:.100}, number {number!r:.100}, size {size!r:.100}"
        )
    if size is not None and number > size:
        raise RejectMessageError(f"sequence number {number} is greater than the size {size}")
    return MessageSequence(id, number, size)
