"""Addresses equal their texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors import Address

names = st.text(max_size=30)


@given(
    st.builds(Address, st.text(min_size=1, max_size=30), names, st.integers(1, 2**64 - 1))
    | st.builds(Address, st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
)
def test_an_address_is_its_text(address: Address) -> None:  # AD1
    assert Address.parse(str(address)) == address


def test_it_reads_as_one_would_write_it() -> None:
    assert str(Address("exchange", "book.A1", 36)) == "recado-actor://exchange/book.A1#10"
    assert str(Address("exchange", "book.A1")) == "recado-actor://exchange/book.A1"
    assert str(Address("a/b", "c d", 1)) == "recado-actor://a%2Fb/c%20d#1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "amqp://exchange/book",
        "recado-actor://",
        "recado-actor:///book",
        "recado-actor://exchange",
        "recado-actor://exchange/",
        "recado-actor://exchange/book#",
        "recado-actor://exchange/a/b",
        "recado-actor://exchange/book#A",
        "recado-actor://exchange/book#+1",
        "recado-actor://exchange/book#01",
        "recado-actor://exchange/book#1_0",
        "recado-actor://exchange/book#zzzzzzzzzzzzzz",
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"recado-actor|uid"):
        Address.parse(text)
