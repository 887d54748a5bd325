"""Topic exchange: patterns of words, where `*` is one word and `#` any number of them, even none.

The patterns form a trie, one node per word:

    stock.*.nyse   stock.#   #.nyse        root ─┬─ stock ─┬─ * ── nyse ●
                                                 │         └─ # ●
                                                 └─ # ── nyse ●

A key walks the trie word by word with the set of all nodes that it may have reached, so the work is
at most words × nodes whatever the patterns are; to follow each possibility by itself would be
exponential in the number of `#`, and even so each `#` keeps what follows it in the set for the rest of the
key, so a pattern has a limited number of them. Since `#.#` says no more than `#`, a run of them is kept as one,
and one step from a node is enough to find what "no word at all" leads to.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from recado.amqp.errors import PreconditionFailed
from recado.amqp.values import Table

from .binding import Binding

T = TypeVar("T")

MAX_HASHES: Final = 8


class _Node(Generic[T]):
    """Where the words of a pattern have led, and the bindings whose pattern ends here."""

    __slots__ = ("any_word", "any_words", "bindings", "repeats", "words")

    def __init__(self, *, repeats: bool = False) -> None:
        self.words: dict[str, _Node[T]] = {}
        self.any_word: _Node[T] | None = None
        self.any_words: _Node[T] | None = None
        self.bindings: dict[Binding[T], None] = {}
        self.repeats = repeats

    def child(self, word: str) -> _Node[T]:
        match word:
            case "*":
                if self.any_word is None:
                    self.any_word = _Node()
                return self.any_word
            case "#":
                if self.any_words is None:
                    self.any_words = _Node(repeats=True)
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
    def is_empty(self) -> bool:
        return not (self.bindings or self.words) and self.any_word is self.any_words is None


class TopicMatcher(Generic[T]):
    """The bindings of a topic exchange. No node is kept that leads to no binding."""

    __slots__ = ("_root",)

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

    def match(self, key: str, headers: Table) -> list[Binding[T]]:
        reached = {self._root}
        if self._root.any_words is not None:
            reached.add(self._root.any_words)
        for word in _words(key):
            following = set()
            for node in reached:
                if node.repeats:
                    following.add(node)
                for child in (node.words.get(word), node.any_word):
                    if child is not None:
                        following.add(child)
                        if child.any_words is not None:
                            following.add(child.any_words)
            reached = following
        return [binding for node in reached for binding in node.bindings]

    def _path(self, binding: Binding[T]) -> list[_Node[T]]:
        path = [self._root]
        for word in _pattern(binding.routing_key):
            path.append(path[-1].child(word))
        return path


def _words(key: str) -> list[str]:
    """The empty key has no words, as with RabbitMQ, whereas `.` has two empty ones."""
    return key.split(".") if key else []


def _pattern(key: str) -> list[str]:
    words = _words(key)
    return [word for at, word in enumerate(words) if word != "#" or words[at - 1 : at] != ["#"]]
