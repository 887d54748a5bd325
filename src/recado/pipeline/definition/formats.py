"""The formats of sources and sinks: their options, and the fields of their rows.

Options of Spark's own formats are left to Spark. The fields of their rows are known for `rate` and `text`, and
otherwise only from a local Parquet file or the key `schema`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from ..lake.options import (
    ConsoleOptions,
    DeltaOptions,
    DeltaSourceOptions,
    IcebergOptions,
    IcebergSourceOptions,
    ParquetOptions,
    check_catalogue,
    check_parquet_path,
    check_table_location,
)
from ..location import is_local, to_local_path
from ..options import OptionError, has_option, parse_options
from ..row_schema import FEED_SCHEMA, QUEUE_SCHEMA, to_ddl
from .fields import UNKNOWN_FIELDS, Fields, UnknownTypeError, base_type, parse_ddl
from .pipeline import Pipeline, Sink, Source
from .problems import Problem, quote_excerpt, suggest_name

SCHEMA_OPTION: Final = "schema"
"""The key of a source that declares its fields: `id bigint, name string`."""
LAKE_FORMATS: Final = ("parquet", "delta", "iceberg")
SINK_FORMATS: Final = (*LAKE_FORMATS, "amqp", "recado", "console")
_BATCH_ONLY_FORMATS: Final = ("delta", "iceberg")
_SPARK_FORMATS: Final = (
    "parquet", "json", "csv", "text", "orc", "xml", "binaryFile", "jdbc", "kafka", "rate", "rate-micro-batch",
    "socket",
)  # fmt: skip
_ARROW_TO_SPARK: Final = {
    pa.string(): "string", pa.large_string(): "string", pa.binary(): "binary", pa.bool_(): "boolean",
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp", pa.timestamp("us"): "timestamp_ntz",
}  # fmt: skip


# --- sources -------------------------------------------------------------------------------------


def source_options(pipeline: Pipeline, name: str) -> dict[str, str]:
    """Return the options of a source for Spark. The default spool of a queue is in the checkpoint."""
    source = pipeline.sources[name]
    options = {key: value for key, value in source.options.items() if key != SCHEMA_OPTION}
    has_spool = has_option(options, "spool")
    if source.format == "amqp" and not has_spool and pipeline.has_local_checkpoint:
        options["spool"] = str(to_local_path(pipeline.checkpoint) / "spool" / name)
    return options


def check_source(
    pipeline: Pipeline, name: str, *, is_streaming: bool
) -> tuple[Fields, list[Problem]]:
    """Return the fields of a source's rows, and its problems."""
    source, location = pipeline.sources[name], f"source {name}"
    known = (
        "recado",
        *(_SPARK_FORMATS if is_streaming else (*_SPARK_FORMATS, *_BATCH_ONLY_FORMATS)),
        "amqp",
    )
    if source.format in _BATCH_ONLY_FORMATS and is_streaming:
        hint = "use it as the table of a step enrich, or run with --batch"
        return UNKNOWN_FIELDS, [
            Problem(location, f"{source.format} cannot be read as a stream", hint)
        ]
    if source.format not in known and "." not in source.format:  # with a dot: a class of Spark's
        what = f"there is no format {source.format!r}"
        return UNKNOWN_FIELDS, [Problem(location, what, suggest_name(source.format, known))]
    if source.format == "amqp" and not is_streaming:
        hint = "run the pipeline as a stream; --available-now stops when the queue is read"
        return UNKNOWN_FIELDS, [Problem(location, "a queue cannot be read as a batch", hint)]
    options = source_options(pipeline, name)
    try:
        _check_options(source.format, options, is_streaming=is_streaming)
        problems = []
    except OptionError as error:
        problems = [Problem(location, str(error))]
    try:
        return _source_fields(source, options), problems
    except UnknownTypeError as error:
        hint = "write for example id bigint, name string"
        return UNKNOWN_FIELDS, [
            Problem(location, f"invalid type in schema: {quote_excerpt(str(error))}", hint)
        ]


