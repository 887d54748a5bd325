"""All log and error texts of the package are in messages.txt, so that they can be reviewed in one place.

After a change of a text, update the file and review its diff:

    .venv/bin/python -m tests.test_messages

A line is `module: kind: text`, sorted. A `{…}` is an expression of an f-string; texts that are computed elsewhere
are not listed. Kinds are the class of the exception, and the level of a log call.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).with_name("messages.txt")
SOURCE = Path(__file__).resolve().parents[1] / "src"
LOG_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
LOG_NAMES = frozenset({"log", "_log", "logger", "_logger"})
REPORT_METHODS = frozenset(
    {"_fail", "_fail_expected", "_add_problem"}
)  # they raise or collect errors


def collect_messages() -> str:
    lines = set()
    for path in sorted((SOURCE / "recado").rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for kind, text in find_messages(ast.parse(path.read_text())):
            lines.add(f"{module}: {kind}: {text}\n")
    return "".join(sorted(lines))


def find_messages(node: ast.AST, class_name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each log call, and of each text that is passed to an exception."""
    if isinstance(node, ast.ClassDef):
        class_name = node.name
    for child in ast.iter_child_nodes(node):
        yield from find_messages(child, class_name)
    if isinstance(node, ast.Call):
        match node.func:
            case ast.Attribute(value=ast.Name(id=name), attr=level) if (
                name in LOG_NAMES and level in LOG_LEVELS
            ):
                yield from (("log." + level, text) for text in find_texts(node.args))
            case ast.Name(id=name) | ast.Attribute(attr=name) if is_exception(name):
                yield from ((name, text) for text in find_texts(node.args))
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__") if (
                is_exception(class_name)
            ):
                yield from ((class_name, text) for text in find_texts(node.args))
            case ast.Attribute(attr=name) if name in REPORT_METHODS:
                yield from ((f"{class_name}.{name}", text) for text in find_texts(node.args))
            case _:
                pass


def is_exception(name: str) -> bool:
    return name.endswith("Error") and name[:1].isupper()


def find_texts(arguments: list[ast.expr]) -> Iterator[str]:
    """Yield the texts among the arguments that have a space: others are names and keys."""
    for argument in arguments:
        text = render(argument)
        if text is not None and " " in text.strip():
            yield text.replace("\n", "\\n")


def render(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(render(value) or "" for value in values)
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = render(left), render(right)
            return "".join(part or "{…}" for part in parts) if any(parts) else None
        case _:
            return None


def test_messages_are_reviewed() -> None:
    assert collect_messages() == FILE.read_text(), (
        "log or error texts changed; review them after: .venv/bin/python -m tests.test_messages"
    )


if __name__ == "__main__":
    FILE.write_text(collect_messages())
