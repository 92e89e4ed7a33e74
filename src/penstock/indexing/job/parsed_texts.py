"""The driver's side of canonical texts that are too large for one round: removing them.

A text goes once its document is done, and at a job's start whatever no pending document refers to: a text is at most
written again, and never missed by anybody who cannot make it anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import Unavailable
from penstock.indexing.job.store_door import StoreDoor
from penstock.indexing.stages.parsed_texts import PARSED_PREFIX
from penstock.objects import ObjectStore, StoreSpec

__all__ = ["ParsedTexts"]


class ParsedTexts:
    """Blocking, and for one thread at a time."""

    def __init__(self, door: StoreDoor, spec: StoreSpec) -> None:
        self._door = door
        self._spec = spec
        self._opened: ObjectStore | None = None

    def discard(self, keys: Iterable[str]) -> None:
        """Remove the texts of documents that are done. What cannot be removed now is, at the next start."""
        wanted = list(dict.fromkeys(keys))
        if not wanted:
            return
        try:
            self._door.run(self._store().delete_many(wanted))
        except Unavailable:
            return

    def collect(self, referred: Iterable[str]) -> int:
        """Remove all texts but these; how many."""
        orphans = sorted(set(self._door.run(self._listed())) - set(referred))
        self.discard(orphans)
        return len(orphans)

    def close(self) -> None:
        if self._opened is not None:
            self._door.run(self._opened.close())
            self._opened = None

    async def _listed(self) -> list[str]:
        store = self._opened or await self._spec.open()
        self._opened = store
        return [meta.key async for page in store.list(PARSED_PREFIX) for meta in page]

    def _store(self) -> ObjectStore:
        if self._opened is None:
            self._opened = self._door.run(self._spec.open())
        return self._opened
