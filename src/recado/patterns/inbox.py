"""Idempotent handlers: each message has its effect once, however often it is delivered or sent.

    @app.subscribe("payments", deduplicate="json.payment")
    def book(payment: Payment, transaction: StoreTransaction) -> None:
        transaction.execute("UPDATE accounts SET …")

The keys of messages that were handled are in the state store. A handler that takes a `StoreTransaction` runs within the
transaction that stores the key, so its changes to that database happen once (PIN1). Other handlers have effects that no
transaction covers: the key is stored when they have returned (PIN2).

PIN1  The changes by a handler in its transaction are committed with the key of its message, or not at all.
PIN2  A message whose handler has returned, and whose key was stored then, is not handled again. If the process is
      killed between the two, it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from .errors import StateError
from .failure import to_failure
from .flow import INBOX_AGE_MAX_S, INBOX_IDS_MAX
from .message import Message
from .routing.message_field import MessageField, to_key, to_reader
from .state import StateStore, StoreTransaction

T = TypeVar("T")

MESSAGE_ID_FIELD: Final = "message_id"


class InboxError(StateError):
    """The store could not tell or keep whether a message was handled."""


class _HandlerFailedError(Exception):
    """The handler raised within a transaction, which is rolled back."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class HandlerInbox:
    """The keys of messages that the handlers of an endpoint have handled."""

    def __init__(self, tag: str, by: MessageField, store: StateStore) -> None:
        self.duplicate_count = 0
        self._consumer = f"handler {tag}"
        self._field = by
        self._read = to_reader(by)
        self._store = store
        self._running: dict[str, asyncio.Event] = {}

    def _key_of(self, message: Message[Any]) -> str | None:
        """Return the key of a message; None: it has no message id, so it is always handled."""
        value = self._read(message)
        if value is None and self._field == MESSAGE_ID_FIELD:
            return None
        return to_key(value, self._field)

    async def call(self, message: Message[Any], proceed: Callable[[], Awaitable[Any]]) -> Any:
        """Call a handler and store the key; returns None for a message that was handled before."""
        key = self._key_of(message)
        if key is None:
            return await proceed()
        while (running := self._running.get(key)) is not None:
            await running.wait()
        self._running[key] = asyncio.Event()
        try:
            if await self._run(lambda transaction: transaction.has_processed(self._consumer, key)):
                self.duplicate_count += 1
                return None
            result = await proceed()
            await self._run(partial(self._mark, key))
        finally:
            self._running.pop(key).set()
        return result

    async def call_in_transaction(
        self, message: Message[Any], function: Callable[[Any, StoreTransaction], Any], argument: Any
    ) -> Any:
        """Call a handler within the transaction that stores the key; returns like `call`."""
        key = self._key_of(message)

        def run(transaction: StoreTransaction) -> Any:
            if key is not None and not self._mark(key, transaction):
                self.duplicate_count += 1
                return None
            try:
                return function(argument, transaction)
            except BaseException as raised:
                raise _HandlerFailedError(to_failure(raised)) from raised

        try:
            return await self._run(run)
        except _HandlerFailedError as error:
            raise error.cause from None

    def _mark(self, key: str, transaction: StoreTransaction) -> bool:
        is_new = transaction.mark_processed(self._consumer, key)
        transaction.forget_processed(
            self._consumer, age_max=INBOX_AGE_MAX_S, count_max=INBOX_IDS_MAX
        )
        return is_new

    async def _run(self, function: Callable[[StoreTransaction], T]) -> T:
        try:
            return await self._store.run(function, locks=[self._consumer])
        except StateError as error:
            raise InboxError(str(error)) from error
