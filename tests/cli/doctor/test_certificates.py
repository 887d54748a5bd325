"""Certificates: expired, expiring soon, without the right key, readable by everybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...certificate_folder import CertificateFolder
from .conftest import Diagnose

CHECK = ("certificate", "--tls-port", "0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CertificateFolder:
    made = CertificateFolder(tmp_path)
    for file in (made.certificate, made.key, made.ca):
        monkeypatch.setenv(f"RECADO_SERVER_{file.stem.upper()}", str(file))
    monkeypatch.setenv("RECADO_SERVER_CERTIFICATE", str(made.certificate))
    monkeypatch.setenv("RECADO_SERVER_KEY", str(made.key))
    monkeypatch.delenv("RECADO_SERVER_SERVER")
    made.key.chmod(0o600)
    return made


def test_files_in_order(folder: CertificateFolder, diagnose: Diagnose) -> None:
    found = diagnose(*CHECK)
    assert found.severities == ["ok", "ok", "ok"]
    certificate, ca, key = (each["found"] for each in found.findings)
    assert f"server.certificate {folder.certificate} is valid for 29 days" in certificate
    assert ca.startswith(f"server.ca {folder.ca} is valid for ")
    assert "matches, only its owner and its group can read it" in key


def test_an_expired_certificate(folder: CertificateFolder, diagnose: Diagnose) -> None:
    folder.issue(days=-3)
    folder.key.chmod(0o600)
    found = diagnose(*CHECK)
    assert (found.status, found.severities) == (1, ["error", "ok", "ok"])
    assert f"server.certificate {folder.certificate} expired on " in found.findings[0]["found"]
    assert "certbot renew" in found.findings[0]["fixes"][0]


def test_a_certificate_that_expires_soon(folder: CertificateFolder, diagnose: Diagnose) -> None:
    folder.issue(days=5)
    folder.key.chmod(0o600)
    found = diagnose(*CHECK)
    assert (found.status, found.severities) == (0, ["warning", "ok", "ok"])
    assert "is valid for 4 days" in found.findings[0]["found"]


def test_a_key_of_another_certificate(
    folder: CertificateFolder, diagnose: Diagnose, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    folder.write(folder.key, CertificateFolder(tmp_path / "other").key.read_bytes())
    found = diagnose(*CHECK)
    assert found.severities == ["error"]
    assert "server.certificate and server.key do not match" in found.only["found"]
    assert f"openssl pkey -pubout -in {folder.key}" in found.only["fixes"][1]


def test_a_certificate_that_is_missing(folder: CertificateFolder, diagnose: Diagnose) -> None:
    folder.certificate.unlink()
    found = diagnose(*CHECK)
    assert found.severities == ["error"]
    assert "No such file or directory" in found.only["found"]


def test_a_key_that_every_user_can_read(folder: CertificateFolder, diagnose: Diagnose) -> None:
    folder.key.chmod(0o644)
    found = diagnose(*CHECK)
    assert (found.status, found.severities) == (0, ["ok", "ok", "warning"])
    assert found.findings[2]["fixes"] == [f"chmod o-rw {folder.key}"]


def test_without_tls(diagnose: Diagnose) -> None:
    assert diagnose("certificate").only["found"].startswith("TLS is off")
