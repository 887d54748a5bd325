"""Where a publish goes, remembered; and giving a run to all the queues it goes to.

Publishers repeat themselves, so a route is kept under the bytes of the publish method, and holds as long as the
vhost's epoch. A route says all that does not depend on the single message: that the exchange exists, that the
user may write to it, and which queues are bound.
"""

from collections.abc import Iterable, Sequence

from recado.amqp.codec import decode_method
from recado.amqp.errors import NotImplementedHere, SyntaxFault
from recado.amqp.methods import BasicPublish
from recado.amqp.values import Table

from .access import Access, User
from .consumer_timeout import ConsumerTimeouts
from .deduplication import Passage
from .exchange import Exchange
from .gathering import Gathering
from .queue import Queue
from .run import Origin, Run
from .search import depends_on_headers, find_queues
from .steps import STEP_UNITS, Steps, parts
from .vhost import Vhost

_ROUTES_REMEMBERED = 8192  # a publisher with ever new keys must not fill the memory


class Route(Origin):
    __slots__ = ("mandatory", "queues", "returns", "source")

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        source: Exchange[Queue],
        queues: Sequence[Queue] | None,
    ) -> None:
        super().__init__(exchange, routing_key)
        self.mandatory = mandatory
        self.source = source
        self.queues = queues  # None: it depends on the single message
        self.returns = mandatory and queues is not None and is_nowhere(queues)


class Admission:
    """One user in one vhost: what it may do there, and the routes it uses."""

    __slots__ = ("_epoch", "_routes", "access", "gathering", "timeouts", "user", "vhost")

    def __init__(
        self,
        user: User,
        vhost: Vhost[Queue],
        timeouts: ConsumerTimeouts,
        gathering: Gathering | None = None,
    ) -> None:
        self.user = user
        self.vhost = vhost
        self.timeouts = timeouts
        self.gathering = gathering or Gathering()
        self.access = Access(user, vhost.name)
        self._routes: dict[bytes, Route] = {}
        self._epoch = vhost.epoch  # that the routes are of

    def route(self, method: bytes) -> Route | None:
        """The route of a publish, by its method frame, if it is known; see `search`."""
        if self._epoch != self.vhost.epoch:
            self._routes.clear()
            self._epoch = self.vhost.epoch
        return self._routes.get(method)

    def search(self, frame: bytes) -> Steps[Route]:
        """Find the route of a publish, and remember it."""
        method = decode_method(frame[7:-1])
        if not isinstance(method, BasicPublish):
            raise SyntaxFault("content without a publish")
        if method.immediate:
            raise NotImplementedHere("immediate=true")
        self.access.check_write("exchange", method.exchange)
        exchange = self.vhost.find_exchange_to_publish(method.exchange)
        self.check_topic(exchange, method.routing_key)
        return self._search(method.exchange, method.routing_key, method.mandatory, exchange, frame)

    def are_apart(self, methods: Iterable[bytes]) -> bool:
        """Whether nobody could tell in which order messages of these known routes came: no queue gets those of
        two, and none passes anything on or shares a consumer's channel with another."""
        if self._epoch != self.vhost.epoch:
            return False
        reached: set[Queue] = set()
        for method in methods:
            route = self._routes.get(method)
            if route is None or not route.queues:
                return False
            for queue in route.queues:
                if queue in reached or queue.is_laborious or queue.is_address:
                    return False
                reached.add(queue)
        return True

    def _search(
        self,
        name: str,
        key: str,
        mandatory: bool,
        source: Exchange[Queue],
        frame: bytes | None = None,
    ) -> Steps[Route]:
        """Find a route; remember it under `frame`, unless the topology has changed meanwhile."""
        vhost, queues = self.vhost, None
        epoch = vhost.epoch
        alone = not source.bound_exchanges and source.settings.alternate_exchange is None
        by_headers = source.by_headers or source.window is not None
        if not by_headers and not alone:
            by_headers = yield from depends_on_headers(vhost, source)
        if not by_headers:
            queues = yield from find_queues(vhost, source, key)
        route = Route(name, key, mandatory, source, queues)
        if frame is not None and self._epoch == vhost.epoch == epoch:
            if len(self._routes) >= _ROUTES_REMEMBERED:
                self._routes.clear()
            self._routes[frame] = route
        return route

    def renew(self, route: Route) -> Steps[Route]:
        """A route found earlier as it is now; from an exchange that is gone, nothing goes anywhere."""
        return self._search(route.exchange, route.routing_key, route.mandatory, route.source)

    def check_topic(self, exchange: Exchange[Queue], key: str) -> None:
        if exchange.settings.kind == "topic":
            self.access.check_topic_write(exchange.name, key)

    def queues_for(
        self, route: Route, headers: Table | None, more_keys: Sequence[str], passage: Passage
    ) -> Steps[list[Queue]]:
        """The queues of one message that is not like the others."""
        return find_queues(self.vhost, route.source, route.routing_key, headers, more_keys, passage)


def is_nowhere(queues: Sequence[Queue]) -> bool:
    """Whether a mandatory message is to be returned: an address for direct replies is no queue to it."""
    return all(queue.is_address for queue in queues)


def distribute(run: Run, queues: Sequence[Queue], now: int) -> Sequence[int]:
    """Publish to each queue; gives the indexes of the messages that one of them refused."""
    if len(run) > 1 and any(queue.is_laborious for queue in queues):
        refused = []
        for i in range(len(run)):
            if distribute(run.slice(i, i + 1), queues, now):
                refused.append(i)
        return refused
    union: set[int] = set()
    for queue in queues:
        union.update(queue.publish(run.for_another_queue(), now))
    return sorted(union)


def distribute_in_steps(run: Run, queues: Sequence[Queue], now: int) -> Steps[None]:
    """Publish to many queues, some at each step; those that are deleted meanwhile are left out."""
    for some in parts(queues, max(STEP_UNITS // len(run), 1)):
        distribute(run, [queue for queue in some if not queue.deleted], now)
        yield len(some) * len(run)
