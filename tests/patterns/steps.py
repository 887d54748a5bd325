"""A step driven as a flow drives it, with the outputs of each transaction, and kills around the commit."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from recado.patterns.message import Message
from recado.patterns.state import MemoryStore, StoredState, StoreTransaction
from recado.patterns.step import Output, Send, StatefulStep
from tests.patterns.conftest import Clock

T = TypeVar("T")


class KilledError(Exception):
    """The process was killed inside a transaction, which is lost."""


class StepDriver:
    """Runs one step on a store in memory. `make_step` is called again after a kill, as a new process does."""

    def __init__(self, make_step: Callable[[], StatefulStep]) -> None:
        self.clock = Clock(1000.0)
        self._make_step = make_step
        self._content = StoredState()
        self.step = make_step()

    def transact(self, function: Callable[[StoreTransaction], T]) -> T:
        async def run() -> T:
            store = MemoryStore(self._content, clock=self.clock)
            await store.open()
            return await store.run(function)

        return run_now(run())

    def send(self, message: Message[Any]) -> list[Output]:
        return self.transact(lambda state: list(self.step.process(message, state)))

    def expire(self) -> list[Output]:
        return self.transact(lambda state: list(self.step.expire(state)))

    def lose(self, message: Message[Any]) -> None:
        """Process a message and die before the commit."""

        def run(state: StoreTransaction) -> None:
            list(self.step.process(message, state))
            raise KilledError

        try:
            self.transact(run)
        except KilledError:
            self.restart()

    def restart(self) -> None:
        self.step = self._make_step()

    @property
    def next_deadline(self) -> float | None:
        return self.transact(lambda state: state.next_deadline([self.step.table]))

    @property
    def entry_count(self) -> int:
        """The number of entries in all tables, but those that count."""
        return sum(
            len(entries)
            for name, entries in self._content.tables.items()
            if not name.endswith((".groups", ".window", ".count"))
        )


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, as those of a store in memory."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise AssertionError("the coroutine waits")


def bodies_of(outputs: Sequence[Output]) -> list[Any]:
    """Return the bodies of messages, and (destination, body) for those that leave the flow."""
    return [
        (each.to, each.message.body) if isinstance(each, Send) else each.body for each in outputs
    ]
