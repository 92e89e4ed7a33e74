"""Replays: a delivery counts once, in one process and in all that share a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.documents.notifications.replays import MemoryReplays, Replays, StoredReplays
from penstock.errors import AtCapacity
from penstock.objects import StoreSpec
from penstock.testing import ManualClock


@pytest.fixture(params=["memory", "stored"])
def replays(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Replays, ManualClock]:
    clock = ManualClock()
    made = MemoryReplays(clock=clock) if request.param == "memory" else stored(tmp_path, clock)
    return made, clock


def stored(folder: Path, clock: ManualClock) -> StoredReplays:
    return StoredReplays(StoreSpec(f"file://{folder}/store"), clock=clock)


def test_a_signature_is_claimed_once_and_again_after_it_is_released(replays: tuple[Replays, ManualClock]) -> None:
    seen, clock = replays
    until = clock.now_ms() + 1000
    assert [seen.claim("v2=a", until), seen.claim("v2=a", until), seen.claim("v2=b", until)] == [True, False, True]
    seen.release("v2=a", until)
    assert seen.claim("v2=a", until)


def test_a_signature_whose_time_is_over_is_forgotten(replays: tuple[Replays, ManualClock], tmp_path: Path) -> None:
    seen, clock = replays
    seen.claim("v2=a", clock.now_ms() + 1000)
    clock.advance(1 + 601)
    seen.claim("v2=b", clock.now_ms() + 1000)
    assert len([path for path in tmp_path.rglob("*-*") if path.is_file()]) in (0, 1)


def test_processes_that_share_a_store_share_what_they_have_seen(tmp_path: Path) -> None:
    clock = ManualClock()
    until = clock.now_ms() + 1000
    assert stored(tmp_path, clock).claim("v2=a", until)
    assert not stored(tmp_path, clock).claim("v2=a", until)


def test_a_memory_that_is_full_says_so_and_forgets_none() -> None:
    clock = ManualClock()
    seen = MemoryReplays(remembered_max=2, clock=clock)
    until = clock.now_ms() + 1000
    assert seen.claim("a", until)
    assert seen.claim("b", until)
    with pytest.raises(AtCapacity):
        seen.claim("c", until)
    assert not seen.claim("a", until)
    clock.advance(2)
    assert seen.claim("c", clock.now_ms() + 1000)


def test_what_is_over_for_a_clock_that_is_fast_is_still_known_to_one_that_is_right(tmp_path: Path) -> None:
    """Machines differ: what one of them forgets, another would believe again."""
    right, fast = ManualClock(), ManualClock()
    fast.advance(90)
    until = right.now_ms() + 1000
    assert stored(tmp_path, right).claim("v3=a", until)
    assert stored(tmp_path, fast).claim("v3=b", fast.now_ms() + 1000)
    assert not stored(tmp_path, right).claim("v3=a", until)


def test_a_claim_is_released_by_its_name_alone_so_that_nobody_keeps_a_list_of_them(tmp_path: Path) -> None:
    clock = ManualClock()
    until = clock.now_ms() + 1000
    assert stored(tmp_path, clock).claim("v3=a", until)
    stored(tmp_path, clock).release("v3=a", until)
    assert stored(tmp_path, clock).claim("v3=a", until)
