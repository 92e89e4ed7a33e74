"""What the dashboard shows, as plain data: the stages of the path, pages made of tables, and events.

Whoever runs the gateway fills it (`HouseView`); templates lay it out. Nothing here knows HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

__all__ = [
    "DocumentChange",
    "Fact",
    "HouseView",
    "PageLink",
    "Section",
    "ShownEvent",
    "Stage",
    "StageState",
    "TableView",
    "Viewer",
    "verdict",
]


class StageState(StrEnum):
    """`attention` has put something aside, `late` is behind, `down` does not work, `lost` has lost data."""

    OK = "ok"
    # It has nothing to do.
    IDLE = "idle"
    ATTENTION = "attention"
    LATE = "late"
    DOWN = "down"
    LOST = "lost"


class DocumentChange(StrEnum):
    """A change of documents on the dashboard: read a document again, or take it out of the index."""

    RETRY = "retry"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks: their tenant, whether they may see every tenant's, and whether they may change something."""

    tenant: str
    is_admin: bool = False
    may_write: bool = False


@dataclass(frozen=True, slots=True)
class PageLink:
    """A page of the house. One that shows every tenant's data is for administrators."""

    name: str
    title: str
    for_admin: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the path of a record. `page` is the name of its page, `lane` the row of the picture it is in."""

    title: str
    state: StageState
    facts: Sequence[Fact] = ()
    error: str = ""
    page: str = ""
    lane: str = ""
    # What passes it now, such as `1,204 rows/s`, and recent rates for a small curve.
    rate: str = ""
    curve: Sequence[float] = ()
    # What was lost here, such as `120 rows`.
    lost: str = ""


@dataclass(frozen=True, slots=True)
class TableView:
    """Rows of text. `numbers` are the columns that are numbers; `empty` is shown when there are no rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    empty: str = "There is nothing here yet."
    # Of documents: what each row's buttons send, in the order of the rows; empty without buttons.
    row_keys: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page. `links` lead to other choices of the same page: text, query string, and whether it is chosen."""

    title: str
    facts: Sequence[Fact] = ()
    table: TableView | None = None
    error: str = ""
    note: str = ""
    links: Sequence[tuple[str, str, bool]] = ()
    # The index whose documents the table lists; empty when it lists something else.
    index: str = ""


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """A line of the log. `number` grows by one with each; `source` is the process that wrote it."""

    number: int
    time: str
    level: str
    source: str
    name: str
    text: str


class HouseView(Protocol):
    """The data of the dashboard, by viewer. Each call looks anew, and raises only errors of the house."""

    @property
    def pages(self) -> Sequence[PageLink]:
        """Pages besides those that every dashboard has."""
        ...

    async def stages(self, viewer: Viewer) -> list[Stage]: ...

    async def page(self, name: str, viewer: Viewer, choice: Mapping[str, str]) -> list[Section]:
        """`choice` are parameters of the page's address."""
        ...

    async def events(self, viewer: Viewer, after: int) -> list[ShownEvent]:
        """Those behind a number, newest first."""
        ...

    async def change_documents(self, change: DocumentChange, index: str, keys: Sequence[str], viewer: Viewer) -> int:
        """Queue documents of the viewer's tenant to be read again or forgotten; how many."""
        ...


def verdict(stages: Sequence[Stage]) -> tuple[StageState, str]:
    """Whether anything is lost or late, in one line."""
    titles: dict[StageState, list[str]] = {}
    for stage in stages:
        titles.setdefault(stage.state, []).append(stage.title)
    if StageState.LOST in titles:
        lost = [f"{stage.lost or 'data'} in {stage.title}" for stage in stages if stage.state is StageState.LOST]
        return StageState.LOST, f"Lost: {', '.join(lost)}."
    if StageState.DOWN in titles:
        down = ", ".join(titles[StageState.DOWN])
        return StageState.DOWN, f"Not working: {down}. What was acknowledged is safe and waits."
    if StageState.LATE in titles:
        return StageState.LATE, f"Behind: {', '.join(titles[StageState.LATE])}. Nothing is lost."
    if StageState.ATTENTION in titles:
        aside = ", ".join(titles[StageState.ATTENTION])
        return StageState.ATTENTION, f"Needs attention: {aside}. Nothing is lost, and nothing is late."
    return StageState.OK, "Nothing is lost, and nothing is late."
