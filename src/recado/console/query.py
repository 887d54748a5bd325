"""The query parameters that all lists of the HTTP API share: sort, columns, pages and filters by name.

A list consists of *entries*, such as the broker's queue objects. The JSON object of an entry is built only
when it is needed: `sort=name` on 100,000 queues builds no object, and a page of 100 builds a hundred. All
work is done in bounded steps: the functions are generators that yield after each portion, and the caller
decides when other work of the event loop runs.

RabbitMQ compares values in the order of Erlang's terms: numbers, then null and booleans, then objects, then
strings.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from recado.broker.pattern import compile_name_pattern

T = TypeVar("T")

PAGE_SIZE_DEFAULT_COUNT: Final = 100
PAGE_SIZE_MAX_COUNT: Final = 500
NUMBER_DIGITS_MAX: Final = 15
PORTION_COUNT: Final = 500  # entries between two yields: about 1 ms for the largest objects
SORTED_PORTION_COUNT: Final = 2_000
"""Keys sorted in one call; longer lists are merged from such portions."""

JsonObject = dict[str, Any]
Steps = Generator[None, None, T]
"""Work that yields after each portion and returns a value."""


class QueryError(Exception):
    """A query parameter is invalid: status 400, with RabbitMQ's `error` and a reason."""

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


class QueryParameter(msgspec.Struct, frozen=True):
    """A parameter of the query of a URL. `kind` is the type of its value, which may be annotated."""

    name: str
    description: str
    kind: Any = str
    repeatable: bool = False

    def is_true(self, parameters: Mapping[str, str]) -> bool:
        """Return whether a parameter of kind bool is set."""
        return parameters.get(self.name) == "true"


COLUMNS: Final = QueryParameter(
    "columns", "Names of the fields to return, separated by commas; `a.b` selects within an object."
)
SORT: Final = QueryParameter("sort", "The field to sort by; `a.b` is a field of an object.")
SORT_REVERSE: Final = QueryParameter("sort_reverse", "Reverse the order.", bool)
PAGE: Final = QueryParameter(
    "page", "The number of the page to return.", Annotated[int, msgspec.Meta(ge=1)]
)
PAGE_SIZE: Final = QueryParameter(
    "page_size",
    f"Entries of a page; the default is {PAGE_SIZE_DEFAULT_COUNT}.",
    Annotated[int, msgspec.Meta(ge=1, le=PAGE_SIZE_MAX_COUNT)],
)
NAME: Final = QueryParameter(
    "name", "With `page`: only entries whose name contains this text, in any case."
)
USE_REGEX: Final = QueryParameter("use_regex", "`name` is a regular expression (RE2).", bool)
LISTED_DEFAULT_COUNT: Final = 100
LISTED_MAX_COUNT: Final = 1_000
COUNT: Final = QueryParameter(
    "count",
    f"At most this many entries; the default is {LISTED_DEFAULT_COUNT}.",
    Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX_COUNT)],
)
VHOST: Final = QueryParameter("vhost", "Only objects of this vhost.", repeatable=True)

OBJECT_PARAMETERS: Final = (COLUMNS,)
LIST_PARAMETERS: Final = (SORT, SORT_REVERSE, COLUMNS)
PAGE_PARAMETERS: Final = (PAGE, PAGE_SIZE, NAME, USE_REGEX)


class Page(msgspec.Struct, frozen=True):
    """One page of a list, and the filter that was applied before the list was cut into pages."""

    number: int
    size: int
    matches: Callable[[str], bool] | None = None


class ListQuery(msgspec.Struct, frozen=True):
    """The parsed parameters of a list."""

    sort: tuple[str, ...] | None = None  # the path of a dotted name
    reverse: bool = False
    columns: tuple[tuple[str, ...], ...] | None = None
    page: Page | None = None


def parse_count(parameters: Mapping[str, str]) -> int:
    """Return the parameter `count`, or its default. Raises `QueryError`."""
    count = parse_number(parameters, COUNT.name)
    if count is None:
        return LISTED_DEFAULT_COUNT
    if count > LISTED_MAX_COUNT:
        raise QueryError("bad_request", f"count: expected a number from 1 to {LISTED_MAX_COUNT}")
    return count


