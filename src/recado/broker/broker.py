"""The broker: vhosts, users, and what is due when.

It decides and never waits; whoever holds it brings time and chance. Clients reach it through `Admission` (a
user in a vhost) and `Channel`. Queues come and go here, because that concerns everybody: bindings, consumers,
the connection that owns an exclusive queue.
"""

from collections.abc import Callable, Iterable, Sequence

from recado.amqp.errors import NotAllowed, PreconditionFailed
from recado.amqp.facts import REPLY_HERE

from .access import User
from .alarms import Alarms
from .arguments import QueueSettings, describe
from .consumer import Consumer
from .dead_letter import DeadLetters
from .keeper import Keeper
from .queue import Owner, Queue
from .routing import Admission
from .run import Run
from .vhost import Vhost


class ReplyQueue(Queue):
    """Where direct replies to one channel arrive."""

    is_address = True

    def publish(self, run: Run, now: int) -> Sequence[int]:
        for consumer in self.consumers:
            consumer.deliver(run)
        return ()


class Broker:
    def __init__(
        self,
        new_name: Callable[[], str],
        vhosts: Iterable[str] = ("/",),
        keeper: Keeper | None = None,
    ) -> None:
        self.new_name = new_name  # gives a name that nobody can guess
        self.keeper = keeper or Keeper()
        self.users: dict[str, User] = {}
        self.exclusive: dict[Queue, None] = {}
        self.vhosts: dict[str, Vhost[Queue]] = {}
        self._dead_letters: dict[str, DeadLetters] = {}
        self._admissions: dict[tuple[str, str], Admission] = {}
        self._alarms = Alarms()
        for name in vhosts:
            self.add_vhost(name)

    def add_vhost(self, name: str) -> None:
        vhost: Vhost[Queue] = Vhost(name, self.keeper)
        self.vhosts[name] = vhost
        self._dead_letters[name] = DeadLetters(vhost)

    def add_user(self, user: User) -> None:
        self.users[user.name] = user
        self._admissions.clear()

    def admit(self, user: User, vhost: str) -> Admission:
        """Let a user into a vhost, or refuse with 530."""
        if vhost not in self.vhosts:
            raise NotAllowed(f"vhost {vhost} not found")
        admission = self._admissions.get((user.name, vhost))
        if admission is None or admission.user is not user:
            admission = Admission(user, self.vhosts[vhost])
            self._admissions[user.name, vhost] = admission
        return admission

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────

    def create_queue(
        self,
        vhost: Vhost[Queue],
        name: str,
        settings: QueueSettings,
        owner: Owner | None,
        now: int,
        kind: type[Queue] = Queue,
    ) -> Queue:
        letters, alarms = self._dead_letters[vhost.name], self._alarms
        queue = kind(vhost, name, settings, owner, letters, alarms.set, self.keeper, now)
        vhost.add_queue(queue)
        if queue.lasting:
            self.keeper.queue_declared(queue)
        if owner is not None:
            owner.exclusive[queue] = None
        return queue

    def create_reply_queue(self, vhost: Vhost[Queue], now: int) -> Queue:
        """An address for direct replies. It is the broker's own: as a queue it is locked for everybody."""
        name = f"{REPLY_HERE}.{self.new_name()}"
        settings = QueueSettings(exclusive=True, auto_delete=True)
        return self.create_queue(vhost, name, settings, self, now, ReplyQueue)

    def delete_queue(
        self,
        queue: Queue,
        now: int,
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        answer: Callable[[int], None] | None = None,
    ) -> None:
        """`answer` is told the number of messages that went with it, before consumers are dismissed.

        Clients that delete what they consume expect it in that order, for RabbitMQ keeps to it.
        """
        described = describe("queue", queue.name, queue.vhost.name)
        if if_unused and queue.consumers:
            raise PreconditionFailed(f"{described} in use")
        if if_empty and queue.ready:
            raise PreconditionFailed(f"{described} not empty")
        queue.deleted = True
        if queue.owner is not None:
            del queue.owner.exclusive[queue]
            queue.owner = None
        count = queue.purge()
        queue.vhost.remove_queue(queue)
        self.keeper.queue_deleted(queue)
        if answer is not None:
            answer(count)
        for consumer in (*queue.consumers, *queue.taps):
            consumer.channel.dismiss(consumer, now)
        self._alarms.drop(queue)

    def cancel(self, consumer: Consumer, now: int) -> None:
        consumer.channel.remove(consumer, now)
        if not consumer.settings.wire_tap:
            self.delete_if_left([consumer.queue], now)

    def delete_if_left(self, queues: Iterable[Queue], now: int) -> None:
        """Delete auto-delete queues which have lost their last consumer."""
        for queue in queues:
            if queue.settings.auto_delete and not queue.consumers and not queue.deleted:
                self.delete_queue(queue, now)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────

    def deadline(self) -> int | None:
        """When `tick` has something to do next; 0 is at once."""
        if any(letters.waiting for letters in self._dead_letters.values()):
            return 0
        return self._alarms.next()

    def tick(self, now: int) -> None:
        """Let messages and queues expire whose time has come, and go on with dead letters."""
        for letters in self._dead_letters.values():
            letters.go_on(now)
        while (queue := self._alarms.pop(now)) is not None:
            if queue.is_abandoned(now):
                self.delete_queue(queue, now)
            else:
                queue.expire(now)
