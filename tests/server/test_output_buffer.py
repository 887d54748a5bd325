"""The output buffer of a connection, and its callback."""

from recado.server.output_buffer import CONGESTED_CHUNKS_MAX, OutputBuffer


class Bell:
    """An output buffer that counts the calls of its callback."""

    def __init__(self) -> None:
        self.rings = 0
        self.box = OutputBuffer(self._ring)

    def _ring(self) -> None:
        self.rings += 1


def test_it_wakes_once_until_all_is_taken() -> None:
    bell = Bell()
    bell.box.write(b"one")
    bell.box.write(b"two")
    assert bell.rings == 1
    assert bell.box.take_output() == [b"one", b"two"]
    bell.box.write(b"three")
    assert bell.rings == 2


def test_it_wakes_again_when_all_was_taken_in_pieces() -> None:
    """The last chunk may fill the requested size exactly, or exceed it."""
    bell = Bell()
    for most in (3, 2):
        bell.box.write(b"one")
        bell.box.write(b"two")
        rings = bell.rings
        assert [bell.box.take_output(most), bell.box.take_output(most)] == [[b"one"], [b"two"]]
        assert not bell.box.output
        bell.box.write(b"three")
        assert bell.rings == rings + 1
        bell.box.take_output()


def test_held_output_does_not_call_the_callback_until_released() -> None:
    bell = Bell()
    bell.box.write(b"held")
    bell.box.hold(0)
    assert (bell.box.take_output(), bell.rings) == ([], 1)
    bell.box.write(b"behind it")
    assert bell.rings == 1
    bell.box.release()
    assert (bell.box.take_output(), bell.rings) == ([b"held", b"behind it"], 2)


def test_held_output_is_released_group_by_group() -> None:
    bell = Bell()
    for piece in (b"first", b"second", b"third"):
        mark = bell.box.mark
        bell.box.write(piece)
        bell.box.hold(mark)
    bell.box.write(b"behind it")
    for pieces in ([b"first"], [b"second"], [b"third", b"behind it"]):
        assert bell.box.has_held_output
        bell.box.release()
        assert bell.box.unsent_bytes == sum(map(len, pieces))
        assert bell.box.take_output() == pieces
    assert not bell.box.has_held_output


def test_it_wakes_though_nothing_was_held_for_more_may_wait_behind_it() -> None:
    bell = Bell()
    bell.box.hold(0)
    bell.box.release()
    assert bell.rings == 1


def test_held_output_of_a_detached_buffer_is_dropped() -> None:
    bell = Bell()
    bell.box.write(b"held")
    bell.box.hold(0)
    bell.box.detach()
    bell.box.release()
    assert (bell.box.take_output(), bell.rings) == ([], 1)


def test_many_small_pieces_stop_deliveries_until_they_are_taken() -> None:
    """Each is a message that was delivered singly, which takes time however short it is."""
    bell = Bell()
    for _ in range(CONGESTED_CHUNKS_MAX):
        bell.box.write(b"x")
    assert not bell.box.congested
    bell.box.write(b"x")
    assert bell.box.congested
