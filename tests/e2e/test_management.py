"""The management API next to that of a real RabbitMQ: the same declarations and traffic, then the same requests.

Statuses, keys, types and values are compared. `management_differences` lists what differs; nothing else may.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pika
import pytest

import recado
from tests.console.http import Api, Reply
from workshop import peers
from workshop.time_limit import scale

from . import http_permission_cases
from .management_cases import DECLARATIONS, OTHER_USERS, READS, SERIES, WRITES, Traffic
from .management_comparison import compare, rename
from .management_differences import DIFFERENCES, Difference, Divergence, rows_of_page

PATIENCE_S = 60.0


class Side:
    """One broker after the writes, declarations and traffic, and its answers."""

    def __init__(self, api: Api, url: str, stack: ExitStack) -> None:
        self.api = api
        self.writes = [api.request(*each) for each in WRITES]
        self.declared = [api.request(*each) for each in DECLARATIONS]
        self._traffic = Traffic(url, stack)
        self.answers: dict[tuple[str, str], Reply] = {}
        self.changes: dict[tuple[str, str], str] = {}
        stack.enter_context(use(url))
        self._traffic.run()
        self._names = dict(self._traffic.names)

    def read(self, path: str, user: str = "guest", password: str = "guest") -> Reply:
        """Send a GET, in which `{name}` stands for the connection of that name."""
        for name, replacement in self._names.items():
            path = path.replace(replacement, name)
        encoded = quote(path, safe="/?&=%-_.,^")
        return Api(self.api.port, user, password).request("GET", encoded)

    def read_all(self) -> None:
        for user, password in {"guest": "guest", **OTHER_USERS}.items():
            self.answers |= {(user, path): self.read(path, user, password) for path in READS}

    def body(self, reply: Reply) -> Any:
        """Return the body of an answer as it is compared."""
        return rename(reply.body, self._names)

    def learn_names(self) -> bool:
        """Find out the names of the node and of connections; return whether all are there."""
        self._names[self.api.get("/api/overview")["node"]] = "{node}"
        for each in self.api.get("/api/connections"):
            properties = each.get("client_properties", {})
            self._names[each["name"]] = f"{{{properties.get('connection_name', 'user')}}}"
        return "{idle}" in self._names.values()


def use(url: str) -> pika.BlockingConnection:
    """Publish and consume a little in the first vhost, on a connection without a name."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=5)
    channel.confirm_delivery()
    channel.basic_consume("quo", lambda *_: None, consumer_tag="quo")
    for _ in range(20):
        channel.basic_publish("ex", "c d/e", b"x" * 10)
    return connection


Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    """recado and RabbitMQ, in this order."""
    (metrics_port,) = peers.free_ports(1)
    settings = {"collect_statistics_interval": "1000", "prometheus.tcp.port": str(metrics_port)}
    with (
        peers.rabbitmq(
            management=True, plugins=["rabbitmq_prometheus"], settings=settings
        ) as rabbit,
        recado.Broker(config={"management": {"port": 0, "metrics_port": 0}}) as broker,
        ExitStack() as stack,
    ):
        assert rabbit.http_port is not None
        assert broker.management_port is not None
        theirs = Api(rabbit.http_port)
        wait_until(lambda: responds(theirs))
        both = (
            Side(Api(broker.management_port), broker.url, stack),
            Side(theirs, rabbit.url, stack),
        )
        wait_until(lambda: all(each.learn_names() for each in both))
        # RabbitMQ reports statistics once a second; a difference that stays is for the tests to report.
        deadline = time.monotonic() + scale(PATIENCE_S / 4)
        while time.monotonic() < deadline and any(
            find_unexplained(both, path, [side.read(path) for side in both])
            for path in ("/api/queues", "/api/channels", "/api/overview", SERIES)
        ):
            time.sleep(0.2)
        for side in both:
            side.read_all()
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(http_permission_cases.outcomes, [each.api for each in both]))
        for side, outcomes in zip(both, found, strict=True):
            side.changes = outcomes
        yield both


def responds(api: Api) -> bool:
    try:
        return api.request("GET", "/api/overview").status == 200
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + scale(PATIENCE_S)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def explanation(divergence: Divergence) -> Difference | None:
    return next((each for each in DIFFERENCES if each.covers(divergence)), None)


