"""Smart proxy: forwards requests to a service and their replies to the requesters, and measures both.

    app.flow("quotes", SmartProxy("quotes.service"))

Requests and replies come to the queue of the proxy. It replaces the return address of a request by that queue and
the correlation id by a token, and stores the original ones under the token. A reply is recognised by its token. The
state survives a restart, so a requester that is still there gets its reply.

The token is random, so a program that has not seen it cannot send a reply in the name of the service.
"""

from collections.abc import Callable, Iterable
from secrets import token_urlsafe
from typing import Any, Final

import msgspec

from ..destination import DestinationLike
from ..errors import CompositionError
from ..message import Message
from ..return_address import send_reply
from ..step import Outputs, Send, StatefulStep, StateTransaction

TOKEN_PREFIX: Final = "recado.proxy."
_EXPIRED_MAX_COUNT: Final = 1_000


class ProxiedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose reply a proxy waits for, or has forwarded; times are in seconds since 1970.

    `replied_at` is None if no reply came in time.
    """

    key: str
    received_at: float
    replied_at: float | None = None
    reply_to: str
    correlation_id: str | None


class SmartProxy(StatefulStep):
    """Forward requests to `service` and replies to the requesters.

    `observe` is called with each request that has been answered, or has waited longer than `timeout` seconds; it
    runs inside the transaction, so it may be called again after a crash. Late replies are dropped. Messages without
    return address are forwarded and not tracked.
    """

    def __init__(
        self,
        service: DestinationLike,
        *,
        timeout: float = 60.0,
        observe: Callable[[ProxiedRequest], object] | None = None,
        table: str = "smart-proxy",
    ) -> None:
        self.table = table
        self._service = service
        self._timeout = timeout
        self._observe = observe

    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        token = message.correlation_id
        if token is not None and token.startswith(TOKEN_PREFIX):
            return self._forward_reply(token, message, state)
        if message.reply_to is None:
            return (Send(self._service, message),)
        return (Send(self._service, self._track(message, message.reply_to, state)),)

    def _track(self, message: Message[Any], reply_to: str, state: StateTransaction) -> Message[Any]:
        if message.delivery is None:
            raise CompositionError("a smart proxy tracks received messages only")
        token = TOKEN_PREFIX + token_urlsafe(16)
        request = ProxiedRequest(
            key=message.key,
            received_at=state.now,
            reply_to=reply_to,
            correlation_id=message.correlation_id,
        )
        deadline = state.now + self._timeout
        state.put(self.table, token, msgspec.msgpack.encode(request), deadline=deadline)
        return message.replace(correlation_id=token, reply_to=message.delivery.queue)

    def _forward_reply(self, token: str, reply: Message[Any], state: StateTransaction) -> Outputs:
        stored = state.get(self.table, token)
        if stored is None:
            return ()
        state.delete(self.table, token)
        request = msgspec.msgpack.decode(stored, type=ProxiedRequest)
        self._report(msgspec.structs.replace(request, replied_at=state.now))
        return (send_reply(reply, request.reply_to, request.correlation_id),)

    def expire(self, state: StateTransaction) -> Outputs:
        for token, stored in state.due(self.table, _EXPIRED_MAX_COUNT):
            state.delete(self.table, token)
            self._report(msgspec.msgpack.decode(stored, type=ProxiedRequest))
        return ()

    def _report(self, request: ProxiedRequest) -> None:
        if self._observe is not None:
            self._observe(request)

    def destinations(self) -> Iterable[DestinationLike]:
        return (self._service,)
