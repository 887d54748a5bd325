"""The errors of the client, one class per reaction that a program may choose.

    ClientError
    ├── CannotConnectError                 no connection: nothing listens there, timeout, …
    │   └── ConnectionRejectedError        the broker rejects this client; retrying does not help
    │       ├── TlsError                   certificates are not trusted, or there is no common TLS version
    │       ├── AuthenticationError        unknown user or wrong password
    │       └── VhostRefusedError          unknown vhost, or the user has no access to it
    ├── ConnectionClosedError              an open connection has ended
    │   ├── ConnectionLostError            the socket broke, or the broker stopped responding
    │   ├── ConnectionClosedByBrokerError  the broker closed it, with a reply code
    │   └── ConnectionClosedByClientError  this program closed it
    ├── ChannelClosedError                 a channel has ended, the connection is still open
    │   ├── ChannelClosedByBrokerError     the broker closed it because an operation failed
    │   └── ChannelClosedByClientError     this program closed it
    ├── ConsumerCancelledError             the broker cancelled a consumer: its queue was deleted, …
    ├── PublishNackedError                 the broker nacked published messages
    └── ReconnectTimeoutError              a robust connection could not reconnect in time

The text of an error says what happened and, where possible, what to do about it.
"""

from collections.abc import Sequence


class ClientError(Exception):
    """The base class of all errors of the client: `problem` says what happened, `hint` what to do about it."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(f"{problem.rstrip('.')}. {hint}" if hint else problem)
        self.problem = problem
        self.hint = hint


class CannotConnectError(ClientError):
    pass


class ConnectionRejectedError(CannotConnectError):
    pass


class TlsError(ConnectionRejectedError):
    pass


class AuthenticationError(ConnectionRejectedError):
    pass


class VhostRefusedError(ConnectionRejectedError):
    pass


class ConnectionClosedError(ClientError):
    pass


class ConnectionLostError(ConnectionClosedError):
    pass


class ConnectionClosedByBrokerError(ConnectionClosedError):
    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(
            f"the broker closed the connection: {reply_code} {reply_text}",
            _find_hint(reply_code, reply_text),
        )
        self.reply_code = reply_code
        self.reply_text = reply_text


class ConnectionClosedByClientError(ConnectionClosedError):
    def __init__(self) -> None:
        super().__init__("this program closed the connection")


class ChannelClosedError(ClientError):
    pass


class ChannelClosedByBrokerError(ChannelClosedError):
    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(
            f"the broker closed the channel: {reply_code} {reply_text}",
            _find_hint(reply_code, reply_text),
        )
        self.reply_code = reply_code
        self.reply_text = reply_text

    @property
    def is_exclusively_locked(self) -> bool:
        """Whether another connection or consumer uses the queue exclusively.

        It may be the previous connection of this program, whose loss the broker has not noticed yet. A consumer
        of a queue with an exclusive consumer is refused with 403, like one without permission, so the text of a
        403 is checked too.
        """
        return self.reply_code == _RESOURCE_LOCKED_CODE or _is_exclusive_use(
            self.reply_code, self.reply_text
        )


class ChannelClosedByClientError(ChannelClosedError):
    def __init__(self) -> None:
        super().__init__("this program closed the channel")


class ConsumerCancelledError(ClientError):
    def __init__(self, tag: str, queue: str) -> None:
        super().__init__(
            f"the broker cancelled consumer '{tag}' of queue '{queue}'",
            "Usually the queue was deleted, or the broker node that hosts it has stopped.",
        )


class PublishNackedError(ClientError):
    def __init__(self, sequence_numbers: Sequence[range]) -> None:
        count = sum(map(len, sequence_numbers))
        super().__init__(
            f"the broker nacked {count} published messages: {_format_ranges(sequence_numbers)}",
            "A queue is full and rejects publishes (x-overflow), or the broker could not store them.",
        )
        self.sequence_numbers = list(sequence_numbers)


class ReconnectTimeoutError(ClientError):
    def __init__(self, seconds: float, attempt_count: int, last_error: Exception) -> None:
        super().__init__(
            f"no reconnection within {round(seconds, 1):g} s ({attempt_count} attempts, "
            f"setting reconnect_timeout); the last attempt failed: {last_error}"
        )
        self.last_error = last_error


def _format_ranges(numbers: Sequence[range], shown_count: int = 5) -> str:
    shown = [
        str(each[0]) if len(each) == 1 else f"{each[0]}–{each[-1]}"
        for each in numbers[:shown_count]
    ]
    return ", ".join(shown) + (", …" if len(numbers) > shown_count else "")


_ACCESS_REFUSED_CODE = 403
_RESOURCE_LOCKED_CODE = 405

_HINT_BY_CODE = {
    311: "The message is larger than the broker allows.",
    320: "The broker is stopping, or an operator closed the connection.",
    402: "The broker could not provide the requested access path.",
    403: "Check the configure, write and read permissions of this user in this vhost.",
    404: "Declare it before use; names are case-sensitive and belong to one vhost.",
    405: "Another connection uses the queue exclusively, perhaps a lost one that the broker still considers "
    "open.",
    501: "The client or the broker violates AMQP 0-9-1.",
    504: "A channel was used that is not open.",
    530: "The broker does not allow this operation, or not for this user.",
}


def _find_hint(reply_code: int, reply_text: str) -> str:
    if reply_code == 406:
        if "inequivalent" in reply_text:
            return "It exists with other properties: declare it with the same ones, or delete it first."
        if "unknown delivery tag" in reply_text:
            return "A delivery was settled twice, or on a channel that did not receive it."
        if "timed out" in reply_text:
            return "A delivery was not acknowledged within the consumer timeout of the broker."
        return ""
    return _HINT_BY_CODE.get(
        _RESOURCE_LOCKED_CODE if _is_exclusive_use(reply_code, reply_text) else reply_code, ""
    )


def _is_exclusive_use(reply_code: int, reply_text: str) -> bool:
    """Whether the broker refused a consumer because another one uses the queue exclusively."""
    return reply_code == _ACCESS_REFUSED_CODE and "exclusive use" in reply_text
