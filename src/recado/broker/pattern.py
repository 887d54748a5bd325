"""Regular expressions, in a language whose matching time is linear: google-re2, never `re`.

Three places use them: the regex exchange, whose bindings have a pattern that the whole routing key
must match, permissions and policies. All let a stranger's pattern meet a stranger's text, and an engine
that backtracks would let the two stop the broker. The library is imported when the first pattern is
compiled: most brokers never need one, and all want to start quickly.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from recado.amqp.errors import PreconditionFailed
from recado.amqp.values import Table

from .binding import Binding

T = TypeVar("T")

MAX_PATTERN_BYTES: Final = 1_024
_MAX_COMPILED_BYTES: Final = 1 << 20
_MAX_STEPS: Final = 100_000  # in one exchange: 5,000 patterns of the usual kind
_MAX_PROGRAM: Final = 2_000  # instructions: a match takes two milliseconds at the very most


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
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_COMPILED_BYTES
    options.never_capture = True
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as fault:
        raise ValueError(fault.args[0].decode(errors="replace")) from None
    if compiled.programsize > _MAX_PROGRAM:
        raise ValueError(f"too complex: {compiled.programsize} steps, {_MAX_PROGRAM} are allowed")
    return compiled


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


class PatternMatcher(Generic[T]):
    """The bindings of a regex exchange; those with the same pattern share it."""

    __slots__ = ("_by_pattern", "_steps")

    def __init__(self) -> None:
        self._steps = 0  # of all patterns together, which a key may have to go through
        self._by_pattern: dict[str, tuple[Pattern, dict[Binding[T], None]]] = {}

    def add(self, binding: Binding[T]) -> None:
        text = binding.routing_key
        if text not in self._by_pattern:
            try:
                pattern = compile_pattern(text)
            except ValueError as fault:
                raise PreconditionFailed(f"invalid pattern '{text}': {fault}") from None
            if self._steps + pattern.programsize > _MAX_STEPS:
                raise PreconditionFailed("the patterns of this exchange are too complex together")
            self._steps += pattern.programsize
            self._by_pattern[text] = pattern, {}
        self._by_pattern[text][1][binding] = None

    def remove(self, binding: Binding[T]) -> None:
        pattern, bindings = self._by_pattern[binding.routing_key]
        del bindings[binding]
        if not bindings:
            self._steps -= pattern.programsize
            del self._by_pattern[binding.routing_key]

    def match(self, key: str, headers: Table) -> list[Binding[T]]:
        text = key.encode()
        return [
            binding
            for pattern, bindings in self._by_pattern.values()
            if pattern.fullmatch(text) is not None
            for binding in bindings
        ]
