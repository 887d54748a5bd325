"""Tokens to a checked tree, by recursive descent.

    condition  = conjunction { OR conjunction }
    conjunction = denial { AND denial }
    denial     = NOT denial | relation
    relation   = sum [ comparison sum | [NOT] IN "(" constant { "," constant } ")"
                     | [NOT] BETWEEN sum AND sum | [NOT] LIKE text [ESCAPE text] | IS [NOT] NULL ]
    comparison = "=" | "<>" | "!=" | "<" | "<=" | ">" | ">="
    sum        = product { ("+" | "-") product }
    product    = factor { "*" factor }
    factor     = "-" factor | number | text | TRUE | FALSE | field | "(" condition ")"
    field      = name | ("headers" | "json") "." name { "." name }

A bracket may hold a condition or a value; which of them is wanted is known only behind it. So one descent reads
both, and whoever needs one of them says so when it gets the other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn, TypeVar

from .errors import SelectorError
from .fields import ALIASES, FIELDS, HEADERS, JSON, unknown
from .operands import WrongKind, alike, as_kind, asserted, compared, computed, settled
from .pattern import BadPattern, read_pattern
from .tokens import Sort, Token, tokens
from .tree import (
    Arithmetic,
    Condition,
    Constant,
    Every,
    Field,
    In,
    IsNull,
    Kind,
    Like,
    Member,
    Negative,
    Operator,
    Selector,
    Sign,
    Some,
    Value,
    denied,
)

MAX_NODES: Final = 64
MAX_DEPTH: Final = 16
MAX_CHOICES: Final = 256

_VALUES: Final = (Constant, Field, Member, Arithmetic, Negative)
_SIGNS: Final[dict[str, Sign]] = {
    "=": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}

T = TypeVar("T")


def parse(text: str, fields: frozenset[str] = frozenset((*FIELDS, HEADERS, JSON))) -> Selector:
    """The selector that a text stands for, or a `SelectorError` that says what is wrong and where.

    `fields` are those that there are: a selector that names another is refused.
    """
    return _Parser(text, fields).selector()


class _Parser:
    def __init__(self, text: str, fields: frozenset[str]) -> None:
        self._text = text
        self._fields = fields
        self._tokens = iter(tokens(text))
        self._token = next(self._tokens)
        self._nodes = 0
        self._depth = 0

    def selector(self) -> Selector:
        condition = self._conditional(self._condition)
        self._need(Sort.END, "", "AND, OR or the end")
        return Selector(self._text, settled(condition))

    # ── conditions ────────────────────────────────────────────────────────────────────────────────────

    def _condition(self) -> Condition | Value:
        return self._chain("OR", self._conjunction, Some)

    def _conjunction(self) -> Condition | Value:
        return self._chain("AND", self._denial, Every)

    def _chain(
        self,
        word: str,
        part: Callable[[], Condition | Value],
        join: Callable[[tuple[Condition, ...]], Condition],
    ) -> Condition | Value:
        first = part()
        if not self._sees(Sort.WORD, word):
            return first
        parts = [self._asserted(first)]
        while self._takes(Sort.WORD, word):
            self._count()
            parts.append(self._conditional(part))
        return join(tuple(parts))

    def _denial(self) -> Condition | Value:
        if not self._sees(Sort.WORD, "NOT"):
            return self._relation()
        with self._deeper():
            self._next()
            self._count()
            return denied(self._conditional(self._denial))

    def _relation(self) -> Condition | Value:
        at = self._token.at
        left = self._sum()
        token = self._token
        if token.sort is Sort.SIGN and token.value in _SIGNS:
            left = self._valued(left, at)
            self._next()
            right = self._operand()
            self._count()
            return self._checked(compared, _SIGNS[token.value], left, right)
        if token.sort is not Sort.WORD or token.value not in ("NOT", "IN", "BETWEEN", "LIKE", "IS"):
            return left
        value = self._valued(left, at)
        self._count()
        if self._takes(Sort.WORD, "IS"):
            wanted = not self._takes(Sort.WORD, "NOT")
            self._need(Sort.WORD, "NULL", "NULL or NOT NULL")
            return IsNull(value, wanted)
        wanted = not self._takes(Sort.WORD, "NOT")
        if self._takes(Sort.WORD, "IN"):
            return self._choice(value, wanted)
        if self._takes(Sort.WORD, "BETWEEN"):
            return self._range(value, wanted)
        if self._takes(Sort.WORD, "LIKE"):
            return self._likeness(value, wanted)
        return self._expected("IN, BETWEEN or LIKE")

    def _choice(self, value: Value, wanted: bool) -> Condition:
        self._need(Sort.SIGN, "(", "( and a list of constants")
        choices = [self._constant()]
        while self._takes(Sort.SIGN, ","):
            if len(choices) == MAX_CHOICES:
                self._fail(f"a list has at most {MAX_CHOICES} choices")
            choices.append(self._constant())
        self._need(Sort.SIGN, ")", ", or )")
        value = self._checked(alike, value, *choices)[0]
        numbers = tuple(each.value for each in choices if isinstance(each.value, float))
        texts = tuple(each.value for each in choices if isinstance(each.value, str))
        return In(value, texts or numbers, wanted)

    def _range(self, value: Value, wanted: bool) -> Condition:
        low = self._operand()
        self._need(Sort.WORD, "AND", "AND and the upper limit")
        high = self._operand()
        value, low, high = self._checked(alike, value, low, high)
        within = Every(
            (self._checked(compared, ">=", value, low), self._checked(compared, "<=", value, high))
        )
        return within if wanted else denied(within)

    def _likeness(self, value: Value, wanted: bool) -> Condition:
        pattern = self._token
        if pattern.sort is not Sort.TEXT:
            self._expected("a pattern, as in '%carro%'")
        self._next()
        escape = None
        if self._takes(Sort.WORD, "ESCAPE"):
            token = self._token
            if token.sort is not Sort.TEXT or len(token.value) != 1 or token.value in "%_":
                self._fail("expected one character as the escape, and neither % nor _", token)
            self._next()
            escape = token.value
        value = self._checked(as_kind, value, Kind.TEXT)
        try:
            return Like(value, read_pattern(pattern.value, escape), wanted)
        except BadPattern as error:
            self._fail(f"{error} in this pattern", pattern)

    # ── values ────────────────────────────────────────────────────────────────────────────────────────

    def _operand(self) -> Value:
        at = self._token.at
        return self._valued(self._sum(), at)

    def _sum(self) -> Condition | Value:
        return self._computed({"+": "+", "-": "-"}, self._product)

    def _product(self) -> Condition | Value:
        return self._computed({"*": "*"}, self._factor)

    def _computed(
        self, signs: dict[str, Operator], part: Callable[[], Condition | Value]
    ) -> Condition | Value:
        at = self._token.at
        left = part()
        while self._token.sort is Sort.SIGN and self._token.value in signs:
            sign = self._token
            left = self._valued(left, at)
            self._next()
            self._count()
            behind = self._token.at
            right = self._valued(part(), behind)
            left = self._checked(computed, signs[sign.value], left, right, sign.at)
        return left

    def _factor(self) -> Condition | Value:
        token = self._token
        match token.sort, token.value:
            case (Sort.NUMBER | Sort.TEXT, _) | (Sort.WORD, "TRUE" | "FALSE"):
                return self._literal()
            case Sort.NAME, _:
                return self._field()
            case Sort.SIGN, "-":
                with self._deeper():
                    self._next()
                    self._count()
                    value = self._checked(as_kind, self._signed(), Kind.NUMBER)
                return Negative(value, token.at)
            case Sort.SIGN, "(":
                with self._deeper():
                    self._next()
                    inside = self._condition()
                    self._need(Sort.SIGN, ")", "an operator or )")
                return inside
            case Sort.WORD, "NULL":
                return self._fail("nothing equals NULL: write IS NULL or IS NOT NULL")
            case Sort.QUOTED, _:
                return self._expected(
                    f"a value (a text is in single quotes, a header headers.{token})"
                )
            case _:
                return self._expected("a value")

    def _signed(self) -> Value:
        at = self._token.at
        return self._valued(self._factor(), at)

    def _literal(self) -> Constant:
        token = self._next()
        self._count()
        match token.sort:
            case Sort.NUMBER:
                number = float(token.value)
                if number == float("inf"):
                    self._fail("this number is too large for a double", token)
                return Constant(number, token.at)
            case Sort.WORD:
                return Constant(token.value == "TRUE", token.at)
            case _:
                return Constant(token.value, token.at)

    def _constant(self) -> Constant:
        """A choice of a list: a number, which may be negative, or a text."""
        negative = self._takes(Sort.SIGN, "-")
        token = self._token
        if token.sort is not Sort.NUMBER and (negative or token.sort is not Sort.TEXT):
            self._expected("a number" if negative else "a number or a text")
        constant = self._literal()
        self._nodes -= 1  # lists have a limit of their own
        if negative:
            assert isinstance(constant.value, float)
            return Constant(-constant.value, constant.at)
        return constant

    def _field(self) -> Value:
        token = self._next()
        self._count()
        name = ALIASES.get(token.value, token.value)
        if name not in self._fields:
            self._fail(unknown(name, self._fields), token)
        if name not in (HEADERS, JSON):
            return Field(name, FIELDS[name], token.at)
        path = []
        while self._takes(Sort.SIGN, "."):
            if self._token.sort not in (Sort.NAME, Sort.WORD, Sort.QUOTED):
                self._expected(f'a name behind {name}, as in {name}.colour or {name}."x-colour"')
            step = self._next()
            # A word of the language is a name here, in the case in which it is written.
            path.append(
                self._text[step.at : step.at + len(step.value)]
                if step.sort is Sort.WORD
                else step.value
            )
        if not path:
            self._expected(f'a name behind {name}, as in {name}.colour or {name}."x-colour"')
        if len(path) > MAX_DEPTH:
            self._fail(f"a path has at most {MAX_DEPTH} names", token)
        return Member("headers" if name == HEADERS else "json", tuple(path), Kind.ANY, token.at)

    # ── tokens and limits ─────────────────────────────────────────────────────────────────────────────

    def _next(self) -> Token:
        token = self._token
        self._token = next(self._tokens, token)
        return token

    def _sees(self, sort: Sort, value: str) -> bool:
        return self._token.sort is sort and self._token.value == value

    def _takes(self, sort: Sort, value: str) -> bool:
        if self._sees(sort, value):
            self._next()
            return True
        return False

    def _need(self, sort: Sort, value: str, expected: str) -> None:
        if not self._takes(sort, value):
            self._expected(expected)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._fail(f"a selector has at most {MAX_NODES} values and operators")

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        if self._depth == MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        yield
        self._depth -= 1

    # ── what is wrong ─────────────────────────────────────────────────────────────────────────────────

    def _conditional(self, part: Callable[[], Condition | Value]) -> Condition:
        return self._asserted(part())

    def _asserted(self, found: Condition | Value) -> Condition:
        if isinstance(found, _VALUES):
            return self._checked(asserted, found)
        return found

    def _valued(self, found: Condition | Value, at: int) -> Value:
        if isinstance(found, _VALUES):
            return found
        raise SelectorError(self._text, at, "expected a value, found a condition")

    def _checked(self, check: Callable[..., T], *arguments: object) -> T:
        try:
            return check(*arguments)
        except WrongKind as error:
            raise SelectorError(self._text, error.value.at, str(error)) from None

    def _expected(self, what: str) -> NoReturn:
        self._fail(f"expected {what}, found {self._token}")

    def _fail(self, reason: str, token: Token | None = None) -> NoReturn:
        raise SelectorError(self._text, (token or self._token).at, reason)
