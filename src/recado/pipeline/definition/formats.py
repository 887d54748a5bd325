"""The formats of sources and sinks: which options they take, and which fields they give.

Formats that are Spark's own are left to Spark, but for those whose fields can be known before it runs: a
Parquet file says them itself, and the key `schema` says them for any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from ..lake.settings import (
    ConsoleOptions,
    DeltaOptions,
    DeltaSource,
    IcebergOptions,
    IcebergSource,
    TableOptions,
    check_catalogue,
    check_parquet_path,
    check_table_location,
)
from ..location import folder_of, is_local
from ..options import OptionError, has_option, read
from ..rows import FEED, QUEUE, ddl
from .fields import UNKNOWN, Fields, NoType, from_ddl, plain
from .pipeline import Pipeline, Sink, Source
from .problems import Problem, nearest, shown

SCHEMA: Final = "schema"
"""The key of a source that says its fields: `id bigint, name string`."""
LAKE: Final = ("parquet", "delta", "iceberg")
SINKS: Final = (*LAKE, "amqp", "recado", "console")
_BATCH_ONLY: Final = ("delta", "iceberg")
_OF_SPARK: Final = (
    "parquet", "json", "csv", "text", "orc", "xml", "binaryFile", "jdbc", "kafka", "rate", "rate-micro-batch",
    "socket",
)  # fmt: skip
_ARROW: Final = {
    pa.string(): "string", pa.large_string(): "string", pa.binary(): "binary", pa.bool_(): "boolean",
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp", pa.timestamp("us"): "timestamp_ntz",
}  # fmt: skip


# --- sources -------------------------------------------------------------------------------------


def options_of(pipeline: Pipeline, name: str) -> dict[str, str]:
    """The options of a source as Spark is given them: a queue is spooled beside the checkpoint."""
    source = pipeline.sources[name]
    options = {key: value for key, value in source.options.items() if key != SCHEMA}
    is_spooled = has_option(options, "spool")
    if source.format == "amqp" and not is_spooled and pipeline.has_local_checkpoint:
        options["spool"] = str(folder_of(pipeline.checkpoint) / "spool" / name)
    return options


def check_source(pipeline: Pipeline, name: str, *, streaming: bool) -> tuple[Fields, list[Problem]]:
    """The fields of its rows, and what is wrong with it."""
    source, place = pipeline.sources[name], f"source {name}"
    known = ("recado", *(_OF_SPARK if streaming else (*_OF_SPARK, *_BATCH_ONLY)), "amqp")
    if source.format in _BATCH_ONLY and streaming:
        hint = "a step may enrich from it, or it is read with --batch"
        return UNKNOWN, [Problem(place, f"{source.format} is no stream", hint)]
    if source.format not in known and "." not in source.format:
        what = f"there is no format {source.format!r}"
        return UNKNOWN, [Problem(place, what, nearest(source.format, known))]
    if source.format == "amqp" and not streaming:
        hint = "a queue is read as a stream, by --available-now until it is empty"
        return UNKNOWN, [Problem(place, "a queue is no table", hint)]
    options = options_of(pipeline, name)
    try:
        _check_options(source.format, options, streaming=streaming)
        problems = []
    except OptionError as error:
        problems = [Problem(place, str(error))]
    try:
        return _fields_of(source, options), problems
    except NoType as error:
        hint = "write it like id bigint, name string"
        return UNKNOWN, [
            Problem(place, f"schema cannot be understood at {shown(str(error))}", hint)
        ]


def _check_options(format_: str, options: Mapping[str, str], *, streaming: bool) -> None:
    match format_:
        case "recado":
            from ..feed.options import reading

            reading(options, streaming=streaming)
        case "amqp":
            from ..queue.settings import SourceOptions, checked_url

            asked = read(SourceOptions, "amqp", options)
            checked_url(asked.url)
            folder_of(asked.spool)
        case "delta":
            check_table_location("path", read(DeltaSource, "delta", options).path)
        case "iceberg":
            check_catalogue(read(IcebergSource, "iceberg", options))
        case _:
            pass  # Spark's own, which Spark checks


def _fields_of(source: Source, options: Mapping[str, str]) -> Fields:
    if SCHEMA in source.options:
        return from_ddl(source.options[SCHEMA])
    match source.format:
        case "recado":
            return from_ddl(ddl(FEED))
        case "amqp":
            return from_ddl(ddl(QUEUE))
        case "rate" | "rate-micro-batch":
            return Fields({"timestamp": "timestamp", "value": "bigint"})
        case "text":
            return Fields({"value": "string"}, open=True)  # and the columns of its folders
        case "parquet":
            return _fields_of_parquet(options.get("path", ""))
        case _:
            return UNKNOWN


def _fields_of_parquet(path: str) -> Fields:
    """Those of the first file, if it can be seen from here; folders may have more."""
    import pyarrow.parquet as pq

    place = Path(path)
    files: Iterator[Path] = iter([place] if place.is_file() else sorted(place.rglob("*.parquet")))
    first = next(files, None)
    if not path or first is None:
        return UNKNOWN
    return from_arrow(pq.read_schema(first), open_=not place.is_file())


def from_arrow(schema: pa.Schema, *, open_: bool = False) -> Fields:
    return Fields({field.name: _ARROW.get(field.type) for field in schema}, open_)


# --- sinks ---------------------------------------------------------------------------------------


def check_sink(name: str, sink: Sink, fields: Fields) -> Iterator[Problem]:
    """What is wrong with a sink for rows of these fields."""
    if sink.format not in SINKS:
        what = f"there is no format {sink.format!r}"
        yield Problem(f"sink {name}", what, nearest(sink.format, SINKS))
        return
    try:
        _CHECKS[sink.format](sink.options, fields)
    except OptionError as error:
        yield Problem(f"sink {name}", str(error))


def check_dead_letters(pipeline: Pipeline) -> Iterator[Problem]:
    """They must not come back to where they are from: they would be dead letters again, for ever."""
    sink = pipeline.sinks[pipeline.dead_letters]
    options = _lower(sink.options)
    place = f"sink {pipeline.dead_letters}"
    if sink.format == "amqp":
        for option in ("exchange", "routingKey"):
            if option.lower() not in options:
                what = f"dead letters need the option {option}"
                yield Problem(place, what, "or they go back to where they are from")
    for name, source in pipeline.streams().items():
        told = _lower(source.options)
        match sink.format, source.format:
            case "amqp", "amqp":
                way = (told.get("url"), "", told.get("queue"))
                loops = way == tuple(
                    options.get(each) for each in ("url", "exchange", "routingkey")
                )
            case "recado", "recado":
                loops = options.get("feed", "") == (
                    told.get("feed") or _feed_at(told.get("path", ""))
                )
            case _:
                loops = False
        if loops:
            what = f"dead letters go back to where they are from, the source {name}"
            yield Problem(place, what, "send them elsewhere")


def check_checkpoint(pipeline: Pipeline) -> Iterator[Problem]:
    """A feed as a sink keeps files of this machine, in the checkpoint unless the option staging says where."""
    if not pipeline.checkpoint:
        return
    if is_local(pipeline.checkpoint):
        try:
            folder_of(pipeline.checkpoint)
        except OptionError as error:
            yield Problem("checkpoint", str(error))
        return
    for name, sink in pipeline.sinks.items():
        if sink.format == "recado" and not has_option(sink.options, "staging"):
            what = "it needs the option staging, a folder that all machines mount"
            hint = f"the checkpoint {pipeline.checkpoint} is on a file system that only Spark reads"
            yield Problem(f"sink {name}", what, hint)


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    """Options have no case."""
    return {key.lower(): value for key, value in options.items()}


def _feed_at(path: str) -> str | None:
    """Of which feed the archive is, if it can be seen from here."""
    from recado.feeds.archive.archive import Archive
    from recado.feeds.archive.errors import ArchiveError

    try:
        with Archive.open(folder_of(path)) as archive:
            return archive.feed
    except (ArchiveError, OSError, OptionError):
        return None


def _check_parquet(options: Mapping[str, str], fields: Fields) -> None:
    asked = read(TableOptions, "parquet", options)
    check_parquet_path(asked.path)
    _check_layout(asked, fields)


def _check_delta(options: Mapping[str, str], fields: Fields) -> None:
    asked = read(DeltaOptions, "delta", options)
    check_table_location("path", asked.path)
    _check_layout(asked, fields)
    _refuse_variants("delta", fields)


def _check_layout(asked: TableOptions, fields: Fields) -> None:
    for column in filter(None, asked.partition_by.split(",")):
        _refuse_unknown("partitionBy", column.strip(), fields)


def _check_iceberg(options: Mapping[str, str], fields: Fields) -> None:
    asked = read(IcebergOptions, "iceberg", options)
    if asked.table.count(".") != 1:
        raise OptionError(f"option table is {asked.table!r}: write NAMESPACE.NAME")
    check_catalogue(asked)
    _refuse_variants("iceberg", fields)


def _check_console(options: Mapping[str, str], _: Fields) -> None:
    read(ConsoleOptions, "console", options)


def _check_exchange(options: Mapping[str, str], fields: Fields) -> None:
    from ..queue.rendering import checked_columns
    from ..queue.settings import SinkOptions, checked_url

    asked = read(SinkOptions, "amqp", options)
    checked_url(asked.url)
    _check_message(fields)
    if not fields.open:
        checked_columns(asked, fields.types)


def _check_feed(options: Mapping[str, str], fields: Fields) -> None:
    from ..feed.options import checked_columns, writing

    asked = writing(options)
    if asked.staging is not None:
        folder_of(asked.staging)
    _check_message(fields)
    if not fields.open:
        checked_columns(asked, fields.types)


def _check_message(fields: Fields) -> None:
    if "body" not in fields:
        if not fields.open:
            raise OptionError(
                'messages need a column body; the step translate makes one: body = ["…"]'
            )
    elif plain(fields.type_of("body")) not in ("binary", "string", None):
        raise OptionError(f"body is {fields.type_of('body')}: it must be binary or string")


def _refuse_unknown(option: str, column: str, fields: Fields) -> None:
    if column not in fields and not fields.open:
        hint = nearest(column, fields.types)
        raise OptionError(f"option {option} names {column}, and there is no such field; {hint}")


def _refuse_variants(format_: str, fields: Fields) -> None:
    for name, kind in fields.types.items():
        if kind is not None and "variant" in kind:
            raise OptionError(f"{format_} cannot keep {name}, a variant; give it a type")


_CHECKS: Final = {
    "parquet": _check_parquet,
    "delta": _check_delta,
    "iceberg": _check_iceberg,
    "console": _check_console,
    "amqp": _check_exchange,
    "recado": _check_feed,
}
