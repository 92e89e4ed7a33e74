"""The rows of a round as the store takes them: one table for all documents of a collection. Pure.

Most documents have a chunk or two, and a table costs as much as thousands of its rows. A chunk that the model knows
nothing of, or refuses, has no vector in it: its words find it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from penstock.indexing.rounds.answers import Answers
from penstock.indexing.rounds.leads import LEAD
from penstock.indexing.rounds.reuse import DIGEST, text_digest
from penstock.indexing.rounds.rounds import Result

__all__ = ["vector_rows"]

_PLACE: Final = ("seq", "start", "end")
# What the sender of a document's event calls it.
SOURCE_ID: Final = "sourceId"


def vector_rows(results: Iterable[Result], answers: Answers) -> pa.Table:
    """The rows of all chunks, document after document and each in the order of its text."""
    listed = [(result, name, led) for result in results for name, led in result.chunks.items()]
    chunks = [led.chunk for _, _, led in listed]
    names = [name for _, name, _ in listed]
    texts = [led.stored for _, _, led in listed]
    sources = [result.pending.upload.source_id for result, _, _ in listed]
    attributes: dict[str, pa.Array[Any]] = {
        "bucket": pa.array([result.entry.bucket for result, _, _ in listed], pa.string()),
        "key": pa.array([result.entry.key for result, _, _ in listed], pa.string()),
        **{field: pa.array([getattr(chunk, field) for chunk in chunks], pa.int64()) for field in _PLACE},
        DIGEST: pa.array([text_digest(chunk.text) for chunk in chunks], pa.int64()),
        LEAD: pa.array([stored.lead for stored in texts], pa.int64()),
    }
    if any(sources):
        # Only where somebody has named an event: most rows come from listings.
        attributes[SOURCE_ID] = pa.array(sources, pa.string())
    return pa.table(
        {
            "id": pa.array(names, pa.string()),
            "vector": answers.vectors(names),
            "text": pa.array([stored.text for stored in texts], pa.string()),
            "attributes": pa.StructArray.from_arrays(list(attributes.values()), names=list(attributes)),
        }
    )
