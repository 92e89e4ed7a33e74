"""The records of a store that belong to no part of its data: its own, and the positions of its sources.

The parts of a store (what lies beneath one prefix each) have numbers, and the store's record says which comes next. A
record that is damaged is made again from the parts that are there: no number that was ever given out comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from penstock.blocks.format.store_format import StoreFormat
from penstock.blocks.read.head import StoreHeader, read_store_record
from penstock.blocks.read.positions import read_positions
from penstock.errors import Corrupt
from penstock.keyvalue import Reader

__all__ = ["StoreRecords"]

# Numbers left out when it is not known how many were given out: more than parts are ever made or dropped in a row.
_NUMBERS_SKIPPED: Final = 1 << 16

R = TypeVar("R", bound=StoreHeader)


@dataclass(frozen=True, slots=True)
class StoreRecords(Generic[R]):
    """How a store writes its own record, and where the numbers of its parts are found."""

    format: StoreFormat
    shape: type[R]
    # The record of a store whose next part gets this number.
    numbered: Callable[[int], R]
    # Where the parts are listed, and the number in such a value.
    parts_prefix: bytes
    number_in_value: Callable[[bytes], int]
    # Where their data lie in the order of their numbers, and the number in such a key.
    data_prefix: bytes
    number_in_key: Callable[[bytes], int]

    async def read(self, reader: Reader) -> R:
        """The store's own record; that of an empty store if there is none, and nothing else."""
        record = await read_store_record(reader, self.format, self.shape)
        return await self.rebuilt(reader) if record is None else record

    async def read_or_rebuilt(self, reader: Reader, damaged: Callable[[Corrupt], None]) -> R:
        """The store's record; one that is damaged is made again, and written with the next flush."""
        try:
            return await self.read(reader)
        except Corrupt as error:
            damaged(error)
            return await self.rebuilt(reader)

    async def check_format(self, reader: Reader) -> None:
        """Raise `Unsupported` if the store has a newer format. One whose record is damaged is of this format."""
        with suppress(Corrupt):
            await self.read(reader)

    async def rebuilt(self, reader: Reader) -> R:
        """The store's record as its parts tell it: no number that may ever have been given out is given out again."""
        highest = -1
        async for entries in reader.scan_prefix(self.parts_prefix):
            for _, value in entries:
                with suppress(Corrupt):
                    highest = max(highest, self.number_in_value(value))
        async for entries in reader.scan_prefix(self.data_prefix, reverse=True, block_bytes=1):
            highest = max(highest, self.number_in_key(entries[0][0]))
            break
        return self.numbered(highest + 1 + _NUMBERS_SKIPPED if highest >= 0 else 0)

    async def problems(self, reader: Reader) -> list[str]:
        """What is wrong with the store's record and with the positions of sources."""
        problems = []
        try:
            await self.read(reader)
        except Corrupt as error:
            problems.append(str(error))
        return problems + [str(error) for error in (await read_positions(reader, self.format)).unknown.values()]
