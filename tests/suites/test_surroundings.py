"""Certificates for the TLS clients of a suite, under the names that the suite expects."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from suites import surroundings
from suites.catalogue import SUITES

WITH_CERTIFICATES = [name for name, suite in SUITES.items() if suite.certificates]


@pytest.mark.parametrize("name", WITH_CERTIFICATES)
def test_a_suite_finds_certificates_of_the_brokers_authority(name: str, tmp_path: Path) -> None:
    files = SUITES[name].certificates
    assert files is not None
    authority, server = surroundings.server_certificates(tmp_path, required=files.required)
    assert server.verify is files.required
    surroundings.client_certificates(authority, tmp_path, files)
    folder = tmp_path / files.folder
    context = ssl.create_default_context(cafile=folder / files.ca)
    context.load_cert_chain(folder / files.certificate, folder / files.key)
    assert (folder / files.ca).read_bytes() == server.ca.read_bytes()
