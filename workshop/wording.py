"""Figures on the language of the source: words of comments and docstrings, and names.

    ./dev wording                     a table of the package, with the aim of each row
    ./dev wording --names             the names behind the counts as well
    ./dev wording --json              everything as JSON
    ./dev wording --strict            exit with 1 if a row misses its aim
    ./dev wording FOLDER …            other source trees, for comparison

Prose is every comment and docstring, without code spans (`between backticks`), drawings and directives to
tools such as `noqa`. Frequencies are per 1,000 words of it. The figures are a compass: prose can meet every
aim and still be hard to read.

Everything is read with `ast` and `tokenize`; no module is imported. Modules written by protoc are left out.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "src" / "recado"

# --- prose -----------------------------------------------------------------------------------------

WORD: Final = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
CODE_SPAN: Final = re.compile(r"``[^`]*``|`[^`\n]*`")
DIRECTIVE: Final = re.compile(r"#\s*(?:noqa|type:|pragma|ruff:|mypy:|fmt:|!|-\*-)")

PEOPLE: Final = re.compile(
    r"\b(?:who|whom|whoever|whomever|somebody|someone|nobody|everybody|anybody|others)\b",
    re.IGNORECASE,
)
"""Words for people where a program, an object or a peer is meant."""

HEADLESS: Final = re.compile(
    r"\b(?:what|whatever)\s+(?:is|are|was|were|has|have|had|does|did|can|cannot|could|may|might|must|will|would|"
    r"came|comes|went|goes|became|becomes|remains|lasts|follows|fits|fails|failed|needs|belongs|waits|waited|"
    r"lies|stays|stayed|arrives|arrived|arises|died|dies|matters|nobody|somebody)\b",
    re.IGNORECASE,
)
"""“What is written”, “what came before”: a clause where a noun would name the thing."""

FIELD_TERMS: Final = re.compile(
    r"\b(?:atomic(?:ally|ity)?|back-?off|back-?pressure|bottlenecks?|buffer(?:s|ed|ing)?|caches?|cached|caching|"
    r"coalesc(?:e|es|ed|er|ing)|compact(?:s|ed|ion|ions)|concurren(?:t|tly|cy)|contention|deadlocks?|"
    r"dead-letter(?:s|ed)|de-?duplicat(?:e|es|ed|ion)|drain(?:s|ed|ing)?|epochs?|evict(?:s|ed|ion)?|"
    r"flush(?:es|ed|ing)?|fsync(?:s|ed)?|idempoten(?:t|tly|ce)|in[- ]flight|invariants?|jitter|lags?|"
    r"latenc(?:y|ies)|leases?|LRU|LSNs?|multiplex(?:ed|es)?|mutex|page[sd]?[- ](?:in|out)|poll(?:s|ed|ing)?|"
    r"quiesce[sd]?|race(?:s| conditions?)?|rate[- ]limit(?:s|ed)?|reconnect(?:s|ed|ion)?|"
    r"redeliver(?:s|ed|y|ies)?|replay(?:s|ed|ing)?|retr(?:y|ies|ied|ying)|roll(?:s|ed)?[- ]back|round[- ]robin|"
    r"serialis(?:e|es|ed)|stalls?|stalled|starv(?:e|es|ed|ation)|thread-?safe|throttl(?:e|es|ed|ing)|"
    r"throughput|time-?outs?|truncat(?:e|es|ed|ion)|write-ahead)\b",
    re.IGNORECASE,
)
"""Terms for mechanisms, under which an engineer would search.

