"""Pipelines from files, TOML or YAML, and from modules. What they say becomes the very definition that Python
makes.

    name = "quotes"
    checkpoint = "state/quotes"

    [sources.archive]
    format = "recado"
    path = "archive"

    [[steps]]
    step = "filter"
    where = "routing_key = 'PETR4'"

    [sinks.petr4]
    format = "parquet"
    path = "lake/petr4"

Paths are relative to the folder of the file. Nothing in a file is run but the functions that it names.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ..location import resolve, resolve_options
from .pipeline import Pipeline, Sink, Source, read_step, text_of
from .problems import PipelineError, Problem, closest, nearest

_TOP: Final = ("name", "checkpoint", "trigger", "dead_letters", "sources", "steps", "sinks")
_UNCHECKED: Final = {"sources": "unknown.format", "sinks": "console"}
"""Formats of which no options are checked, for a source or sink that cannot be read."""
_BOOL: Final = "tag:yaml.org,2002:bool"

T = TypeVar("T", Source, Sink)


class Draft(NamedTuple):
    """A pipeline as far as it could be read, so that it can be checked, and the problems of reading it."""

    pipeline: Pipeline
    problems: list[Problem]


def load(place: str | Path) -> Pipeline:
    """The pipeline of a file (`orders.toml`, `orders.yaml`) or of a module (`shop.pipelines:orders`).

    Raises PipelineError, and OSError if the file cannot be read.
    """
    pipeline, problems = load_draft(place)
    if problems:
        raise PipelineError(str(place), problems)
    return pipeline


def load_draft(place: str | Path) -> Draft:
    """The same, with the problems of single steps, sources and sinks beside it. Raises what `load` does."""
    file = Path(place)
    if file.suffix in (".toml", ".yaml", ".yml"):
        text = _text_of(file)
        tree = from_toml(text, str(file)) if file.suffix == ".toml" else from_yaml(text, str(file))
        return from_tree(tree, where=str(file), folder=file.parent)
    module, colon, name = str(place).partition(":")
    if not colon:
        hint = "a pipeline is FILE.toml, FILE.yaml or MODULE:NAME"
        raise PipelineError(str(place), [Problem("place", "this names no pipeline", hint)])
    return Draft(from_module(module, name), [])


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        what = f"this is no UTF-8: {error.reason} at byte {error.start}"
        raise PipelineError(str(file), [Problem("file", what)]) from None


def from_module(module: str, name: str) -> Pipeline:
    """A pipeline that is a name of a module, or what a function of that name returns."""
    where = f"{module}:{name}"
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise PipelineError(where, [Problem("place", str(error))]) from error
    made = found() if callable(found) else found
    if not isinstance(made, Pipeline):
        raise PipelineError(
            where, [Problem("place", f"this is {type(made).__name__}, no Pipeline")]
        )
    return made


def from_toml(text: str, where: str) -> Any:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number may be too long, lists too deep
        raise PipelineError(where, [Problem("file", f"this is no TOML: {error}")]) from None


def from_yaml(text: str, where: str) -> Any:
    try:
        import yaml
    except ImportError:
        hint = "pip install 'recado[spark]', or write TOML"
        raise PipelineError(where, [Problem("file", "YAML needs PyYAML", hint)]) from None

    class Loader(yaml.SafeLoader):
        """As YAML 1.2 has it: only true and false are truth values. To PyYAML the key `on` is one, too.

        A key that is there twice is an error, as in TOML: one of two sinks would get nothing. And there are no
        aliases, by which a few lines say more than there is memory for, or for ever themselves.
        """

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event = self.peek_event()  # type: ignore[no-untyped-call]
                what = f"aliases are not followed: write out what *{event.anchor} stands for"
                raise yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        what = f"the key {key.value} is there twice"
                        raise yaml.MarkedYAMLError(problem=what, problem_mark=key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    Loader.yaml_implicit_resolvers = {
        first: [each for each in resolvers if each[0] != _BOOL]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(_BOOL, re.compile("true|false"), ["t", "f"])
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PipelineError(where, [Problem("file", f"this is no YAML: {error}")]) from None


def from_tree(tree: Any, *, where: str, folder: Path = Path()) -> Draft:
    """The pipeline that plain dictionaries and lists say. Raises PipelineError if there is no dictionary."""
    if not isinstance(tree, dict):
        raise PipelineError(where, [Problem("file", "this is no table of keys")])
    problems = []
    for key in [key for key in tree if key not in _TOP]:
        problems.append(Problem("file", f"there is no key {key}", nearest(str(key), _TOP)))
        if meant := closest(str(key), _TOP):  # as for steps: checks can go on
            tree = {meant: tree[key], **tree}
    texts = {"name": "unnamed"}
    for key in ("name", "checkpoint", "trigger", "dead_letters"):
        value = tree.get(key)
        if isinstance(value, str):
            texts[key] = resolve(value, folder) if key == "checkpoint" else value
        elif value is not None or key == "name":
            problems.append(Problem("file", f"{key} must be a text"))
    sources = _ends(tree, "sources", Source, folder, problems)
    sinks = _ends(tree, "sinks", Sink, folder, problems)
    steps = []
    rows = tree.get("steps", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        problems.append(Problem("steps", "these are no tables", "write [[steps]] for each"))
        rows = []
    for number, row in enumerate(rows, 1):
        options = {str(key): value for key, value in row.items() if key != "step"}
        step, wrong = read_step(row.get("step"), options, number)
        steps.append(step)
        problems += wrong
    pipeline = Pipeline(**texts, sources=sources, steps=tuple(steps), sinks=sinks)
    return Draft(pipeline, problems)


def _ends(
    tree: dict[str, Any], key: str, kind: type[T], folder: Path, problems: list[Problem]
) -> dict[str, T]:
    """The sources or the sinks: tables with a format, and options beside it."""
    found: dict[str, T] = {}
    tables = tree.get(key, {})
    if not isinstance(tables, dict):
        problems.append(Problem(key, "these are no tables", f"write [{key}.NAME] for each"))
        return found
    for name, table in tables.items():
        place = f"{key[:-1]} {name}"
        found[str(name)] = kind(_UNCHECKED[key], {})
        if not isinstance(table, dict):
            problems.append(Problem(place, "this is no table", f"write [{key}.{name}]"))
        elif not isinstance(table.get("format"), str):
            problems.append(Problem(place, "it needs a format"))
        else:
            options = {}
            for option in (each for each in table if each != "format"):
                try:
                    options[str(option)] = text_of(table[option])
                except TypeError as error:
                    problems.append(Problem(place, f"an option cannot be understood: {error}"))
                    options[str(option)] = str(table[option])
            found[str(name)] = kind(table["format"], resolve_options(options, folder))
    return found
