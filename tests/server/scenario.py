"""Commands of clients, as values that Hypothesis can draw and shrink.

There are few names, so that commands meet. Values that are known only at run time (which tags are outstanding, which
consumers exist) are drawn as numbers and resolved then.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from hypothesis import strategies as st

from recado.amqp.properties import Properties
from recado.amqp.traits import DIRECT_REPLY_TO
from recado.amqp.values import FieldTable
from recado.broker.access import Permission

T = TypeVar("T")
Sizes: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]

QUEUES = ("q0", "q1", "q2")
EXCHANGES = {
    "d": "direct",
    "f": "fanout",
    "t": "topic",
    "h": "headers",
    "a": "direct",
    "u": "fanout",
}
EXCHANGE_ARGUMENTS: dict[str, FieldTable] = {
    "a": {"alternate-exchange": "f"},
    "u": {"x-message-deduplication": True, "x-cache-size": 2, "x-cache-ttl": 30},
}
BINDING_KEYS = ("k", "q1", "k.l", "#", "k.*")
BINDING_ARGUMENTS: tuple[FieldTable, ...] = (
    {"x-match": "all", "n": 1},
    {"x-match": "any", "n": 1, "m": 2},
)
CONNECTIONS = (0, 1, 2)
CHANNELS = (1, 2)
FRAME_MAX = {-1: 131_072, 0: 131_072, 1: 131_072, 2: 4096}

PROPERTIES = (
    Properties(),
    Properties(delivery_mode=2),
    Properties(message_id="one"),
    Properties(message_id="two", content_type="text/plain"),
    Properties(message_id="three", content_type="text/plain"),
    Properties(priority=1),
    Properties(priority=9),
    Properties(expiration="0"),
    Properties(expiration="5"),
    Properties(expiration="20", priority=2),
    Properties(headers={"n": 1}),
    Properties(headers={"n": 2, "m": 2}),
    Properties(headers={"CC": ["q1", "k"]}),
    Properties(headers={"BCC": ["q2"]}),
    Properties(user_id="guest"),
    Properties(user_id="somebody"),
    Properties(expiration="never"),
    Properties(reply_to=DIRECT_REPLY_TO),
)
GOOD = range(len(PROPERTIES) - 3)  # those that are never refused
PERMISSIONS = (
    Permission(".*", ".*", ".*"),
    Permission(".*", "^(amq.default|d|q0|q1)$", ".*"),
    Permission(".*", ".*", "^(q1|q2|d|f)$"),
)


class Publish(NamedTuple):
    """`amount` messages; their routing keys, properties and body sizes follow a pattern."""

    exchange: str
    keys: tuple[str, ...]
    amount: int
    kinds: tuple[int, ...]
    sizes: tuple[int, ...]
    pieces: bool
    mandatory: bool


class Consume(NamedTuple):
    queue: str
    no_ack: bool
    priority: int
    tap: bool
    exclusive: bool


class Cancel(NamedTuple):
    which: int


class Qos(NamedTuple):
    prefetch: int
    whole_channel: bool


class Settle(NamedTuple):
    """Some of the outstanding tags: one after the other, or all up to the last."""

    how: str
    at: int
    amount: int
    multiple: bool
    requeue: bool


class Get(NamedTuple):
    queue: str
    no_ack: bool


class Declare(NamedTuple):
    """Instead of the queue that there was."""

    queue: str
    auto_delete: bool
    arguments: tuple[tuple[str, int | str | bool], ...]


class Bind(NamedTuple):
    queue: str
    exchange: str
    key: str
    arguments: int
    undo: bool


class Simple(NamedTuple):
    """A method that needs at most a queue's name."""

    name: str
    queue: str


Command: TypeAlias = Publish | Consume | Cancel | Qos | Settle | Get | Declare | Bind | Simple


class Batch(NamedTuple):
    """Bytes for one connection: commands on its channels, their frames woven together or not.

    The last `held` bytes wait for the next batch. The two brokers get them in chunks of these sizes. With
    `more` the turn continues: input of other connections is read before anything is delivered.
    """

    connection: int
    commands: tuple[tuple[int, Command], ...]
    woven: bool = False
    held: int = 0
    sizes: Sizes = ((), ())
    more: bool = False


class Answer(NamedTuple):
    """One of the clients that hold messages settles some."""

    which: int
    settle: Settle
    sizes: Sizes


class Wait(NamedTuple):
    milliseconds: int
    tick: bool


class Permit(NamedTuple):
    """Permissions change, for connections to come."""

    which: int


