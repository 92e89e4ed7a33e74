"""The text around a passage and the text of a whole document, put together from the chunks that the index holds.

Chunks overlap: what two of them share stands once in the text. A document is read as it was indexed, not as its bucket
has it now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import InvalidInput, NotFound, Unavailable
from penstock.indexing.rounds.leads import LEAD, without_lead
from penstock.indexing.search.attributes import without_marks
from penstock.indexing.search.doors import PLAIN_DOORS, StoreDoors
from penstock.indexing.search.targets import target_in
from penstock.vector import CollectionReader, Filter, attribute

__all__ = ["DocumentText", "add_context", "fetch_document", "joined_text"]

_COLUMNS: Final = ("text", "attributes")
# A document that is written anew while it is read is read again, so often.
_ATTEMPTS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document as it was indexed."""

    bucket: str
    key: str
    text: str
    chunks: int


async def add_context(collection: CollectionReader, hits: Iterable[dict[str, Any]], count: int) -> None:
    """Give each hit the text of up to `count` chunks before and behind it, as `before` and `after`."""
    for hit in hits:
        number = hit["seq"]
        rows = await _rows(
            collection, _of(hit["bucket"], hit["key"]) & attribute("seq").between(number - count, number + count)
        )
        before = joined_text([row for row in rows if row["seq"] < number], end=hit["start"])
        after = joined_text([row for row in rows if row["seq"] > number], start=hit["end"])
        hit["before"], hit["after"] = without_marks(before), without_marks(after)


async def fetch_document(
    url: str, tenant: str, index: str, key: str, *, bucket: str | None = None, doors: StoreDoors = PLAIN_DOORS
) -> DocumentText:
    """The text of a document of an index; a key that is in several buckets needs its bucket."""
    async with await doors.reader(url) as reader:
        target = await target_in(reader, tenant, index, None)
        collection = await reader.collection(target.name.tenant, target.name.index, target.name.model)
        rows = await _rows(collection, _of(bucket, key))
    buckets = sorted({row["bucket"] for row in rows})
    if not rows:
        raise NotFound(
            f"the index has no text of {key}", "it is not indexed, or empty", "see `penstock documents list`"
        )
    if len(buckets) > 1:
        raise InvalidInput(f"{key} is in several buckets", ", ".join(buckets), "name the bucket")
    return DocumentText(buckets[0], key, without_marks(joined_text(rows)), len(rows))


def joined_text(rows: Sequence[Mapping[str, Any]], *, start: int = 0, end: int | None = None) -> str:
    """The text of consecutive chunks from byte `start` to byte `end`, without what they share."""
    pieces, reached = [], start
    for row in sorted(rows, key=lambda row: row["start"]):
        data = row["text"].encode("utf-8", "surrogatepass")
        data = data[max(0, reached - row["start"]) :]
        if end is not None and row["end"] > end:
            data = data[: max(0, len(data) - (row["end"] - end))]
        pieces.append(data)
        reached = max(reached, row["end"])
    return b"".join(pieces).decode("utf-8", "replace")


def _of(bucket: str | None, key: str) -> Filter:
    where: Filter = attribute("key") == key
    return where if bucket is None else where & (attribute("bucket") == bucket)


async def _rows(collection: CollectionReader, where: Filter) -> list[dict[str, Any]]:
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            return [_row(row) async for page in collection.scan(where, _COLUMNS) for row in page.to_pylist()]
        except Unavailable:
            if attempt == _ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    place = row["attributes"]
    return {**place, "text": without_lead(row["text"], place.get(LEAD))[1]}
