from __future__ import annotations

import asyncio
import gc
import logging
import warnings

import pytest

from penstock.errors import InvalidInput
from penstock.testing import SimulatedClock, Simulation, simulate
from penstock.testing.clock import START_MS


def test_wall_time_follows_virtual_time_and_may_be_skewed_for_one_process() -> None:
    async def main(simulation: Simulation) -> tuple[int, int]:
        await simulation.clock.sleep(1.5)
        return simulation.clock.now_ms(), SimulatedClock(skew_ms=-700).now_ms()

    assert simulate(main, 1) == (START_MS + 1500, START_MS + 800)


def test_the_worlds_randomness_comes_from_the_seed() -> None:
    async def main(simulation: Simulation) -> bytes:
        return simulation.entropy.token(16)

    assert simulate(main, 1) == simulate(main, 1) != simulate(main, 2)


def test_the_result_of_a_failing_main_is_its_error() -> None:
    async def main(simulation: Simulation) -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        simulate(main, 1)


def test_an_error_that_a_task_kept_to_itself_fails_the_simulation() -> None:
    async def main(simulation: Simulation) -> None:
        async def fail() -> None:
            raise KeyError("unseen")

        _unwatched = [asyncio.create_task(fail())]
        await asyncio.sleep(1)

    with pytest.raises(BaseExceptionGroup, match="seed 7") as failure:
        simulate(main, 7)
    assert [repr(error) for error in failure.value.exceptions] == ["KeyError('unseen')"]


@pytest.mark.slow
def test_the_end_of_main_is_the_end_of_the_world() -> None:
    """Cleanup of what is left runs after the result is known, cannot wait, and says nothing."""
    log: list[str] = []

    async def main(simulation: Simulation) -> int:
        async def straggler() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                log.append("cleanup")
                await asyncio.sleep(1)
                log.append("waited")

        _straggler = [asyncio.create_task(straggler())]
        _sleeper = [asyncio.create_task(asyncio.sleep(200))]
        await asyncio.sleep(1)
        return len(log)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert simulate(main, 1) == 0
        gc.collect()
    assert log == ["cleanup"]


@pytest.mark.slow
def test_pending_tasks_are_destroyed_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async def main(simulation: Simulation) -> None:
        _sleepers = [asyncio.create_task(asyncio.sleep(100)) for _ in range(10)]
        await asyncio.sleep(1)

    with caplog.at_level(logging.DEBUG, logger="asyncio"):
        simulate(main, 1)
        gc.collect()
    # Other rooms' objects may be collected here too, and their libraries may log it: only the loop's words count.
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_garbage_collection_is_back_after_a_simulation_that_failed() -> None:
    async def main(simulation: Simulation) -> None:
        assert not gc.isenabled()
        raise KeyError

    with pytest.raises(KeyError):
        simulate(main, 1)
    assert gc.isenabled()


def test_a_simulation_inside_a_running_loop_is_refused() -> None:
    async def nested(simulation: Simulation) -> None:
        """Never reached."""

    async def main() -> None:
        simulate(nested, 1)

    with pytest.raises(InvalidInput, match="inside a running event loop"):
        asyncio.run(main())


def test_fingerprints_tell_runs_apart() -> None:
    async def main(simulation: Simulation) -> tuple[int, int, float]:
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(10)))
        return simulation.fingerprint

    assert simulate(main, 1) == simulate(main, 1)
    assert len({simulate(main, seed) for seed in range(50)}) == 50


@pytest.mark.slow
def test_a_task_that_a_destroyed_coroutine_starts_is_destroyed_with_it() -> None:
    """A frozen process may have a `finally` that starts a task: it never runs, and nobody is warned of it."""
    ran = []

    async def late() -> None:
        ran.append("late")

    async def tidy() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ran.append("tidied")
            asyncio.create_task(late())  # noqa: RUF006  the point of the test

    async def main(simulation: Simulation) -> None:
        simulation.crash(process := simulation.start("frozen", tidy()))
        other = simulation.start("other", tidy())
        await simulation.clock.sleep(1)
        simulation.crash(other)
        assert not process.alive

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        simulate(main, seed=1)
        gc.collect()
    assert [str(one.message) for one in warned] == []
    assert ran == ["tidied"]
