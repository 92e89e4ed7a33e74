"""What a SQL engine asks of a catalog: one state that is held for all plans of a query, and ranges of its files.

`Catalog` offers this, and so does the catalog that a gateway lends to its SQL processes. Both are written against these
types, so that the type checker sees when one of them lacks what the engine asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.catalog import CatalogConfig, CatalogLayout, DataFile, Position, RangeStore

__all__ = ["SqlPin", "SqlPlan", "SqlSource", "SqlState"]


class SqlPlan(Protocol):
    """The files of a plan."""

    @property
    def files(self) -> list[DataFile]: ...


class SqlPin(Protocol):
    """Keeps the files of a state from vacuum, under a name."""

    @property
    def name(self) -> str: ...


class SqlState(Protocol):
    """One state of a catalog, for all plans of a query."""

    @property
    def position(self) -> dict[str, int]: ...

    async def plan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
    ) -> SqlPlan:
        """The files of a table between two times, with the statistics of these columns."""
        ...

    def known_plan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
    ) -> SqlPlan | None:
        """The same from any thread; None when it is not all in memory: ask `plan`."""
        ...

    async def tables(self, *, tenant: str | None = None) -> list[str]:
        """Names of the tables that have files."""
        ...


class SqlSource(Protocol):
    """A catalog, and the store in which its files lie."""

    @property
    def config(self) -> CatalogConfig: ...

    @property
    def layout(self) -> CatalogLayout: ...

    @property
    def store(self) -> RangeStore: ...

    async def hold(self, position: Position | None = None) -> SqlState:
        """The catalog as it is now, or was at `position`."""
        ...

    async def pin(self, position: Position, *, seconds: float, name: str | None = None) -> SqlPin:
        """Keep every file visible at `position` from vacuum for so long."""
        ...

    async def unpin(self, name: str) -> None: ...
