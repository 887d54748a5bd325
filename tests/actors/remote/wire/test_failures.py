"""Exceptions that travel."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.errors import NoSuchActorError
from recado.actors.remote.errors import MessageRefusedError, RefusalReason, RemoteActorError
from recado.actors.remote.wire.envelope_pb2 import Failure
from recado.actors.remote.wire.failures import (
    ARGUMENTS_MAX_BYTES,
    MAX_TEXT_CHARACTERS,
    decode_exception,
    encode_exception,
    register_exception,
)
from tests.actors.values import EXAMPLES, alike


class NotRegisteredError(Exception):
    pass


@register_exception
class OutOfStockError(Exception):
    def __init__(self, item: str, left: int = 0) -> None:
        super().__init__(item, left)
        self.item, self.left = item, left


def travelled(error: BaseException) -> Exception:
    return decode_exception(Failure.FromString(encode_exception(error).SerializeToString()))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("k", 3),
        OSError(2, "gone"),
        TimeoutError(),
        OutOfStockError("tea", 4),
    ],
)
def test_registered_ones_are_rebuilt(error: Exception) -> None:
    arrived = travelled(error)
    assert type(arrived) is type(error)
    assert arrived.args == error.args


def test_errors_of_actors_and_of_nodes_are_registered() -> None:
    assert isinstance(travelled(NoSuchActorError("nobody", "look")), NoSuchActorError)
    refused = travelled(MessageRefusedError(RefusalReason.UNTRUSTED))
    assert isinstance(refused, MessageRefusedError)
    assert refused.reason is RefusalReason.UNTRUSTED


@pytest.mark.parametrize("value", EXAMPLES.values(), ids=EXAMPLES)
def test_arguments_of_every_type_arrive_as_they_were(value: object) -> None:
    arrived = travelled(ValueError("no", value))
    assert type(arrived) is ValueError
    assert alike(arrived.args, ("no", value))


def test_a_refusal_is_passed_on_with_its_reason() -> None:
    refused = travelled(MessageRefusedError(RefusalReason.ENVELOPE, "a field is missing"))
    assert isinstance(refused, MessageRefusedError)
    assert (refused.reason, refused.detail) == (RefusalReason.ENVELOPE, "a field is missing")


def test_a_class_is_found_by_the_name_under_which_it_was_registered() -> None:
    class RenamedError(Exception):
        pass

    register_exception(RenamedError, "shop.RenamedError")
    assert encode_exception(RenamedError("x")).kind == "shop.RenamedError"
    assert type(travelled(RenamedError("x"))) is RenamedError


def test_others_keep_their_name_and_text_however_far_they_go() -> None:
    arrived = travelled(travelled(NotRegisteredError("deep down")))
    assert isinstance(arrived, RemoteActorError)
    assert arrived.kind == f"{__name__}.NotRegisteredError"
    assert arrived.text == "deep down"


def test_no_class_is_imported() -> None:
    for kind in ("SystemExit", "KeyboardInterrupt", "StopIteration", "os.system", "ModuleNotFound"):
        assert type(decode_exception(Failure(kind=kind, text="x"))) is RemoteActorError


def test_arguments_that_are_no_plain_values_are_left_out() -> None:
    arrived = travelled(ValueError(object(), "x"))
    assert type(arrived) is ValueError
    assert "object" in str(arrived)


def test_what_does_not_fit_the_class_is_a_remote_failure() -> None:
    arguments = msgspec.msgpack.encode([1, 2, 3, 4, 5])
    arrived = decode_exception(
        Failure(kind=f"{__name__}.OutOfStockError", text="t", arguments=arguments)
    )
    assert isinstance(arrived, RemoteActorError)
    huge = decode_exception(Failure(kind="ValueError", arguments=bytes(ARGUMENTS_MAX_BYTES + 1)))
    assert isinstance(huge, RemoteActorError)


def test_text_is_bounded_and_a_broken_str_is_no_harm() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert len(str(travelled(NotRegisteredError("x" * 100_000)))) < MAX_TEXT_CHARACTERS + 100
    assert isinstance(travelled(MuteError(object())), RemoteActorError)
    assert "?" in str(travelled(NotRegisteredError("\ud800")))


def test_a_name_is_for_one_class() -> None:
    with pytest.raises(ValueError, match="another exception"):
        register_exception(NotRegisteredError, f"{__name__}.OutOfStockError")


@given(st.text(st.characters(codec="utf-8"), max_size=30), st.binary(max_size=50))
def test_noise_is_an_exception_to_give_and_not_one_to_have(kind: str, arguments: bytes) -> None:
    for name in (kind, "ValueError", "OSError", "UnicodeDecodeError", "ExceptionGroup"):
        assert isinstance(decode_exception(Failure(kind=name, arguments=arguments)), Exception)
