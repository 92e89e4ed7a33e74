"""Small objects fetched ahead of their reader: many at a time, each with one request.

A notification says how large its object is and which version. So one conditional range read of one byte more than that
brings a small object whole, or shows that it is not what was notified: with as many bytes as were named, it is. All
others are left to the reader, which looks before it reads and knows what to say of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from penstock.documents import UploadNotification
from penstock.documents.sources import BLOCK_BYTES
from penstock.errors import PenstockError, Unavailable
from penstock.objects import ObjectStore

__all__ = ["Fetched", "fetch", "is_small", "windows"]

# Requests under way at once from one task: enough to hide what each waits for its answer.
_OBJECTS_AT_ONCE: Final = 32
# Of all that is fetched at once; a task holds no more than this beside what it reads.
_BYTES_AT_ONCE: Final = 8 << 20

# The bytes of an object, or that its bucket did not answer.
Fetched = bytes | Unavailable
K = TypeVar("K")


def is_small(upload: UploadNotification) -> bool:
    """Whether an object can be fetched whole, as far as its notification says."""
    return upload.etag is not None and 0 < upload.size_bytes <= BLOCK_BYTES


def windows(sized: Iterable[tuple[K, int]]) -> Iterator[list[K]]:
    """Items in their order, as many together as may be fetched at once; at least one."""
    held: list[K] = []
    total = 0
    for item, size in sized:
        if held and (len(held) >= _OBJECTS_AT_ONCE or total + size > _BYTES_AT_ONCE):
            yield held
            held, total = [], 0
        held.append(item)
        total += size
    if held:
        yield held


async def fetch(wanted: Mapping[K, tuple[ObjectStore, UploadNotification]]) -> dict[K, Fetched]:
    """What could be fetched of some small objects; those that need a closer look are left out."""
    found = await asyncio.gather(*(_whole(store, upload) for store, upload in wanted.values()))
    return {place: fetched for place, fetched in zip(wanted, found, strict=True) if fetched is not None}


async def _whole(store: ObjectStore, upload: UploadNotification) -> Fetched | None:
    try:
        data = await store.get_range(upload.key, 0, upload.size_bytes + 1, version=upload.etag)
    except Unavailable as error:
        return error
    except (PenstockError, ValueError, TypeError):
        return None
    return data if len(data) == upload.size_bytes else None
