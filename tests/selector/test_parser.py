"""The trees of valid selectors, and the errors of invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.selector import SelectorError, parse
from recado.selector.parser import MAX_CHOICE_COUNT, MAX_NESTING_LEVEL, MAX_NODE_COUNT
from recado.selector.tokenizer import MAX_SELECTOR_BYTES
from recado.selector.tree import (
    And,
    BooleanTest,
    Comparison,
    InList,
    IsNull,
    Like,
    NestedField,
    Or,
    ValueType,
)

from .cases import Case, all_conditions, no


def without_places(node: object) -> object:
    """Two texts may have one tree; where its leaves stand in the text is all that may differ."""
    if isinstance(node, tuple):
        return tuple(map(without_places, node))
    if hasattr(node, "__struct_fields__"):
        names = [name for name in node.__struct_fields__ if name != "offset"]
        return (type(node).__name__, *(without_places(getattr(node, name)) for name in names))
    return node


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("type = 'a' OR type = 'b' AND type = 'c'", "type = 'a' OR (type = 'b' AND type = 'c')"),
        ("NOT type = 'a' AND type = 'b'", "(NOT (type = 'a')) AND type = 'b'"),
        ("priority + 1 * 2 > 3", "priority + (1 * 2) > 3"),
        ("priority - 1 - 2 > 3", "(priority - 1) - 2 > 3"),
        ("- priority * 2 > 3", "(- priority) * 2 > 3"),
        ("priority BETWEEN 1 AND 2 AND TRUE", "(priority >= 1 AND priority <= 2) AND TRUE"),
        ("priority NOT BETWEEN 1 AND 2", "priority < 1 OR priority > 2"),
        ("NOT (priority > 1 OR type IS NULL)", "priority <= 1 AND type IS NOT NULL"),
        ("NOT (type LIKE 'a' AND type IN ('b'))", "type NOT LIKE 'a' OR type NOT IN ('b')"),
        ("NOT NOT headers.a", "headers.a"),
        ("NOT headers.a", "NOT (headers.a)"),
        ("priority != 1", "priority <> 1"),
        ("key = 'a'", "routing_key = 'a'"),
        ('headers."a" = 1', "headers.a = 1"),
        ("type = 'it''s'", "type='it''s'"),
        ("priority > 1.", "priority > 1.0e0"),
        ("priority > .5", "priority > 5E-1"),
        ("type like 'A' oR tYPe_is", "type LIKE 'A'"),
        ("((priority)) > ((1))", "priority > 1"),
    ],
)
def test_meaning(text: str, meaning: str) -> None:
    if "tYPe_is" in text:  # names are not words: they count as they are written
        with pytest.raises(SelectorError, match="unknown field tYPe_is"):
            parse(text)
    else:
        assert without_places(parse(text).condition) == without_places(parse(meaning).condition)


def test_kinds_follow_from_use() -> None:
    def kinds(text: str) -> set[ValueType]:
        found: set[ValueType] = set()

        def walk(node: object) -> None:
            if isinstance(node, NestedField):
                found.add(node.value_type)
            elif isinstance(node, tuple):
                for each in node:
                    walk(each)
            elif hasattr(node, "__struct_fields__"):
                for name in node.__struct_fields__:
                    walk(getattr(node, name))

        walk(parse(text).condition)
        return found

    assert kinds("headers.a = 1") == kinds("-headers.a > json.b * 2") == {ValueType.NUMBER}
    assert kinds("headers.a = 'x'") == kinds("headers.a LIKE 'x'") == {ValueType.TEXT}
    assert kinds("headers.a = type") == kinds("headers.a IN ('x')") == {ValueType.TEXT}
    assert kinds("headers.a") == kinds("headers.a = TRUE") == {ValueType.BOOLEAN}
    assert kinds("headers.a IS NULL") == {ValueType.ANY}
    assert kinds("headers.a < json.b") == {ValueType.NUMBER, ValueType.TEXT}
    assert kinds("headers.a <> json.b") == {ValueType.NUMBER, ValueType.TEXT, ValueType.BOOLEAN}
    assert kinds("headers.a BETWEEN json.b AND 5") == {ValueType.NUMBER}
    assert kinds("NOT (headers.a = headers.b AND TRUE)") == {
        ValueType.NUMBER,
        ValueType.TEXT,
        ValueType.BOOLEAN,
    }


def test_names() -> None:
    condition = parse('json.AND."or".Not."x y" = 1').condition
    assert isinstance(condition, Comparison)
    assert isinstance(condition.left, NestedField)
    assert condition.left.path == ("AND", "or", "Not", "x y")
    assert parse("json.a = 1 OR headers.b OR offset > 1").fields() == {"json", "headers", "offset"}


def test_leaves() -> None:
    conditions = {
        "type IN ('a', 'b')": InList,
        "offset NOT IN (1, -2)": InList,
        "type LIKE 'a%'": Like,
        "type IS NULL": IsNull,
        "TRUE": BooleanTest,
        "TRUE AND FALSE": And,
        "TRUE OR FALSE": Or,
    }
    for text, kind in conditions.items():
        assert isinstance(parse(text).condition, kind)


WRONG = [
    ("", 1, "expected a value, found the end"),
    ("   ", 4, "expected a value, found the end"),
    ("priority >", 11, "expected a value, found the end"),
    ("priority > > 1", 12, "expected a value, found >"),
    ("priority > 1 priority", 14, "expected AND, OR or the end, found priority"),
    ("priority > 1)", 13, "expected AND, OR or the end, found )"),
    ("(priority > 1", 14, "expected an operator or ), found the end"),
    ("priority", 1, "expected a condition, found a number alone"),
    ("type AND TRUE", 1, "expected a condition, found a text alone"),
    ("TRUE AND 'x'", 10, "expected a condition, found a text alone"),
    ("NOT 5", 5, "expected a condition, found a number alone"),
    ("(TRUE AND TRUE) > 1", 1, "expected a value, found a condition"),
    ("1 + (TRUE OR TRUE) > 1", 5, "expected a value, found a condition"),
    ("(1 > 2) + 1 > 1", 1, "expected a value, found a condition"),
    ("-(1 > 2) > 1", 2, "expected a value, found a condition"),
    ("(1 > 2) IS NULL", 1, "expected a value, found a condition"),
    ("priority = 'x'", 12, "expected a number, found a text"),
    ("'x' = priority", 7, "expected a text, found a number"),
    ("type + 1 > 2", 1, "expected a number, found a text"),
    ("-type > 2", 2, "expected a number, found a text"),
    ("priority LIKE 'x'", 1, "expected a text, found a number"),
    ("priority IN (1, 'x')", 17, "expected a number, found a text"),
    ("type BETWEEN 'a' AND 1", 22, "expected a text, found a number"),
    ("headers.a > TRUE", 13, "true and false have no order: expected = or <>, found >"),
    (
        "headers.a BETWEEN TRUE AND FALSE",
        19,
        "true and false have no order: expected = or <>, found >=",
    ),
    ("type = NULL", 8, "a comparison with NULL is never true: write IS NULL or IS NOT NULL"),
    ("type IS 5", 9, "expected NULL or NOT NULL, found 5"),
    ("type NOT 5", 10, "expected IN, BETWEEN or LIKE, found 5"),
    ("type IN 5", 9, "expected ( and a list of constants, found 5"),
    ("type IN ()", 10, "expected a number or a text, found )"),
    ("type IN ('a' 'b')", 14, "expected , or ), found a text"),
    ("priority IN (-'a')", 15, "expected a number, found a text"),
    ("priority IN (TRUE)", 14, "expected a number or a text, found TRUE"),
    ("priority BETWEEN 1 OR 2", 20, "expected AND and the upper limit, found OR"),
    ("type LIKE 5", 11, "expected a pattern, as in '%carro%', found 5"),
    ("type LIKE 'a' ESCAPE 'ab'", 22, "expected one escape character other than % and _"),
    ("type LIKE 'a' ESCAPE '%'", 22, "expected one escape character other than % and _"),
    ("type LIKE 'a' ESCAPE 5", 22, "expected one escape character other than % and _"),
    (
        "type LIKE '!a' ESCAPE '!'",
        11,
        "invalid pattern: expected %, _ or ! behind the escape character !",
    ),
    (
        "type LIKE 'a!' ESCAPE '!'",
        11,
        "invalid pattern: expected %, _ or ! behind the escape character !",
    ),
    (
        "headers = 1",
        9,
        'expected a name behind headers, as in headers.colour or headers."x-colour", found =',
    ),
    ("json.5 = 1", 5, "expected a name behind json, as in json.colour"),
    ("json. > 1", 7, 'expected a name behind json, as in json.colour or json."x-colour", found >'),
    ('headers."" = 1', 9, "expected a name between the quotes"),
    (
        '"a" = 1',
        1,
        'expected a value (write texts in single quotes, a header as headers."a"), found "a"',
    ),
    (
        "price > 10",
        1,
        "unknown field price: write headers.price for a header, json.price for a field of a JSON body",
    ),
    ("prioriti > 10", 1, "unknown field prioriti; did you mean priority?"),
    ("type = 'a", 8, "unterminated text: expected another '"),
    ('headers."a', 9, 'unterminated name: expected another "'),
    ("priority / 2 > 1", 10, "division is not supported; multiply instead"),
    ("priority ; 2", 10, "unexpected character ;"),
    ("priority \x07", 10, "unexpected character U+0007"),
    ("priority > 1e999", 12, "the number is too large for a double"),
    ("priority > 12ab", 14, "expected a space or an operator behind the number"),
    ("priority > 1.2.3", 15, "expected a space or an operator behind the number"),
    ("type = '\udc80'", 9, "surrogates are not valid Unicode text"),
]


@pytest.mark.parametrize(("text", "column", "reason"), WRONG)
def test_what_is_wrong_and_where(text: str, column: int, reason: str) -> None:
    with pytest.raises(SelectorError) as refusal:
        parse(text)
    error = refusal.value
    assert (error.line, error.column) == (1, column)
    assert error.reason.startswith(reason)
    place, line, caret = str(error).splitlines()
    assert place == error.summary == f"line 1, column {column}: {error.reason}"
    assert caret.index("^") == column + 1
    assert len(line) <= 62


def test_the_place_in_a_long_text() -> None:
    with pytest.raises(SelectorError) as refusal:
        parse("priority > 1 AND\n" + "TRUE AND " * 10 + "\tpriority >> 1\nAND TRUE")
    error = refusal.value
    assert (error.line, error.column) == (2, 102)
    assert str(error).splitlines()[1:] == [
        "   TRUE AND TRUE AND  priority >> 1",
        "                                ^",
    ]


def limit(text: str) -> str:
    with pytest.raises(SelectorError) as refusal:
        parse(text)
    return refusal.value.reason


def test_limits() -> None:
    parse("type = '" + "é" * ((MAX_SELECTOR_BYTES - 9) // 2) + "'")
    assert limit("type = '" + "é" * ((MAX_SELECTOR_BYTES - 8) // 2) + "'") == (
        "selector too long: 2,049 bytes, maximum 2,048"
    )
    parse(" OR ".join(["TRUE"] * (MAX_NODE_COUNT // 2)))
    assert limit(" OR ".join(["TRUE"] * (MAX_NODE_COUNT // 2 + 1))) == (
        "too many values and operators: the maximum is 64"
    )
    assert (
        limit("+".join(["1"] * 40) + " > 1") == "too many values and operators: the maximum is 64"
    )
    for before, behind in (("(", ")"), ("NOT ", "")):
        parse(before * MAX_NESTING_LEVEL + "TRUE" + behind * MAX_NESTING_LEVEL)
        assert (
            limit(before * (MAX_NESTING_LEVEL + 1) + "TRUE")
            == "nested too deeply: the maximum is 16 levels"
        )
    assert (
        limit("- " * (MAX_NESTING_LEVEL + 1) + "1 = 1")
        == "nested too deeply: the maximum is 16 levels"
    )
    parse("json" + ".a" * MAX_NESTING_LEVEL)
    assert (
        limit("json" + ".a" * (MAX_NESTING_LEVEL + 1))
        == "too many names in the path: the maximum is 16"
    )
    parse(f"offset IN ({', '.join(['1'] * MAX_CHOICE_COUNT)})")
    assert (
        limit(f"offset IN ({', '.join(['1'] * (MAX_CHOICE_COUNT + 1))})")
        == "too many choices: the maximum is 256"
    )


def test_fields_that_there_are_not() -> None:
    known = frozenset(("priority", "body", "json"))
    parse("json.a = 1", known)
    with pytest.raises(SelectorError, match="the field sequence is not available here"):
        parse("sequence > 1", known)
    with pytest.raises(SelectorError, match="the field headers is not available here"):
        parse("headers.a = 1", known)


@given(all_conditions, st.sampled_from([" ", "\n", "\t", "\r\n"]))
def test_spaces_and_case_change_nothing(case: Case, space: str) -> None:
    text = no(case).text
    spaced = f"{space}{text}{space}"
    assert without_places(parse(spaced).condition) == without_places(parse(text).condition)
