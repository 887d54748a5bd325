"""What commands print: a table in a terminal, plain lines in a pipe, JSON on request.

Objects are printed as JSON with all fields that the server has sent, so JSON never has less than the table. Plain
lines have the same columns as the table, separated by tabs, without a heading, with raw numbers, for `cut`, `sort`
and `awk`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TextIO

import msgspec

from recado.cli.terminal import (
    Colour,
    cut_text,
    escape_unprintable,
    is_coloured,
    paint,
    width_of,
    width_of_text,
)

GAP: Final = "  "
CELL_MIN_COUNT: Final = 12
"""Characters that a column keeps when a table is wider than the terminal."""
KEY_MIN_COUNT: Final = 20
"""As `CELL_MIN_COUNT`, for a column that names objects, which is reduced after all others."""

JsonObject = Mapping[str, Any]


class Form(Enum):
    """The form of the output."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"


class TableColumn(NamedTuple):
    """A column of a table: its title, how to read its value, and how to show it to a person."""

    title: str
    read: Callable[[JsonObject], Any]
    show: Callable[[Any], str] = str
    is_number: bool = False
    is_key: bool = False
    """Whether it names the object, so that other commands need it whole."""


def read_path(path: str) -> Callable[[JsonObject], Any]:
    """Return a function that reads a dotted path; None if a part is missing."""
    keys = path.split(".")

    def read(item: JsonObject) -> Any:
        value: Any = item
        for key in keys:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value

    return read


def text(title: str, path: str) -> TableColumn:
    return TableColumn(title, read_path(path), format_value)


def key(title: str, path: str) -> TableColumn:
    return TableColumn(title, read_path(path), format_value, is_key=True)


def count(title: str, path: str) -> TableColumn:
    return TableColumn(title, read_path(path), format_count, is_number=True)


def rate(title: str, path: str) -> TableColumn:
    return TableColumn(title, read_path(path), format_rate, is_number=True)


def byte_rate(title: str, path: str) -> TableColumn:
    return TableColumn(title, read_path(path), format_byte_rate, is_number=True)


def duration(title: str, path: str) -> TableColumn:
    return TableColumn(title, read_path(path), format_seconds, is_number=True)


