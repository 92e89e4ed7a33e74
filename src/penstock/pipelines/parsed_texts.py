"""Canonical texts that are too large for one round, kept in the store while their documents are read.

The task that parsed a document writes its text as `parsed/{docId}-{parsers}`, and later rounds read it by ranges like
any other text. The driver removes it once the document is done, and at its start whatever no pending document refers
to: a text is at most written again, and never missed by anybody who cannot make it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.documents.parsers import parser_fingerprint
from penstock.errors import Unavailable
from penstock.objects import ObjectStore, StoreSpec

if TYPE_CHECKING:
    # Executors name texts and hold no vector store: a worker that does not import it starts twice as fast.
    from penstock.pipelines.store_door import StoreDoor

__all__ = ["PARSED_PREFIX", "ParsedTexts", "parsed_key"]

PARSED_PREFIX: Final = "parsed/"


def parsed_key(document: str) -> str:
    """Where the text of a document lies, as the parsers that are installed here make it."""
    return f"{PARSED_PREFIX}{document}-{parser_fingerprint()}"


class ParsedTexts:
    """The driver's side: removing. Blocking, and for one thread at a time."""

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
