"""Finds the passages of an index that answer a question, beside whoever writes it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.documents import content_key
from penstock.documents.embedding import Vectors
from penstock.errors import InvalidInput, NotFound, Unavailable
from penstock.indexing.search.attributes import hit_of, require_attribute, settled_filter
from penstock.indexing.search.doors import PLAIN_DOORS, StoreDoors
from penstock.indexing.search.highlights import highlights
from penstock.indexing.search.lookup import no_store
from penstock.indexing.search.providers import Provider
from penstock.indexing.search.reranking import RERANKED, RerankEndpoint, rerank_at
from penstock.indexing.search.surroundings import add_context
from penstock.indexing.search.targets import Target, embedding_for, target_in
from penstock.indexing.stages.embedding import Embedding
from penstock.vector import CollectionName, CollectionReader, FacetCounts, Filter, Fusion, VectorReader, facet_of

__all__ = [
    "FACETS_MAX",
    "Asked",
    "FoundPassages",
    "Question",
    "answer_in",
    "by_document",
    "find_answer",
    "find_passages",
    "no_index",
    "passages_in",
]

# An index is rebuilt now and then, and not twice during one question.
_ATTEMPTS_MAX: Final = 3
# Passages that are ranked at most, to find some of many documents.
_DEPTH_MAX: Final = 1_000
# Attributes that one answer counts values of.
FACETS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, how many answers are wanted, by which ranking, and how good they must be."""

    words: str
    count: int
    where: Filter | None = None
    # `hybrid`, `text` or `vector`.
    mode: str = "hybrid"
    score_min: float | None = None
    # Chunks before and behind each passage whose text comes with it.
    context: int = 0
    # Passages of one document at most; None for as many as there are.
    per_document: int | None = None
    # Who judges the first passages; None leaves them as they are ranked.
    rerank: RerankEndpoint | None = None
    # Attributes whose values are counted among the best passages, and how many values of each are told.
    facets: tuple[str, ...] = ()
    facet_values: int = 10

    def __post_init__(self) -> None:
        if not any(letter.isprintable() and not letter.isspace() for letter in self.words):
            raise InvalidInput("the query is empty", "it has no words", "write what to search for")
        if self.score_min is not None and not math.isfinite(self.score_min):
            raise InvalidInput(f"the minimum score {self.score_min}", "it is not finite", "give a finite number")
        if len(self.facets) > FACETS_MAX:
            raise InvalidInput(f"{len(self.facets)} facets", f"a question has at most {FACETS_MAX}", "ask for fewer")


@dataclass(frozen=True, slots=True)
class FoundPassages:
    """The answer to a question: passages, best first, and facets by attribute, both as `SearchAnswer` has them."""

    passages: list[dict[str, Any]]
    facets: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """The index to query, and its model if it is not the index's own."""

    tenant: str = "default"
    index: str = "default"
    model: str | None = None
    provider: Provider = field(default_factory=Provider)


async def find_passages(
    url: str, asked: Asked, question: Question, doors: StoreDoors = PLAIN_DOORS
) -> list[dict[str, Any]]:
    """The passages of an index at a store that answer a question."""
    return (await find_answer(url, asked, question, doors)).passages


async def find_answer(url: str, asked: Asked, question: Question, doors: StoreDoors = PLAIN_DOORS) -> FoundPassages:
    """The answer of an index at a store, through a reader that is opened for it."""
    async with await _reader(url, doors) as reader:
        return await answer_in(reader, asked, question)


async def passages_in(reader: VectorReader, asked: Asked, question: Question) -> list[dict[str, Any]]:
    """The passages of an index that answer a question."""
    return (await answer_in(reader, asked, question)).passages


async def answer_in(reader: VectorReader, asked: Asked, question: Question) -> FoundPassages:
    """The answer of an index, reranked if requested."""
    if question.rerank is None:
        return await _answer(reader, asked, question)
    found = await _answer(reader, asked, replace(question, count=max(question.count, RERANKED), rerank=None))
    ranked = await rerank_at(question.rerank, found.passages, question.words)
    return FoundPassages(ranked[: question.count], found.facets)


