"""ULIDs sort by time, carry it, and never repeat."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.ids import UlidFactory, is_ulid, ulid, ulid_time_ms


class _FixedEntropy:
    def __init__(self, byte: int) -> None:
        self._byte = byte

    def token(self, size: int) -> bytes:
        return bytes([self._byte]) * size

    def uniform(self, low: float, high: float) -> float:
        return low


class _SteppingClock:
    """A wall clock that a test moves, backwards too."""

    def __init__(self, now: int) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("no identifier waits")


def test_a_ulid_has_the_published_form() -> None:
    """The specification's own example: 1469918176385 ms encodes as 01ARYZ6S41."""
    text = ulid(1469918176385, _FixedEntropy(0))
    assert text == "01ARYZ6S41" + "0" * 16
    assert ulid(1469918176385, _FixedEntropy(255)) == "01ARYZ6S41" + "Z" * 16


@given(st.integers(0, 2**48 - 1))
def test_the_time_can_be_read_back(time_ms: int) -> None:
    assert ulid_time_ms(ulid(time_ms)) == time_ms


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1))
def test_text_order_is_time_order(a: int, b: int) -> None:
    if a != b:
        assert (ulid(a) < ulid(b)) == (a < b)


def test_a_factory_goes_up_inside_a_millisecond_and_when_the_clock_steps_back() -> None:
    clock = _SteppingClock(1_000)
    factory = UlidFactory(clock, _FixedEntropy(255))
    made = [factory.next(), factory.next()]
    clock.now = 500
    made.append(factory.next())
    assert made == sorted(set(made))


@pytest.mark.parametrize("text", ["", "x", "8" + "0" * 25, "01aryz6s41" + "0" * 16, "01ARYZ6S41" + "U" * 16])
def test_what_is_not_a_ulid_is_refused_by_name(text: str) -> None:
    assert not is_ulid(text)
    with pytest.raises(InvalidInput, match="not a ULID"):
        ulid_time_ms(text)


@pytest.mark.parametrize("time_ms", [-1, 2**48])
def test_a_time_outside_48_bits_is_refused(time_ms: int) -> None:
    with pytest.raises(InvalidInput, match=str(time_ms)):
        ulid(time_ms)
