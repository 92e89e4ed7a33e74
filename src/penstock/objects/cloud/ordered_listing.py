"""Listings of a cloud store in byte order, by plain prefix, from any offset.

The services themselves keep byte order and can start at an offset, so their pages are passed on as
they come, and checked. Look-alikes and emulators often order by folders or by UTF-16 and read an
offset in that order or not at all; what they list is collected, sorted and cut here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import obstore

from penstock.errors import AtCapacity, Unsupported
from penstock.objects.cloud.services import Remote
from penstock.objects.port import ObjectMeta
from penstock.objects.prefix_walk import folder_of, is_object_key

if TYPE_CHECKING:
    from obstore import ObjectMeta as RemoteMeta

__all__ = ["CloudListing", "remote_meta"]

# Some 300 bytes each: what a worker can hold while it sorts.
COLLECTED_KEYS_MAX: Final = 1_000_000
# As many as S3 gives in one answer.
_CHUNK: Final = 1000


@dataclass(frozen=True, slots=True)
class CloudListing:
    """One listing of one store; `base` is the store's prefix with its slash."""

    url: str
    remote: Remote
    base: str
    prefix: str
    offset: str

    async def pages(self, page_size: int, *, is_ordered: bool) -> AsyncIterator[list[ObjectMeta]]:
        """Full pages, the last one perhaps short."""
        page: list[ObjectMeta] = []
        async for meta in self._in_order() if is_ordered else self._collected():
            page.append(meta)
            if len(page) == page_size:
                yield page
                page = []
        if page:
            yield page

    async def _in_order(self) -> AsyncIterator[ObjectMeta]:
        last = ""
        async for meta in self._remote(start_after(self.prefix, self.offset)):
            if meta.key > self.prefix and not meta.key.startswith(self.prefix):
                return
            if meta.key <= last:
                # A folder marker of a console comes without its slash, hence out of order; it is no object.
                if meta.size == 0:
                    continue
                raise self._disorder(last, meta.key)
            last = meta.key
            if self._is_wanted(meta.key):
                yield meta

    async def _collected(self) -> AsyncIterator[ObjectMeta]:
        found = []
        async for meta in self._remote(None):
            if self._is_wanted(meta.key):
                found.append(meta)
                if len(found) > COLLECTED_KEYS_MAX:
                    raise self._too_many()
        for meta in sorted(found, key=lambda one: one.key):
            yield meta

    async def _remote(self, offset: str | None) -> AsyncIterator[ObjectMeta]:
        folder = folder_of(self.prefix)
        if folder is None:
            return
        stream = obstore.list(
            self.remote.store,
            (self.base + folder).rstrip("/") or None,
            offset=self.base + offset if offset else None,
            chunk_size=_CHUNK,
        )
        async for chunk in stream:
            for found in chunk:
                yield remote_meta(found["path"].removeprefix(self.base), found, self.remote)

    def _is_wanted(self, key: str) -> bool:
        return key.startswith(self.prefix) and key > self.offset and is_object_key(key)

    def _disorder(self, last: str, key: str) -> Unsupported:
        return Unsupported(
            f"listing {self.prefix!r} in {self.url} failed",
            f"the service does not list in byte order: {key!r} came after {last!r}",
            "open the store with ordered_listing=False",
        )

    def _too_many(self) -> AtCapacity:
        return AtCapacity(
            f"listing {self.prefix!r} in {self.url} failed",
            f"over {COLLECTED_KEYS_MAX} objects would have to be sorted in memory",
            "list a longer prefix, or open the store with ordered_listing=True if it lists in byte order",
        )


def remote_meta(key: str, found: RemoteMeta, remote: Remote, said: tuple[tuple[str, str], ...] = ()) -> ObjectMeta:
    modified_ms = int(found["last_modified"].timestamp() * 1000)
    return ObjectMeta(key, found["size"], remote.versions.of(found), modified_ms, said)


def start_after(prefix: str, offset: str) -> str | None:
    """A key as late as possible that no wanted key precedes or equals; None to start at the beginning."""
    candidates = [_just_below(prefix), offset.rstrip("/")]
    return max((one for one in candidates if is_object_key(one)), default=None)


def _just_below(prefix: str) -> str:
    """Below every key with the prefix, and above nearly all that sort before it."""
    return prefix[:-1] + chr(ord(prefix[-1]) - 1) + "~" if prefix and prefix[-1] > "!" else ""
