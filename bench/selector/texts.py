"""A random text, half of them selectors with an error, and the checks of its compilation.

SX1  It compiles, or is refused with a `SelectorError` that has a position in it; nothing else is raised.
SX2  The compiled function reads attributes of a message that are fields, calls functions of the package, and
     does nothing that an audit hook sees: no import, no file, no process, no code.
SX3  It returns True or False for any message, and can be translated to Spark SQL.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import FrameType
from typing import Any, Final

from recado.selector import Selector, SelectorError, compile_predicate, parse, to_spark_sql
from recado.selector.fields import FIELD_TYPES

HANG: Final = 10  # seconds

NUMBERS = (
    "0",
    "1",
    "5",
    "1.5",
    ".5",
    "1e3",
    "1e308",
    "1e-320",
    "9007199254740993",
    "0x1f",
    "1e999",
    "9" * 50,
)
TEXTS = (
    "",
    "a",
    "carro",
    "%",
    "_",
    "a%b_",
    "%a_b%",
    "é",
    "😀",
    "''",
    "\\",
    "\n",
    "__import__",
    "%" * 40,
    "_" * 60,
)
NAMES = ("a", "b", "__class__", "x_y", '"x-y"', '"é"', '"__globals__"', "AND", '""', '"', "a.b.c")
WORDS = (
    *("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"),
    *(
        "and",
        "Or",
        "lambda",
        "import",
        "m",
        "k1",
        "v1",
        "unread",
        "SELECT",
        "DROP TABLE",
        "/*",
        "--",
        ";",
    ),
    *(
        "(",
        ")",
        ",",
        ".",
        "+",
        "-",
        "*",
        "/",
        "=",
        "<>",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "**",
        "'",
        '"',
        "`",
        "${",
    ),
)
NASTY = (
    "__import__('os').system('true')",
    "().__class__.__bases__[0].__subclasses__()",
    "9**9**9 > 1",
    "[x for x in (1,)]",
    "'; DROP TABLE x; --",
    "headers.__class__.__mro__ IS NULL",
    "body LIKE '%" + "a_" * 900 + "b%'",
    "body LIKE '" + "%a" * 900 + "'",
    "(" * 1000,
    "NOT " * 400 + "TRUE",
    "- " * 800 + "1 = 1",
    "1" + "+1" * 500 + " > 1",
    "offset IN (" + ",".join("1" * 300) + ")",
    "json" + ".a" * 500 + " = 1",
    "TRUE" + " AND TRUE" * 200,
    "'" + "'" * 1999,
)


class Texts:
    """Texts from a seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = Random(seed)

    def _pick(self, choices: Sequence[str]) -> str:
        return self._random.choice(choices)

    def make(self) -> str:
        kind = self._random.randrange(20)
        if kind < 8:
            return self._condition(3)
        if kind < 14:
            return self._broken(self._condition(3))
        if kind < 17:
            return " ".join(
                self._pick(WORDS + NUMBERS) for _ in range(self._random.randrange(1, 40))
            )
        if kind < 19:
            numbers = (self._random.choice((0x7F, 0x7FF, 0xFFFF, 0x10FFFF)) for _ in range(20))
            return "".join(chr(self._random.randrange(number)) for number in numbers)
        return self._broken(self._pick(NASTY)) if self._random.random() < 0.5 else self._pick(NASTY)

    def _condition(self, depth: int) -> str:
        if depth and self._random.random() < 0.5:
            left, right = self._condition(depth - 1), self._condition(depth - 1)
            return self._pick(
                (f"{left} AND {right}", f"{left} OR {right}", f"NOT ({left})", f"({left})")
            )
        denied = self._pick(("", "NOT "))
        kind = self._random.randrange(6)
        if kind == 0:
            return f"{self._text()} {self._sign()} {self._text()}"
        if kind == 1:
            return f"{self._number(2)} {self._sign()} {self._number(2)}"
        if kind == 2:
            choices = ", ".join(self._quoted() for _ in range(self._random.randrange(1, 5)))
            return f"{self._text()} {denied}IN ({choices})"
        if kind == 3:
            return f"{self._text()} {denied}LIKE {self._quoted()}"
        if kind == 4:
            return f"{self._number(1)} {denied}BETWEEN {self._number(1)} AND {self._number(1)}"
        return f"{self._member()} IS {denied}NULL"

    def _sign(self) -> str:
        return self._pick(("=", "<>", "<", "<=", ">", ">="))

    def _quoted(self) -> str:
        return "'" + self._pick(TEXTS) + "'"

    def _member(self) -> str:
        return f"{self._pick(('headers', 'json'))}.{self._pick(NAMES)}"

    def _text(self) -> str:
        fields = ("type", "key", "exchange", "message_id", "body", "publisher")
        return str(self._pick((self._pick(fields), self._member(), self._quoted())))

    def _number(self, depth: int) -> str:
        if depth and self._random.random() < 0.3:
            return f"({self._number(depth - 1)} {self._pick('+-*')} {self._number(depth - 1)})"
        fields = ("priority", "timestamp", "sequence", "offset")
        return str(
            self._pick(
                (self._pick(fields), self._member(), self._pick(NUMBERS), f"-{self._pick(NUMBERS)}")
            )
        )

    def _broken(self, text: str) -> str:
        for _ in range(self._random.randrange(1, 4)):
            at = self._random.randrange(len(text) + 1)
            end = min(len(text), at + self._random.randrange(1, 8))
            put = self._pick(
                (
                    "",
                    self._pick(WORDS),
                    self._pick(NAMES),
                    chr(self._random.randrange(0x300)),
                    text[:99],
                )
            )
            text = text[:at] + put + text[end if self._random.random() < 0.5 else at :]
        return text


