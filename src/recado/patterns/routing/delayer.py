"""Delayer: messages wait for a time before they continue.

    Delayer(60)
    Delayer(lambda message: message.body["due"] - time.time())

The message is in the store meanwhile, so it is neither lost with the process nor held by a consumer.

PDL1  A message continues once, not before its time.
"""

from collections.abc import Callable
from secrets import token_hex
from typing import Any, Final

from ..errors import CompositionError, RejectMessageError
from ..message import Message
from ..state.stored_message import MessageCodec
from ..step import Outputs, StatefulStep, StateTransaction

_DUE_MESSAGES_MAX: Final = 500


class Delayer(StatefulStep):
    """Hold each message for `delay` seconds: a number, or a function of the message.

    A message whose delay is zero or negative continues at once. Messages that are due continue in the order of
    their times.

    Args:
        delay: seconds, or a function of the message that returns seconds.
        body_type: the type of the bodies, unless they are plain values.
        table: the name of the table, unique in the store.
    """

    def __init__(
        self,
        delay: float | Callable[[Message[Any]], float],
        *,
        body_type: Any = Any,
        table: str = "delayer",
    ) -> None:
        if not callable(delay) and not delay > 0:
            raise CompositionError(f"delay is {delay}: it must be greater than 0")
        self.table = table
        self._delay = delay
        self._codec = MessageCodec(body_type)

    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        delay = self._delay(message) if callable(self._delay) else self._delay
        if delay != delay or delay == float("inf"):
            raise RejectMessageError(f"the delay of the message is {delay}")
        if delay <= 0:
            return (message,)
        until = state.now + delay
        # The token makes the key unique: several messages may be due at one time, or one be delayed twice.
        state.put(
            self.table,
            f"{until:020.6f} {token_hex(8)}",
            self._codec.encode(message),
            deadline=until,
        )
        return ()

    def expire(self, state: StateTransaction) -> Outputs:
        for key, stored in state.due(self.table, _DUE_MESSAGES_MAX):
            state.delete(self.table, key)
            yield self._codec.decode(stored)
