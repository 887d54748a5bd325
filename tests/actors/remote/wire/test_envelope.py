"""Envelopes: encoded as protobuf does, and decoded within limits."""

import contextlib
import importlib.resources
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.errors import InvalidEnvelopeError
from recado.actors.remote.wire import envelope_pb2
from recado.actors.remote.wire.envelope import (
    FIELD_CHECK_MIN_BYTES,
    MAX_CACHED_PREFIXES,
    MAX_FIELDS,
    MAX_METADATA_COUNT,
    MAX_METADATUM_CHARACTERS,
    MAX_NAME_CHARACTERS,
    EnvelopeWriter,
    encode_varint,
    read_envelope,
)
from recado.actors.remote.wire.envelope_pb2 import (
    ANSWER,
    CONTROL,
    Envelope,
    Failure,
    Metadatum,
    Payload,
)

ids = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=40)
metadata = st.dictionaries(texts, texts, max_size=3)
format_ids = st.integers(0, 3)
compressions = st.integers(0, 2)


@given(
    texts, metadata, ids, texts, texts, st.none() | st.integers(0, 2**32 - 1), format_ids, texts,
    compressions, st.binary(max_size=300), st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_message_is_written_as_protobuf_would(
    client: str, about: dict[str, str], number: int, target: str, sender: str, timeout_ms: int | None,
    format_id: int, manifest: str, compression: int, body: bytes, control: bool, receipt: bool,
) -> None:  # fmt: skip
    writer = EnvelopeWriter("here", client, about)
    for _ in range(2):  # encoded, and from the cached prefix
        written = writer.write_message(
            number, target, sender, timeout_ms, format_id, manifest, compression, body,
            control=control, receipt=receipt,
        )  # fmt: skip
        assert Envelope.FromString(written) == Envelope(
            id=number,
            target=target,
            one_way=receipt or timeout_ms is None,
            receipt=receipt,
            message=Payload(
                format_id=format_id,  # type: ignore[arg-type]
                body=body,
                manifest=manifest,
                compression=compression,  # type: ignore[arg-type]
            ),
            sender=sender,
            metadata=[Metadatum(key=key, value=value) for key, value in about.items()],
            node="here",
            client=client or "here",
            kind=CONTROL if control else 0,  # type: ignore[arg-type]
            timeout_ms=timeout_ms or 0,
        )


@given(texts, ids, ids, texts, format_ids, texts, compressions, st.binary(max_size=300))
def test_an_answer_is_written_as_protobuf_would(
    client: str, number: int, answers: int, target: str, format_id: int, manifest: str,
    compression: int, body: bytes,
) -> None:  # fmt: skip
    writer = EnvelopeWriter("here", client)
    for _ in range(2):
        written = writer.write_answer(
            number, answers, target, format_id, manifest, compression, body
        )
        assert Envelope.FromString(written) == Envelope(
            id=number,
            target=target,
            one_way=True,
            message=Payload(
                format_id=format_id,  # type: ignore[arg-type]
                body=body,
                manifest=manifest,
                compression=compression,  # type: ignore[arg-type]
            ),
            node="here",
            client=client or "here",
            kind=ANSWER,
            answers=answers,
        )


def test_a_failure_tells_whose_supervisor_should_know() -> None:
    failure = Failure(kind="ValueError", text="no")
    read = read_envelope(EnvelopeWriter("c").write_error(1, 2, "to", failure, "boss"))
    assert (read.answers, read.exception, read.supervisor) == (2, failure, "boss")
    assert not read.HasField("message")


@given(st.integers(0, 2**64 - 1))
def test_varints_are_those_of_protobuf(number: int) -> None:
    assert Payload.FromString(b"\x28" + encode_varint(number)).ByteSize() == 1 + len(
        encode_varint(number)
    )


def test_prefixes_that_are_kept_are_bounded() -> None:
    writer = EnvelopeWriter("c")
    for number in range(MAX_CACHED_PREFIXES + 10):
        writer.write_message(number, str(number), "", None, 0, "", 0, b"")
    assert len(writer._prefixes) <= MAX_CACHED_PREFIXES


@given(st.binary(max_size=200))
def test_noise_is_an_envelope_or_an_error(noise: bytes) -> None:
    with contextlib.suppress(InvalidEnvelopeError):
        read_envelope(noise)


@given(st.binary(max_size=200))
def test_noise_that_is_counted_is_an_envelope_or_an_error(noise: bytes) -> None:
    body = Envelope(message=Payload(body=bytes(FIELD_CHECK_MIN_BYTES))).SerializeToString()
    with contextlib.suppress(InvalidEnvelopeError):
        read_envelope(body + noise)


def test_many_small_fields_are_refused_before_anything_is_made_of_them() -> None:
    bomb = b"\x42\x00" * 500_000  # a million bytes, half a million empty metadata
    with pytest.raises(InvalidEnvelopeError, match=f"more than {MAX_FIELDS} fields"):
        read_envelope(bomb)


def test_the_largest_body_is_one_field() -> None:
    body = bytes(1 << 20)
    written = EnvelopeWriter("c").write_message(1, "t", "", None, 0, "", 0, body)
    assert read_envelope(written).message.body == body


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope(target="x" * (MAX_NAME_CHARACTERS + 1)),
        Envelope(sender="x" * (MAX_NAME_CHARACTERS + 1)),
        Envelope(client="x" * (MAX_NAME_CHARACTERS + 1)),
        Envelope(node="x" * (MAX_NAME_CHARACTERS + 1)),
        Envelope(supervisor="x" * (MAX_NAME_CHARACTERS + 1)),
        Envelope(message=Payload(manifest="x" * (MAX_NAME_CHARACTERS + 1))),
        Envelope(metadata=[Metadatum(key="k" * 40)] * (MAX_METADATA_COUNT + 1)),
        Envelope(metadata=[Metadatum(key="k", value="v" * MAX_METADATUM_CHARACTERS)]),
    ],
)
def test_names_and_metadata_are_bounded(envelope: Envelope) -> None:
    with pytest.raises(InvalidEnvelopeError, match=r"(longer|more) than"):
        read_envelope(envelope.SerializeToString())


