"""What can be asked of a store, of a view of it, and of a follower: each method answers from one moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corrupt, InvalidInput
from penstock.observability import SILENT, Observer, names
from penstock.timeseries.arrays import Ids
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.format.keys import keys_of
from penstock.timeseries.format.metadata_block import MetadataBlock
from penstock.timeseries.format.state import METADATA, SAMPLES
from penstock.timeseries.metric_metadata import MetricMetadata
from penstock.timeseries.operations import DEFAULT_TENANT
from penstock.timeseries.prefetched import QueryTimes, evaluate
from penstock.timeseries.promql import Engine, Matcher, SeriesColumns
from penstock.timeseries.promql.columns.grid import whole_ms
from penstock.timeseries.queries import PromqlReads
from penstock.timeseries.read.matching import known_labels
from penstock.timeseries.read.selection import Moment, find_series, select_columns
from penstock.timeseries.read.stats import TenantStats, tenant_stats
from penstock.timeseries.samples import TIMESTAMP_MS_MAX
from penstock.timeseries.upkeep.verify import SeriesVerifyReport, verify_tenant

__all__ = ["QueryPlan", "SelectionPlan", "SeriesReads"]

T = TypeVar("T")
Work = Callable[[Moment], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """What one selector of an expression reads."""

    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int
    hours: int
    series: int
    # Of the blocks that hold the series: others' samples in them are counted too.
    blocks: int
    samples: int
    bytes: int


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What a query reads before it is evaluated."""

    expression: str
    selections: tuple[SelectionPlan, ...]

    def __str__(self) -> str:
        lines = [self.expression]
        for plan in self.selections:
            asked = ",".join(map(str, plan.matchers))
            lines.append(
                f"  {{{asked}}} {plan.start_ms}..{plan.end_ms} ms: {plan.series} series in {plan.hours} hours,"
                f" {plan.blocks} blocks of {plan.bytes} bytes with {plan.samples} samples"
            )
        return "\n".join(lines)


