"""Both stores of the telemetry job: data files into the catalog, samples into the time series, each with the position.

Neither store waits for the other; after a crash each tells how far it is, and the job brings the one that is behind
up to the other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from penstock.catalog import Catalog, DataFile, column_stats
from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.landing.config import TelemetryConfig
from penstock.landing.port import LandedFile, LandingSamples
from penstock.landing.rounds import Landed
from penstock.objects import ObjectStore
from penstock.observability import Observer, names
from penstock.timeseries import DEFAULT_TENANT, MetricMetadata, SampleBatch, TimeSeriesConfig, TimeSeriesStore

__all__ = ["LandingSink", "within_limits"]

compute: Any = pyarrow.compute


class LandingSink:
    """Made by `open`. One writer of the time series: opening it fences whoever wrote before."""

    def __init__(self, config: TelemetryConfig, catalog: Catalog, series: TimeSeriesStore | None, observer: Observer):
        self._config, self._catalog, self._series, self._observer = config, catalog, series, observer

    @classmethod
    async def open(cls, config: TelemetryConfig, store: ObjectStore, clock: Clock, observer: Observer) -> LandingSink:
        catalog = await Catalog.open(store, config.catalog_path, config.catalog, clock=clock, observer=observer)
        try:
            series = None
            if config.series_path:
                series = await TimeSeriesStore.open(
                    config.url,
                    config.series_path,
                    config.series,
                    clock=clock,
                    observer=observer,
                    **{**config.options, **config.keyvalue},
                )
        except BaseException:
            await catalog.close()
            raise
        return cls(config, catalog, series, observer)

    async def close(self) -> None:
        try:
            if self._series is not None:
                await self._series.close()
        finally:
            await self._catalog.close()

    async def landed(self) -> Landed:
        """How far each store is."""
        progress = await self._catalog.source_progress(self._config.source)
        files = -1 if progress.complete is None else progress.complete
        begun = -1 if progress.started is None else progress.started
        if self._series is None:
            return Landed(files, begun, max(files, begun))
        position = self._series.position(self._config.source)
        return Landed(files, begun, -1 if position is None else position)

    async def commit(
        self,
        files: Sequence[LandedFile],
        samples: Sequence[LandingSamples],
        position: int,
        *,
        writes_files: bool,
        writes_samples: bool,
    ) -> dict[str, int]:
        """Everything up to `position`, durable in both stores when this returns; samples that were refused, by reason."""
        work = []
        if writes_files:
            work.append(self._register(files, position))
        if writes_samples and self._series is not None:
            work.append(self._write(samples, position))
        refused: dict[str, int] = {}
        for one in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(one, BaseException):
                raise one
            refused.update(one)
        return refused

    async def _register(self, files: Sequence[LandedFile], position: int) -> dict[str, int]:
        listed = [_data_file(file) for file in files]
        await self._catalog.register(listed, source=self._config.source, position=position)
        return {}

    async def _write(self, samples: Sequence[LandingSamples], position: int) -> dict[str, int]:
        assert self._series is not None
        changes, refused = self._series.changes(self._config.source, position), Counter[str]()
        for one in samples:
            fitting, dropped = within_limits(one, self._config.series)
            if dropped:
                refused["series over a bound"] += dropped
            for batch in self._batches(fitting, refused):
                if len(batch):
                    changes.write(batch, tenant=one.tenant or DEFAULT_TENANT)
        await self._series.write(changes, durable=True)
        return refused

    def _batches(self, samples: LandingSamples, refused: Counter[str]) -> Iterator[SampleBatch]:
        """Samples as the store takes them. Series that it refuses keep none of their neighbours; their rows are in the catalog."""
        try:
            about = {name: MetricMetadata(*what) for name, what in samples.about.items()}
            yield SampleBatch.of(samples.labels, samples.series, samples.time_ms, samples.value, about)
        except PenstockError as error:
            count = len(samples.labels)
            if count <= 1:
                self._observer.event(names.LANDING_SAMPLES_REFUSED, tenant=samples.tenant, why=str(error))
                refused["refused by the store"] += len(samples.value)
                return
            is_first = np.arange(count) < count // 2
            for half in (is_first, ~is_first):
                yield from self._batches(of_series(samples, half), refused)


def within_limits(samples: LandingSamples, config: TimeSeriesConfig) -> tuple[LandingSamples, int]:
    """Without the samples of series that the store would refuse, and how many those are."""
    labels = samples.labels
    counts = np.asarray(compute.list_value_length(_as_lists(labels)))
    good = counts <= config.labels_max
    entries = compute.list_flatten(_as_lists(labels))
    owners = np.repeat(np.arange(len(counts)), counts)
    for name, most in (("key", config.label_name_bytes_max), ("value", config.label_value_bytes_max)):
        sizes = np.asarray(compute.binary_length(compute.struct_field(entries, name)))
        good[owners[sizes > most]] = False
    if good.all():
        return samples, 0
    fitting = of_series(samples, good)
    return fitting, len(samples.value) - len(fitting.value)


def of_series(samples: LandingSamples, chosen: npt.NDArray[np.bool_]) -> LandingSamples:
    """The samples of some series, under new numbers."""
    kept = chosen[samples.series]
    numbers = (np.cumsum(chosen) - 1).astype(np.uint32)
    return LandingSamples(
        samples.tenant,
        samples.labels.filter(pa.array(chosen)),
        numbers[samples.series[kept]],
        samples.time_ms[kept],
        samples.value[kept],
        samples.is_delta[kept],
        samples.about,
    )


def _as_lists(labels: Any) -> Any:
    return labels.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))


def _data_file(file: LandedFile) -> DataFile:
    stats = {
        name: column_stats(low, high, has_nulls=nulls, has_nan=nan, all_null=nothing, type=kind)
        for name, (low, high, nulls, nan, nothing, kind) in file.bounds.items()
    }
    return DataFile(
        path=file.path,
        min_timestamp=file.min_time_ns,
        max_timestamp=file.max_time_ns,
        row_count=file.rows,
        size_bytes=file.size,
        tenant=file.tenant,
        table=file.table,
        column_stats=stats,
    )
