"""The files of the chat's page: nothing from another host, no markup from text, no code from strings."""

from __future__ import annotations

import re
import urllib.request

from recado.apps.chat.server import RunningChat
from recado.apps.chat.site import WEB_FOLDER

EXTERNAL = re.compile(r"""(?:href|src|url|from|import)\s*[=(]?\s*["'(](?:https?:)?//""")
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|\beval\(|new Function\("
)
INLINE = re.compile(r"""\sstyle="|<script>|\son[a-z]+=["']""")


def test_no_file_names_another_host_or_needs_unsafe_code() -> None:
    files = [
        each for each in WEB_FOLDER.rglob("*") if each.suffix in (".js", ".css", ".html", ".svg")
    ]
    assert len(files) > 20
    for path in files:
        text = path.read_text()
        for pattern in (EXTERNAL, UNSAFE, INLINE):
            assert not pattern.search(text), (path.name, pattern.pattern)


def test_the_page_has_a_strict_policy_and_relative_addresses(chat: RunningChat) -> None:
    with urllib.request.urlopen(chat.url) as answer:
        policy = answer.headers["content-security-policy"]
        page = answer.read().decode()
    assert "default-src 'none'" in policy
    assert "trusted-types 'none'" in policy
    assert "unsafe" not in policy
    addresses = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert len(addresses) > 20
    assert all(each.startswith("static/") for each in addresses)
