"""Regular expressions with linear matching time: google-re2, never `re`.

They are used by the regex exchange, whose binding keys must match the whole routing key, by permissions and
by policies. In all three a client's pattern meets another client's text, and a backtracking engine would
let the two block the broker. The library is imported when the first pattern is compiled: most brokers never
need it, and the import would slow down every start.

A regex exchange matches its patterns in sets (`re2.Set`), which find all matches in one pass over the key:
4,500 patterns take 0.03 ms, one by one 8 ms. A set is immutable, so new patterns are matched singly until
there are enough of them for a set, and a set that has lost half of its patterns is dissolved. Sets are
small for two reasons. Compiling one is part of a bind and must be fast. Matching must be fast even in the
worst case, when the engine builds a new state for every byte of the key. A match is charged for that worst
case.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable

from .binding import Binding, collect
from .steps import Steps

T = TypeVar("T")

MAX_PATTERN_BYTES: Final = 1_024
_MAX_COMPILED_BYTES: Final = 1 << 20
_EXCHANGE_INSTRUCTIONS_MAX: Final = 100_000  # in one exchange: 5,000 typical patterns
_PATTERN_INSTRUCTIONS_MAX: Final = 2_000  # a match takes at most 2 ms
_SET_INSTRUCTIONS_MAX: Final = 1_000  # make a set: 50 typical patterns, compiled in 0.3 ms
# Instructions × bytes of the key: at worst 5 ns each, typically almost nothing.
_MATCH_STEPS_PER_UNIT: Final = 1_000


class CompiledPattern(Protocol):
    """A compiled pattern. Texts are UTF-8 bytes, which saves the library a conversion of offsets."""

    def fullmatch(self, text: bytes) -> object | None: ...

    def search(self, text: bytes) -> object | None: ...

    @property
    def programsize(self) -> int: ...


def compile_pattern(text: str) -> CompiledPattern:
    """Compile a pattern. Raises `ValueError` with the reason if it is invalid or too complex."""
    import re2

    pattern = text.encode()
    if len(pattern) > MAX_PATTERN_BYTES:
        raise ValueError(f"longer than {MAX_PATTERN_BYTES} bytes")
    try:
        compiled: CompiledPattern = re2.compile(pattern, _options())
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace")) from None
    if compiled.programsize > _PATTERN_INSTRUCTIONS_MAX:
        raise ValueError(
            f"too complex: {compiled.programsize} instructions, at most {_PATTERN_INSTRUCTIONS_MAX} are allowed"
        )
    return compiled


def _options() -> object:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_COMPILED_BYTES
    options.never_capture = True
    return options


def escape_pattern(text: str) -> str:
    """Return the pattern that matches this text only."""
    import re2

    quoted: str = re2.escape(text)
    return quoted


# ── patterns of names ───────────────────────────────────────────────────────────────────────────


def compile_name_pattern(text: str) -> Callable[[str], bool]:
    """Return a function that tells whether the pattern matches anywhere in a name.

    Names are often excluded by a negative lookahead, as in `^(?!amq\\.).*`, which RE2 does not support.
    Directly after `^` it can be emulated: the lookahead is compiled as a pattern of its own that must or
    must not match the start of the name. Raises `ValueError` with the reason if the pattern is invalid.
    """
    lookaheads, remainder = _split_lookaheads(text)
    search = compile_pattern(remainder).search
    if not lookaheads:
        return lambda name: search(name.encode()) is not None
    if any(depth == 0 and character == "|" for _, character, depth in _scan_brackets(remainder)):
        raise ValueError("a lookahead beside | is not supported; put the alternatives in brackets")
    searches = [
        (compile_pattern(f"^(?:{part})").search, must_match) for part, must_match in lookaheads
    ]

    def matches(name: str) -> bool:
        encoded = name.encode()
        return search(encoded) is not None and all(
            (search_start(encoded) is not None) is must_match
            for search_start, must_match in searches
        )

    return matches


def _split_lookaheads(text: str) -> tuple[list[tuple[str, bool]], str]:
    """Split off the lookaheads after `^`.

    Returns them, each with whether it must match, and the remaining pattern.
    """
    lookaheads = []
    while text.startswith(("^(?!", "^(?=")):
        end = next(
            (
                index
                for index, character, depth in _scan_brackets(text)
                if character == ")" and not depth
            ),
            None,
        )
        if end is None:
            raise ValueError("missing )")
        lookaheads.append((text[4:end], text[3] == "="))
        text = "^" + text[end + 1 :]
    if lookaheads and text[1:2] in ("*", "+", "?", "{"):
        raise ValueError("a lookahead cannot be repeated")
    return lookaheads, text


def _scan_brackets(pattern: str) -> Iterator[tuple[int, str, int]]:
    """Iterate over the brackets and bars that are operators: index, character, nesting depth.

    Escaped ones are skipped, and those in a character class such as `[(|]` or `[]()]`.
    """
    index = depth = 0
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            index += 1
        elif character == "[":
            index = _find_class_end(pattern, index)
        elif character == "(":
            yield index, character, depth
            depth += 1
        elif character == ")":
            depth -= 1
            yield index, character, depth
        elif character == "|":
            yield index, character, depth
        index += 1


def _find_class_end(pattern: str, index: int) -> int:
    index += 2 if pattern.startswith("^", index + 1) else 1
    index += pattern.startswith("]", index)
    while index < len(pattern) and pattern[index] != "]":
        if pattern.startswith("[:", index):  # as in [[:alpha:]]
            index = max(index, pattern.find(":]", index + 2) + 1)
        index += 2 if pattern[index] == "\\" else 1
    return index


class _PatternEntry(Generic[T]):
    """A pattern, and the bindings that have it."""

    __slots__ = ("bindings", "compiled", "instructions", "pattern_set", "text")

    def __init__(self, text: str, single: CompiledPattern) -> None:
        self.text = text
        self.compiled = single
        self.instructions = single.programsize
        self.bindings: dict[Binding[T], None] = {}
        self.pattern_set: _PatternSet[T] | None = None  # None: matched singly


class _PatternSet(Generic[T]):
    """Patterns that are matched together."""

    __slots__ = ("_set", "entries", "instructions", "live_instructions")

    def __init__(self, entries: list[_PatternEntry[T]]) -> None:
        import re2

        # In the order of the set; None: removed.
        self.entries: list[_PatternEntry[T] | None] = list(entries)
        self.instructions = self.live_instructions = sum(entry.instructions for entry in entries)
        self._set = re2.Set.FullMatchSet(_options())
        for entry in entries:
            entry.pattern_set = self
            self._set.Add(entry.text.encode())
        self._set.Compile()

    def match(self, key: bytes) -> Iterator[_PatternEntry[T]]:
        for number in self._set.Match(key) or ():
            entry = self.entries[number]
            if entry is not None:
                yield entry

    def remove(self, entry: _PatternEntry[T]) -> None:
        self.entries[self.entries.index(entry)] = None
        self.live_instructions -= entry.instructions


class PatternMatcher(Generic[T]):
    """The bindings of a regex exchange; equal patterns are compiled once."""

    __slots__ = ("_entries", "_instructions", "_sets", "_single_instructions", "_singles")

    uses_key = True
    add_cost = 128  # to compile a pattern, and sometimes a set

    def __init__(self) -> None:
        self._entries: dict[str, _PatternEntry[T]] = {}
        self._sets: dict[_PatternSet[T], None] = {}
        self._singles: dict[_PatternEntry[T], None] = {}
        self._single_instructions = 0
        self._instructions = 0  # of all patterns

    def add(self, binding: Binding[T]) -> None:
        text = binding.routing_key
        if text not in self._entries:
            try:
                pattern = compile_pattern(text)
            except ValueError as error:
                raise PreconditionFailedError(f"invalid pattern '{text}': {error}") from None
            if self._instructions + pattern.programsize > _EXCHANGE_INSTRUCTIONS_MAX:
                raise PreconditionFailedError(
                    "the patterns of this exchange are too complex in total"
                )
            entry = self._entries[text] = _PatternEntry(text, pattern)
            self._instructions += entry.instructions
            self._add_single(entry)
        self._entries[text].bindings[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        entry = self._entries[binding.routing_key]
        del entry.bindings[binding]
        if entry.bindings:
            return
        del self._entries[entry.text]
        self._instructions -= entry.instructions
        group = entry.pattern_set
        if group is None:
            del self._singles[entry]
            self._single_instructions -= entry.instructions
            return
        group.remove(entry)
        if group.live_instructions <= group.instructions // 2:
            del self._sets[group]
            for other in filter(None, group.entries):
                other.pattern_set = None
                self._add_single(other)

    def _add_single(self, entry: _PatternEntry[T]) -> None:
        """Match a pattern singly; if there are enough single ones, compile a set of them first."""
        if self._single_instructions + entry.instructions > _SET_INSTRUCTIONS_MAX and self._singles:
            self._sets[_PatternSet(list(self._singles))] = None
            self._singles.clear()
            self._single_instructions = 0
        self._singles[entry] = None
        self._single_instructions += entry.instructions

    def search(self, key: str, headers: FieldTable, found: dict[Binding[T], None]) -> Steps[None]:
        text = key.encode()
        # Copies, so that a pattern that moves from one to the other between two steps is not missed.
        groups, singles = list(self._sets), list(self._singles)
        for group in groups:
            for entry in group.match(text):
                yield from collect(entry.bindings, found)
            yield _worst_case_cost(group.instructions, text)
        for entry in singles:
            if entry.compiled.fullmatch(text) is not None:
                yield from collect(entry.bindings, found)
            yield _worst_case_cost(entry.instructions, text)


def _worst_case_cost(instructions: int, text: bytes) -> int:
    return 1 + instructions * len(text) // _MATCH_STEPS_PER_UNIT
