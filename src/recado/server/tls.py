"""TLS for a listener."""

import ssl


def server_context(certificate: str, key: str, ca: str | None, *, verify: bool) -> ssl.SSLContext:
    """`ca` signs the clients' certificates; with `verify` a client must have one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_OPTIONAL
    return context
