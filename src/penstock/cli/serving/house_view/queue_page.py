"""The queues of a store: what waits, who holds the fence, and what was set aside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.buffer import DeadLetters, Lag, Manifest, lag_of, queued_now, read_routing, shard_path
from penstock.cli.serving.house_view.looking import KeptLooks
from penstock.cli.serving.house_view.units import counted, seconds_text, time_text
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import PenstockError
from penstock.gateway import Fact, Section, TableView
from penstock.objects import ObjectStore

__all__ = ["QueueView", "queue_sections"]

_ROWS_MAX: Final = 100
_LETTERS_MAX: Final = 50
_LETTERS_SECONDS: Final = 30.0


async def _nowhere() -> int | None:
    return None


@dataclass(frozen=True)
class QueueView:
    """A queue of the store. `position` tells how far its consumer has stored it; None: what is listed waits."""

    title: str
    store: ObjectStore
    manifest_path: str
    data_path_prefix: str
    position: Callable[[], Awaitable[int | None]] = _nowhere
    # Whether it may be several queues, by the store's routing.
    is_sharded: bool = False
    clock: Clock = SYSTEM_CLOCK
    looks: KeptLooks = field(default_factory=lambda: KeptLooks(_LETTERS_SECONDS))

    async def shards(self) -> list[QueueView]:
        """The queues that it is: this one, unless the store routes to several."""
        if not self.is_sharded:
            return [self]

        async def routed() -> int:
            return len((await read_routing(self.store)).shards)

        count: int = await self.looks.get(("shards", self.title), routed)
        return [self if count == 1 else self._shard(number) for number in range(count)]

    def _shard(self, number: int) -> QueueView:
        manifest, data = (shard_path(path, number) for path in (self.manifest_path, self.data_path_prefix))
        title = f"{self.title}, shard {number}"
        return replace(self, title=title, manifest_path=manifest, data_path_prefix=data, is_sharded=False)

    async def read(self) -> tuple[Manifest, int | None, Lag]:
        manifest, position = await queued_now(self.store, self.manifest_path), await self.position()
        return manifest, position, lag_of(manifest, position, self.clock.now_ms())

    async def dead_letters(self, manifest: Manifest) -> list[int]:
        """The sequences that were set aside, newest first."""

        async def listed() -> list[int]:
            letters = DeadLetters(self.store, self.data_path_prefix)
            return sorted(await letters.sequences(0, manifest.next_sequence), reverse=True)

        found: list[int] = await self.looks.get((self.title, self.store.url), listed)
        return found


async def queue_sections(queue: QueueView) -> list[Section]:
    """Of every shard that it has."""
    try:
        shards = await queue.shards()
    except PenstockError as error:
        return [Section(queue.title, error=str(error))]
    return [section for shard in shards for section in await _shard_sections(shard)]


async def _shard_sections(queue: QueueView) -> list[Section]:
    try:
        manifest, position, lag = await queue.read()
        letters = await queue.dead_letters(manifest)
    except PenstockError as error:
        return [Section(queue.title, error=str(error))]
    rows = [(str(one.sequence), one.location) for one in manifest.after(position, _ROWS_MAX)]
    facts = [
        Fact("fence", str(manifest.fence)),
        Fact("next sequence", f"{manifest.next_sequence:,}"),
        # Unknown where the consumer keeps its position in another store; what it stored is not listed any more.
        *([] if position is None else [Fact("stored through", f"{position:,}")]),
        Fact("waiting", counted(lag.batches, "batch", "batches")),
        Fact("lag", seconds_text(lag.seconds)),
        Fact("dead letters", f"{len(letters):,}"),
    ]
    note = f"The first {_ROWS_MAX} of {lag.batches:,} batches." if lag.batches > _ROWS_MAX else ""
    table = TableView(("sequence", "batch object"), rows, frozenset({0}), "No batches wait.")
    sections = [Section(queue.title, facts, table, note=note)]
    if letters:
        sections.append(await _letter_section(queue, letters))
    return sections


async def _letter_section(queue: QueueView, sequences: list[int]) -> Section:
    letters = DeadLetters(queue.store, queue.data_path_prefix)
    rows = []
    for sequence in sequences[:_LETTERS_MAX]:
        try:
            letter = await letters.read(sequence)
        except PenstockError as error:
            rows.append((str(sequence), "–", "unreadable", str(error)))
            continue
        replayed = "replayed" if letter.replay is not None else letter.reason
        rows.append((str(sequence), time_text(letter.recorded_ms), replayed, letter.error))
    note = "`penstock buffer replay` puts a batch back into the queue once its object is readable again."
    table = TableView(("sequence", "set aside (UTC)", "state", "error"), rows, frozenset({0}))
    return Section(f"{queue.title}: dead letters", table=table, note=note)
