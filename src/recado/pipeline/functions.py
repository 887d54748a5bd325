"""The headers and properties of an archive's table, as functions on its columns: Arrow in, Arrow out."""

from __future__ import annotations

from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from .rows import FEED, headers_from, properties_from

# Types, not their names: to read a name takes a Spark that runs. PySpark's stubs ask for the kind of function,
# too, and PySpark warns whoever tells it.
_TEXTS = from_arrow_type(FEED.field("headers").type)
_FIELDS = from_arrow_type(FEED.field("properties").type)

recado_headers = arrow_udf(headers_from, _TEXTS)  # type: ignore[call-overload]
"""Bytes of an AMQP table as a map of texts."""
recado_properties = arrow_udf(properties_from, _FIELDS)  # type: ignore[call-overload]
"""Bytes of an AMQP property list as a struct."""
