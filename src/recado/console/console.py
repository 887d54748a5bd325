"""The state behind the HTTP API: the server that is administered, logins, statistics and the audit log."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from recado import __version__
from recado.broker.access import Permission
from recado.broker.broker import Broker
from recado.broker.scopes import TokenUser
from recado.server.connection import now_ms
from recado.server.throttle import LoginThrottledError

from .audit import AuditLog
from .events.streams import EventStreams
from .import_runner import ImportRunner
from .local_channel import LocalChannel
from .loop_lag import LoopLag
from .message_access import MessagePolicy
from .node_history import NodeHistory
from .provider_sign_in import ProviderSignIn
from .query import Steps
from .queue_tap import TapTable
from .request import Answer, ApiError, ApiRequest, amqp_errors_as_answers, check_name
from .routes import CHANGING_METHODS
from .sampler import Sampler
from .sessions import ConsoleSession, SessionTable
from .slices import SlicePacer
from .snapshots import SnapshotTable
from .status_collector import StatusCollector
from .status_table import StatusRecords
from .trace_table import TraceTable

if TYPE_CHECKING:
    from recado.broker.access import User
    from recado.broker.broker import DeletedQueueCounters
    from recado.broker.queue import Queue
    from recado.broker.routing import VhostAccess
    from recado.feeds.archive.search import ArchiveSearch, SearchResult
    from recado.feeds.archive_summary import ArchiveSummary, SubscriberDelivery
    from recado.server.server import Server

    from .identity_provider import IdentityProvider
    from .routes import ApiRoute

FULL_PERMISSION: Final = Permission(configure=".*", write=".*", read=".*")
# Logins over AMQP wait for the same threads, which compute slow hashes.
PENDING_LOGINS_MAX_COUNT: Final = 32


class Listener(msgspec.Struct, frozen=True):
    """A port that the node listens on."""

    protocol: str
    address: str
    port: int


class DiskFolder(Protocol):
    """The data folder of the node."""

    path: Path

    def journals(self) -> Iterable[tuple[str, int, int]]:
        """Return kind ("queues" or "streams"), size in bytes and number of files of each journal."""

    def free_bytes(self) -> int:
        """Return the free space of the disk."""


class CertificateFiles(Protocol):
    """The certificates of the TLS listeners, and until when they are valid."""

    @property
    def certificate_file(self) -> str: ...

    @property
    def certificate_expiry(self) -> Sequence[datetime]: ...

    @property
    def ca_file(self) -> str | None:
        """The authorities of client certificates, over AMQP only."""

    @property
    def ca_expiry(self) -> Sequence[datetime]: ...


class ArchiveEntry(Protocol):
    """An archive of a feed that the node runs."""

    @property
    def name(self) -> str: ...

    @property
    def feed(self) -> str: ...

    @property
    def vhost(self) -> str: ...

    @property
    def queue(self) -> str:
        """The queue with the packets that the archive has not stored."""

    @property
    def is_storing(self) -> bool:
        """Whether it runs, and no error has stopped it."""

    @property
    def stored_count(self) -> int:
        """Messages on disk since the archive was created."""

    @property
    def unsynced_count(self) -> int:
        """Messages that it has received, but are not yet on disk."""

    @property
    def unsealed_count(self) -> int:
        """Messages on disk that are not yet in a Parquet file."""

    @property
    def lag_s(self) -> float:
        """Seconds since the oldest message that is not yet on disk was received; 0 if there is none."""


class ArchiveSet(Protocol):
    """The archives that the node runs."""

    def measure_progress(self) -> Iterable[ArchiveEntry]: ...

    def summarize(self, vhost: str, feed: str) -> Sequence[ArchiveSummary]:
        """Return what the archives of a feed know about it."""

    async def assess_subscriber(
        self, vhost: str, feed: str, subscriber: str
    ) -> Sequence[SubscriberDelivery]:
        """Return what the archives of a feed know about the messages that a subscriber has received."""

    async def search(
        self, vhost: str, feed: str, name: str | None, wanted: ArchiveSearch
    ) -> tuple[str, SearchResult] | None:
        """Search an archive of a feed, the first one without a name; None if there is none.

        Raises `ArchiveError`.
        """


class ResourceLimits(msgspec.Struct, frozen=True):
    """The limits of the node, and how far they are used."""

    memory_bytes: int
    memory_alarm: bool
    disk_free_bytes: int
    disk_free_min_bytes: int
    disk_alarm: bool
    open_files: int
    open_files_max: int


class Console:
    """The state of the HTTP API of one node, and the operations that its handlers share."""

    def __init__(
        self,
        server: Server,
        *,
        node_name: str,
        compatible_version: str,
        data_folder: DiskFolder | None = None,
        disk_free_min_bytes: int = 0,
        audit: AuditLog | None = None,
        loopback_users: Collection[str] = (),
        certificates: CertificateFiles | None = None,
        archives: ArchiveSet | None = None,
        collector: StatusCollector | None = None,
        message_policy: MessagePolicy | None = None,
        provider: IdentityProvider | None = None,
    ) -> None:
        self.server: Server = server
        self.collector = collector
        """Collects status records; None unless `management.status` is set."""
        self.message_policy = message_policy or MessagePolicy()
        self.loopback_users = loopback_users
        self.certificates = certificates
        self.archives = archives
        self.node_name = node_name
        self.audit = audit or AuditLog()
        self.started_at = time.time()
        self.version = __version__
        self.compatible_version = compatible_version
        self.listeners: list[Listener] = []
        self.is_ready = True
        self.slices = SlicePacer()
        self.sampler = Sampler(server, self.slices)
        self.loop_lag = LoopLag()
        self.history = NodeHistory(self)
        self.imports = ImportRunner(server)
        self.data_folder = data_folder
        self.disk_free_min_bytes = disk_free_min_bytes
        self.events = EventStreams(self)
        self._pending_logins = 0
        self.sessions = SessionTable()
        self.sign_in = None if provider is None else ProviderSignIn(self, provider)
        """Signing in at an identity provider, if one is configured."""
        self.snapshots = SnapshotTable()
        self.taps = TapTable(server)
        self.traces = TraceTable(server)

    @property
    def broker(self) -> Broker:
        return self.server.broker

    @property
    def status(self) -> StatusRecords:
        """The status records that were collected; none unless `management.status` is set."""
        return self.collector.records if self.collector is not None else StatusRecords()

    @property
    def uptime_s(self) -> float:
        return time.time() - self.started_at

    @property
    def cluster_name(self) -> str:
        return str(self.broker.global_parameters.get("cluster_name", self.node_name))

    @property
    def data_path(self) -> str:
        return str(self.data_folder.path) if self.data_folder is not None else ""

    @property
    def disk_free_bytes(self) -> int:
        """The free space of the disk with the data folder; 0 without a data folder."""
        return self.data_folder.free_bytes() if self.data_folder is not None else 0

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def authenticate(self, name: str, password: str, peer: str) -> User:
        """Return the user with this name and password, or of the token that is sent as the password.

        Raises `ApiError`: 401, the same for all causes, or 429 if the login is throttled.
        """
        return await self._log_in(self.server.authenticator.check(name, password.encode(), peer))

    async def authenticate_token(self, token: str, peer: str) -> User:
        """Return the user of an OAuth 2 token. Raises `ApiError` as `authenticate` does."""
        return await self._log_in(self.server.authenticator.check_token(token.encode(), peer))

    async def find_renewed_session(self, session_id: str) -> ConsoleSession | None:
        """Return an open session of the console, as `find_session`, after its token was renewed if it has expired."""
        session = self.sessions.find(session_id, self.server.loop.time())
        if session is not None and self.sign_in is not None:
            await self.sign_in.renew(session_id, session)
        return self.find_session(session_id)

    def find_session(self, session_id: str) -> ConsoleSession | None:
        """Return an open session of the console; it ends with the password, user or token that opened it."""
        session = self.sessions.find(session_id, self.server.loop.time())
        if session is None:
            return None
        user = session.user
        if isinstance(user, TokenUser):
            is_valid = not session.is_expired(now_ms())
            if not is_valid and session.renewal is not None:
                return None  # until the next request renews it
        else:
            current = self.broker.users.get(user.name)
            is_valid = current is not None and current.password_hash == user.password_hash
            if current is not None:
                session.user = current
        if not is_valid:
            self.sessions.close(session_id)
            return None
        return session

    async def _log_in(self, check: Coroutine[Any, Any, User | None]) -> User:
        if self._pending_logins >= PENDING_LOGINS_MAX_COUNT:
            check.close()
            raise ApiError(429, "too_many_requests", "too many logins are being checked")
        self._pending_logins += 1
        try:
            user = await check
        except LoginThrottledError as error:
            self.server.authenticator.count_attempt("http", succeeded=False)
            raise ApiError(429, "too_many_requests", str(error)) from error
        finally:
            self._pending_logins -= 1
        self.server.authenticator.count_attempt("http", succeeded=user is not None)
        if user is None:
            raise ApiError(401, "not_authorized", "Not_Authorized")
        return user

    def handle(self, route: ApiRoute, request: ApiRequest) -> Answer:
        """Run a handler as one turn of the broker. Raises `ApiError`."""
        if route.method in ("PUT", "POST"):
            for name, value in request.parameters.items():
                check_name(name, value)
        with amqp_errors_as_answers():
            answer = self.server.run_on_broker(lambda _broker, _now: route.handler(request))
        if route.method in CHANGING_METHODS and answer.is_change:
            self.audit.record(request.user.name, request.peer, route, request.parameters)
        if answer.wait is not None and answer.outcome is not None:
            wait = partial(self._record_outcome, route, request, answer.wait, answer.outcome)
            answer = msgspec.structs.replace(answer, wait=wait)
        return answer

    async def _record_outcome(
        self,
        route: ApiRoute,
        request: ApiRequest,
        wait: Callable[[], Awaitable[Answer]],
        outcome: Callable[[], Mapping[str, Any]],
    ) -> Answer:
        """Wait for a long operation, and write to the audit log what it has done, also if it ended early."""
        try:
            return await wait()
        finally:
            user, peer = request.user.name, request.peer
            self.audit.record(user, peer, route, request.parameters, outcome())

    def open_channel(self, request: ApiRequest, access: VhostAccess) -> LocalChannel:
        """Return a channel of the request's user in a vhost."""
        body_max = self.server.options.body_max_bytes
        return LocalChannel(self.broker, access, body_max, request.now_ms)

    def close_connections(
        self, reason: str, *, user: str | None = None, vhost: str | None = None
    ) -> int:
        """Close the connections of a user, or those in a vhost; return how many there were."""
        chosen = []
        for connection in self.server.connections:
            access = connection.session.access
            if access is not None and (
                (user is not None and access.user.name == user)
                or (vhost is not None and access.vhost.name == vhost)
            ):
                chosen.append(connection)
        for connection in chosen:
            connection.close_forced(reason)
        return len(chosen)

    # ── data for the overview and the node ────────────────────────────────────────────────────────────

    def read_totals(
        self, queues: Iterable[Queue | DeletedQueueCounters]
    ) -> Steps[tuple[dict[str, int], dict[str, int]]]:
        """Return the sums of the message counters and of the lengths of these queues, in bounded steps."""
        return self.sampler.sum_queues(queues)

    def read_churn(self) -> dict[str, int]:
        """Return how many connections, channels and queues were opened and closed."""
        return self.sampler.read_churn()

    def read_limits(self) -> ResourceLimits:
        store, alarm = self.broker.store, self.server.alarm
        soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ResourceLimits(
            memory_bytes=self.server.memory_limit_bytes,
            memory_alarm=alarm is not None and "memory" in alarm,
            disk_free_bytes=self.disk_free_bytes,
            disk_free_min_bytes=self.disk_free_min_bytes,
            disk_alarm=store.disk_shortage() is not None,
            open_files=_count_open_files(),
            open_files_max=soft_limit,
        )

    def listener_objects(self) -> list[dict[str, Any]]:
        return [
            {
                "node": self.node_name,
                "protocol": each.protocol,
                "ip_address": each.address,
                "port": each.port,
                "socket_opts": {},
            }
            for each in self.listeners
        ]

    def context_objects(self) -> list[dict[str, Any]]:
        """Return the HTTP listeners, as RabbitMQ describes its web contexts."""
        return [
            {
                "node": self.node_name,
                "description": "RabbitMQ Prometheus"
                if each.protocol == "http/prometheus"
                else "RabbitMQ Management",
                "path": "/",
                "ip": each.address,
                "port": str(each.port),
                "ssl_opts": [],
                "cowboy_opts": "[]",
            }
            for each in sorted(self.listeners, key=lambda each: each.protocol)
            if each.protocol.startswith("http")
        ]


def _count_open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no objects for thousands of names
    except OSError:
        return 0
