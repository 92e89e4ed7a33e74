"""Samples of a queue, into a time-series store. The store's room is loaded by whoever opens the store.

Batches of telemetry are taken too, as a gateway or a relay queues them: their metrics become series by the public
mapping of names and labels. Logs and traces belong to another consumer, and are set aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.buffer import MetadataRange
from penstock.coordinator import WriteHandle
from penstock.observability import SILENT, Observer
from penstock.relay.sinks.metric_samples import metric_samples
from penstock.relay.sinks.payloads import SamplesPayload, decode_table, is_samples
from penstock.relay.sinks.rejected import RejectedRecords
from penstock.relay.sinks.store_sink import StoreSink

if TYPE_CHECKING:
    from penstock.timeseries import SampleChanges, TimeSeriesStore

__all__ = ["SeriesSink"]

# Of rows that name none, as everywhere.
DEFAULT_TENANT: Final = "default"


class SeriesSink(StoreSink["SampleChanges"]):
    """Samples of a queue, into a time-series store."""

    def __init__(
        self, store: TimeSeriesStore, source: str, rejected: RejectedRecords, *, observer: Observer = SILENT
    ) -> None:
        super().__init__(source, rejected, consumer="timeseries", observer=observer)
        self._store = store

    async def position(self) -> int | None:
        return self._store.position(self._source)

    def _begin(self, source: str | None, position: int | None) -> SampleChanges:
        return self._store.changes(source, position)

    async def _add(self, changes: SampleChanges, metadata: MetadataRange, record: bytes) -> None:
        from penstock.timeseries import SampleBatch

        if is_samples(metadata.payload):
            tenant = SamplesPayload.decode(metadata.payload).tenant
            changes.write(SampleBatch.from_table(decode_table(record)), tenant=tenant)
            return
        for tenant, found in metric_samples(record, metadata.payload, metadata.ingestion_time_ms):
            changes.write(
                SampleBatch.of(found.labels, found.series, found.time_ms, found.value), tenant=tenant or DEFAULT_TENANT
            )

    async def _write(self, changes: SampleChanges) -> WriteHandle:
        return await self._store.write(changes)
