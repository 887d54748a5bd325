"""What clients may do to a broker, as values that Hypothesis can draw and shrink.

Names are few, so that commands meet. What is known only at the time (which tags are outstanding, which
consumers there are) is drawn as a number and resolved then.
"""

from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeVar

from hypothesis import strategies as st

from recado.amqp.properties import Properties
from recado.amqp.values import Table
from recado.broker.access import Permission

T = TypeVar("T")

QUEUES = ("q0", "q1", "q2")
EXCHANGES = {"d": "direct", "f": "fanout", "t": "topic", "h": "headers", "a": "direct"}
BINDING_KEYS = ("k", "q1", "k.l", "#", "k.*")
BINDING_ARGUMENTS: tuple[Table, ...] = (
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
)
PERMISSIONS = (
    Permission(".*", ".*", ".*"),
    Permission(".*", "^(amq.default|d|q0|q1)$", ".*"),
    Permission(".*", ".*", "^(q1|q2|d|f)$"),
)


class Publish(NamedTuple):
    """`count` messages; their properties and body sizes follow a pattern."""

    exchange: str
    key: str
    count: int
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
    count: int
    whole_channel: bool


class Settle(NamedTuple):
    """Some of the outstanding tags: one after the other, or all up to the last."""

    how: str
    at: int
    count: int
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


Command: TypeAlias = (
    Publish | Consume | Cancel | Qos | Settle | Get | Declare | Bind | Simple
)


class Batch(NamedTuple):
    """Bytes for one connection: commands on its channels, their frames woven together or not.

    The last `held` bytes wait for the next batch. The two brokers get them in chunks of these sizes.
    """

    connection: int
    commands: tuple[tuple[int, Command], ...]
    woven: bool
    held: int
    sizes: tuple[tuple[int, ...], tuple[int, ...]]


class Answer(NamedTuple):
    """One of the clients that hold messages settles some."""

    which: int
    settles: tuple[Settle, ...]
    sizes: tuple[tuple[int, ...], tuple[int, ...]]


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


# ── what to draw ──────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def _weighed(draw: st.DrawFn, *choices: tuple[int, st.SearchStrategy[T]]) -> T:
    """One of several, some more often than others."""
    which = draw(st.sampled_from([i for i, (weight, _) in enumerate(choices) for _ in range(weight)]))
    return draw(choices[which][1])


def _tuples(values: st.SearchStrategy[T], least: int, most: int) -> st.SearchStrategy[tuple[T, ...]]:
    """Evenly long and short, where Hypothesis's own lists are mostly short."""

    @st.composite
    def draw_all(draw: st.DrawFn) -> tuple[T, ...]:
        return tuple(draw(values) for _ in range(draw(st.integers(least, most))))

    return draw_all()


def _rarely(one_in: int) -> st.SearchStrategy[bool]:
    return st.sampled_from((False,) * (one_in - 1) + (True,))


_counts = st.sampled_from((1, 2, 3, 5, 8, 13))

_GOOD = range(len(PROPERTIES) - 2)
_KINDS = [
    *[(0,)] * 40,
    *((kind,) for kind in _GOOD for _ in range(3)),
    *((0, kind) for kind in _GOOD),
    *((2, 3), (0, 2), (4, 5), (7, 4), (1, 1, 0)),
    *((0, bad) for bad in (len(PROPERTIES) - 2, len(PROPERTIES) - 1)),
]
_SHAPES: list[tuple[tuple[int, ...], bool]] = [
    *[((8,), False)] * 8,
    *(((0,), False), ((9,), False), ((8, 17), False), ((8, 8, 9), False), ((0, 8), False)),
    *(((4500,), False), ((8, 4500), False), ((9,), True)),
]
_CHUNKS = [*[((), ())] * 4, ((), (1,)), ((1,), ()), ((40, 90), ()), ((), (7, 300)), ((33,), (260, 5))]
_SIMPLES = (
    *("confirm",) * 5,
    *("tx", "commit", "commit", "commit", "rollback", "recover", "recover", "purge"),
    *("delete", "reopen", "stray ack", "reply consumer"),
)

_settings: st.SearchStrategy[dict[str, int | str | bool]] = st.fixed_dictionaries(
    {},
    optional={
        "x-max-length": st.sampled_from((0, 1, 2, 4)),
        "x-max-length-bytes": st.sampled_from((0, 20, 50)),
        "x-overflow": st.sampled_from(("drop-head", "reject-publish", "reject-publish-dlx")),
        "x-message-ttl": st.sampled_from((0, 10, 30)),
        "x-dead-letter-exchange": st.sampled_from(("", "d", "f", "h")),
        "x-dead-letter-routing-key": st.sampled_from(("q0", "q1", "k")),
        "x-max-priority": st.just(3),
        "x-single-active-consumer": st.just(True),
        "x-expires": st.just(40),
    },
)
_few_settings = _settings.map(lambda chosen: dict(list(chosen.items())[-2:]))


def _declare(queue: str, chosen: dict[str, int | str | bool], auto_delete: bool) -> Declare:
    if "x-dead-letter-routing-key" in chosen:
        chosen.setdefault("x-dead-letter-exchange", "")
    return Declare(queue, auto_delete, tuple(chosen.items()))


