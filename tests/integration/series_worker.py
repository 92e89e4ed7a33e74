"""The writing process of the time-series store's kill -9 test: numbered changes for ever, a line for each durable one.

A change follows from its number alone, so whoever knows the last number that is in the store knows what the store must
hold. It is expected to be killed at any moment, in a flush, in a fold or while hours are removed.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.integration.waits import answer_with_waits
from tests.timeseries.model import change_of

from penstock.coordinator import CoordinatorConfig
from penstock.timeseries import TimeSeriesConfig, TimeSeriesStore

SOURCE = "changes"
CONFIG = TimeSeriesConfig(
    fold_delay_seconds=0,
    upkeep_bytes=5000,
    coordinator=CoordinatorConfig(flush_interval_seconds=0.02, max_pending_bytes=20_000),
)
COMPACT_EVERY = 25
TEND_EVERY = 7


def write(url: str, options: dict[str, Any], journal: Path) -> None:
    """Go on after the last change that is in the store, until killed; SIGUSR1 asks what it waits for."""
    asyncio.run(_write(url, options, journal))


async def _write(url: str, options: dict[str, Any], journal: Path) -> None:
    lines = os.open(journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    told: list[Any] = []
    answer_with_waits(waits_of(journal), lambda: "the store is not open yet" if not told else state_of(told[0]))
    store = await TimeSeriesStore.open(url, "series", CONFIG, **options)
    told.append(store)
    position = store.position(SOURCE)
    number = 0 if position is None else position + 1
    waiting: set[asyncio.Task[None]] = set()

    async def report(handle: Any, number: int) -> None:
        await handle.durable()
        os.write(lines, b"%d\n" % number)

    while True:
        handle = await store.write(change_of(store.changes(SOURCE, number), number))
        task = asyncio.create_task(report(handle, number))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        number += 1
        if number % COMPACT_EVERY == 0:
            await store.compact()
        elif number % TEND_EVERY == 0:
            await store.tend()
        if len(waiting) > 6:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)


def waits_of(journal: Path) -> Path:
    """Where a writer tells what it waits for."""
    return journal.with_suffix(".waits")


def state_of(store: TimeSeriesStore) -> str:
    coordinator = store._coordinator
    return f"coordinator {coordinator.state}, {coordinator.watermarks}, failure {coordinator.failure}"
