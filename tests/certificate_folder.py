"""The certificate, key and authority of a server in a folder, which a test can replace."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509


class CertificateFolder:
    """The files of a server, which `issue` replaces."""

    def __init__(self, path: Path) -> None:
        self.authority = trustme.CA()
        self.certificate, self.key, self.ca = (
            path / name for name in ("server.pem", "server.key", "ca.pem")
        )
        self.authority.cert_pem.write_to_path(self.ca)
        self.serial = self.issue()

    def issue(self, days: int = 30) -> int:
        """Replace certificate and key; return the serial number."""
        expires = datetime.now(UTC) + timedelta(days=days)
        issued = self.authority.issue_cert("127.0.0.1", not_after=expires)
        self.write(self.key, issued.private_key_pem.bytes())
        self.write(self.certificate, issued.cert_chain_pems[0].bytes())
        return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).serial_number

    def write(self, file: Path, data: bytes) -> None:
        """Replace a file at once, as tools that renew certificates do."""
        new = file.with_suffix(".new")
        new.write_bytes(data)
        new.replace(file)

    def config(self, **more: object) -> dict[str, dict[str, object]]:
        """Return the configuration of a broker with AMQPS, unless `tls_port` is None, and HTTPS."""
        files = {"certificate": str(self.certificate), "key": str(self.key)}
        return {
            "server": {"tls_port": 0, **files, **more},
            "management": {"port": 0, "tls": True},
        }

    def client(self, **options: object) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        for name, value in options.items():
            setattr(context, name, value)
        return context