class Reconnect(NamedTuple):
    connection: int


Step: TypeAlias = Batch | Answer | Wait | Permit | Reconnect


class Scenario(NamedTuple):
    queues: tuple[Declare, ...]
    steps: tuple[Step, ...]


class Focus(NamedTuple):
    """The features of a scenario. With all of them at once, too few commands would interact."""

    queues: tuple[str, ...]
    connections: tuple[int, ...]
    channels: tuple[int, ...]
    plain_queues: bool
    plain_messages: bool
    only_traffic: bool


# ── strategies ───────────────────────────────────────────────────────────────────────────────────────────

_AMOUNTS = (1, 2, 3, 5, 8, 13)
_KINDS: tuple[tuple[int, ...], ...] = (
    *[(0,)] * 40,
    *((kind,) for kind in GOOD for _ in range(3)),
    *((0, kind) for kind in GOOD),
    *((2, 3), (0, 2), (5, 6), (8, 5), (1, 1, 0), (2, 3, 4)),
    *((0, bad) for bad in range(len(GOOD), len(PROPERTIES))),
)
_SHAPES: tuple[tuple[tuple[int, ...], bool], ...] = (
    *[((8,), False)] * 8,
    *(((0,), False), ((9,), False), ((8, 17), False), ((8, 8, 9), False), ((0, 8), False)),
    *(((4500,), False), ((8, 4500), False), ((9,), True)),
)
_SIZES: tuple[Sizes, ...] = (
    *[((), ())] * 4,
    *(((), (1,)), ((1,), ()), ((40, 90), ()), ((), (7, 300)), ((33,), (260, 5))),
)
_SIMPLES = (
    *("confirm",) * 5,
    *("tx", "commit", "commit", "commit", "rollback", "recover", "recover", "purge"),
    *("delete", "reopen", "stray ack", "reply consumer"),
)
_SETTINGS: dict[str, tuple[int | str | bool, ...]] = {
    "x-max-length": (0, 1, 2, 4),
    "x-max-length-bytes": (0, 20, 50),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-message-ttl": (0, 10, 30),
    "x-dead-letter-exchange": ("", "d", "f", "h"),
    "x-dead-letter-routing-key": ("q0", "q1", "k"),
    "x-max-priority": (3,),
    "x-single-active-consumer": (True,),
    "x-expires": (40,),
    "x-consumer-timeout": (1, 70_000),
    "x-message-deduplication": (True,),
    "x-cache-size": (1, 2),
    "x-cache-ttl": (10,),
    "x-queue-type": ("quorum",),
    "x-delivery-limit": (0, 1, 2),
}


class Dice:
    """Reads choices from drawn bytes.

    A command takes a dozen choices. Drawn one by one they take longer than all that the brokers do, and
    Hypothesis likes to repeat itself; drawn as one they are even, and shrink to the first of each.
    """

    def __init__(self, octets: bytes) -> None:
        self._left = int.from_bytes(octets, "big")

    def pick(self, choices: Sequence[T]) -> T:
        self._left, at = divmod(self._left, len(choices))
        return choices[at]

    def once_in(self, times: int) -> bool:
        self._left, at = divmod(self._left, times)
        return at == times - 1


def _publish(dice: Dice, focus: Focus) -> Command:
    exchange, key = "", dice.pick(focus.queues)
    if not focus.only_traffic:
        exchange = dice.pick(("", "", "", "", "d", "f", "f", "t", "h", "a", "u"))
        key = dice.pick((key, key, key, "k", "k.l"))
        if dice.once_in(80):
            exchange = "missing"
    amount, mandatory = dice.pick(_AMOUNTS), dice.once_in(3)
    keys: tuple[str, ...] = (key,)
    if dice.once_in(3):
        keys = (key, *(dice.pick(focus.queues) for _ in range(dice.pick((1, 2, 3)))))
    if focus.plain_messages:
        return Publish(exchange, keys, amount, (0,), (8,), False, mandatory)
    return Publish(exchange, keys, amount, dice.pick(_KINDS), *dice.pick(_SHAPES), mandatory)


def _consume(dice: Dice, focus: Focus) -> Command:
    return Consume(
        dice.pick(focus.queues),
        no_ack=dice.once_in(4),
        priority=dice.pick((0, 0, 0, 0, 5)),
        tap=dice.once_in(8),
        exclusive=dice.once_in(30),
    )


def _settle(dice: Dice, focus: Focus) -> Settle:
    return Settle(
        dice.pick(("ack", "ack", "ack", "nack", "reject")),
        dice.pick((0, 0, 1, 2)),
        dice.pick(_AMOUNTS),
        multiple=dice.once_in(3),
        requeue=dice.once_in(2),
    )


