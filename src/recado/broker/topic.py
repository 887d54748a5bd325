"""Topic exchange: patterns of words, in which `*` matches one word and `#` any number of words, also none.

The patterns form a trie with one node per word:

    stock.*.nyse   stock.#   #.nyse        root ─┬─ stock ─┬─ * ── nyse ●
                                                 │         └─ # ●
                                                 └─ # ── nyse ●

A search walks the trie word by word with the list of all reached nodes, so that the work is at most words ×
nodes for any patterns; following each alternative separately would be exponential in the number of `#`. A
`#` node that was reached stays reached for the rest of the key. So it is visited only once: its children
are registered by word (`_TopicWalk`), and each later word of the key reaches the children registered for
it. A registered child that leads only to another `#` is dropped after it was reached once, because that `#`
then stays reached. For patterns such as `#.a.#.b.#` the work is then about the number of nodes, not words ×
nodes. Since `#.#` is equivalent to `#`, repeated ones are stored as one. So at most one `#` child has to be
entered from a node to cover the case that the `#` matches no word.

The search runs in steps (see `steps`) and holds nodes between them: a binding that exists during the whole
search is found, because its nodes do not move; one that is added or removed meanwhile may be found or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable

from .binding import BINDINGS_PER_UNIT, Binding, collect
from .steps import STEP_UNITS_MAX, Steps, chunks

T = TypeVar("T")

MAX_HASHES: Final = 8
_ANY_WORD: Final = "*."  # not a possible word, because words contain no dots
_NODES_PER_UNIT: Final = 8  # 0.6 µs each
_NODES_PER_STEP: Final = STEP_UNITS_MAX * _NODES_PER_UNIT


class _TrieNode(Generic[T]):
    """A node of the trie: the children by word, and the bindings whose pattern ends here."""

    __slots__ = ("bindings", "hash_child", "star_child", "word_children")

    def __init__(self) -> None:
        self.word_children: dict[str, _TrieNode[T]] = {}
        self.star_child: _TrieNode[T] | None = None
        self.hash_child: _TrieNode[T] | None = None
        self.bindings: dict[Binding[T], None] = {}

    def get_or_add_child(self, word: str) -> _TrieNode[T]:
        match word:
            case "*":
                if self.star_child is None:
                    self.star_child = _TrieNode()
                return self.star_child
            case "#":
                if self.hash_child is None:
                    self.hash_child = _TrieNode()
                return self.hash_child
            case _:
                return self.word_children.get(word) or self.word_children.setdefault(
                    word, _TrieNode()
                )

    def remove_child(self, word: str) -> None:
        match word:
            case "*":
                self.star_child = None
            case "#":
                self.hash_child = None
            case _:
                del self.word_children[word]

    @property
    def has_non_hash(self) -> bool:
        """Whether the node has bindings, or children other than `#`."""
        return bool(self.bindings or self.word_children) or self.star_child is not None

    @property
    def is_empty(self) -> bool:
        return not self.has_non_hash and self.hash_child is None


class TopicMatcher(Generic[T]):
    """The bindings of a topic exchange. Nodes that lead to no binding are removed."""

    __slots__ = ("_root",)

    uses_key = True
    add_cost = 0

    def __init__(self) -> None:
        self._root: _TrieNode[T] = _TrieNode()

    def add(self, binding: Binding[T]) -> None:
        if _split_pattern(binding.routing_key).count("#") > MAX_HASHES:
            raise PreconditionFailedError(f"a topic pattern may contain at most {MAX_HASHES} '#'")
        self._path(binding)[-1].bindings[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        pattern = _split_pattern(binding.routing_key)
        path = self._path(binding)
        del path[-1].bindings[binding]
        while pattern and path.pop().is_empty:
            path[-1].remove_child(pattern.pop())

    def search(self, key: str, headers: FieldTable, found: dict[Binding[T], None]) -> Steps[None]:
        walk: _TopicWalk[T] = _TopicWalk(key)
        reached: list[_TrieNode[T]] = [self._root]
        visited = 0
        if self._root.hash_child is not None:
            visited += walk.enter_hash(self._root.hash_child)
        for word in walk.words:
            # Before any `#` is entered at this word: its children match from the next word on.
            repeated = walk.pop_children(word) if walk.children_by_word else ()
            next_reached: list[_TrieNode[T]] = []
            for node in reached:
                visited += 1
                if (child := node.word_children.get(word)) is not None:
                    next_reached.append(child)
                    if child.hash_child is not None:
                        visited += walk.enter_hash(child.hash_child)
                if (child := node.star_child) is not None:
                    next_reached.append(child)
                    if child.hash_child is not None:
                        visited += walk.enter_hash(child.hash_child)
                if visited >= _NODES_PER_STEP:
                    yield visited // _NODES_PER_UNIT
                    visited = 0
            for retain_key, nodes in repeated:
                for chunk in chunks(nodes, _NODES_PER_STEP):
                    visited += len(chunk) + walk.retain(retain_key, chunk)
                    if visited >= _NODES_PER_STEP:
                        yield visited // _NODES_PER_UNIT
                        visited = 0
                next_reached += nodes
            reached = next_reached
        reached += walk.entered_hashes
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

    def _path(self, binding: Binding[T]) -> list[_TrieNode[T]]:
        path = [self._root]
        for word in _split_pattern(binding.routing_key):
            path.append(path[-1].get_or_add_child(word))
        return path


class _TopicWalk(Generic[T]):
    """The `#` nodes that a key has entered, and their children by the words of the key that lead to them."""

    __slots__ = ("children_by_word", "entered_hashes", "words")

    def __init__(self, key: str) -> None:
        self.words = _split_words(key)
        self.entered_hashes: dict[_TrieNode[T], None] = {}
        self.children_by_word: dict[str, list[_TrieNode[T]]] = {}

    def enter_hash(self, node: _TrieNode[T]) -> int:
        """Enter a `#` node if that was not done before; return the number of registered nodes."""
        if node in self.entered_hashes:
            return 0
        self.entered_hashes[node] = None
        children: dict[str, _TrieNode[T]] = {}
        if node.word_children:
            children = {
                word: node.word_children[word] for word in node.word_children.keys() & self.words
            }
        if node.star_child is not None:
            children[_ANY_WORD] = node.star_child
        for word, child in children.items():
            self.children_by_word.setdefault(word, []).append(child)
        return 1 + len(children)

    def pop_children(self, word: str) -> list[tuple[str, list[_TrieNode[T]]]]:
        """Remove and return the nodes that a word leads to from the entered `#` nodes.

        Each list comes with the key to `retain` its nodes.
        """
        return [(key, self.children_by_word.pop(key, [])) for key in (word, _ANY_WORD)]

    def retain(self, word: str, nodes: Sequence[_TrieNode[T]]) -> int:
        """Register nodes again that the same word may reach later; enter the `#` after each of them."""
        reachable = [node for node in nodes if node.has_non_hash]
        if reachable:
            self.children_by_word.setdefault(word, []).extend(reachable)
        return sum(
            self.enter_hash(node.hash_child) for node in nodes if node.hash_child is not None
        )


def _split_words(key: str) -> list[str]:
    """Split a routing key. As in RabbitMQ, the empty key has no words, whereas `.` has two empty ones."""
    return key.split(".") if key else []


def _split_pattern(key: str) -> list[str]:
    """Split a binding key, with repeated `#` as one."""
    words = _split_words(key)
    return [word for i, word in enumerate(words) if word != "#" or words[i - 1 : i] != ["#"]]
