"""A chain of frames is whole, or it is refused."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.buffer.format.frames import LENGTH, frame_starts
from penstock.errors import Corrupt

frames = st.lists(st.binary(max_size=20), max_size=20)


def chained(parts: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(part)) + part for part in parts)


@given(frames)
def test_a_walk_finds_every_frame_and_the_end(parts: list[bytes]) -> None:
    chain = chained(parts)
    starts = frame_starts(memoryview(chain), len(parts), "chain")
    assert len(starts) == len(parts) + 1
    assert [chain[a + 4 : b] for a, b in pairwise(starts)] == parts
    assert starts[-1] == len(chain)


@given(frames.filter(bool), st.data())
def test_a_chain_cut_anywhere_is_refused(parts: list[bytes], data: st.DataObject) -> None:
    chain = chained(parts)
    cut = data.draw(st.integers(0, len(chain) - 1))
    with pytest.raises(Corrupt):
        frame_starts(memoryview(chain)[:cut], len(parts), "chain")


@given(frames, st.integers(0, 40))
def test_a_count_that_is_not_the_number_of_frames_is_refused(parts: list[bytes], count: int) -> None:
    if count != len(parts):
        with pytest.raises(Corrupt):
            frame_starts(memoryview(chained(parts)), count, "chain")


def test_a_count_no_chain_of_this_size_could_hold_is_refused_before_any_memory_is_taken() -> None:
    with pytest.raises(Corrupt, match="are too few for them"):
        frame_starts(memoryview(b"abcd"), 4_000_000_000, "chain")
