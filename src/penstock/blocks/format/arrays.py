"""The array types of this room, by what they hold."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Cut", "Indices", "Words"]

Array: TypeAlias = NDArray[Any]
# Positions in another array.
Indices: TypeAlias = NDArray[np.int64]
# Keys of rows, and the bounds of buckets.
Words: TypeAlias = NDArray[np.uint64]
# Which rows of something: a mask, positions, or a slice, which copies nothing.
Cut: TypeAlias = NDArray[Any] | slice
