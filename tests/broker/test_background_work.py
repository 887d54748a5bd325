"""Deleted entities: gone immediately, and their bindings removed in steps."""

import pytest

from recado.amqp.errors import NotFoundError, PreconditionFailedError
from recado.amqp.events import MethodReceived
from recado.amqp.methods import BasicCancel
from recado.broker.background_work import FIRST_UNITS_MAX, BackgroundWork
from recado.broker.broker import Broker
from recado.broker.route_search import depends_on_headers, find_queues
from recado.broker.steps import STEP_UNITS_MAX, TURN_UNITS_MAX, Steps, StepTask, run_to_completion
from recado.broker.vhost import Vhost

from .stage import Peer, close_channel, consume, new_broker, new_queue, open_channel
from .stand_ins import StandInQueue

MANY = 5000


def counting(done: list[int], steps: int, cost: int) -> Steps[None]:
    for i in range(steps):
        done.append(i)
        yield cost


# ── the work ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_little_is_done_at_once() -> None:
    background, done = BackgroundWork(), list[int]()
    assert background.start(counting(done, 3, 10)).is_done
    assert not background
    assert background.deferred_count == 0
    assert len(done) == 3


def test_much_is_done_in_portions() -> None:
    background, done = BackgroundWork(), list[int]()
    background.start(counting(done, 1000, 10))
    assert len(done) == -(-FIRST_UNITS_MAX // 10)
    assert background.deferred_count == 1
    before = len(done)
    background.advance()
    assert (len(done) - before) * 10 <= TURN_UNITS_MAX + STEP_UNITS_MAX
    while background:
        background.advance()
    assert len(done) == 1000


def test_all_that_is_unfinished_goes_on() -> None:
    background, first, second = BackgroundWork(0), list[int](), list[int]()
    tasks = [background.start(counting(done, 1000, 10)) for done in (first, second)]
    assert background.newest(1) == tasks[1:]
    background.advance(4 * STEP_UNITS_MAX)
    assert first
    assert abs(len(first) - len(second)) <= STEP_UNITS_MAX


def test_work_that_somebody_else_has_done_is_done() -> None:
    background, done = BackgroundWork(0), list[int]()
    task = background.start(counting(done, 3, 10))
    task.advance(100)
    assert background
    background.advance()
    assert not background


# ── bindings ──────────────────────────────────────────────────────────────────────────────────────────────


def bound(*, auto_delete: bool = False) -> tuple[Vhost[StandInQueue], StandInQueue]:
    """A queue that is bound to an exchange many times."""
    vhost: Vhost[StandInQueue] = Vhost("/")
    queue = StandInQueue("q")
    vhost.add_queue(queue)
    vhost.declare_exchange("x", "topic", auto_delete=auto_delete)
    for i in range(MANY):
        vhost.bind_queue("q", "x", f"a.{i}.*.#")
    return vhost, queue


def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the cost of each call of `StepTask.advance`."""
    costs, advance = list[int](), StepTask.advance

    def counted(task: StepTask[object], budget: int) -> int:
        cost = advance(task, budget)
        costs.append(cost)
        return cost

    monkeypatch.setattr(StepTask, "advance", counted)
    return costs


def test_an_exchange_with_many_bindings_is_deleted_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vhost, queue = bound()
    exchange, costs = vhost.exchanges["x"], count(monkeypatch)
    vhost.delete_exchange("x")
    assert "x" not in vhost.exchanges
    assert exchange.bindings
    assert run_to_completion(find_queues(vhost, exchange, "a.1.b")) == []
    with pytest.raises(NotFoundError):
        vhost.bind_queue("q", "x", "k")
    vhost.check()
    while vhost.background:
        vhost.background.advance()
        vhost.check()
    assert max(costs) <= FIRST_UNITS_MAX + STEP_UNITS_MAX
    assert sum(costs) >= MANY
    assert not vhost.bindings_to(queue)


def test_a_queue_with_many_bindings_is_deleted_in_steps() -> None:
    vhost, queue = bound()
    queue.deleted = True
    vhost.remove_queue(queue)
    exchange = vhost.exchanges["x"]
    assert exchange.bindings
    assert run_to_completion(find_queues(vhost, exchange, "a.1.b")) == []
    vhost.delete_exchange("x", if_unused=True)  # for a queue that does not exist
    while vhost.background:
        vhost.check()
        vhost.background.advance()
    vhost.check()


def test_an_exchange_in_use_is_one_with_a_binding_to_something_that_is_there() -> None:
    vhost, queue = bound()
    vhost.add_queue(StandInQueue("r"))
    vhost.bind_queue("r", "x", "k")
    queue.deleted = True
    vhost.remove_queue(queue)
    with pytest.raises(PreconditionFailedError, match="in use"):
        vhost.delete_exchange("x", if_unused=True)


def test_an_auto_delete_exchange_follows_its_bindings() -> None:
    vhost, queue = bound(auto_delete=True)
    queue.deleted = True
    vhost.remove_queue(queue)
    assert "x" in vhost.exchanges
    while vhost.background:
        vhost.background.advance()
    assert "x" not in vhost.exchanges


def test_a_name_is_free_when_all_is_gone() -> None:
    vhost, queue = bound()
    vhost.delete_exchange("x")
    assert vhost.is_deleting("exchange", "x")
    assert vhost.must_wait_to_declare("exchange", "x")
    waiting = StepTask(vhost.wait_until_declarable("exchange", "x"))
    assert waiting.advance(1) == TURN_UNITS_MAX
    vhost.declare_exchange("x", "fanout")
    assert not vhost.background
    assert waiting.advance(1) == 0
    for i in range(MANY):
        vhost.bind_queue("q", "x", f"{i}")
    queue.deleted = True
    vhost.remove_queue(queue)
    assert vhost.is_deleting("queue", "q")
    vhost.add_queue(StandInQueue("q"))
    assert not vhost.is_deleting("queue", "q")
    assert not vhost.exchanges["x"].bindings


def test_reserved_names_are_neither_declared_nor_deleted() -> None:
    """VH5."""
    vhost, _ = bound()
    vhost.reserved |= {("queue", "q"), ("queue", "new"), ("exchange", "x"), ("exchange", "new")}
    for entity, known in (("queue", "q"), ("exchange", "x")):
        assert not vhost.must_wait_to_declare(entity, known), "it does nothing"
        assert vhost.must_wait_to_declare(entity, "new")
        assert not vhost.must_wait_to_declare(entity, "other")
        assert StepTask(vhost.wait_until_declarable(entity, "new")).advance(1) == TURN_UNITS_MAX
        assert StepTask(vhost.wait_until_released(entity, known)).advance(1) == TURN_UNITS_MAX
        assert StepTask(vhost.wait_until_released(entity, "other")).advance(1) == 0
    run_to_completion(vhost.release_reserved())
    assert not vhost.reserved
    assert not vhost.must_wait_to_declare("queue", "new")
    assert {"x", "q"} <= {*vhost.exchanges, *vhost.queues}


def test_a_reserved_exchange_is_auto_deleted_when_it_is_released() -> None:
    """VH5."""
    vhost, queue = bound(auto_delete=True)
    vhost.declare_exchange("new", "fanout", auto_delete=True)
    vhost.declare_exchange("bound", "fanout", auto_delete=True)
    vhost.declare_exchange("unbound", "fanout", auto_delete=True)
    for name in ("bound", "unbound"):
        vhost.bind_queue("q", name, "k")
    vhost.reserved |= {("exchange", name) for name in ("x", "new", "bound", "unbound", "gone")}
    vhost.unbind_queue("q", "unbound", "k")
    queue.deleted = True
    vhost.remove_queue(queue)
    while vhost.background:
        vhost.background.advance()
    vhost.check()
    assert {"x", "new", "bound", "unbound"} <= vhost.exchanges.keys()
    vhost.bind_exchange("amq.fanout", "bound", "k")
    run_to_completion(vhost.release_reserved())
    assert vhost.exchanges.keys() & {"x", "new", "bound", "unbound"} == {"new", "bound"}
    vhost.check()


def test_the_bindings_of_two_things_that_are_leaving_go_once() -> None:
    vhost, queue = bound()
    vhost.delete_exchange("x")
    queue.deleted = True
    vhost.remove_queue(queue)
    while vhost.background:
        vhost.check()
        vhost.background.advance()
    vhost.check()
    assert not vhost.is_deleting("exchange", "x")
    assert not vhost.is_deleting("queue", "q")


def test_what_is_leaving_decides_nothing() -> None:
    vhost: Vhost[StandInQueue] = Vhost("/", background=BackgroundWork(0))
    vhost.declare_exchange("x", "fanout")
    vhost.declare_exchange("h", "headers")
    vhost.bind_exchange("h", "x", "")
    assert run_to_completion(depends_on_headers(vhost, vhost.exchanges["x"]))
    vhost.delete_exchange("h")
    assert not run_to_completion(depends_on_headers(vhost, vhost.exchanges["x"]))


# ── consumers ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def test_many_consumers_are_dismissed_in_steps(broker: Broker) -> None:
    queue, peers = new_queue(broker), [Peer(), Peer()]
    channels = [open_channel(broker, peer) for peer in peers]
    for i in range(600):
        for channel in channels:
            consume(channel, queue, str(i))
    told = list[int]()
    broker.delete_queue(queue, 0, on_deleted=told.append)
    assert told == [0]
    assert broker.deadline() == 0
    close_channel(channels[1])
    while broker.background:
        broker.tick(1)
    assert not queue.consumers
    cancels = [event for event in peers[0].received() if isinstance(event, MethodReceived)]
    assert [event.method for event in cancels] == [
        BasicCancel(str(i), no_wait=True) for i in range(600)
    ]
