"""Cached routes of publishes, and publishing a run to all queues of a route.

Publishers repeat their routing keys, so routes are cached by the bytes of the publish method frame, and are
valid as long as the vhost's epoch. A route contains everything that does not depend on the individual
message: that the exchange exists, that the user may write to it, and which queues are bound.
"""

from collections.abc import Iterable, Sequence

import msgspec

from recado.amqp.codec import decode_method
from recado.amqp.errors import AmqpNotImplementedError, AmqpSyntaxError, PreconditionFailedError
from recado.amqp.methods import BasicPublish
from recado.amqp.values import FieldTable

from .access import Permission, PermissionChecker, User
from .coalescer import Coalescer
from .consumer_timeout import ConsumerTimeouts
from .deduplication import ExchangeDeduplication
from .exchange import Exchange
from .queue import Queue
from .route_search import depends_on_headers, find_queues
from .run import Origin, Run
from .steps import STEP_UNITS_MAX, Steps, chunks
from .vhost import Vhost

_CACHED_ROUTES_MAX = 8192  # bounds the memory for a publisher that never repeats a key


class Route(Origin):
    """The route of all messages whose basic.publish frames are equal: their exchange and queues."""

    __slots__ = ("is_unroutable", "mandatory", "queues", "source_exchange")

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        source_exchange: Exchange[Queue],
        queues: Sequence[Queue] | None,
    ) -> None:
        super().__init__(exchange, routing_key)
        self.mandatory = mandatory
        self.source_exchange = source_exchange
        self.queues = queues  # None: depends on the individual message
        self.is_unroutable = queues is not None and is_unroutable(queues)