def parse_number(parameters: Mapping[str, str], name: str) -> int | None:
    """Return a parameter that is a positive number, None if it is absent. Raises `QueryError`."""
    text = parameters.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX and int(text)):
        raise QueryError("bad_request", f"{name}: expected a number from 1")
    return int(text)


def parse_list_query(parameters: Mapping[str, str], *, paginated: bool) -> ListQuery:
    """Parse the parameters of a list. Raises `QueryError`.

    `paginated` tells whether the resource has pages: RabbitMQ ignores `page` for the others.
    """
    sort = parameters.get(SORT.name)
    columns = parameters.get(COLUMNS.name)
    return ListQuery(
        sort=tuple(sort.split(".")) if sort else None,
        reverse=SORT_REVERSE.is_true(parameters),
        columns=_parse_columns(columns) if columns else None,
        page=_parse_page(parameters) if paginated and PAGE.name in parameters else None,
    )


def _parse_columns(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(column.split(".")) for column in text.split(",") if column)


def _parse_page(parameters: Mapping[str, str]) -> Page:
    number_text, size_text = parameters[PAGE.name], parameters.get(PAGE_SIZE.name)
    number = _parse_count(number_text)
    size = PAGE_SIZE_DEFAULT_COUNT if size_text is None else _parse_count(size_text)
    if number is None or size is None or number < 1 or not 1 <= size <= PAGE_SIZE_MAX_COUNT:
        raise QueryError(
            "invalid_pagination_parameters",
            f"Invalid pagination parameters: page number {number_text}, page size {size_text or 'undefined'}"
            f" (the page size is 1 to {PAGE_SIZE_MAX_COUNT})",
        )
    name = parameters.get(NAME.name)
    if not name:
        return Page(number, size)
    if USE_REGEX.is_true(parameters):
        try:
            return Page(number, size, compile_name_pattern(name))
        except ValueError as error:
            raise QueryError("bad_request", f"name: invalid regular expression: {error}") from error
    wanted = name.casefold()
    return Page(number, size, lambda text: wanted in text.casefold())


def _parse_count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


# ── values ──────────────────────────────────────────────────────────────────────────────────────────