def _check_options(format_: str, options: Mapping[str, str], *, is_streaming: bool) -> None:
    match format_:
        case "recado":
            from ..feed.options import parse_read_options

            parse_read_options(options, is_streaming=is_streaming)
        case "amqp":
            from ..queue.options import QueueReadOptions, parse_broker_url

            parsed = parse_options(QueueReadOptions, "amqp", options)
            parse_broker_url(parsed.url)
            to_local_path(parsed.spool)
        case "delta":
            check_table_location("path", parse_options(DeltaSourceOptions, "delta", options).path)
        case "iceberg":
            check_catalogue(parse_options(IcebergSourceOptions, "iceberg", options))
        case _:
            pass  # Spark checks the options of its own formats


def _source_fields(source: Source, options: Mapping[str, str]) -> Fields:
    if SCHEMA_OPTION in source.options:
        return parse_ddl(source.options[SCHEMA_OPTION])
    match source.format:
        case "recado":
            return parse_ddl(to_ddl(FEED_SCHEMA))
        case "amqp":
            return parse_ddl(to_ddl(QUEUE_SCHEMA))
        case "rate" | "rate-micro-batch":
            return Fields({"timestamp": "timestamp", "value": "bigint"})
        case "text":
            return Fields({"value": "string"}, is_open=True)  # partition columns are added
        case "parquet":
            return _parquet_fields(options.get("path", ""))
        case _:
            return UNKNOWN_FIELDS


def _parquet_fields(path: str) -> Fields:
    """Return the fields of the first file, if it is local; other files of a folder may have more."""
    import pyarrow.parquet as pq

    local = Path(path)
    files: Iterator[Path] = iter([local] if local.is_file() else sorted(local.rglob("*.parquet")))
    first = next(files, None)
    if not path or first is None:
        return UNKNOWN_FIELDS
    return fields_from_arrow(pq.read_schema(first), is_open=not local.is_file())


def fields_from_arrow(schema: pa.Schema, *, is_open: bool = False) -> Fields:
    return Fields({field.name: _ARROW_TO_SPARK.get(field.type) for field in schema}, is_open)


# --- sinks ---------------------------------------------------------------------------------------


def check_sink(name: str, sink: Sink, fields: Fields) -> Iterator[Problem]:
    """Yield the problems of a sink for rows with these fields."""
    if sink.format not in SINK_FORMATS:
        what = f"there is no format {sink.format!r}"
        yield Problem(f"sink {name}", what, suggest_name(sink.format, SINK_FORMATS))
        return
    try:
        _SINK_CHECKS[sink.format](sink.options, fields)
    except OptionError as error:
        yield Problem(f"sink {name}", str(error))


def check_dead_letters(pipeline: Pipeline) -> Iterator[Problem]:
    """Yield a problem if dead letters would return to their source and become dead letters again."""
    sink = pipeline.sinks[pipeline.dead_letters]
    options = _lowercase_keys(sink.options)
    location = f"sink {pipeline.dead_letters}"
    if sink.format == "amqp":
        for option in ("exchange", "routingKey"):
            if option.lower() not in options:
                message = f"dead letters need the option {option}"
                yield Problem(location, message, "otherwise they return to their source")
    for name, source in pipeline.streaming_sources().items():
        source_options = _lowercase_keys(source.options)
        match sink.format, source.format:
            case "amqp", "amqp":
                target = (source_options.get("url"), "", source_options.get("queue"))
                loops = target == tuple(
                    options.get(each) for each in ("url", "exchange", "routingkey")
                )
            case "recado", "recado":
                loops = options.get("feed", "") == (
                    source_options.get("feed") or _feed_of_archive(source_options.get("path", ""))
                )
            case _:
                loops = False
        if loops:
            message = f"dead letters return to their source {name}"
            yield Problem(location, message, "use another target")


