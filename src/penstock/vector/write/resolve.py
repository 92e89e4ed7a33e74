"""From operations to a ledger: everything that must be known before they can be applied is read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Shelf
from penstock.vector.arrays import Column, Ids, Indices, compute
from penstock.vector.format.document_log import DocumentMark
from penstock.vector.format.identity import Identities, identities_of
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState
from penstock.vector.operations import Delete, Operation, Update, Upsert
from penstock.vector.read.lookup import document_blocks, find_column, find_rows
from penstock.vector.write.ledger import Ledger, Members, StoredDocument, touched_documents

__all__ = ["settle"]

_NAMES = Shelf(Family.NAMES)


@dataclass(frozen=True, slots=True)
class _StoredRows:
    """Living rows of one version of a document, with their identities."""

    document: str
    version: str
    ids: Ids
    visible: Identities
    versioned: Identities


async def settle(blocks: BlockReader, state: CollectionState, operations: Sequence[Operation]) -> Ledger:
    """The ledger with all operations applied."""
    known, moved = touched_documents(operations)
    current, rows = await _stored(blocks, state, sorted(known), moved)
    asked = [_identities(operation) for operation in operations]
    sought = [part for pair in asked for part in pair] + [part for row in rows for part in (row.visible, row.versioned)]
    unique, places = Identities.concatenate(sought).unique()
    split = np.split(places, np.cumsum([len(part) for part in sought])[:-1]) if sought else []
    documents = {name: StoredDocument(version) for name, version in current.items()}
    for place, row in enumerate(rows):
        visible, versioned = split[2 * len(asked) + 2 * place : 2 * len(asked) + 2 * place + 2]
        members = documents.setdefault(row.document, StoredDocument()).versions.setdefault(row.version, [])
        members.append(Members(row.ids, visible, versioned))
    written = sum(len(operation.rows) for operation in operations if isinstance(operation, Upsert))
    pointers = await find_rows(blocks, state, unique)
    ledger = Ledger(unique, pointers, state.deleted, state.hidden, state.head.next_id, documents, written)
    for place, operation in enumerate(operations):
        ledger.apply(operation, split[2 * place], split[2 * place + 1])
    return ledger


def _identities(operation: Operation) -> tuple[Identities, Identities]:
    none = Identities.concatenate([])
    match operation:
        case Upsert(identities=visible, versioned=versioned):
            return visible, versioned or none
        case Delete(identities=visible) | Update(identities=visible):
            return visible, none
        case _:
            return none, none


async def _stored(
    blocks: BlockReader, state: CollectionState, known: list[str], moved: set[str]
) -> tuple[dict[str, str], list[_StoredRows]]:
    """Current versions of documents, and the living rows of those whose versions move."""
    current: dict[str, str] = {}
    rows: list[_StoredRows] = []
    for block in await document_blocks(blocks, state, known):
        entries = block.of_documents(known)
        for document, version, mark in _marks(entries):
            if mark == DocumentMark.CURRENT:
                current[document] = version
            else:
                current.pop(document, None)
        rows += await _members(blocks, state, block.of_documents(sorted(moved)))
    return current, rows


def _marks(entries: pa.RecordBatch) -> list[tuple[str, str, int]]:
    marks = entries.filter(compute.not_equal(entries["mark"], int(DocumentMark.ROW)))
    columns = [marks[name].to_pylist() for name in ("document", "version", "mark")]
    return list(zip(*columns, strict=True))


async def _members(blocks: BlockReader, state: CollectionState, entries: pa.RecordBatch) -> list[_StoredRows]:
    ids = entries["id"].to_numpy()
    living = (entries["mark"].to_numpy() == DocumentMark.ROW) & ~state.deleted.contains(ids)
    rows = entries.filter(pa.array(living))
    names = await find_column(blocks, state, _NAMES, ids[living], pa.string())
    found = []
    for document, version, places in _groups(rows):
        mine = names.take(pa.array(places))
        identities = identities_of(mine), identities_of(mine, document, version)
        found.append(_StoredRows(document, version, ids[living][places], *identities))
    return found


def _groups(rows: pa.RecordBatch) -> list[tuple[str, str, Indices]]:
    """Places of the rows of each version."""
    codes: list[Column] = [rows[name].dictionary_encode() for name in ("document", "version")]
    keys = np.stack([code.indices.to_numpy() for code in codes]).astype(np.int64) if rows.num_rows else np.empty((2, 0))
    groups: dict[tuple[int, int], list[int]] = {}
    for place, key in enumerate(zip(*keys.tolist(), strict=True)):
        groups.setdefault(key, []).append(place)
    return [
        (codes[0].dictionary[a].as_py(), codes[1].dictionary[b].as_py(), np.array(places, np.int64))
        for (a, b), places in groups.items()
    ]
