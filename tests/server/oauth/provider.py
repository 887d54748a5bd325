"""An identity provider: keys, tokens, and the document with the public keys, also over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

RESOURCE = "rabbitmq"
ISSUER = "https://provider.test"

_RSA = [rsa.generate_private_key(65537, 2048) for _ in range(2)]  # generating them is slow
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    return _RSA[number]


def ec_key(curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve or ec.SECP256R1())


def publish(key: PrivateKey, kid: str | None = None, **members: object) -> dict[str, Any]:
    """Return the public key as a member of a JSON Web Key Set."""
    if isinstance(key, rsa.RSAPrivateKey):
        text = RSAAlgorithm.to_jwk(key.public_key())
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        text = ECAlgorithm.to_jwk(key.public_key())
    else:
        text = OKPAlgorithm.to_jwk(key.public_key())
    found: dict[str, Any] = {**json.loads(text), **members}
    found.pop("key_ops", None)
    return found if kid is None else {**found, "kid": kid}


def document(*members: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": members}).encode()


class Provider:
    """Signs tokens with its current key, and publishes it under its id."""

    def __init__(self, key: PrivateKey | None = None, kid: str = "one") -> None:
        self.key: PrivateKey = key or rsa_key()
        self.kid = kid
        self.requests = 0
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        """Instead of the document: status, headers and body."""

    def rotate(self, key: PrivateKey, kid: str) -> None:
        self.key, self.kid = key, kid

    def document(self) -> bytes:
        self.requests += 1
        return document(publish(self.key, self.kid))

    def claims(self, *scopes: str, **claims: object) -> dict[str, object]:
        """Return the claims of a valid token; None removes one."""
        now = time.time()
        usual: dict[str, object] = {
            "iss": ISSUER,
            "sub": "ana",
            "aud": [RESOURCE, "other"],
            "exp": now + 600,
            "nbf": now - 5,
            "scope": [f"{RESOURCE}.{scope}" for scope in scopes],
        }
        return {key: value for key, value in {**usual, **claims}.items() if value is not None}

    def token(
        self,
        *scopes: str,
        algorithm: str | None = None,
        header: Mapping[str, object] | None = None,
        **claims: object,
    ) -> str:
        usual = "RS256" if isinstance(self.key, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(
            self.claims(*scopes, **claims),
            self.key,
            algorithm or usual,
            headers={"kid": self.kid, **(header or {})},
        )

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve the document over HTTP; yield its URL."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = provider.answer or (200, {}, provider.document())
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = Thread(target=server.serve_forever, args=[0.01])
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/jwks.json"
            finally:
                server.shutdown()
                thread.join()
