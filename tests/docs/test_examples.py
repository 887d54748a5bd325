"""The examples in the documentation run as they stand."""

import re
from pathlib import Path

import pytest

import recado

PAGES = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in sorted(PAGES.glob("*.md"))
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_example(code: str) -> None:
    with recado.Broker() as broker:
        exec(compile(code, "example", "exec"), {"URL": broker.url})
