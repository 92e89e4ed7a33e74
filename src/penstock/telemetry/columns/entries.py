"""Entries of attributes and labels that were left as bytes: the distinct ones are decoded, and the others are numbers.

The same senders send the same entries again and again. What a few distinct entries decode to is kept by their bytes, so
that the next request only looks it up. That depends on the bytes and the limits alone: it does not matter who sent them
first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.telemetry.columns.building import Ints, pc
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["EntryColumns", "EntryDecoder", "EntryMemory", "distinct_entries", "key_ranks"]

# Of the bytes that entries are looked up by, and what each set takes beside them. Decoded they take a few times as much.
_KEPT_BYTES_MAX: Final = 8 << 20
_SET_BYTES: Final = 4 << 10
# Of the entries of one request: more of them rarely come again as they are, and looking them up takes its time.
_SET_BYTES_MAX: Final = 32 << 10


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """Entries one behind the other: key, value as text, its kind, and the place of the key among all in their order."""

    keys: Any
    values: Any
    kinds: npt.NDArray[np.int8]
    ranks: Ints


EntryDecoder: TypeAlias = Callable[[Any, DecodeLimits], EntryColumns]
_Key: TypeAlias = tuple[EntryDecoder, DecodeLimits, bytes, bytes]


class EntryMemory:
    """What sets of entries decode to, those used last. Threads may share it."""

    def __init__(self, bytes_max: int = _KEPT_BYTES_MAX) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._known: OrderedDict[_Key, EntryColumns] = OrderedDict()
        self._turn = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def decoded(self, entries: Any, limits: DecodeLimits, decode: EntryDecoder) -> EntryColumns:
        """`entries` are bytes, from the beginning of their buffers. What `decode` raises is not kept."""
        offsets, data = entries.buffers()[1:]
        if entries.offset or data is None or data.size > _SET_BYTES_MAX:
            return decode(entries, limits)
        bounds = memoryview(offsets)[: 4 * (len(entries) + 1)]
        key = (decode, limits, bytes(bounds), bytes(memoryview(data)[: int(np.frombuffer(bounds, np.int32)[-1])]))
        with self._turn:
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return known
        found = decode(entries, limits)
        with self._turn:
            if key not in self._known:
                self._known[key] = found
                self.bytes += _size(key)
            while self.bytes > self._bytes_max:
                self.bytes -= _size(self._known.popitem(last=False)[0])
        return found


def _size(key: _Key) -> int:
    return _SET_BYTES + len(key[2]) + len(key[3])


_MEMORY: Final = EntryMemory()


def distinct_entries(
    entries: Any, limits: DecodeLimits, decode: EntryDecoder, memory: EntryMemory = _MEMORY
) -> tuple[EntryColumns, Ints]:
    """The distinct ones among entries that are bytes, decoded; and which of them each entry is."""
    encoded = pc.dictionary_encode(entries)
    return memory.decoded(encoded.dictionary, limits, decode), np.asarray(encoded.indices)


def key_ranks(keys: Any) -> Ints:
    """Of each key its place among the distinct ones in their order."""
    encoded = pc.dictionary_encode(keys)
    names = encoded.dictionary.to_pylist()
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return np.asarray(ranks[np.asarray(encoded.indices)])
