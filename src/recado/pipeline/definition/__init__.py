"""A pipeline as data, and whether it can run: without Spark, so that checking is instant. Only SQL needs Spark.

problems.py     what is wrong, where, and what to do
step.py         the steps
pipeline.py     sources, steps and sinks; how Python says them
files.py        how TOML, YAML and modules say them
fields.py       the fields of rows between steps
expression.py   SQL expressions without Spark; the port to Spark's analyser
impossible.py   selectors that nothing can satisfy
selection.py    which rows are meant, as SQL
formats.py      the formats of sources and sinks: options, fields
following.py    the fields behind each step, and what is wrong with it
checking.py     all of it
drawing.py      the pipeline as a text for people
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
