"""Envelope Wrapper: a whole message as the body of another.

For systems between sender and receiver that carry only bodies, or that have uses of their own for headers: a
bridge over HTTP, a file, a broker of another protocol.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from ..message import Message
from ..step import FlowStep, Outputs
from ..translation import Translators


class WrappedMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as a body: its properties, and its encoded body."""

    body: bytes
    content_type: str
    headers: Mapping[str, Any] = {}
    content_encoding: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    app_id: str | None = None
    priority: int | None = None
    expiration: float | None = None
    timestamp: datetime | None = None
    key: str = ""
    message_id: str | None = None


class EnvelopeWrapper(FlowStep):
    """Make each message the body of another, which has only its key, message id, priority and expiration.

    The envelope is MessagePack, so that headers keep their types, unless `content_type` says otherwise. `user_id`
    is not wrapped, as brokers accept only that of the connection.
    """

    def __init__(
        self, *, content_type: str = "application/msgpack", translators: Translators | None = None
    ) -> None:
        self._content_type = content_type
        self._translators = translators or Translators()

    def process(self, message: Message[Any]) -> Outputs:
        body, content_type = self._translators.encode(message.body, message.content_type)
        wrapped = WrappedMessage(
            body=body,
            content_type=content_type,
            headers=message.headers,
            content_encoding=message.content_encoding,
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            type=message.type,
            app_id=message.app_id,
            priority=message.priority,
            expiration=message.expiration,
            timestamp=message.timestamp,
            key=message.key,
            message_id=message.message_id,
        )
        return (
            message.replace(
                body=wrapped,
                content_type=self._content_type,
                headers={},
                content_encoding=None,
                correlation_id=None,
                reply_to=None,
                type=None,
                app_id=None,
                user_id=None,
                timestamp=None,
            ),
        )


class EnvelopeUnwrapper(FlowStep):
    """Take each message out of its envelope, and decode its body to the type `target`.

    A message that is not an envelope is invalid.
    """

    def __init__(self, target: Any = Any, *, translators: Translators | None = None) -> None:
        self._target = target
        self._translators = translators or Translators()

    def process(self, message: Message[Any]) -> Outputs:
        wrapped = self._translators.convert(message.body, message.content_type, WrappedMessage)
        properties = msgspec.structs.asdict(wrapped)
        properties["body"] = self._translators.decode(
            wrapped.body, wrapped.content_type, self._target
        )
        return (message.replace(**properties),)
