"""Contents of blocks: what is encoded is decoded, and fragments merge in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import Corrupt
from penstock.vector.format.content import ColumnBlock, IdBlock, PostingBlock, RowBlock, VectorBlock
from penstock.vector.format.document_log import DocumentBlock, DocumentMark
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import Family
from penstock.vector.format.store_format import FORMAT

_IDS = np.array([3, 5, 9], np.int64)


def contents() -> list[RowBlock]:
    return [
        VectorBlock(_IDS, np.arange(6, dtype=np.float32).reshape(3, 2)),
        PostingBlock(_IDS, np.arange(12, dtype=np.uint8).reshape(3, 4)),
        ColumnBlock(_IDS, pa.array(["a", "bc", ""])),
        ColumnBlock(_IDS, pa.array([True, False, True])),
        IdBlock(_IDS),
    ]


def as_lists(content: Any) -> list[Any]:
    values = getattr(content, "vectors", getattr(content, "codes", getattr(content, "values", None)))
    return [content.ids.tolist(), [] if values is None else values.tolist()]


@pytest.mark.parametrize("content", contents(), ids=lambda content: type(content).__name__)
class TestEveryContent:
    def test_is_decoded_as_it_was_encoded(self, content: RowBlock) -> None:
        assert as_lists(
            FORMAT.decode(Family.CENTROIDS, FORMAT.encode(Family.CENTROIDS, content), type(content))
        ) == as_lists(content)

    def test_is_cut_to_rows_by_mask_and_by_place(self, content: RowBlock) -> None:
        by_mask = content.take(np.array([True, False, True]))
        by_place = content.take(np.array([0, 2]))
        assert as_lists(by_mask) == as_lists(by_place)
        assert by_mask.ids.tolist() == [3, 9]

    def test_merges_oldest_first(self, content: RowBlock) -> None:
        parts: Sequence[RowBlock] = [content.take(np.array([0])), content.take(np.array([1, 2]))]
        assert as_lists(type(content).merge(parts)) == as_lists(content)

    def test_leaves_out_dead_rows(self, content: RowBlock) -> None:
        dead = IdSet.of(np.array([5]), 10)
        assert content.take(content.kept(dead)).ids.tolist() == [3, 9]

    def test_of_no_rows_is_decoded_too(self, content: RowBlock) -> None:
        nothing = content.take(np.array([], np.int64))
        assert len(FORMAT.decode(Family.CENTROIDS, FORMAT.encode(Family.CENTROIDS, nothing), type(content))) == 0

    def test_that_is_cut_short_inside_a_valid_envelope_is_corrupt(self, content: RowBlock) -> None:
        with pytest.raises(Corrupt):
            FORMAT.decode(Family.CENTROIDS, FORMAT.envelope.seal(9, b"\x05"), type(content))


def test_ids_far_apart_are_kept_as_distances_from_the_first() -> None:
    ids = np.array([1 << 40, (1 << 40) + 1, (1 << 40) + 70_000], np.int64)
    assert (
        FORMAT.decode(Family.DELETED, FORMAT.encode(Family.DELETED, IdBlock(ids)), IdBlock).ids.tolist() == ids.tolist()
    )


def forged(value: bytes, kind: int) -> bytes:
    """The block with the end of its first text beyond all texts, under a checksum that holds."""
    body = bytes(FORMAT.envelope.unseal(kind, value))
    ends = np.array([0, 5, 10], np.int32).tobytes()
    assert body.count(ends) == 1
    return FORMAT.envelope.seal(kind, body.replace(ends, np.array([0, 1 << 30, 10], np.int32).tobytes()), compress=True)


def test_texts_that_lie_outside_their_block_are_refused_though_the_checksum_holds() -> None:
    column = ColumnBlock(np.array([3, 5], np.int64), pa.array(["otter", "river"]))
    with pytest.raises(Corrupt, match="not an Arrow stream"):
        FORMAT.decode(Family.CENTROIDS, forged(FORMAT.encode(Family.CENTROIDS, column), 9), ColumnBlock)
    marks = np.array([DocumentMark.ROW, DocumentMark.ROW], np.uint8)
    document = DocumentBlock.of(np.zeros(2, np.uint64), ["otter", "river"], ["1", "22"], marks, np.array([3, 5]))
    with pytest.raises(Corrupt, match="not an Arrow stream"):
        FORMAT.decode(Family.CENTROIDS, forged(FORMAT.encode(Family.CENTROIDS, document), 9), DocumentBlock)


def test_a_column_of_another_shape_is_refused() -> None:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"id": pa.array(["no number"]), "value": pa.array(["x"])})
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    with pytest.raises(Corrupt):
        FORMAT.decode(
            Family.CENTROIDS, FORMAT.envelope.seal(9, sink.getvalue().to_pybytes(), compress=True), ColumnBlock
        )
