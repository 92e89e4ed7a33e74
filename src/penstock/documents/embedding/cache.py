"""Embeddings that were paid for are kept, by the hash of text and model: what did not change costs nothing again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["EmbeddingCache", "MemoryCache", "NoCache"]

# With 1,536 dimensions, some 60 MB.
ENTRIES_MAX: Final = 10_000


class EmbeddingCache(Protocol):
    """Keys are those of `penstock.documents.identity.content_key`. Losing an entry costs money, never correctness."""

    async def get(self, keys: Sequence[str]) -> dict[str, npt.NDArray[np.float32]]:
        """The vectors that are known; others are left out."""
        ...

    async def put(self, vectors: Mapping[str, npt.NDArray[np.float32]]) -> None: ...


class NoCache:
    """Remembers nothing: what a batch holds then depends on the batch alone, and not on those before it."""

    async def get(self, keys: Sequence[str]) -> dict[str, npt.NDArray[np.float32]]:
        return {}

    async def put(self, vectors: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Nothing is kept."""


class MemoryCache:
    """The most recently used vectors, in this process."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries: OrderedDict[str, npt.NDArray[np.float32]] = OrderedDict()
        self._entries_max = entries_max

    async def get(self, keys: Sequence[str]) -> dict[str, npt.NDArray[np.float32]]:
        found = {key: self._entries[key] for key in keys if key in self._entries}
        for key in found:
            self._entries.move_to_end(key)
        return found

    async def put(self, vectors: Mapping[str, npt.NDArray[np.float32]]) -> None:
        for key, vector in vectors.items():
            self._entries[key] = vector
            self._entries.move_to_end(key)
        while len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)
