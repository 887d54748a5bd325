"""The catalogue names exactly what `recado.patterns` has."""

from __future__ import annotations

import re
from pathlib import Path

import recado.patterns

PAGE = (Path(__file__).resolve().parents[2] / "docs/patterns.md").read_text()
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
TABLE_ROWS = re.findall(r"^\| ([A-Z][\w -]+) \| (.+?) \|", PROSE, re.MULTILINE)


def test_every_exported_name_is_on_the_page() -> None:
    named = set(re.findall(r"`([A-Za-z_]+)(?:\(.*?\))?`", PROSE))
    assert sorted(set(recado.patterns.__all__) - named) == []


def test_every_name_of_the_catalogue_exists() -> None:
    for pattern, names in TABLE_ROWS:
        for name in re.findall(r"`([\w.]+)(?:\(.*?\))?`", names):
            found: object = recado.patterns
            for part in name.split("."):
                assert hasattr(found, part), f"{pattern}: {name}"
                found = getattr(found, part)


def test_every_pattern_has_a_section_with_a_diagram() -> None:
    sections = re.findall(r"^### ([\w -]+)\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE)
    assert [title for title, _ in sections] == [pattern for pattern, _ in TABLE_ROWS]
    assert [title for title, text in sections if not text.startswith("\n```\n")] == []
