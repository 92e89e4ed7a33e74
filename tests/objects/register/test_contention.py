"""Turns among writers that do not know each other: the windows by themselves, then fifty real registers."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from dataclasses import dataclass, field
from functools import cache

import pytest

from penstock.objects import BytesCodec, MemoryStore, Register, RegisterPolicy, Stamped, StampedFormat
from penstock.objects.register.contention import Contention
from penstock.testing import FaultPlan, FaultyStore, Latency, SeededEntropy, Simulation, simulate


class Longest(SeededEntropy):
    """Draws the upper end, so that a pause shows its window."""

    def uniform(self, low: float, high: float) -> float:
        return high


def contention(window_seconds_max: float = 5.0, call_seconds: float = 0.025) -> Contention:
    made = Contention(Longest(1), window_seconds_max=window_seconds_max)
    made.answered(call_seconds)
    return made


def test_a_register_that_meets_nobody_is_calm() -> None:
    alone = contention()
    alone.landed()
    assert alone.calm
    assert alone.rate == 0.0


def test_each_conflict_widens_the_window_by_less_than_the_one_before() -> None:
    one = contention()
    windows = [0.0]
    for _ in range(4):
        one.lost()
        windows.append(one.pause(0.0))
    steps = [after - before for before, after in itertools.pairwise(windows)]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] > 0.0
    assert one.rate == 1.0


def test_what_a_change_has_waited_is_taken_off_its_window() -> None:
    one = contention()
    for _ in range(10):
        one.lost()
    assert one.pause(0.5) == pytest.approx(one.pause(0.0) - 0.5)


def test_the_oldest_change_still_draws_from_a_little_window() -> None:
    """Two writers past their windows that tried in step would collide again and again."""
    one = contention(call_seconds=0.025)
    one.lost()
    assert one.pause(1000.0) == pytest.approx(0.025)


def test_a_winner_keeps_most_of_its_window_and_goes_to_the_back() -> None:
    one = contention()
    for _ in range(5):
        one.lost()
    before = one.pause(0.0)
    one.landed()
    assert not one.calm
    assert 0.5 * before < one.pause(0.0) < before


def test_a_register_that_is_left_alone_becomes_calm_within_a_few_commits() -> None:
    one = contention()
    for _ in range(5):
        one.lost()
    for _ in range(5):
        one.undisturbed()
        one.landed()
    assert one.calm


def test_windows_follow_the_pace_of_the_store() -> None:
    near, far = contention(call_seconds=0.001), contention(call_seconds=0.1)
    near.lost()
    far.lost()
    assert far.pause(0.0) == pytest.approx(100 * near.pause(0.0))


def test_no_number_of_conflicts_opens_the_window_past_its_bound() -> None:
    one = contention(window_seconds_max=2.0)
    for _ in range(1000):
        one.lost()
    assert one.pause(0.0) == 2.0


def test_a_stalled_call_does_not_blow_up_the_windows() -> None:
    one = contention(call_seconds=600.0)
    one.lost()
    assert one.pause(0.0) <= 8.0


# Fifty registers -----------------------------------------------------------------------------------

WRITERS, UPDATES = 50, 20
GET_SECONDS, PUT_SECONDS = 0.015, 0.040
STEADY = FaultPlan(
    latency_by_verb={
        "get": Latency(0.8 * GET_SECONDS, 1.2 * GET_SECONDS),
        "put_if": Latency(0.8 * PUT_SECONDS, 1.2 * PUT_SECONDS),
    }
)


@dataclass
class Race:
    """What each writer lived through, in virtual seconds."""

    latencies: list[list[float]] = field(default_factory=list)
    finishes: list[float] = field(default_factory=list)
    payload: bytes = b""
    writes: int = 0


@cache
def race(seed: int, writers: int = WRITERS, policy: RegisterPolicy | None = None) -> Race:
    """One campaign; several promises may look at the same one."""
    seen = Race()

    async def writer(simulation: Simulation, register: Register[Stamped[bytes]]) -> None:
        latencies: list[float] = []
        for _ in range(UPDATES):
            asked = simulation.clock.monotonic()
            await register.update(lambda value: value.map(lambda payload: payload + b"."))
            latencies.append(simulation.clock.monotonic() - asked)
        seen.latencies.append(latencies)
        seen.finishes.append(simulation.clock.monotonic())

    async def main(simulation: Simulation) -> None:
        clock, entropy = simulation.clock, simulation.entropy
        store = FaultyStore(MemoryStore(clock=clock), STEADY, entropy=entropy.fork("store"), clock=clock)
        registers = [
            Register(
                store,
                "key",
                StampedFormat(BytesCodec()),
                policy=policy or RegisterPolicy(),
                clock=clock,
                entropy=entropy.fork(f"writer {number}"),
            )
            for number in range(writers)
        ]
        await asyncio.gather(*(writer(simulation, register) for register in registers))
        seen.payload = (await registers[0].read()).payload
        seen.writes = round(sum(UPDATES / (1 - register.conflict_rate) for register in registers))

    simulate(main, seed)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_fifty_writers_of_twenty_updates_all_finish_and_none_is_starved(seed: int) -> None:
    """No update fails (one that did would raise), each is applied once, and the unlucky wait little longer."""
    seen = race(seed)
    assert seen.payload == b"." * WRITERS * UPDATES
    # One commit after the other, with no pause between them, would take 27 to 40 s.
    assert max(seen.finishes) < 45.0
    # The slowest single update, which with twenty of them is the slowest writer's 99th percentile too.
    assert max(map(max, seen.latencies)) < 6.0
    assert max(seen.finishes) < 1.5 * statistics.median(seen.finishes)
    assert max(seen.finishes) < 3.5 * min(seen.finishes)


def test_contention_costs_few_writes_beyond_those_that_land() -> None:
    """Without pauses, each commit of fifty writers costs more than twenty writes."""
    assert race(1).writes < 6 * WRITERS * UPDATES


def test_a_writer_alone_never_waits_and_reads_but_once() -> None:
    seen = race(1, writers=1)
    assert max(seen.finishes) < GET_SECONDS * 1.2 + UPDATES * PUT_SECONDS * 1.2


def test_a_register_that_trusts_no_cache_reads_before_every_write() -> None:
    seen = race(1, writers=1, policy=RegisterPolicy(cached=False))
    assert max(seen.finishes) > UPDATES * (GET_SECONDS + PUT_SECONDS) * 0.9
