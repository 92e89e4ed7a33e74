"""Repairing a store: each damaged thing in a batch of its own, with what could not be brought back.

Whatever follows from other data is made again: the store's record, and all of a collection that its rows tell
(`rebuild`). What only one value held has to be stated by somebody: the position of a source, the metric of a collection
whose record is lost, and whether rows that may have been deleted are kept. Without that, the thing is left as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from penstock.blocks import (
    STORE,
    BlockCache,
    BlockReader,
    Operations,
    RecordKind,
    fill,
    position_operation,
    read_positions,
)
from penstock.clock import Clock
from penstock.errors import Corrupt
from penstock.keyvalue import KeyValue, Reader, WriteBatch
from penstock.vector.config import VectorConfig
from penstock.vector.format.analysis import StoredAnalysis
from penstock.vector.format.keys import CollectionName, collection_key, collection_prefix
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import CollectionRecord, Head
from penstock.vector.format.store_format import COLLECTION_RECORD, FORMAT
from penstock.vector.read.reading import read_head, unclaimed_numbers
from penstock.vector.read.records import STORE_RECORDS, list_collections
from penstock.vector.upkeep.rebuild import rebuild
from penstock.vector.upkeep.survey import Survey, survey_collection

__all__ = ["RepairReport", "Statements", "repair_keyvalue", "repairs"]

_OLD_WORDS: Final = "its words are indexed by the rule of an older version"


@dataclass(frozen=True, slots=True)
class Statements:
    """What nobody but the operator can know."""

    # Positions of sources whose own is damaged; None lets a source begin anew.
    positions: Mapping[str, int | None] = field(default_factory=dict)
    # The metric of collections whose record is damaged.
    metric: DistanceMetric | None = None
    # Keep rows of which nobody can tell whether they were deleted.
    keep_doubtful: bool = False
    # Index words by the present rule where they are indexed by an older one.
    reindex_words: bool = False


@dataclass(frozen=True, slots=True)
class RepairReport:
    """One damaged thing: what was wrong, what is lost for good, and what is missing for its repair, if anything."""

    what: str
    damage: tuple[str, ...]
    losses: tuple[str, ...] = ()
    # Why it was left as it is; empty if it was repaired.
    undecided: str = ""

    @property
    def repaired(self) -> bool:
        return not self.undecided


async def repair_keyvalue(keyvalue: KeyValue, statements: Statements, clock: Clock) -> list[RepairReport]:
    """Repair the store in a key-value store; what is reported is durable."""
    snapshot = await keyvalue.snapshot()
    reports = []
    try:
        async for report, operations in repairs(snapshot, VectorConfig(), statements, clock):
            batch = WriteBatch()
            fill(batch, operations)
            if operations:
                await (await keyvalue.write(batch)).durable()
            reports.append(report)
    finally:
        await snapshot.close()
    return reports


async def repairs(
    reader: Reader, config: VectorConfig, statements: Statements, clock: Clock
) -> AsyncIterator[tuple[RepairReport, Operations]]:
    """Every damaged thing of a store, one after the other, with the writes that repair it."""
    try:
        await STORE_RECORDS.read(reader)
    except Corrupt as error:
        record = await STORE_RECORDS.rebuilt(reader)
        yield (
            RepairReport("the store's record", (str(error),)),
            [(STORE, FORMAT.encode_record(RecordKind.STORE, record))],
        )
    for source, damage in (await read_positions(reader, FORMAT)).unknown.items():
        yield _position(source, damage, statements)
    blocks = BlockReader(reader, FORMAT, BlockCache(config.cache_bytes, store=FORMAT.label))
    broken, unclaimed = await unclaimed_numbers(reader)
    for name in await list_collections(reader):
        repair = _Repair(blocks, name, config, statements)
        mine = unclaimed if len(broken) == 1 else []
        found = await repair.nameless(mine, clock) if name in broken else await repair.known()
        if found is not None:
            yield found
    if unclaimed and not broken:
        yield await _abandoned(reader, unclaimed)


def _position(source: str, damage: Corrupt, statements: Statements) -> tuple[RepairReport, Operations]:
    what = f"the position of {source!r}"
    if source not in statements.positions:
        remedy = f"state it: --position {source}=NUMBER, or --position {source}=none to begin anew"
        return RepairReport(what, (damage.why,), undecided=remedy), []
    position = statements.positions[source]
    losses = ("the position: the source begins anew",) if position is None else ()
    return RepairReport(what, (damage.why,), losses), [position_operation(FORMAT, source, position)]


async def _abandoned(reader: Reader, numbers: list[int]) -> tuple[RepairReport, Operations]:
    """Data that no collection claims any more: its record was dropped while it could not be read."""
    operations: Operations = []
    for number in numbers:
        async for entries in reader.scan_prefix(collection_prefix(number)):
            operations += [(key, None) for key, _ in entries]
    told = f"{len(operations):,} values under {len(numbers)} numbers, which are removed"
    return RepairReport("data of no collection", (told,)), operations


class _Repair:
    """Of one collection."""

    def __init__(self, blocks: BlockReader, name: CollectionName, config: VectorConfig, statements: Statements) -> None:
        self._blocks = blocks
        self._name = name
        self._config = config
        self._statements = statements

    async def known(self) -> tuple[RepairReport, Operations] | None:
        """One whose record is whole."""
        value = await self._blocks.reader.get(collection_key(self._name))
        record = FORMAT.decode_record(COLLECTION_RECORD, value or b"", CollectionRecord)
        survey = await survey_collection(self._blocks.reader, record.number)
        head, lost = await self._head(record.number)
        renewed = (
            msgspec.structs.replace(record, analysis=_newest(record)) if self._statements.reindex_words else record
        )
        if renewed != record:
            lost.append(_OLD_WORDS)
        if not survey.damage and not lost:
            return None
        report, operations = await self._rebuilt(renewed, head, survey, lost)
        if report.repaired and renewed != record:
            operations.append((collection_key(self._name), FORMAT.encode_record(COLLECTION_RECORD, renewed)))
        return report, operations

    async def nameless(self, unclaimed: list[int], clock: Clock) -> tuple[RepairReport, Operations]:
        """One whose record is damaged: the data that nobody else claims is its own."""
        damage = "its record cannot be read"
        if len(unclaimed) != 1:
            why = "which data belongs to it cannot be told: restore the record, or drop the collection"
            return RepairReport(str(self._name), (damage,), undecided=why), []
        survey = await survey_collection(self._blocks.reader, unclaimed[0])
        if self._statements.metric is None or survey.dimensions is None:
            why = "state its metric: --metric cosine, dot or l2"
            if survey.dimensions is None:
                why = "it has no vectors, whose dimensions would tell its own: restore the record, or drop it"
            return RepairReport(str(self._name), (damage,), undecided=why), []
        # Words are indexed anew, so that it does not matter how they were.
        made = unclaimed[0], survey.dimensions, self._statements.metric, clock.now_ms()
        record = CollectionRecord(*made, StoredAnalysis.FOLDED_STEMS)
        head, lost = await self._head(record.number)
        report, operations = await self._rebuilt(record, head, survey, [damage, *lost])
        if report.repaired:
            operations.append((collection_key(self._name), FORMAT.encode_record(COLLECTION_RECORD, record)))
        return report, operations

    async def _head(self, number: int) -> tuple[Head | None, list[str]]:
        try:
            head = await read_head(self._blocks.reader, self._name, number)
        except Corrupt as error:
            return None, [str(error)]
        return head, [] if head is not None else ["its head is gone"]

    async def _rebuilt(
        self, record: CollectionRecord, head: Head | None, survey: Survey, lost: list[str]
    ) -> tuple[RepairReport, Operations]:
        damage = (*lost, *survey.damage)
        try:
            rebuilt = await rebuild(
                self._blocks,
                self._name,
                record,
                head,
                survey,
                self._config,
                keep_doubtful=self._statements.keep_doubtful,
            )
        except Corrupt as error:
            return RepairReport(str(self._name), damage, undecided=str(error)), []
        losses = list(rebuilt.losses)
        if head is None and survey.types:
            losses.append(f"the names of {len(survey.types)} attributes, which are called attribute-1 and so on")
        return RepairReport(str(self._name), damage, tuple(losses)), rebuilt.operations


def _newest(record: CollectionRecord) -> StoredAnalysis:
    return StoredAnalysis.newest((record.analysis or StoredAnalysis.PLAIN_WORDS).analysis)
