"""The documents that are planned and not done, and how a round is shared out among them. Pure.

Whoever has had least is next: first among tenants, then among a tenant's collections, then among a collection's
documents, a cell at a time. So a text of a gigabyte takes no more than its share of a round, and small documents of any
tenant are done before its second cell is read. Documents whose bucket or model does not answer sleep: they are held, and
nobody waits for them. The backlog mirrors what the registry holds as pending, in an order that
lies there too: after a crash it is the same, and so is the round that was interrupted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeAlias

from penstock.documents import ChunkingConfig, Progress
from penstock.indexing.planning.apart import first_apart, in_turn, is_apart
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.planning.readiness import Readiness
from penstock.indexing.registry.entries import DocumentEntry, Pending
from penstock.indexing.stages.readings import ReadRequest
from penstock.vector import CollectionName

__all__ = ["Backlog", "Share", "remaining_bytes", "share_out", "wakes_ms"]

Waiting: TypeAlias = tuple[CollectionName, DocumentEntry]
_Turn: TypeAlias = tuple[int, tuple[CollectionName, str]]


@dataclass(frozen=True, slots=True)
class Share:
    """What a round reads of one document."""

    name: CollectionName
    entry: DocumentEntry
    cells: int

    @property
    def pending(self) -> Pending:
        assert self.entry.pending is not None
        return self.entry.pending

    def request(self, cell_bytes: int, chunking: ChunkingConfig) -> ReadRequest:
        """What the reading stage is asked for, cut as the document's index wants it."""
        pending = self.pending
        return ReadRequest(
            upload=pending.upload,
            progress=pending.progress,
            first_cell=pending.progress.next_byte_start // cell_bytes,
            cells=self.cells,
            chunking=chunking,
            text_bytes=pending.text_bytes,
            parsed=pending.parsed,
            apart=is_apart(pending),
            bytes_left=remaining_bytes(pending),
        )

    @property
    def work(self) -> tuple[CollectionName, str, str, Progress, int]:
        """What decides on what is read: two shares of one work are read alike."""
        pending = self.pending
        return self.name, self.entry.object_key, pending.version, pending.progress, self.cells


class Backlog:
    """Pending entries by their turn. Not for several threads at once."""

    def __init__(
        self, limits: RoundLimits, source_of: Callable[[CollectionName], str] = lambda name: name.model
    ) -> None:
        """`source_of` names what embeds for a collection: all that have the same one answer or wait together."""
        self._limits, self._source_of = limits, source_of
        # In the order of turns, as long as each comes with a later one than all before it; else it is put in order once.
        self._entries: dict[tuple[CollectionName, str], DocumentEntry] = {}
        self._last: _Turn | None = None
        self._in_order = True
        self._asleep: dict[tuple[CollectionName, str], DocumentEntry] = {}
        self._readiness = Readiness()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Waiting]:
        """In the order of their turns."""
        if not self._in_order:
            self._entries = dict(sorted(self._entries.items(), key=_turn))
            self._last, self._in_order = max(map(_turn, self._entries.items()), default=None), True
        return ((name, entry) for (name, _), entry in list(self._entries.items()))

    @property
    def over(self) -> bool:
        """Whether more can be read than may wait."""
        limits, ready = self._limits, self._readiness
        return ready.documents > limits.backlog_documents_max or ready.bytes > limits.backlog_bytes_max

    @property
    def ready(self) -> bool:
        """Whether somebody waits who can be read."""
        return self._readiness.any

    @property
    def trials(self) -> frozenset[str]:
        """Sources that did not answer, and one document of which is to be tried."""
        return self._readiness.trials

    @property
    def overheld(self) -> bool:
        """Whether more documents are held than may be, for buckets and models that do not answer."""
        if len(self) <= self._limits.held_documents_max:
            return False
        return len(self) - self._readiness.documents > self._limits.held_documents_max

    @property
    def asleep(self) -> list[Waiting]:
        """Those that are left alone until their buckets are tried again."""
        return [(name, entry) for (name, _), entry in self._asleep.items()]

    @property
    def next_turn(self) -> int:
        """Behind everybody who waits."""
        return max((_pending(entry).turn for entry in self._entries.values()), default=0) + 1

    def put(self, name: CollectionName, entry: DocumentEntry) -> Pending | None:
        """What is now known of a document replaces what was: it waits, or it is done. What was waiting before."""
        place = (name, entry.object_key)
        before = self._entries.pop(place, None)
        self._asleep.pop(place, None)
        if before is not None:
            self._count(name, before, -1)
        if entry.pending is not None:
            turn = _turn((place, entry))
            if self._last is None or not self._entries or turn > self._last:
                self._last = turn
            else:
                self._in_order = False
            self._entries[place] = entry
            self._count(name, entry, 1)
            if entry.pending.asleep:
                self._asleep[place] = entry
        return before.pending if before is not None else None

    def round(self, cell_bytes: int, *, without: Container[tuple[CollectionName, str]] = ()) -> list[Share]:
        """The next round; empty when nobody can be read. `without` those that are worked on, the one after it."""
        ready = ((name, entry) for name, entry in self._ready() if (name, entry.object_key) not in without)
        return share_out(in_turn(ready), self._limits, cell_bytes)

    def apart(self, cell_bytes: int) -> Share | None:
        """What the next document that was put aside has in the round of its own."""
        first = first_apart(self._ready())
        return share_out([first], self._limits, cell_bytes)[0] if first else None

    def _ready(self) -> Iterator[Waiting]:
        return ((name, entry) for name, entry in self if self._readiness.of(self._source_of(name), _pending(entry)))

    def _count(self, name: CollectionName, entry: DocumentEntry, sign: int) -> None:
        pending = _pending(entry)
        size = remaining_bytes(pending)
        self.bytes += sign * size
        self._readiness.count(self._source_of(name), pending, size, sign)


