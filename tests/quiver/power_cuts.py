"""A history of a store that ends at any of its writes: with the power, or with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.quiver.worlds import PATH

from penstock.quiver import Quiver, QuiverConfig, WriteMode
from penstock.testing import PowerCut, SeededEntropy, Simulation, TornDisk

__all__ = ["cut_short"]

T = TypeVar("T")
Step = Callable[[Quiver], Awaitable[None]]


async def cut_short(
    simulation: Simulation,
    after: int,
    mode: WriteMode,
    how: str,
    config: QuiverConfig,
    live: Step,
    check: Step,
    *,
    yields: bool = False,
) -> int | None:
    """One history that ends at this write, and what is found then; None once the history was not interrupted.

    `yields` lets others run before each call to the disk.
    """
    disk = TornDisk(entropy=SeededEntropy(f"{after}/{mode}/{how}"), clock=simulation.clock)
    dark = asyncio.Event()

    async def offload(work: Callable[..., T], /, *args: Any) -> T:
        if yields:
            await simulation.clock.sleep(0)
        try:
            return work(*args)
        except PowerCut:
            dark.set()
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def open_store() -> Quiver:
        entropy = simulation.entropy.fork(f"{disk.boots}")
        return await Quiver.open(PATH, config, disk=disk, clock=simulation.clock, entropy=entropy, offload=offload)

    async def process() -> None:
        await live(await open_store())

    disk.cut_power(after_writes=after)
    running = simulation.start("store", process())
    ended = asyncio.create_task(running.join())
    await asyncio.wait([ended, asyncio.create_task(dark.wait())], return_when=asyncio.FIRST_COMPLETED)
    was_cut = dark.is_set()
    running.crash()
    if how == "power":
        disk.crash()
    else:
        disk.revive()
    await check(await open_store())
    return after if was_cut else None
