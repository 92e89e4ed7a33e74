"""Which requests to send for several ranges of one object: near ones together, each request bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

__all__ = ["Range", "coalesced", "cut"]

Range: TypeAlias = tuple[int, int]

# Bytes between two ranges that cost no more to fetch than another request would: 10 ms at 100 MB/s.
GAP_BYTES_MAX: Final = 1024 * 1024
# A merged request stays small enough to be sent again; a single range may be larger.
REQUEST_BYTES_MAX: Final = 32 * 1024 * 1024


def coalesced(ranges: Sequence[Range]) -> list[Range]:
    """Requests in order of place; every non-empty range lies wholly within one of them."""
    requests: list[Range] = []
    for start, end in sorted(one for one in ranges if one[0] < one[1]):
        if requests and _joins(requests[-1], start, end):
            requests[-1] = (requests[-1][0], max(requests[-1][1], end))
        else:
            requests.append((start, end))
    return requests


def cut(ranges: Sequence[Range], requests: Sequence[Range], bodies: Sequence[memoryview]) -> list[bytes]:
    """The ranges, in the order asked, out of what the requests brought; a short body ends with the object."""
    return [_cut(one, requests, bodies) for one in ranges]


def _joins(last: Range, start: int, end: int) -> bool:
    if end <= last[1]:
        return True
    return start - last[1] <= GAP_BYTES_MAX and end - last[0] <= REQUEST_BYTES_MAX


def _cut(one: Range, requests: Sequence[Range], bodies: Sequence[memoryview]) -> bytes:
    for (start, end), body in zip(requests, bodies, strict=True):
        if start <= one[0] and one[1] <= end:
            return bytes(body[one[0] - start : one[1] - start])
    return b""