def check_checkpoint(pipeline: Pipeline) -> Iterator[Problem]:
    """Yield problems of the checkpoint.

    A sink that is a feed needs local files, in the checkpoint or in `staging`.
    """
    if not pipeline.checkpoint:
        return
    if is_local(pipeline.checkpoint):
        try:
            to_local_path(pipeline.checkpoint)
        except OptionError as error:
            yield Problem("checkpoint", str(error))
        return
    for name, sink in pipeline.sinks.items():
        if sink.format == "recado" and not has_option(sink.options, "staging"):
            what = "the option staging is required: a folder that all machines mount"
            hint = f"the checkpoint {pipeline.checkpoint} is on a file system that only Spark can access"
            yield Problem(f"sink {name}", what, hint)


def _lowercase_keys(options: Mapping[str, str]) -> dict[str, str]:
    """Option names are case-insensitive."""
    return {key.lower(): value for key, value in options.items()}


def _feed_of_archive(path: str) -> str | None:
    """Return the feed of an archive; None if the archive is not accessible from here."""
    from recado.feeds.archive.archive import Archive
    from recado.feeds.archive.errors import ArchiveError

    try:
        with Archive.open(to_local_path(path)) as archive:
            return archive.feed
    except (ArchiveError, OSError, OptionError):
        return None


def _check_parquet(options: Mapping[str, str], fields: Fields) -> None:
    parsed = parse_options(ParquetOptions, "parquet", options)
    check_parquet_path(parsed.path)
    _check_partition_by(parsed, fields)


def _check_delta(options: Mapping[str, str], fields: Fields) -> None:
    parsed = parse_options(DeltaOptions, "delta", options)
    check_table_location("path", parsed.path)
    _check_partition_by(parsed, fields)
    _reject_variants("delta", fields)


def _check_partition_by(parsed: ParquetOptions, fields: Fields) -> None:
    for column in filter(None, parsed.partition_by.split(",")):
        _require_field("partitionBy", column.strip(), fields)


def _check_iceberg(options: Mapping[str, str], fields: Fields) -> None:
    parsed = parse_options(IcebergOptions, "iceberg", options)
    if parsed.table.count(".") != 1:
        raise OptionError(f"option table is {parsed.table!r}: write NAMESPACE.NAME")
    check_catalogue(parsed)
    _reject_variants("iceberg", fields)


def _check_console(options: Mapping[str, str], _: Fields) -> None:
    parse_options(ConsoleOptions, "console", options)


def _check_amqp(options: Mapping[str, str], fields: Fields) -> None:
    from ..queue.options import QueueWriteOptions, parse_broker_url
    from ..queue.row_encoder import resolve_id_columns

    parsed = parse_options(QueueWriteOptions, "amqp", options)
    parse_broker_url(parsed.url)
    _check_body(fields)
    if not fields.is_open:
        resolve_id_columns(parsed, fields.types)


def _check_recado(options: Mapping[str, str], fields: Fields) -> None:
    from ..feed.options import parse_write_options, resolve_id_columns

    parsed = parse_write_options(options)
    if parsed.staging is not None:
        to_local_path(parsed.staging)
    _check_body(fields)
    if not fields.is_open:
        resolve_id_columns(parsed, fields.types)


def _check_body(fields: Fields) -> None:
    if "body" not in fields:
        if not fields.is_open:
            raise OptionError(
                'messages need a column body; make one with the step translate: body = ["…"]'
            )
    elif base_type(fields.type_of("body")) not in ("binary", "string", None):
        raise OptionError(f"body is {fields.type_of('body')}: it must be binary or string")


def _require_field(option: str, column: str, fields: Fields) -> None:
    if column not in fields and not fields.is_open:
        hint = suggest_name(column, fields.types)
        raise OptionError(f"option {option} names {column}, but there is no such field; {hint}")


def _reject_variants(format_: str, fields: Fields) -> None:
    for name, kind in fields.types.items():
        if kind is not None and "variant" in kind:
            raise OptionError(
                f"{format_} cannot store the variant column {name}; convert it to another type"
            )


_SINK_CHECKS: Final = {
    "parquet": _check_parquet,
    "delta": _check_delta,
    "iceberg": _check_iceberg,
    "console": _check_console,
    "amqp": _check_amqp,
    "recado": _check_recado,
}