def _prefetch(dice: Dice, focus: Focus) -> Command:
    return Qos(dice.pick((0, 1, 2, 3, 3, 5, 5)), whole_channel=dice.once_in(2))


def _get(dice: Dice, focus: Focus) -> Command:
    return Get(dice.pick(focus.queues), no_ack=dice.once_in(2))


def _bind(dice: Dice, focus: Focus) -> Command:
    return Bind(
        dice.pick(focus.queues),
        dice.pick(tuple(EXCHANGES)),
        dice.pick(BINDING_KEYS),
        dice.pick(range(len(BINDING_ARGUMENTS))),
        undo=dice.once_in(5),
    )


def _cancel(dice: Dice, focus: Focus) -> Command:
    return Cancel(dice.pick(range(4)))


def _declare(dice: Dice, focus: Focus, queue: str | None = None) -> Declare:
    arguments: dict[str, int | str | bool] = {}
    if not focus.plain_queues:
        one_in = dice.pick((2, 3, 5, 9))
        for name, values in _SETTINGS.items():
            if dice.once_in(one_in):
                arguments[name] = dice.pick(values)
    if "x-dead-letter-routing-key" in arguments:
        arguments.setdefault("x-dead-letter-exchange", "")
    if "x-queue-type" in arguments:
        arguments.pop("x-max-priority", None)
    else:
        arguments.pop("x-delivery-limit", None)
    auto_delete = dice.once_in(8) and not focus.plain_queues and "x-queue-type" not in arguments
    return Declare(queue or dice.pick(focus.queues), auto_delete, tuple(arguments.items()))


def _simple(dice: Dice, focus: Focus) -> Command:
    return Simple(dice.pick(_SIMPLES), dice.pick(focus.queues))


_OPENINGS = (*[_consume] * 5, *[_prefetch] * 3, *[_bind] * 2, _simple)
_TRAFFIC = (*[_publish] * 30, *[_consume] * 5, *[_settle] * 12, *[_prefetch] * 4, *[_get] * 4)
_ALL = (*_TRAFFIC, *[_bind] * 4, *[_cancel] * 3, *[_declare] * 2, *[_simple] * 6)


def _steps(focus: Focus, rolls: list[bytes]) -> Iterator[Step]:
    """Most rolls are a command, which may share its batch with the one before."""
    batch: Batch | None = None
    for number, octets in enumerate(rolls):
        if not any(octets):
            continue  # a value that Hypothesis shrinks to
        dice = Dice(octets)
        kind = dice.pick(("command",) * 16 + ("answer",) * 5 + ("wait", "wait", "rare"))
        if kind == "command":
            maker = dice.pick(_OPENINGS if number < 6 else _TRAFFIC if focus.only_traffic else _ALL)
            command = (dice.pick(focus.channels), maker(dice, focus))
            if batch is not None and not dice.once_in(3):
                batch = batch._replace(commands=(*batch.commands, command))
                continue
        if batch is not None:
            yield batch
            batch = None
        if kind == "command":
            batch = Batch(
                dice.pick(focus.connections),
                (command,),
                dice.once_in(6),
                dice.pick((0, 0, 0, 0, 1, 9, 26)),
                dice.pick(_SIZES),
                dice.once_in(2),
            )
        elif kind == "answer":
            yield Answer(dice.pick(range(6)), _settle(dice, focus), dice.pick(_SIZES))
        elif kind == "wait":
            yield Wait(dice.pick((0, 1, 5, 10, 25, 60, 60_000)), tick=dice.once_in(2))
        elif dice.once_in(2):
            yield Permit(dice.pick(range(len(PERMISSIONS))))
        else:
            yield Reconnect(dice.pick(focus.connections))
    if batch is not None:
        yield batch


def _some(values: tuple[T, ...]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.sampled_from([values[:count] for count in range(1, len(values) + 1)])


_focuses = st.builds(
    Focus,
    *(_some(each) for each in (QUEUES, CONNECTIONS, CHANNELS)),
    *(st.booleans() for _ in range(3)),
)
_rolls = st.binary(min_size=12, max_size=12)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw queues, then consumers, then commands."""
    focus = draw(_focuses)
    queues = tuple(_declare(Dice(draw(_rolls)), focus, name) for name in QUEUES)
    return Scenario(queues, tuple(_steps(focus, draw(st.lists(_rolls, min_size=30, max_size=100)))))
