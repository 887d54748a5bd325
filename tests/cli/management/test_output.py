"""Tables, plain lines and JSON."""

from __future__ import annotations

import io
import json
import os
import pty

import pytest

from recado.cli.management.output import (
    Form,
    JsonObject,
    Output,
    count,
    fit,
    format_byte_rate,
    format_bytes,
    format_rate,
    format_value,
    key,
    plural,
    plural_or_unknown,
    text,
)

COLUMNS = (text("name", "name"), count("messages", "messages"), text("args", "arguments"))
ITEMS: list[JsonObject] = [
    {"name": "jobs", "messages": 12345, "arguments": {"x": True}, "more": 1},
    {"name": "a\x1b[31m\tb", "messages": None, "arguments": {}},
]


def render(form: Form) -> str:
    stream = io.StringIO()
    Output(form, stream).table(COLUMNS, ITEMS, "nothing")
    return stream.getvalue()


def test_a_table() -> None:
    assert render(Form.TABLE) == (
        "name          messages  args\njobs            12,345  x=yes\na\\x1b[31m\\tb\n"
    )


def test_wide_and_combining_characters() -> None:
    """Columns are aligned by what a terminal shows, not by the number of characters."""
    names = ("東京", "cafe\u0301", "x")
    lines = list(Output(Form.TABLE).render(COLUMNS, [{"name": name} for name in names], 80))
    items = [{"name": name, "messages": 1} for name in names]
    lines = list(Output(Form.TABLE).render(COLUMNS, items, 80))
    assert lines[1:] == ["東京         1", "cafe\u0301         1", "x            1"]
    long = [{"name": "東京" * 20, "messages": 1}]
    assert next(iter(list(Output(Form.TABLE).render(COLUMNS, long, 30))[1:])).startswith("東京東")


def test_counts_that_are_not_known_yet() -> None:
    assert plural_or_unknown(1, "message") == "1 message"
    assert plural_or_unknown(None, "message") == "an unknown number of messages"


def test_plain_lines() -> None:
    assert render(Form.PLAIN) == 'jobs\t12345\t{"x":true}\na\\x1b[31m\\tb\t\t{}\n'


def test_json_is_complete() -> None:
    assert json.loads(render(Form.JSON)) == ITEMS


def test_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    for form, printed in ((Form.TABLE, ""), (Form.PLAIN, ""), (Form.JSON, "[]\n")):
        stream = io.StringIO()
        Output(form, stream).table(COLUMNS, [], "nothing")
        assert stream.getvalue() == printed
    assert capsys.readouterr().err == "nothing\n", "people are told"


def test_fields_of_an_object() -> None:
    stream = io.StringIO()
    Output(Form.TABLE, stream).fields({"b": 1, "name": "q", "c": None}, ("name",))
    assert stream.getvalue() == "name  q\nb     1\nc\n"


def test_the_form_follows_the_stream() -> None:
    assert Output(None, io.StringIO()).form is Form.PLAIN
    control, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream, os.fdopen(control):
        assert Output(None, stream).form is Form.TABLE


@pytest.mark.parametrize(("no_color", "is_coloured"), [(None, True), ("1", False)])
def test_no_color(monkeypatch: pytest.MonkeyPatch, no_color: str | None, is_coloured: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    control, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        Output(None, stream).table(COLUMNS, ITEMS, "")
        stream.flush()
        printed = os.read(control, 10_000)
    os.close(control)
    assert (b"\x1b[1m" in printed) is is_coloured


def test_widths_are_reduced_to_the_terminal() -> None:
    least = [12, 12, 12]
    assert fit([10, 50, 40], 200, least) == [10, 50, 40]
    assert fit([10, 50, 40], 64, least) == [10, 25, 25]
    assert fit([10, 50, 40], 10, least) == [10, 12, 12], "no column vanishes"


def test_the_names_of_objects_are_cut_last() -> None:
    columns = (key("name", "name"), text("client", "client"), text("host", "host"))
    item = {"name": "n" * 40, "client": "c" * 30, "host": "h" * 20}

    def render(width: int) -> list[int]:
        (row,) = list(Output(Form.TABLE).render(columns, [item], width))[1:]
        return [len(cell) for cell in row.split()]

    assert render(94) == [40, 30, 20]
    assert render(70) == [40, 13, 13]
    assert render(60) == [32, 12, 12]
    assert render(20) == [20, 12, 12]


def test_values() -> None:
    assert format_value({"rate": 0.1 + 0.2}) == "rate=0.3"
    assert format_value({"a": [1, "b"], "c": {"d": False}}) == "a=[1, b], c={d=no}"
    assert [format_bytes(each) for each in (0, 1023, 1536, 1 << 40, None)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "1.0 TiB",
        "",
    ]
    assert [format_byte_rate(each) for each in (0, 2048.5, None)] == ["0 B/s", "2.0 KiB/s", ""]
    assert [format_rate(each) for each in (0.0, 0.25, 1234.5, None)] == [
        "0/s",
        "0.2/s",
        "1,234/s",
        "",
    ]
    assert (plural(1, "queue"), plural(2000, "queue")) == ("1 queue", "2,000 queues")