def by_document(passages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Passages under their documents, in the order of each one's best."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for hit in passages:
        document = {"score": hit["score"], **{name: hit[name] for name in ("bucket", "key", "title")}, "passages": []}
        found.setdefault((hit["bucket"], hit["key"]), document)["passages"].append(hit)
    return list(found.values())


async def _answer(reader: VectorReader, asked: Asked, question: Question) -> FoundPassages:
    """The answers of the collection that answers for the index, also while another one takes over."""
    for _ in range(_ATTEMPTS_MAX):
        target = await target_in(reader, asked.tenant, asked.index, asked.model)
        try:
            found = await _ask(reader, target, asked, question)
        except NotFound:
            found = None
        reader.refresh()
        # A collection that was replaced meanwhile may have been emptied under the question.
        if await target_in(reader, asked.tenant, asked.index, asked.model) == target:
            if found is None:
                raise no_index(target.name)
            return found
    raise Unavailable(f"index {asked.index} was replaced repeatedly", "it is being rebuilt", "ask again")


async def _reader(url: str, doors: StoreDoors) -> VectorReader:
    try:
        return await doors.reader(url)
    except NotFound as error:
        raise no_store(url, error) from error


async def _ask(reader: VectorReader, target: Target, asked: Asked, question: Question) -> FoundPassages:
    name = target.name
    collection = await reader.collection(name.tenant, name.index, name.model)
    known = await collection.attributes() if question.where is not None or question.facets else {}
    if question.where is not None:
        question = replace(question, where=settled_filter(question.where, known.keys()))
    counted = [facet for facet in question.facets if require_attribute(facet, known)]
    embedding = embedding_for(target, asked.provider)
    vectors = None
    if question.mode != "text":
        query = await _embedded(question.words, name, embedding)
        # Words that the model does not know have no direction: then only the text decides.
        vectors = query if np.any(query) else None
    text = None if question.mode == "vector" else question.words
    if vectors is None and text is None:
        return FoundPassages([], {facet: _told(_NO_FACET) for facet in question.facets})
    weight = embedding.profile_of(name.model, (name.tenant, name.index)).vector_weight
    asking = _Query(collection, vectors, text, question, weight)
    hits = await asking.ranked()
    for hit in hits:
        hit["highlights"] = highlights(hit["text"], question.words)
    if question.context:
        await add_context(collection, hits, question.context)
    return FoundPassages(hits, await asking.facets(counted) if question.facets else {})


@dataclass(frozen=True, slots=True)
class _Query:
    """A question to one collection."""

    collection: CollectionReader
    vectors: npt.NDArray[np.float32] | None
    text: str | None
    question: Question
    vector_weight: float

    async def ranked(self) -> list[dict[str, Any]]:
        """The best passages; where a document may have few of them, from as deep a ranking as that takes."""
        question, depth = self.question, self.question.count
        while True:
            found = (await self._search(depth, ["text", "attributes"])).to_pylist()
            hits = [hit_of(row) for row in found if question.score_min is None or row["score"] >= question.score_min]
            hits = _at_most(hits, question.per_document)[: question.count]
            if len(hits) == question.count or len(found) < depth or depth >= _DEPTH_MAX:
                return hits
            depth = min(4 * depth, _DEPTH_MAX)

    async def facets(self, counted: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The values of attributes among the best passages, those that are good enough."""
        ranked = found = await self._search(_DEPTH_MAX, ["attributes"])
        if self.question.score_min is not None:
            found = ranked.filter(pa.array(ranked["score"].to_numpy() >= self.question.score_min))
        # The ranking may go on behind its last row, unless that one is not good enough already.
        is_whole = len(ranked) < _DEPTH_MAX or len(found) < len(ranked)
        rows: Any = found["attributes"].combine_chunks()
        absent = _told(FacetCounts((), missing=len(rows), exact=is_whole))
        return {
            name: _told(facet_of(rows.field(name), self.question.facet_values), is_whole=is_whole)
            if name in counted
            else absent
            for name in self.question.facets
        }

    async def _search(self, count: int, columns: Sequence[str]) -> pa.Table:
        found = await self.collection.search(
            self.vectors,
            count,
            text=self.text,
            filter=self.question.where,
            fusion=Fusion.weighted(self.vector_weight),
            columns=columns,
            # Rows of one document are told apart only in a ranking by words.
            group="key" if self.text is not None else None,
        )
        if self.question.mode == "hybrid" and self.vectors is None and len(found):
            # Words alone have scores without a bound, and a hybrid one is a share of the best.
            share = found["score"].to_numpy() / found["score"][0].as_py()
            return found.set_column(found.schema.get_field_index("score"), "score", pa.array(share, pa.float32()))
        return found


def _told(facet: FacetCounts, *, is_whole: bool = True) -> dict[str, Any]:
    values = [{"value": value, "count": count} for value, count in facet.values]
    return {"values": values, "other": facet.other, "missing": facet.missing, "exact": facet.exact and is_whole}


_NO_FACET: Final = FacetCounts(())


def _at_most(hits: list[dict[str, Any]], per_document: int | None) -> list[dict[str, Any]]:
    if per_document is None:
        return hits
    seen: Counter[tuple[str, str]] = Counter()
    kept = []
    for hit in hits:
        seen[hit["bucket"], hit["key"]] += 1
        if seen[hit["bucket"], hit["key"]] <= per_document:
            kept.append(hit)
    return kept


def no_index(name: CollectionName) -> NotFound:
    """The refusal of a search in an index that nothing was put into."""
    why = f"nothing was indexed for tenant {name.tenant} with model {name.model}"
    return NotFound(f"there is no index {name.index}", why, "create it with `penstock index`")


async def _embedded(words: str, name: CollectionName, embedding: Embedding) -> npt.NDArray[np.float32]:
    provider = embedding.provider(name.model, (name.tenant, name.index))
    try:
        answer = await provider.embed([words], idempotency_key=f"search:{content_key(words, name.model)}")
    finally:
        await provider.close()
    if not isinstance(answer, Vectors):
        raise Unavailable(f"model {name.model} did not embed the question", answer.reason, "try again later")
    return answer.rows