def divergences(sides: Sides, path: str, replies: Iterable[Reply]) -> list[Divergence]:
    ours, theirs = (side.body(reply) for side, reply in zip(sides, replies, strict=True))
    return list(compare(ours, theirs, f"{path} "))


def find_unexplained(sides: Sides, path: str, replies: Iterable[Reply]) -> list[Divergence]:
    return [each for each in divergences(sides, path, replies) if explanation(each) is None]


def answers(sides: Sides, user: str, path: str) -> tuple[Reply, Reply]:
    return sides[0].answers[user, path], sides[1].answers[user, path]


@pytest.mark.parametrize("number", range(len(WRITES)))
def test_writes_have_the_same_status(sides: Sides, number: int) -> None:
    assert_equal_answers(WRITES[number], *(side.writes[number] for side in sides))


@pytest.mark.parametrize("number", range(len(DECLARATIONS)))
def test_declarations_have_the_same_status(sides: Sides, number: int) -> None:
    ours, theirs = (side.declared[number] for side in sides)
    assert_equal_answers(DECLARATIONS[number], ours, theirs)
    assert ours.status < 300


def assert_equal_answers(request: object, ours: Reply, theirs: Reply) -> None:
    """Reasons of errors are texts of each project."""
    assert ours.status == theirs.status, (request, ours, theirs)
    found = list(compare(ours.body, theirs.body, f"{request} "))
    assert [each for each in found if ".reason" not in each.path and not explanation(each)] == []


@pytest.mark.parametrize("path", READS)
def test_reads_have_the_same_status_and_fields(sides: Sides, path: str) -> None:
    ours, theirs = answers(sides, "guest", path)
    assert ours.status == theirs.status, (ours, theirs)
    assert find_unexplained(sides, path, (ours, theirs)) == []


@pytest.mark.parametrize("user", OTHER_USERS)
def test_other_users_see_the_same(sides: Sides, user: str) -> None:
    """Lists, single objects, numbers of pages and errors reveal no more than in RabbitMQ."""
    differing = []
    for path in READS:
        ours, theirs = answers(sides, user, path)
        if theirs.status == 500:
            continue
        if ours.status != theirs.status:
            differing.append(Divergence(path, str(theirs.status), str(ours.status)))
        elif ours.status == 401:
            assert ours.body == theirs.body
        else:
            differing += find_unexplained(sides, path, (ours, theirs))
    assert [each for each in differing if explanation(each) is None] == []


def test_amqp_permissions_hold_over_http(sides: Sides) -> None:
    """Declaring, binding, publishing and getting without each permission that is needed."""
    ours, theirs = (side.changes for side in sides)
    assert ours == theirs
    assert len({outcome for outcome in ours.values() if outcome.startswith("40")}) == 4


@pytest.mark.parametrize("path", ["/api/overview", "/api/whoami", "/api/queues"])
def test_wrong_passwords_and_missing_tags(sides: Sides, path: str) -> None:
    for user, password in (("guest", "wrong"), ("u2", ""), ("", "")):
        ours, theirs = (side.read(path, user, password) for side in sides)
        assert ours.status == theirs.status == 401
        assert ("www-authenticate" in ours.headers) is ("www-authenticate" in theirs.headers)


def test_definitions_of_rabbitmq_come_back_equal(sides: Sides) -> None:
    _, theirs = sides
    exported = theirs.api.get("/api/definitions")
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        assert api.post("/api/definitions", exported).status == 204
        ours = api.get("/api/definitions")
    found = compare(ours, exported, "/api/definitions ")
    assert [each for each in found if explanation(each) is None] == []
    assert theirs.api.post("/api/definitions", ours).status == 204
    again = compare(theirs.api.get("/api/definitions"), exported, "")
    assert [each for each in again if not each.path.endswith(" order")] == []


def test_every_listed_difference_exists(sides: Sides) -> None:
    found = {
        explanation(each)
        for user in ("guest", *OTHER_USERS)
        for path in READS
        for each in (
            *divergences(sides, path, answers(sides, user, path)),
            Divergence(path, *(str(reply.status) for reply in answers(sides, user, path)[::-1])),
        )
    }
    assert [each.what for each in DIFFERENCES if each not in found] == []


def test_the_documentation_lists_the_same_differences() -> None:
    """Otherwise run `python -m tests.e2e.management_differences`."""
    assert list(rows_of_page()) == [each.row for each in DIFFERENCES]
