"""The selector: which messages are wanted, said in a line of text that can do nothing else.

errors.py      what is wrong with a text, and where
tokens.py      text → tokens
fields.py      the fields that a selector may name
tree.py        what a selector is once it is understood
pattern.py     the pattern of LIKE
operands.py    which kinds of value go together
parser.py      tokens → checked tree
values.py      what a header or a field of a JSON body counts as
predicate.py   tree → Python function
arrow.py       tree → pyarrow expression, and what is left over
spark.py       tree → Spark SQL
"""

from .arrow import ArrowFilter, to_arrow_filter
from .errors import SelectorError
from .parser import parse
from .predicate import compile_predicate
from .spark import to_spark_sql
from .tree import Selector

__all__ = [
    "ArrowFilter",
    "Selector",
    "SelectorError",
    "compile_predicate",
    "parse",
    "to_arrow_filter",
    "to_spark_sql",
]
