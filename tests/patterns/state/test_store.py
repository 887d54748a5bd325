"""The contract of all stores: the same tests run in memory, in SQLite and in PostgreSQL."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from recado.patterns.errors import StateError
from recado.patterns.state import MemoryStore, StateStore, StoreTransaction
from recado.patterns.state.store import KEY_BYTES_MAX
from tests.client.running import in_a_loop
from tests.patterns.conftest import Clock, NewStore, opened


class BreakdownError(Exception):
    """A function fails in its transaction."""


@in_a_loop
async def test_values_are_stored_replaced_and_deleted(new_store: NewStore) -> None:
    async with opened(new_store()) as store:

        def change(transaction: StoreTransaction) -> None:
            transaction.put("orders", "a", b"1")
            transaction.put("orders", "b", b"2")
            transaction.put("orders", "a", b"3")
            transaction.put("bills", "a", b"4")
            transaction.delete("orders", "b")
            transaction.delete("orders", "none")

        await store.run(change)

    async with opened(new_store()) as store:

        def read(transaction: StoreTransaction) -> list[bytes | None]:
            return [
                transaction.get(*each)
                for each in (("orders", "a"), ("orders", "b"), ("bills", "a"))
            ]

        assert await store.run(read) == [b"3", None, b"4"]


@in_a_loop
async def test_a_function_that_raises_changes_nothing(new_store: NewStore, clock: Clock) -> None:
    async with opened(new_store()) as store:

        def prepare(transaction: StoreTransaction) -> None:
            transaction.put("t", "old", b"1", deadline=clock.now - 1)
            transaction.mark_processed("c", "m1")
            transaction.mark_processed("c", "m2")
            transaction.add_output("p", b"first")
            transaction.acquire_lease("l", "me", 5)

        def fail(transaction: StoreTransaction) -> None:
            transaction.put("t", "new", b"2")
            transaction.put("t", "old", b"2")
            transaction.delete("t", "old")
            transaction.mark_processed("c", "m3")
            transaction.forget_processed("c", age_max=100, count_max=1)
            transaction.add_output("p", b"second")
            transaction.remove_outputs([row.id for row in transaction.outputs("p")])
            transaction.release_lease("l", "me")
            raise BreakdownError

        await store.run(prepare)
        before = await store.run(_content)
        with pytest.raises(BreakdownError):
            await store.run(fail)
        assert await store.run(_content) == before

        def trim(transaction: StoreTransaction) -> None:
            transaction.mark_processed("c", "m4")
            transaction.forget_processed("c", age_max=100, count_max=2)

        # The order in the inbox is restored as well.
        await store.run(trim)
        assert await store.run(_processed("c", "m1", "m2", "m4")) == [False, True, True]


def _content(transaction: StoreTransaction) -> object:
    return (
        list(transaction.scan("t")),
        transaction.due("t", 10),
        [transaction.has_processed("c", each) for each in ("m1", "m2", "m3")],
        transaction.outputs("p"),
        transaction.leases(),
    )


def _processed(consumer: str, *ids: str) -> Callable[[StoreTransaction], list[bool]]:
    return lambda transaction: [transaction.has_processed(consumer, each) for each in ids]


@in_a_loop
async def test_an_iterator_that_ends_in_a_function_is_an_error(new_store: NewStore) -> None:
    async with opened(new_store()) as store:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await store.run(lambda transaction: next(transaction.scan("t")))


@in_a_loop
async def test_scans_are_ordered_and_see_their_own_deletions(new_store: NewStore) -> None:
    keys = [f"k{number:04}" for number in range(450)]

    def fill(transaction: StoreTransaction) -> None:
        for key in reversed(keys):
            transaction.put("t", key, key.encode())
        transaction.put("t", "j", b"")
        transaction.put("t", "l", b"")

    def drain(transaction: StoreTransaction) -> list[str]:
        found = []
        for key, value in transaction.scan("t", "k"):
            assert value == key.encode()
            transaction.delete("t", key)
            found.append(key)
        return found

    async with opened(new_store()) as store:
        await store.run(fill)
        assert await store.run(drain) == keys
        assert await store.run(lambda transaction: [k for k, _ in transaction.scan("t")]) == [
            "j",
            "l",
        ]


@in_a_loop
async def test_entries_are_due_in_the_order_of_their_deadlines(
    new_store: NewStore, clock: Clock
) -> None:
    def fill(transaction: StoreTransaction) -> None:
        for key, deadline in (("a", 30), ("b", 10), ("c", 20), ("d", None), ("e", 20)):
            at = None if deadline is None else clock.now + deadline
            transaction.put("t", key, key.encode(), deadline=at)
        transaction.put("other", "f", b"", deadline=clock.now + 5)

    async with opened(new_store()) as store:
        await store.run(fill)
        start = clock.now
        assert await store.run(lambda t: t.next_deadline(["t"])) == start + 10
        assert await store.run(lambda t: t.next_deadline(["t", "other"])) == start + 5
        assert await store.run(lambda t: t.next_deadline(["none"])) is None
        assert await store.run(lambda t: t.next_deadline([])) is None
        clock.now += 20
        assert await store.run(lambda t: t.now) == clock.now
        due = [("b", b"b"), ("c", b"c"), ("e", b"e")]
        assert await store.run(lambda t: t.due("t", 10)) == due
        assert await store.run(lambda t: t.due("t", 2)) == due[:2]
        await store.run(lambda t: t.put("t", "b", b"again"))  # without a deadline
        assert await store.run(lambda t: t.due("t", 10)) == due[1:]


@in_a_loop
async def test_keys_are_any_text_up_to_a_length(new_store: NewStore) -> None:
    odd = ["", "\0", "a\0b", "%_", "é", "\ud800", "\udc80", "\U0010ffff", "x" * KEY_BYTES_MAX]

    def fill(transaction: StoreTransaction) -> None:
        for key in odd:
            transaction.put("t", key, repr(key).encode())
            transaction.mark_processed("c", key)

    async with opened(new_store()) as store:
        await store.run(fill)
        found = await store.run(lambda transaction: list(transaction.scan("t")))
        assert found == [(key, repr(key).encode()) for key in sorted(odd)]
        assert all(await store.run(_processed("c", *odd)))
        with pytest.raises(ValueError, match="longer than 1024 bytes"):
            await store.run(lambda transaction: transaction.put("t", "é" * 513, b""))


@in_a_loop
async def test_the_inbox_is_bounded_by_count_and_age(new_store: NewStore, clock: Clock) -> None:
    def mark(*ids: str) -> Callable[[StoreTransaction], None]:
        def run(transaction: StoreTransaction) -> None:
            for each in ids:
                transaction.mark_processed("c", each)
            transaction.forget_processed("c", age_max=60, count_max=3)

        return run

    async with opened(new_store()) as store:
        await store.run(mark())
        await store.run(mark("1", "2", "2", "3", "4"))
        assert await store.run(_processed("c", "1", "2", "3", "4")) == [False, True, True, True]
        assert await store.run(_processed("other", "2")) == [False]
        clock.now += 40
        await store.run(mark("5"))
        clock.now += 40
        await store.run(mark())
        assert await store.run(_processed("c", "3", "4", "5")) == [False, False, True]


@in_a_loop
async def test_outputs_are_read_in_order_and_removed(new_store: NewStore, clock: Clock) -> None:
    def fill(transaction: StoreTransaction) -> list[int]:
        transaction.add_output("q", b"other")
        return [transaction.add_output("p", b"%d" % each, key=f"k{each}") for each in range(5)]

    async with opened(new_store()) as store:
        assert await store.run(lambda t: t.oldest_output("p")) is None
        ids = await store.run(fill)
        assert ids == sorted(ids)
        clock.now += 10
        last = await store.run(lambda t: t.add_output("p", b"5"))

    async with opened(new_store()) as store:
        rows = await store.run(lambda t: t.outputs("p"))
        assert [row.id for row in rows] == [*ids, last]
        assert [row.content for row in rows] == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert [row.key for row in rows] == ["k0", "k1", "k2", "k3", "k4", ""]
        assert rows[0].added_at == clock.now - 10
        assert await store.run(lambda t: t.outputs("p", after=ids[1], limit=2)) == rows[2:4]
        await store.run(lambda t: t.remove_outputs([*ids, ids[0]]))
        assert await store.run(lambda t: t.outputs("p")) == rows[5:]
        assert await store.run(lambda t: t.oldest_output("p")) == clock.now
        assert await store.run(lambda t: t.oldest_output("q")) == clock.now - 10
        await store.run(lambda t: t.remove_outputs([last]))
        # An id is never used twice, also if the newest rows have been removed.
        assert await store.run(lambda t: t.add_output("p", b"6")) > last


@in_a_loop
async def test_outputs_of_several_processes_do_not_collide(new_store: NewStore) -> None:
    async with opened(new_store()) as first, opened(new_store()) as second:
        one = await first.run(lambda t: t.add_output("p", b"1"))
        two = await second.run(lambda t: t.add_output("p", b"2"))
        assert one < two


@in_a_loop
async def test_a_lease_has_one_owner_until_it_expires(new_store: NewStore) -> None:
    async with opened(new_store()) as first, opened(new_store()) as second:
        assert await first.run(lambda t: t.acquire_lease("flow", "one", 60))
        assert not await second.run(lambda t: t.acquire_lease("flow", "two", 60))
        assert await second.run(lambda t: t.acquire_lease("other", "two", 60))
        assert await second.run(lambda t: t.leases()) == {"flow": "one", "other": "two"}
        assert await second.run(lambda t: t.leases("fl")) == {"flow": "one"}
        assert await first.run(lambda t: t.acquire_lease("flow", "one", 0))
        # It has expired, but as long as no other process takes it, the owner can renew it.
        assert await first.run(lambda t: t.renew_lease("flow", "one", 0))
        assert await second.run(lambda t: t.acquire_lease("flow", "two", 60))
        assert not await first.run(lambda t: t.renew_lease("flow", "one", 60))
        await first.run(lambda t: t.release_lease("flow", "one"))
        assert await second.run(lambda t: t.renew_lease("flow", "two", 60))
        await second.run(lambda t: t.release_lease("flow", "two"))
        assert await first.run(lambda t: t.leases()) == {"other": "two"}
        assert not await first.run(lambda t: t.renew_lease("flow", "one", 60))


@in_a_loop
async def test_concurrent_transactions_lose_no_update(new_store: NewStore) -> None:
    def count(transaction: StoreTransaction) -> None:
        transaction.put("t", "n", b"%d" % (int(transaction.get("t", "n") or b"0") + 1))

    async def work(store: StateStore) -> None:
        for _ in range(30):
            await store.run(count, locks=["b", "t", "a"])

    async with opened(new_store()) as first, opened(new_store()) as second:
        await asyncio.gather(work(first), work(second), work(first))
        assert await first.run(lambda transaction: transaction.get("t", "n")) == b"90"


@in_a_loop
async def test_a_store_is_used_only_while_it_is_open(new_store: NewStore) -> None:
    store = new_store()
    with pytest.raises(StateError, match="not open"):
        await store.run(lambda transaction: None)
    await store.close()
    async with opened(store):
        await store.open()
        await store.run(lambda transaction: transaction.put("t", "a", b""))
    with pytest.raises(StateError, match="not open"):
        await store.run(lambda transaction: None)
    async with opened(store):
        assert await store.run(lambda transaction: transaction.get("t", "a")) == b""


@in_a_loop
async def test_the_event_loop_runs_while_a_transaction_does(new_store: NewStore) -> None:
    async with opened(new_store()) as store:
        if isinstance(store, MemoryStore):
            return
        release = threading.Event()
        waiting = asyncio.create_task(asyncio.wait_for(store.run(lambda _: release.wait(60)), 60))
        await asyncio.sleep(0)
        release.set()  # reached although the function waits
        assert await waiting is True
