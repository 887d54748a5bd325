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

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what.rstrip('.')}. {hint}" if hint else what)
        self.what = what
        self.hint = hint


class CannotConnect(ClientError):
    pass


class NotWelcome(CannotConnect):
    pass


class TlsFailed(NotWelcome):
    pass


class LoginFailed(NotWelcome):
    pass


class VhostRefused(NotWelcome):
    pass


class ConnectionEnded(ClientError):
    pass


class ConnectionLost(ConnectionEnded):
    pass


class ClosedByBroker(ConnectionEnded):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the broker closed the connection: {code} {text}", _hint(code, text))
        self.code = code
        self.text = text


class ConnectionClosed(ConnectionEnded):
    def __init__(self) -> None:
        super().__init__("the connection was closed by this program")


class ChannelEnded(ClientError):
    pass


class ChannelRefused(ChannelEnded):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the broker closed the channel: {code} {text}", _hint(code, text))
        self.code = code
        self.text = text

    @property
    def is_held(self) -> bool:
        """Whether somebody else has the queue to themselves. It may be a life of ours that has ended, and that
        the broker has not missed yet; a right that the user lacks has the same code."""
        return self.code == _RESOURCE_LOCKED or _is_in_use(self.code, self.text)


class ChannelClosed(ChannelEnded):
    def __init__(self) -> None:
        super().__init__("the channel was closed by this program")


class ConsumerCancelled(ClientError):
    def __init__(self, tag: str, queue: str) -> None:
        super().__init__(
            f"the broker cancelled consumer '{tag}' of queue '{queue}'",
            "Usually the queue was deleted, or the node that had it is gone.",
        )


class NotConfirmed(ClientError):
    def __init__(self, numbers: Sequence[range]) -> None:
        count = sum(map(len, numbers))
        super().__init__(
            f"the broker did not take {count} messages: {_listed(numbers)}",
            "A queue is full and rejects (x-overflow), or the broker failed to store them.",
        )
        self.numbers = list(numbers)


class GaveUp(ClientError):
    def __init__(self, seconds: float, attempts: int, last: Exception) -> None:
        super().__init__(
            f"the connection was not restored within {seconds:g} s ({attempts} attempts); "
            f"the last one failed: {last}"
        )
        self.last = last


def _listed(numbers: Sequence[range], most: int = 5) -> str:
    shown = [str(each[0]) if len(each) == 1 else f"{each[0]}–{each[-1]}" for each in numbers[:most]]
    return ", ".join(shown) + (", …" if len(numbers) > most else "")


_ACCESS_REFUSED = 403
_RESOURCE_LOCKED = 405

_HINTS = {
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


def _hint(code: int, text: str) -> str:
    if code == 406:
        if "inequivalent" in text:
            return "It exists already with other properties: declare it alike, or delete it first."
        if "unknown delivery tag" in text:
            return "A delivery was settled twice, or on another channel than it came on."
        if "timed out" in text:
            return "A delivery was not acknowledged within the consumer timeout."
        return ""
    return _HINTS.get(_RESOURCE_LOCKED if _is_in_use(code, text) else code, "")


def _is_in_use(code: int, text: str) -> bool:
    """A consumer has it for itself alone."""
    return code == _ACCESS_REFUSED and "exclusive use" in text
