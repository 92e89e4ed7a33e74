"""What every reader of series answers the same way, once it can select their samples: Arrow tables and PromQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeVar

import pyarrow as pa

from penstock.timeseries.operations import DEFAULT_TENANT
from penstock.timeseries.prefetched import QueryTimes
from penstock.timeseries.promql import Engine, Matcher, MatrixResult, QueryResult, SeriesColumns
from penstock.timeseries.read.arrow import arrow_table
from penstock.timeseries.samples import TIMESTAMP_MS_MAX

__all__ = ["PromqlReads"]

T = TypeVar("T")


class PromqlReads(ABC):
    """Times are milliseconds since 1970, and ranges include both of their ends."""

    @abstractmethod
    async def select_columns(
        self,
        matchers: Iterable[Matcher],
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> SeriesColumns:
        """Samples of all series that satisfy every matcher as NumPy columns, as the engine takes them."""

    @abstractmethod
    async def _evaluate(self, tenant: str, work: Callable[[Engine], T], times: QueryTimes) -> T:
        """Do `work` with an engine over the series of a tenant."""

    async def select(
        self,
        matchers: Iterable[Matcher],
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> pa.Table:
        """Samples of all series that satisfy every matcher: a row a series, in the order of labels.

        Columns are `labels`, a map, and the lists `timestamps_ms` and `values`.
        """
        return arrow_table(await self.select_columns(matchers, start_ms, end_ms, tenant=tenant))

    async def query(self, expression: str, time_ms: int, *, tenant: str = DEFAULT_TENANT) -> QueryResult:
        """The value of a PromQL expression at one time."""
        return await self._evaluate(
            tenant, lambda engine: engine.query(expression, time_ms), (expression, time_ms, None, 1)
        )

    async def query_range(
        self, expression: str, start_ms: int, end_ms: int, step_ms: int, *, tenant: str = DEFAULT_TENANT
    ) -> MatrixResult:
        """The values of a PromQL expression from start to end, a step apart."""
        times = (expression, start_ms, end_ms, step_ms)
        return await self._evaluate(tenant, lambda engine: engine.query_range(*times), times)