Those that name a subject of recado (queue, offset, checkpoint, heartbeat) are left out: any prose about it
has them.
"""

GIVES: Final = re.compile(r"\b(?:give|gives|giving)\b", re.IGNORECASE)
RETURNS: Final = re.compile(r"\b(?:return|returns|returning)\b", re.IGNORECASE)

# --- names -----------------------------------------------------------------------------------------

PARTICIPLE: Final = re.compile(r"(?:^|_)[a-z]+(?:ing|ed)$")
IRREGULAR_PARTICIPLES: Final = frozenset(
    {
        "begun",
        "bound",
        "built",
        "done",
        "found",
        "given",
        "gone",
        "heard",
        "held",
        "kept",
        "known",
        "left",
        "lost",
        "made",
        "read",
        "seen",
        "sent",
        "told",
        "unheard",
        "unsent",
        "written",
    }
)
NOUN_MODULES: Final = frozenset(
    {
        "binding",
        "blocking",
        "encoding",
        "feed",
        "logging",
        "messaging",
        "monitoring",
        "naming",
        "ring",
        "routing",
        "seed",
        "setting",
        "string",
        "testing",
        "timing",
        "tracing",
        "trading",
    }
)
"""Names that look like participles and are established nouns, or, as `blocking`, terms of the field."""

TWIN_CLASSES: Final = frozenset(
    {"Broker", "Channel", "Connection", "Consumer", "Session", "SessionState"}
)
"""One concept on two sides: AMQP's in the broker and in the client; the embedded broker."""

CLASSES_OF_EACH_PART: Final = frozenset({"Message"})
"""Each part exports its own message."""

UNIT_WORDS: Final = frozenset(
    {
        "NS",
        "US",
        "MS",
        "S",
        "MINUTES",
        "HOURS",
        "DAYS",
        "BITS",
        "BYTES",
        "KIB",
        "MIB",
        "GIB",
        "HZ",
        "PERCENT",
        "FACTOR",
        "RATIO",
        "WEIGHT",
        "EXPONENT",
    }
)
COUNT_WORDS: Final = frozenset({"COUNT"})
IDENTIFIER_WORDS: Final = frozenset(
    {
        "BIT",
        "CODE",
        "EPOCH",
        "FLAG",
        "ID",
        "INDEX",
        "LEVEL",
        "LSN",
        "MASK",
        "MODULUS",
        "OFFSET",
        "OPCODE",
        "PORT",
        "POSITION",
        "PRIORITY",
        "SEED",
        "TAG",
        "TYPE",
        "VERSION",
    }
)
"""Numbers that are not amounts say so: `NOT_FOUND_CODE`, `FORMAT_VERSION`."""

LABEL: Final = re.compile(r"^\s*([A-Z]{1,3}\d{1,2}) {2,}\S", re.MULTILINE)
"""The line of a docstring that states an invariant: `J3  A position names one record.`"""


@dataclass
class Survey:
    """The measured source: prose in total, and each kind of name with the modules that define it."""

    words: int = 0
    people: int = 0
    headless: int = 0
    gives: int = 0
    returns: int = 0
    field_terms: int = 0
    modules: list[str] = field(default_factory=list)
    participle_modules: list[str] = field(default_factory=list)
    numeric_constants: dict[str, list[str]] = field(default_factory=dict)
    classes: dict[str, list[str]] = field(default_factory=dict)
    bases: dict[str, set[str]] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)

    def per_thousand(self, count: int) -> float:
        return 1000 * count / self.words if self.words else 0.0

    def unitless_constants(self) -> dict[str, list[str]]:
        return {n: where for n, where in self.numeric_constants.items() if not has_unit(n)}

    def repeated_classes(self) -> dict[str, list[str]]:
        """Class names with more than one definition, without those of one concept on two sides."""
        return {
            name: where
            for name, where in self.classes.items()
            if len(where) > 1
            and not (name in TWIN_CLASSES and len(where) == 2)
            and name not in CLASSES_OF_EACH_PART
        }

    def repeated_labels(self) -> dict[str, list[str]]:
        return {name: where for name, where in self.labels.items() if len(where) > 1}

    def unsuffixed_exceptions(self) -> dict[str, list[str]]:
        """Exception classes whose name does not end in `Error`, without those that are warnings."""
        return {
            name: where
            for name, where in self.classes.items()
            if not name.endswith(("Error", "Warning")) and self._is_exception(name, frozenset())
        }

    def _is_exception(self, name: str, seen: frozenset[str]) -> bool:
        if name in self.bases:
            if name in seen:
                return False
            return any(self._is_exception(base, seen | {name}) for base in self.bases[name])
        known = getattr(builtins, name, None)
        return isinstance(known, type) and issubclass(known, BaseException)


