"""TLS files that cannot be used: the right one is named, and no pass phrase is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from recado.node.config import ConfigError
from recado.node.tls import check_tls_files

ISSUED = trustme.CA().issue_cert("127.0.0.1")


class Files:
    def __init__(self, folder: Path) -> None:
        self.certificate, self.key, self.ca = (
            folder / name for name in ("c.pem", "k.pem", "ca.pem")
        )
        self.certificate.write_bytes(ISSUED.cert_chain_pems[0].bytes())
        self.key.write_bytes(ISSUED.private_key_pem.bytes())
        self.ca.write_bytes(trustme.CA().cert_pem.bytes())

    def check(self) -> None:
        check_tls_files(str(self.certificate), str(self.key), str(self.ca))

    def fault(self) -> str:
        with pytest.raises(ConfigError) as refusal:
            self.check()
        return str(refusal.value)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_good_files_pass(files: Files) -> None:
    files.check()
    check_tls_files(str(files.certificate), str(files.key), None)


def test_one_file_may_hold_both(files: Files) -> None:
    files.certificate.write_bytes(ISSUED.private_key_and_cert_chain_pem.bytes())
    files.key = files.certificate
    files.check()


@pytest.mark.parametrize("name", ["certificate", "key", "ca"])
def test_a_file_that_is_not_there(files: Files, name: str) -> None:
    file: Path = getattr(files, name)
    file.unlink()
    assert files.fault() == f"server.{name} '{file}': No such file or directory"


@pytest.mark.parametrize("content", ["", "no PEM", "-----BEGIN CERTIFICATE-----\nMIIB"])
@pytest.mark.parametrize("name", ["certificate", "ca"])
def test_a_file_without_a_certificate(files: Files, name: str, content: str) -> None:
    file: Path = getattr(files, name)
    file.write_text(content)
    assert files.fault() == f"server.{name} '{file}' has no valid certificate in PEM format"


@pytest.mark.parametrize("content", ["", "no PEM", "-----BEGIN PRIVATE KEY-----\nMIIB"])
def test_a_file_without_a_key(files: Files, content: str) -> None:
    files.key.write_text(content)
    assert files.fault() == f"server.key '{files.key}' has no valid private key in PEM format"


def test_files_the_wrong_way_round(files: Files) -> None:
    files.certificate, files.key = files.key, files.certificate
    assert "server.certificate" in files.fault()


@pytest.mark.parametrize("kind", trustme.KeyType)
def test_a_key_of_another_certificate(files: Files, kind: trustme.KeyType) -> None:
    other = trustme.CA().issue_cert("127.0.0.1", key_type=kind)
    files.key.write_bytes(other.private_key_pem.bytes())
    assert files.fault().startswith("server.certificate and server.key do not match")


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_a_key_with_a_pass_phrase(files: Files, form: PrivateFormat) -> None:
    key = load_pem_private_key(ISSUED.private_key_pem.bytes(), None)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"pssst")))
    assert files.fault().startswith(f"server.key '{files.key}' is encrypted with a pass phrase")
