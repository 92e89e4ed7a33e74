"""Finds the passages of an index that answer a question, beside whoever writes it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.documents import content_key
from penstock.documents.embedding import Vectors
from penstock.errors import NotFound, Unavailable
from penstock.indexing.rounds.leads import LEAD, without_lead
from penstock.indexing.search.doors import PLAIN_DOORS, StoreDoors
from penstock.indexing.search.lookup import no_store
from penstock.indexing.search.providers import Provider
from penstock.indexing.search.reranking import RERANKED, RerankEndpoint, rerank_at
from penstock.indexing.search.surroundings import add_context
from penstock.indexing.search.targets import Target, embedding_for, target_in
from penstock.indexing.stages.embedding import Embedding
from penstock.vector import CollectionName, CollectionReader, Filter, Fusion, VectorReader

__all__ = ["Asked", "Question", "find_passages", "passages_in"]

# An index is rebuilt now and then, and not twice during one question.
_ATTEMPTS_MAX: Final = 3
# Passages that are ranked at most, to find some of many documents.
_DEPTH_MAX: Final = 1_000
_ATTRIBUTES: Final = ("bucket", "key", "seq", "start", "end")


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


@dataclass(frozen=True, slots=True)
class Asked:
    """Which index is asked, and with which model where it is not its own."""

    tenant: str = "default"
    index: str = "default"
    model: str | None = None
    provider: Provider = field(default_factory=Provider)


async def find_passages(
    url: str, asked: Asked, question: Question, doors: StoreDoors = PLAIN_DOORS
) -> list[dict[str, Any]]:
    """The answers of an index at a store, through a reader that is opened for them."""
    async with await _reader(url, doors) as reader:
        return await passages_in(reader, asked, question)


async def passages_in(reader: VectorReader, asked: Asked, question: Question) -> list[dict[str, Any]]:
    """The answers of an index, in the order of a reranker where one is asked for."""
    if question.rerank is None:
        return await _passages(reader, asked, question)
    found = await _passages(reader, asked, replace(question, count=max(question.count, RERANKED), rerank=None))
    return (await rerank_at(question.rerank, found, question.words))[: question.count]


async def _passages(reader: VectorReader, asked: Asked, question: Question) -> list[dict[str, Any]]:
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
                raise _no_index(target.name)
            return found
    raise Unavailable(f"index {asked.index} was replaced again and again", "it is being rebuilt", "ask again")


async def _reader(url: str, doors: StoreDoors) -> VectorReader:
    try:
        return await doors.reader(url)
    except NotFound as error:
        raise no_store(url, error) from error


async def _ask(reader: VectorReader, target: Target, asked: Asked, question: Question) -> list[dict[str, Any]]:
    name = target.name
    collection = await reader.collection(name.tenant, name.index, name.model)
    embedding = embedding_for(target, asked.provider)
    vectors = None
    if question.mode != "text":
        query = await _embedded(question.words, name, embedding)
        # Words that the model does not know have no direction: then only the text decides.
        vectors = query if np.any(query) else None
    text = None if question.mode == "vector" else question.words
    if vectors is None and text is None:
        return []
    weight = embedding.profile_of(name.model, (name.tenant, name.index)).vector_weight
    hits = await _ranked(collection, vectors, text, question, weight)
    if question.context:
        await add_context(collection, hits, question.context)
    return hits


async def _ranked(
    collection: CollectionReader,
    vectors: npt.NDArray[np.float32] | None,
    text: str | None,
    question: Question,
    vector_weight: float,
) -> list[dict[str, Any]]:
    """The best passages; where a document may have few of them, from as deep a ranking as that takes."""
    depth = question.count
    while True:
        found = await _search(collection, vectors, text, question, vector_weight, depth)
        hits = [hit for hit in found if question.score_min is None or hit["score"] >= question.score_min]
        hits = _at_most(hits, question.per_document)[: question.count]
        if len(hits) == question.count or len(found) < depth or depth >= _DEPTH_MAX:
            return hits
        depth = min(4 * depth, _DEPTH_MAX)


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


async def _search(
    collection: CollectionReader,
    vectors: npt.NDArray[np.float32] | None,
    text: str | None,
    question: Question,
    vector_weight: float,
    count: int,
) -> list[dict[str, Any]]:
    found = await collection.search(
        vectors,
        count,
        text=text,
        filter=question.where,
        fusion=Fusion.weighted(vector_weight),
        columns=["text", "attributes"],
        # Rows of one document are told apart only in a ranking by words.
        group="key" if text is not None else None,
    )
    return [_hit(row) for row in found.to_pylist()]


def _hit(row: dict[str, Any]) -> dict[str, Any]:
    """A passage, where it stands and under which title and headings."""
    place = row["attributes"]
    section, text = without_lead(row["text"], place.get(LEAD))
    return {"score": row["score"], **{part: place[part] for part in _ATTRIBUTES}, "section": section, "text": text}


def _no_index(name: CollectionName) -> NotFound:
    why = f"nothing was indexed for tenant {name.tenant} with model {name.model}"
    return NotFound(f"there is no index {name.index}", why, "`penstock index` makes it")


async def _embedded(words: str, name: CollectionName, embedding: Embedding) -> npt.NDArray[np.float32]:
    provider = embedding.provider(name.model, (name.tenant, name.index))
    try:
        answer = await provider.embed([words], idempotency_key=f"search:{content_key(words, name.model)}")
    finally:
        await provider.close()
    if not isinstance(answer, Vectors):
        raise Unavailable(f"model {name.model} did not embed the question", answer.reason, "try again later")
    return answer.rows
