"""A clock that is set, in either direction, makes nothing older or younger than it is: not even for the next start."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.quiver.worlds import bundle, drained, opened, run, small, torn

from penstock.quiver import Quiver, QuiverConfig
from penstock.quiver.retention.ages import Ages
from penstock.quiver.segment.format import SegmentMeta
from penstock.testing import ManualClock, PowerCut, TornDisk
from penstock.testing.clock import START_MS

HOUR = 3_600_000
YEARS = 10 * 365 * 24 * HOUR


class SetClock(ManualClock):
    """A clock that somebody sets: the date jumps, and no time has passed."""

    set_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.set_ms


def config() -> QuiverConfig:
    return replace(small(), maintenance_seconds=60.0)


async def filled(disk: TornDisk, clock: ManualClock, numbers: range = range(3)) -> Quiver:
    """A segment for each of these bundles, for a subscriber that takes none."""
    store = await opened(disk, config(), clock=clock)
    await store.register("s")
    for number in numbers:
        await store.ingest(bundle(number))
        await store.flush()
    return store


async def waiting(disk: TornDisk, clock: ManualClock) -> list[int]:
    """What the next start has, after one round of retention."""
    store = await opened(disk, config(), clock=clock)
    await store.register("s")
    await clock.run_for(61.0)
    found = await drained(store)
    await store.close()
    return found


@pytest.mark.parametrize("ends", ["closed", "killed"])
@pytest.mark.parametrize("set_ms", [YEARS, -YEARS, 100 * HOUR])
def test_data_taken_in_before_the_clock_was_corrected_outlives_the_next_start(set_ms: int, ends: str) -> None:
    async def scenario() -> None:
        disk, clock = torn(), SetClock()
        store = await filled(disk, clock)
        clock.set_ms = set_ms
        if ends == "closed":
            await store.close()
        else:
            await clock.run_for(61.0)
            disk.crash()
        assert await waiting(disk, clock) == [0, 1, 2]

    run(scenario())


def test_what_is_in_memory_when_the_clock_is_corrected_outlives_the_next_start() -> None:
    async def scenario() -> None:
        disk, clock = torn(), SetClock()
        store = await opened(disk, config(), clock=clock)
        await store.register("s")
        await store.ingest(bundle(1))
        clock.set_ms = YEARS
        await store.close()
        assert await waiting(disk, clock) == [1]

    run(scenario())


@pytest.mark.parametrize("restarts", [False, True])
def test_data_taken_in_under_a_clock_that_was_years_ahead_grows_old_all_the_same(restarts: bool) -> None:
    async def scenario() -> None:
        disk, clock = torn(), SetClock()
        clock.set_ms = YEARS
        store = await filled(disk, clock)
        clock.set_ms = 0
        await clock.run_for(61.0)
        if restarts:
            await store.close()
            store = await opened(disk, config(), clock=clock)
        await clock.run_for(71 * 3600.0)
        assert len(store.segments) == 3
        await clock.run_for(2 * 3600.0)
        assert store.segments == []
        await store.close()

    run(scenario())


def test_corrected_dates_are_right_and_small_steps_of_a_clock_correct_none() -> None:
    async def scenario() -> None:
        disk, clock = torn(), SetClock()
        store = await filled(disk, clock, range(1))
        came = clock.now_ms()
        clock.set_ms = 500_000
        await clock.run_for(61.0)
        assert store.segments[0].ingestion_ms == (came, came)
        clock.set_ms = YEARS
        await clock.run_for(61.0)
        assert store.segments[0].ingestion_ms == (came + YEARS, came + YEARS)
        await store.close()
        store = await opened(disk, config(), clock=clock)
        assert store.segments[0].ingestion_ms == (came + YEARS, came + YEARS)
        await store.close()

    run(scenario())


def test_what_an_earlier_life_left_in_the_log_is_as_old_as_its_date_says() -> None:
    """How long the store was closed is known from the date alone."""

    async def scenario() -> None:
        disk = torn()
        store = await opened(disk, config())
        await store.register("s")
        await store.ingest(bundle(1))
        disk.crash()
        clock = ManualClock(START_MS + 71 * HOUR)
        store = await opened(disk, config(), clock=clock)
        await store.flush()
        assert [meta.ingestion_ms[1] for meta in store.segments] == [START_MS]
        await clock.run_for(2 * 3600.0)
        assert store.segments == []
        await store.close()

    run(scenario())


def test_the_date_of_a_segment_that_somebody_has_had_stays() -> None:
    """The names of Parquet files carry it: a second attempt must give the same ones."""

    async def scenario() -> None:
        disk, clock = torn(), SetClock()
        store = await filled(disk, clock)
        held = await store.next("s", 0.0)
        refused = await store.next("s", 0.0)
        assert held is not None
        assert refused is not None
        await refused.nack()
        dates = [meta.ingestion_ms for meta in store.segments]
        clock.set_ms = YEARS
        await clock.run_for(61.0)
        assert [meta.ingestion_ms == date for meta, date in zip(store.segments, dates, strict=True)] == [
            True,
            True,
            False,
        ]

    run(scenario())


def test_a_date_that_cannot_be_corrected_now_is_corrected_later() -> None:
    async def scenario() -> None:
        disk, clock = torn(), SetClock()
        store = await filled(disk, clock)
        clock.set_ms = YEARS
        disk.fail_next("create")
        await clock.run_for(61.0)
        assert len(store.segments) == 3
        await clock.run_for(61.0)
        disk.crash()
        assert await waiting(disk, clock) == [0, 1, 2]

    run(scenario())


@given(st.lists(st.tuples(st.sampled_from(["old", "new", "forget", "pass", "set"]), st.integers(0, 1 << 40))))
def test_the_oldest_is_the_earliest_of_all(steps: list[tuple[str, int]]) -> None:
    """By it a round of retention knows that it need not look at every segment."""
    clock = SetClock()
    ages, metas = Ages(clock, [], first_bundle=1000), dict[int, SegmentMeta]()
    for number, (step, value) in enumerate(steps, start=1):
        if step in ("old", "new"):
            bundles = 1 if step == "old" else 1000 + number
            metas[number] = SegmentMeta(number, bundles, bundles, 1, 1, 1, (value, value), None, [], [])
            ages.came(metas[number], clock.monotonic())
        elif step == "forget" and metas:
            ages.forget(metas.popitem()[0])
        elif step == "pass":
            clock.advance(value % 10_000_000 / 1000)
        elif step == "set":
            clock.set_ms = value
        assert ages.oldest_ms == min(map(ages.ingested_ms, metas.values()), default=math.inf)


@pytest.mark.parametrize("how", ["power", "kill"])
def test_an_end_between_any_two_system_calls_of_a_correction_loses_no_segment(how: str) -> None:
    after = 0
    while True:

        async def scenario(after: int = after) -> bool:
            disk, clock = torn(after), SetClock()
            store = await filled(disk, clock)
            clock.set_ms = 50 * HOUR
            disk.cut_power(after_writes=after)
            try:
                await store.sweep()
                await store._parts.sweeper.redate()
                return False
            except PowerCut:
                disk.crash() if how == "power" else disk.revive()
            assert await waiting(disk, clock) == [0, 1, 2]
            return True

        outcome: list[bool] = []

        async def noted() -> None:
            outcome.append(await scenario())  # noqa: B023

        run(noted())
        if not outcome[0]:
            break
        after += 1
    assert after > 5, "that many writes"
