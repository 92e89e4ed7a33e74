"""Directories as they lie in the store: in pages, and made again from the fragments where a page is damaged.

A fragment and the page that lists it are written in one batch, so a fragment that lies in the store is listed. That is
why a page that cannot be read is no loss: the keys it listed are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.blocks.format.arrays import Array
from penstock.blocks.format.directory import FRAGMENT, Directory, PageChange, directory_of
from penstock.blocks.format.envelope import RecordKind
from penstock.blocks.format.keys import Shelf, page_key, pages_prefix, shelf_prefix
from penstock.blocks.format.store_format import StoreFormat
from penstock.blocks.read.reader import BlockReader, Damage
from penstock.errors import Corrupt

__all__ = ["Operations", "StoredDirectories", "decode_page", "encode_page", "page_operations", "read_directories"]

# Puts, and with None deletes, that are going to be part of one write batch.
Operations = list[tuple[bytes, bytes | None]]


def encode_page(format: StoreFormat, fragments: Array) -> bytes:
    return format.envelope.seal(RecordKind.PAGE, fragments)


def decode_page(format: StoreFormat, value: bytes) -> Array:
    body = format.envelope.unseal(RecordKind.PAGE, value)
    if len(body) % FRAGMENT.itemsize:
        raise Corrupt("a directory page is cut short", f"it has {len(body)} bytes")
    return np.frombuffer(body, FRAGMENT)


def page_operations(format: StoreFormat, prefix: bytes, shelf: Shelf, pages: Iterable[PageChange]) -> Operations:
    """The writes of pages that changed; one that lists nothing any more is deleted."""
    return [
        (page_key(prefix, shelf, page.low), encode_page(format, page.fragments) if len(page.fragments) else None)
        for page in pages
    ]


@dataclass(frozen=True, slots=True)
class StoredDirectories:
    """The directories beneath a prefix, and how whole they are."""

    directories: dict[Shelf, Directory] = field(default_factory=dict)
    # Pages that could not be read, by shelf, and the names of those that were made again without a loss.
    damages: dict[Shelf, Damage] = field(default_factory=dict)
    remade: set[str] = field(default_factory=set)


async def read_directories(blocks: BlockReader, prefix: bytes, name: object) -> StoredDirectories:
    """All directories beneath a prefix; `name` is what messages call them."""
    found = StoredDirectories()
    pages: dict[Shelf, list[tuple[int, Array]]] = {}
    broken: dict[Shelf, list[int]] = {}
    async for entries in blocks.reader.scan_prefix(pages_prefix(prefix)):
        for key, value in entries:
            shelf, low = blocks.format.page(key)
            fragments = np.empty(0, FRAGMENT)
            try:
                fragments = decode_page(blocks.format, value)
            except Corrupt as error:
                named = f"the directory of {shelf} of {name}, page {low}"
                blocks.lose(named, error, found.damages.setdefault(shelf, Damage()))
                broken.setdefault(shelf, []).append(low)
            pages.setdefault(shelf, []).append((low, fragments))
    for shelf, lows in broken.items():
        pages[shelf] = await _remade(blocks, prefix, shelf, pages[shelf], lows)
        if all((fragments["rows"] > 0).all() for _, fragments in pages[shelf]):
            found.remade.update(found.damages[shelf].blocks)
    found.directories.update({shelf: directory_of(listed) for shelf, listed in pages.items()})
    return found


async def _remade(
    blocks: BlockReader, prefix: bytes, shelf: Shelf, pages: Sequence[tuple[int, Array]], broken: Sequence[int]
) -> list[tuple[int, Array]]:
    """Pages with the broken ones made of what lies in the store: a fragment that is not listed does not lie there."""
    starts = np.array([low for low, _ in pages], np.uint64)
    found: dict[int, list[tuple[int, int, int, int]]] = {low: [] for low in broken}
    async for entries in blocks.reader.scan_prefix(shelf_prefix(prefix, shelf)):
        for key, value in entries:
            _, low, serial = blocks.format.address(key)
            page = int(starts[int(np.searchsorted(starts, np.uint64(low), side="right")) - 1])
            if page in found:
                found[page].append((low, serial, _rows_in(blocks.format, shelf, value), len(value)))
    return [(low, np.array(found[low], FRAGMENT) if low in found else fragments) for low, fragments in pages]


def _rows_in(format: StoreFormat, shelf: Shelf, value: bytes) -> int:
    try:
        return len(format.block(shelf.family, value))
    except Corrupt:
        # Whoever needs it will find that out, and name it. No fragment that can be read is empty.
        return 0
