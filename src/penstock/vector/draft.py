"""A commit in the making: fragments to add, to fold and to drop, which end as one list of puts and deletes.

Nothing is written here and nothing of the state changes: a draft that fails is forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec
import numpy as np

from penstock.vector.arrays import Array
from penstock.vector.block import Kind
from penstock.vector.blocks import CONTENT, BlockReader
from penstock.vector.clusters import Centroids
from penstock.vector.content import Content
from penstock.vector.directory import Directory, encode_page
from penstock.vector.idset import IdSet
from penstock.vector.keys import Address, Family, Shelf, fragment_key, head_key, page_key
from penstock.vector.state import CollectionState, Head, encode_record
from penstock.vector.tiers import FRAGMENT_BYTES_MAX, foldable

__all__ = ["Draft", "Operations"]

Operations = list[tuple[bytes, bytes | None]]


@dataclass(slots=True)
class _Bucket:
    """What a draft does to one bucket."""

    arriving: list[Content]
    # Whether what lies there now is dropped.
    cleared: bool = False


class Draft:
    """Changes to one collection, on top of `base`."""

    def __init__(self, base: CollectionState) -> None:
        base.require(tuple(Family))
        self.base = base
        self._buckets: dict[Shelf, dict[int, _Bucket]] = defaultdict(dict)
        self._folds: dict[tuple[Shelf, int], Array] = {}

    def append(self, shelf: Shelf, low: int, content: Content) -> None:
        """Add rows to a bucket, which begins with them if there is none."""
        if len(content):
            self._bucket(shelf, low).arriving.append(content)

    def replace(self, shelf: Shelf, low: int, content: Content | None) -> None:
        """Drop all that a bucket holds, and what was about to be added, for `content`."""
        bucket = self._bucket(shelf, low)
        bucket.cleared = True
        bucket.arriving = [content] if content is not None and len(content) else []

    def arriving(self, shelf: Shelf, low: int) -> Sequence[Content]:
        """What is about to be added to a bucket."""
        bucket = self._buckets[shelf].get(low)
        return bucket.arriving if bucket else ()

    def is_cleared(self, shelf: Shelf, low: int) -> bool:
        bucket = self._buckets[shelf].get(low)
        return bucket is not None and bucket.cleared

    async def fold(self, blocks: BlockReader) -> None:
        """Read the small fragments that are due to become one with those arriving."""
        due = {}
        for shelf, buckets in self._buckets.items():
            for low, bucket in buckets.items():
                folded = self._due(shelf, low, bucket)
                due.update({Address(shelf, low, serial): bucket for serial in folded["serial"].tolist()})
                if len(folded):
                    self._folds[shelf, low] = folded
        read = await blocks.fragments(self.base, list(due))
        for bucket, content in zip(reversed(due.values()), reversed(read), strict=True):
            if content is not None:
                bucket.arriving.insert(0, content)

    def _due(self, shelf: Shelf, low: int, bucket: _Bucket) -> Array:
        fragments = self.base.directory(shelf).bucket(low)
        if bucket.cleared or not bucket.arriving:
            return fragments[:0]
        count = foldable(fragments["bytes"].tolist(), sum(content.size_bytes for content in bucket.arriving))
        return fragments[len(fragments) - count :]

    def finish(
        self, head: Head, centroids: Centroids, deleted: IdSet, hidden: IdSet
    ) -> tuple[CollectionState, Operations]:
        """The state after the commit, and the operations that make it so."""
        serial = self.base.head.next_serial
        operations: Operations = []
        directories = dict(self.base.directories)
        for shelf, buckets in self._buckets.items():
            directory, serial = self._write_shelf(shelf, buckets, serial, operations)
            touched = np.array(list(buckets), np.uint64)
            directories[shelf], pages = directory.paged(touched)
            for page in pages:
                key = page_key(self.base.number, shelf, page.low)
                operations.append((key, encode_page(page.fragments) if len(page.fragments) else None))
        head = msgspec.structs.replace(head, commit=self.base.head.commit + 1, next_serial=serial)
        operations.append((head_key(self.base.number), encode_record(Kind.HEAD, head)))
        state = replace(
            self.base, head=head, directories=directories, centroids=centroids, deleted=deleted, hidden=hidden
        )
        return state, operations

    def _write_shelf(
        self, shelf: Shelf, buckets: dict[int, _Bucket], serial: int, operations: Operations
    ) -> tuple[Directory, int]:
        directory = self.base.directory(shelf)
        removed: list[int] = []
        added: list[tuple[int, int, int, int]] = []
        for low, bucket in buckets.items():
            gone = directory.bucket(low) if bucket.cleared else self._folds.get((shelf, low), directory.fragments[:0])
            for old in gone["serial"].tolist():
                removed.append(old)
                operations.append((fragment_key(self.base.number, Address(shelf, low, old)), None))
            for content in _cut(shelf, bucket.arriving):
                value = content.encode(shelf.family)
                operations.append((fragment_key(self.base.number, Address(shelf, low, serial)), value))
                added.append((low, serial, len(content), len(value)))
                serial += 1
        return directory.changed(removed, added), serial

    def _bucket(self, shelf: Shelf, low: int) -> _Bucket:
        return self._buckets[shelf].setdefault(low, _Bucket([]))


def _cut(shelf: Shelf, contents: list[Content]) -> list[Content]:
    """Contents as one, cut into pieces of about the largest size a value should have."""
    if not contents:
        return []
    content = CONTENT[shelf.family].merge(contents)
    count = -(-content.size_bytes // FRAGMENT_BYTES_MAX)
    if count <= 1:
        return [content]
    bounds = np.linspace(0, len(content), min(count, len(content)) + 1).astype(np.int64)
    return [content.take(slice(a, b)) for a, b in pairwise(bounds)]
