"""Pipelines on Spark: sources, sinks, steps and built-in pipelines. The only package that imports pyspark.

The public names are imported on first use, so checking a pipeline starts no Spark and needs no Java.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .archive_table import table as table
    from .checkpoint import CheckpointError as CheckpointError
    from .definition import Branch as Branch
    from .definition import InvalidPipelineError as InvalidPipelineError
    from .definition import JsonField as JsonField
    from .definition import Pipeline as Pipeline
    from .definition import Problem as Problem
    from .definition import Sink as Sink
    from .definition import Source as Source
    from .definition import check as check
    from .definition import load as load
    from .errors import DataLossError as DataLossError
    from .errors import PipelineError as PipelineError
    from .functions import recado_headers as recado_headers
    from .functions import recado_properties as recado_properties
    from .java import JavaNotFoundError as JavaNotFoundError
    from .lake.errors import TableError as TableError
    from .options import OptionError as OptionError
    from .report import PipelineReport as PipelineReport
    from .report import SourceReport as SourceReport
    from .runner import PipelineFailedError as PipelineFailedError
    from .runner import run as run
    from .runner import start as start
    from .session import register as register
    from .session import spark_session as spark_session
    from .steps.traversal import preview as preview

_PUBLIC_NAMES: Final = {
    "archive_table": "table",
    "checkpoint": "CheckpointError",
    "definition": "Branch InvalidPipelineError JsonField Pipeline Problem Sink Source check load",
    "errors": "DataLossError PipelineError",
    "functions": "recado_headers recado_properties",
    "java": "JavaNotFoundError",
    "lake.errors": "TableError",
    "options": "OptionError",
    "report": "PipelineReport SourceReport",
    "runner": "PipelineFailedError run start",
    "session": "register spark_session",
    "steps.traversal": "preview",
}
_MODULES: Final = {
    name: module for module, names in _PUBLIC_NAMES.items() for name in names.split()
}
__all__ = [
    "Branch",
    "CheckpointError",
    "DataLossError",
    "InvalidPipelineError",
    "JavaNotFoundError",
    "JsonField",
    "OptionError",
    "Pipeline",
    "PipelineError",
    "PipelineFailedError",
    "PipelineReport",
    "Problem",
    "Sink",
    "Source",
    "SourceReport",
    "TableError",
    "check",
    "load",
    "preview",
    "recado_headers",
    "recado_properties",
    "register",
    "run",
    "spark_session",
    "start",
    "table",
]


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