def share_out(waiting: Iterable[Waiting], limits: RoundLimits, cell_bytes: int) -> list[Share]:
    """Cells for those that wait, until the round is full; at least one. `waiting` is in the order of turns."""
    tenants = _Line()
    lines: dict[CollectionName, _Line] = {}
    for name, entry in waiting:
        if name not in lines:
            lines[name] = tenants.line(name.tenant).line(f"{name.index}\0{name.model}")
        # Who has had nothing comes first, so nobody behind so many gets anything; the last one tells that more wait.
        if len(lines[name]) <= limits.documents_max:
            lines[name].join(_Document(name, entry, limits.cells_max, cell_bytes))
    chosen: list[_Document] = []
    total = 0
    while (given := tenants.give()) is not None:
        document, size = given
        total += size
        if chosen and (total > limits.bytes_max or len(chosen) + document.is_new > limits.documents_max):
            document.cells -= 1
            break
        if document.is_new:
            chosen.append(document)
    return [Share(document.name, document.entry, document.cells) for document in chosen]


def remaining_bytes(pending: Pending) -> int:
    """What is still to be read, as far as is known: one that says it is empty is looked at nevertheless."""
    size = pending.upload.size_bytes if pending.text_bytes is None else pending.text_bytes
    return max(1, size - pending.progress.next_byte_start)


class _Member(Protocol):
    def give(self) -> tuple[_Document, int] | None:
        """One cell to whoever is next here, and its bytes; None when nobody wants more."""
        ...


class _Line:
    """Members that share what their line gets: whoever has had least is next, and the first to come among equals."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._members: list[tuple[int, int, _Member]] = []
        self._places = count()

    def __len__(self) -> int:
        return len(self._members)

    def line(self, name: str) -> _Line:
        if name not in self._lines:
            self._lines[name] = _Line()
            self.join(self._lines[name])
        return self._lines[name]

    def join(self, member: _Member) -> None:
        heapq.heappush(self._members, (0, next(self._places), member))

    def give(self) -> tuple[_Document, int] | None:
        while self._members:
            had, place, member = self._members[0]
            given = member.give()
            if given is None:
                heapq.heappop(self._members)
                continue
            heapq.heapreplace(self._members, (had + given[1], place, member))
            return given
        return None


class _Document:
    """What one document has been given of a round."""

    def __init__(self, name: CollectionName, entry: DocumentEntry, cells_max: int, cell_bytes: int) -> None:
        self.name, self.entry, self.cells = name, entry, 0
        self._cells_max, self._cell_bytes = cells_max, cell_bytes
        # From the start of the cell it has come to: a cell is read whole or not at all.
        pending = _pending(entry)
        self._left = remaining_bytes(pending) + pending.progress.next_byte_start % cell_bytes

    @property
    def is_new(self) -> bool:
        """Whether what it was given last was its first."""
        return self.cells == 1

    def give(self) -> tuple[_Document, int] | None:
        if self._left <= 0 or self.cells >= self._cells_max:
            return None
        size = min(self._left, self._cell_bytes)
        self._left -= size
        self.cells += 1
        return self, size


def wakes_ms(entry: DocumentEntry) -> int:
    """When a document that sleeps is to be tried again."""
    wait = _pending(entry).wait
    return wait.until_ms if wait else 0


def _turn(item: tuple[tuple[CollectionName, str], DocumentEntry]) -> _Turn:
    """What decides on the order of those that wait."""
    place, entry = item
    return _pending(entry).turn, place


def _pending(entry: DocumentEntry) -> Pending:
    assert entry.pending is not None
    return entry.pending
