"""Errors of lake tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import PipelineError


class TableError(PipelineError):
    """A table cannot be accessed, or cannot take these rows."""


def unreachable_error(location: str, error: Exception) -> TableError:
    """Return the error for an object store that cannot be accessed.

    The lines of deltalake's message are joined, without colour codes.
    """
    lines = (re.sub(r"\x1b\[\d+m|↳", "", line).strip() for line in str(error).splitlines())
    why = ": ".join(line for line in lines if line)
    return TableError(f"{location} cannot be accessed: {why}; check the option storage")


def partition_mismatch_error(table: str, names: Sequence[str]) -> TableError:
    """Return the error for a table that is partitioned by other columns than those of `partitionBy`."""
    return TableError(
        f"{table} is partitioned by {', '.join(names) or 'no column'}: set the option partitionBy accordingly"
    )


def schema_mismatch_error(
    table: str, name: str, table_type: str | None, row_type: str
) -> TableError:
    """Return the error for a column that the table has with another type, or does not have."""
    if table_type is None:
        return TableError(
            f"{table} has no column {name} of type {row_type}; the option evolve=true adds it, "
            "or drop the column with select of the step translate"
        )
    return TableError(
        f"{table} has the column {name} as {table_type}, but the rows have {row_type}; convert it with "
        "the step translate"
    )
