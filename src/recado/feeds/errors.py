"""What can go wrong with a feed, one class per thing that a program may want to do about it.

    FeedError
    ├── CannotJoin        the carrier does not let us in: no broker, no such network interface, …
    ├── CarrierLost       it did, and is gone for good
    ├── RecoveryFailed    what was missed cannot be had: no archive answers, or it has it no more
    ├── ArchiveStopped    an archive had to stop: its disk failed, it fell out of the feed
    └── FeedClosed        it was closed by this program

An error says what happened, and where something can be done about it, what.
"""

from __future__ import annotations


class FeedError(Exception):
    """Anything of the above."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}. {hint}" if hint else what)
        self.what = what
        self.hint = hint


class CannotJoin(FeedError):
    pass


class CarrierLost(FeedError):
    pass


class RecoveryFailed(FeedError):
    pass


class ArchiveStopped(FeedError):
    pass


class FeedClosed(FeedError):
    pass
