"""Whatever is encoded is decoded to the same value, in every format."""

from __future__ import annotations

import contextlib
import math
import re
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.patterns.errors import TranslationError
from recado.patterns.translation import Translators
from tests.patterns.translation.shop import Colour, Item, Order

REGISTRY = Translators()
FORMATS = ["application/json", "application/xml", "application/yaml", "application/msgpack"]
TYPED_FORMATS = [*FORMATS, "application/json; charset=utf-16", "text/yaml; charset=utf-32"]

# The characters of XML 1.0, which are fewer than those of the other formats.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    | st.sampled_from("\t\r\n\x85 <&]>"),
    max_size=20,
).filter(lambda text: not re.search("[\ufdd0-\ufdef]", text))
ITEMS = st.builds(Item, name=TEXTS, amount=st.integers(-(2**63), 2**64 - 1))
ORDERS = st.builds(
    Order,
    id=st.uuids(),
    placed=st.datetimes(timezones=st.just(UTC)),
    total=st.decimals(allow_nan=False, allow_infinity=False),
    items=st.lists(ITEMS, max_size=3),
    colour=st.sampled_from(Colour),
    note=st.none() | TEXTS,
    weight=st.floats(allow_nan=False, allow_infinity=False),
    express=st.booleans(),
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXTS
TREES = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXTS, parts, max_size=4),
    max_leaves=15,
)


@given(order=ORDERS)
@settings(max_examples=60)
@pytest.mark.parametrize("content_type", TYPED_FORMATS)
def test_objects(content_type: str, order: Order) -> None:
    body, used = REGISTRY.encode(order, content_type)
    assert used == content_type
    decoded = REGISTRY.decode(body, content_type, Order)
    assert decoded == order
    assert math.copysign(1, decoded.weight) == math.copysign(1, order.weight)


@given(tree=TREES)
@settings(max_examples=60)
@pytest.mark.parametrize(
    "content_type", ["application/json", "application/yaml", "application/msgpack"]
)
def test_values_without_a_type(content_type: str, tree: Any) -> None:
    body, _ = REGISTRY.encode(tree, content_type)
    decoded = REGISTRY.decode(body, content_type, Any)
    assert decoded == tree
    assert repr(decoded) == repr(tree)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_text(text: str) -> None:
    assert REGISTRY.decode(*REGISTRY.encode(text, "text/plain"), str) == text


@given(body=st.binary(max_size=200))
@settings(max_examples=200)
@pytest.mark.parametrize("content_type", FORMATS)
@pytest.mark.parametrize("target", [Any, Order])
def test_any_bytes_are_decoded_or_refused(content_type: str, target: Any, body: bytes) -> None:
    with contextlib.suppress(TranslationError):
        REGISTRY.decode(body, content_type, target)
