"""The headers and properties of an archive's table, as functions on its columns: Arrow in, Arrow out."""

from __future__ import annotations

from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from .row_schema import FEED_SCHEMA, decode_header_column, decode_property_column

# Types, not their names: to read a name takes a Spark that runs. PySpark's stubs ask for the kind of function,
# too, and PySpark warns whoever tells it.
_HEADERS_TYPE = from_arrow_type(FEED_SCHEMA.field("headers").type)
_PROPERTIES_TYPE = from_arrow_type(FEED_SCHEMA.field("properties").type)

recado_headers = arrow_udf(decode_header_column, _HEADERS_TYPE)  # type: ignore[call-overload]
"""Bytes of an AMQP table as a map of texts."""
recado_properties = arrow_udf(decode_property_column, _PROPERTIES_TYPE)  # type: ignore[call-overload]
"""Bytes of an AMQP property list as a struct."""
