"""Process manager: a process of many steps, such as an order, that is driven by messages (a saga).

    orders = ProcessManager(OrderState, by="json.order")

    @orders.on("order.placed", starts=True)
    def place(order: RunningProcess[OrderState], message: Message[Any]) -> Outputs:
        order.state.price = message.body["price"]
        order.compensate(Send("payments", Message(body={"refund": order.key})))
        order.set_timeout("payment", 60)
        return [Send("payments", Message(body={"pay": order.key}))]

    @orders.on("payment.done")
    def paid(order: RunningProcess[OrderState], message: Message[Any]) -> Outputs:
        order.cancel_timeout("payment")
        order.end()
        return [Message(body={"paid": order.key})]

    @orders.on_timeout("payment")
    def unpaid(order: RunningProcess[OrderState]) -> Outputs:
        order.fail()
        return [Send("complaints", Message(body={"unpaid": order.key}))]

The state of a process, its timeouts and its compensations are one row, which changes in the transaction of the
message. A compensation is a message that undoes a step. It is recorded when the step begins, as data, so that it
does not depend on code that a newer version of the program no longer has.

PPM1  A message is handled by the process of its key, or begins one if its handler `starts` processes.
PPM2  When a process fails, its compensations are sent in reverse order, once, after the outputs of the handler.
PPM3  A process that has ended is remembered for `remember` seconds. Messages for it are late; they change nothing.
PPM4  A timeout fires once, not before its time, unless it was cancelled, set again, or the process ended.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from .destination import DestinationLike
from .errors import CompositionError, RejectMessageError
from .message import Message
from .routing.message_field import MessageField, to_key, to_reader
from .state.stored_message import MessageCodec
from .step import Output, Outputs, Send, StatefulStep, StateTransaction

S = TypeVar("S")

PROCESSES_MAX: Final = 1_000_000
COMPENSATIONS_MAX: Final = 1000
REMEMBER_S: Final = 24 * 3600.0

_DUE_PROCESSES_MAX: Final = 100
_COUNT_KEY: Final = "count"

ProcessOutcome: TypeAlias = Literal["running", "ended", "failed"]
ProcessHandler = TypeVar("ProcessHandler", bound=Callable[..., Outputs | None])


class _ProcessRow(msgspec.Struct, array_like=True):
    state: msgspec.Raw
    outcome: ProcessOutcome
    timeouts: dict[str, float]
    compensations: list[bytes]


class RunningProcess(Generic[S]):
    """A process while a message or timeout is handled."""

    def __init__(
        self,
        key: str,
        now: float,
        state: S,
        is_new: bool,
        row: _ProcessRow,
        codec: MessageCodec,
        timeouts: Iterable[str],
    ) -> None:
        self.key: Final = key
        self.now: Final = now
        """The time of the transaction, in seconds since the epoch."""
        self.state = state
        self.is_new: Final = is_new
        self._row = row
        self._codec = codec
        self._timeouts = timeouts

    @property
    def outcome(self) -> ProcessOutcome:
        return self._row.outcome

    def set_timeout(self, name: str, seconds: float) -> None:
        """Call the handler of this timeout after so many seconds, instead of an earlier setting."""
        if name not in self._timeouts:
            raise CompositionError(f"the process manager has no handler of the timeout '{name}'")
        self._row.timeouts[name] = self.now + seconds

    def cancel_timeout(self, name: str) -> None:
        """Do not call the handler of this timeout, if it is set."""
        self._row.timeouts.pop(name, None)

    def compensate(self, send: Send) -> None:
        """Record the message that undoes a step, in case that the process fails."""
        if len(self._row.compensations) >= COMPENSATIONS_MAX:
            raise RejectMessageError(
                f"the process '{self.key}' has {COMPENSATIONS_MAX} compensations, which is the limit"
            )
        self._row.compensations.append(self._codec.encode_send(send))

    def end(self) -> None:
        """End the process with success; its compensations are dropped."""
        self._row.outcome = "ended"

    def fail(self) -> None:
        """End the process and send its compensations, the newest first."""
        self._row.outcome = "failed"


class ProcessManager(StatefulStep, Generic[S]):
    """Handles the messages of processes; `on` and `on_timeout` register the handlers.

    Args:
        state_type: the type of the state of a process: msgspec can encode it, and all of its fields have defaults.
        by: the field or function with the key of the process to which a message belongs.
        event: the field or function with the name that selects the handler of a message.
        remember: seconds for which a process that has ended is remembered.
        late_to: where messages for such a process go; None drops them.
        processes_max: messages that would begin more processes are rejected.
        sends_to: the destinations to which the handlers send, which are declared at start.
        table: the name of the table, unique in the store.
    """

    def __init__(
        self,
        state_type: type[S],
        *,
        by: MessageField,
        event: MessageField = "type",
        remember: float = REMEMBER_S,
        late_to: DestinationLike | None = None,
        processes_max: int = PROCESSES_MAX,
        sends_to: Iterable[DestinationLike] = (),
        table: str = "process-manager",
    ) -> None:
        self.table = table
        self._count_table = f"{table}.count"
        self._new_state = state_type
        self._encode_state = msgspec.msgpack.Encoder().encode
        self._decode_state = msgspec.msgpack.Decoder(state_type).decode
        try:
            self._decode_state(self._encode_state(state_type()))
        except (TypeError, msgspec.MsgspecError) as error:
            raise CompositionError(
                f"{state_type.__name__} cannot be the state of a process: {error}"
            ) from error
        self._by = by
        self._read_key = to_reader(by)
        self._event = event
        self._read_event = to_reader(event)
        self._remember = remember
        self._late_to = late_to
        self._processes_max = processes_max
        self._sends_to = (*sends_to, *(() if late_to is None else (late_to,)))
        self._codec = MessageCodec()
        self._handlers: dict[str, Callable[[RunningProcess[S], Message[Any]], Outputs | None]] = {}
        self._starting: set[str] = set()
        self._timeout_handlers: dict[str, Callable[[RunningProcess[S]], Outputs | None]] = {}

    def on(self, event: str, *, starts: bool = False) -> Callable[[ProcessHandler], ProcessHandler]:
        """Register the handler of messages of this name; with `starts`, such a message begins a process.

        The handler is a function of the process and the message that returns outputs or None.
        """

        def register(handler: ProcessHandler) -> ProcessHandler:
            if event in self._handlers:
                raise CompositionError(
                    f"the process manager has two handlers of messages '{event}'"
                )
            self._handlers[event] = handler
            if starts:
                self._starting.add(event)
            return handler

        return register

    def on_timeout(self, name: str) -> Callable[[ProcessHandler], ProcessHandler]:
        """Register the handler of a timeout, a function of the process that returns outputs or None."""

        def register(handler: ProcessHandler) -> ProcessHandler:
            if name in self._timeout_handlers:
                raise CompositionError(
                    f"the process manager has two handlers of the timeout '{name}'"
                )
            self._timeout_handlers[name] = handler
            return handler

        return register

    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        key = to_key(self._read_key(message), self._by)
        event = to_key(self._read_event(message), self._event)
        handler = self._handlers.get(event)
        if handler is None:
            raise RejectMessageError(f"the process manager has no handler of messages '{event}'")
        stored = state.get(self.table, key)
        if stored is None:
            if event not in self._starting:
                raise RejectMessageError(
                    f"there is no process '{key}', and messages '{event}' do not begin one"
                )
            self._count_processes(1, state)
            row = _ProcessRow(msgspec.Raw(), "running", {}, [])
            process = self._open(key, row, self._new_state(), True, state)
        else:
            row = _decode(stored)
            if row.outcome != "running":
                return () if self._late_to is None else (Send(self._late_to, message),)
            process = self._open(key, row, self._decode_state(row.state), False, state)
        outputs = list(handler(process, message) or ())
        return [*outputs, *self._save(process, row, state)]

    def expire(self, state: StateTransaction) -> Outputs:
        outputs: list[Output] = []
        for key, stored in state.due(self.table, _DUE_PROCESSES_MAX):
            row = _decode(stored)
            if row.outcome != "running":
                state.delete(self.table, key)
                self._count_processes(-1, state)
                continue
            process = self._open(key, row, self._decode_state(row.state), False, state)
            outputs += self._fire_timeouts(process, row)
            outputs += self._save(process, row, state)
        return outputs

    def destinations(self) -> Iterable[DestinationLike]:
        return self._sends_to

    def read(self, key: str, state: StateTransaction) -> tuple[S, ProcessOutcome] | None:
        """Return the state and outcome of a process, or None if it is not known."""
        stored = state.get(self.table, to_key(key, self._by))
        if stored is None:
            return None
        row = _decode(stored)
        return self._decode_state(row.state), row.outcome

    def _open(
        self, key: str, row: _ProcessRow, process_state: S, is_new: bool, state: StateTransaction
    ) -> RunningProcess[S]:
        return RunningProcess(
            key, state.now, process_state, is_new, row, self._codec, self._timeout_handlers
        )

    def _fire_timeouts(self, process: RunningProcess[S], row: _ProcessRow) -> list[Output]:
        """Call the handlers of the timeouts that have passed, earliest first, until the process ends."""
        outputs: list[Output] = []
        due = sorted((at, name) for name, at in row.timeouts.items() if at <= process.now)
        for at, name in due:
            if row.outcome != "running":
                break
            if row.timeouts.get(name) != at:
                continue  # an earlier handler has cancelled it
            del row.timeouts[name]
            handler = self._timeout_handlers.get(name)
            if handler is None:
                raise CompositionError(
                    f"the process manager has no handler of the timeout '{name}'"
                )
            outputs += handler(process) or ()
        return outputs

    def _save(
        self, process: RunningProcess[S], row: _ProcessRow, state: StateTransaction
    ) -> list[Output]:
        """Store a process; return its compensations if it has failed."""
        outputs: list[Output] = []
        if row.outcome == "failed":
            outputs += [self._codec.decode_send(each) for each in reversed(row.compensations)]
        if row.outcome == "running":
            deadline = min(row.timeouts.values(), default=None)
        else:
            deadline = state.now + self._remember
            row.timeouts.clear()
            row.compensations.clear()
        row.state = msgspec.Raw(self._encode_state(process.state))
        state.put(self.table, process.key, _encode(row), deadline=deadline)
        return outputs

    def _count_processes(self, change: int, state: StateTransaction) -> None:
        count = int(state.get(self._count_table, _COUNT_KEY) or b"0") + change
        if count > self._processes_max:
            raise RejectMessageError(
                f"there are {self._processes_max} processes (processes_max): no further one is begun"
            )
        state.put(self._count_table, _COUNT_KEY, b"%d" % count)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_ProcessRow).decode
