"""Describe a pipeline as text: sources, steps, fields, sinks and their guarantees."""

from __future__ import annotations

from typing import Final

import msgspec

from ..options import redact_secrets
from .checker import CheckedPipeline
from .fields import Fields
from .step import Step, is_stateful, step_label

SINK_GUARANTEES: Final = {
    "parquet": "each row exactly once",
    "delta": "each row exactly once",
    "iceberg": "each row exactly once",
    "recado": "each row exactly once",
    "amqp": "each row at least once, with a stable message id",
    "console": "no guarantee",
}


def describe_pipeline(checked: CheckedPipeline) -> str:
    """Return the text of `recado pipeline explain`."""
    pipeline = checked.pipeline
    lines = [f"pipeline {pipeline.name}"]
    for name, source in pipeline.streaming_sources().items():
        lines.append(f"  from {name}: {source.format}{_describe_options(source.options)}")
    lines.append(f"       {checked.step_fields[0].to_text()}")
    for number, step in enumerate(pipeline.steps, 1):
        stateful = " (stateful)" if is_stateful(step) else ""
        lines.append(f"  {step_label(number, step)}{stateful}: {_describe_step(step)}")
        before, after = checked.step_fields[number - 1], checked.step_fields[number]
        if change := _describe_change(before, after):
            lines.append(f"       {change}")
    for name, sink in pipeline.sinks.items():
        what = "dead letters" if name == pipeline.dead_letters else "rows that steps send to it"
        what = "rows after the last step" if name in pipeline.output_sinks() else what
        lines.append(f"  into {name}: {sink.format}{_describe_options(sink.options)}: {what}")
        lines.append(f"       {SINK_GUARANTEES[sink.format]}")
    return "\n".join(lines)


def _describe_change(before: Fields, after: Fields) -> str:
    """Describe the fields that a step adds and removes."""
    added = {
        name: kind
        for name, kind in after.types.items()
        if name not in before or before.type_of(name) != kind
    }
    removed = [name for name in before.types if name not in after]
    if removed and len(removed) >= len(before.types) // 2:
        return f"= {after.to_text()}"
    parts = [f"+ {Fields(added).to_text()}"] if added else []
    parts += [f"- {', '.join(removed)}"] if removed else []
    return "; ".join(parts)


def _describe_step(step: Step) -> str:
    parts = []
    for field in msgspec.structs.fields(step):
        value = getattr(step, field.name)
        if value and value != field.default and field.name != "name":
            parts.append(f"{field.name}={_describe_value(value)}")
    return ", ".join(parts)


def _describe_value(value: object) -> str:
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, tuple | list) and all(isinstance(each, str) for each in value):
        return "[" + ", ".join(value) + "]"
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:
        return str(value)


def _describe_options(options: dict[str, str]) -> str:
    return "".join(f" {key}={value}" for key, value in redact_secrets(options).items())
