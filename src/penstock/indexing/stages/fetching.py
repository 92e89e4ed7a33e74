"""Objects asked for ahead of their reader: many at a time, each with one request.

A notification says how large its object is and which version. So one conditional range read of one byte more than that
brings a small object whole, or shows that it is not what was notified: with as many bytes as were named, it is. Large
ones are looked at, and asked for one byte. What cannot be had so is left to the reader, which looks before it reads and knows what to say of it.

An object that does not answer soon is waited for in the background, together with all others that do not: however many
they are, they cost a task about as much time as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import BLOCK_BYTES, UploadNotification
from penstock.errors import InvalidInput, PenstockError, Unavailable
from penstock.objects import Object, ObjectMeta, ObjectStore
from penstock.observability import SILENT, Observer, names

__all__ = ["FetchLimits", "Fetched", "Fetcher", "Wanted", "ask", "is_small", "windows"]

# Whoever answers at all does so within this time; others are waited for in the background.
GRACE_SECONDS: Final = 1.0
# The same once some have not answered: every window may have one of them.
_GRACE_SECONDS_LATER: Final = 0.2
_PATIENT_WINDOWS: Final = 3
# Waited for in the background at once: each may bring a block.
_LATE_MAX: Final = 64

# The bytes of a small object, or all of it; what a large one is; or that its bucket did not answer.
Fetched = bytes | Object | ObjectMeta | Unavailable
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How far one task prefetches objects."""

    # Requests in progress at once from one task: enough to hide their latency.
    objects_at_once: int = 32
    # Maximum bytes prefetched by one task.
    bytes_at_once: int = 8 << 20
    # Whether the user metadata of objects (`x-amz-meta-*`) becomes metadata of their documents. Needs no extra
    # request.
    object_metadata: bool = False

    def __post_init__(self) -> None:
        for name in ("objects_at_once", "bytes_at_once"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} = {getattr(self, name)!r}", "it must be at least 1")


def is_small(upload: UploadNotification) -> bool:
    """Whether an object can be fetched whole, as far as its notification says."""
    return upload.etag is not None and 0 < upload.size_bytes <= BLOCK_BYTES


_LIMITS: Final = FetchLimits()


def windows(sized: Iterable[tuple[K, int]], limits: FetchLimits = _LIMITS) -> Iterator[list[K]]:
    """Items in their order, as many together as may be fetched at once; at least one."""
    held: list[K] = []
    total = 0
    for item, size in sized:
        if held and (len(held) >= limits.objects_at_once or total + size > limits.bytes_at_once):
            yield held
            held, total = [], 0
        held.append(item)
        total += size
    if held:
        yield held


class Wanted(NamedTuple):
    """An object to ask for; `whole` when its bytes are of use, and not only what it is."""

    # Opens its bucket, or waits for whoever does: that too may take as long as an answer.
    opened: Callable[[], Awaitable[ObjectStore]]
    upload: UploadNotification
    whole: bool = True
    # Whether what is said of it is of use too.
    said: bool = False


class Fetcher(Generic[K]):
    """Asks ahead, on the loop of a task that reads. None is an answer too: that a closer look is needed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        grace_seconds: float = GRACE_SECONDS,
        observer: Observer = SILENT,
    ) -> None:
        self._loop, self._observer = loop, observer
        self._grace_seconds = grace_seconds
        self._waiting: dict[K, asyncio.Task[Fetched | None]] = {}
        self._settled: dict[K, Fetched | None] = {}
        self._late_windows = 0

    def is_late(self, place: K) -> bool:
        """Whether it did not answer soon: `rest` has what comes of it."""
        return place in self._waiting or place in self._settled

    def soon(self, wanted: Mapping[K, Wanted]) -> dict[K, Fetched | None]:
        """What could be had soon; the others are late from now on."""
        new = {place: one for place, one in wanted.items() if not self.is_late(place)}
        tasks = {place: self._loop.create_task(ask(one, self._observer)) for place, one in new.items()}
        if not tasks:
            return {}
        patient = self._late_windows < _PATIENT_WINDOWS
        grace = self._grace_seconds if patient else min(self._grace_seconds, _GRACE_SECONDS_LATER)
        # Those that are late already go on meanwhile.
        self._loop.run_until_complete(asyncio.wait(tasks.values(), timeout=grace))
        found = {place: task.result() for place, task in tasks.items() if task.done()}
        self._waiting |= {place: task for place, task in tasks.items() if not task.done()}
        self._late_windows += len(found) < len(tasks)
        if len(self._waiting) > _LATE_MAX:
            self._settle()
        return found

    def rest(self) -> dict[K, Fetched | None]:
        """What came of all that were late."""
        self._settle()
        settled, self._settled = self._settled, {}
        return settled

    def close(self) -> None:
        """Give up what is still waited for."""
        for task in self._waiting.values():
            task.cancel()
        if self._waiting:
            self._loop.run_until_complete(asyncio.wait(self._waiting.values()))

    def _settle(self) -> None:
        if self._waiting:
            self._loop.run_until_complete(asyncio.wait(self._waiting.values()))
        self._settled |= {place: task.result() for place, task in self._waiting.items()}
        self._waiting = {}


async def ask(wanted: Wanted, observer: Observer = SILENT) -> Fetched | None:
    """A small object whole, or what a large one is; None when that needs a closer look."""
    opened, upload, whole, said = wanted
    try:
        store = await opened()
        if whole and said and is_small(upload):
            return await _told(store, upload, observer)
        if whole and is_small(upload):
            return await _whole(store, upload, observer)
        meta = await store.head(upload.key)
        if whole and meta.size:
            # Some that tell of an object never give it: better found out here than by a reader that all wait for.
            first = await store.get_range(upload.key, 0, 1, version=meta.version)
            observer.count(names.INDEXING_READ_BYTES, len(first))
        return meta
    except Unavailable as error:
        return error
    except (PenstockError, ValueError, TypeError):
        return None


async def _told(
    store: ObjectStore, upload: UploadNotification, observer: Observer, clock: Clock = SYSTEM_CLOCK
) -> Object | None:
    """All of an object, of which a range would not tell what is said of it."""
    began = clock.monotonic()
    found = await store.get(upload.key)
    observer.observe(names.INDEXING_READ_SECONDS, clock.monotonic() - began)
    observer.count(names.INDEXING_READ_BYTES, len(found.data))
    assert upload.etag is not None
    is_notified = found.meta.version.strip('"') == upload.etag.strip('"') and len(found.data) == upload.size_bytes
    return found if is_notified else None


async def _whole(
    store: ObjectStore, upload: UploadNotification, observer: Observer, clock: Clock = SYSTEM_CLOCK
) -> bytes | None:
    began = clock.monotonic()
    data = await store.get_range(upload.key, 0, upload.size_bytes + 1, version=upload.etag)
    observer.observe(names.INDEXING_READ_SECONDS, clock.monotonic() - began)
    observer.count(names.INDEXING_READ_BYTES, len(data))
    return data if len(data) == upload.size_bytes else None
