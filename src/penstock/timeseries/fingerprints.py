"""Fingerprints: 16 bytes of BLAKE2b over a series' sorted labels, each name and value behind its length.

Because of the lengths `{a="bc"}` and `{ab="c"}` differ. Two series that share all 128 bits are not told apart; among a
billion series the odds are below one in 10^20, and nobody can make such a pair on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final

import numpy as np

from penstock.timeseries.arrays import Array, Column, Cut, Indices, Words

__all__ = ["FINGERPRINT_BYTES", "Fingerprints", "fingerprints_of"]

FINGERPRINT_BYTES: Final = 16


@dataclass(frozen=True)
class Fingerprints:
    """Of many series: the first and the last eight bytes of each, as numbers."""

    high: Words
    low: Words

    def __len__(self) -> int:
        return len(self.high)

    def take(self, rows: Cut) -> Fingerprints:
        return Fingerprints(self.high[rows], self.low[rows])

    def pairs(self) -> Array:
        """Two words a row, as they are stored."""
        return np.stack([self.high, self.low], axis=1)

    def texts(self) -> list[str]:
        return [f"{high:016x}{low:016x}" for high, low in zip(self.high.tolist(), self.low.tolist(), strict=True)]

    @cached_property
    def order(self) -> Indices:
        """The rows by rising fingerprint."""
        order: Indices = np.argsort(self.high, kind="stable")
        high = self.high[order]
        if len(high) > 1 and np.any(high[1:] == high[:-1]):
            order = np.lexsort((self.low, self.high))
        return order

    def unique(self) -> tuple[Indices, Indices]:
        """The row where each fingerprint stands first, by rising fingerprint, and for every row its place among them."""
        order = self.order
        ordered = self.take(order)
        fresh = np.ones(len(self), np.bool_)
        fresh[1:] = (ordered.high[1:] != ordered.high[:-1]) | (ordered.low[1:] != ordered.low[:-1])
        places = np.empty(len(self), np.int64)
        places[order] = np.cumsum(fresh) - 1
        return order[fresh], places

    def find(self, asked: Fingerprints) -> Indices:
        """For each of `asked` its row in this; -1 where there is none."""
        found = np.full(len(asked), -1, np.int64)
        if not len(self) or not len(asked):
            return found
        ordered = self._ordered
        place = np.searchsorted(ordered.high, asked.high)
        # Fingerprints that share their first half stand side by side: there is hardly ever a second round.
        open_rows = np.arange(len(asked))
        while len(open_rows):
            at = place[open_rows]
            inside = at < len(self)
            open_rows, at = open_rows[inside], at[inside]
            same = ordered.high[at] == asked.high[open_rows]
            open_rows, at = open_rows[same], at[same]
            hit = ordered.low[at] == asked.low[open_rows]
            found[open_rows[hit]] = self.order[at[hit]]
            open_rows = open_rows[~hit]
            place[open_rows] += 1
        return found

    @cached_property
    def _ordered(self) -> Fingerprints:
        return self.take(self.order)

    @classmethod
    def concatenate(cls, parts: Sequence[Fingerprints]) -> Fingerprints:
        if not parts:
            return cls(np.empty(0, np.uint64), np.empty(0, np.uint64))
        if len(parts) == 1:
            return parts[0]
        return cls(np.concatenate([part.high for part in parts]), np.concatenate([part.low for part in parts]))


def fingerprints_of(payloads: Column) -> Fingerprints:
    """Of an Arrow column of payloads: the labels of each series as `series_table` writes them down."""
    digests = b"".join([blake2b(payload, digest_size=FINGERPRINT_BYTES).digest() for payload in payloads.to_pylist()])
    words = np.frombuffer(digests, "<u8").reshape(-1, 2)
    return Fingerprints(np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1]))