# ── what becomes of it ──────────────────────────────────────────────────────────────────────────


class Message:
    """Each field of its kind, or None."""

    def __init__(
        self,
        number: float | None,
        text: str | None,
        headers: dict[str, Any] | None,
        body: bytes | None,
    ):
        for name, kind in FIELD_TYPES.items():
            setattr(self, name, text if kind.value == "a text" else number)
        self.headers = headers
        self.body = body


MESSAGES: Final = (
    Message(None, None, None, None),
    Message(5, "a", {"a": 1, "b": "carro", "x-y": True}, b'{"a": {"b": 1.5}, "x_y": "a"}'),
    Message(float("inf"), "é😀%_", {"a": float("nan"), "b": [1]}, b"\xff"),
    Message(-1, "_a_b%", {"b": 10**400}, '{"a": 1e400, "b": "a_é😀b"}'.encode()),
    Message(2**64, "a" * 3000, {"__class__": None, "é": {}}, b"a" * 3000),
)
COLUMNS: Final = dict.fromkeys((*FIELD_TYPES, "headers"), "c")
# The names allowed in the function: its constants and variables are numbered.
CALLED: Final = {*FIELD_TYPES, "headers", "get", "startswith", "endswith", "float", "unread"}


@dataclass(frozen=True)
class Outcome:
    text: str
    understood: bool
    seconds: float
    """Of the processor."""
    fault: str | None = None


def try_one(text: str) -> Outcome:
    begun = time.process_time()
    understood, fault = False, None
    try:
        with _time_limit():
            try:
                selector = parse(text)
            except SelectorError as error:
                fault = _misplaced(error, text)
            else:
                understood = True
                fault = _escape(selector)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault (F1)
        fault = f"{type(error).__name__}: {error}"
    return Outcome(text, understood, time.process_time() - begun, fault)


def _misplaced(error: SelectorError, text: str) -> str | None:
    lines = text.split("\n")
    if 1 <= error.line <= len(lines) and 1 <= error.column <= len(lines[error.line - 1]) + 1:
        return None
    return f"no such place: {error.summary}"


def _escape(selector: Selector) -> str | None:
    wants = compile_predicate(selector)
    code: Any = wants.__code__
    strange = {name for name in code.co_names if name not in CALLED and not name[1:].isdigit()}
    if strange or any(not isinstance(each, bool | None) for each in code.co_consts):
        return f"the function has {strange or code.co_consts}"
    with _audited() as events:
        answers = [wants(message) for message in MESSAGES]
    if events or any(not isinstance(answer, bool) for answer in answers):
        return f"asked, it did {events} and answered {answers}"
    to_spark_sql(selector, COLUMNS)
    return None


class HangError(Exception):
    """The text took longer than any may."""


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise HangError(f"longer than {HANG} s")

    before = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)  # a test may have a limit of its own


_heard: list[str] | None = None
_listening = False


def _listen(event: str, arguments: object) -> None:
    if _heard is not None:
        _heard.append(event)


@contextmanager
def _audited() -> Iterator[list[str]]:
    """Yield the audit events meanwhile. A hook cannot be removed, so there is one."""
    global _heard, _listening
    if not _listening:
        sys.addaudithook(_listen)
        _listening = True
    events: list[str] = []
    _heard = events
    try:
        yield events
    finally:
        _heard = None
