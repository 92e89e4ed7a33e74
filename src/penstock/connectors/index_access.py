"""Access to one index for frameworks: searches and reads, on the caller's event loop or from a thread without one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.errors import Unavailable
from penstock.indexing import (
    Asked,
    Question,
    documents_where,
    fetch_document,
    find_passages,
    find_target,
    parse_filter,
    read_entries,
    require_store,
    url_of,
)
from penstock.loops import LoopThread

__all__ = ["IndexAccess", "missing_framework", "passage_id", "passage_metadata", "waited_for"]

T = TypeVar("T")

# What a framework keeps apart from the text.
_TEXT: Final = "text"


@dataclass(frozen=True, slots=True)
class IndexAccess:
    """Which index is asked, and how. `store` is a folder or a URL; `filter` is written as for `penstock search`."""

    store: str
    index: str = "default"
    tenant: str = "default"
    count: int = 5
    mode: str = "hybrid"
    filter: str | None = None
    min_score: float | None = None
    per_document: int | None = None
    # Chunks of text before and behind each passage.
    context: int = 0

    async def passages(self, words: str) -> list[dict[str, Any]]:
        """The passages that answer a question, best first, as `SearchAnswer` has them."""
        where = parse_filter(self.filter) if self.filter else None
        question = Question(words, self.count, where, self.mode, self.min_score, self.context, self.per_document)
        return await find_passages(url_of(self.store), Asked(self.tenant, self.index), question)

    async def documents(self, keys: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The texts of documents as they were indexed: those of some keys, or all that the filter selects."""
        url = url_of(self.store)
        await require_store(url)
        name = (await find_target(url, self.tenant, self.index, None)).name
        if keys is not None:
            places: list[tuple[str | None, str]] = [(None, key) for key in keys]
        elif self.filter:
            places = [*await documents_where(url, name, parse_filter(self.filter))]
        else:
            entries = await read_entries(url, name)
            # Those without a chunk have no text to give.
            places = [(entry.bucket, entry.key) for entry in entries if entry.report and entry.report.chunks]
        found = [await fetch_document(url, self.tenant, self.index, key, bucket=bucket) for bucket, key in places]
        return [{"text": each.text, "bucket": each.bucket, "key": each.key, "chunks": each.chunks} for each in found]


def missing_framework(name: str, extra: str) -> Unavailable:
    return Unavailable(f"{name} is not installed", "it is an optional dependency", f"pip install 'penstock[{extra}]'")


def passage_id(passage: dict[str, Any]) -> str:
    """What tells a passage from all others of an index."""
    return f"{passage['bucket']}/{passage['key']}#{passage['seq']}"


def passage_metadata(passage: dict[str, Any]) -> dict[str, Any]:
    """Everything of a passage but its text, and without what says nothing."""
    return {name: value for name, value in passage.items() if name != _TEXT and value not in (None, "", {}, [])}


def waited_for(work: Coroutine[Any, Any, T]) -> T:
    """The result of some work, for a caller that blocks; also inside a loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # Its own loop is busy waiting for this call: another one, on a thread that ends with it.
    door = LoopThread("penstock-connector")
    try:
        return door.run(work)
    finally:
        door.close()
