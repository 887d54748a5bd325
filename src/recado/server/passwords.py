"""Password checks. Hashes are argon2's, or RabbitMQ's in the format of its definitions files.

    RabbitMQ: base64( | salt, 4 bytes | sha256(salt + password), 32 bytes, or sha512, 64 bytes | )

Argon2 takes tens of milliseconds by design. So it runs in a thread, and a keyed digest (HMAC with a random key)
of each correct password is cached: when ten thousand clients reconnect, argon2 does not run again.

The hash functions load OpenSSL, which takes 5 ms, so they are imported at the first login, or at the
start if the configuration has passwords in plain text (`hash_password`).
"""

import asyncio
import base64
import binascii
import os
import re

_CACHED_DIGESTS_MAX = 4096
_SALT_BYTES = 4
_ALGORITHMS = {32: "sha256", 64: "sha512"}  # by the size of the digest
# The format of `argon2`, with the shortest salt and hash that it accepts: 8 and 4 bytes.
_ARGON2_PATTERN = (
    r"\$argon2(id|i|d)(\$v=\d+)?\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{6,}"
)


def hash_password(password: str) -> str:
    """Return a hash as RabbitMQ makes it (salted SHA-256), which is fast to make and to check."""
    salt = os.urandom(_SALT_BYTES)
    return base64.b64encode(salt + _hash("sha256", salt + password.encode())).decode()


def is_slow(password_hash: str) -> bool:
    """Whether checking a password against this hash is slow by design."""
    return password_hash.startswith("$argon2")


def is_password_hash(text: str) -> bool:
    """Whether a text is a complete hash of a supported kind."""
    if is_slow(text):
        return re.fullmatch(_ARGON2_PATTERN, text) is not None
    return find_hash_algorithm(text) is not None


def find_hash_algorithm(text: str) -> str | None:
    """Return the algorithm of a RabbitMQ hash, or None if it is not one."""
    return _ALGORITHMS.get(len(_decode_base64(text)) - _SALT_BYTES)


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _hash(algorithm: str, data: bytes) -> bytes:
    import hashlib

    return hashlib.new(algorithm, data).digest()


class PasswordChecker:
    """Checks passwords against hashes, and caches digests of right ones."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._verified_digests: set[bytes] = set()

    def check_now(self, password_hash: str, password: bytes) -> bool | None:
        """Return whether a password is right, or None if the check is slow: then use `check_in_thread`."""
        if self._digest(password_hash, password) in self._verified_digests:
            return True
        if is_slow(password_hash):
            return None
        algorithm = find_hash_algorithm(password_hash)
        if algorithm is None:
            return False
        from hmac import compare_digest

        stored = _decode_base64(password_hash)
        return compare_digest(
            stored[_SALT_BYTES:], _hash(algorithm, stored[:_SALT_BYTES] + password)
        )

    async def check_in_thread(self, password_hash: str, password: bytes) -> bool:
        """Check a password against an argon2 hash in a thread, and cache a right one."""
        is_right = await asyncio.get_running_loop().run_in_executor(
            None, _check_argon2, password_hash, password
        )
        if is_right:
            if len(self._verified_digests) >= _CACHED_DIGESTS_MAX:
                self._verified_digests.clear()
            self._verified_digests.add(self._digest(password_hash, password))
        return is_right

    def _digest(self, password_hash: str, password: bytes) -> bytes:
        from hmac import digest

        return digest(self._key, password_hash.encode() + b"\0" + password, "sha256")


def _check_argon2(password_hash: str, password: bytes) -> bool:
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return PasswordHasher().verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False
