"""Idempotent receiver: a message that was seen before is dropped.

    IdempotentReceiver()                             messages with the same id
    IdempotentReceiver(by="json.payment", within=7 * 86_400)

A flow with state recognises messages that the broker delivers again, without this step. The step also recognises those
that a producer has sent twice, by any field.

PIR1  Of the messages with one key that arrive within `within` seconds, one continues, as long as not more than
      `keys_max` newer keys have arrived.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ..destination import DestinationLike
from ..errors import CompositionError
from ..message import Message
from ..step import Outputs, Send, StatefulStep, StateTransaction
from .message_field import MessageField, to_key, to_reader

WITHIN_S: Final = 24 * 3600.0
KEYS_MAX: Final = 100_000

_DUE_KEYS_MAX: Final = 1000


class _SeenKey(msgspec.Struct, frozen=True, array_like=True):
    """The row of a key: its number in the order of arrival, and when it is forgotten."""

    number: int
    until: float


class _Window(msgspec.Struct, array_like=True):
    """How many keys are remembered, and the number of the next one."""

    count: int = 0
    next: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_key: Final = msgspec.msgpack.Decoder(_SeenKey).decode
_decode_window: Final = msgspec.msgpack.Decoder(_Window).decode
_WINDOW_KEY: Final = "window"


class IdempotentReceiver(StatefulStep):
    """Pass the first message of each key.

    Args:
        by: the field or function by which messages are recognised.
        within: seconds for which a key is remembered, from its first message.
        keys_max: how many keys are remembered; beyond that the oldest is forgotten.
        duplicates_to: where repeated messages go; None drops them.
        table: the name of the table, unique in the store.
    """

    def __init__(
        self,
        by: MessageField = "message_id",
        *,
        within: float = WITHIN_S,
        keys_max: int = KEYS_MAX,
        duplicates_to: DestinationLike | None = None,
        table: str = "idempotent-receiver",
    ) -> None:
        if within <= 0 or keys_max < 1:
            raise CompositionError(
                f"within is {within} and keys_max is {keys_max}: no message would be recognised"
            )
        self.table = table
        self._order_table = f"{table}.order"
        self._window_table = f"{table}.window"
        self._by = by
        self._read = to_reader(by)
        self._within = within
        self._keys_max = keys_max
        self._duplicates_to = duplicates_to

    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        key = to_key(self._read(message), self._by)
        window = self._window(state)
        stored = state.get(self.table, key)
        if stored is not None:
            seen = _decode_key(stored)
            if seen.until > state.now:
                return () if self._duplicates_to is None else (Send(self._duplicates_to, message),)
            self._remove(key, seen.number, window, state)
        if window.count >= self._keys_max:
            number, oldest = next(iter(state.scan(self._order_table)))
            self._remove(oldest.decode("utf-8", "surrogatepass"), int(number), window, state)
        until = state.now + self._within
        state.put(self.table, key, _encode(_SeenKey(window.next, until)), deadline=until)
        order_key = f"{window.next:020}"
        state.put(self._order_table, order_key, key.encode("utf-8", "surrogatepass"))
        window.count += 1
        window.next += 1
        state.put(self._window_table, _WINDOW_KEY, _encode(window))
        return (message,)

    def expire(self, state: StateTransaction) -> Outputs:
        window = self._window(state)
        for key, stored in state.due(self.table, _DUE_KEYS_MAX):
            self._remove(key, _decode_key(stored).number, window, state)
        state.put(self._window_table, _WINDOW_KEY, _encode(window))
        return ()

    def destinations(self) -> Iterable[DestinationLike]:
        return () if self._duplicates_to is None else (self._duplicates_to,)

    def _window(self, state: StateTransaction) -> _Window:
        stored = state.get(self._window_table, _WINDOW_KEY)
        return _Window() if stored is None else _decode_window(stored)

    def _remove(self, key: str, number: int, window: _Window, state: StateTransaction) -> None:
        state.delete(self.table, key)
        state.delete(self._order_table, f"{number:020}")
        window.count -= 1
