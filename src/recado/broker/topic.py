"""Topic exchange: patterns of words, where `*` is one word and `#` any number of them, even none.

The patterns form a trie, one node per word:

    stock.*.nyse   stock.#   #.nyse        root ─┬─ stock ─┬─ * ── nyse ●
                                                 │         └─ # ●
                                                 └─ # ── nyse ●

A key walks the trie word by word with the list of all nodes that it has reached, so the work is at most
words × nodes whatever the patterns are; following each possibility by itself would be exponential in the
number of `#`. A `#` that was reached stays reached for the rest of the key. It is therefore looked at once:
its children are noted under the words that lead to them, and a child that leads to nothing but another `#` is
done with when it is reached for the first time. For patterns such as `#.a.#.b.#` that makes the work about the
number of nodes, not words × nodes. Since `#.#` says no more than `#`, a run of them is kept as one, and one
step from a node is enough to find what "no word at all" leads to.

The search runs in steps (see `steps`). It holds on to nodes between them: a binding that exists during the
whole search is found, because its nodes stay where they are; one that comes or goes meanwhile may be found or
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from recado.amqp.errors import PreconditionFailed
from recado.amqp.values import Table

from .binding import BINDINGS_PER_UNIT, Binding, collect
from .steps import STEP_UNITS, Steps, parts

T = TypeVar("T")

MAX_HASHES: Final = 8
_ANY_WORD: Final = "*."  # no word of a key, for words have no dots
_NODES_PER_UNIT: Final = 8  # 0.6 µs each
_NODES_PER_STEP: Final = STEP_UNITS * _NODES_PER_UNIT


class _Node(Generic[T]):
    """Where the words of a pattern have led, and the bindings whose pattern ends here."""

    __slots__ = ("any_word", "any_words", "bindings", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node[T]] = {}
        self.any_word: _Node[T] | None = None
        self.any_words: _Node[T] | None = None
        self.bindings: dict[Binding[T], None] = {}

    def child(self, word: str) -> _Node[T]:
        match word:
            case "*":
                if self.any_word is None:
                    self.any_word = _Node()
                return self.any_word
            case "#":
                if self.any_words is None:
                    self.any_words = _Node()
                return self.any_words
            case _:
                return self.words.get(word) or self.words.setdefault(word, _Node())

    def drop_child(self, word: str) -> None:
        match word:
            case "*":
                self.any_word = None
            case "#":
                self.any_words = None
            case _:
                del self.words[word]

    @property
    def leads_on(self) -> bool:
        """Whether more may be found here than what is behind the `#`."""
        return bool(self.bindings or self.words) or self.any_word is not None

    @property
    def is_empty(self) -> bool:
        return not self.leads_on and self.any_words is None


class TopicMatcher(Generic[T]):
    """The bindings of a topic exchange. No node is kept that leads to no binding."""

    __slots__ = ("_root",)

    by_key = True
    add_units = 0

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, binding: Binding[T]) -> None:
        if _pattern(binding.routing_key).count("#") > MAX_HASHES:
            raise PreconditionFailed(f"a topic pattern may have {MAX_HASHES} '#', not more")
        self._path(binding)[-1].bindings[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        pattern = _pattern(binding.routing_key)
        path = self._path(binding)
        del path[-1].bindings[binding]
        while pattern and path.pop().is_empty:
            path[-1].drop_child(pattern.pop())

    def search(self, key: str, headers: Table, found: dict[Binding[T], None]) -> Steps[None]:
        walk: _Walk[T] = _Walk(key)
        reached: list[_Node[T]] = [self._root]
        visited = 0
        if self._root.any_words is not None:
            visited += walk.enter(self._root.any_words)
        for word in walk.words:
            # Before any `#` is entered at this word: its children are for the next.
            repeated = walk.take(word) if walk.by_word else ()
            following: list[_Node[T]] = []
            for node in reached:
                visited += 1
                if (child := node.words.get(word)) is not None:
                    following.append(child)
                    if child.any_words is not None:
                        visited += walk.enter(child.any_words)
                if (child := node.any_word) is not None:
                    following.append(child)
                    if child.any_words is not None:
                        visited += walk.enter(child.any_words)
                if visited >= _NODES_PER_STEP:
                    yield visited // _NODES_PER_UNIT
                    visited = 0
            for each, nodes in repeated:
                for some in parts(nodes, _NODES_PER_STEP):
                    visited += len(some) + walk.keep(each, some)
                    if visited >= _NODES_PER_STEP:
                        yield visited // _NODES_PER_UNIT
                        visited = 0
                following += nodes
            reached = following
        reached += walk.entered
        for node in reached:
            visited += 1
            if bindings := node.bindings:
                visited += 1
                if len(bindings) > BINDINGS_PER_UNIT:
                    yield from collect(bindings, found)
                else:  # most have few, and a step for them would take 1 µs more
                    found.update(bindings)
            if visited >= _NODES_PER_STEP:
                yield visited // _NODES_PER_UNIT
                visited = 0
        if visited >= _NODES_PER_UNIT:
            yield visited // _NODES_PER_UNIT

    def _path(self, binding: Binding[T]) -> list[_Node[T]]:
        path = [self._root]
        for word in _pattern(binding.routing_key):
            path.append(path[-1].child(word))
        return path


class _Walk(Generic[T]):
    """The `#` nodes that a key has entered, and their children by the words of the key that lead to them."""

    __slots__ = ("by_word", "entered", "words")

    def __init__(self, key: str) -> None:
        self.words = _words(key)
        self.entered: dict[_Node[T], None] = {}
        self.by_word: dict[str, list[_Node[T]]] = {}

    def enter(self, behind: _Node[T]) -> int:
        """Enter a `#`, unless that was done before; return the number of nodes that were noted."""
        if behind in self.entered:
            return 0
        self.entered[behind] = None
        children: dict[str, _Node[T]] = {}
        if behind.words:
            children = {word: behind.words[word] for word in behind.words.keys() & self.words}
        if behind.any_word is not None:
            children[_ANY_WORD] = behind.any_word
        for word, child in children.items():
            self.by_word.setdefault(word, []).append(child)
        return 1 + len(children)

    def take(self, word: str) -> list[tuple[str, list[_Node[T]]]]:
        """The nodes that a word leads to from any `#` entered so far, each time with how to `keep` them."""
        return [(each, self.by_word.pop(each, [])) for each in (word, _ANY_WORD)]

    def keep(self, word: str, nodes: Sequence[_Node[T]]) -> int:
        """Note nodes again that the same word may reach another time; enter each `#` behind them."""
        lasting = [node for node in nodes if node.leads_on]
        if lasting:
            self.by_word.setdefault(word, []).extend(lasting)
        return sum(self.enter(node.any_words) for node in nodes if node.any_words is not None)


def _words(key: str) -> list[str]:
    """The empty key has no words, as with RabbitMQ, whereas `.` has two empty ones."""
    return key.split(".") if key else []


def _pattern(key: str) -> list[str]:
    words = _words(key)
    return [word for at, word in enumerate(words) if word != "#" or words[at - 1 : at] != ["#"]]
