"""Whether a pipeline can run: all that is wrong with it, told before anything is read or written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from .expression import Analyser, TokenCheck
from .fields import Fields
from .following import Follower, seconds_in
from .formats import check_checkpoint, check_dead_letters, check_sink, check_source
from .pipeline import AVAILABLE_NOW, Pipeline
from .problems import PipelineError, Problem, nearest, shown
from .step import Route, label

DEAD_LETTER: Final = Fields(
    {
        "pipeline": "string",
        "step": "string",
        "reason": "string",
        "row": "string",
        "at": "timestamp",
        "exchange": "string",
        "routing_key": "string",
        "message_id": "string",
        "headers": "map<string,string>",
        "body": "binary",
    }
)
"""What a dead letter is: where and why, the row as JSON as the step got it, and it as a message."""

_NAME: Final = re.compile(r"[\w.-]{1,64}")


class Checked(msgspec.Struct):
    """A pipeline that can run, as far as can be seen: the fields before each step and behind the last."""

    pipeline: Pipeline
    fields: list[Fields]
    sinks: dict[str, Fields]
    """The fields of what each sink gets."""


_TOKENS: Final = TokenCheck()


def check(pipeline: Pipeline, *, batch: bool = False, analyser: Analyser = _TOKENS) -> Checked:
    """Raises PipelineError with all problems, if there are any.

    Of SQL expressions only the tokens are checked, unless the `analyser` is that of
    `recado.pipeline.steps.analysis`.
    """
    checked, problems = examine(pipeline, batch=batch, analyser=analyser)
    if problems:
        raise PipelineError(pipeline.name, problems)
    return checked


def examine(
    pipeline: Pipeline, *, batch: bool, analyser: Analyser = _TOKENS
) -> tuple[Checked, list[Problem]]:
    problems = list(_of_the_whole(pipeline, batch=batch))
    streams, tables = [], {}
    for name in pipeline.sources:
        is_table = name in pipeline.tables()
        fields, wrong = check_source(pipeline, name, streaming=not (batch or is_table))
        problems += wrong
        if is_table:
            tables[name] = fields
        else:
            streams.append((name, fields))
    follower = Follower(tables, pipeline.sinks, not batch, analyser)
    fields = _united(streams, problems)
    passed = [fields]
    sent: dict[str, Fields] = {}
    first_dead = ""
    for number, step in enumerate(pipeline.steps, 1):
        found = follower.follow(number, step, fields)
        fields = found.fields
        passed.append(fields)
        sent |= found.sent
        if found.has_dead_letters and not first_dead:
            first_dead = label(number, step)
    sent |= dict.fromkeys(pipeline.ends(), fields)
    problems += follower.problems
    if not pipeline.ends():
        last = pipeline.steps[-1] if pipeline.steps else None
        if not isinstance(last, Route):
            hint = "a sink that no step names gets them: add one" if pipeline.sinks else ""
            problems.append(
                Problem(
                    "sinks", "nothing takes what comes out at the end", hint or "add [sinks.NAME]"
                )
            )
        first_dead = (
            first_dead or label(len(pipeline.steps), pipeline.steps[-1]) if pipeline.steps else ""
        )
    if pipeline.dead_letters in pipeline.sinks:
        sent[pipeline.dead_letters] = DEAD_LETTER
        problems += check_dead_letters(pipeline)
    elif first_dead:
        what = f"{first_dead} may have rows that it cannot handle, and there is no sink for them"
        hint = f'add [sinks.{pipeline.dead_letters}], such as format = "parquet"'
        problems.append(Problem("dead letters", what, hint))
    for name, sink in pipeline.sinks.items():
        problems += check_sink(name, sink, sent.get(name, fields))
    return Checked(pipeline, passed, sent), problems


def check_name(place: str, name: str) -> Iterator[Problem]:
    """It becomes part of the names of folders."""
    if not _NAME.fullmatch(name):
        yield Problem(place, f"{shown(name)} is no name", "letters, digits, . - _, 64 at most")


def _of_the_whole(pipeline: Pipeline, *, batch: bool) -> list[Problem]:
    found = [*check_name("name", pipeline.name)]
    for name in pipeline.sources:
        found += check_name("sources", name)
    for name in pipeline.sinks:
        found += check_name("sinks", name)
    if not pipeline.streams():
        hint = 'add [sources.NAME], such as format = "recado"'
        found.append(Problem("sources", "there is none to read from", hint))
    if (
        pipeline.trigger
        and pipeline.trigger != AVAILABLE_NOW
        and seconds_in(pipeline.trigger) is None
    ):
        hint = nearest(pipeline.trigger, [AVAILABLE_NOW], 'write "5 seconds" or')
        found.append(Problem("trigger", f"{pipeline.trigger!r} is no time", hint))
    if not batch and not pipeline.checkpoint:
        found.append(
            Problem("checkpoint", "a stream needs a folder for it", 'checkpoint = "state"')
        )
    found += check_checkpoint(pipeline)
    if pipeline.dead_letters in pipeline.branches():
        what = f"{pipeline.dead_letters} is for dead letters, and a step sends rows there"
        found.append(Problem("sinks", what, "the step dead_letter does that"))
    return found


def _united(streams: list[tuple[str, Fields]], problems: list[Problem]) -> Fields:
    """Sources that flow together must have the same fields."""
    if not streams:
        return Fields({}, open=True)
    (first, fields), *others = streams
    for name, other in others:
        if fields.open or other.open:
            continue
        for column in {*fields.types} ^ {*other.types}:
            what = f"{column} is a field of only one of the sources {first} and {name}"
            problems.append(Problem(f"source {name}", what, "sources that flow together are alike"))
            return fields
    return fields
