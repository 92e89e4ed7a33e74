"""One number a row from either side: equal where data and index agree, and different where they do not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.vector.format.analysis import StoredAnalysis
from penstock.vector.format.codes import encode
from penstock.vector.format.document_log import DocumentBlock, DocumentMark
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.terms import TermBlock, count_words
from penstock.vector.upkeep.agreement import Shadows, WordSums, shown_by_documents


@pytest.mark.parametrize("metric", list(DistanceMetric))
@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1.0, 1e14])
def test_codes_agree_with_their_own_vectors_and_with_no_others(metric: DistanceMetric, scale: float) -> None:
    vectors = (scale * np.random.default_rng(1).standard_normal((200, 24))).astype(np.float32)
    ids = np.arange(200)
    shadows = Shadows(metric, 24, 200)
    shadows.cast(ids, vectors)
    codes = encode(metric.prepare(vectors))
    assert not shadows.disagree(ids, codes).any()
    assert shadows.disagree(ids, np.roll(codes, 1, axis=0)).mean() > 0.9


def test_words_agree_row_by_row_whatever_their_order_in_the_index() -> None:
    texts = pa.array(["one two two", "two one two", "two", ""])
    words = count_words(texts, StoredAnalysis.PLAIN_WORDS)
    told, indexed = WordSums(4), WordSums(4)
    told.add_texts(np.arange(4), words)
    block = TermBlock.of(words.hashes, words.texts, words.counts)
    indexed.add_index(block, np.ones(len(block), np.bool_))
    assert len(told.disagree(indexed)) == 0
    assert told.sums[0] == told.sums[1]
    indexed.add_index(block, block.ids == 2)
    assert told.disagree(indexed).tolist() == [2]


def test_rows_of_the_version_that_became_current_last_are_to_be_shown() -> None:
    entries = [
        ("a", "v1", DocumentMark.ROW, 0),
        ("a", "v1", DocumentMark.CURRENT, -1),
        ("a", "v2", DocumentMark.ROW, 1),
        ("b", "v1", DocumentMark.ROW, 2),
        ("b", "v1", DocumentMark.CURRENT, -1),
        ("b", "-", DocumentMark.REMOVED, -1),
    ]
    documents, versions, marks, ids = zip(*entries, strict=True)
    block = DocumentBlock.of(np.zeros(6, np.uint64), documents, versions, np.array(marks, np.uint8), np.array(ids))
    rows, shown = shown_by_documents(block)
    assert dict(zip(rows.tolist(), shown.tolist(), strict=True)) == {0: True, 1: False, 2: False}
