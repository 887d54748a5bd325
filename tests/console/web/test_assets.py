"""The files of the console: their headers, caching, addresses, and the code of other projects among them."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

import recado
from recado.console.management import WEB_FOLDER
from workshop import vendor

from ..http import TIMEOUT_S, Api

EXTERNAL = re.compile(r"""(?:href|src|url|from|import)\s*[=(]?\s*["'(](?:https?:)?//""")


class Page(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def fetch(port: int, path: str, method: str = "GET", **headers: str) -> Page:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return Page(response.status, _lower(response.headers), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Page(error.code, _lower(error.headers), error.read())


def _lower(headers: object) -> dict[str, str]:
    return {name.lower(): value for name, value in dict(headers).items()}  # type: ignore[call-overload]


def addresses(page: Page) -> list[str]:
    return re.findall(r'(?:href|src)="([^"]+)"', page.body.decode())


def test_the_page_needs_no_login_and_names_its_files(api: Api) -> None:
    page = fetch(api.port, "/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    named = addresses(page)
    assert len(named) >= 9
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    for address in named:
        assert address.startswith("static/"), "relative, so that any path of a proxy works"
        file = fetch(api.port, f"/{address}")
        assert file.status == 200, address
        assert file.headers["content-type"].startswith(types[Path(address).suffix])
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert file.headers["x-content-type-options"] == "nosniff"


def test_a_file_that_the_browser_has_is_not_sent_again(api: Api) -> None:
    page = fetch(api.port, "/")
    for path in ("/", f"/{addresses(page)[1]}"):
        first = fetch(api.port, path)
        again = fetch(api.port, path, if_none_match=first.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        packed = fetch(api.port, path, accept_encoding="br, gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == first.body
        assert fetch(api.port, path, "HEAD").body == b""
        assert fetch(api.port, path, "POST").status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/static",
        "/static/",
        "/static/main.js",
        "/static/000000000000/main.js",
        "/static/{digest}/../../management.py",
        "/static/{digest}/%2e%2e/site.py",
        "/static/{digest}/..%2fsite.py",
        "/static/{digest}//main.js",
        "/static/{digest}/index.html",
        "/static/{digest}/main.js/",
        "/index.html",
        "//",
        "/../../../etc/passwd",
    ],
)
def test_other_paths_are_not_found(api: Api, path: str) -> None:
    digest = addresses(fetch(api.port, "/"))[0].split("/")[1]
    assert fetch(api.port, path.replace("{digest}", digest)).status == 404


def test_the_page_is_protected_by_a_strict_policy(api: Api) -> None:
    headers = fetch(api.port, "/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"


def test_a_prefix_of_a_proxy_may_be_part_of_the_path() -> None:
    with recado.Broker(config={"management": {"port": 0, "path_prefix": "/a/broker"}}) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        assert fetch(api.port, "/a/broker/").status == 200
        moved = fetch(api.port, "/a/broker")  # urllib follows it
        assert b"<!doctype html>" in moved.body
        assert api.get("/a/broker/api/whoami")["name"] == "guest"
        assert api.get("/api/whoami")["name"] == "guest"
        assert fetch(api.port, "/a/brokers/").status == 404


def test_the_metrics_port_has_no_console(broker: recado.Broker) -> None:
    assert broker.metrics_port is not None
    assert fetch(broker.metrics_port, "/").status == 404


@pytest.mark.parametrize("folder", [vendor.PAGES, vendor.TESTS, vendor.SCHEMAS])
def test_files_of_other_projects_are_those_of_the_manifest(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    expected = {name: digest for each in manifest for name, digest in each["sha256"].items()}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "manifest.json"
    }
    assert found == expected
    versions = {(each["package"], each["version"], each["licence"]) for each in manifest}
    assert versions == {
        (each.name, each.version, each.licence) for each in vendor.PACKAGES if each.folder == folder
    }


def test_no_file_names_another_host_or_needs_unsafe_code() -> None:
    for path in [*WEB_FOLDER.rglob("*"), *vendor.PAGES.iterdir()]:
        if path.suffix not in (".js", ".css", ".html", ".svg"):
            continue
        text = path.read_text()
        assert not EXTERNAL.search(text), path
        if path.suffix == ".js":
            assert not re.search(r"\beval\(|new Function\(|document\.write", text), path
        if path.parent.name != "vendor":
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySet"):
                assert word not in text, (path, word)
            assert not re.search(r"""\sstyle="|<script>|\son[a-z]+=["']""", text), path
