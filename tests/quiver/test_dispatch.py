"""Order, pauses and flights of one subscriber's segments."""

from __future__ import annotations

import pytest

from penstock.quiver import DeliveryOrder, SubscriberConfig
from penstock.quiver.delivery.dispatch import Dispatch, retry_seconds
from penstock.testing import SeededEntropy


def taken(dispatch: Dispatch, now: float = 0.0) -> list[int]:
    found = []
    while (number := dispatch.take(now)) is not None:
        found.append(number)
    return found


@pytest.mark.parametrize(
    ("order", "expected"), [(DeliveryOrder.OLDEST_FIRST, [1, 2, 3]), (DeliveryOrder.NEWEST_FIRST, [3, 2, 1])]
)
def test_newest_first_and_oldest_first(order: DeliveryOrder, expected: list[int]) -> None:
    dispatch = Dispatch(SubscriberConfig(order=order))
    for number in (2, 1, 3, 2):
        dispatch.add(number)
    assert taken(dispatch) == expected


def test_no_more_are_in_flight_than_the_subscriber_wants() -> None:
    dispatch = Dispatch(SubscriberConfig(in_flight_max=2))
    for number in (1, 2, 3):
        dispatch.add(number)
    assert taken(dispatch) == [1, 2]
    dispatch.discard(1)
    assert taken(dispatch) == [3]


def test_a_delayed_one_comes_when_it_is_due_and_what_was_settled_meanwhile_never() -> None:
    dispatch = Dispatch(SubscriberConfig())
    for number in (1, 2):
        dispatch.add(number)
    assert taken(dispatch) == [1, 2]
    dispatch.delay(1, 5.0)
    dispatch.delay(2, 3.0)
    assert dispatch.next_due() == 3.0
    dispatch.discard(2)
    assert dispatch.next_due() == 5.0
    assert taken(dispatch, 4.9) == []
    assert taken(dispatch, 5.0) == [1]
    dispatch.delay(7, 1.0)
    assert taken(dispatch, 9.0) == []


def test_pauses_double_up_to_the_maximum_and_jitter_takes_up_to_half() -> None:
    config = SubscriberConfig(retry_seconds_first=1.0, retry_seconds_max=8.0)
    for attempts, longest in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0), (10_000, 8.0)]:
        pauses = [retry_seconds(config, attempts, SeededEntropy(seed)) for seed in range(30)]
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