@dataclass(frozen=True)
class Row:
    """One figure of the table; `aim` is a text, and `met` whether the figure reaches it."""

    name: str
    value: float
    aim: str
    met: bool
    names: Mapping[str, Sequence[str]] | None = None
    """The names that are counted, each with the modules where it is defined."""

    def text(self) -> str:
        return f"{self.value:.0f}" if self.names is not None else f"{self.value:.1f}"


def survey(folders: Iterable[Path]) -> Survey:
    """Measure all modules below the folders."""
    found = Survey()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                measure(found, path.relative_to(folder).as_posix(), path.read_text())
    return found


def measure(found: Survey, module: str, source: str) -> None:
    """Add one module to the survey. Raises `SyntaxError` if the source is not Python."""
    tree = ast.parse(source, module)
    found.modules.append(module)
    if is_participle(module):
        found.participle_modules.append(module)
    docstrings = list(_docstrings(tree))
    for text in (*docstrings, *_comments(source)):
        _count_words(found, CODE_SPAN.sub(" ", text))
    for docstring in docstrings:
        for label in LABEL.findall(docstring):
            _enter(found.labels, label, module)
    for name in _numeric_constants(tree):
        _enter(found.numeric_constants, name, module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            _enter(found.classes, node.name, module)
            found.bases.setdefault(node.name, set()).update(map(_last_name, node.bases))


def is_participle(module: str) -> bool:
    """Whether a module or package is named by a participle rather than a noun; `module` is its path."""
    path = Path(module)
    stem = path.parent.name if path.stem == "__init__" else path.stem
    last = stem.lstrip("_").rpartition("_")[2]
    if last in NOUN_MODULES:
        return False
    return last in IRREGULAR_PARTICIPLES or PARTICIPLE.search(last) is not None


def has_unit(name: str) -> bool:
    """Whether the name of a number says what the number is.

    Accepted are a unit (`SYNC_TIMEOUT_S`, `READ_BYTES`), `COUNT`, an identifier (`NOT_FOUND_CODE`), and a
    plural with a limit or a rate (`PEERS_MAX`, `MESSAGES_PER_TURN`). `MIN` and `MAX` may come first or last.
    """
    words = [word for word in name.strip("_").split("_") if word]
    if "PER" in words:
        words = words[: words.index("PER")]
        return bool(words) and (words[-1] in UNIT_WORDS or words[-1].endswith("S"))
    limited = False
    while words and words[-1] in ("MIN", "MAX"):
        limited = True
        words.pop()
    if words and words[0] in ("MIN", "MAX"):
        limited = True
    if not words:
        return False
    last = words[-1]
    if last in UNIT_WORDS or last in COUNT_WORDS or last in IDENTIFIER_WORDS:
        return True
    return limited and last.endswith("S") and not last.endswith("SS")


def rows(found: Survey) -> list[Row]:
    """The table, in the order in which it is printed."""
    people, headless = found.per_thousand(found.people), found.per_thousand(found.headless)
    gives, returns = found.per_thousand(found.gives), found.per_thousand(found.returns)
    terms = found.per_thousand(found.field_terms)
    table = [
        Row("who, whoever, somebody, nobody, others", people, "≤ 1.0", people <= 1.0),
        Row('"what is/was/came …" as a noun', headless, "≤ 1.0", headless <= 1.0),
        Row('"gives"', gives, "", True),
        Row('"returns"', returns, '≥ 3 × "gives"', returns >= 3 * gives),
        Row("terms of the field", terms, "≥ 4.0", terms >= 4.0),
    ]
    participles = {module: [module] for module in found.participle_modules}
    for name, names in (
        ("modules named by a participle", participles),
        ("numeric constants without unit or count", found.unitless_constants()),
        ("class names used more than once", found.repeated_classes()),
        ("invariant labels used more than once", found.repeated_labels()),
        ("exceptions not named …Error", found.unsuffixed_exceptions()),
    ):
        count = sum(map(len, names.values())) if name.startswith("numeric") else len(names)
        table.append(Row(name, count, "0", not count, names))
    return table


# --- reading modules -------------------------------------------------------------------------------


def _count_words(found: Survey, text: str) -> None:
    found.words += len(WORD.findall(text))
    found.people += len(PEOPLE.findall(text))
    found.headless += len(HEADLESS.findall(text))
    found.gives += len(GIVES.findall(text))
    found.returns += len(RETURNS.findall(text))
    found.field_terms += len(FIELD_TERMS.findall(text))


def _comments(source: str) -> Iterator[str]:
    """Comments; adjacent lines are joined, because a phrase may continue on the next line."""
    lines: list[str] = []
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
            if token.start[0] != last + 1:
                yield " ".join(lines)
                lines = []
            lines.append(token.string.lstrip("#: "))
            last = token.start[0]
    yield " ".join(lines)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings, of modules, classes, functions, constants and fields."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            yield node.value.value


def _numeric_constants(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if name.isupper() and _is_number(value):
            yield name


def _is_number(value: ast.expr) -> bool:
    """Whether the expression is arithmetic on numbers, at least one of them written out."""
    literals = 0
    for node in ast.walk(value):
        match node:
            case ast.Constant(value=bool()):
                return False
            case ast.Constant(value=int() | float()):
                literals += 1
            case ast.Name(id=name) if name.isupper():
                pass
            case ast.BinOp() | ast.UnaryOp() | ast.operator() | ast.unaryop() | ast.Load():
                pass
            case _:
                return False
    return literals > 0


def _last_name(base: ast.expr) -> str:
    match base:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _last_name(value)
        case _:
            return ""


def _enter(names: dict[str, list[str]], name: str, module: str) -> None:
    names.setdefault(name, []).append(module)


# --- printing --------------------------------------------------------------------------------------


def table_text(found: Survey, names: bool) -> str:
    """The table for a terminal, with the names behind the counts if wanted."""
    table = rows(found)
    width = max(len(row.name) for row in table)
    total = sum(map(len, found.numeric_constants.values()))
    size = f"{len(found.modules)} modules, {found.words:,} words of comments and docstrings"
    lines = [f"{size}, {total} numeric constants; frequencies per 1,000 words", ""]
    for row in table:
        mark = "" if row.met else "  missed"
        lines.append(f"{row.name:{width}}  {row.text():>7}  {row.aim:14}{mark}".rstrip())
    for row in table:
        if names and row.names:
            lines += ["", f"{row.name}:"]
            lines += [f"  {name}: {', '.join(where)}" for name, where in sorted(row.names.items())]
    return "\n".join(lines)


def as_json(found: Survey) -> str:
    """The same as an object of rows, each with value, aim and, for counts of names, the names."""
    report: dict[str, object] = {"modules": len(found.modules), "words": found.words}
    report["rows"] = {
        row.name: {"value": round(row.value, 2), "aim": row.aim, "met": row.met}
        | ({} if row.names is None else {"names": row.names})
        for row in rows(found)
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev wording", description="Figures on the language of the source."
    )
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="default: src/recado"
    )
    parser.add_argument("--names", action="store_true", help="list the names behind the counts")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a row misses its aim")
    chosen = parser.parse_args(arguments)
    missing = [str(folder) for folder in chosen.folders if not folder.is_dir()]
    if missing:
        parser.error(f"no folder {', '.join(missing)}")
    found = survey(chosen.folders or [PACKAGE])
    print(as_json(found) if chosen.json else table_text(found, chosen.names))
    return int(chosen.strict and not all(row.met for row in rows(found)))


if __name__ == "__main__":
    sys.exit(main())
