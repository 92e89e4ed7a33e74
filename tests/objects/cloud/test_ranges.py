"""Ranges are fetched together when that is cheaper, and cut out again exactly."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.objects.cloud.ranges import GAP_BYTES_MAX, REQUEST_BYTES_MAX, coalesced, cut

RANGE = st.tuples(st.integers(0, 3 * GAP_BYTES_MAX), st.integers(0, 2 * GAP_BYTES_MAX)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@given(st.lists(RANGE, max_size=8))
def test_every_range_lies_in_one_request_and_requests_do_not_overlap(ranges: list[tuple[int, int]]) -> None:
    requests = coalesced(ranges)
    for start, end in ranges:
        assert start == end or sum(low <= start and end <= high for low, high in requests) == 1
    assert all(before[1] < after[0] for before, after in pairwise(requests))


def test_near_ranges_join_and_far_ones_do_not() -> None:
    assert coalesced([(0, 10), (10 + GAP_BYTES_MAX, 20 + GAP_BYTES_MAX)]) == [(0, 20 + GAP_BYTES_MAX)]
    assert coalesced([(0, 10), (11 + GAP_BYTES_MAX, 20 + GAP_BYTES_MAX)]) == [
        (0, 10),
        (11 + GAP_BYTES_MAX, 20 + GAP_BYTES_MAX),
    ]
    assert coalesced([(5, 5), (7, 7)]) == []


def test_a_joined_request_stays_within_its_bound_but_a_single_range_may_not() -> None:
    half = REQUEST_BYTES_MAX // 2
    assert coalesced([(0, half), (half, 2 * half), (2 * half, 3 * half)]) == [(0, 2 * half), (2 * half, 3 * half)]
    assert coalesced([(0, 2 * REQUEST_BYTES_MAX)]) == [(0, 2 * REQUEST_BYTES_MAX)]


@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)).map(sorted).map(tuple)))
def test_what_is_cut_out_is_what_was_asked_for(body: bytes, ranges: list[tuple[int, int]]) -> None:
    requests = [one for one in coalesced(ranges) if one[0] < len(body)]
    bodies = [memoryview(body)[start:end] for start, end in requests]
    assert cut(ranges, requests, bodies) == [body[start:end] for start, end in ranges]
