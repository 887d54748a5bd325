"""Whether a password is the user's. Hashes are argon2's, or RabbitMQ's as its exports have them.

    RabbitMQ: base64( | salt, 4 bytes | sha256(salt + password), 32 bytes, or sha512, 64 bytes | )

Argon2 takes tens of milliseconds on purpose, so it runs in a thread, and a password that was right is
remembered as a keyed digest: ten thousand clients that reconnect do not cost ten thousand times that.

What computes them brings OpenSSL with it, 5 ms of a start, and waits until somebody logs in.
"""

import asyncio
import base64
import binascii
import os
import re

_CACHED_DIGESTS_MAX = 4096
_SALT_BYTES = 4
_ALGORITHMS = {32: "sha256", 64: "sha512"}  # by the size of what they give
# What `argon2` writes, with the shortest salt and hash that it takes: 8 and 4 bytes.
_ARGON2_PATTERN = (
    r"\$argon2(id|i|d)(\$v=\d+)?\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{6,}"
)


def hash_password(password: str) -> str:
    """A quick hash, for passwords that the configuration has in plain text anyway."""
    salt = os.urandom(_SALT_BYTES)
    return base64.b64encode(salt + _hash("sha256", salt + password.encode())).decode()


def is_slow(password_hash: str) -> bool:
    """Whether to check a password by it takes time, on purpose."""
    return password_hash.startswith("$argon2")


def is_password_hash(text: str) -> bool:
    """Whether any password could fit, to tell a hash of another kind or one that was cut off."""
    if is_slow(text):
        return re.fullmatch(_ARGON2_PATTERN, text) is not None
    return find_hash_algorithm(text) is not None


def find_hash_algorithm(text: str) -> str | None:
    """Which of the two that RabbitMQ may have made a hash by, if any."""
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
    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._verified_digests: set[bytes] = set()

    def check_now(self, password_hash: str, password: bytes) -> bool | None:
        """The answer, or None where it takes time to find it."""
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
        right = await asyncio.get_running_loop().run_in_executor(
            None, _check_argon2, password_hash, password
        )
        if right:
            if len(self._verified_digests) >= _CACHED_DIGESTS_MAX:
                self._verified_digests.clear()
            self._verified_digests.add(self._digest(password_hash, password))
        return right

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
