"""Messages of two short texts, read in bulk from their bytes: labels, and attributes whose values are texts.

```
0a n <n bytes> 12 m <m bytes>                a label: name and value
0a n <n bytes> 12 m+2 0a m <m bytes>         an attribute: key, and a value that is a text
```
Lengths are below 128, so each takes a byte. Bytes that are exactly this have one meaning only; all others are left to
the decoders of every case.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.telemetry.wire.outline import Uncommon

__all__ = ["text_pairs"]

_FIRST: Final = 0x0A
_SECOND: Final = 0x12
_LONG: Final = 128
_NO_TEXTS: Final = pa.array([], pa.string())


def text_pairs(entries: Any, *, is_nested: bool) -> tuple[npt.NDArray[np.bool_], Any, Any]:
    """Which of the entries are of this form, and the first and the second text of those; `Uncommon` for what is no text.

    With `is_nested` the second text is within a message.
    """
    buffer = entries.buffers()[2]
    if buffer is None or not buffer.size:
        return np.zeros(len(entries), np.bool_), _NO_TEXTS, _NO_TEXTS
    data = np.frombuffer(buffer, np.uint8)
    offsets = np.frombuffer(entries.buffers()[1], np.int32)[entries.offset : entries.offset + len(entries) + 1]
    bounds = offsets.astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:]

    def at(places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        # What lies behind the last byte belongs to no entry of this form: its end is checked.
        return data[np.minimum(places, len(data) - 1)]

    first_bytes = at(starts + 1)
    middle = starts + 2 + first_bytes
    second = middle + (4 if is_nested else 2)
    second_bytes = at(second - 1)
    plain = (at(starts) == _FIRST) & (first_bytes > 0) & (first_bytes < _LONG) & (at(middle) == _SECOND)
    plain &= (second_bytes < _LONG) & (second + second_bytes == ends)
    if is_nested:
        within = at(middle + 1)
        plain &= (within < _LONG) & (within == second_bytes + 2) & (at(middle + 2) == _FIRST)
    else:
        plain &= second_bytes > 0
    if plain.all():
        return plain, *_texts(data, starts + 2, middle, second, ends)
    return plain, *_texts(data, (starts + 2)[plain], middle[plain], second[plain], ends[plain])


def _texts(data: Any, *bounds: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """Texts between the first two bounds of each row, and between the other two.

    They are an array on the bytes as these are, in which every other text is what lies between two that are meant.
    """
    rows = len(bounds[0])
    laid = np.zeros(4 * rows + 1, np.int32)
    for place, bound in enumerate(bounds):
        laid[place:-1:4] = bound
    laid[-1] = laid[-2] if rows else 0
    texts: Any = pa.Array.from_buffers(pa.string(), 4 * rows, [None, pa.py_buffer(laid.data), pa.py_buffer(data.data)])
    places = np.arange(0, 4 * rows, 4)
    first, second = texts.take(pa.array(places)), texts.take(pa.array(places + 2))
    try:
        first.validate(full=True)
        second.validate(full=True)
    except pa.ArrowInvalid:
        raise Uncommon from None
    return first, second
