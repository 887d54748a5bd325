"""The base of all exceptions of pipelines, and those that belong to no single module."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all errors of `recado.pipeline`."""


class DataLossError(PipelineError):
    """Rows that should be read were deleted. With the option failOnDataLoss=false the query continues."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; to continue without these rows, set failOnDataLoss to false")