def test_a_writer_has_no_more_metadata_than_a_reader_takes() -> None:
    with pytest.raises(ValueError, match="metadata"):
        EnvelopeWriter("n", "c", {str(n): "" for n in range(MAX_METADATA_COUNT + 1)})


def test_fields_of_the_future_are_ignored() -> None:
    later = Envelope(target="t").SerializeToString() + b"\xa2\x06\x03new"  # field 100
    assert read_envelope(later).target == "t"


@pytest.mark.parametrize("tail", [b"\x0b", b"\x0e", b"\x22\xff", b"\x80" * 12, b"\x22\x05ab"])
def test_large_envelopes_that_are_broken_are_refused(tail: bytes) -> None:
    with pytest.raises(InvalidEnvelopeError):
        read_envelope(Envelope(message=Payload(body=bytes(5000))).SerializeToString() + tail)


def test_the_generated_module_is_that_of_the_format(tmp_path: Path) -> None:
    package = importlib.resources.files("recado.actors.remote.wire")
    source = Path(str(package)).parents[3]
    out = tmp_path / "envelope.bin"
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{source}",
            f"--descriptor_set_out={out}", "recado/actors/remote/wire/envelope.proto",
        ],
        check=True,
    )  # fmt: skip
    compiled = FileDescriptorSet.FromString(out.read_bytes()).file[0]
    for message in compiled.message_type:
        for field in message.field:
            field.ClearField("json_name")  # only the compiler's own output has them
    generated = FileDescriptorProto()
    envelope_pb2.DESCRIPTOR.CopyToProto(generated)
    for message in generated.message_type:
        for field in message.field:
            field.ClearField("json_name")
    assert generated == compiled
