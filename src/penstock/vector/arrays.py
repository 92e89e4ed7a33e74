"""The array types of this room, by what they hold, and Arrow's kernels without their partial type stubs."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Bools",
    "Bytes",
    "Column",
    "Counts",
    "Cut",
    "Floats",
    "Ids",
    "Indices",
    "Words",
    "compute",
    "distinct",
]

# Internal ids: signed, because faiss counts that way and -1 means "none".
Ids: TypeAlias = NDArray[np.int64]
# Positions in another array.
Indices: TypeAlias = NDArray[np.int64]
# Hashes and the bounds of buckets.
Words: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float32]
Bytes: TypeAlias = NDArray[np.uint8]
Bools: TypeAlias = NDArray[np.bool_]
Array: TypeAlias = NDArray[Any]
# Which rows of something: a mask, positions, or a slice, which copies nothing.
Cut: TypeAlias = NDArray[Any] | slice
# How often a word occurs in a text.
Counts: TypeAlias = NDArray[np.uint16]
# A column of any type. The stubs of Arrow describe element types more narrowly than its kernels take them.
Column: TypeAlias = Any


class _Kernels:
    """Arrow's kernels, imported when the first is called: that takes 40 ms, and a search of a few words needs none."""

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(import_module("pyarrow.compute"), name)
        # Found in the instance from now on.
        setattr(self, name, kernel)
        return kernel


compute: Any = _Kernels()


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values in order, each once: as `np.unique`, which loads its masked arrays first."""
    ordered = np.sort(values, axis=None)
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]
