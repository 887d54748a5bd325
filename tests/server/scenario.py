"""What clients may do to a broker, as values that Hypothesis can draw and shrink.

Names are few, so that commands meet. What is known only at the time (which tags are outstanding, which
consumers there are) is drawn as a number and resolved then.
"""

from typing import NamedTuple, TypeAlias

from hypothesis import strategies as st

from recado.amqp.properties import Properties
from recado.amqp.values import Table
from recado.broker.access import Permission

QUEUES = ("q0", "q1", "q2", "q3")
EXCHANGES = {"d": "direct", "f": "fanout", "t": "topic", "h": "headers", "a": "direct"}
KEYS = ("q0", "q1", "q2", "k", "k.l")
BINDING_KEYS = ("k", "q1", "k.l", "#", "k.*")
BINDING_ARGUMENTS: tuple[Table, ...] = (
    {"x-match": "all", "n": 1},
    {"x-match": "any", "n": 1, "m": 2},
)
CONNECTIONS = range(3)
CHANNELS = (1, 2)
FRAME_MAX = {0: 131_072, 1: 131_072, 2: 4096}

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
    mandatory: bool
    pieces: bool


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


class Wait(NamedTuple):
    milliseconds: int
    tick: bool


class Permit(NamedTuple):
    """Permissions change, for connections to come."""

    which: int


class Reconnect(NamedTuple):
    connection: int


Step: TypeAlias = Batch | Wait | Permit | Reconnect


class Scenario(NamedTuple):
    queues: tuple[Declare, ...]
    steps: tuple[Step, ...]


# ── what to draw ──────────────────────────────────────────────────────────────────────────────────────────


def _tuples(values: st.SearchStrategy[int], most: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(values, min_size=1, max_size=most).map(tuple)


_queues = st.sampled_from(QUEUES)
_counts = st.sampled_from((1, 1, 2, 3, 5, 8, 13))
_rarely = st.sampled_from((False, False, False, False, False, True))
_kinds = st.sampled_from((*range(14), 0, 0, 0, 0, 4, 5, 7)) | st.integers(0, len(PROPERTIES) - 1)

_settings = st.fixed_dictionaries(
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


def _declare(queue: str, chosen: dict[str, int | str | bool], auto_delete: bool) -> Declare:
    if "x-dead-letter-exchange" not in chosen:
        chosen.pop("x-dead-letter-routing-key", None)
    return Declare(queue, auto_delete, tuple(chosen.items()))


def _declares(queue: st.SearchStrategy[str]) -> st.SearchStrategy[Declare]:
    plain: st.SearchStrategy[dict[str, int | str | bool]] = st.builds(dict)
    return st.builds(_declare, queue, plain | _settings, _rarely)


_publishes = st.builds(
    Publish,
    st.sampled_from(("", "", "", "d", "f", "f", "t", "h", "a")) | st.just("missing"),
    st.sampled_from(KEYS),
    _counts,
    _tuples(_kinds, 2),
    _tuples(st.sampled_from((8, 8, 8, 0, 9, 17, 4500)), 2),
    st.booleans(),
    _rarely,
)
_consumes = st.builds(
    Consume, _queues, st.booleans(), st.sampled_from((0, 0, 0, 5)), _rarely, _rarely
)
_settles = st.builds(
    Settle,
    st.sampled_from(("ack", "ack", "ack", "nack", "reject")),
    st.sampled_from((0, 0, 1, 2)),
    _counts,
    st.booleans(),
    st.booleans(),
)
_commands: st.SearchStrategy[Command] = st.one_of(
    _publishes,
    _publishes,
    _publishes,
    _consumes,
    _consumes,
    _settles,
    _settles,
    _settles,
    st.builds(Qos, st.sampled_from((0, 1, 2, 3, 5)), st.booleans()),
    st.builds(Get, _queues, st.booleans()),
    st.builds(
        Bind,
        _queues,
        st.sampled_from(tuple(EXCHANGES)),
        st.sampled_from(BINDING_KEYS),
        st.integers(0, len(BINDING_ARGUMENTS) - 1),
        _rarely,
    ),
    st.builds(Cancel, st.integers(0, 3)),
    _declares(_queues),
    st.builds(
        Simple,
        st.sampled_from(
            ("confirm", "confirm", "tx", "commit", "commit", "rollback", "recover", "purge")
            + ("delete", "reopen", "stray ack", "reply consumer")
        ),
        _queues,
    ),
)
_sizes = st.just(()) | st.just(()) | _tuples(st.integers(1, 300), 3)
_batches = st.builds(
    Batch,
    st.sampled_from(CONNECTIONS),
    st.lists(st.tuples(st.sampled_from(CHANNELS), _commands), min_size=1, max_size=5).map(tuple),
    _rarely,
    st.just(0) | st.just(0) | st.integers(1, 30),
    st.tuples(_sizes, _sizes),
)
_steps: st.SearchStrategy[Step] = st.one_of(
    _batches,
    _batches,
    _batches,
    _batches,
    _batches,
    st.builds(Wait, st.sampled_from((0, 1, 5, 10, 25, 60)), st.booleans()),
    st.builds(Permit, st.integers(0, len(PERMISSIONS) - 1)) | st.builds(Reconnect, st.sampled_from(CONNECTIONS)),
)


def scenarios() -> st.SearchStrategy[Scenario]:
    return st.builds(
        Scenario,
        st.tuples(*(_declares(st.just(name)) for name in QUEUES)),
        st.lists(_steps, min_size=1, max_size=20).map(tuple),
    )
