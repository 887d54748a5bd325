"""Process managers against a model (PPM1 to PPM4), and their options."""

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recado.patterns.errors import CompositionError, RejectMessageError
from recado.patterns.message import Message
from recado.patterns.process_manager import COMPENSATIONS_MAX, ProcessManager, RunningProcess
from recado.patterns.step import Outputs, Send
from tests.patterns.steps import StepDriver, bodies_of

PAYMENT_S, REMEMBER_S = 10.0, 50.0


class OrderState(msgspec.Struct):
    steps: list[str] = []


def make_orders() -> ProcessManager[OrderState]:
    """An order is placed, then steps are taken until it is done, cancelled, or not paid in time."""
    orders = ProcessManager(OrderState, by="json.order", remember=REMEMBER_S, late_to="late")

    @orders.on("placed", starts=True)
    def place(order: RunningProcess[OrderState], message: Message[Any]) -> Outputs:
        if order.is_new:
            order.set_timeout("payment", PAYMENT_S)
        return take(order, message)

    @orders.on("step")
    def take(order: RunningProcess[OrderState], message: Message[Any]) -> Outputs:
        step = message.body["step"]
        order.state.steps.append(step)
        order.compensate(Send("undo", Message(body=step)))
        return [Send("do", Message(body=step))]

    @orders.on("paid")
    def pay(order: RunningProcess[OrderState], message: Message[Any]) -> None:
        order.cancel_timeout("payment")

    @orders.on("done")
    def finish(order: RunningProcess[OrderState], message: Message[Any]) -> Outputs:
        order.end()
        return [Message(body=order.state.steps)]

    @orders.on("cancelled")
    def cancel(order: RunningProcess[OrderState], message: Message[Any]) -> Outputs:
        order.fail()
        return [Message(body=f"{order.key} cancelled")]

    @orders.on_timeout("payment")
    def expire(order: RunningProcess[OrderState]) -> None:
        order.fail()

    return orders


class OrderModel:
    def __init__(self, now: float) -> None:
        self.steps: list[str] = []
        self.is_running = True
        self.deadline: float | None = now + PAYMENT_S

    def undo(self, now: float) -> list[Any]:
        self.is_running = False
        self.deadline = now + REMEMBER_S
        return [("undo", step) for step in reversed(self.steps)]


