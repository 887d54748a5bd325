"""XML: the mapping, and documents made to harm."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from recado.patterns.errors import TranslationError
from recado.patterns.translation import Translators, XmlTranslator
from tests.patterns.translation.shop import Item

XML = "application/xml"


class Note(msgspec.Struct):
    id: int
    items: list[Item] = msgspec.field(default_factory=lambda: [Item("default")])
    note: str | None = "default"


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


class Card(msgspec.Struct, tag=True):
    number: str


class Transfer(msgspec.Struct, tag=True):
    accounts: list[str]


class Payment(msgspec.Struct):
    by: Card | Transfer | None
    amount: float | None = 0.0
    text: str | float = ""


class Point(NamedTuple):
    x: int
    y: int


class Row(msgspec.Struct, array_like=True):
    key: str
    point: Point


class Containers(msgspec.Struct):
    rows: list[list[int]]
    pair: tuple[int, str]
    names: set[str]
    counts: dict[str, int]
    grouped: dict[str, list[int]]
    points: list[Point]
    row: Row
    anything: Any
    numbers: tuple[int, ...] = (1,)
    maybe: list[int] | None = None


class PydanticTree(pydantic.BaseModel):
    name: str = pydantic.Field(alias="Name")
    children: list[PydanticTree] = []
    tags: set[str] = set()


class Box(pydantic.BaseModel):
    extra: dict[str, list[int]] | None


def encode(value: object) -> str:
    return Translators().encode(value, XML)[0].decode()


def decode(body: str | bytes, target: Any, content_type: str = XML) -> Any:
    return Translators().decode(
        body.encode() if isinstance(body, str) else body, content_type, target
    )


def test_the_form_of_an_object() -> None:
    assert encode(Note(5, [Item("pen"), Item("ink", 2)], None)) == (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        '<Note xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><id>5</id>'
        "<items><name>pen</name><amount>1</amount></items>"
        "<items><name>ink</name><amount>2</amount></items>"
        '<note xsi:nil="true"/></Note>'
    )


@pytest.mark.parametrize(
    "value",
    [
        Note(1, [], None),
        Note(1, [Item("pen")], ""),
        Note(1, [Item("a"), Item("b")], " \n\r\t<&>\"' "),
        Tree("a", [Tree("b", [Tree("c")]), Tree("d")]),
        Payment(Card("5")),
        Payment(Transfer(["one"]), None, "5"),
        Payment(None, -2.5),
        Payment(None, float("inf")),
        Payment(None, float("-inf")),
        Containers(
            [[1], [], [2, 3]],
            (1, "a"),
            {"x"},
            {"a": 1, "b": 2},
            {"a": [1], "b": [1, 2]},
            [Point(1, 2)],
            Row("k", Point(3, 4)),
            {"a": ["1", "2"], "b": {"c": ""}, "d": None},
            (),
            [5],
        ),
        PydanticTree(Name="a", children=[PydanticTree(Name="b", tags={"x"})]),
        Box(extra={"a": [1]}),
        Box(extra=None),
        [Item("pen")],
        [[1, 2], [3]],
        [],
        {"a": 1},
        "text",
        True,
        None,
        {"a": [None, None]},
    ],
    ids=lambda value: type(value).__name__,
)
def test_round_trips(value: Any) -> None:
    targets: dict[type, Any] = {
        list: list[Item] if value == [Item("pen")] else list[list[int]],
        dict: dict[str, int] if value == {"a": 1} else dict[str, list[None]],
    }
    assert decode(encode(value), targets.get(type(value), type(value))) == value


def test_documents_of_others() -> None:
    body = """<?xml version="1.0"?>
        <!-- namespaces and attributes -->
        <s:note xmlns:s="urn:shop" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
                xsi:schemaLocation="urn:shop shop.xsd" id="5">
            <s:items name="pen" amount="3"/>
            <s:note lang="en">hello <![CDATA[<world>]]></s:note>
            <s:ignored><s:a/><s:a/></s:ignored>
        </s:note>"""
    assert decode(body, Note) == Note(5, [Item("pen", 3)], "hello <world>")
    assert decode('<a b="1">text<c/></a>', Any) == {"b": "1", "c": "", "#text": "text"}
    assert decode("<a><b>1</b><b>2</b><c/></a>", Any) == {"b": ["1", "2"], "c": ""}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<note><items/></note>", "missing required field `name` - at `$.items[0]`"),
        ("<note><id>x</id></note>", "Expected `int`, got `str` - at `$.id`"),
        ("<note><id>1</id><id>2</id></note>", "Expected `int`, got `array` - at `$.id`"),
        ("<note><id><a/></id></note>", "Expected `int`, got `object` - at `$.id`"),
        ("<note>text</note>", "missing required field `id`"),
    ],
)
def test_errors_name_the_field(body: str, text: str) -> None:
    with pytest.raises(TranslationError) as caught:
        decode(body, Note)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "value", [{"a b": 1}, {"1": 1}, {"a:b": 1}, {"{urn}a": 1}, {"": 1}, {"é\0": 1}]
)
def test_names_that_xml_does_not_have_are_refused(value: object) -> None:
    with pytest.raises(TranslationError, match="is not a name of an XML element"):
        encode(value)


@pytest.mark.parametrize("text", ["\0", "\x1f", "\ud800", "\uffff"])
def test_characters_that_xml_does_not_have_are_refused(text: str) -> None:
    with pytest.raises(TranslationError):
        encode({"a": text})


def test_unions_with_lists_are_refused() -> None:
    with pytest.raises(TranslationError, match="cannot tell a list with one item"):
        decode("<a/>", list[int] | int)


def test_charsets() -> None:
    declared = '<?xml version="1.0" encoding="iso-8859-1"?><a>é</a>'
    assert decode(declared.encode("latin-1"), str) == "é"
    assert decode(declared.encode(), str, "application/xml; charset=utf-8") == "é"
    assert decode(declared.encode("utf-16"), str, "text/xml; charset=utf-16") == "é"
    assert decode('<?xml version="1.0" encoding="utf-16"?><a>é</a>'.encode("utf-16"), str) == "é"
    for charset in ("iso-8859-1", "utf-16"):
        content_type = f"application/xml; charset={charset}"
        body, _ = Translators().encode("é", content_type)
        assert charset.encode() in body.replace(b"\0", b"").lower()
        assert decode(body, str, content_type) == decode(body, str) == "é"


def test_values_that_are_too_deep_are_refused_when_they_are_sent() -> None:
    value: Any = "x"
    for _ in range(100):
        value = {"a": value}
    with pytest.raises(TranslationError, match="deeper than 100"):
        encode(value)
    value.update(a=value)
    with pytest.raises(TranslationError):
        encode(value)


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
MIB_BYTES = 1 << 20


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]><a>&l9;</a>', "declarations are not accepted"),
        (f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]><a b="&l9;"/>', "declarations are not accepted"),
        (
            '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
            "declarations are not accepted",
        ),
        ('<!DOCTYPE a SYSTEM "http://127.0.0.1:1/a.dtd"><a/>', "declarations are not accepted"),
        ("<!DOCTYPE a><a/>", "declarations are not accepted"),
        ("<a>&b;</a>", "Entity 'b' not defined"),
        ("<a>" * (4 * MIB_BYTES), "nested deeper than 100 levels"),
        ("<a>" + "<b/>" * (3 * MIB_BYTES) + "</a>", "more than 100000 elements"),
        (
            "<a " + " ".join(f"b{n}=''" for n in range(2000)) + "/>",
            "more than 1000 attributes",
        ),
        ("", "empty"),
        ("<a>", "Premature end"),
        ("<a/><b/>", "Extra content"),
        ("text", "Start tag expected"),
        ("<a>\0</a>", "Invalid character"),
        ("<a>\ud800</a>", ""),
        ('<?xml version="1.0" encoding="klingon"?><a/>', "Unsupported encoding"),
    ],
    ids=lambda value: value[:20],
)
@pytest.mark.parametrize("target", [Any, Note])
@pytest.mark.timeout(30)
def test_documents_made_to_harm(body: str, text: str, target: Any) -> None:
    with pytest.raises(TranslationError) as caught:
        decode(body.encode(errors="surrogatepass"), target)
    assert text in str(caught.value)


def test_large_texts() -> None:
    text = "x" * (15 * MIB_BYTES)
    assert decode(f"<a>{text}</a>", str) == text


def test_the_number_of_elements_is_an_option() -> None:
    registry = Translators(XmlTranslator(elements_max=3))
    assert registry.decode(b"<a><b/><b/></a>", XML, list[str]) == ["", ""]
    for body in (b"<a><b/><b/><b/></a>", b"<a b='' c='' d=''/>"):
        with pytest.raises(TranslationError, match="more than 3 elements"):
            registry.decode(body, XML, list[str])
