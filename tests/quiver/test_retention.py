"""Age before caps before steady state, the oldest first, and nothing that somebody reads."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.quiver import RetentionConfig, SizeCapPolicy
from penstock.quiver.retention.budget import room_left
from penstock.quiver.retention.plan import RetentionPlan, SegmentStanding, plan_retention

HOUR = 3_600_000
DROP = SizeCapPolicy.DROP_OLDEST


def plan(*segments: SegmentStanding, over: int = 0, now_ms: int = 0, **settings: Any) -> RetentionPlan:
    return plan_retention(segments, RetentionConfig(**settings), now_ms=now_ms, bytes_over=over)


def segment(number: int, size: int = 10, **standing: Any) -> SegmentStanding:
    return SegmentStanding(number, size, **{"ingested_ms": 0, **standing})


def test_processed_segments_go_and_unprocessed_ones_stay() -> None:
    found = plan(segment(1, is_processed=True), segment(2), segment(3, is_processed=True))
    assert (found.processed, found.dropped, found.expired) == ([1, 3], [], [])


def test_the_headroom_keeps_the_newest_processed_ones() -> None:
    found = plan(*(segment(number, is_processed=True) for number in (1, 2, 3)), steady_state_headroom=20)
    assert found.processed == [1]


def test_a_cap_takes_the_headroom_first() -> None:
    found = plan(*(segment(number, is_processed=True) for number in (1, 2, 3)), over=15, steady_state_headroom=100)
    assert (found.processed, found.evicted) == ([], [1, 2])


def test_at_the_cap_backpressure_drops_nothing_and_tells_what_is_missing() -> None:
    found = plan(segment(1), segment(2), over=15)
    assert (found.segment_seqs, found.bytes_over) == ([], 15)


def test_at_the_cap_drop_oldest_takes_the_oldest_unprocessed_after_all_others() -> None:
    found = plan(
        segment(1),
        segment(2),
        segment(3, is_rejected=True),
        segment(4, is_processed=True),
        over=25,
        size_cap_policy=DROP,
        steady_state_headroom=100,
    )
    assert (found.evicted, found.rejected, found.dropped) == ([4], [3], [1])


def test_force_drop_skips_segments_being_read() -> None:
    found = plan(segment(1, is_read=True), segment(2), over=5, size_cap_policy=DROP)
    assert found.dropped == [2]


def test_age_comes_before_everything_and_takes_unprocessed_ones() -> None:
    old = segment(1, ingested_ms=0)
    found = plan(old, segment(2, ingested_ms=73 * HOUR), now_ms=73 * HOUR + 1, over=10, size_cap_policy=DROP)
    assert (found.expired, found.dropped) == ([1], [])


def test_the_count_cap_is_a_cap() -> None:
    found = plan(*(segment(number) for number in (1, 2, 3)), segment_count_cap=2, size_cap_policy=DROP)
    assert found.dropped == [1]
    assert plan(*(segment(number) for number in (1, 2)), segment_count_cap=2, size_cap_policy=DROP).dropped == []


STANDINGS = st.lists(
    st.builds(
        SegmentStanding,
        st.integers(1, 50),
        st.integers(1, 100),
        st.integers(0, 100 * HOUR),
        st.booleans(),
        st.just(False),
        st.booleans(),
    ),
    unique_by=lambda one: one.segment_seq,
    max_size=12,
)


@given(STANDINGS, st.integers(-50, 500), st.booleans(), st.integers(0, 200))
def test_a_plan_never_takes_more_than_it_must(
    segments: list[SegmentStanding], over: int, drops: bool, headroom: int
) -> None:
    policy = DROP if drops else SizeCapPolicy.BACKPRESSURE
    found = plan(*segments, over=over, now_ms=100 * HOUR, size_cap_policy=policy, steady_state_headroom=headroom)
    by_number = {one.segment_seq: one for one in segments}
    gone = [by_number[number] for number in found.segment_seqs]
    assert len(set(found.segment_seqs)) == len(found.segment_seqs)
    assert not any(one.is_read for one in gone)
    assert drops or all(one.is_processed for one in gone if one.segment_seq not in found.expired)
    if found.dropped:
        # The last one dropped was needed, and no older one was left.
        freed = sum(one.bytes for one in gone) - by_number[found.dropped[-1]].bytes
        assert freed < over
        younger = [one for one in segments if one.segment_seq < found.dropped[-1] and not one.is_read]
        assert all(one.segment_seq in found.segment_seqs for one in younger)


def test_an_idle_instances_share_can_be_used_by_a_busy_one() -> None:
    assert room_left(own=60, others=[0, 0, 0], cap=100, instances=4, reserved_bytes=5) == 40 - 15


def test_a_busy_instance_leaves_room_to_those_below_their_share() -> None:
    hot = room_left(own=85, others=[0, 0, 0], cap=100, instances=4, reserved_bytes=5)
    idle = room_left(own=0, others=[85, 0, 0], cap=100, instances=4, reserved_bytes=5)
    assert hot == 0
    assert idle == 15


@given(st.lists(st.integers(0, 100), min_size=1, max_size=6), st.integers(1, 400))
def test_room_given_to_all_at_once_passes_the_cap_by_what_they_take_at_once(used: list[int], cap: int) -> None:
    """Whoever is told of room sees every byte that the others have told of."""
    for at, own in enumerate(used):
        others = used[:at] + used[at + 1 :]
        room = room_left(own=own, others=others, cap=cap, instances=len(used), reserved_bytes=5)
        assert sum(used) + room <= cap