class SeriesReads(PromqlReads):
    """Reads of one store. Times are milliseconds since 1970, and ranges include both of their ends."""

    _config: TimeSeriesConfig
    _clock: Clock = SYSTEM_CLOCK
    _observer: Observer = SILENT

    async def read(self, tenant: str, work: Work[T]) -> T:
        """Do `work` on one moment of a tenant."""
        raise NotImplementedError

    async def select_columns(
        self,
        matchers: Iterable[Matcher],
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> SeriesColumns:
        asked = _checked(matchers, start_ms, end_ms)
        return await self.read(
            tenant, lambda moment: select_columns(moment, asked, start_ms, end_ms, self._config.engine)
        )

    async def series(
        self,
        matchers: Iterable[Matcher] = (),
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> list[dict[str, str]]:
        """The labels of series that satisfy every matcher and have samples in an hour that the range touches."""
        asked = _checked(matchers, start_ms, end_ms)

        async def work(moment: Moment) -> list[dict[str, str]]:
            found = await find_series(moment, asked, start_ms, end_ms, self._config.engine)
            return [dict(labels) for labels in found.labels]

        return await self.read(tenant, work)

    async def label_names(
        self,
        matchers: Iterable[Matcher] = (),
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> list[str]:
        """The names of labels, of all series or of those that satisfy every matcher, in order."""
        asked = _checked(matchers, start_ms, end_ms)

        async def work(moment: Moment) -> list[str]:
            if asked or moment.unflushed:
                found = await find_series(moment, asked, start_ms, end_ms, self._config.engine)
                return sorted({name for labels in found.labels for name, _ in labels})
            if moment.state is None:
                return []
            return sorted(await known_labels(moment.blocks, moment.state, moment.hours(start_ms, end_ms), None))

        return await self.read(tenant, work)

    async def label_values(
        self,
        name: str,
        matchers: Iterable[Matcher] = (),
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> list[str]:
        """The values of a label, of all series or of those that satisfy every matcher, in order."""
        asked = _checked(matchers, start_ms, end_ms)

        async def work(moment: Moment) -> list[str]:
            if asked or moment.unflushed:
                found = await find_series(moment, asked, start_ms, end_ms, self._config.engine)
                return sorted({value for labels in found.labels for own, value in labels if own == name})
            if moment.state is None:
                return []
            found_labels = await known_labels(moment.blocks, moment.state, moment.hours(start_ms, end_ms), name)
            return sorted(found_labels.get(name, ()))

        return await self.read(tenant, work)

    async def metadata(self, metric: str | None = None, *, tenant: str = DEFAULT_TENANT) -> dict[str, MetricMetadata]:
        """Type, help and unit of metrics by name: of one, or of all that were told."""

        async def work(moment: Moment) -> dict[str, MetricMetadata]:
            found: dict[str, MetricMetadata] = {}
            if moment.state is not None:
                lows = moment.state.directory(METADATA).lows.tolist()
                blocks = await moment.blocks.contents(moment.state, METADATA, lows, MetadataBlock)
                for block in blocks.values():
                    found |= block.metrics
            for batch in moment.batches():
                found |= batch.metadata
            return {name: found[name] for name in sorted(found) if metric in (None, name)}

        return await self.read(tenant, work)

    async def stats(self, *, tenant: str = DEFAULT_TENANT, top: int = 10) -> TenantStats:
        """Figures of a tenant: size, cardinality by label, the largest metrics and series."""

        async def work(moment: Moment) -> TenantStats:
            return TenantStats(tenant) if moment.state is None else await tenant_stats(moment.blocks, moment.state, top)

        return await self.read(tenant, work)

    async def verify(self, *, tenant: str = DEFAULT_TENANT) -> SeriesVerifyReport:
        """Read everything of a tenant, and report whatever does not agree."""

        async def work(moment: Moment) -> SeriesVerifyReport:
            if moment.state is None:
                return SeriesVerifyReport(tenant)
            return await verify_tenant(moment.blocks, moment.state)

        try:
            return await self.read(tenant, work)
        except Corrupt as error:
            return SeriesVerifyReport(tenant, problems=[str(error)])

    async def explain(
        self,
        expression: str,
        start_ms: int,
        end_ms: int | None = None,
        step_ms: int = 1,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> QueryPlan:
        """What a query would read, without reading samples; without an end it is an instant query."""
        engine = Engine(_NoSource(), self._config.engine, clock=self._clock)
        selections = engine.selections(expression, start_ms, end_ms, step_ms)

        async def work(moment: Moment) -> QueryPlan:
            plans = []
            for selection in selections:
                asked = (moment, selection.matchers, selection.start_ms, selection.end_ms, self._config.engine)
                found = await find_series(*asked)
                used = _used_blocks(moment, {hour: ids for hour, (ids, _) in found.hours.items()})
                plans.append(
                    SelectionPlan(
                        selection.matchers,
                        selection.start_ms,
                        selection.end_ms,
                        len(found.hours),
                        len(found.labels),
                        *used,
                    )
                )
            return QueryPlan(expression, tuple(plans))

        return await self.read(tenant, work)

    async def _evaluate(self, tenant: str, work: Callable[[Engine], T], times: QueryTimes) -> T:
        async def on_moment(moment: Moment) -> T:
            async def fetch(matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
                return await select_columns(moment, matchers, start_ms, end_ms, self._config.engine)

            return await evaluate(fetch, self._config.engine, self._clock, work, times)

        began = self._clock.monotonic()
        try:
            return await self.read(tenant, on_moment)
        finally:
            self._observer.observe(names.TIMESERIES_QUERY_SECONDS, self._clock.monotonic() - began)


class _NoSource:
    """For an engine that is asked what it would read."""

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
        raise NotImplementedError


def _checked(matchers: Iterable[Matcher], start_ms: int, end_ms: int) -> tuple[Matcher, ...]:
    """Matchers that can be used: their regular expressions are compiled here, before anything is read."""
    whole_ms("start", start_ms), whole_ms("end", end_ms)
    asked = tuple(matchers)
    for matcher in asked:
        if not isinstance(matcher, Matcher):
            raise InvalidInput(f"{matcher!r:.80} is not a matcher", "series are selected by a sequence of Matcher")
        matcher.predicate()
    return asked


def _used_blocks(moment: Moment, hours: Mapping[int, Ids]) -> tuple[int, int, int]:
    """Blocks, samples and bytes of the buckets that hold some series."""
    blocks = samples = size = 0
    state = moment.state
    for hour, ids in hours.items():
        assert state is not None
        if not len(ids):
            continue
        lows = state.lows(SAMPLES, hour)
        for place in set(state.owners(SAMPLES, hour, keys_of(hour, ids)).tolist()):
            fragments = state.directory(SAMPLES).bucket(int(lows[place]))
            blocks += len(fragments)
            samples += int(fragments["rows"].sum())
            size += int(fragments["bytes"].sum())
    return blocks, samples, size
