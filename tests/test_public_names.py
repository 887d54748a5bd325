"""The public names of recado are those of public_names.txt.

After a deliberate change, update the file and review its diff:

    .venv/bin/python -m tests.test_public_names
"""

from importlib import import_module
from pathlib import Path

FILE = Path(__file__).with_name("public_names.txt")
PACKAGES = (
    "recado",
    "recado.actors",
    "recado.actors.remote",
    "recado.client",
    "recado.feeds",
    "recado.patterns",
    "recado.pipeline",
    "recado.selector",
)


def exported_names() -> str:
    """Return one line per exported name, after checking that the name exists."""
    lines = []
    for package in PACKAGES:
        module = import_module(package)
        for name in sorted(module.__all__):
            getattr(module, name)
            lines.append(f"{package}.{name}\n")
    return "".join(lines)


def test_public_names_are_pinned() -> None:
    assert exported_names() == FILE.read_text(), (
        "exported names changed; if that is intended, run: .venv/bin/python -m tests.test_public_names"
    )


if __name__ == "__main__":
    FILE.write_text(exported_names())
