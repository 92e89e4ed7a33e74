"""The records of a store that belong to no part of its data: read, doubted, made again. The parts are mere numbers."""

from __future__ import annotations

import asyncio
import struct

import pytest
from tests.blocks.meters import FORMAT, MeterRecord

from penstock.blocks import STORE, RecordKind, StoreRecords
from penstock.errors import Corrupt, Unsupported
from penstock.keyvalue import MemoryKeyValue, MemoryVolume


def _number(value: bytes) -> int:
    if len(value) != 4:
        raise Corrupt("a part", "its record is damaged")
    return int(struct.unpack(">I", value)[0])


RECORDS = StoreRecords(
    FORMAT, MeterRecord, lambda number: MeterRecord(1, number), b"p", _number, b"q", lambda key: _number(key[1:5])
)
SKIPPED = 1 << 16


def store_of(*entries: tuple[bytes, bytes | None]) -> MemoryKeyValue:
    volume = MemoryVolume()
    volume.land("keyvalue", list(entries))
    return MemoryKeyValue(volume)


def part(number: int) -> bytes:
    return struct.pack(">I", number)


DAMAGED = (STORE, b"not a record")


def test_an_empty_store_has_the_record_of_one() -> None:
    assert asyncio.run(RECORDS.read(store_of())) == MeterRecord(1, 0)
    assert asyncio.run(RECORDS.problems(store_of())) == []


def test_a_damaged_record_is_told_once_and_made_again_beyond_every_number_that_was_given_out() -> None:
    listed = store_of(DAMAGED, (b"pa", part(3)), (b"pb", part(7)), (b"pc", b"damaged too"))
    dropped = store_of(DAMAGED, (b"pa", part(3)), (b"q" + part(9) + b"rest", b""))
    for store, highest in ((listed, 7), (dropped, 9)):
        told: list[Corrupt] = []
        record = asyncio.run(RECORDS.read_or_rebuilt(store, told.append))
        assert record == MeterRecord(1, highest + 1 + SKIPPED)
        assert len(told) == 1
        assert asyncio.run(RECORDS.problems(store)) == [str(told[0])]


def test_a_store_with_parts_and_no_record_is_no_empty_one() -> None:
    assert asyncio.run(RECORDS.read(store_of((b"pa", part(0))))) == MeterRecord(1, 1 + SKIPPED)


def test_a_newer_format_is_refused_and_a_damaged_record_is_none() -> None:
    newer = store_of((STORE, FORMAT.encode_record(RecordKind.STORE, MeterRecord(2))))
    with pytest.raises(Unsupported):
        asyncio.run(RECORDS.check_format(newer))
    asyncio.run(RECORDS.check_format(store_of(DAMAGED)))
