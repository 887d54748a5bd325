"""Sort, columns and pages of lists, against naive computations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.console.query import (
    PAGE_SIZE_MAX_COUNT,
    Listing,
    ListQuery,
    QueryError,
    arrange,
    parse_list_query,
    read_path,
    select_columns,
    sort_key,
)

VALUES = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text("ab", max_size=2))


def listing(items: list[dict[str, Any]]) -> Listing:
    return Listing(items, lambda item: item, lambda item: str(item.get("name", "")))


def run(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def answer(items: list[dict[str, Any]], **parameters: str) -> Any:
    found = run(arrange(listing(items), parse_list_query(parameters, paginated=True)))
    return list(found.entries), found.envelope


@given(st.lists(VALUES, max_size=60), st.booleans())
def test_sorting_is_stable_and_ordered_as_erlang_orders_terms(
    values: list[Any], reverse: bool
) -> None:
    items = [{"name": str(number), "v": value} for number, value in enumerate(values)]
    query = {"sort": "v", "sort_reverse": "true"} if reverse else {"sort": "v"}
    rows, _ = answer(items, **query)
    assert rows == sorted(items, key=lambda item: sort_key(item["v"]), reverse=reverse)


def test_many_items_are_merged_from_portions() -> None:
    items = [{"name": f"q{number * 7919 % 5003:05}"} for number in range(5003)]
    steps, found, portions = (
        arrange(listing(items), parse_list_query({"sort": "name"}, paginated=True)),
        None,
        0,
    )
    while found is None:
        try:
            next(steps)
            portions += 1
        except StopIteration as done:
            found = done.value
    assert [item["name"] for item in found.entries] == sorted(item["name"] for item in items)
    assert portions >= 10  # other callbacks of the loop can run in between


def test_numbers_come_before_null_before_objects_before_strings() -> None:
    values: list[Any] = ["a", {"x": 1}, None, 3, 2.5]
    assert sorted(values, key=sort_key) == [2.5, 3, None, {"x": 1}, "a"]


@given(st.integers(0, 30), st.integers(1, 12), st.integers(1, 5))
def test_pages_cover_the_list(count: int, size: int, page: int) -> None:
    items = [{"name": f"q{number}"} for number in range(count)]
    page_count = -(-count // size)
    if page > max(1, page_count):
        with pytest.raises(QueryError, match="Page out of range"):
            answer(items, page=str(page), page_size=str(size))
        return
    rows, envelope = answer(items, page=str(page), page_size=str(size))
    assert rows == items[(page - 1) * size : page * size]
    assert envelope == {
        "filtered_count": count,
        "item_count": len(rows),
        "page": page,
        "page_count": page_count,
        "page_size": size,
        "total_count": count,
    }


def test_a_page_filters_by_text_or_pattern() -> None:
    items = [{"name": name} for name in ("orders", "Order.dead", "bills")]
    rows, envelope = answer(items, page="1", name="order")
    assert [row["name"] for row in rows] == ["orders", "Order.dead"]
    assert (envelope["filtered_count"], envelope["total_count"]) == (2, 3)
    rows, _ = answer(items, page="1", name="s$", use_regex="true")
    assert [row["name"] for row in rows] == ["orders", "bills"]


@pytest.mark.parametrize(
    "parameters",
    [
        {"page": "0"},
        {"page": "-1"},
        {"page": "x"},
        {"page": "1", "page_size": "0"},
        {"page": "1", "page_size": str(PAGE_SIZE_MAX_COUNT + 1)},
        {"page": "9" * 30},
        {"page": "1", "name": "[", "use_regex": "true"},
    ],
)
def test_invalid_pages_are_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(QueryError):
        parse_list_query(parameters, paginated=True)


def test_resources_without_pages_ignore_them() -> None:
    assert parse_list_query({"page": "0"}, paginated=False) == ListQuery()


def test_columns_select_within_objects() -> None:
    item = {"name": "q", "stats": {"a": {"rate": 1.0, "x": 2}, "b": 3}, "n": 1}
    columns = parse_list_query({"columns": "name,stats.a.rate,stats.b,no.such"}, paginated=False)
    assert select_columns(item, columns.columns) == {
        "name": "q",
        "stats": {"a": {"rate": 1.0}, "b": 3},
    }


def test_a_path_may_end_in_a_name_with_dots() -> None:
    item = {"arguments": {"x.y": 1, "x": {"z": 2}}}
    assert read_path(item, ("arguments", "x", "y")) == 1
    assert read_path(item, ("arguments", "x", "z")) == 2
    assert read_path(item, ("arguments", "q", "z")) == 0  # as RabbitMQ sorts
    assert read_path({"a": 1}, ("a", "b")) == 0


@given(items=st.lists(st.fixed_dictionaries({"v": st.integers(0, 3), "name": st.text(max_size=2)})))
def test_a_list_with_an_order_has_it_among_equal_values(items: list[dict[str, Any]]) -> None:
    ordered = Listing(items, dict, lambda item: item["name"], order=lambda item: (item["name"],))
    for query, expected in (
        ({}, sorted(items, key=lambda item: item["name"])),
        ({"sort_reverse": "true"}, sorted(items, key=lambda item: item["name"], reverse=True)),
        ({"sort": "v"}, sorted(items, key=lambda item: (item["v"], item["name"]))),
    ):
        rows = list(run(arrange(ordered, parse_list_query(query, paginated=True))).entries)
        assert [(row["v"], row["name"]) for row in rows if query.get("sort")] == [
            (row["v"], row["name"]) for row in expected if query.get("sort")
        ]
        assert [row["name"] for row in rows] == [row["name"] for row in expected]
