"""Passwords: valid hashes, and whether a password matches."""

from __future__ import annotations

import asyncio

import pytest
from argon2 import PasswordHasher
from argon2.low_level import Type

from recado.server.passwords import PasswordChecker, hash_password, is_password_hash


def argon2(password: str, kind: Type = Type.ID) -> str:
    """With little effort: the tests are about the form."""
    return PasswordHasher(time_cost=1, memory_cost=64, parallelism=1, type=kind).hash(password)


def test_ours_is_a_hash_and_fits_its_password_only() -> None:
    stored = hash_password("pssst")
    assert is_password_hash(stored)
    assert PasswordChecker().check_now(stored, b"pssst") is True
    assert PasswordChecker().check_now(stored, b"pst") is False


def test_one_of_rabbitmqs_documentation_is_a_hash_and_fits() -> None:
    """RabbitMQ's guide to passwords computes this one: salt 908DC60A, password test12."""
    stored = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert is_password_hash(stored)
    assert PasswordChecker().check_now(stored, b"test12") is True


@pytest.mark.parametrize("kind", Type)
def test_argon2s_is_a_hash_and_is_verified_slowly_once(kind: Type) -> None:
    stored = argon2("pssst", kind)
    passwords = PasswordChecker()
    assert is_password_hash(stored)
    assert passwords.check_now(stored, b"pssst") is None
    assert asyncio.run(passwords.check_in_thread(stored, b"pst")) is False
    assert asyncio.run(passwords.check_in_thread(stored, b"pssst")) is True
    assert passwords.check_now(stored, b"pssst") is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abcd",
        "pssst!",
        "ção",
        hash_password("pssst")[:-4],
        "$argon2id$v=19$m=1,t=1",
        argon2("pssst").rpartition("$")[0],
        "$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW",
    ],
    ids=lambda text: f"{len(text)}-bytes",  # their salts differ from run to run
)
def test_invalid_hashes(text: str) -> None:
    assert not is_password_hash(text)
