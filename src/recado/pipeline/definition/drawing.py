"""A pipeline as a text for people: what goes where, with which fields, and what is promised of each sink."""

from __future__ import annotations

from typing import Final

import msgspec

from ..options import without_secrets
from .checking import Checked
from .fields import Fields
from .step import Step, is_stateful, label

PROMISES: Final = {
    "parquet": "each row once",
    "delta": "each row once",
    "iceberg": "each row once",
    "recado": "each row once",
    "amqp": "each row at least once, with the same id",
    "console": "as it comes",
}


def drawn(checked: Checked) -> str:
    pipeline = checked.pipeline
    lines = [f"pipeline {pipeline.name}"]
    for name, source in pipeline.streams().items():
        lines.append(f"  from {name}: {source.format}{_told(source.options)}")
    lines.append(f"       {checked.fields[0].text()}")
    for number, step in enumerate(pipeline.steps, 1):
        remembers = ", remembers" if is_stateful(step) else ""
        lines.append(f"  {label(number, step)}{remembers}: {_options(step)}")
        before, behind = checked.fields[number - 1], checked.fields[number]
        if change := _change(before, behind):
            lines.append(f"       {change}")
    for name, sink in pipeline.sinks.items():
        what = "dead letters" if name == pipeline.dead_letters else "what steps send there"
        what = "what comes out" if name in pipeline.ends() else what
        lines.append(f"  into {name}: {sink.format}{_told(sink.options)}: {what}")
        lines.append(f"       {PROMISES[sink.format]}")
    return "\n".join(lines)


def _change(before: Fields, behind: Fields) -> str:
    """The fields that a step adds and takes away."""
    added = {
        name: kind
        for name, kind in behind.types.items()
        if name not in before or before.type_of(name) != kind
    }
    gone = [name for name in before.types if name not in behind]
    if gone and len(gone) >= len(before.types) // 2:
        return f"= {behind.text()}"
    parts = [f"+ {Fields(added).text()}"] if added else []
    parts += [f"- {', '.join(gone)}"] if gone else []
    return "; ".join(parts)


def _options(step: Step) -> str:
    said = []
    for field in msgspec.structs.fields(step):
        value = getattr(step, field.name)
        if value and value != field.default and field.name != "name":
            said.append(f"{field.name}={_value(value)}")
    return ", ".join(said)


def _value(value: object) -> str:
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, tuple | list) and all(isinstance(each, str) for each in value):
        return "[" + ", ".join(value) + "]"
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:
        return str(value)


def _told(options: dict[str, str]) -> str:
    return "".join(f" {key}={value}" for key, value in without_secrets(options).items())
