"""What both formats make of a schema of Spark's: columns that are asked for, and columns that are brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import OptionError
from .row_schema import select_columns, spark_type_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def check_read_schema(schema: StructType, known: pa.Schema, source: str) -> list[str]:
    """Return the columns that a user's schema selects. Raises OptionError for unknown columns and other types."""
    names = list(schema.fieldNames())
    try:
        known_types = spark_type_names(select_columns(known, names))
    except ValueError as error:
        raise OptionError(f'invalid schema for format("{source}"): {error}') from None
    for field in schema.fields:
        spark_type = field.dataType.simpleString()
        if spark_type != known_types[field.name]:
            raise OptionError(
                f'the schema declares {field.name} as {spark_type}, but in format("{source}") it is '
                f"{known_types[field.name]}: cast it after reading"
            )
    return names


def check_write_schema(schema: StructType, target: str, *, overwrite: bool) -> dict[str, str]:
    """Return Spark's type names of the columns to write. Raises OptionError for the mode overwrite."""
    if overwrite:
        raise OptionError(f"messages {target} cannot be overwritten: use mode append")
    return {field.name: field.dataType.simpleString() for field in schema.fields}
