"""Regular expressions, in a language whose matching time is linear: google-re2, never `re`.

Three places use them: the regex exchange, whose bindings have a pattern that the whole routing key
must match, permissions and policies. All let a stranger's pattern meet a stranger's text, and an engine
that backtracks would let the two stop the broker. The library is imported when the first pattern is
compiled: most brokers never need one, and all want to start quickly.

A regex exchange matches its patterns in sets (`re2.Set`), which find all that match in one pass over the key:
4,500 patterns take 0.03 ms, and 8 ms one by one. A set cannot be changed, so new patterns are matched singly
until there are enough of them for a set, and a set of which half is gone is broken up. Sets are small, for
two reasons. Compiling one is a part of a bind and must be quick. Matching must be quick in the worst case, too,
when the engine builds a new state for every byte of the key: that worst case is what a match is charged.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from recado.amqp.errors import PreconditionFailed
from recado.amqp.values import Table

from .binding import Binding, collect
from .steps import Steps

T = TypeVar("T")

MAX_PATTERN_BYTES: Final = 1_024
_MAX_COMPILED_BYTES: Final = 1 << 20
_MAX_STEPS: Final = 100_000  # in one exchange: 5,000 patterns of the usual kind
_MAX_PROGRAM: Final = 2_000  # instructions: a match takes two milliseconds at the very most
_SET_PROGRAM: Final = 1_000  # instructions that make a set: 50 usual patterns, compiled in 0.3 ms
_WORST_PER_UNIT: Final = (
    1_000  # instructions × bytes of a key: 5 ns each at worst, hardly anything at best
)


class Pattern(Protocol):
    """A compiled pattern. Texts are UTF-8, which spares the library a conversion of offsets."""

    def fullmatch(self, text: bytes) -> object | None: ...

    def search(self, text: bytes) -> object | None: ...

    @property
    def programsize(self) -> int: ...


def compile_pattern(text: str) -> Pattern:
    """The pattern, ready for use; a `ValueError` says why it cannot be."""
    import re2

    pattern = text.encode()
    if len(pattern) > MAX_PATTERN_BYTES:
        raise ValueError(f"longer than {MAX_PATTERN_BYTES} bytes")
    try:
        compiled: Pattern = re2.compile(pattern, _options())
    except re2.error as fault:
        raise ValueError(fault.args[0].decode(errors="replace")) from None
    if compiled.programsize > _MAX_PROGRAM:
        raise ValueError(f"too complex: {compiled.programsize} steps, {_MAX_PROGRAM} are allowed")
    return compiled


def _options() -> object:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_COMPILED_BYTES
    options.never_capture = True
    return options


def quote_pattern(text: str) -> str:
    """The pattern that finds this text and nothing else."""
    import re2

    quoted: str = re2.escape(text)
    return quoted


# ── patterns of names ───────────────────────────────────────────────────────────────────────────


def name_finder(text: str) -> Callable[[str], bool]:
    """Answers whether the pattern finds something in a name; a `ValueError` says why it is none.

    Names are often excluded by looking ahead, as in `^(?!amq\\.).*`, and that RE2 cannot do. Right
    behind `^` it need not: what is looked for is a pattern of its own at the beginning of the name.
    """
    ahead, rest = _split_lookaheads(text)
    search = compile_pattern(rest).search
    if not ahead:
        return lambda name: search(name.encode()) is not None
    if any(depth == 0 and sign == "|" for _, sign, depth in _structure(rest)):
        raise ValueError("a look ahead beside | is not supported; put brackets around the choice")
    searches = [(compile_pattern(f"^(?:{part})").search, wanted) for part, wanted in ahead]

    def finds(name: str) -> bool:
        octets = name.encode()
        return search(octets) is not None and all(
            (look(octets) is not None) is wanted for look, wanted in searches
        )

    return finds


def _split_lookaheads(text: str) -> tuple[list[tuple[str, bool]], str]:
    """What `^` is followed by that looks ahead, each with whether it is wanted, and the pattern without."""
    found = []
    while text.startswith(("^(?!", "^(?=")):
        end = next((at for at, sign, depth in _structure(text) if sign == ")" and not depth), None)
        if end is None:
            raise ValueError("missing )")
        found.append((text[4:end], text[3] == "="))
        text = "^" + text[end + 1 :]
    if found and text[1:2] in ("*", "+", "?", "{"):
        raise ValueError("a look ahead cannot be repeated")
    return found, text


def _structure(pattern: str) -> Iterator[tuple[int, str, int]]:
    """The brackets and bars that are meant as such: where, which, and how deep it stands.

    Neither those behind a backslash nor those in a class such as `[(|]` or `[]()]` are.
    """
    at = depth = 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif sign == "[":
            at = _end_of_class(pattern, at)
        elif sign == "(":
            yield at, sign, depth
            depth += 1
        elif sign == ")":
            depth -= 1
            yield at, sign, depth
        elif sign == "|":
            yield at, sign, depth
        at += 1


def _end_of_class(pattern: str, at: int) -> int:
    at += 2 if pattern.startswith("^", at + 1) else 1
    at += pattern.startswith("]", at)
    while at < len(pattern) and pattern[at] != "]":
        if pattern.startswith("[:", at):  # as in [[:alpha:]]
            at = max(at, pattern.find(":]", at + 2) + 1)
        at += 2 if pattern[at] == "\\" else 1
    return at


class _Entry(Generic[T]):
    """A pattern, and the bindings that have it."""

    __slots__ = ("bindings", "group", "single", "steps", "text")

    def __init__(self, text: str, single: Pattern) -> None:
        self.text = text
        self.single = single
        self.steps = single.programsize
        self.bindings: dict[Binding[T], None] = {}
        self.group: _Group[T] | None = None  # None: it is matched singly


class _Group(Generic[T]):
    """Patterns that are matched together."""

    __slots__ = ("_set", "entries", "live_steps", "steps")

    def __init__(self, entries: list[_Entry[T]]) -> None:
        import re2

        self.entries: list[_Entry[T] | None] = list(
            entries
        )  # as numbered by the set; None: removed
        self.steps = self.live_steps = sum(entry.steps for entry in entries)
        self._set = re2.Set.FullMatchSet(_options())
        for entry in entries:
            entry.group = self
            self._set.Add(entry.text.encode())
        self._set.Compile()

    def match(self, key: bytes) -> Iterator[_Entry[T]]:
        for number in self._set.Match(key) or ():
            entry = self.entries[number]
            if entry is not None:
                yield entry

    def remove(self, entry: _Entry[T]) -> None:
        self.entries[self.entries.index(entry)] = None
        self.live_steps -= entry.steps


class PatternMatcher(Generic[T]):
    """The bindings of a regex exchange; those with the same pattern share it."""

    __slots__ = ("_entries", "_groups", "_singles", "_singles_steps", "_steps")

    by_key = True
    add_units = 128  # to compile a pattern, and now and then a set

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[T]] = {}
        self._groups: dict[_Group[T], None] = {}
        self._singles: dict[_Entry[T], None] = {}
        self._singles_steps = 0
        self._steps = 0  # of all patterns together, which a key may have to go through

    def add(self, binding: Binding[T]) -> None:
        text = binding.routing_key
        if text not in self._entries:
            try:
                pattern = compile_pattern(text)
            except ValueError as fault:
                raise PreconditionFailed(f"invalid pattern '{text}': {fault}") from None
            if self._steps + pattern.programsize > _MAX_STEPS:
                raise PreconditionFailed("the patterns of this exchange are too complex together")
            entry = self._entries[text] = _Entry(text, pattern)
            self._steps += entry.steps
            self._match_singly(entry)
        self._entries[text].bindings[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        entry = self._entries[binding.routing_key]
        del entry.bindings[binding]
        if entry.bindings:
            return
        del self._entries[entry.text]
        self._steps -= entry.steps
        group = entry.group
        if group is None:
            del self._singles[entry]
            self._singles_steps -= entry.steps
            return
        group.remove(entry)
        if group.live_steps <= group.steps // 2:
            del self._groups[group]
            for other in filter(None, group.entries):
                other.group = None
                self._match_singly(other)

    def _match_singly(self, entry: _Entry[T]) -> None:
        """Until there are enough to make a set of them."""
        if self._singles_steps + entry.steps > _SET_PROGRAM and self._singles:
            self._groups[_Group(list(self._singles))] = None
            self._singles.clear()
            self._singles_steps = 0
        self._singles[entry] = None
        self._singles_steps += entry.steps

    def search(self, key: str, headers: Table, found: dict[Binding[T], None]) -> Steps[None]:
        text = key.encode()
        # Both as they are now: a pattern that moves from one to the other meanwhile is not missed.
        groups, singles = list(self._groups), list(self._singles)
        for group in groups:
            for entry in group.match(text):
                yield from collect(entry.bindings, found)
            yield _worst_units(group.steps, text)
        for entry in singles:
            if entry.single.fullmatch(text) is not None:
                yield from collect(entry.bindings, found)
            yield _worst_units(entry.steps, text)


def _worst_units(steps: int, text: bytes) -> int:
    return 1 + steps * len(text) // _WORST_PER_UNIT
