"""The compactor: takes merges that are due under leases, has them done, and swaps sources for targets in one commit.

It may die anywhere and may have a twin. A lease keeps others from the same files and is renewed while a merge goes on;
one that was lost shows in the commit, which is refused and changes nothing. A target that was never committed is a
file that nobody lists: deleted at once where that is certain, by vacuum otherwise. Appends never wait for any of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from penstock.catalog import Catalog, CompactionTask, Lease, Vacuum, Vacuumed
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Conflict, PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy, ulid
from penstock.lake.file_layout import CompactionConfig
from penstock.lake.merge_files import MergeWork
from penstock.lake.merging import MergeResult, Merging
from penstock.observability import SILENT, Observer, names

__all__ = ["CompactionSummary", "Compactor", "Upkept"]

_NANOSECONDS: Final = 1_000_000_000
_END: Final = object()
# Of a tenant's or table's name in a path: directories have names of 255 bytes at most, and object stores keys of 1,024.
_SEGMENT_CHARACTERS_MAX: Final = 120


@dataclass(slots=True)
class CompactionSummary:
    """What was done: merges that were committed, that failed, and that another process was faster with."""

    merged: int = 0
    failed: int = 0
    lost: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0

    def add(self, other: CompactionSummary) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkept:
    """The result of one upkeep."""

    expired_files: int
    vacuumed: Vacuumed


class Compactor:
    """Belongs to its catalog's loop; the merges run on a thread, and wherever `merging` has them done."""

    def __init__(
        self,
        catalog: Catalog,
        merging: Merging,
        config: CompactionConfig | None = None,
        *,
        owner: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._catalog = catalog
        self._merging = merging
        self._config = config or CompactionConfig()
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self.owner = owner or f"compactor-{ulid(clock.now_ms(), entropy)}"
        self.summary = CompactionSummary()

    async def run_available(self, stopped: Callable[[], bool] = lambda: False) -> CompactionSummary:
        """Pass after pass, until nothing that is due can be merged."""
        done = CompactionSummary()
        while not stopped():
            found = await self.run_once()
            done.add(found)
            if not found.merged and not found.lost:
                break
        return done

    async def follow(self, stop: asyncio.Event) -> CompactionSummary:
        """Merge what becomes due, and keep the catalog small, until `stop`."""
        config, upkept_at = self._config, -float("inf")
        while not stop.is_set():
            await self.run_available(stop.is_set)
            if config.upkeep_seconds and self._clock.monotonic() - upkept_at >= config.upkeep_seconds:
                upkept_at = self._clock.monotonic()
                try:
                    await self.upkeep()
                except PenstockError as error:
                    self._observer.event(names.COMPACTION_FAILED, what=error.what, why=error.why)
            await self._pause(stop, config.pause_seconds)
        return self.summary

    async def run_once(self) -> CompactionSummary:
        """One pass: the merges that are due now, up to `tasks_per_pass`."""
        tasks = await self._catalog.compaction_tasks(self.owner, limit=self._config.tasks_per_pass)
        if not tasks:
            return CompactionSummary()
        done = await _Pass(self, tasks).run()
        self.summary.add(done)
        return done

    async def upkeep(self) -> Upkept:
        """Drop rows past the retention, archive closed days, and delete what was removed or left behind."""
        config, before = self._config, 0
        if config.retention_seconds:
            cutoff = self._clock.now_ms() * 1_000_000 - int(config.retention_seconds * _NANOSECONDS)
            before = len(await self._catalog.plan(None, cutoff))
            await self._catalog.expire(cutoff)
            before -= len(await self._catalog.plan(None, cutoff))
        await self._catalog.archive()
        vacuumed = await Vacuum(self._catalog).run(data_prefix=f"{config.target_prefix}/")
        return Upkept(expired_files=before, vacuumed=vacuumed)

    async def _pause(self, stop: asyncio.Event, seconds: float) -> None:
        waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()


class _Pass:
    """The merges of one pass, each with its lease."""

    def __init__(self, compactor: Compactor, tasks: Sequence[CompactionTask]) -> None:
        self._catalog = compactor._catalog
        self._merging = compactor._merging
        self._config = compactor._config
        self._clock = compactor._clock
        self._entropy = compactor._entropy
        self._observer = compactor._observer
        self._held = {self._target(task): task for task in tasks}
        self._done = CompactionSummary()

    async def run(self) -> CompactionSummary:
        works = [
            MergeWork(sources=task.sources, target=target, level=task.target_level, config=self._config)
            for target, task in self._held.items()
        ]
        renewing = asyncio.create_task(self._renew())
        try:
            await self._collect(works)
        finally:
            await self._give_back()
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
        return self._done

    async def _collect(self, works: Sequence[MergeWork]) -> None:
        """Commit each result as it comes: files are leased for no longer than their own merge takes."""
        results: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def merge() -> None:
            try:
                for result in self._merging.merge(works):
                    loop.call_soon_threadsafe(results.put_nowait, result)
            finally:
                loop.call_soon_threadsafe(results.put_nowait, _END)

        running = asyncio.ensure_future(asyncio.to_thread(merge))
        try:
            while (result := await results.get()) is not _END:
                await self._settle(result)
            await running
        except BaseException:
            self._merging.cancel()
            await asyncio.wait({running})
            if not running.cancelled():
                running.exception()
            raise

    async def _settle(self, result: MergeResult) -> None:
        task = self._held[result.target]
        self._observer.observe(names.COMPACTION_SECONDS, result.seconds, level=str(task.target_level))
        try:
            if result.failure is not None:
                raise result.failure.error()
            assert result.file is not None
            await self._catalog.complete_compaction(task.sources, result.file, _lease(task))
        except Conflict as error:
            self._count(result, "lost", error)
            if result.file is not None:
                with suppress(PenstockError):
                    # Refused for certain, so nobody will ever list it.
                    await self._catalog.store.delete(self._catalog.layout.key(result.file.path))
        except PenstockError as error:
            # The lease stays until it expires: the same merge is not tried again and again meanwhile.
            self._count(result, "failed", error)
        else:
            self._count(result, "merged")
        del self._held[result.target]

    def _count(self, result: MergeResult, outcome: str, error: PenstockError | None = None) -> None:
        task, done = self._held[result.target], self._done
        self._observer.count(names.COMPACTION_TASKS, 1, outcome=outcome)
        setattr(done, outcome, getattr(done, outcome) + 1)
        if error is not None:
            self._observer.event(names.COMPACTION_FAILED, what=error.what, why=error.why, target=result.target)
            return
        assert result.file is not None
        done.files_before += len(task.sources)
        done.files_after += 1
        done.bytes_before += task.size_bytes
        done.bytes_after += result.file.size_bytes
        done.rows += result.file.row_count
        self._observer.count(names.COMPACTION_BYTES, task.size_bytes, kind="read")
        self._observer.count(names.COMPACTION_BYTES, result.file.size_bytes, kind="written")
        self._observer.count(names.COMPACTION_ROWS, result.file.row_count)

    async def _renew(self) -> None:
        """Long before leases end; one that was taken over is found out by its commit."""
        while True:
            await self._clock.sleep(self._catalog.config.lease_seconds / 3)
            for target in list(self._held):
                if task := self._held.get(target):
                    with suppress(PenstockError):
                        await self._catalog.renew(_lease(task))

    async def _give_back(self) -> None:
        """What came to nothing, and not by a fault of its own."""
        for task in self._held.values():
            with suppress(PenstockError):
                await self._catalog.release(_lease(task))

    def _target(self, task: CompactionTask) -> str:
        """A name of its own for every attempt: a task that comes to life again overwrites nothing that is listed."""
        folder = "/".join(_segment(part) for part in (task.tenant, task.table))
        name = ulid(self._clock.now_ms(), self._entropy)
        return f"{self._config.target_prefix}/{folder}/level-{task.target_level}/{name}.parquet"


def _lease(task: CompactionTask) -> Lease:
    assert task.lease is not None
    return task.lease


def _segment(name: str) -> str:
    """For whoever looks at the store: names of files alone are told apart, so a long one is cut."""
    safe = quote(name, safe="")[:_SEGMENT_CHARACTERS_MAX]
    if not safe:
        return "_"
    return f"%{ord(safe[0]):02X}{safe[1:]}" if safe[0] in "._" else safe