class OrdersMachine(RuleBasedStateMachine):
    """Events of some orders in any order, with kills before the commit and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = StepDriver(make_orders)
        self.orders: dict[str, OrderModel] = {}
        self.number = 0

    @rule(
        order=st.sampled_from("ab"),
        event=st.sampled_from(["placed", "step", "step", "paid", "done", "cancelled"]),
        killed=st.booleans(),
    )
    def send(self, order: str, event: str, killed: bool) -> None:
        now = self.driver.clock.now
        self.number += 1
        message = Message(body={"order": order, "step": f"s{self.number}"}, type=event)
        if killed and (order in self.orders or event == "placed"):
            self.driver.lose(message)
        model = self.orders.get(order)
        if model is None and event != "placed":
            with pytest.raises(RejectMessageError, match="do not begin one"):
                self.driver.send(message)
            return
        outputs = [
            (str(getattr(to, "name", to)), body)
            for to, body in (
                each if isinstance(each, tuple) else ("", each)
                for each in bodies_of(self.driver.send(message))
            )
        ]
        if model is None:
            model = self.orders[order] = OrderModel(now)
        assert outputs == self.expected(order, model, event, message.body, now)

    def expected(
        self, order: str, model: OrderModel, event: str, body: dict[str, str], now: float
    ) -> list[Any]:
        if not model.is_running:
            return [("late", body)]
        match event:
            case "placed" | "step":
                model.steps.append(body["step"])
                return [("do", body["step"])]
            case "paid":
                model.deadline = None
                return []
            case "done":
                model.undo(now)
                return [("", model.steps)]
            case _:
                return [("", f"{order} cancelled"), *model.undo(now)]

    @rule(seconds=st.sampled_from([1, 5, 12, 60]))
    def wait(self, seconds: int) -> None:
        self.driver.clock.now += seconds
        now = self.driver.clock.now
        due = sorted(
            (model.deadline, key)
            for key, model in self.orders.items()
            if model.deadline is not None and model.deadline <= now
        )
        expected = []
        for _, key in due:
            if self.orders[key].is_running:
                expected += self.orders[key].undo(now)
            else:
                del self.orders[key]
        outputs = bodies_of(self.driver.expire())
        assert [(to.name, body) for to, body in outputs] == expected

    @invariant()
    def stored(self) -> None:
        assert self.driver.entry_count == len(self.orders)
        deadlines = [each.deadline for each in self.orders.values() if each.deadline is not None]
        assert self.driver.next_deadline == min(deadlines, default=None)


TestOrdersMachine = OrdersMachine.TestCase
TestOrdersMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def event(name: str, **body: Any) -> Message[Any]:
    return Message(body={"order": 1, **body}, type=name)


def test_the_state_of_a_process_can_be_read() -> None:
    orders = make_orders()
    driver = StepDriver(lambda: orders)
    driver.send(event("placed", step="a"))
    assert driver.transact(lambda state: orders.read("1", state)) == (OrderState(["a"]), "running")
    assert driver.transact(lambda state: orders.read("2", state)) is None
    driver.send(event("done"))
    assert driver.transact(lambda state: orders.read("1", state)) == (OrderState(["a"]), "ended")


def test_timeouts_fire_in_order_until_the_process_ends() -> None:
    """PPM4"""
    fired: list[str] = []
    manager = ProcessManager(OrderState, by="json.order")

    @manager.on("start", starts=True)
    def start(process: RunningProcess[OrderState], message: Message[Any]) -> None:
        for name in ("a", "b", "c", "d"):
            process.set_timeout(name, 30)
        process.set_timeout("b", 10)
        process.set_timeout("a", 20)

    def register(name: str) -> None:
        @manager.on_timeout(name)
        def fire(process: RunningProcess[OrderState]) -> None:
            fired.append(name)
            assert process.outcome == "running"
            if name == "b":
                process.cancel_timeout("c")
                process.set_timeout("b", 5)
            if name == "a":
                process.end()

    for name in ("a", "b", "c", "d"):
        register(name)
    driver = StepDriver(lambda: manager)
    driver.send(event("start"))
    driver.clock.now += 10
    driver.expire()
    assert fired == ["b"]
    driver.clock.now += 60
    driver.expire()
    assert fired == ["b", "b", "a"]


def test_a_handler_that_raises_changes_nothing() -> None:
    manager = ProcessManager(OrderState, by="json.order")

    @manager.on("start", starts=True)
    def start(process: RunningProcess[OrderState], message: Message[Any]) -> None:
        process.state.steps.append("x")
        raise ValueError

    driver = StepDriver(lambda: manager)
    with pytest.raises(ValueError):  # noqa: PT011 - it is the error of the handler
        driver.send(event("start"))
    assert driver.entry_count == 0


def test_processes_and_compensations_are_bounded() -> None:
    manager = ProcessManager(OrderState, by="json.order", processes_max=1)

    @manager.on("start", starts=True)
    def start(process: RunningProcess[OrderState], message: Message[Any]) -> None:
        for _ in range(message.body.get("compensations", 0)):
            process.compensate(Send("q", Message(body=1)))

    driver = StepDriver(lambda: manager)
    driver.send(event("start", compensations=COMPENSATIONS_MAX))
    with pytest.raises(RejectMessageError, match="1000 compensations"):
        driver.send(event("start", compensations=1))
    with pytest.raises(RejectMessageError, match="processes_max"):
        driver.send(event("start", order=2))


def test_messages_without_a_handler_are_rejected() -> None:
    driver = StepDriver(make_orders)
    with pytest.raises(RejectMessageError, match="no handler of messages 'unknown'"):
        driver.send(event("unknown"))
    with pytest.raises(RejectMessageError, match="type is NoneType"):
        driver.send(Message(body={"order": 1}))


def test_managers_that_cannot_work_are_refused() -> None:
    class NeedsArguments(msgspec.Struct):
        number: int

    with pytest.raises(CompositionError, match="NeedsArguments cannot be the state"):
        ProcessManager(NeedsArguments, by="key")
    manager = make_orders()
    with pytest.raises(CompositionError, match="two handlers of messages 'placed'"):
        manager.on("placed")(lambda process, message: None)
    with pytest.raises(CompositionError, match="two handlers of the timeout 'payment'"):
        manager.on_timeout("payment")(lambda process: None)

    @manager.on("odd", starts=True)
    def odd(process: RunningProcess[OrderState], message: Message[Any]) -> None:
        process.set_timeout("unknown", 1)

    with pytest.raises(CompositionError, match="no handler of the timeout 'unknown'"):
        StepDriver(lambda: manager).send(event("odd"))


def test_destinations_are_known() -> None:
    manager = ProcessManager(OrderState, by="key", late_to="late", sends_to=["a", "b"])
    assert list(manager.destinations()) == ["a", "b", "late"]
