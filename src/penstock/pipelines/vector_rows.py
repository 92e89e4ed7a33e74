"""The rows of a round as the store takes them: one table for all documents of a collection. Pure.

Most documents have a chunk or two, and a table costs as much as thousands of its rows. A chunk that the model knows
nothing of, or refuses, has no vector in it: its words find it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from penstock.pipelines.answers import Answers
from penstock.pipelines.leads import LEAD, stored_text
from penstock.pipelines.reuse import DIGEST, text_digest
from penstock.pipelines.rounds import Result

__all__ = ["vector_rows"]

_PLACE: Final = ("seq", "start", "end")


def vector_rows(results: Iterable[Result], answers: Answers) -> pa.Table:
    """The rows of all chunks, document after document and each in the order of its text."""
    listed = [(result.entry, name, row) for result in results for name, row in result.chunks.items()]
    rows = [row for _, _, row in listed]
    names = [name for _, name, _ in listed]
    texts = [stored_text(row) for row in rows]
    attributes: dict[str, pa.Array[Any]] = {
        "bucket": pa.array([entry.bucket for entry, _, _ in listed], pa.string()),
        "key": pa.array([entry.key for entry, _, _ in listed], pa.string()),
        **{field: pa.array([row[field] for row in rows], pa.int64()) for field in _PLACE},
        DIGEST: pa.array([text_digest(row["text"]) for row in rows], pa.int64()),
        LEAD: pa.array([stored.lead for stored in texts], pa.int64()),
    }
    return pa.table(
        {
            "id": pa.array(names, pa.string()),
            "vector": answers.vectors(names),
            "text": pa.array([stored.text for stored in texts], pa.string()),
            "attributes": pa.StructArray.from_arrays(list(attributes.values()), names=list(attributes)),
        }
    )
