"""The rows of a round as the store takes them: one table for all documents of a collection. Pure.

Most documents have a chunk or two, and a table costs as much as thousands of its rows. A chunk that the model knows
nothing of, or refuses, has no vector in it: its words find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from penstock.indexing.rounds.answers import Answers
from penstock.indexing.rounds.leads import LEAD
from penstock.indexing.rounds.own_metadata import RowMetadata
from penstock.indexing.rounds.reuse import DIGEST, text_digest
from penstock.indexing.rounds.rounds import Result

__all__ = ["vector_rows"]

_PLACE: Final = ("seq", "start", "end")
_NOTHING: Final = RowMetadata()
_NOTHING_SAID: Final[Mapping[str, RowMetadata]] = {}
# What the sender of a document's event calls it.
SOURCE_ID: Final = "sourceId"


def vector_rows(
    results: Iterable[Result], answers: Answers, metadata: Mapping[str, RowMetadata] = _NOTHING_SAID
) -> pa.Table:
    """The rows of all chunks, document after document and each in the order of its text.

    `metadata` is what is said of documents beside their content, by objectKey.
    """
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
        "title": pa.array([led.place.title for _, _, led in listed], pa.string()),
        "headings": pa.array([led.place.headings for _, _, led in listed], pa.string()),
        "page": pa.array([led.place.page for _, _, led in listed], pa.int64()),
        "language": pa.array([led.place.language for _, _, led in listed], pa.string()),
    }
    said = [metadata.get(result.entry.object_key, _NOTHING).values for result, _, _ in listed] if metadata else []
    for field in sorted({field for values in said for field in values}):
        attributes[field] = pa.array([values.get(field) for values in said])
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
