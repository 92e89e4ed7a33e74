"""A commit in the making: fragments to add, to fold and to drop, which end as one list of puts and deletes.

Nothing is written here and nothing of the state changes: a draft that fails is forgotten.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from penstock.blocks.format.arrays import Array
from penstock.blocks.format.directory import Directory
from penstock.blocks.format.envelope import RecordKind
from penstock.blocks.format.keys import Address, Shelf, fragment_key, head_key
from penstock.blocks.format.shelves import Shelves
from penstock.blocks.format.store_format import Block, StoreFormat
from penstock.blocks.format.tiers import FRAGMENT_BYTES_MAX, foldable
from penstock.blocks.read.pages import Operations, page_operations
from penstock.blocks.read.reader import BlockReader

__all__ = ["GROUP_BYTES", "BlockDraft", "Drafted", "parted"]

# Of stored fragments, what a commit folds at least; more when more arrives, so that folding keeps up.
_FOLD_BYTES_MIN: Final = 4 << 20
# Stored bytes that are decoded, made one and encoded again at a time, where a commit has more of them.
GROUP_BYTES: Final = 2 << 20

T = TypeVar("T")
S = TypeVar("S", bound=Shelves)
H = TypeVar("H", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Drafted(Generic[H]):
    """The result of a draft: the head and the directories after it, and the writes that make it so."""

    head: H
    directories: dict[Shelf, Directory]
    operations: Operations


@dataclass(slots=True)
class _Bucket:
    """What a draft does to one bucket."""

    arriving: list[Block]
    # Whether what lies there now is dropped.
    cleared: bool = False
    # Rows and value of fragments that are encoded already: older than what is arriving.
    sealed: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Fold:
    """Fragments of a bucket that become one with what is arriving."""

    shelf: Shelf
    low: int
    folded: Array

    @property
    def size(self) -> int:
        return int(self.folded["bytes"].sum())


class LastBucket(NamedTuple):
    """The bucket with the highest keys of a shelf."""

    low: int
    rows: int


class BlockDraft(Generic[S]):
    """Changes to the shelves beneath one prefix, on top of `base`."""

    def __init__(self, format: StoreFormat, base: S) -> None:
        self.format = format
        self.base = base
        self._buckets: dict[Shelf, dict[int, _Bucket]] = defaultdict(dict)
        self._folds: dict[tuple[Shelf, int], Array] = {}

    def append(self, shelf: Shelf, low: int, content: Block) -> None:
        """Add rows to a bucket, which begins with them if there is none."""
        if len(content):
            self._bucket(shelf, low).arriving.append(content)

    def replace(self, shelf: Shelf, low: int, content: Block | None) -> None:
        """Drop all that a bucket holds, and what was about to be added, for `content`."""
        bucket = self._bucket(shelf, low)
        bucket.cleared = True
        bucket.arriving = [content] if content is not None and len(content) else []
        bucket.sealed = []

    def seal(self, shelf: Shelf, lows: Iterable[int]) -> None:
        """Encode what is about to be added to some buckets: encoded it takes a fraction of the memory."""
        for low in lows:
            bucket = self._bucket(shelf, low)
            bucket.sealed += self._fragments(shelf, bucket.arriving)
            bucket.arriving = []

    def arriving(self, shelf: Shelf, low: int) -> Sequence[Block]:
        """What is about to be added to a bucket."""
        bucket = self._buckets[shelf].get(low)
        return bucket.arriving if bucket else ()

    def last_bucket(self, shelf: Shelf) -> LastBucket | None:
        """The bucket that rows with higher keys follow on, what is about to change included; None if there is none."""
        directory, changed = self.base.directory(shelf), self._buckets.get(shelf) or {}
        stored = len(directory) and int(directory.lows[-1])
        highest = max([low for low, bucket in changed.items() if bucket.arriving or bucket.sealed], default=-1)
        low = max(highest, stored) if len(directory) else highest
        if low < 0:
            return None
        touched = changed.get(low)
        kept = int(directory.rows[-1]) if len(directory) and low == stored and not (touched and touched.cleared) else 0
        added = sum(map(len, touched.arriving)) + sum(rows for rows, _ in touched.sealed) if touched else 0
        return LastBucket(low, kept + added)

    async def fold(self, blocks: BlockReader) -> None:
        """Read the small fragments that are due to become one with those arriving.

        Buckets that get rows alike are due alike: a commit folds those with the most fragments, as much as arrives and
        not less than `_FOLD_BYTES_MIN`, and leaves the others to the next ones.
        """
        due = self._due_folds()
        groups = list(parted(due, lambda one: one.size, GROUP_BYTES))
        for group in groups:
            addresses = [
                Address(one.shelf, one.low, serial) for one in group for serial in one.folded["serial"].tolist()
            ]
            read = iter(await blocks.fragments(self.base, addresses))
            for one in group:
                older = [next(read) for _ in one.folded]
                bucket = self._bucket(one.shelf, one.low)
                bucket.arriving[:0] = [content for content in older if content is not None]
                self._folds[one.shelf, one.low] = one.folded
            if len(groups) > 1:
                await asyncio.to_thread(self._seal_all, group)

    def _due_folds(self) -> list[_Fold]:
        left, found = _FOLD_BYTES_MIN, []
        for shelf, buckets in self._buckets.items():
            for low, bucket in buckets.items():
                arriving = sum(self.format.stored_bytes(shelf.family, block) for block in bucket.arriving)
                left += arriving
                folded = self._due(shelf, low, bucket, arriving)
                if len(folded):
                    found.append(_Fold(shelf, low, folded))
        found.sort(key=lambda one: -len(one.folded))
        spent = accumulate(one.size for one in found)
        return [one for one, size in zip(found, spent, strict=True) if size - one.size < left]

    def _seal_all(self, folds: Sequence[_Fold]) -> None:
        for one in folds:
            self.seal(one.shelf, [one.low])

    def _due(self, shelf: Shelf, low: int, bucket: _Bucket, arriving: int) -> Array:
        fragments = self.base.directory(shelf).bucket(low)
        if not len(fragments) or bucket.cleared or not bucket.arriving:
            return fragments[:0]
        count = foldable(fragments["bytes"].tolist(), arriving)
        return fragments[len(fragments) - count :]

    def finish(self, head: H) -> Drafted[H]:
        """The commit: `head` is written with the next number of a commit and the next serial in it."""
        serial = self.base.head.next_serial
        operations: Operations = []
        directories = dict(self.base.directories)
        for shelf, buckets in self._buckets.items():
            directory, serial = self._write_shelf(shelf, buckets, serial, operations)
            touched = np.array(list(buckets), np.uint64)
            directories[shelf], pages = directory.paged(touched)
            operations += page_operations(self.format, self.base.prefix, shelf, pages)
        head = msgspec.structs.replace(head, commit=self.base.head.commit + 1, next_serial=serial)
        operations.append((head_key(self.base.prefix), self.format.encode_record(RecordKind.HEAD, head)))
        return Drafted(head, directories, operations)

    def _write_shelf(
        self, shelf: Shelf, buckets: dict[int, _Bucket], serial: int, operations: Operations
    ) -> tuple[Directory, int]:
        directory = self.base.directory(shelf)
        removed: list[int] = []
        added: list[tuple[int, int, int, int]] = []
        for low, bucket in buckets.items():
            gone = directory.bucket(low) if bucket.cleared else self._folds.get((shelf, low))
            for old in gone["serial"].tolist() if gone is not None and len(gone) else ():
                removed.append(old)
                operations.append((fragment_key(self.base.prefix, Address(shelf, low, old)), None))
            for rows, value in (*bucket.sealed, *self._fragments(shelf, bucket.arriving)):
                operations.append((fragment_key(self.base.prefix, Address(shelf, low, serial)), value))
                added.append((low, serial, rows, len(value)))
                serial += 1
        return directory.changed(removed, added), serial

    def _bucket(self, shelf: Shelf, low: int) -> _Bucket:
        return self._buckets[shelf].setdefault(low, _Bucket([]))

    def _fragments(self, shelf: Shelf, arriving: list[Block]) -> list[tuple[int, bytes]]:
        """Rows and value of the fragments that blocks become."""
        return [(len(content), self.format.encode(shelf.family, content)) for content in self._cut(shelf, arriving)]

    def _cut(self, shelf: Shelf, arriving: list[Block]) -> list[Block]:
        """Blocks as one, cut into pieces of about the largest size a value should have."""
        if not arriving:
            return []
        block = self.format.blocks[shelf.family].merge(arriving)
        count = -(-self.format.stored_bytes(shelf.family, block) // FRAGMENT_BYTES_MAX)
        if count <= 1:
            return [block]
        bounds = np.linspace(0, len(block), min(count, len(block)) + 1).astype(np.int64)
        return [block.take(slice(a, b)) for a, b in pairwise(bounds)]


def parted(items: Iterable[T], size: Callable[[T], int], bytes_max: int) -> Iterator[list[T]]:
    """Items in groups, each closed by the one that fills it."""
    group: list[T] = []
    held = 0
    for item in items:
        group.append(item)
        held += size(item)
        if held >= bytes_max:
            yield group
            group, held = [], 0
    if group:
        yield group
