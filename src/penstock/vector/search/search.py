"""A search: rows by vector, by text or by both, narrowed by a filter, answered from one snapshot as a table.

| column | |
| --- | --- |
| `query` | which of the queries, from 0 |
| `id` | the row's external id |
| `score` | what the order is by; larger is better |
| `similarity` | cosine similarity, dot product, or the distance in space with a minus sign |
| `bm25` | how well the text answers |

A block that cannot be read does not stop the answer: the table's metadata then says that it is partial, and
names what is missing (`partial_blocks` reads it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Damage, Shelf, SingleFlights
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput
from penstock.observability import SILENT, Observer, names
from penstock.vector.arrays import Column, Floats, Ids
from penstock.vector.config import VectorConfig
from penstock.vector.filter import Filter
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState
from penstock.vector.offload import offload
from penstock.vector.read.lookup import find_column
from penstock.vector.read.row_columns import read_columns
from penstock.vector.read.select import Selection, keep_selection
from penstock.vector.search.bm25 import rank_texts
from penstock.vector.search.calibration import Calibration, ProbePlan, calibrate, sample_rows
from penstock.vector.search.fusion import BY_RANK, Fusion, Ranking, fuse
from penstock.vector.search.nearest import NearestRows
from penstock.vector.search.scan import NONE
from penstock.vector.search.support import SUPPORT_MAX, group_codes, supported
from penstock.vector.search.warm import answer_warm

__all__ = ["ALL_LISTS", "ROWS_MAX", "SearchRequest", "Searcher", "partial_blocks"]

# As `probes`: look into every list, for the exact answer.
ALL_LISTS: Final = 1 << 40
# The most rows one query may ask for: more is an export, not a search.
ROWS_MAX: Final = 10_000
_QUERIES_MAX: Final = 65_536
# The most rows of all queries together: a few hundred megabytes with names and scores.
_ANSWER_ROWS_MAX: Final = 4_000_000
# Both rankings of a hybrid search are looked at this deep before they are joined, however few rows are asked for: so
# that asking for more makes an answer longer and changes nothing else.
_HYBRID_DEPTH: Final = 1000
_PARTIAL: Final = b"penstock.partial"
_SCORE: Final = pa.float32()
_ANSWER: Final = pa.table(
    {
        "query": pa.array([], pa.int32()),
        "id": pa.array([], pa.string()),
        **{name: pa.array([], _SCORE) for name in ("score", "similarity", "bm25")},
    }
).schema
_FAMILY_OF: Final = {"vector": Family.VECTORS, "text": Family.TEXTS}


class SearchRequest(msgspec.Struct, frozen=True):
    """What is asked. `vectors` are prepared queries; at least one of `vectors` and `texts` is there."""

    count: int
    vectors: Floats | None = None
    texts: Column | None = None
    where: Filter | None = None
    probes: int | None = None
    recall_target: float | None = None
    fusion: Fusion = BY_RANK
    columns: Sequence[str] = ()
    rerank: bool = True
    # The attribute whose equal values mark rows of one document.
    group: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.count <= ROWS_MAX:
            raise InvalidInput(f"k = {self.count}", f"a query may ask for 1 to {ROWS_MAX} rows")
        if self.probes is not None and self.probes < 1:
            raise InvalidInput(f"probes = {self.probes}", "at least one list must be probed")
        if self.recall_target is not None and not _is_share(self.recall_target):
            raise InvalidInput(f"recall_target = {self.recall_target!r:.60}", "it is a fraction of the true neighbours")
        if not isinstance(self.fusion, Fusion):
            raise InvalidInput(
                f"fusion = {self.fusion!r:.60}", "it configures how two rankings are combined", "give a Fusion"
            )
        if self.group is not None and not isinstance(self.group, str):
            raise InvalidInput(f"group = {self.group!r:.60}", "it is the name of an attribute")
        if self.probes is not None and self.recall_target is not None:
            raise InvalidInput("probes and recall_target are both given", "each determines the other", "give one")
        if self.vectors is None and self.texts is None:
            raise InvalidInput("neither vectors nor text are given", "a search needs a query")
        if self.group is not None and self.texts is None:
            raise InvalidInput(f"group = {self.group!r} without a text", "rows are grouped in a ranking by words")
        if self.vectors is not None and self.texts is not None and len(self.vectors) != len(self.texts):
            raise InvalidInput(f"{len(self.vectors)} vectors and {len(self.texts)} texts", "each query has one of both")
        if self.queries > _QUERIES_MAX:
            raise InvalidInput(f"{self.queries} queries", f"one search takes at most {_QUERIES_MAX}", "split it")
        if self.queries * self.count > _ANSWER_ROWS_MAX:
            asked = f"{self.queries} queries of k = {self.count}"
            raise InvalidInput(asked, f"one search answers with at most {_ANSWER_ROWS_MAX} rows", "split it")

    @property
    def queries(self) -> int:
        return len(self.vectors if self.vectors is not None else (() if self.texts is None else self.texts))


@dataclass(frozen=True, slots=True)
class _Answer:
    """Rows of all queries, one after the other; without `query` all of them are of the first."""

    query: Ids | None
    ids: Ids
    score: Floats
    similarity: Floats | None
    bm25: Floats | None


_NO_ROWS, _NO_SCORES = np.empty(0, np.int64), np.empty(0, np.float32)
_NOTHING: Final = _Answer(_NO_ROWS, _NO_ROWS, _NO_SCORES, _NO_SCORES, _NO_SCORES)


class Searcher:
    """Answers searches of one store. Used from its event loop only."""

    def __init__(self, config: VectorConfig, *, clock: Clock = SYSTEM_CLOCK, observer: Observer = SILENT) -> None:
        self._config = config
        self._clock = clock
        self._observer = observer
        self._nearest = NearestRows(config)
        self._calibrations: dict[int, Calibration] = {}
        self._calibrating: SingleFlights[Calibration] = SingleFlights()

    async def search(self, blocks: BlockReader, state: CollectionState, request: SearchRequest) -> pa.Table:
        """The answer of one state."""
        began = self._clock.monotonic()
        table = self._warm(blocks, state, request)
        if table is None:
            table = await self._general(blocks, state, request)
        self._observer.observe(names.VECTOR_SEARCH_SECONDS, self._clock.monotonic() - began)
        return table

    def _warm(self, blocks: BlockReader, state: CollectionState, request: SearchRequest) -> pa.Table | None:
        """The answer to one plain query, if all that it needs is in memory."""
        if request.vectors is None or len(request.vectors) != 1 or request.texts is not None:
            return None
        if request.where is not None or request.columns or state.lost or not (request.rerank and self._config.rerank):
            return None
        if request.probes is not None:
            plan = ProbePlan(request.probes)
        else:
            calibration = self._calibrations.get(state.number)
            if calibration is None or not calibration.fits(state):
                return None
            plan = calibration.plan(request.recall_target or self._config.recall_target)
        found = answer_warm(blocks, state, request.vectors, request.count, plan)
        if found is None:
            return None
        count, score = len(found.scores), _scores(state.metric.similarity(found.scores))
        return pa.Table.from_arrays([_of_first(count), found.names, score, score, _no_scores(count)], schema=_ANSWER)

    async def _general(self, blocks: BlockReader, state: CollectionState, request: SearchRequest) -> pa.Table:
        damage = Damage(state.lost_of(_needed(request)) if state.lost else [])
        selected = None
        if request.where is not None and state.head.next_id:
            selected = await keep_selection(blocks, state, request.where, damage)
        answer = await self._answer(blocks, state, request, selected, damage)
        columns = await read_columns(blocks, state, answer.ids, ("id", *request.columns), damage)
        if damage:
            self._observer.count(names.VECTOR_SEARCHES_PARTIAL)
        return _table(answer, columns, damage)

    async def _answer(
        self,
        blocks: BlockReader,
        state: CollectionState,
        request: SearchRequest,
        selected: Selection | None,
        damage: Damage,
    ) -> _Answer:
        hybrid = request.vectors is not None and request.texts is not None
        deep = hybrid or request.group is not None
        depth = max(_HYBRID_DEPTH, request.count) if deep else request.count
        near: list[Ranking] = []
        told: list[Ranking] = []
        if request.vectors is not None:
            found = await self._nearest.find(
                blocks,
                state,
                request.vectors,
                depth,
                await self._plan(blocks, state, request, selected, damage),
                selected,
                damage,
                rerank=request.rerank and self._config.rerank,
            )
            if not hybrid:
                return _of_vectors(state, found.ids, found.scores)
            near = [
                Ranking(ids[ids != NONE], scores[ids != NONE])
                for ids, scores in zip(found.ids, found.scores, strict=True)
            ]
        if request.texts is not None:
            among = None if selected is None else selected.ids
            told = await rank_texts(blocks, state, request.texts, depth, among, damage)
        joined = [
            fuse(Ranking(close.ids, state.metric.closeness(close.scores)), text, request.fusion)
            for close, text in zip(near, told, strict=hybrid)
        ]
        best = [await _best(blocks, state, ranking, request, damage) for ranking in (joined if hybrid else told)]
        return _of_rankings(state, near, told, best)

    async def _plan(
        self,
        blocks: BlockReader,
        state: CollectionState,
        request: SearchRequest,
        selected: Selection | None,
        damage: Damage,
    ) -> ProbePlan:
        lists = len(state.centroids)
        if request.probes is not None or not lists:
            return ProbePlan(min(request.probes or 1, max(lists, 1)))
        calibration = self._calibrations.get(state.number)
        if calibration is None or not calibration.fits(state):
            calibration = await self._calibrate(blocks, state, damage)
        target = request.recall_target or self._config.recall_target
        if selected is None:
            return calibration.plan(target)
        # Fewer rows count, so the neighbours among them lie farther away: look into as many more lists.
        share = max(selected.rows, 1) / max(state.head.rows, 1)
        return ProbePlan(min(lists, int(np.ceil(calibration.probes(target) / share))))

    async def _calibrate(self, blocks: BlockReader, state: CollectionState, damage: Damage) -> Calibration:
        """Recall by probes, measured on this state or on one that is hardly different."""

        async def measure() -> Calibration:
            sample = await sample_rows(blocks, state, damage)
            measured = state.metric, state.centroids, state.placed_rows, sample, state.head.next_id
            found = await offload(len(sample), self._config.threads, calibrate, *measured)
            self._calibrations[state.number] = found
            return found

        calibration = await self._calibrating.share(state.number, measure)
        return calibration if calibration.fits(state) else await measure()


def _is_share(value: object) -> bool:
    """Whether it is a number above 0 and up to 1; True is a truth value."""
    return not isinstance(value, bool) and isinstance(value, Real) and 0 < float(value) <= 1


def partial_blocks(table: pa.Table) -> list[str]:
    """The blocks that an answer had to do without; an empty list means that it is complete."""
    metadata = table.schema.metadata or {}
    return msgspec.json.decode(metadata.get(_PARTIAL, b"[]"), type=list[str])


def _needed(request: SearchRequest) -> set[Family]:
    """Families without which an answer may not be complete."""
    needed = {Family.DELETED, Family.HIDDEN, Family.NAMES}
    if request.vectors is not None:
        needed |= {Family.CENTROIDS, Family.POSTINGS, Family.VECTORS}
    if request.texts is not None:
        needed |= {Family.TERMS, Family.COLUMN}
    if request.where is not None or request.group is not None or "attributes" in request.columns:
        needed.add(Family.COLUMN)
    return needed | {_FAMILY_OF[column] for column in request.columns if column in _FAMILY_OF}


def _of_vectors(state: CollectionState, ids: Ids, scores: Floats) -> _Answer:
    real = ids != NONE
    similarity = state.metric.similarity(scores[real])
    return _Answer(np.nonzero(real)[0] if len(ids) > 1 else None, ids[real], similarity, similarity, None)


async def _best(
    blocks: BlockReader, state: CollectionState, ranking: Ranking, request: SearchRequest, damage: Damage
) -> Ranking:
    """As many rows as are asked for, after those of one document have supported each other."""
    record = state.attributes.get(request.group) if request.group is not None else None
    if record is None:
        return Ranking(ranking.ids[: request.count], ranking.scores[: request.count])
    shelf = Shelf(Family.COLUMN, record.number)
    values = await find_column(blocks, state, shelf, ranking.ids, record.type.arrow, damage)
    best = supported(ranking, group_codes(values), request.count)
    if request.vectors is None or request.fusion.vector_weight is None:
        return best
    # Mixed scores are shares of the best possible one.
    return Ranking(best.ids, best.scores / np.float32(SUPPORT_MAX))


def _of_rankings(state: CollectionState, near: list[Ranking], told: list[Ranking], best: list[Ranking]) -> _Answer:
    """The best rows of each query, with the scores that each has in either ranking."""
    rows = [_NOTHING]
    for place, joined in enumerate(best):
        similarity = _scores_in(near[place] if near else Ranking.none(), joined.ids)
        rows.append(
            _Answer(
                np.full(len(joined.ids), place),
                joined.ids,
                joined.scores,
                state.metric.similarity(similarity) if near else np.full(len(joined.ids), np.nan, np.float32),
                _scores_in(told[place], joined.ids),
            )
        )
    return _Answer(
        np.concatenate([row.query for row in rows if row.query is not None]).astype(np.int64),
        np.concatenate([row.ids for row in rows]),
        np.concatenate([row.score for row in rows]),
        np.concatenate([row.similarity for row in rows]) if near else None,
        np.concatenate([row.bm25 for row in rows]),
    )


def _scores_in(ranking: Ranking, ids: Ids) -> Floats:
    """The scores of rows in a ranking; NaN for those it lacks."""
    scores = np.full(len(ids), np.nan, np.float32)
    order = np.argsort(ranking.ids)
    places = np.searchsorted(ranking.ids[order], ids)
    there = places < len(order)
    there[there] = ranking.ids[order[places[there]]] == ids[there]
    scores[there] = ranking.scores[order[places[there]]]
    return scores


def _scores(values: Floats) -> Column:
    """Scores that are this answer's own: Arrow takes them as they lie."""
    return pa.Array.from_buffers(_SCORE, len(values), [None, pa.py_buffer(np.ascontiguousarray(values).data)])


