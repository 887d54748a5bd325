"""Message ids made of columns: equal for the same row, different for different rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.pipeline.options import OptionError
from recado.pipeline.queue.message_ids import MessageIdError, choose_id_columns, make_message_ids


def batch(**columns: list[object]) -> pa.RecordBatch:
    columns.setdefault(
        "body", [b"%d" % number for number in range(len(next(iter(columns.values()))))]
    )
    return pa.RecordBatch.from_pydict(columns)


def test_which_columns_make_the_id() -> None:
    feed = ["feed", "offset", "publisher", "sequence", "message_id", "body"]
    assert choose_id_columns(None, feed) == (("message_id",), ("publisher", "sequence"))
    assert choose_id_columns(None, ["publisher", "sequence", "body"]) == (
        ("publisher", "sequence"),
    )
    assert choose_id_columns("order, line", ["order", "line", "body"]) == (("order", "line"),)
    assert choose_id_columns("NONE", feed) is None
    with pytest.raises(OptionError, match="idColumns names 'item', but the columns are"):
        choose_id_columns("order,item", ["order", "line", "body"])
    with pytest.raises(OptionError, match=r"neither\. Name other columns"):
        choose_id_columns(None, ["offset", "body"])


def test_ids_are_texts_joined() -> None:
    rows = batch(publisher=["a", "b"], sequence=[1, 2])
    assert make_message_ids(rows, [("publisher", "sequence")]) == [b"a:1", b"b:2"]
    rows = batch(message_id=["x", None], publisher=["a", "b"], sequence=[1, 2])
    assert make_message_ids(rows, [("message_id",), ("publisher", "sequence")]) == [b"x", b"b:2"]
    assert make_message_ids(batch(message_id=["x"]), [("message_id",)]) == [b"x"]
    [long] = make_message_ids(batch(message_id=["x" * 300]), [("message_id",)])
    assert len(long) == 64


def test_a_row_without_an_id_is_an_error() -> None:
    with pytest.raises(MessageIdError, match="1 rows have no message_id"):
        make_message_ids(batch(message_id=["a", None]), [("message_id",)])


def test_different_messages_with_one_id_are_an_error_and_repeats_are_none() -> None:
    same = batch(message_id=["a", "b", "a"], body=[b"1", b"2", b"1"])
    assert make_message_ids(same, [("message_id",)]) == [b"a", b"b", b"a"]
    split = batch(message_id=["a", "a"], body=[b"1", b"2"])
    with pytest.raises(MessageIdError, match="different messages have the id 'a'"):
        make_message_ids(split, [("message_id",)])


texts = st.text("ab:\\", max_size=4)


@given(st.lists(st.tuples(texts, texts), min_size=1, unique=True))
def test_different_values_have_different_ids(pairs: list[tuple[str, str]]) -> None:
    rows = batch(one=[one for one, _ in pairs], two=[two for _, two in pairs])
    assert len(set(make_message_ids(rows, [("one", "two")]))) == len(pairs)
