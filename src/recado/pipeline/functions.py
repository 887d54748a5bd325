"""Column functions that decode the headers and properties of an archive's table, one Arrow batch at a time."""

from __future__ import annotations

from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from .row_schema import FEED_SCHEMA, decode_header_column, decode_property_column

# The return types are objects, because parsing the name of a type needs a running Spark. PySpark's stubs require
# the function type as well, but passing it causes a warning.
_HEADERS_TYPE = from_arrow_type(FEED_SCHEMA.field("headers").type)
_PROPERTIES_TYPE = from_arrow_type(FEED_SCHEMA.field("properties").type)

recado_headers = arrow_udf(decode_header_column, _HEADERS_TYPE)  # type: ignore[call-overload]
"""Decode a column of AMQP tables (binary) to maps of strings."""
recado_properties = arrow_udf(decode_property_column, _PROPERTIES_TYPE)  # type: ignore[call-overload]
"""Decode a column of AMQP property lists (binary) to structs."""
