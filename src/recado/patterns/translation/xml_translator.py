"""XML by lxml: an element per field.

    Order(id=5, items=[Item("pen"), Item("ink")], note=None)

    <Order>
      <id>5</id>
      <items><name>pen</name></items>
      <items><name>ink</name></items>
      <note xsi:nil="true"/>
    </Order>

The root element is named after the class, `root` for other values, and its name is not read. A list is an element
per item, with the name of its field; an empty list is no element, so a field for a list never has its default
value. A list directly in a list, or as the root, has elements named `item`. None is `xsi:nil`. Field names must be
names in XML. Numbers, times and so on have the form that they have as strings in JSON.

Attributes are read like elements, and never written; namespaces are not read. An element that has attributes and
is read as `Any` or as an object has its text in the field `#text`.

XML has no types, so a body is first shaped by the target type (a list for a field that is one, even with one
element) and then converted by msgspec. A union of str and another scalar reads a str; unions with lists are refused.
Without a type all scalars are strings, and lists are repeated elements.

Document type declarations are refused, so there are no entities and no external files. Depth, and the number of
elements and attributes, are bounded while parsing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import inspect

from ..extra import import_package
from .content_type import find_charset
from .object_model import check_target, from_text_form, is_pydantic_model, to_text_form
from .translator import Decode, Encode

if TYPE_CHECKING:
    from lxml import etree

LEVELS_MAX: Final = 100
ELEMENTS_MAX: Final = 100_000  # read in 0.2 s
ATTRIBUTES_MAX: Final = 1000  # of one element
_XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
_XSI_PREFIX: Final = f"{{{_XSI}}}"
_NIL: Final = f"{_XSI_PREFIX}nil"
_ITEM: Final = "item"
_ROOT: Final = "root"
_TEXT_FIELD: Final = "#text"
_NAME_PATTERN: Final = re.compile(r"[^\W\d][\w.-]*")


class XmlTranslator:
    """XML, in UTF-8 unless the content type has another charset.

    Bodies with more than `elements_max` elements and attributes are refused.
    """

    content_types = ("application/xml", "text/xml")

    def __init__(self, *, elements_max: int = ELEMENTS_MAX) -> None:
        self._elements_max = elements_max

    def encoder(self, parameters: Mapping[str, str]) -> Encode:
        etree = import_package("lxml.etree")
        find_charset(parameters)  # libxml2 accepts more
        charset = parameters.get("charset", "utf-8")

        def encode(value: Any) -> bytes:
            plain = msgspec.to_builtins(value, str_keys=True, enc_hook=to_text_form)
            name = _ROOT
            if isinstance(plain, dict) and type(value) is not dict:
                # pydantic names generic classes `Box[int]`.
                name = type(value).__name__.partition("[")[0]
            root = etree.Element(
                _check_name(name), nsmap={"xsi": _XSI} if _has_none(plain) else None
            )
            _fill(etree, root, plain, 1)
            body: bytes = etree.tostring(root, encoding=charset, xml_declaration=True)
            return body

        return encode

    def decoder(self, target: Any, parameters: Mapping[str, str]) -> Decode:
        etree = import_package("lxml.etree")
        find_charset(parameters)
        charset = parameters.get("charset")  # if missing, the declaration of the body counts
        check_target(target)
        shape = _Shapes().of_type(target)

        def decode(body: bytes) -> Any:
            parser = etree.XMLParser(
                target=_TreeBuilder(self._elements_max),
                encoding=charset,
                resolve_entities=False,
                load_dtd=False,
                no_network=True,
                huge_tree=True,  # its limits are for entities; these are refused, and the body is bounded
            )
            (root,) = etree.fromstring(body, parser).children
            return msgspec.convert(shape(root), target, strict=False, dec_hook=from_text_form)

        return decode


def _fill(etree: Any, element: etree._Element, value: Any, depth: int) -> None:
    """Write a value, which consists of builtin types, into an element."""
    if depth > LEVELS_MAX:
        raise ValueError(f"it is nested deeper than {LEVELS_MAX} levels")
    match value:
        case None:
            element.set(_NIL, "true")
        case dict():
            for name, part in value.items():
                if name == _TEXT_FIELD:
                    element.text = str(part)
                    continue
                for each in part if isinstance(part, (list, tuple)) else (part,):
                    _fill(etree, etree.SubElement(element, _check_name(name)), each, depth + 1)
        case list() | tuple():
            for each in value:
                _fill(etree, etree.SubElement(element, _ITEM), each, depth + 1)
        case bool():
            element.text = "true" if value else "false"
        case float() if not math.isfinite(value):
            element.text = "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
        case _:
            element.text = str(value)


def _check_name(name: str) -> str:
    if not _NAME_PATTERN.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is not a name of an XML element")
    return name


def _has_none(value: Any) -> bool:
    match value:
        case dict():
            return any(map(_has_none, value.values()))
        case list() | tuple():
            return any(map(_has_none, value))
        case _:
            return value is None


class _XmlElement:
    """An element as it was read; attributes are its first children."""

    __slots__ = ("attribute_count", "children", "is_nil", "name", "texts")

    def __init__(self, name: str, text: str | None = None) -> None:
        self.name = name
        self.texts: list[str] | None = None if text is None else [text]
        self.children: Sequence[_XmlElement] = ()
        self.attribute_count = 0
        self.is_nil = False

    @property
    def text(self) -> str:
        return "".join(self.texts or ())

    @property
    def elements(self) -> Sequence[_XmlElement]:
        """The children without the attributes."""
        return self.children[self.attribute_count :]

    def group(self) -> dict[str, list[_XmlElement]]:
        """Return the children by name."""
        groups: dict[str, list[_XmlElement]] = {}
        for child in self.children:
            groups.setdefault(child.name, []).append(child)
        if groups and (text := self.text).strip():
            groups[_TEXT_FIELD] = [_XmlElement(_TEXT_FIELD, text)]
        return groups


class _TreeBuilder:
    """Receives the events of the parser. An exception stops it."""

    def __init__(self, elements_max: int) -> None:
        self._path = [_XmlElement("")]
        self._element_count = 0
        self._elements_max = elements_max

    def doctype(self, name: str, public_id: str | None, system: str | None) -> None:
        raise ValueError("document type declarations are not accepted")

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._element_count += 1 + len(attributes)
        if len(self._path) > LEVELS_MAX:
            raise ValueError(f"elements are nested deeper than {LEVELS_MAX} levels")
        if self._element_count > self._elements_max:
            raise ValueError(f"there are more than {self._elements_max} elements and attributes")
        if len(attributes) > ATTRIBUTES_MAX:
            raise ValueError(f"an element has more than {ATTRIBUTES_MAX} attributes")
        element = _XmlElement(_local_name(tag))
        if attributes:
            self._add_attributes(element, attributes)
        parent = self._path[-1]
        if isinstance(parent.children, list):
            parent.children.append(element)
        else:
            parent.children = [element]
        self._path.append(element)

    def _add_attributes(self, element: _XmlElement, attributes: Mapping[str, str]) -> None:
        element.is_nil = attributes.get(_NIL, "").strip() in ("true", "1")
        element.children = [
            _XmlElement(_local_name(name), value)
            for name, value in attributes.items()
            if not name.startswith(_XSI_PREFIX)
        ]
        element.attribute_count = len(element.children)

    def data(self, text: str) -> None:
        element = self._path[-1]
        if element.texts is None:
            element.texts = [text]
        else:
            element.texts.append(text)

    def end(self, tag: str) -> None:
        self._path.pop()

    def close(self) -> _XmlElement:
        """Return the parent of the root. Called after errors as well."""
        return self._path[0]


def _local_name(name: str) -> str:
    return name.rpartition("}")[2]


_Shape: TypeAlias = Callable[[_XmlElement], Any]


def _shape_any(element: _XmlElement) -> Any:
    """Return an element as strings, dicts and lists, without knowing a type."""
    if element.is_nil:
        return None
    if not element.children:
        return element.text
    return {
        name: _shape_any(group[0]) if len(group) == 1 else [_shape_any(each) for each in group]
        for name, group in element.group().items()
    }


def _shape_scalar(element: _XmlElement) -> Any:
    if element.is_nil:
        return None
    return _shape_any(element) if element.elements else element.text


class _ListShape:
    """An element whose children are items, or several elements of one name that are the items themselves."""

    def __init__(self, first: Sequence[_Shape], rest: _Shape) -> None:
        self._first = first  # of a tuple
        self._rest = rest

    def __call__(self, element: _XmlElement) -> Any:
        return None if element.is_nil else self.shape_items(element.elements)

    def shape_items(self, elements: Iterable[_XmlElement]) -> list[Any]:
        return [shape(each) for shape, each in zip(self._shapes(), elements, strict=False)]

    def _shapes(self) -> Iterator[_Shape]:
        yield from self._first
        while True:
            yield self._rest


class _ObjectShape:
    """An element whose children are fields, each with a shape of its own."""

    def __init__(self, others: _Shape | None = None) -> None:
        self.fields: dict[str, _Shape] = {}  # completed later: types may be recursive
        self.others = others
        """The shape of other fields; None if msgspec only needs to know that they exist."""

    def __call__(self, element: _XmlElement) -> Any:
        if element.is_nil:
            return None
        groups = element.group()
        shaped: dict[str, Any] = {}
        for name, group in groups.items():
            shape = self.fields.get(name, self.others)
            shaped[name] = None if shape is None else _shape_group(shape, group)
        for name, shape in self.fields.items():
            if name not in groups and isinstance(shape, _ListShape):
                shaped[name] = []
        return shaped


def _shape_group(shape: _Shape, group: list[_XmlElement]) -> Any:
    """Return the value of a field from all elements of its name."""
    if isinstance(shape, _ListShape):
        return None if len(group) == 1 and group[0].is_nil else shape.shape_items(group)
    return shape(group[0]) if len(group) == 1 else [_shape_any(each) for each in group]


class _UnionShape:
    """One of several objects, found by its tag; or an object, or a scalar."""

    def __init__(self, objects: Mapping[str, _Shape], tag_field: str | None) -> None:
        self._objects = objects
        self._tag_field = tag_field

    def __call__(self, element: _XmlElement) -> Any:
        if element.is_nil or not (element.elements or self._tag_field):
            return _shape_scalar(element)
        tag = next((each.text for each in element.children if each.name == self._tag_field), "")
        return self._objects.get(tag, _shape_any)(element)


class _Shapes:
    """Makes the shapes of a type; each type within it has one."""

    def __init__(self) -> None:
        self._known: dict[Any, _ObjectShape] = {}
        self._infos: list[inspect.Type] = []  # kept, so that their ids stay theirs

    def of_type(self, target: Any) -> _Shape:
        return self._of(inspect.type_info(target))

    def _of(self, info: inspect.Type) -> _Shape:
        match info:
            case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType():
                return _ListShape((), self._of(info.item_type))
            case inspect.VarTupleType() | inspect.CollectionType():
                return _ListShape((), self._of(info.item_type))
            case inspect.TupleType():
                return _ListShape([self._of(each) for each in info.item_types], _shape_any)
            case inspect.NamedTupleType() | inspect.StructType(array_like=True):
                return _ListShape([self._of(each.type) for each in info.fields], _shape_any)
            case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
                return self._of_fields(info)
            case inspect.DictType():
                return _ObjectShape(self._of(info.value_type))
            case inspect.UnionType():
                return self._of_union(info)
            case inspect.CustomType() if is_pydantic_model(info.cls):
                return self._of_model(info.cls)
            case inspect.AnyType() | inspect.RawType() | inspect.CustomType():
                return _shape_any
            case _:
                return _shape_scalar

    def _of_fields(
        self, info: inspect.StructType | inspect.DataclassType | inspect.TypedDictType
    ) -> _ObjectShape:
        shape = self._known.get(id(info))
        if shape is None:
            shape = self._known[id(info)] = _ObjectShape()
            self._infos.append(info)
            for field in info.fields:
                shape.fields[field.encode_name] = self._of(field.type)
            if isinstance(info, inspect.StructType) and info.tag_field is not None:
                shape.fields[info.tag_field] = _shape_scalar
        return shape

    def _of_model(self, model: Any) -> _ObjectShape:
        shape = self._known.get(model)
        if shape is None:
            shape = self._known[model] = _ObjectShape(_shape_any)
            for name, field in model.model_fields.items():
                alias = field.validation_alias
                shape.fields[alias if isinstance(alias, str) else name] = self.of_type(
                    field.annotation
                )
        return shape

    def _of_union(self, info: inspect.UnionType) -> _Shape:
        options = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        shapes = [self._of(each) for each in options]
        if len(shapes) == 1:
            return shapes[0]
        if any(isinstance(each, _ListShape) for each in shapes):
            raise TypeError(
                "XML cannot tell a list with one item from another value: no unions with lists"
            )
        objects: dict[str, _Shape] = {}
        tag_field = None
        for option, shape in zip(options, shapes, strict=True):
            if isinstance(option, inspect.StructType) and option.tag_field is not None:
                tag_field = option.tag_field
                objects[str(option.tag)] = shape
            elif isinstance(shape, _ObjectShape):
                objects[""] = shape
        return _UnionShape(objects, tag_field)
