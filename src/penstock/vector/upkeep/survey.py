"""What is left of a damaged collection: every value is read once, and the directories list what can be read.

Fragments are the data; pages only list them, and a fragment that no page lists does not lie in the store. So what a
survey finds under a collection's keys is all there is, whatever its pages say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.blocks import (
    FRAGMENT,
    Address,
    Directory,
    Shelf,
    decode_page,
    fragment_key,
    fragments_prefix,
    pages_prefix,
)
from penstock.errors import Corrupt
from penstock.keyvalue import Reader
from penstock.vector.attributes import attribute_type
from penstock.vector.format.content import ColumnBlock, RowBlock, VectorBlock
from penstock.vector.format.keys import Family, collection_prefix
from penstock.vector.format.state import LENGTHS, AttributeRecord, Head
from penstock.vector.format.store_format import FORMAT, ROW_BLOCKS

__all__ = ["Survey", "survey_collection"]

# Families whose ids are those of rows.
_OF_ROWS: Final = (
    Family.VECTORS,
    Family.NAMES,
    Family.TEXTS,
    Family.COLUMN,
    Family.DELETED,
    Family.HIDDEN,
    Family.POSTINGS,
)


@dataclass(slots=True)
class Survey:
    """The readable fragments of a collection, and what was lost."""

    fragments: dict[Shelf, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    pages: list[bytes] = field(default_factory=list)
    # Fragments that cannot be read or are listed and gone, and names of all that is damaged.
    broken: list[Address] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    dimensions: int | None = None
    types: dict[int, pa.DataType] = field(default_factory=dict)
    next_id: int = 0
    next_serial: int = 1
    next_list: int = 0

    @property
    def damaged(self) -> set[Family]:
        """The families that lost fragments."""
        return {Family(address.shelf.family) for address in self.broken}

    def lost_lows(self, family: Family) -> list[int]:
        """The buckets of a family that lost fragments."""
        return sorted({address.low for address in self.broken if address.shelf.family is family})

    def directories(self) -> dict[Shelf, Directory]:
        """What can be read, in one page each."""
        made = {}
        for shelf, found in self.fragments.items():
            listed = np.array(sorted(found), FRAGMENT)
            made[shelf] = Directory(listed, np.zeros(1, np.uint64))
        return made

    def head(self, known: Head | None) -> Head:
        """The head that was stored, or one of what was found; it gives no number out twice."""
        base = known or Head(attributes=self._attributes())
        return msgspec.structs.replace(
            base,
            next_id=max(base.next_id, self.next_id),
            next_serial=max(base.next_serial, self.next_serial),
            next_list=max(base.next_list, self.next_list),
            sweep=None,
        )

    def _attributes(self) -> tuple[AttributeRecord, ...]:
        """The attributes of a head that is lost: their names were only there."""
        found = [(number, attribute_type(kind)) for number, kind in sorted(self.types.items())]
        return tuple(AttributeRecord(number, f"attribute-{number}", kind) for number, kind in found if kind is not None)

    def note(self, address: Address, content: RowBlock) -> None:
        """Take in what a readable fragment tells."""
        if address.shelf.family in _OF_ROWS:
            self.next_id = max(self.next_id, int(content.ids.max(initial=-1)) + 1)
        if address.shelf.family is Family.POSTINGS:
            self.next_list = max(self.next_list, address.low + 1)
        if address.shelf.family is Family.CENTROIDS:
            self.next_list = max(self.next_list, int(content.ids.max(initial=-1)) + 1)
        if isinstance(content, VectorBlock):
            self.dimensions = content.vectors.shape[1]
        if isinstance(content, ColumnBlock) and address.shelf.family is Family.COLUMN and address.shelf != LENGTHS:
            self.types[address.shelf.column] = content.values.type


async def survey_collection(reader: Reader, number: int) -> Survey:
    """Read everything that lies under a collection's number."""
    survey = Survey()
    seen: set[Address] = set()
    async for entries in reader.scan_prefix(fragments_prefix(collection_prefix(number))):
        for key, value in entries:
            address = FORMAT.address(key)
            seen.add(address)
            survey.next_serial = max(survey.next_serial, address.serial + 1)
            try:
                content = FORMAT.decode(address.shelf.family, value, ROW_BLOCKS[Family(address.shelf.family)])
            except Corrupt:
                survey.broken.append(address)
                survey.damage.append(str(address))
                continue
            row = (address.low, address.serial, len(content), len(value))
            survey.fragments.setdefault(address.shelf, []).append(row)
            survey.note(address, content)
    await _read_pages(reader, number, survey, seen)
    return survey


async def _read_pages(reader: Reader, number: int, survey: Survey, seen: set[Address]) -> None:
    listed: set[Address] = set()
    whole = True
    async for entries in reader.scan_prefix(pages_prefix(collection_prefix(number))):
        for key, value in entries:
            shelf, low = FORMAT.page(key)
            survey.pages.append(key)
            try:
                page = decode_page(FORMAT, value)
            except Corrupt:
                whole = False
                survey.damage.append(f"the directory of {shelf}, page {low}")
                continue
            listed |= {Address(shelf, int(each["low"]), int(each["serial"])) for each in page}
    for address in sorted(listed - seen):
        survey.broken.append(address)
        survey.damage.append(f"{address}, which is gone")
    if whole and (unlisted := len(seen - listed)):
        survey.damage.append(f"{unlisted} blocks are not listed")


def broken_keys(survey: Survey, prefix: bytes) -> list[bytes]:
    """The keys of fragments that cannot be read."""
    return [fragment_key(prefix, address) for address in survey.broken]
