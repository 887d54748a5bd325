"""Formats whose packages are not installed."""

import subprocess
import sys

import pytest
from google.protobuf.duration_pb2 import Duration

from recado.patterns.errors import TranslationError
from recado.patterns.translation import Translators


@pytest.mark.parametrize(
    ("content_type", "package"),
    [
        ("application/xml", "lxml"),
        ("application/yaml", "yaml"),
        ("application/protobuf", "google.protobuf.message"),
    ],
)
def test_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, content_type: str, package: str
) -> None:
    for module in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)  # importing it raises ImportError
    expected = r"is not installed: pip install 'recado\[patterns\]'"
    with pytest.raises(TranslationError, match=expected):
        Translators().encode(Duration(), content_type)
    with pytest.raises(TranslationError, match=expected):
        Translators().decode(b"", content_type, Duration)


def test_packages_are_imported_on_first_use() -> None:
    program = (
        "import sys\n"
        "from recado.patterns.translation import Translators\n"
        "registry = Translators()\n"
        "assert registry.decode(*registry.encode([1]), list[int]) == [1]\n"
        "print([name for name in ('lxml', 'yaml', 'google.protobuf', 'pydantic') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"
