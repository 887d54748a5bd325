"""The files of a web application, with those that applications share."""

from __future__ import annotations

from pathlib import Path

import pytest

from recado.web import VENDOR_FOLDER, load_assets, security_headers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pages").mkdir()
    (tmp_path / "index.html").write_text('<script src="{static}/main.js"></script>\n{preloads}')
    (tmp_path / "main.js").write_text("import './vendor/preact.js';")
    (tmp_path / "pages/rooms.js").write_text("export {};")
    (tmp_path / "notes.txt").write_text("not served")
    return tmp_path


def test_an_application_gets_the_shared_files_that_it_names(folder: Path) -> None:
    assets = load_assets(folder, ["preact", "htm"])
    names = {path.split("/", 3)[3] for path in assets if path != "/"}
    assert names == {
        "main.js",
        "pages/rooms.js",
        "vendor/preact.js",
        "vendor/preact.LICENSE",
        "vendor/htm.js",
        "vendor/htm.LICENSE",
    }
    digest = next(path for path in assets if path.endswith("/main.js")).split("/")[2]
    shared = assets[f"/static/{digest}/vendor/preact.js"]
    assert shared.body == (VENDOR_FOLDER / "preact.js").read_bytes()
    assert f'href="static/{digest}/vendor/htm.js"'.encode() in assets["/"].body


def test_the_addresses_change_with_the_files(folder: Path) -> None:
    before = set(load_assets(folder))
    (folder / "main.js").write_text("export {};")
    after = set(load_assets(folder))
    assert before & after == {"/"}
    assert not set(load_assets(folder, ["htm"])) & after - {"/"}


def test_the_policy_permits_only_the_named_trusted_types() -> None:
    policy = security_headers()["content-security-policy"]
    assert policy.endswith("trusted-types 'none'")
    named = security_headers(trusted_types="recado-worker")["content-security-policy"]
    assert named.endswith("trusted-types recado-worker")
    assert "unsafe" not in policy
