"""Selectors: filter expressions over messages, with the syntax of an SQL WHERE condition.

    wanted = compile_predicate(parse("priority >= 3 AND routing_key LIKE 'orders.%'"))
    wanted(message)

errors.py      errors with the position in the text
tokenizer.py   text → tokens
fields.py      the fields that a selector can name
tree.py        the parsed selector
pattern.py     patterns of LIKE
type_check.py  types of operands
parser.py      tokens → checked tree
values.py      conversion of headers and JSON fields to the types of the language
predicate.py   tree → Python function
arrow.py       tree → pyarrow expression and residual
spark.py       tree → Spark SQL
"""

from .arrow import ArrowFilter, to_arrow_filter
from .errors import SelectorError
from .parser import parse
from .predicate import compile_predicate
from .spark import ARCHIVE_COLUMNS, to_spark_sql
from .tree import Selector

__all__ = [
    "ARCHIVE_COLUMNS",
    "ArrowFilter",
    "Selector",
    "SelectorError",
    "compile_predicate",
    "parse",
    "to_arrow_filter",
    "to_spark_sql",
]
