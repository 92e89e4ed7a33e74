"""One column of numbers packed with pcodec: what all layouts of sample blocks share."""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array

__all__ = ["packed", "unpacked"]

# Level 8 packs residuals to within 1 % of their entropy. Differences are ours, so pcodec is told to look for none:
# that makes it as fast as level 6 was with its own search.
_LEVEL: Final = 8
_RAW_LEVEL: Final = 6


def packed(column: Array, *, search: bool = False) -> bytes:
    """A column as a pcodec file. With `search` pcodec looks for differences of its own."""
    from pcodec import ChunkConfig, DeltaSpec, standalone  # an extra: the engine does without

    config = (
        ChunkConfig(compression_level=_RAW_LEVEL)
        if search
        else ChunkConfig(compression_level=_LEVEL, delta_spec=DeltaSpec.no_op())
    )
    body: bytes = standalone.simple_compress(np.ascontiguousarray(column), config)
    return body


def unpacked(body: memoryview, kind: type[np.generic], rows: int) -> Array:
    """The column of a pcodec file, which must hold so many numbers of a type."""
    from pcodec import standalone

    try:
        found: Array | None = standalone.simple_decompress(bytes(body))
    except (RuntimeError, TypeError) as error:
        raise Corrupt("a column of samples cannot be decompressed", str(error)) from error
    if found is None:
        found = np.empty(0, kind)
    if len(found) != rows or (rows and found.dtype != np.dtype(kind)):
        raise Corrupt("a block of samples is inconsistent", f"a column has {len(found)} numbers instead of {rows}")
    return found
