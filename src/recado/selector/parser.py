"""Parse a selector into a type-checked tree, by recursive descent.

    condition  = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation   = NOT negation | relation
    relation   = sum [ comparison sum | [NOT] IN "(" constant { "," constant } ")"
                     | [NOT] BETWEEN sum AND sum | [NOT] LIKE text [ESCAPE text] | IS [NOT] NULL ]
    constant   = ["-"] number | text
    comparison = "=" | "<>" | "!=" | "<" | "<=" | ">" | ">="
    sum        = product { ("+" | "-") product }
    product    = factor { "*" factor }
    factor     = "-" factor | number | text | TRUE | FALSE | field | "(" condition ")"
    field      = name | ("headers" | "json") "." name { "." name }

Parentheses can enclose a condition or a value, and only the token after the closing parenthesis tells which one
is needed. So the same methods parse both, and the caller checks the result (`_require_condition`,
`_require_value`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn, TypeVar

from .errors import SelectorError
from .fields import ALIASES, FIELD_TYPES, HEADERS_FIELD, JSON_FIELD, explain_unknown_field
from .pattern import PatternError, parse_pattern
from .tokenizer import Token, TokenType, tokenize
from .tree import (
    And,
    Arithmetic,
    ArithmeticOperator,
    ComparisonOperator,
    Condition,
    Constant,
    InList,
    IsNull,
    Like,
    MessageField,
    Negate,
    NestedField,
    Or,
    Selector,
    Value,
    ValueType,
    negate,
)
from .type_check import (
    OperandTypeError,
    convert_type,
    expand_untyped_comparisons,
    make_arithmetic,
    make_boolean_test,
    make_comparison,
    unify_types,
)

MAX_NODE_COUNT: Final = 64
MAX_NESTING_LEVEL: Final = 16
MAX_CHOICE_COUNT: Final = 256

_VALUE_CLASSES: Final = (Constant, MessageField, NestedField, Arithmetic, Negate)
_COMPARISON_OPERATORS: Final[dict[str, ComparisonOperator]] = {
    "=": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}

T = TypeVar("T")


def parse(
    text: str, fields: frozenset[str] = frozenset((*FIELD_TYPES, HEADERS_FIELD, JSON_FIELD))
) -> Selector:
    """Parse a selector.

    `fields` are the names that the selector may use; by default all. Raises `SelectorError` with the position
    and the reason if the text is invalid or names another field.
    """
    return _Parser(text, fields).parse_selector()


class _Parser:
    def __init__(self, text: str, fields: frozenset[str]) -> None:
        self._text = text
        self._fields = fields
        self._tokens = iter(tokenize(text))
        self._token = next(self._tokens)
        self._node_count = 0
        self._depth = 0

    def parse_selector(self) -> Selector:
        condition = self._parse_as_condition(self._parse_condition)
        self._expect(TokenType.END, "", "AND, OR or the end")
        return Selector(self._text, expand_untyped_comparisons(condition))

    # ── conditions ────────────────────────────────────────────────────────────────────────────────────

    def _parse_condition(self) -> Condition | Value:
        return self._parse_chain("OR", self._parse_conjunction, Or)

    def _parse_conjunction(self) -> Condition | Value:
        return self._parse_chain("AND", self._parse_negation, And)

    def _parse_chain(
        self,
        word: str,
        part: Callable[[], Condition | Value],
        join: Callable[[tuple[Condition, ...]], Condition],
    ) -> Condition | Value:
        first = part()
        if not self._is_at(TokenType.KEYWORD, word):
            return first
        parts = [self._require_condition(first)]
        while self._accept(TokenType.KEYWORD, word):
            self._count_node()
            parts.append(self._parse_as_condition(part))
        return join(tuple(parts))

    def _parse_negation(self) -> Condition | Value:
        if not self._is_at(TokenType.KEYWORD, "NOT"):
            return self._parse_relation()
        with self._nest():
            self._advance()
            self._count_node()
            return negate(self._parse_as_condition(self._parse_negation))

    def _parse_relation(self) -> Condition | Value:
        at = self._token.offset
        left = self._parse_sum()
        token = self._token
        if token.type is TokenType.SYMBOL and token.value in _COMPARISON_OPERATORS:
            left = self._require_value(left, at)
            self._advance()
            right = self._parse_operand()
            self._count_node()
            return self._check_types(
                make_comparison, _COMPARISON_OPERATORS[token.value], left, right
            )
        if token.type is not TokenType.KEYWORD or token.value not in (
            "NOT",
            "IN",
            "BETWEEN",
            "LIKE",
            "IS",
        ):
            return left
        value = self._require_value(left, at)
        self._count_node()
        if self._accept(TokenType.KEYWORD, "IS"):
            expected = not self._accept(TokenType.KEYWORD, "NOT")
            self._expect(TokenType.KEYWORD, "NULL", "NULL or NOT NULL")
            return IsNull(value, expected)
        expected = not self._accept(TokenType.KEYWORD, "NOT")
        if self._accept(TokenType.KEYWORD, "IN"):
            return self._parse_in_list(value, expected)
        if self._accept(TokenType.KEYWORD, "BETWEEN"):
            return self._parse_between(value, expected)
        if self._accept(TokenType.KEYWORD, "LIKE"):
            return self._parse_like(value, expected)
        return self._fail_expected("IN, BETWEEN or LIKE")

    def _parse_in_list(self, value: Value, expected: bool) -> Condition:
        self._expect(TokenType.SYMBOL, "(", "( and a list of constants")
        choices = [self._parse_list_constant()]
        while self._accept(TokenType.SYMBOL, ","):
            if len(choices) == MAX_CHOICE_COUNT:
                self._fail(f"too many choices: the maximum is {MAX_CHOICE_COUNT}")
            choices.append(self._parse_list_constant())
        self._expect(TokenType.SYMBOL, ")", ", or )")
        value = self._check_types(unify_types, value, *choices)[0]
        numbers = tuple(each.value for each in choices if isinstance(each.value, float))
        texts = tuple(each.value for each in choices if isinstance(each.value, str))
        return InList(value, texts or numbers, expected)

    def _parse_between(self, value: Value, expected: bool) -> Condition:
        low = self._parse_operand()
        self._expect(TokenType.KEYWORD, "AND", "AND and the upper limit")
        high = self._parse_operand()
        value, low, high = self._check_types(unify_types, value, low, high)
        within = And(
            (
                self._check_types(make_comparison, ">=", value, low),
                self._check_types(make_comparison, "<=", value, high),
            )
        )
        return within if expected else negate(within)

    def _parse_like(self, value: Value, expected: bool) -> Condition:
        pattern = self._token
        if pattern.type is not TokenType.TEXT:
            self._fail_expected("a pattern, as in '%carro%'")
        self._advance()
        escape = None
        if self._accept(TokenType.KEYWORD, "ESCAPE"):
            token = self._token
            if token.type is not TokenType.TEXT or len(token.value) != 1 or token.value in "%_":
                self._fail("expected one escape character other than % and _", token)
            self._advance()
            escape = token.value
        value = self._check_types(convert_type, value, ValueType.TEXT)
        try:
            return Like(value, parse_pattern(pattern.value, escape), expected)
        except PatternError as error:
            self._fail(f"invalid pattern: {error}", pattern)

    # ── values ────────────────────────────────────────────────────────────────────────────────────────

    def _parse_operand(self) -> Value:
        at = self._token.offset
        return self._require_value(self._parse_sum(), at)

    def _parse_sum(self) -> Condition | Value:
        return self._parse_arithmetic({"+": "+", "-": "-"}, self._parse_product)

    def _parse_product(self) -> Condition | Value:
        return self._parse_arithmetic({"*": "*"}, self._parse_factor)

    def _parse_arithmetic(
        self, operators: dict[str, ArithmeticOperator], part: Callable[[], Condition | Value]
    ) -> Condition | Value:
        at = self._token.offset
        left = part()
        while self._token.type is TokenType.SYMBOL and self._token.value in operators:
            symbol = self._token
            left = self._require_value(left, at)
            self._advance()
            self._count_node()
            right_offset = self._token.offset
            right = self._require_value(part(), right_offset)
            left = self._check_types(
                make_arithmetic, operators[symbol.value], left, right, symbol.offset
            )
        return left

    def _parse_factor(self) -> Condition | Value:
        token = self._token
        match token.type, token.value:
            case (TokenType.NUMBER | TokenType.TEXT, _) | (TokenType.KEYWORD, "TRUE" | "FALSE"):
                return self._parse_literal()
            case TokenType.NAME, _:
                return self._parse_field()
            case TokenType.SYMBOL, "-":
                with self._nest():
                    self._advance()
                    self._count_node()
                    value = self._check_types(
                        convert_type, self._parse_signed_operand(), ValueType.NUMBER
                    )
                return Negate(value, token.offset)
            case TokenType.SYMBOL, "(":
                with self._nest():
                    self._advance()
                    inside = self._parse_condition()
                    self._expect(TokenType.SYMBOL, ")", "an operator or )")
                return inside
            case TokenType.KEYWORD, "NULL":
                return self._fail(
                    "a comparison with NULL is never true: write IS NULL or IS NOT NULL"
                )
            case TokenType.QUOTED_NAME, _:
                return self._fail_expected(
                    f"a value (write texts in single quotes, a header as headers.{token})"
                )
            case _:
                return self._fail_expected("a value")

    def _parse_signed_operand(self) -> Value:
        at = self._token.offset
        return self._require_value(self._parse_factor(), at)

    def _parse_literal(self) -> Constant:
        token = self._advance()
        self._count_node()
        match token.type:
            case TokenType.NUMBER:
                number = float(token.value)
                if number == float("inf"):
                    self._fail("the number is too large for a double", token)
                return Constant(number, token.offset)
            case TokenType.KEYWORD:
                return Constant(token.value == "TRUE", token.offset)
            case _:
                return Constant(token.value, token.offset)

    def _parse_list_constant(self) -> Constant:
        """Parse a choice of IN: a number, which may be negative, or a text."""
        negative = self._accept(TokenType.SYMBOL, "-")
        token = self._token
        if token.type is not TokenType.NUMBER and (negative or token.type is not TokenType.TEXT):
            self._fail_expected("a number" if negative else "a number or a text")
        constant = self._parse_literal()
        self._node_count -= 1  # MAX_CHOICE_COUNT limits lists
        if negative:
            assert isinstance(constant.value, float)
            return Constant(-constant.value, constant.offset)
        return constant

    def _parse_field(self) -> Value:
        token = self._advance()
        self._count_node()
        name = ALIASES.get(token.value, token.value)
        if name not in self._fields:
            self._fail(explain_unknown_field(name, self._fields), token)
        if name not in (HEADERS_FIELD, JSON_FIELD):
            return MessageField(name, FIELD_TYPES[name], token.offset)
        path = []
        while self._accept(TokenType.SYMBOL, "."):
            if self._token.type not in (TokenType.NAME, TokenType.KEYWORD, TokenType.QUOTED_NAME):
                self._fail_expected(
                    f'a name behind {name}, as in {name}.colour or {name}."x-colour"'
                )
            step = self._advance()
            # A keyword is a name here, spelled as written.
            path.append(
                self._text[step.offset : step.offset + len(step.value)]
                if step.type is TokenType.KEYWORD
                else step.value
            )
        if not path:
            self._fail_expected(f'a name behind {name}, as in {name}.colour or {name}."x-colour"')
        if len(path) > MAX_NESTING_LEVEL:
            self._fail(f"too many names in the path: the maximum is {MAX_NESTING_LEVEL}", token)
        return NestedField(
            "headers" if name == HEADERS_FIELD else "json", tuple(path), ValueType.ANY, token.offset
        )

    # ── tokens and limits ─────────────────────────────────────────────────────────────────────────────

    def _advance(self) -> Token:
        token = self._token
        self._token = next(self._tokens, token)
        return token

    def _is_at(self, token_type: TokenType, value: str) -> bool:
        return self._token.type is token_type and self._token.value == value

    def _accept(self, token_type: TokenType, value: str) -> bool:
        if self._is_at(token_type, value):
            self._advance()
            return True
        return False

    def _expect(self, token_type: TokenType, value: str, expected: str) -> None:
        if not self._accept(token_type, value):
            self._fail_expected(expected)

    def _count_node(self) -> None:
        self._node_count += 1
        if self._node_count > MAX_NODE_COUNT:
            self._fail(f"too many values and operators: the maximum is {MAX_NODE_COUNT}")

    @contextmanager
    def _nest(self) -> Iterator[None]:
        if self._depth == MAX_NESTING_LEVEL:
            self._fail(f"nested too deeply: the maximum is {MAX_NESTING_LEVEL} levels")
        self._depth += 1
        yield
        self._depth -= 1

    # ── checks and errors ─────────────────────────────────────────────────────────────────────────────

    def _parse_as_condition(self, part: Callable[[], Condition | Value]) -> Condition:
        return self._require_condition(part())

    def _require_condition(self, node: Condition | Value) -> Condition:
        if isinstance(node, _VALUE_CLASSES):
            return self._check_types(make_boolean_test, node)
        return node

    def _require_value(self, node: Condition | Value, offset: int) -> Value:
        if isinstance(node, _VALUE_CLASSES):
            return node
        raise SelectorError(self._text, offset, "expected a value, found a condition")

    def _check_types(self, check: Callable[..., T], *arguments: object) -> T:
        try:
            return check(*arguments)
        except OperandTypeError as error:
            raise SelectorError(self._text, error.value.offset, str(error)) from None

    def _fail_expected(self, what: str) -> NoReturn:
        self._fail(f"expected {what}, found {self._token}")

    def _fail(self, reason: str, token: Token | None = None) -> NoReturn:
        raise SelectorError(self._text, (token or self._token).offset, reason)