class VhostAccess:
    """One user in one vhost: its permissions and its cache of routes."""

    __slots__ = (
        "_epoch",
        "_routes",
        "coalescer",
        "consumer_timeouts",
        "permissions",
        "user",
        "vhost",
    )

    def __init__(
        self,
        user: User,
        vhost: Vhost[Queue],
        consumer_timeouts: ConsumerTimeouts,
        coalescer: Coalescer | None = None,
    ) -> None:
        self.user = user
        self.vhost = vhost
        self.consumer_timeouts = consumer_timeouts
        self.coalescer = coalescer or Coalescer()
        self.permissions = PermissionChecker(user, vhost.name)
        self._routes: dict[bytes, Route] = {}
        self._epoch = vhost.epoch  # of the cached routes

    def set_user(self, user: User) -> None:
        """Apply changed permissions; without any in this vhost, everything is refused from now on."""
        self.user = user
        if not user.may_enter(self.vhost.name):
            nothing = {**user.permissions, self.vhost.name: Permission()}
            user = msgspec.structs.replace(user, permissions=nothing)
        self.permissions = PermissionChecker(user, self.vhost.name)
        self._routes.clear()

    def cached_route(self, method_frame: bytes) -> Route | None:
        """Return the cached route of a publish method frame, or None; see `search_route`."""
        if self._epoch != self.vhost.epoch:
            self._routes.clear()
            self._epoch = self.vhost.epoch
        return self._routes.get(method_frame)

    def search_route(self, method_frame: bytes) -> Steps[Route]:
        """Find the route of a publish and cache it.

        Raises the AMQP error that refuses the publish: unknown exchange, no permission, immediate=true.
        """
        method = decode_method(method_frame[7:-1])
        if not isinstance(method, BasicPublish):
            raise AmqpSyntaxError("content without a publish")
        if method.immediate:
            raise AmqpNotImplementedError("immediate=true")
        self.permissions.check_write("exchange", method.exchange)
        exchange = self.vhost.find_publishable_exchange(method.exchange)
        self.check_topic_permission(exchange, method.routing_key)
        return self._find_route(
            method.exchange, method.routing_key, method.mandatory, exchange, method_frame
        )

    def are_independent(self, method_frames: Iterable[bytes]) -> bool:
        """Whether the order among messages of these cached routes is unobservable.

        It is if every route has queues, no queue is in two of the routes, and none is a per-message queue or
        an address of direct replies.
        """
        if self._epoch != self.vhost.epoch:
            return False
        reached: set[Queue] = set()
        for method_frame in method_frames:
            route = self._routes.get(method_frame)
            if route is None or not route.queues:
                return False
            for queue in route.queues:
                if queue in reached or queue.is_per_message or queue.is_reply_address:
                    return False
                reached.add(queue)
        return True

    def _find_route(
        self,
        name: str,
        key: str,
        mandatory: bool,
        source_exchange: Exchange[Queue],
        method_frame: bytes | None = None,
    ) -> Steps[Route]:
        """Find a route; cache it under `method_frame`, unless the topology has changed meanwhile."""
        vhost, queues = self.vhost, None
        epoch = vhost.epoch
        is_terminal = (
            not source_exchange.bound_exchanges
            and source_exchange.settings.alternate_exchange is None
        )
        uses_headers = (
            source_exchange.uses_headers or source_exchange.deduplication_window is not None
        )
        if not uses_headers and not is_terminal:
            uses_headers = yield from depends_on_headers(vhost, source_exchange)
        if not uses_headers:
            queues = yield from find_queues(vhost, source_exchange, key)
        route = Route(name, key, mandatory, source_exchange, queues)
        if method_frame is not None and self._epoch == vhost.epoch == epoch:
            if len(self._routes) >= _CACHED_ROUTES_MAX:
                self._routes.clear()
            self._routes[method_frame] = route
        return route

    def refresh_route(self, route: Route) -> Steps[Route]:
        """Find the current version of an earlier route; a deleted exchange routes nothing."""
        return self._find_route(
            route.exchange, route.routing_key, route.mandatory, route.source_exchange
        )

    def check_user_id(self, claimed: str) -> None:
        """Raise `PreconditionFailedError` if a message claims to be of another user."""
        if claimed != self.user.name and "impersonator" not in self.user.tags:
            raise PreconditionFailedError(
                f"user_id property set to '{claimed}' but authenticated user was '{self.user.name}'"
            )

    def check_topic_permission(self, exchange: Exchange[Queue], key: str) -> None:
        if exchange.settings.exchange_type == "topic":
            self.permissions.check_topic_write(exchange.name, key)

    def find_message_queues(
        self,
        route: Route,
        headers: FieldTable | None,
        more_keys: Sequence[str],
        deduplication: ExchangeDeduplication,
    ) -> Steps[list[Queue]]:
        """Find the queues of a message with an individual route."""
        return find_queues(
            self.vhost, route.source_exchange, route.routing_key, headers, more_keys, deduplication
        )


def is_unroutable(queues: Sequence[Queue]) -> bool:
    """Whether messages are returned or dropped: addresses of direct replies do not count as queues."""
    return all(queue.is_reply_address for queue in queues)


def publish_to_all(run: Run, queues: Sequence[Queue], now: int) -> Sequence[int]:
    """Publish to each queue; return the indexes of the messages that one of them rejected."""
    if len(run) > 1 and any(queue.is_per_message for queue in queues):
        rejected_indexes = []
        for i in range(len(run)):
            if publish_to_all(run.slice(i, i + 1), queues, now):
                rejected_indexes.append(i)
        return rejected_indexes
    rejected: set[int] = set()
    for queue in queues:
        rejected.update(queue.publish(run.copy_for_queue(), now))
    return sorted(rejected)


def publish_in_steps(run: Run, queues: Sequence[Queue], now: int) -> Steps[None]:
    """Publish to many queues in steps, skipping those that are deleted meanwhile."""
    for chunk in chunks(queues, max(STEP_UNITS_MAX // len(run), 1)):
        publish_to_all(run, [queue for queue in chunk if not queue.deleted], now)
        yield len(chunk) * len(run)
