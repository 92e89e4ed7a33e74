"""A shelf's directory: which buckets there are, and which fragments make up each of them.

A shelf partitions a space of 64-bit keys into buckets, each named after its lowest key. A bucket's content
is the content of its fragments in the order of their serials. The directory is the only authority on what
exists: a fragment that it does not list is not there. It is written in pages, so that a small change to a
large shelf stays small. Pure; directories never change, a change makes a new one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from penstock.blocks.format.arrays import Array, Indices, Words

__all__ = ["EMPTY", "FRAGMENT", "Directory", "PageChange", "directory_of"]

FRAGMENT: Final = np.dtype([("low", "<u8"), ("serial", "<u8"), ("rows", "<u4"), ("bytes", "<u4")])

# Fragments a page may list before it is cut: 12 KB, which is what a small flush writes again for each shelf.
_PAGE_FRAGMENTS_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class PageChange:
    """A page to write, or with no fragments to delete."""

    low: int
    fragments: Array


@dataclass(frozen=True)
class Directory:
    """Fragments in the order of (low, serial), and the lowest keys of the pages they are written in."""

    fragments: Array
    pages: Words

    @cached_property
    def _firsts(self) -> Indices:
        lows = self.fragments["low"]
        return np.flatnonzero(np.concatenate(([True], lows[1:] != lows[:-1]))) if len(lows) else np.empty(0, np.int64)

    @cached_property
    def lows(self) -> Words:
        """The lowest key of every bucket, in order."""
        lows: Words = self.fragments["low"][self._firsts]
        return lows

    @cached_property
    def rows(self) -> Indices:
        """Rows of every bucket, in the order of `lows`, dead ones included."""
        if not len(self.fragments):
            return np.empty(0, np.int64)
        rows: Indices = np.add.reduceat(self.fragments["rows"].astype(np.int64), self._firsts)
        return rows

    @property
    def size_bytes(self) -> int:
        return int(self.fragments["bytes"].sum(dtype=np.int64))

    def __len__(self) -> int:
        return len(self._firsts)

    @cached_property
    def low_list(self) -> list[int]:
        """`lows` for those who look for a few keys only, and do so sooner in a list."""
        lows: list[int] = self.lows.tolist()
        return lows

    @cached_property
    def kept(self) -> dict[Hashable, dict[int, Any]]:
        """What readers hold of this directory's buckets, by what it is made of: it lives as long as the directory."""
        return {}

    @cached_property
    def _versions(self) -> dict[int, int]:
        return {}

    def version(self, low: int) -> int:
        """The newest serial of a bucket, which names its content; 0 if there is no such bucket."""
        found = self._versions.get(low)
        if found is None:
            fragments = self.bucket(low)
            found = self._versions[low] = int(fragments["serial"][-1]) if len(fragments) else 0
        return found

    def bucket(self, low: int) -> Array:
        """The fragments of one bucket, oldest first; none if there is no such bucket."""
        if not len(self.fragments):
            return self.fragments
        place = int(np.searchsorted(self.lows, np.uint64(low)))
        if place == len(self) or int(self.lows[place]) != low:
            return self.fragments[:0]
        return self.fragments[self._firsts[place] : self._end(place)]

    def locate(self, keys: Array) -> Indices:
        """For each key the place of its bucket in `lows`; -1 before the first."""
        return np.searchsorted(self.lows, keys.astype(np.uint64), side="right").astype(np.int64) - 1

    def owners(self, keys: Words) -> Indices:
        """For each key of rows that are filed the place of the bucket that owns it: the first also owns what lies before.

        Buckets that have lost all their rows are gone; what they owned falls to a neighbour.
        """
        return np.maximum(self.locate(keys), 0)

    def changed(self, removed: Iterable[int], added: Sequence[tuple[int, int, int, int]]) -> Directory:
        """Without the fragments of `removed` serials, with those `added` as (low, serial, rows, bytes)."""
        fresh = np.array(list(added), FRAGMENT)
        gone = np.fromiter(removed, np.uint64)
        kept = self.fragments[~np.isin(self.fragments["serial"], gone)] if len(gone) else self.fragments
        if not len(kept) and len(fresh) == 1:
            return Directory(fresh, self.pages)
        fragments = np.empty(len(kept) + len(fresh), FRAGMENT)
        fragments[: len(kept)], fragments[len(kept) :] = kept, fresh
        return Directory(fragments[np.lexsort((fragments["serial"], fragments["low"]))], self.pages)

    def paged(self, touched: Words) -> tuple[Directory, list[PageChange]]:
        """This directory with its pages cut to size, and the pages that hold the `touched` buckets."""
        if len(self.pages) == 1 and len(self.fragments) <= _PAGE_FRAGMENTS_MAX:
            # The usual directory is one page, and stays one.
            return self, [PageChange(int(self.pages[0]), self.fragments)] if len(touched) else []
        places = np.unique(np.searchsorted(self.pages, touched, side="right") - 1)
        changes = [change for place in places for change in self._recut(int(place))]
        pages = {0, *self.pages.tolist(), *(change.low for change in changes)}
        pages.difference_update(change.low for change in changes if change.low and not len(change.fragments))
        return Directory(self.fragments, np.array(sorted(pages), np.uint64)), changes

    def _recut(self, place: int) -> list[PageChange]:
        low = self.pages[place]
        start = int(np.searchsorted(self.fragments["low"], low))
        end = len(self.fragments)
        if place + 1 < len(self.pages):
            end = int(np.searchsorted(self.fragments["low"], self.pages[place + 1]))
        pieces = list(pairwise([start, *self._cuts(start, end), end]))
        # The first piece keeps the page's own name, whatever its first bucket is.
        first = PageChange(int(low), self.fragments[slice(*pieces[0])])
        return [first, *(PageChange(int(self.fragments["low"][a]), self.fragments[a:b]) for a, b in pieces[1:])]

    def _cuts(self, start: int, end: int) -> list[int]:
        """Where to cut a page that has grown too long: between buckets, in pieces of half a page."""
        if end - start <= _PAGE_FRAGMENTS_MAX:
            return []
        firsts = self._firsts[(self._firsts > start) & (self._firsts < end)]
        pieces = (firsts - start) // (_PAGE_FRAGMENTS_MAX // 2)
        return [int(cut) for cut in firsts[1:][pieces[1:] != pieces[:-1]]]

    def _end(self, place: int) -> int:
        return int(self._firsts[place + 1]) if place + 1 < len(self) else len(self.fragments)


EMPTY: Final = Directory(np.empty(0, FRAGMENT), np.zeros(1, np.uint64))


def directory_of(pages: Sequence[tuple[int, Array]]) -> Directory:
    """The directory written in these pages, given in key order."""
    lows = np.array(sorted({0, *(low for low, _ in pages)}), np.uint64)
    return Directory(np.concatenate([EMPTY.fragments, *(fragments for _, fragments in pages)]), lows)
