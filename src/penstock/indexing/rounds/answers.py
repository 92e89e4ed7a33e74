"""What the embedding stage answered for a round of one collection: a vector or a reason for every chunk that was sent.

Vectors stay in Arrow from the executor to the store; only what decides on a document becomes Python objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.documents import Chunk, chunk_id
from penstock.documents.embedding import Later
from penstock.vector import CollectionName

__all__ = ["NO_ANSWERS", "Answers", "Unanswered", "answers_by_collection", "chunk_name"]


class Answers:
    """Rows of the embedding stage by chunk id, and those of chunks that need not be sent."""

    def __init__(self, table: pa.Table, reused: Set[str] = frozenset()) -> None:
        self._table = table
        self.reused = reused
        self._places = {name: place for place, name in enumerate(table["chunk_id"].to_pylist())}
        self._costs: list[Any] = table["cost_usd"].to_pylist()
        self._reasons: list[str | None] = table["reason"].to_pylist()
        self._vectors = table["vector"]

    def __contains__(self, name: str) -> bool:
        return name in self._places

    @property
    def total_cost_usd(self) -> float:
        return float(sum(filter(None, self._costs)))

    def joined(self, reused: pa.Table) -> Answers:
        """With vectors that cost nothing: rows of `chunk_id` and `vector`, and of `reason` where there is none."""
        if not reused.num_rows:
            return self
        rows = reused.append_column("cost_usd", pa.array([0.0] * reused.num_rows))
        names = frozenset(str(name) for name in rows["chunk_id"].to_pylist())
        joined = pa.concat_tables([self._table, rows], promote_options="default")
        return Answers(joined, self.reused | names)

    def cost_usd(self, name: str) -> float:
        cost: float = self._costs[self._places[name]]
        return cost

    def reason(self, name: str) -> str | None:
        """Why a chunk has no vector; None when it has one."""
        return self._reasons[self._places[name]]

    def vectors(self, names: Sequence[str]) -> pa.ChunkedArray[Any]:
        """The vectors of chunks, in this order; null where there is a reason instead."""
        return self._vectors.take(pa.array([self._places[name] for name in names], pa.int64()))


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The documents of a collection that a model did not embed all of, and why."""

    name: CollectionName
    answer: Later
    documents: frozenset[str]


NO_ANSWERS: Final = Answers(pa.table({"chunk_id": [], "cost_usd": [], "reason": [], "vector": []}))


def answers_by_collection(
    tables: Sequence[pa.Table], places: Mapping[CollectionName, range]
) -> dict[CollectionName, Answers]:
    """The answers in tables of the embedding stage, for each collection to the requests that are its own."""
    if not tables:
        return dict.fromkeys(places, NO_ANSWERS)
    table = pa.concat_tables(tables)
    rows: dict[int, list[int]] = {}
    named = zip(table["request"].to_pylist(), table["chunk_id"].to_pylist(), strict=True)
    for place, (request, name) in enumerate(named):
        if name is not None and request is not None:
            rows.setdefault(request, []).append(place)
    return {
        name: Answers(table.take(pa.array([row for request in within for row in rows.get(request, ())], pa.int64())))
        for name, within in places.items()
    }


def chunk_name(document: str, chunk: Chunk) -> str:
    return chunk_id(document, chunk.start, chunk.end)
