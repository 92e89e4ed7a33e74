from __future__ import annotations

import pytest

from penstock.testing import SeededEntropy
from penstock.testing.storage.tree import SECTOR_BYTES, torn

SEEDS = range(300)


@pytest.mark.parametrize("kept_bytes", [0, 1, SECTOR_BYTES, SECTOR_BYTES + 100])
def test_a_tear_never_touches_what_was_synced_and_never_grows_the_file(kept_bytes: int) -> None:
    written = bytes(range(1, 251)) * 20
    for seed in SEEDS:
        left = torn(written[:kept_bytes], written, SeededEntropy(seed))
        assert left.startswith(written[:kept_bytes])
        assert kept_bytes <= len(left) <= len(written)


def test_tears_come_in_every_shape() -> None:
    written = bytes(range(1, 251)) * 20
    shapes = set()
    for seed in SEEDS:
        left = torn(b"", written, SeededEntropy(seed))
        if left == written:
            shapes.add("whole")
        elif not left:
            shapes.add("empty")
        elif written.startswith(left):
            shapes.add("prefix")
        elif bytes(SECTOR_BYTES) in left:
            shapes.add("holes")
        else:
            shapes.add("rubbish")
    assert shapes == {"whole", "empty", "prefix", "holes", "rubbish"}


def test_lost_sectors_are_lost_whole() -> None:
    written = b"x" * (4 * SECTOR_BYTES)
    for seed in SEEDS:
        left = torn(b"", written, SeededEntropy(seed))
        if len(left) == len(written) and 0 in left and not set(left) - {0, ord("x")}:
            sectors = {left[start : start + SECTOR_BYTES] for start in range(0, len(left), SECTOR_BYTES)}
            assert sectors <= {bytes(SECTOR_BYTES), b"x" * SECTOR_BYTES}


def test_a_file_that_was_rewritten_and_not_appended_to_keeps_nothing_for_sure() -> None:
    assert any(not torn(b"old bytes", b"new", SeededEntropy(seed)) for seed in SEEDS)
