"""What is known of the documents of an index, read beside whoever writes it, and found by the keys that people name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from penstock.errors import InvalidInput, NotFound, Unavailable
from penstock.indexing.registry.entries import DocumentEntry, list_entries, registry_name
from penstock.indexing.search.doors import PLAIN_DOORS, StoreDoors
from penstock.objects import open_store
from penstock.vector import CollectionName

__all__ = ["find_entries", "no_store", "read_entries", "require_store"]

# A listing that a busy writer overtakes begins again, so often.
_ATTEMPTS_MAX: Final = 5
_NEAR_MAX: Final = 5


async def read_entries(url: str, name: CollectionName, doors: StoreDoors = PLAIN_DOORS) -> list[DocumentEntry]:
    """The documents of an index; none when there is no such index yet."""
    registry = registry_name(name)
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            async with await doors.reader(url) as reader:
                return await list_entries(await reader.collection(registry.tenant, registry.index, registry.model))
        except NotFound:
            return []
        except Unavailable:
            if attempt == _ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


async def require_store(url: str, doors: StoreDoors = PLAIN_DOORS) -> None:
    """Raise `NotFound` unless there is an index or a queue: a mistyped store has no documents either."""
    try:
        async with await doors.reader(url):
            return
    except NotFound as error:
        if not await _has_queue(url, doors):
            raise no_store(url, error) from error


def no_store(url: str, error: NotFound) -> NotFound:
    return NotFound(
        f"there is no store at {url}", error.what, "create it with `penstock index`, or give another --store"
    )


async def _has_queue(url: str, doors: StoreDoors) -> bool:
    """A store that was only notified has no index until a job has run."""
    try:
        store = await open_store(url, read_only=True, **doors.spec(url).options)
    except NotFound:
        return False
    try:
        await store.head(doors.manifest_path)
    except NotFound:
        return False
    finally:
        await store.close()
    return True


def find_entries(entries: Sequence[DocumentEntry], keys: Iterable[str]) -> list[DocumentEntry]:
    """The entry of every key, each once. A key that is unknown, or in several buckets, is refused by name."""
    named: dict[str, dict[str, DocumentEntry]] = {}
    for entry in entries:
        for name in (entry.key, _full(entry)):
            named.setdefault(name, {})[entry.object_key] = entry
    found = [_find(entries, key, list(named.get(key, {}).values())) for key in keys]
    return list({entry.object_key: entry for entry in found}.values())


def _find(entries: Sequence[DocumentEntry], key: str, named: Sequence[DocumentEntry]) -> DocumentEntry:
    if len(named) == 1:
        return named[0]
    if named:
        listed = ", ".join(map(_full, named))
        raise InvalidInput(f"{key} is in several buckets", listed, "write BUCKET/KEY")
    if not entries:
        raise NotFound(f"the index has no document {key}", "it is empty", "fill it with `penstock index`")
    near = _near(entries, key)
    remedy = f"did you mean {', '.join(near)}?" if near else "`penstock documents list` shows them all"
    raise NotFound(f"the index has no document {key}", f"it has {len(entries):,} others", remedy)


def _near(entries: Sequence[DocumentEntry], key: str) -> list[str]:
    keys = [entry.key for entry in entries]
    parts = [known for known in keys if key.casefold() in known.casefold()]
    return list(dict.fromkeys([*parts, *get_close_matches(key, keys, _NEAR_MAX)]))[:_NEAR_MAX]


def _full(entry: DocumentEntry) -> str:
    return f"{entry.bucket}/{entry.key}"
