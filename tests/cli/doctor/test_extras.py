"""Packages that the configuration needs."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from recado.cli.doctor.extras import EXTRAS, is_installed

from .conftest import Diagnose

PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


@pytest.mark.parametrize(
    ("extra", "module", "variable", "value"),
    [
        ("console", "aiohttp", "RECADO_MANAGEMENT_PORT", "0"),
        ("oauth", "jwt", "RECADO_OAUTH_RESOURCE_SERVER_ID", "recado"),
        ("fast", "uvloop", "RECADO_NODE_LOOP", "uvloop"),
        ("actors", "zstandard", "RECADO_ACTORS_TRANSPORT", "tcp"),
    ],
)
def test_a_missing_package(
    extra: str,
    module: str,
    variable: str,
    value: str,
    diagnose: Diagnose,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("RECADO_ACTORS_LISTEN", "127.0.0.1:0")
    if extra == "oauth":
        monkeypatch.setenv("RECADO_OAUTH_JWKS_FILE", "keys.json")
    monkeypatch.setitem(sys.modules, module, None)
    found = diagnose("packages")
    assert (found.status, found.severities) == (1, ["error"])
    assert f"needs the extra '{extra}': {module} is missing" in found.only["found"]
    assert found.only["fixes"] == [f"pip install 'recado[{extra}]'"]


def test_installed_packages(diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECADO_MANAGEMENT_PORT", "0")
    assert diagnose("packages").only["found"] == "installed: console"


def test_none_are_needed(diagnose: Diagnose) -> None:
    assert diagnose("packages").only["found"] == "the configuration needs no extras"


def test_a_module_whose_parent_is_missing() -> None:
    assert not is_installed("no_such_package.module")


def test_every_extra_exists() -> None:
    known = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert {extra.name for extra in EXTRAS} <= set(known)
