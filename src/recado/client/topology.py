"""The topology that a program declared (exchanges, queues, bindings), recorded for recovery.

The declaring methods are recorded as they were sent, and removed when the entity is deleted. That includes
deletions by the broker itself: an auto-delete queue is deleted with its last consumer, an auto-delete exchange
with the last binding from it.

A queue named by the broker gets a new name when it is declared again. Calls that use an old name are applied to
the same queue under its current name.

CTP1  Recovery declares exactly the entities that were declared and not deleted, in an order in which each
      entity exists before it is used.
CTP2  A name chosen by the broker refers to the same queue while that queue exists. Each reconnection adds a
      name; the first and the newest ones are remembered.
"""

from typing import Final, TypeVar

import msgspec

from recado.amqp import methods as m
from recado.amqp.values import encode_table

M = TypeVar("M", bound=m.Method)

OLD_NAME_MAX_COUNT: Final = 100
"""Former names that are remembered for a queue."""

_QUEUE_METHODS = (
    m.QueueDeclare,
    m.QueueBind,
    m.QueueUnbind,
    m.QueuePurge,
    m.QueueDelete,
    m.BasicConsume,
    m.BasicGet,
)


class DeclaredQueue(msgspec.Struct, frozen=True):
    """The declaration of a queue, and whether the broker chose its name."""

    declare: m.QueueDeclare
    named_by_broker: bool


class Topology:
    """The declarations of a robust connection."""

    def __init__(self) -> None:
        self.exchanges: dict[str, m.ExchangeDeclare] = {}
        self.queues: dict[str, DeclaredQueue] = {}
        self._bindings: dict[tuple[str, ...], m.QueueBind | m.ExchangeBind] = {}
        self._current_names: dict[str, str] = {}

    @property
    def bindings(self) -> list[m.QueueBind | m.ExchangeBind]:
        return list(self._bindings.values())

    def current_name(self, queue: str) -> str:
        """Return the current name of a queue that the broker named, or `queue`."""
        return self._current_names.get(queue, queue)

    def resolve_queue_name(self, method: M) -> M:
        """Return the method with the current name of its queue."""
        if isinstance(method, _QUEUE_METHODS) and method.queue in self._current_names:
            return msgspec.structs.replace(method, queue=self._current_names[method.queue])
        return method

    def record(self, method: m.Method, reply: m.Method) -> None:
        """Record a method that the broker has executed."""
        match method:
            case m.ExchangeDeclare(name, passive=False):
                self.exchanges[name] = method
            case m.ExchangeDelete(name):
                self._forget_exchange(name)
            case m.QueueDeclare(name, passive=False):
                assert isinstance(reply, m.QueueDeclareOk)
                if reply.queue not in self.queues:
                    self.queues[reply.queue] = DeclaredQueue(method, named_by_broker=not name)
            case m.QueueDelete(name):
                self.forget_queue(name)
            case m.QueueBind() | m.ExchangeBind():
                self._bindings[_binding_key(method)] = method
            case m.QueueUnbind() | m.ExchangeUnbind():
                self._forget_binding(_binding_key(method))
            case _:
                pass

    def record_rename(self, old: str, new: str) -> None:
        """Record that the broker gave a queue a new name when it was declared again."""
        self.queues = {new if name == old else name: each for name, each in self.queues.items()}
        names = [*self._old_names(old), old]
        if len(names) > OLD_NAME_MAX_COUNT:
            del self._current_names[names.pop(1)]  # the program knows the first one (CTP2)
        self._current_names.update(dict.fromkeys(names, new))
        bindings = self.bindings
        self._bindings.clear()
        for binding in bindings:
            if isinstance(binding, m.QueueBind) and binding.queue == old:
                binding = msgspec.structs.replace(binding, queue=new)
            self._bindings[_binding_key(binding)] = binding

    def _old_names(self, queue: str) -> list[str]:
        """Return the former names of a queue, the oldest first."""
        return [name for name, present in self._current_names.items() if present == queue]

    def forget_queue(self, name: str) -> None:
        """Remove a deleted queue, with its bindings and former names."""
        self.queues.pop(name, None)
        for old in self._old_names(name):
            del self._current_names[old]
        for key in [key for key in self._bindings if key[0] == "queue" and key[1] == name]:
            self._forget_binding(key)

    def record_last_consumer_removed(self, name: str) -> None:
        """Remove the queue if it is auto-delete; called when this program has no consumer of it any more."""
        queue = self.queues.get(name)
        if queue is not None and queue.declare.auto_delete:
            self.forget_queue(name)

    def _forget_exchange(self, name: str) -> None:
        """Remove an exchange, the bindings from it, and those to it, which may delete auto-delete exchanges."""
        self.exchanges.pop(name, None)
        for key in [key for key in self._bindings if key[2] == name]:
            self._bindings.pop(key, None)
        for key in [key for key in self._bindings if key[:2] == ("exchange", name)]:
            self._forget_binding(key)

    def _forget_binding(self, key: tuple[str, ...]) -> None:
        if self._bindings.pop(key, None) is None:
            return
        exchange = self.exchanges.get(key[2])
        is_bound = any(each[2] == key[2] for each in self._bindings)
        if exchange is not None and exchange.auto_delete and not is_bound:
            self._forget_exchange(key[2])


def _binding_key(
    method: m.QueueBind | m.QueueUnbind | m.ExchangeBind | m.ExchangeUnbind,
) -> tuple[str, ...]:
    """Return a key for a binding: (kind of destination, destination, source, routing key, arguments)."""
    arguments = encode_table(method.arguments).hex()
    match method:
        case m.QueueBind(queue, exchange, key) | m.QueueUnbind(queue, exchange, key):
            return ("queue", queue, exchange, key, arguments)
        case m.ExchangeBind(destination, source, key) | m.ExchangeUnbind(destination, source, key):
            return ("exchange", destination, source, key, arguments)
