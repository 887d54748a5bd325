"""Exceptions of feeds: one class for each situation that a program may handle differently.

    FeedError
    ├── JoinError                 cannot join: no broker, no such network interface, a member limit, …
    │   └── InvalidUrlError       the URL cannot name a broker or a multicast group
    ├── TransportLostError        the broker or network failed for good after joining
    ├── MemberFailedError         an exception inside this program stopped the member
    ├── RecoveryError             missed messages cannot be recovered: no archive answers
    ├── ArchiveStoppedError       an archiver had to stop: its disk failed, it fell out of the feed
    ├── FeedClosedError           this program has closed the feed or the connection
    ├── StackError                a stack text is invalid
    └── ArchiveError              the folder of an archive cannot be used (`recado.feeds.archive.errors`)

The message says what happened; `hint`, where there is one, says what to do about it.
"""

from __future__ import annotations


class FeedError(Exception):
    """Base class of all exceptions of feeds.

    Attributes: `reason` says what happened, `hint` what to do about it (may be empty).
    """

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
    """An exception in recado, in a custom layer or in an application callback; it is the `__cause__`."""

    def __init__(self, feed: str, cause: Exception) -> None:
        super().__init__(
            f"feed {feed}: internal error in this program: {type(cause).__name__}: {cause}",
            "The traceback is in the log.",
        )
        self.__cause__ = cause


class RecoveryError(FeedError):
    pass


class ArchiveStoppedError(FeedError):
    pass


class FeedClosedError(FeedError):
    pass
