"""Feeds: persistent publish/subscribe.

Live subscribers receive each message at once; a subscriber that was away receives the missed messages from an
archive first, in order, without gaps and duplicates.

    async with recado.feeds.connect("amqp://guest:guest@localhost") as connection:
        feed = connection.feed("quotes")
        await feed.publish(b"…", key="PETR4")

    connection   blocking   feed   subscription   archiver   observer     the public API
    coalescer   inbox   driver   clock   transport                        the I/O layer
    member   stack   layer   layers                                       the pure core: events in, effects out
    boundary   options   packet   wire   block   vector   views           its interface and its values
    delivery_records   incarnation_history                                an archive's inferences from views
    archive                                                               the files of an archive

The core (member, stack, layers and the values that they use) contains no sockets, threads, clocks or
randomness: `driver` runs it in an event loop, and `bench/feeds_sim` runs whole feeds under a seeded simulator.
The design follows "Persistent message channels for fault-tolerant distributed systems" by Jorge Morgado and
Luís Rodrigues.

The names below are imported on first use: publishing and subscribing do not need pyarrow, archives do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .archive.archive import Archive as Archive
    from .archive.archive import SnapshotExpiredError as SnapshotExpiredError
    from .archive.errors import ArchiveError as ArchiveError
    from .archive.errors import ArchiveMismatchError as ArchiveMismatchError
    from .archive.errors import ArchiveNotFoundError as ArchiveNotFoundError
    from .archive.errors import CorruptArchiveError as CorruptArchiveError
    from .archive.errors import UnsupportedVersionError as UnsupportedVersionError
    from .archive.messages import ArchivedMessage as ArchivedMessage
    from .archive.retention import RetentionLimits as RetentionLimits
    from .archiver import ArchiveOptions as ArchiveOptions
    from .archiver import Archiver as Archiver
    from .blocking import BlockingArchiver as BlockingArchiver
    from .blocking import BlockingFeed as BlockingFeed
    from .blocking import BlockingFeedConnection as BlockingFeedConnection
    from .blocking import BlockingSubscription as BlockingSubscription
    from .connection import FeedConnection as FeedConnection
    from .errors import ArchiveStoppedError as ArchiveStoppedError
    from .errors import FeedClosedError as FeedClosedError
    from .errors import FeedError as FeedError
    from .errors import InvalidUrlError as InvalidUrlError
    from .errors import JoinError as JoinError
    from .errors import MemberFailedError as MemberFailedError
    from .errors import RecoveryError as RecoveryError
    from .errors import TransportLostError as TransportLostError
    from .feed import Feed as Feed
    from .feed import ResumePoint as ResumePoint
    from .message import Message as Message
    from .observer import ObservedMember as ObservedMember
    from .observer import observe_members as observe_members
    from .options import FeedOptions as FeedOptions
    from .stack import StackError as StackError
    from .subscription import DeliveredBatch as DeliveredBatch
    from .subscription import Subscription as Subscription
    from .vector import Vector as Vector
    from .views import Certainty as Certainty
    from .views import LostRange as LostRange
    from .views import MemberId as MemberId
    from .views import Role as Role
    from .views import View as View
    from .views import ViewId as ViewId

_MODULES = {
    "Archive": "archive.archive",
    "ArchiveError": "archive.errors",
    "ArchiveMismatchError": "archive.errors",
    "ArchiveNotFoundError": "archive.errors",
    "ArchiveOptions": "archiver",
    "ArchiveStoppedError": "errors",
    "ArchivedMessage": "archive.messages",
    "Archiver": "archiver",
    "BlockingArchiver": "blocking",
    "BlockingFeed": "blocking",
    "BlockingFeedConnection": "blocking",
    "BlockingSubscription": "blocking",
    "Certainty": "views",
    "CorruptArchiveError": "archive.errors",
    "DeliveredBatch": "subscription",
    "Feed": "feed",
    "FeedClosedError": "errors",
    "FeedConnection": "connection",
    "FeedError": "errors",
    "FeedOptions": "options",
    "InvalidUrlError": "errors",
    "JoinError": "errors",
    "LostRange": "views",
    "MemberFailedError": "errors",
    "MemberId": "views",
    "Message": "message",
    "ObservedMember": "observer",
    "RecoveryError": "errors",
    "ResumePoint": "feed",
    "RetentionLimits": "archive.retention",
    "Role": "views",
    "SnapshotExpiredError": "archive.archive",
    "StackError": "stack",
    "Subscription": "subscription",
    "TransportLostError": "errors",
    "UnsupportedVersionError": "archive.errors",
    "Vector": "vector",
    "View": "views",
    "ViewId": "views",
    "observe_members": "observer",
}

__all__ = ["connect", "connect_blocking", *_MODULES]


def connect(
    url: str,
    *,
    options: FeedOptions | None = None,
    reconnect_timeout: float | None = 300.0,
    wait_for_broker: bool = False,
) -> FeedConnection:
    """Return a connection for feeds, to be opened by `async with`.

    Args:
        url: `amqp://…` or `amqps://…` for a broker, `udp://GROUP:PORT` for multicast without one.
        options: timeouts and limits of its feeds; all members of a feed should use the same.
        reconnect_timeout: seconds to keep reconnecting to a lost broker before its feeds fail with
            `TransportLostError`; None retries forever.
        wait_for_broker: whether opening waits for a broker that is absent. It never waits for one that
            refuses the login.

    Opening raises `JoinError` if the broker cannot be reached, `InvalidUrlError` if the URL is invalid.
    """
    from .connection import FeedConnection

    return FeedConnection(
        url, options=options, reconnect_timeout=reconnect_timeout, wait_for_broker=wait_for_broker
    )


def connect_blocking(
    url: str,
    *,
    options: FeedOptions | None = None,
    reconnect_timeout: float | None = 300.0,
    wait_for_broker: bool = False,
) -> BlockingFeedConnection:
    """Return the blocking twin of a `FeedConnection`, to be opened by `with`. Arguments as for `connect`."""
    from .blocking import BlockingFeedConnection

    return BlockingFeedConnection(
        connect(
            url,
            options=options,
            reconnect_timeout=reconnect_timeout,
            wait_for_broker=wait_for_broker,
        )
    )


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return getattr(import_module(f".{_MODULES[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
