"""Reading without a loop: which stores a thread may ask for a range of an object by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from penstock.objects.directory.store import DirectoryStore
from penstock.objects.port import ObjectStore
from penstock.objects.readonly import ReadOnlyStore

__all__ = ["DirectRead", "direct_read"]

DirectRead: TypeAlias = Callable[[str, int, int], bytes]


def direct_read(store: ObjectStore) -> DirectRead | None:
    """How a thread reads a range of an object without the store's loop; None for a store behind a network."""
    if isinstance(store, ReadOnlyStore):
        return direct_read(store.inner)
    return store.read_now if isinstance(store, DirectoryStore) else None
