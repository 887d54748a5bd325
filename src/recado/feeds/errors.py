"""What can go wrong with a feed, one class per thing that a program may want to do about it.

    FeedError
    ├── CannotJoin        the carrier does not let us in: no broker, no such network interface, …
    │   └── WrongUrl      nobody could: the URL says nothing that can be meant
    ├── CarrierLost       it did, and is gone for good
    ├── MemberFailed      neither the carrier nor the others, but a fault in this program: it stops
    ├── RecoveryFailed    what was missed cannot be had: no archive answers
    ├── ArchiveStopped    an archive had to stop: its disk failed, it fell out of the feed
    └── FeedClosed        it was closed by this program

An error says what happened, and where something can be done about it, what.
"""

from __future__ import annotations


class FeedError(Exception):
    """Anything of the above."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(f"{reason}. {hint}" if hint else reason)
        self.reason = reason
        self.hint = hint


class JoinError(FeedError):
    pass


class InvalidUrlError(JoinError):
    pass


class TransportLostError(FeedError):
    pass


class MemberFailedError(FeedError):
    """Its cause is the fault, which is in recado, in a layer or in a callback of the application."""

    def __init__(self, feed: str, cause: Exception) -> None:
        super().__init__(
            f"the feed {feed} stops by a fault in this program, not in what carries it: "
            f"{type(cause).__name__}: {cause}",
            "The log has its traceback.",
        )
        self.__cause__ = cause


class RecoveryError(FeedError):
    pass


class ArchiveStoppedError(FeedError):
    pass


class FeedClosedError(FeedError):
    pass
