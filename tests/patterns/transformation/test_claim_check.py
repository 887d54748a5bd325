"""Claim checks, over each store."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from recado.journal.disk import FolderFile
from recado.patterns.errors import ClaimError, TranslationError
from recado.patterns.message import Message
from recado.patterns.transformation import (
    CLAIM_CONTENT_TYPE,
    Claim,
    ClaimCheck,
    ClaimRedeem,
    ClaimStore,
    FolderClaimStore,
    MemoryClaimStore,
    ObjectClaimStore,
)
from recado.patterns.translation import Translators
from tests.patterns.translation.shop import Item
from tests.pipeline.lake.object_store import BUCKET, object_store

PICTURE = b"\x89PNG" * 50_000
DIGEST = sha256(PICTURE).hexdigest()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with object_store() as started:
        host = started.url.removeprefix("http://")
        yield f"s3://{BUCKET}/claims?scheme=http&region=us-east-1&endpoint_override={host}"


@pytest.fixture(params=["folder", "memory", "s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ClaimStore:
    match request.param:
        case "folder":
            return FolderClaimStore(tmp_path / "claims")
        case "memory":
            return MemoryClaimStore()
        case _:
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
            monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            return ObjectClaimStore(request.getfixturevalue("s3"))


def run(step: ClaimCheck | ClaimRedeem, message: Message[Any]) -> Message[Any]:
    (output,) = asyncio.run(step.process(message))
    assert isinstance(output, Message)
    return output


def as_received(message: Message[Any]) -> Message[Any]:
    registry = Translators()
    body, content_type = registry.encode(message.body, message.content_type)
    return message.replace(body=registry.decode(body, content_type, Any), content_type=content_type)


def test_a_large_body_goes_to_the_store_and_back(store: ClaimStore) -> None:
    message = Message(body=PICTURE, content_type="image/png", headers={"a": 1}, message_id="m")
    checked = run(ClaimCheck(store), message)
    assert checked.body == Claim(DIGEST, len(PICTURE), "image/png")
    assert checked.content_type == CLAIM_CONTENT_TYPE
    assert (checked.headers, checked.message_id) == ({"a": 1}, "m")
    assert run(ClaimCheck(store), message) == checked  # delivered again
    for received in (as_received(checked), checked):
        assert run(ClaimRedeem(store, bytes), received) == message


def test_objects_are_encoded_in_the_format_of_the_message(store: ClaimStore) -> None:
    items = [Item(f"item {number}") for number in range(5)]
    message = Message(body=items, content_type="application/xml")
    checked = run(ClaimCheck(store, threshold_bytes=10), message)
    assert checked.body.content_type == "application/xml"
    assert run(ClaimRedeem(store, list[Item]), as_received(checked)) == message


def test_small_bodies_and_other_messages_pass() -> None:
    store = MemoryClaimStore()
    message = Message(body={"a": 1})
    assert run(ClaimCheck(store), message) is message
    assert run(ClaimRedeem(store), message) is message
    assert store.bodies == {}
    exact = Message(body=b"12345")
    assert run(ClaimCheck(store, threshold_bytes=6), exact) is exact
    assert run(ClaimCheck(store, threshold_bytes=5), exact).content_type == CLAIM_CONTENT_TYPE


def claim_message(digest: str = DIGEST, size: int = len(PICTURE)) -> Message[Any]:
    return Message(body=Claim(digest, size, "image/png"), content_type=CLAIM_CONTENT_TYPE)


def test_a_missing_body_is_an_error(store: ClaimStore) -> None:
    with pytest.raises(ClaimError, match=r"is not in .*: it has expired"):
        run(ClaimRedeem(store, bytes), claim_message("0" * 64))


def test_claims_are_not_trusted(store: ClaimStore) -> None:
    store.put(DIGEST, PICTURE)
    store.put("1" * 64, PICTURE)
    small = Translators(body_bytes_max=1000)
    for message, text in (
        (claim_message("1" * 64), "has changed in its store"),
        (claim_message(size=len(PICTURE) - 1), "has changed in its store"),
        (claim_message(size=len(PICTURE) + 1), "has changed in its store"),
    ):
        with pytest.raises(ClaimError, match=text):
            run(ClaimRedeem(store, bytes), message)
    for message in (
        claim_message("../../etc/passwd"),
        claim_message(f"{DIGEST}\n"),
        claim_message(DIGEST.upper()),
        claim_message(size=-1),
        claim_message().with_body({"digest": 5}),
        claim_message().with_body("no claim"),
    ):
        with pytest.raises(TranslationError, match="to Claim: "):
            run(ClaimRedeem(store, bytes), as_received(message))
    with pytest.raises(TranslationError, match="to Claim: "):
        run(ClaimRedeem(store, bytes), claim_message().with_body(b"no claim"))
    with pytest.raises(ClaimError, match="is larger than 1000 bytes"):
        run(ClaimRedeem(store, bytes, translators=small), claim_message())
    with pytest.raises(TranslationError, match="is larger than 1000 bytes"):
        run(ClaimCheck(store, translators=small), Message(body=PICTURE))
    as_bytes = claim_message().with_body(Translators().encode(claim_message().body)[0])
    assert run(ClaimRedeem(store, bytes), as_bytes).body == PICTURE


def test_bodies_of_a_folder_expire(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "claims"
    store = FolderClaimStore(folder)
    store.put(DIGEST, PICTURE)
    store.put("1" * 64, b"old")
    (folder / f"{'2' * 64}.part").write_bytes(b"of a process that was killed")
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    store.put(DIGEST, PICTURE)  # stored again
    assert store.expire(3600) == 1
    assert [path.name for path in folder.iterdir()] == [DIGEST]
    assert store.expire(-3600) == 1


def test_a_part_of_a_body_is_replaced(tmp_path: Path) -> None:
    store = FolderClaimStore(tmp_path)
    (tmp_path / DIGEST).write_bytes(PICTURE[:10])
    store.put(DIGEST, PICTURE)
    assert store.get(DIGEST, len(PICTURE)) == PICTURE


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FolderFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = FolderClaimStore(tmp_path)
    monkeypatch.setattr(FolderFile, "sync", fail)
    with pytest.raises(OSError, match="No space left"):
        store.put(DIGEST, PICTURE)
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_is_stored_while_others_expire_stays(tmp_path: Path) -> None:
    """CLS2"""
    store = FolderClaimStore(tmp_path)
    body = b"body"
    digest = sha256(body).hexdigest()
    stop = threading.Event()

    def expire() -> None:
        while not stop.is_set():
            store.expire(3600)

    thread = threading.Thread(target=expire)
    thread.start()
    try:
        for _ in range(100):
            store.put(digest, body)
            os.utime(tmp_path / digest, (1, 1))
            store.put(digest, body)
            assert store.get(digest, len(body)) == body
    finally:
        stop.set()
        thread.join()
