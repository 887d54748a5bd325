"""What can go wrong for a client, one class per thing that a program may want to do about it.

    ClientError
    ├── CannotConnect        there is no connection: nobody listens, it takes too long, …
    │   └── NotWelcome       the broker is there, and does not want us: another attempt mends nothing
    │       ├── TlsFailed    the two sides do not trust or understand each other
    │       ├── LoginFailed  the broker does not know this user, or the password is wrong
    │       └── VhostRefused there is no such vhost, or it is not for this user
    ├── ConnectionEnded      there was a connection
    │   ├── ConnectionLost   it broke
    │   ├── ClosedByBroker   the broker ended it, and said why
    │   └── ConnectionClosed this program closed it
    ├── ChannelEnded         the connection is well, this channel is not
    │   ├── ChannelRefused   the broker ended it because of something that was asked for
    │   └── ChannelClosed    this program closed it
    ├── ConsumerCancelled    the broker took the consumer away, as when its queue is deleted
    ├── NotConfirmed         the broker says that it did not take messages
    └── GaveUp               a robust connection was not restored in time

An error says what happened, and where something can be done about it, what.
"""

from collections.abc import Sequence


class ClientError(Exception):
    """Anything of the above."""

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
        super().__init__("the connection was closed by this program")


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
        """Whether somebody else has the queue to themselves. It may be a life of ours that has ended, and that
        the broker has not missed yet; a right that the user lacks has the same code."""
        return self.reply_code == _RESOURCE_LOCKED_CODE or _is_exclusive_use(
            self.reply_code, self.reply_text
        )


class ChannelClosedByClientError(ChannelClosedError):
    def __init__(self) -> None:
        super().__init__("the channel was closed by this program")


class ConsumerCancelledError(ClientError):
    def __init__(self, tag: str, queue: str) -> None:
        super().__init__(
            f"the broker cancelled consumer '{tag}' of queue '{queue}'",
            "Usually the queue was deleted, or the node that had it is gone.",
        )


class PublishNackedError(ClientError):
    def __init__(self, sequence_numbers: Sequence[range]) -> None:
        count = sum(map(len, sequence_numbers))
        super().__init__(
            f"the broker did not take {count} messages: {_format_ranges(sequence_numbers)}",
            "A queue is full and rejects (x-overflow), or the broker failed to store them.",
        )
        self.sequence_numbers = list(sequence_numbers)


class ReconnectTimeoutError(ClientError):
    def __init__(self, seconds: float, attempt_count: int, last_error: Exception) -> None:
        super().__init__(
            f"the connection was not restored within {seconds:g} s ({attempt_count} attempts); "
            f"the last one failed: {last_error}"
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
    320: "The broker is stopping, or its operator closed the connection.",
    402: "The consumer was not given what it asked for.",
    403: "See what this user may configure, write and read in this vhost.",
    404: "Declare it before it is used; names are told apart by case, and by vhost.",
    405: "The queue belongs exclusively to another connection, perhaps one that the broker has not missed yet.",
    501: "One of the two does not speak AMQP 0-9-1 properly.",
    504: "A channel was used that is not open.",
    530: "The broker does not allow this, here or to this user.",
}


def _find_hint(reply_code: int, reply_text: str) -> str:
    if reply_code == 406:
        if "inequivalent" in reply_text:
            return "It exists already with other properties: declare it alike, or delete it first."
        if "unknown delivery tag" in reply_text:
            return "A delivery was settled twice, or on another channel than it came on."
        if "timed out" in reply_text:
            return "A delivery was not acknowledged within the consumer timeout."
        return ""
    return _HINT_BY_CODE.get(
        _RESOURCE_LOCKED_CODE if _is_exclusive_use(reply_code, reply_text) else reply_code, ""
    )


def _is_exclusive_use(reply_code: int, reply_text: str) -> bool:
    """A consumer has it for itself alone."""
    return reply_code == _ACCESS_REFUSED_CODE and "exclusive use" in reply_text
