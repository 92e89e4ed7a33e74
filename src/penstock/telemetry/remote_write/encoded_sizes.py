"""How many bytes a remote write 1.0 request takes in canonical form, from its columns.

Only labels and samples are counted. A request with anything else is larger than that, and so is one with fields that
are unknown, repeated or longer than need be: it is left to the protobuf project's own decoder.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.telemetry.columns.building import Ints, field, lists, pc, to_ints

__all__ = ["write_request_sizes"]

# From here on a number takes one byte more. The last is beyond 63 bits: negative numbers take ten.
_VARINT_STEPS: Final = np.array([1 << (7 * places) for places in range(1, 9)], np.int64)
_VARINT_BYTES_MAX: Final = 10
_DOUBLE_BYTES: Final = 9


def write_request_sizes(request: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of each request."""
    series, series_offsets = lists(request.column("timeseries"))
    labels, label_offsets = lists(field(series, "labels"))
    samples, sample_offsets = lists(field(series, "samples"))
    label_sizes = _text(field(labels, "name")) + _text(field(labels, "value"))
    # A default is left out; of doubles that is all bits zero, and not the other zero.
    values = np.asarray(field(samples, "value").to_numpy(zero_copy_only=False), np.float64).view(np.int64)
    sample_sizes = _DOUBLE_BYTES * (values != 0) + _number(to_ints(field(samples, "timestamp")))
    sizes = _sums(_delimited(label_sizes), label_offsets) + _sums(_delimited(sample_sizes), sample_offsets)
    return _sums(_delimited(sizes), series_offsets)


def _varint(numbers: Ints) -> Ints:
    sizes = np.searchsorted(_VARINT_STEPS, numbers, side="right") + 1
    return np.where(numbers < 0, _VARINT_BYTES_MAX, sizes)


def _number(numbers: Ints) -> Ints:
    return np.where(numbers == 0, 0, 1 + _varint(numbers))


def _text(texts: Any) -> Ints:
    lengths = to_ints(pc.binary_length(texts))
    return np.where(lengths == 0, 0, _delimited(lengths))


def _delimited(sizes: Ints) -> Ints:
    """With their tag, a byte, and their length before them."""
    return 1 + _varint(sizes) + sizes


def _sums(sizes: Ints, offsets: Ints) -> Ints:
    """Of each list."""
    totals = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=totals[1:])
    return totals[offsets[1:]] - totals[offsets[:-1]]
