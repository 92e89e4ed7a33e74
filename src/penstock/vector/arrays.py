"""The array types of this room, by what they hold, and Arrow's kernels without their partial type stubs."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow.compute
from numpy.typing import NDArray

__all__ = ["Array", "Bools", "Bytes", "Column", "Counts", "Cut", "Floats", "Ids", "Indices", "Words", "compute"]

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
compute: Any = pyarrow.compute