def read_path(item: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a dotted path; 0 if there is none, as RabbitMQ sorts.

    A name may contain dots itself (`arguments.x.y`), so the rest of the path is also tried as one key.
    """
    value: Any = item
    for index, key in enumerate(path):
        if not isinstance(value, Mapping):
            return 0
        rest = ".".join(path[index:])
        if rest in value:
            return value[rest]
        value = value.get(key, 0)
    return value


def sort_key(value: Any) -> tuple[int, Any]:
    """Return a key that orders JSON values as Erlang orders terms."""
    if isinstance(value, bool) or value is None:
        return (1, str(value).lower())
    if isinstance(value, (int, float)):
        return (0, value)
    if isinstance(value, str):
        return (3, value)
    return (2, msgspec.json.encode(value, order="sorted"))


def select_columns(item: JsonObject, columns: tuple[tuple[str, ...], ...] | None) -> JsonObject:
    """Return the item with only these columns; a dotted column selects within an object."""
    if columns is None:
        return item
    selected: JsonObject = {}
    for path in columns:
        value = item.get(path[0])
        if path[0] not in item:
            continue
        if len(path) == 1 or not isinstance(value, dict):
            selected[path[0]] = value
        else:
            inner = select_columns(value, (path[1:],))
            present = selected.get(path[0])
            selected[path[0]] = {**present, **inner} if isinstance(present, dict) else inner
    return selected


# ── lists ───────────────────────────────────────────────────────────────────────────────────────────


class Listing(msgspec.Struct, frozen=True):
    """A list to be rendered: its entries, and how to make JSON objects of them.

    `name_of` returns the name that `name=` filters by. `sort_values` has, by sort column, a function that
    reads the value from an entry. For other columns the objects have to be built to sort by them. `order`
    returns the texts that decide between equal values and without `sort`, so that pages do not overlap.
    """

    entries: Sequence[Any]
    build: Callable[[Any], JsonObject]
    name_of: Callable[[Any], str]
    sort_values: Mapping[str, Callable[[Any], Any]] = {}
    order: Callable[[Any], tuple[Any, ...]] | None = None


class ListAnswer(msgspec.Struct, frozen=True):
    """The entries to render, in order, and the fields around them if the list has pages."""

    entries: Iterable[Any]
    envelope: JsonObject | None = None


def arrange(listing: Listing, query: ListQuery) -> Steps[ListAnswer]:
    """Filter, sort and cut a list, in bounded steps. Raises `QueryError` for a page that does not exist."""
    entries: Sequence[Any] = listing.entries
    total, page = len(entries), query.page
    if page is not None and page.matches is not None:
        entries = yield from _filter(entries, page.matches, listing.name_of)
    filtered = len(entries)
    arranged: Iterable[Any] = entries
    if query.sort is not None or listing.order is not None:
        arranged = yield from _sort(listing, entries, query.sort, reverse=query.reverse)
    elif query.reverse:
        arranged = reversed(entries)
    if page is None:
        return ListAnswer(arranged)
    page_count = -(-filtered // page.size)
    if page.number > max(1, page_count):
        raise QueryError(
            "page_out_of_range",
            f"Page out of range, page: {page.number} page size: {page.size}, len: {filtered}",
        )
    first = (page.number - 1) * page.size
    rows = yield from _slice(arranged, first, first + page.size)
    return ListAnswer(
        rows,
        {
            "filtered_count": filtered,
            "item_count": len(rows),
            "page": page.number,
            "page_count": page_count,
            "page_size": page.size,
            "total_count": total,
        },
    )


def collect(entries: Iterable[T]) -> Steps[list[T]]:
    """Read all entries of an iterator, one in each step."""
    found = []
    for entry in entries:
        found.append(entry)
        yield
    return found


def _portions(entries: Sequence[Any], count: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(entries), count):
        yield entries[first : first + count]


def _filter(
    entries: Sequence[Any], matches: Callable[[str], bool], name_of: Callable[[Any], str]
) -> Steps[list[Any]]:
    found: list[Any] = []
    for portion in _portions(entries, PORTION_COUNT):
        found += [entry for entry in portion if matches(name_of(entry))]
        yield
    return found


_Keyed = tuple[tuple[int, Any], Any, Any]
"""Sort key, order among equal ones, entry."""


def _sort(
    listing: Listing, entries: Sequence[Any], path: tuple[str, ...] | None, *, reverse: bool
) -> Steps[Iterable[Any]]:
    """Sort portions by themselves and merge them lazily, so that no single call sorts everything."""
    value_of = _value_reader(listing, path)
    is_built = path is not None and ".".join(path) not in listing.sort_values
    sorted_portions: list[list[_Keyed]] = []
    keyed: list[_Keyed] = []
    order, sign = listing.order, -1 if reverse else 1
    number = 0
    for portion in _portions(entries, PORTION_COUNT):
        for entry in portion:
            tie = order(entry) if order is not None else sign * number
            keyed.append((sort_key(value_of(entry)), tie, entry))
            number += 1
            if is_built:  # an object with time series takes up to some milliseconds
                yield
        if len(keyed) >= SORTED_PORTION_COUNT:
            keyed.sort(key=_key, reverse=reverse)
            sorted_portions.append(keyed)
            keyed = []
        yield
    keyed.sort(key=_key, reverse=reverse)
    sorted_portions.append(keyed)
    merged = heapq.merge(*sorted_portions, key=_key, reverse=reverse)
    return (entry for _, _, entry in merged)


def _value_reader(listing: Listing, path: tuple[str, ...] | None) -> Callable[[Any], Any]:
    """Return the function that reads the value to sort by."""
    if path is None:
        return lambda entry: 0
    known = listing.sort_values.get(".".join(path))
    return known or (lambda entry: read_path(listing.build(entry), path))


def _key(keyed: _Keyed) -> tuple[tuple[int, Any], Any]:
    """Return sort key and tie: `Listing.order`, or else the number of the entry, so that equal entries never swap."""
    return keyed[:2]


def _slice(entries: Iterable[Any], first: int, last: int) -> Steps[list[Any]]:
    if isinstance(entries, Sequence):
        return list(entries[first:last])
    rows: list[Any] = []
    for number, entry in enumerate(entries):
        if number >= last:
            break
        if number >= first:
            rows.append(entry)
        if number % PORTION_COUNT == PORTION_COUNT - 1:
            yield
    return rows