def format_value(value: Any) -> str:
    """Return a JSON value as a person writes it: objects as `key=value`, those inside others in brackets."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return str(round(value, 2))
        case dict():
            return ", ".join(f"{key}={_format_inner(each)}" for key, each in sorted(value.items()))
        case list():
            return ", ".join(map(_format_inner, value))
        case _:
            return str(value)


def _format_inner(value: Any) -> str:
    match value:
        case dict():
            return f"{{{format_value(value)}}}"
        case list():
            return f"[{format_value(value)}]"
        case _:
            return format_value(value)


def format_count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else ""


def plural(number: int, noun: str) -> str:
    """Return `1 message`, `2 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def plural_or_unknown(number: int | None, noun: str) -> str:
    """As `plural`, also for None: the counts of new objects are missing in RabbitMQ's answers for some seconds."""
    return f"an unknown number of {noun}s" if number is None else plural(number, noun)


def format_rate(value: Any) -> str:
    if not isinstance(value, int | float):
        return ""
    return f"{value:,.0f}/s" if value >= 10 or value == 0 else f"{value:.1f}/s"


def format_seconds(value: Any) -> str:
    return f"{value:,.1f} s" if isinstance(value, int | float) else ""


def format_bytes(value: Any) -> str:
    """Return a size with a binary unit."""
    if not isinstance(value, int | float):
        return ""
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def format_byte_rate(value: Any) -> str:
    return f"{format_bytes(value)}/s" if isinstance(value, int | float) else ""


class Output:
    """Prints the results of one command to a stream, and notes for people to standard error."""

    def __init__(self, form: Form | None = None, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.form = form or (Form.TABLE if self._stream.isatty() else Form.PLAIN)
        self._is_coloured = self.form is Form.TABLE and is_coloured(self._stream)

    def table(
        self, columns: Sequence[TableColumn], items: Sequence[JsonObject], nothing: str
    ) -> None:
        """Print a list; `nothing` is the note for people if it is empty."""
        match self.form:
            case Form.JSON:
                self.json(items)
            case Form.PLAIN:
                for item in items:
                    cells = (_plain(column.read(item)) for column in columns)
                    self._write("\t".join(cells))
            case Form.TABLE if not items:
                print(nothing, file=sys.stderr)
            case Form.TABLE:
                for line in self.render(columns, items, width_of(self._stream)):
                    self._write(line)

    def fields(self, item: JsonObject, order: Sequence[str] = ()) -> None:
        """Print one object: its fields as lines, those of `order` first."""
        if self.form is Form.JSON:
            self.json(item)
            return
        names = [name for name in order if name in item]
        names += [name for name in item if name not in names]
        width = max(map(len, names), default=0)
        for name in names:
            if self.form is Form.PLAIN:
                self._write(f"{escape_unprintable(name)}\t{_plain(item[name])}")
                continue
            value = escape_unprintable(format_value(item[name]))
            title = f"{name:{width}}{GAP}" if value else name
            self._write(f"{paint(title, Colour.DIM, enabled=self._is_coloured)}{value}")

    def done(self, line: str, result: JsonObject) -> None:
        """Print the outcome of a change: a line for people, an object for programs."""
        if self.form is Form.JSON:
            self.json(result)
        else:
            self._write(escape_unprintable(line))

    def json(self, value: object) -> None:
        encoded = msgspec.json.format(msgspec.json.encode(value), indent=2)
        self._write(encoded.decode())

    def line(self, line: str) -> None:
        """Print a line as it is. The caller has escaped text from the network (`escape_unprintable`)."""
        self._write(line)

    def paint(self, content: str, colour: Colour) -> str:
        return paint(content, colour, enabled=self._is_coloured)

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")

    def render(
        self,
        columns: Sequence[TableColumn],
        items: Iterable[JsonObject],
        width: int,
        *,
        is_screen: bool = False,
    ) -> Iterator[str]:
        """Yield the lines of a table, whose columns are reduced to fit into a width.

        Lines that are too long nevertheless are cut for a screen, which must not wrap.
        """
        rows = [[_escape(column.show(column.read(item))) for column in columns] for item in items]
        titles = [column.title for column in columns]
        widths = [max(map(width_of_text, cells)) for cells in zip(titles, *rows, strict=True)]
        least = [KEY_MIN_COUNT if column.is_key else CELL_MIN_COUNT for column in columns]
        kept = [
            wide if column.is_key else few
            for column, wide, few in zip(columns, widths, least, strict=True)
        ]
        widths = fit(fit(widths, width, kept), width, least)
        for index, row in enumerate([titles, *rows]):
            line = _join(columns, row, widths)
            if is_screen:
                line = cut_text(line, width)
            yield line if index else self.paint(line, Colour.BOLD)


def fit(widths: Sequence[int], available: int, least: Sequence[int]) -> list[int]:
    """Return the widths of columns, the widest reduced until all fit or each has its least width.

    Each round cuts the widest column that can be cut, down to the second widest of these.
    """
    fitted = list(widths)
    excess = sum(fitted) + len(GAP) * (len(fitted) - 1) - available
    while excess > 0:
        reducible = [index for index, width in enumerate(fitted) if width > least[index]]
        if not reducible:
            break
        widest, *others = sorted(reducible, key=fitted.__getitem__, reverse=True)
        second = fitted[others[0]] if others else 0
        cut = min(excess, max(1, fitted[widest] - max(least[widest], second)))
        fitted[widest] -= cut
        excess -= cut
    return fitted


def _join(columns: Sequence[TableColumn], cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        short = cut_text(cell, width)
        space = " " * (width - width_of_text(short))
        padded.append(f"{space}{short}" if column.is_number else f"{short}{space}")
    return GAP.join(padded).rstrip()


def _escape(value: str) -> str:
    """Escape control characters and tabs, which would shift columns."""
    return escape_unprintable(value.replace("\t", "\\t"))


def _plain(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return _escape(value)
        case _:
            return _escape(msgspec.json.encode(value).decode().strip('"'))
