"""How far a source of files is registered: its position lies in the same conditional write as its files.

That makes a registration happen once: whatever a source sends again after a crash, at or below its position
in a shard, is in that shard already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import index
from typing import Final, SupportsIndex

import msgspec

from penstock.catalog.change.lookup import check_label, check_open
from penstock.catalog.format.head import CatalogHead
from penstock.errors import AtCapacity, Conflict, InvalidInput

__all__ = [
    "Registered",
    "SourceMove",
    "SourceProgress",
    "forget_source",
    "progress",
    "source_move",
]

# A source is a pipeline's queue: a head with more of them is filled by somebody who names each batch.
SOURCES_MAX: Final = 1024
_POSITION_MAX: Final = 2**63 - 1


class Registered(dict[str, int]):
    """The sequence of each shard that was asked. `repeated` names those that had the source's position before."""

    def __init__(self, sequences: Mapping[str, int], repeated: Iterable[str] = ()) -> None:
        super().__init__(sequences)
        self.repeated = tuple(sorted(repeated))


class SourceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The registered position of a source; None before its first.

    `complete` is the last position that every shard has, `started` the last that any shard has. They differ when
    a process died between two shards: then the batch that ends at `started` has to be registered once more.
    """

    complete: int | None
    started: int | None

    @property
    def is_settled(self) -> bool:
        return self.complete == self.started


class SourceMove:
    """A source on its way to a position, and the shards that had reached it before.

    `since` is where the batch begins, -1 for the first of all: a shard that is elsewhere holds other batches.
    """

    def __init__(self, source: str, position: int, since: int | None = None) -> None:
        self._source = source
        self._position = position
        self._since = since
        self.repeated: set[str] = set()

    def applied(self, head: CatalogHead, change: Callable[[], CatalogHead]) -> CatalogHead:
        """Make a change together with the move; if the shard has the position already, neither."""
        check_open(head)
        # A change may be tried several times, and the last time counts.
        self.repeated.discard(head.shard)
        known = head.sources.get(self._source, -1)
        if self._position <= known:
            self.repeated.add(head.shard)
            return head
        if self._since not in (None, known):
            why = f"it begins after {self._since}, and shard {head.shard or 'root'!r} is at {known}"
            raise Conflict(f"a batch of source {self._source!r} was not registered", why, "read the progress again")
        if self._source not in head.sources and len(head.sources) >= SOURCES_MAX:
            why = f"{SOURCES_MAX} sources are known, and every one of them is kept"
            raise AtCapacity(f"source {self._source!r} cannot be added", why, "forget sources that have ended")
        after = change()
        return replace(after, sources={**after.sources, self._source: self._position}, is_draft=True)


def source_move(
    source: str | None, position: SupportsIndex | None, since: SupportsIndex | None = None
) -> SourceMove | None:
    """None without a source; a source without a position, or one without a source, is refused."""
    if source is None and position is None and since is None:
        return None
    if source is None or position is None:
        raise InvalidInput("a registration names a source or a position", "give both, or neither")
    check_label("source", source)
    number = _number(source, position, 0)
    before = None if since is None else _number(source, since, -1)
    if before is not None and before >= number:
        raise InvalidInput(f"a batch of {source!r} ends at {number}", f"it would begin after that, at {before}")
    return SourceMove(source, number, before)


def _number(source: str, position: SupportsIndex, least: int) -> int:
    try:
        number = least - 1 if isinstance(position, bool) else index(position)
    except TypeError:
        number = least - 1
    if not least <= number <= _POSITION_MAX:
        raise InvalidInput(
            f"the position of {source!r} = {position!r:.60}", f"positions are whole numbers, {least} or larger"
        )
    return number


def forget_source(head: CatalogHead, source: str) -> CatalogHead:
    """Let a source begin anew, or make room for others."""
    check_open(head)
    if source not in head.sources:
        return head
    kept = {name: position for name, position in head.sources.items() if name != source}
    return replace(head, sources=kept, is_draft=True)


def progress(heads: Iterable[CatalogHead], source: str) -> SourceProgress:
    found = [head.sources.get(source) for head in heads]
    known = [position for position in found if position is not None]
    return SourceProgress(
        complete=min(known) if known and len(known) == len(found) else None, started=max(known, default=None)
    )