def _floats(values: Floats | None, count: int) -> Column:
    """Scores as a column, missing where a ranking does not have the row."""
    if values is None:
        return _no_scores(count)
    return pa.array(values, mask=np.isnan(values))


@lru_cache(maxsize=64)
def _no_scores(count: int) -> Column:
    return pa.nulls(count, pa.float32())


@lru_cache(maxsize=64)
def _of_first(count: int) -> Column:
    """The query of rows that are all of the first one."""
    return pa.array(np.zeros(count, np.int32))


def _table(answer: _Answer, columns: dict[str, Column], damage: Damage) -> pa.Table:
    count = len(answer.ids)
    score = _scores(answer.score)
    found = {
        "query": _of_first(count) if answer.query is None else pa.array(answer.query.astype(np.int32)),
        "id": columns.pop("id"),
        "score": score,
        "similarity": score if answer.similarity is answer.score else _floats(answer.similarity, count),
        "bm25": _floats(answer.bm25, count),
        **columns,
    }
    table = pa.Table.from_arrays(list(found.values()), names=list(found))
    if damage:
        # A row that cannot be named is no answer.
        table = table.filter(table["id"].is_valid())
        table = table.replace_schema_metadata({_PARTIAL: msgspec.json.encode(sorted(set(damage.blocks)))})
    return table
