"""Sequence numbers and their confirms, compared with a set of numbers (CCT1, CCT2)."""

from hypothesis import given
from hypothesis import strategies as st

from recado.client.confirms import ConfirmTracker

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("publish", "one", "upto", "each")), st.integers(0, 30), st.integers(1, 9)
    ),
    max_size=60,
)


@given(STEPS)
def test_each_number_is_told_once(steps: list[tuple[str, int, int]]) -> None:
    confirms, open_numbers, told = ConfirmTracker(), set[int](), list[int]()
    for what, number, count in steps:
        match what:
            case "publish":
                confirms.published_count += count
                last = confirms.published_count
                open_numbers.update(range(last - count + 1, last + 1))
                continue
            case "one":
                named = {number}
                found = confirms.settle(number, multiple=False)
            case "upto":
                named = set(range(1, (number or confirms.published_count) + 1))
                found = confirms.settle(number, multiple=True)
            case _:
                named = set(range(number, number + count))
                found = confirms.settle_range(number, count)
        numbers = [each for some in found for each in some]
        assert set(numbers) == named & open_numbers
        open_numbers -= named
        told += numbers
        assert all(found)
        assert confirms.unconfirmed_count == len(open_numbers)
        assert confirms.settled_up_to == min(open_numbers, default=confirms.published_count + 1) - 1
        assert all(confirms.is_settled(each) for each in told)
        assert not any(confirms.is_settled(each) for each in open_numbers)
    assert len(told) == len(set(told))


def test_in_order_all_are_one_range() -> None:
    confirms = ConfirmTracker()
    confirms.published_count = 1000
    assert confirms.settle(400, multiple=True) == [range(1, 401)]
    assert confirms.settle_range(401, 600) == [range(401, 1001)]
