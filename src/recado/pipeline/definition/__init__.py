"""A pipeline as data, and its checks. Nothing here needs Spark, so checking is instant; only SQL is left to
Spark.

problems.py          problems: location, message, hint
step.py              the steps
pipeline.py          sources, steps and sinks, and their Python API
loader.py            pipelines from TOML, YAML and modules
duration.py          durations such as `10 minutes`
fields.py            the fields of rows between steps
expression.py        SQL expressions without Spark; the port to Spark's analyser
satisfiability.py    selectors that no message can satisfy
condition.py         row conditions (SQL or selector) compiled to SQL
formats.py           the formats of sources and sinks: options and fields
schema_inference.py  the fields after each step, and the problems of the step
checker.py           all checks of a pipeline
description.py       a pipeline as text, for `recado pipeline explain`
"""

from .checker import check
from .loader import Draft, load, load_draft
from .pipeline import Pipeline, Sink, Source
from .problems import InvalidPipelineError, Problem
from .step import Branch, JsonField

__all__ = [
    "Branch",
    "Draft",
    "InvalidPipelineError",
    "JsonField",
    "Pipeline",
    "Problem",
    "Sink",
    "Source",
    "check",
    "load",
    "load_draft",
]
