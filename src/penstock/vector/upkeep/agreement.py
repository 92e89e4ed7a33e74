"""What must agree between the data of rows and the indexes over them, as one number a row from either side. Pure.

Comparing row by row would read each block many times. A number a row, taken while each block is read once, tells
whether a code was made of its vector and whether a text's words are those in the index.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.vector.arrays import Array, Bools, Bytes, Floats, Ids, Indices, Words
from penstock.vector.format.codes import RELATIVE_ERROR, decode
from penstock.vector.format.document_log import DocumentBlock, DocumentMark
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.terms import TermBlock, Vocabulary

__all__ = ["Shadows", "WordSums", "shown_by_documents"]

# Twice the error of a code, for the rounding of sums.
_SHADOW_ERROR: Final = 2 * RELATIVE_ERROR


class Shadows:
    """The length of each row's vector, and its shadow on one direction that all rows share."""

    def __init__(self, metric: DistanceMetric, dimensions: int, rows: int) -> None:
        self._metric = metric
        # Any direction will do in which no component counts nothing.
        direction = np.cos(np.arange(1, dimensions + 1), dtype=np.float32)
        self._direction: Floats = direction / np.linalg.norm(direction)
        self._shadows = np.zeros(rows, np.float32)
        self._lengths = np.zeros(rows, np.float32)

    def cast(self, ids: Ids, vectors: Floats) -> None:
        """Note stored vectors."""
        prepared = self._metric.prepare(vectors)
        self._shadows[ids] = prepared @ self._direction
        # In doubles: the squares of small components are zero as floats.
        self._lengths[ids] = np.sqrt(np.einsum("ij,ij->i", prepared, prepared, dtype=np.float64))

    def disagree(self, ids: Ids, codes: Bytes) -> Bools:
        """Which codes were not made of the vectors of their rows."""
        differ = np.abs(decode(codes) @ self._direction - self._shadows[ids])
        agree: Bools = differ <= _SHADOW_ERROR * self._lengths[ids] + np.finfo(np.float32).tiny
        return ~agree


class WordSums:
    """The words of each row as one sum of their hashes, each as often as it is counted."""

    def __init__(self, rows: int) -> None:
        self.sums: Words = np.zeros(rows, np.uint64)

    def add_texts(self, ids: Ids, words: Vocabulary) -> None:
        np.add.at(self.sums, ids[words.texts], words.hashes * words.counts.astype(np.uint64))

    def add_index(self, block: TermBlock, living: Bools) -> None:
        np.add.at(self.sums, block.ids[living], (block.keys * block.counts.astype(np.uint64))[living])

    def disagree(self, other: WordSums) -> Indices:
        return np.flatnonzero(self.sums != other.sums)


def shown_by_documents(block: DocumentBlock) -> tuple[Ids, Bools]:
    """The rows that a block's documents have, and which of them belong to a version that is current."""
    current: dict[str, str | None] = {}
    marks = block.entries["mark"].to_numpy()
    rows = marks == DocumentMark.ROW
    names: list[Array] = [block.entries[column].to_numpy(zero_copy_only=False) for column in ("document", "version")]
    for place in np.flatnonzero(~rows).tolist():
        current[names[0][place]] = names[1][place] if marks[place] == DocumentMark.CURRENT else None
    pairs = zip(names[0][rows], names[1][rows], strict=True)
    shown = np.fromiter((current.get(document) == version for document, version in pairs), np.bool_, int(rows.sum()))
    return block.ids[rows], shown
