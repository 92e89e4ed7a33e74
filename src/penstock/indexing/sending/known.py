"""The documents of an index by where their objects lie, whatever names these go by.

One file can be reached from several folders, and one bucket can have several names. It is one document all the same:
the one that it was indexed as first.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

from penstock.errors import InvalidInput
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.sending.places import Place
from penstock.objects import StoreUrl, parse_url

__all__ = ["Known"]


class Known:
    """`url_of` tells where a bucket is that an event or a place names."""

    def __init__(self, entries: Iterable[DocumentEntry], url_of: Callable[[str], str]) -> None:
        self._url_of = url_of
        self._bases: dict[str, str] = {}
        self._entries: dict[str, list[DocumentEntry]] = {}
        for entry in entries:
            self._entries.setdefault(self.location(entry.bucket, entry.key), []).append(entry)
        self._locations = sorted(self._entries)

    def location(self, bucket: str, key: str) -> str:
        return f"{self._base(bucket)}/{key}"

    def root(self, place: Place) -> str:
        """Where a place is: the location of the one object, or of the folder without a slash at its end."""
        return self.location(place.bucket, place.key or place.prefix).removesuffix("/")

    def named(self, bucket: str, key: str) -> list[DocumentEntry]:
        """What is known of the object, the one that answers for it first: searchable, forgotten, or gone.

        Among equals it is the one of this very name.
        """
        found = self._entries.get(self.location(bucket, key), [])
        return sorted(found, key=lambda entry: (_rank(entry), (entry.bucket, entry.key) != (bucket, key)))

    def within(self, place: Place) -> Iterator[tuple[str, DocumentEntry]]:
        """All documents of a place that are not gone, with their locations."""
        root = self.root(place)
        for entry in self._entries.get(root, []):
            if not entry.state.tombstone:
                yield root, entry
        if place.key is not None:
            return
        # What begins with a slash behind the root lies together in the order of the text.
        for number in range(bisect_left(self._locations, f"{root}/"), len(self._locations)):
            location = self._locations[number]
            if not location.startswith(f"{root}/"):
                return
            yield from ((location, entry) for entry in self._entries[location] if not entry.state.tombstone)

    def _base(self, bucket: str) -> str:
        if bucket not in self._bases:
            try:
                self._bases[bucket] = _base_of(parse_url(self._url_of(bucket)))
            except InvalidInput:
                # Of an event that named no bucket at all: only its own name leads to it.
                self._bases[bucket] = bucket
        return self._bases[bucket]


def _base_of(url: StoreUrl) -> str:
    """Without a slash at its end, and without links in a path: two names of one folder are one."""
    place = os.path.realpath(url.place) if url.scheme == "file" else url.place
    return f"{url.scheme}://{place.rstrip('/')}{'/' if url.prefix else ''}{url.prefix}"


def _rank(entry: DocumentEntry) -> int:
    if not entry.state.tombstone:
        return 0
    return 1 if entry.forgotten else 2
