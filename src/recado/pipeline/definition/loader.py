"""Load pipelines from TOML and YAML files and from Python modules, into the same definition that Python builds.

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

Paths are relative to the folder of the file. The only code that a file can run are the functions that it names.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ..location import resolve, resolve_options
from .pipeline import Pipeline, Sink, Source, option_to_text, parse_step
from .problems import InvalidPipelineError, Problem, closest_name, suggest_name

_TOP_LEVEL_KEYS: Final = (
    "name",
    "checkpoint",
    "trigger",
    "dead_letters",
    "status",
    "sources",
    "steps",
    "sinks",
)
_PLACEHOLDER_FORMATS: Final = {"sources": "unknown.format", "sinks": "console"}
"""Formats without option checks, for a source or sink that cannot be parsed."""
_YAML_BOOL_TAG: Final = "tag:yaml.org,2002:bool"

EndpointT = TypeVar("EndpointT", Source, Sink)


class Draft(NamedTuple):
    """A pipeline as far as it could be parsed, so that it can still be checked, and the problems of parsing."""

    pipeline: Pipeline
    problems: list[Problem]


def load(location: str | Path) -> Pipeline:
    """Load the pipeline of a file (`orders.toml`, `orders.yaml`) or of a module (`shop.pipelines:orders`).

    Raises:
        InvalidPipelineError: with all problems of the file.
        OSError: the file cannot be read.
    """
    pipeline, problems = load_draft(location)
    if problems:
        raise InvalidPipelineError(str(location), problems)
    return pipeline


def load_draft(location: str | Path) -> Draft:
    """Load a pipeline like `load`, but return the problems of steps, sources and sinks with it."""
    file = Path(location)
    if file.suffix in (".toml", ".yaml", ".yml"):
        text = _read_text(file)
        tree = (
            parse_toml(text, str(file)) if file.suffix == ".toml" else parse_yaml(text, str(file))
        )
        return build_draft(tree, where=str(file), folder=file.parent)
    module, colon, name = str(location).partition(":")
    if not colon:
        hint = "write FILE.toml, FILE.yaml or MODULE:NAME"
        raise InvalidPipelineError(str(location), [Problem("", "not the name of a pipeline", hint)])
    return Draft(import_pipeline(module, name), [])


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: {error.reason} at byte {error.start}"
        raise InvalidPipelineError(str(file), [Problem("file", message)]) from None


def import_pipeline(module: str, name: str) -> Pipeline:
    """Return a pipeline that a module defines, or that a function of the module returns."""
    where = f"{module}:{name}"
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidPipelineError(where, [Problem("", str(error))]) from error
    pipeline = found() if callable(found) else found
    if not isinstance(pipeline, Pipeline):
        raise InvalidPipelineError(
            where, [Problem("", f"is a {type(pipeline).__name__}, not a Pipeline")]
        )
    return pipeline


def parse_toml(text: str, where: str) -> Any:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for huge numbers and deeply nested lists
        raise InvalidPipelineError(where, [Problem("file", f"not TOML: {error}")]) from None


def parse_yaml(text: str, where: str) -> Any:
    try:
        import yaml
    except ImportError:
        hint = "pip install 'recado[spark]', or use TOML"
        raise InvalidPipelineError(where, [Problem("file", "YAML needs PyYAML", hint)]) from None

    class Loader(yaml.SafeLoader):
        """A loader for a safe subset of YAML 1.2.

        Only `true` and `false` are booleans; PyYAML also reads the key `on` as one. Duplicate keys are errors,
        as in TOML: otherwise one of two sinks would silently be lost. Aliases are errors, because a few nested
        ones can expand to more than the memory holds.
        """

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event = self.peek_event()  # type: ignore[no-untyped-call]
                message = f"aliases are not supported: replace *{event.anchor} by its value"
                raise yaml.MarkedYAMLError(problem=message, problem_mark=event.start_mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        message = f"duplicate key {key.value}"
                        raise yaml.MarkedYAMLError(problem=message, problem_mark=key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    Loader.yaml_implicit_resolvers = {
        first: [each for each in resolvers if each[0] != _YAML_BOOL_TAG]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(_YAML_BOOL_TAG, re.compile("true|false"), ["t", "f"])
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidPipelineError(where, [Problem("file", f"not YAML: {error}")]) from None


def build_draft(tree: Any, *, where: str, folder: Path = Path()) -> Draft:
    """Build a pipeline from parsed TOML or YAML.

    Raises InvalidPipelineError if `tree` is not a dictionary; other problems are in the draft.
    """
    if not isinstance(tree, dict):
        raise InvalidPipelineError(where, [Problem("file", "the file is not a table of keys")])
    problems = []
    for key in [key for key in tree if key not in _TOP_LEVEL_KEYS]:
        problems.append(
            Problem("file", f"unknown key {key}", suggest_name(str(key), _TOP_LEVEL_KEYS))
        )
        intended = closest_name(str(key), _TOP_LEVEL_KEYS)
        if intended:  # so that checks can continue, as for steps
            tree = {intended: tree[key], **tree}
    text_values = {"name": "unnamed"}
    for key in ("name", "checkpoint", "trigger", "dead_letters", "status"):
        value = tree.get(key)
        if isinstance(value, str):
            text_values[key] = resolve(value, folder) if key == "checkpoint" else value
        elif value is not None or key == "name":
            problems.append(Problem("file", f"{key} must be a string"))
    sources = _parse_endpoints(tree, "sources", Source, folder, problems)
    sinks = _parse_endpoints(tree, "sinks", Sink, folder, problems)
    steps = []
    tables = tree.get("steps", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        problems.append(Problem("steps", "must be tables", "write [[steps]] for each"))
        tables = []
    for number, table in enumerate(tables, 1):
        options = {str(key): value for key, value in table.items() if key != "step"}
        step, step_problems = parse_step(table.get("step"), options, number)
        steps.append(step)
        problems += step_problems
    pipeline = Pipeline(**text_values, sources=sources, steps=tuple(steps), sinks=sinks)
    return Draft(pipeline, problems)


def _parse_endpoints(
    tree: dict[str, Any], key: str, kind: type[EndpointT], folder: Path, problems: list[Problem]
) -> dict[str, EndpointT]:
    """Parse the tables of sources or sinks: a format, and options beside it."""
    endpoints: dict[str, EndpointT] = {}
    tables = tree.get(key, {})
    if not isinstance(tables, dict):
        problems.append(Problem(key, "must be tables", f"write [{key}.NAME] for each"))
        return endpoints
    for name, table in tables.items():
        location = f"{key[:-1]} {name}"
        endpoints[str(name)] = kind(_PLACEHOLDER_FORMATS[key], {})
        if not isinstance(table, dict):
            problems.append(Problem(location, "must be a table", f"write [{key}.{name}]"))
        elif not isinstance(table.get("format"), str):
            problems.append(Problem(location, "the key format is missing"))
        else:
            options = {}
            for option in (each for each in table if each != "format"):
                try:
                    options[str(option)] = option_to_text(table[option])
                except TypeError as error:
                    problems.append(Problem(location, f"invalid option: {error}"))
                    options[str(option)] = str(table[option])
            endpoints[str(name)] = kind(table["format"], resolve_options(options, folder))
    return endpoints
