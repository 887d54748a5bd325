"""Pipelines on Spark: sources, sinks, steps and built-in pipelines. The only package that imports pyspark.

The public names are imported on first use, so checking a pipeline starts no Spark and needs no Java.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .definition import Branch as Branch
    from .definition import InvalidPipelineError as InvalidPipelineError
    from .definition import JsonField as JsonField
    from .definition import Pipeline as Pipeline
    from .definition import Sink as Sink
    from .definition import Source as Source
    from .definition import check as check
    from .definition import load as load
    from .runner import run as run
    from .session import register as register
    from .session import spark_session as spark_session

_HOMES: Final = {
    **dict.fromkeys(
        (
            "Branch",
            "InvalidPipelineError",
            "JsonField",
            "Pipeline",
            "Sink",
            "Source",
            "check",
            "load",
        ),
        "definition",
    ),
    "run": "runner",
    "register": "session",
    "spark_session": "session",
}
__all__ = [
    "Branch",
    "InvalidPipelineError",
    "JsonField",
    "Pipeline",
    "Sink",
    "Source",
    "check",
    "load",
    "register",
    "run",
    "spark_session",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
