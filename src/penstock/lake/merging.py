"""The port of merges: what turns works into merged files, here on threads of this process; on Spark in `pipelines`.

A result says what became of one work. A merge that failed is a result too: it does not take the others with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from typing import Final, Protocol

import msgspec

from penstock import errors
from penstock.catalog import CatalogLayout, DataFile, ObjectFiles, TailCache
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import PenstockError
from penstock.lake.merge_files import MergeWork, merge_files
from penstock.loops import LoopThread
from penstock.objects import StoreSpec

__all__ = ["LocalMerging", "MergeFailure", "MergePlace", "MergeResult", "Merging", "merge_one"]

_TAILS_BYTES: Final = 16 * 1024 * 1024


class MergeFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An error of this house, as it travels."""

    kind: str
    what: str
    why: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, error: PenstockError) -> MergeFailure:
        return cls(kind=type(error).__name__, what=error.what, why=error.why, remedy=error.remedy)

    def error(self) -> PenstockError:
        made: type[PenstockError] = getattr(errors, self.kind, PenstockError)
        return made(self.what, self.why, self.remedy)


class MergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a merge: a file that is uploaded and not yet listed, or a failure."""

    target: str
    file: DataFile | None = None
    failure: MergeFailure | None = None
    seconds: float = 0.0


class MergePlace(msgspec.Struct, frozen=True):
    """Where the files are. Pickles, for executors."""

    spec: StoreSpec
    prefix: str = ""


class Merging(Protocol):
    """Merges works, several at once."""

    def merge(self, works: Sequence[MergeWork]) -> Iterator[MergeResult]:
        """Results as they come, in any order. Called on a thread that may wait."""
        ...

    def cancel(self) -> None:
        """End a `merge` that is under way, from another thread; works without a result come to nothing."""
        ...


class LocalMerging:
    """Merges on threads of this process: Arrow, NumPy and compression work outside of the interpreter's lock."""

    def __init__(self, place: MergePlace, tasks_at_once: int, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._place = place
        self._tasks_at_once = tasks_at_once
        self._clock = clock
        self._is_cancelled = False

    def merge(self, works: Sequence[MergeWork]) -> Iterator[MergeResult]:
        self._is_cancelled = False
        with ThreadPoolExecutor(self._tasks_at_once, "penstock-merge") as pool:
            started = [pool.submit(merge_one, self._place, work, self._clock) for work in works]
            try:
                for each in as_completed(started):
                    if self._is_cancelled:
                        return
                    try:
                        yield each.result()
                    except CancelledError:
                        return
            finally:
                for one in started:
                    one.cancel()

    def cancel(self) -> None:
        self._is_cancelled = True


def merge_one(place: MergePlace, work: MergeWork, clock: Clock = SYSTEM_CLOCK) -> MergeResult:
    """One work, from its own connection to the store. Expected failures are results."""
    began = clock.monotonic()
    door = LoopThread("penstock-merge")
    try:
        file = _merged(door, place, work)
        return MergeResult(target=work.target, file=file, seconds=clock.monotonic() - began)
    except PenstockError as error:
        return MergeResult(target=work.target, failure=MergeFailure.of(error), seconds=clock.monotonic() - began)
    finally:
        door.close()


def _merged(door: LoopThread, place: MergePlace, work: MergeWork) -> DataFile:
    store = door.run(place.spec.open())
    try:
        layout = CatalogLayout(place.prefix)
        files = ObjectFiles(store, layout, door, TailCache(_TAILS_BYTES))

        def upload(path: str, body: memoryview) -> None:
            door.run(store.put(layout.key(path), body))

        return merge_files(files, work, upload)
    finally:
        door.run(store.close())
