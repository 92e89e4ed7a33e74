"""What the dashboard shows, as plain data: the stages of the path, and pages made of tables.

Whoever runs the gateway fills it (`HouseView`); templates lay it out. Nothing here knows HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

__all__ = ["Fact", "HouseView", "Section", "Stage", "StageState", "TableView", "verdict"]


class StageState(StrEnum):
    """How a stage is: `late` works and is behind, `down` does not work, `idle` has nothing to do."""

    OK = "ok"
    IDLE = "idle"
    LATE = "late"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the path of a record. `page` is the name of its page."""

    title: str
    state: StageState
    facts: Sequence[Fact] = ()
    error: str = ""
    page: str = ""


@dataclass(frozen=True, slots=True)
class TableView:
    """Rows of text. `numbers` are the columns that are numbers; `empty` is shown when there are no rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    empty: str = "There is nothing here yet."


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page."""

    title: str
    facts: Sequence[Fact] = ()
    table: TableView | None = None
    error: str = ""


class HouseView(Protocol):
    """What is to be seen, by tenant. Each call looks anew, and raises only errors of the house."""

    @property
    def pages(self) -> Sequence[tuple[str, str]]:
        """Names and titles of pages besides those that every dashboard has."""
        ...

    async def stages(self, tenant: str) -> list[Stage]: ...

    async def page(self, name: str, tenant: str) -> list[Section]: ...


def verdict(stages: Sequence[Stage]) -> tuple[StageState, str]:
    """Whether anything is lost or late, in one line."""
    down = [stage.title for stage in stages if stage.state is StageState.DOWN]
    late = [stage.title for stage in stages if stage.state is StageState.LATE]
    if down:
        return StageState.DOWN, f"Not working: {', '.join(down)}. What was acknowledged is safe and waits."
    if late:
        return StageState.LATE, f"Behind: {', '.join(late)}. Nothing is lost."
    return StageState.OK, "Nothing is lost, and nothing is late."
