"""Vectors that a collection has already: a text that did not change is not sent to its model again.

A row keeps eight bytes of the digest of its text. When a new version of a searchable document is read, the collection's
visible rows with the digests of its chunks are looked up, and a vector is taken over where the text is the same to the
last character. The collection is the cache: it needs no room of its own, lasts as long as its documents and answers
every process. After a crash it answers the same, because the version that is replaced is visible until the new one is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Final

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.indexing.rounds.leads import LEAD, without_lead
from penstock.vector import CollectionReader, attribute

__all__ = ["DIGEST", "NOTHING_KNOWN", "known_vectors", "named_vectors", "text_digest"]

# The attribute of a row.
DIGEST: Final = "digest"
# Rows looked at beyond one for each text: what stands in every document has as many rows.
_SPARE_ROWS: Final = 1_000


def text_digest(text: str) -> int:
    """Eight bytes of SHA-256, as an attribute can hold them; the text itself decides."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True)


async def known_vectors(collection: CollectionReader, texts: Iterable[str]) -> pa.Table:
    """`text` and `vector` of some rows of these texts, each text at most once; texts that are not there are left out."""
    wanted = set(texts)
    found: list[pa.Table] = []
    rows_left = len(wanted) + _SPARE_ROWS
    where = attribute(DIGEST).is_in(sorted(map(text_digest, wanted)))
    try:
        async with aclosing(collection.scan(where, ["text", "vector", "attributes"])) as pages:
            async for page in pages:
                found.append(_first_of(page, wanted))
                rows_left -= page.num_rows
                if not wanted or rows_left <= 0:
                    break
    except InvalidInput:
        # A collection none of whose rows has a digest yet.
        return _NO_TEXTS
    return pa.concat_tables(found) if found else _NO_TEXTS


def named_vectors(known: pa.Table, texts: Mapping[str, str]) -> pa.Table:
    """`chunk_id` and `vector` of the chunks whose text is known; `texts` are those of all chunks, by their ids."""
    places = {text: place for place, text in enumerate(known["text"].to_pylist())}
    names = [name for name, text in texts.items() if text in places]
    vectors = known["vector"].take(pa.array([places[texts[name]] for name in names], pa.int64()))
    return pa.table({"chunk_id": pa.array(names, pa.string()), "vector": vectors})


_VECTORS: Final = pa.array([], pa.list_(pa.float32()))
_NO_TEXTS: Final = pa.table({"text": pa.array([], pa.string()), "vector": _VECTORS})
NOTHING_KNOWN: Final = pa.table({"chunk_id": pa.array([], pa.string()), "vector": _VECTORS})


def _first_of(page: pa.Table, wanted: set[str]) -> pa.Table:
    """The rows of a page that have a vector and a text that is wanted; then it is wanted no more."""
    places, texts = [], []
    placed = page["vector"].is_valid().to_pylist()
    rows = page.select(["text", "attributes"]).to_pylist()
    for place, row in enumerate(rows):
        _, text = without_lead(row["text"], row["attributes"].get(LEAD))
        if placed[place] and text in wanted:
            wanted.discard(text)
            places.append(place)
            texts.append(text)
    chosen = page.take(pa.array(places, pa.int64()))
    return pa.table({"text": pa.array(texts, pa.string()), "vector": chosen["vector"].cast(pa.list_(pa.float32()))})
