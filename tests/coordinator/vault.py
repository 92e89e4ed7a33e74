"""A store for the coordinator's simulation: a memory that a crash loses, a disk that it does not, and faults.

Zones of fault. A flush may be slow, fail before it lands, land and lose its answer, or fail for good, also
with what is no `Exception`. The wait for durability may be slow, fail before or after the disk has the write. The session may die under its
writer: what is in memory only is lost, every call fails, and a repeat opens it again. A crash of the process
loses the same, except that an upload already under way may still reach the disk. The vault itself never
loses what it has on disk, never reorders, and never tears a batch.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from penstock.clock import Clock
from penstock.coordinator import Epochs, Flushed
from penstock.errors import Fenced, OutcomeUnknown, StorageFull, Unavailable
from penstock.testing import SeededEntropy

Row: TypeAlias = tuple[str, int]

# Few, so that most writes overwrite another.
DRAWERS = 3


def on_the_tick(seconds: float) -> float:
    """Whole hundredths: what ends at one moment races, and the seed decides who is first."""
    return round(seconds, 2)


class Rows:
    """Rows that append, so that one lost or doubled shows; and drawers that overwrite, so that a wrong order shows."""

    def __init__(self, *rows: Row, position: int = 0, size_bytes: int = 0) -> None:
        self.rows = list(rows)
        self.drawers = {drawer_of(row): row for row in rows}
        self.position = position
        self.size_bytes = size_bytes

    def merge(self, later: Rows) -> None:
        self.rows += later.rows
        self.drawers.update(later.drawers)
        self.position = max(self.position, later.position)


def drawer_of(row: Row) -> int:
    return row[1] % DRAWERS


class Interruption(BaseException):
    """What libraries raise to stop a program, past every `except Exception`."""


@dataclass(frozen=True)
class Batch:
    """What lands together: rows, drawers, the source's position, and the proof of which flush wrote it."""

    rows: tuple[Row, ...]
    drawers: dict[int, Row]
    position: int
    proof: tuple[int, int]


@dataclass
class Weather:
    """How often each fault strikes; all zero is fair weather."""

    unavailable: float = 0.0
    lost_answer: float = 0.0
    fatal: float = 0.0
    death: float = 0.0
    slow: float = 0.0

    @classmethod
    def drawn(cls, entropy: SeededEntropy) -> Weather:
        worst = entropy.choice([0.0, 0.15, 0.4])
        return cls(
            unavailable=entropy.uniform(0, worst),
            lost_answer=entropy.uniform(0, worst),
            fatal=entropy.uniform(0, worst / 4),
            death=entropy.uniform(0, worst / 4),
            slow=entropy.uniform(0, worst / 2),
        )


@dataclass
class Vault:
    """The disk, and the generation of who may write to it."""

    disk: list[Batch] = field(default_factory=list)
    fence: int = 0

    def rows(self) -> list[Row]:
        return [row for batch in self.disk for row in batch.rows]

    def drawers(self) -> dict[int, Row]:
        return {drawer: row for batch in self.disk for drawer, row in batch.drawers.items()}

    def open(self, clock: Clock, entropy: SeededEntropy, weather: Weather) -> Session:
        self.fence += 1
        return Session(self, self.fence, clock, entropy, weather)


class Session:
    """One writer's handler: its memory is a log of batches, of which the disk has a prefix."""

    def __init__(self, vault: Vault, fence: int, clock: Clock, entropy: SeededEntropy, weather: Weather) -> None:
        self.vault = vault
        self.fence = fence
        self.weather = weather
        self.log = list(vault.disk)
        self.position = max((batch.position for batch in self.log), default=0)
        self._clock = clock
        self._entropy = entropy
        # What the coordinator did wrong. Kept, because to the coordinator an error here is only a failed flush.
        self.violations: list[str] = []
        self._busy = False
        self._dead = False
        self._opened = 1
        self._last_handed = 0
        self._handed: dict[int, Rows] = {}

    def empty(self) -> Rows:
        return Rows()

    async def flush(self, delta: Rows, snapshot: tuple[Row, ...], epochs: Epochs) -> Flushed[tuple[Row, ...]]:
        self._check(delta, epochs)
        self._busy = True
        try:
            if self._dead and epochs.repeat:
                self.log, self._dead, self._opened = list(self.vault.disk), False, self._opened + 1
            await self._pass_time(0.02)
            self._strike(before_landing=True)
            self._land(delta, (self.fence, epochs.first), epochs.repeat)
            await self._pass_time(0.02)
            self._strike(before_landing=False)
        finally:
            self._busy = False
        durable = partial(self._durable, len(self.log), self._opened)
        return Flushed(tuple(row for batch in self.log for row in batch.rows), durable)

    def crash(self) -> None:
        """What was still being uploaded reaches the disk in part, in order."""
        if self.fence == self.vault.fence:
            self._persist(len(self.vault.disk) + self._entropy.below(len(self.log) - len(self.vault.disk) + 1))

    def _land(self, delta: Rows, proof: tuple[int, int], repeat: bool) -> None:
        if self.fence != self.vault.fence:
            raise Fenced("the vault has a newer writer")
        landed = any(batch.proof == proof for batch in self.log)
        self._demand(repeat or not landed, "handed over twice without being marked as a repeat")
        # The same write again: rows that are there stay single, and drawers are overwritten once more.
        self.log.append(Batch(() if landed else tuple(delta.rows), dict(delta.drawers), delta.position, proof))

    async def _durable(self, upto: int, opened: int) -> None:
        # Slower than landing, as in life, so that several flushes are on their way at one time.
        await self._pass_time(0.2)
        if opened != self._opened:
            raise OutcomeUnknown("the vault died, and was opened again")
        self._strike(before_landing=True)
        self._persist(upto)
        await self._pass_time(0.1)
        self._strike(before_landing=False)

    def _persist(self, upto: int) -> None:
        if self.fence != self.vault.fence:
            raise Fenced("the vault has a newer writer")
        if upto > len(self.vault.disk):
            self.vault.disk = self.log[:upto]

    def _check(self, delta: Rows, epochs: Epochs) -> None:
        self._demand(not self._busy, "two flushes at one time")
        self._demand(len(delta.rows) == len(epochs), "epochs without their writes")
        if epochs.repeat:
            self._demand(self._handed.get(epochs.first) is delta, "a repeat of something else")
        else:
            self._demand(epochs.first == self._last_handed + 1, "a gap between flushes")
            self._handed[epochs.first] = delta
            self._last_handed = epochs.last

    def _demand(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.violations.append(otherwise)

    async def _pass_time(self, seconds_max: float) -> None:
        slow = self._entropy.chance(self.weather.slow)
        await self._clock.sleep(on_the_tick(self._entropy.uniform(0, 30 if slow else seconds_max)))

    def _fatal(self, before_landing: bool) -> BaseException:
        if self._entropy.chance(0.3):
            return self._entropy.choice([Interruption("a signal"), asyncio.CancelledError(), GeneratorExit()])
        return StorageFull("the vault is full") if before_landing else ValueError("a bug in the vault")

    def _strike(self, *, before_landing: bool) -> None:
        self._dead = self._dead or self._entropy.chance(self.weather.death)
        if self._dead:
            raise OutcomeUnknown("the vault is dead")
        if self._entropy.chance(self.weather.fatal):
            raise self._fatal(before_landing)
        if before_landing and self._entropy.chance(self.weather.unavailable):
            raise Unavailable("the vault does not answer")
        if not before_landing and self._entropy.chance(self.weather.lost_answer):
            raise OutcomeUnknown("the vault's answer was lost")
