from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents import sequencers
from penstock.errors import InvalidInput

NOW = datetime(2025, 8, 28, tzinfo=UTC)
HEX = st.text("0123456789ABCDEFabcdef", min_size=1, max_size=18)


@given(HEX, HEX)
def test_s3_orders_as_if_the_shorter_were_padded_with_zeros(left, right):
    width = max(len(left), len(right))
    padded = left.lower().ljust(width, "0"), right.lower().ljust(width, "0")
    made = sequencers.s3(left), sequencers.s3(right)
    assert (made[0] < made[1]) == (padded[0] < padded[1])
    assert (made[0] == made[1]) == (padded[0] == padded[1])


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_minio_orders_by_nanoseconds_whatever_their_length(left, right):
    assert (sequencers.minio(f"{left:X}") < sequencers.minio(f"{right:X}")) == (left < right)


@given(st.integers(0, 2**32 - 1), st.integers(0, 999_999_999), st.integers(0, 2**32 - 1), st.integers(0, 999_999_999))
def test_ceph_orders_by_seconds_and_nanoseconds_that_are_packed_lowest_byte_first(s1, n1, s2, n2):
    def packed(seconds: int, nanoseconds: int) -> str:
        return (seconds.to_bytes(4, "little") + nanoseconds.to_bytes(4, "little")).hex().upper()

    assert (sequencers.ceph(packed(s1, n1)) < sequencers.ceph(packed(s2, n2))) == ((s1, n1) < (s2, n2))


def test_a_generation_is_deleted_after_it_was_made_and_before_the_next_is():
    order = [
        sequencers.gcs("9", deleted=False),
        sequencers.gcs("9", deleted=True),
        sequencers.gcs("10", deleted=False),
    ]
    assert order == sorted(order)


def test_within_a_family_the_sequencer_decides_and_not_the_time():
    later = NOW + timedelta(hours=1)
    assert sequencers.is_newer("s3:02", NOW, "s3:01", later)
    assert not sequencers.is_newer("s3:01", later, "s3:01", NOW)


def test_between_families_the_time_decides_and_two_clocks_may_differ():
    later, skew = NOW + timedelta(milliseconds=1), timedelta(seconds=sequencers.SKEW_SECONDS_MAX)
    assert sequencers.is_newer("ns:1", later, "s3:ff", NOW)
    assert sequencers.is_newer(None, later, "s3:ff", NOW)
    assert sequencers.is_newer("s3:01", NOW - skew + timedelta(milliseconds=1), "seen:1", NOW)
    assert not sequencers.is_newer("s3:01", NOW - skew, "seen:1", NOW)


def test_without_sequencers_the_time_alone_decides():
    assert sequencers.is_newer(None, NOW + timedelta(microseconds=1), None, NOW)
    assert not sequencers.is_newer(None, NOW, None, NOW)
    assert sequencers.same_event(None, NOW, None, NOW)


def test_a_family_keeps_its_order_when_another_was_heard_in_between():
    assert not sequencers.is_newer("s3:04", NOW, "seen:1", NOW, ("s3:05",))
    assert not sequencers.is_newer("s3:05", NOW, "seen:1", NOW, ("s3:05",))
    assert sequencers.is_newer("s3:06", NOW, "seen:1", NOW, ("s3:05",))


def test_the_last_order_of_every_other_family_is_remembered():
    first = sequencers.remembered("seen:1", "s3:05", NOW, ())
    assert first == ("s3:05",)
    assert sequencers.remembered("s3:06", "seen:1", NOW, first) == ("seen:1",)
    assert sequencers.remembered("seen:2", "seen:1", NOW, first) == first
    assert sequencers.last_seen_ns("s3:06", ("seen:00000000000000000007",)) == 7
    assert sequencers.last_seen_ns(None, ()) == -1


@pytest.mark.parametrize("raw", ["", "xyz", "0x1", "-1", " 1"])
def test_what_is_not_hexadecimal_is_refused(raw):
    for make in (sequencers.s3, sequencers.minio, sequencers.ceph):
        with pytest.raises(InvalidInput):
            make(raw)


def test_a_time_becomes_nanoseconds_without_loss():
    assert sequencers.nanoseconds_of(datetime(2025, 8, 28, 1, 2, 3, 456789, tzinfo=UTC)) % 1_000_000_000 == 456_789_000


INSTANTS = st.datetimes(timezones=st.just(UTC))


@given(INSTANTS, INSTANTS)
def test_events_without_a_sequencer_are_ordered_by_their_times_at_both_ends_of_the_calendar(left, right):
    assert sequencers.is_newer(None, left, None, right) == (left > right)
    # Of another family the times decide, and neither end of the calendar has room for the skew.
    assert sequencers.is_newer("s3:1", left, None, right) == (left - right > -timedelta(seconds=60))


def test_an_order_of_our_own_that_nobody_could_go_on_from_is_refused_and_of_old_ones_nothing_is_counted():
    for order in ("seen:", "seen:soon", "seen:7", "seen:" + "9" * 20, "seen:" + "1" * 5000):
        with pytest.raises(InvalidInput, match="not a sequencer"):
            sequencers.check_sequencer(order)
    sequencers.check_sequencer(sequencers.seen(7))
    assert sequencers.last_seen_ns("seen:soon", ["s3:1", sequencers.seen(7), "seen:" + "1" * 5000]) == 7