def _declares(queue: st.SearchStrategy[str], *, plain: bool) -> st.SearchStrategy[Declare]:
    chosen: st.SearchStrategy[dict[str, int | str | bool]] = st.builds(dict)
    if not plain:
        chosen = _weighed((1, chosen), (2, _few_settings), (1, _settings))
    return st.builds(_declare, queue, chosen, st.just(False) if plain else _rarely(8))


class Focus(NamedTuple):
    """What a scenario keeps to. Of everything at once, too little would meet to be telling."""

    queues: int
    connections: int
    channels: int
    plain_queues: bool
    plain_messages: bool
    only_traffic: bool


_focuses = st.builds(
    Focus,
    *(st.integers(1, len(each)) for each in (QUEUES, CONNECTIONS, CHANNELS)),
    *(st.booleans() for _ in range(3)),
)


@lru_cache(1024)
def _batches(focus: Focus, *, opening: bool) -> st.SearchStrategy[Batch]:
    commands = _openings(focus) if opening else _commands(focus)
    return st.builds(
        Batch,
        st.sampled_from(CONNECTIONS[: focus.connections]),
        _tuples(st.tuples(st.sampled_from(CHANNELS[: focus.channels]), commands), 1, 6),
        _rarely(6),
        st.sampled_from((0, 0, 0, 0, 1, 9, 26)),
        st.sampled_from(_CHUNKS),
    )


def _openings(focus: Focus) -> st.SearchStrategy[Command]:
    return _weighed(
        (6, _consumes(focus)),
        (3, _prefetches),
        (2, _binds(focus)),
        (2, st.just(Simple("confirm", "q0"))),
    )


def _commands(focus: Focus) -> st.SearchStrategy[Command]:
    queues = st.sampled_from(QUEUES[: focus.queues])
    traffic: list[tuple[int, st.SearchStrategy[Command]]] = [
        (30, _publishes(focus)),
        (6, _consumes(focus)),
        (10, _settles),
        (4, _prefetches),
        (4, st.builds(Get, queues, st.booleans())),
    ]
    if focus.only_traffic:
        return _weighed(*traffic)
    return _weighed(
        *traffic,
        (4, _binds(focus)),
        (3, st.builds(Cancel, st.integers(0, 3))),
        (2, _declares(queues, plain=focus.plain_queues)),
        (6, st.builds(Simple, st.sampled_from(_SIMPLES), queues)),
        (1, st.just(Publish("missing", "k", 2, (0,), (8,), False, True))),
    )


def _publishes(focus: Focus) -> st.SearchStrategy[Publish]:
    """Drawn whole where the parts do not matter one by one: it is drawing that takes the time."""
    exchanges = ("", "", "") if focus.only_traffic else ("", "", "", "", "d", "f", "f", "t", "h", "a")
    keys = QUEUES[: focus.queues] * 2 + (() if focus.only_traffic else ("k", "k.l"))
    return st.builds(
        lambda target, count, kinds, shape, mandatory: Publish(
            *target, count, kinds, *shape, mandatory
        ),
        st.sampled_from([(exchange, key) for exchange in exchanges for key in keys]),
        _counts,
        st.sampled_from([(0,)] if focus.plain_messages else _KINDS),
        st.sampled_from([((8,), False)] if focus.plain_messages else _SHAPES),
        st.booleans(),
    )


def _consumes(focus: Focus) -> st.SearchStrategy[Consume]:
    return st.builds(
        Consume,
        st.sampled_from(QUEUES[: focus.queues]),
        _rarely(4),
        st.sampled_from((0, 0, 0, 0, 5)),
        _rarely(8),
        _rarely(30),
    )


def _binds(focus: Focus) -> st.SearchStrategy[Bind]:
    return st.builds(
        Bind,
        st.sampled_from(QUEUES[: focus.queues]),
        st.sampled_from(tuple(EXCHANGES)),
        st.sampled_from(BINDING_KEYS),
        st.integers(0, len(BINDING_ARGUMENTS) - 1),
        _rarely(5),
    )


_prefetches = st.builds(Qos, st.sampled_from((0, 1, 2, 3, 3, 5, 5)), st.booleans())
_settles = st.builds(
    Settle,
    st.sampled_from(("ack", "ack", "ack", "nack", "reject")),
    st.sampled_from((0, 0, 1, 2)),
    _counts,
    _rarely(3),
    st.booleans(),
)


_answers = st.builds(
    Answer, st.integers(0, 5), _tuples(_settles, 1, 3), st.sampled_from(_CHUNKS)
)


@lru_cache(1024)
def _steps(focus: Focus) -> st.SearchStrategy[Step]:
    return _weighed(
        (40, _batches(focus, opening=False)),
        (30, _answers),
        (8, st.builds(Wait, st.sampled_from((0, 1, 5, 10, 25, 60)), st.booleans())),
        (1, st.builds(Permit, st.integers(0, len(PERMISSIONS) - 1))),
        (1, st.builds(Reconnect, st.sampled_from(CONNECTIONS[: focus.connections]))),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Queues, then who consumes from them, then what happens."""
    focus = draw(_focuses)
    queues = [draw(_declares(st.just(name), plain=focus.plain_queues)) for name in QUEUES]
    opening = draw(_tuples(_batches(focus, opening=True), 1, 3))
    return Scenario(tuple(queues), (*opening, *draw(_tuples(_steps(focus), 1, 30))))
