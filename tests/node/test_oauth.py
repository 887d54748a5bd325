"""The check of OAuth 2 tokens, built from the settings."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import recado
from recado.node.assembly import build_token_verifier
from recado.node.config import ConfigError
from recado.node.settings import OAuthSettings

from ..server.oauth.provider import RESOURCE, Provider


def refuse(**settings: object) -> str:
    config: dict[str, dict[str, object]] = {"oauth": {"resource_server_id": RESOURCE, **settings}}
    with pytest.raises(ConfigError) as refusal, recado.Broker(config=config):
        pass
    return str(refusal.value)


def test_without_the_setting_there_is_none() -> None:
    assert build_token_verifier(OAuthSettings()) is None


def test_keys_in_a_file(tmp_path: Path) -> None:
    provider, file = Provider(), tmp_path / "keys.json"
    file.write_bytes(provider.document())
    oauth: dict[str, object] = {
        "resource_server_id": RESOURCE,
        "jwks_file": str(file),
        "scope_prefix": "own:",
        "scope_aliases": {"role": ["own:read:*/*"]},
        "additional_scopes_key": "roles",
        "preferred_username_claims": ["email"],
    }

    async def check() -> tuple[str, bool]:
        async with recado.Broker(config={"oauth": oauth}) as broker:
            authenticator = broker._require_running().server.authenticator
            token = provider.token(roles="role", email="ana@a.test")
            user = await authenticator.check_token(token.encode(), "::1")
            assert user is not None
            return user.name, user.may_enter("/")

    assert asyncio.run(check()) == ("ana@a.test", True)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "No such file or directory"),
        (b"nonsense", "not a JSON Web Key Set"),
        (b'{"keys": [{"kty": "oct", "k": "cHNzc3Q"}]}', "no usable key: RSA with 2,048 bits"),
    ],
)
def test_a_file_without_keys(tmp_path: Path, content: bytes | None, fault: str) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_bytes(content)
    answer = refuse(jwks_file=str(file))
    assert answer.startswith(f"oauth.jwks_file '{file}': {fault}")
    assert "cHNzc3Q" not in answer


def test_a_bad_file_of_authorities(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    answer = refuse(jwks_url="https://a.test/", ca=str(file))
    assert answer == f"oauth.ca '{file}': No such file or directory"


@pytest.mark.parametrize("package", ["jwt", "cryptography"])
def test_without_the_extra_the_command_is_told(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for module in list(sys.modules):
        if module.startswith(("recado.node.oauth", "recado.server.oauth.keys", package)):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    answer = refuse(jwks_url="https://a.test/")
    assert answer.startswith("oauth.resource_server_id needs the extra 'oauth' (")
    assert answer.endswith("is missing): pip install 'recado[oauth]'")


def test_a_node_without_tokens_does_not_import_the_extra() -> None:
    program = "import sys, recado; recado.Broker().__enter__().__exit__(None, None, None); print('jwt' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
