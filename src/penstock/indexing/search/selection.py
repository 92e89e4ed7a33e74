"""Passages and documents that a filter selects: counted, or named, beside whoever writes the index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import InvalidInput, NotFound, Unavailable
from penstock.indexing.search.attributes import require_attribute, settled_filter
from penstock.indexing.search.doors import PLAIN_DOORS, StoreDoors
from penstock.vector import CollectionName, CollectionReader, FacetCounts, Filter, attribute

__all__ = ["FilterCount", "count_where", "documents_where"]

# An index that is written to while it is looked through is looked through again, so often.
_ATTEMPTS_MAX: Final = 5
_BUCKETS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class FilterCount:
    """How many passages a filter selects, of how many documents; and the values of an attribute, where one is named."""

    passages: int
    documents: int
    facet: FacetCounts | None = None


async def count_where(
    url: str,
    name: CollectionName,
    where: Filter | None,
    *,
    by: str | None = None,
    values: int = 20,
    doors: StoreDoors = PLAIN_DOORS,
) -> FilterCount:
    """The passages of an index that a filter selects, counted at one moment each."""
    async with await doors.reader(url) as reader:
        try:
            collection = await reader.collection(name.tenant, name.index, name.model)
        except NotFound:
            return FilterCount(0, 0)
        known = await collection.attributes()
        chosen = None if where is None else settled_filter(where, known.keys())
        counted = by is not None and require_attribute(by, known)
        passages = await collection.count(chosen)
        documents = await _documents(collection, chosen) if passages else 0
        facet = await collection.facet(by, chosen, values) if by is not None and counted else None
        return FilterCount(passages, documents, FacetCounts((), missing=passages) if by and facet is None else facet)


async def _documents(collection: CollectionReader, where: Filter | None) -> int:
    """Documents are told apart by bucket and key: most indexes have one bucket."""
    buckets = (await collection.facet("bucket", where, _BUCKETS_MAX)).values
    total = 0
    for bucket, _ in buckets:
        mine = attribute("bucket") == bucket if len(buckets) > 1 else None
        chosen = where if mine is None else mine if where is None else where & mine
        total += (await collection.facet("key", chosen, 1)).distinct
    return total


async def documents_where(
    url: str, name: CollectionName, where: Filter, doors: StoreDoors = PLAIN_DOORS
) -> list[tuple[str, str]]:
    """Bucket and key of every document that has a passage which a filter selects, in order."""
    async with await doors.reader(url) as reader:
        try:
            collection = await reader.collection(name.tenant, name.index, name.model)
        except NotFound:
            return []
        chosen = settled_filter(where, (await collection.attributes()).keys())
        for _ in range(_ATTEMPTS_MAX):
            found: set[tuple[str, str]] = set()
            try:
                async for page in collection.scan(chosen, ["attributes"]):
                    found |= {_named(row["attributes"]) for row in page.to_pylist()}
                return sorted(found)
            except Unavailable:
                continue
    raise Unavailable(f"index {name.index} changed repeatedly", "it is being written to", "try again")


def _named(attributes: dict[str, Any]) -> tuple[str, str]:
    if attributes.get("key") is None:
        raise InvalidInput("a row names no document", "it was not written by the indexing job")
    return attributes["bucket"], attributes["key"]
