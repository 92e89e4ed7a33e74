"""How far each source is stored: a position lies in the same write batch as the data that came with it.

That is what makes a write happen once: whatever was sent again after a crash, and lies at or below its source's
position, is in the store already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Final, SupportsIndex

from penstock.blocks.format.envelope import RecordKind
from penstock.blocks.format.keys import POSITIONS, check_name, position_key
from penstock.blocks.format.store_format import StoreFormat
from penstock.errors import Corrupt, InvalidInput
from penstock.keyvalue import Reader

__all__ = ["SourcePositions", "check_position", "is_stored", "position_operation", "read_positions"]

_POSITION_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SourcePositions:
    """The positions of sources, and those that cannot be read."""

    known: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, Corrupt] = field(default_factory=dict)

    def of(self, source: str) -> int | None:
        """The last position of a source that is stored; None if nothing of it is."""
        if source in self.unknown:
            raise self.unknown[source]
        return self.known.get(source)


def check_position(source: str | None, position: SupportsIndex | None) -> int | None:
    """A position as Python's own number; a source without one, or one without a source, is refused."""
    if source is None and position is None:
        return None
    if source is None or position is None:
        raise InvalidInput("a change names a source or a position", "give both, or neither")
    check_name("source", source)
    try:
        number = -1 if isinstance(position, bool) else index(position)
    except TypeError:
        number = -1
    if not 0 <= number <= _POSITION_MAX:
        raise InvalidInput(f"the position of {source!r} = {position!r:.60}", "positions are whole numbers, 0 or larger")
    return number


def is_stored(positions: Mapping[str, int], source: str | None, position: int | None) -> bool:
    """Whether a source has passed a position already."""
    return source is not None and position is not None and position <= positions.get(source, -1)


def position_operation(format: StoreFormat, source: str, position: int | None) -> tuple[bytes, bytes | None]:
    """The write that sets a source's position; None resets the source."""
    if position is None:
        return position_key(source), None
    return position_key(source), format.envelope.seal(RecordKind.POSITION, position.to_bytes(8, "little"))


async def read_positions(reader: Reader, format: StoreFormat) -> SourcePositions:
    """All positions; one that is damaged stops nobody but its own source."""
    found = SourcePositions()
    async for entries in reader.scan_prefix(POSITIONS):
        for key, value in entries:
            source = key[len(POSITIONS) :].decode()
            try:
                found.known[source] = int.from_bytes(format.envelope.unseal(RecordKind.POSITION, value), "little")
            except Corrupt as error:
                remedy = f"state it with `{format.repair} --position {source}=NUMBER`"
                found.unknown[source] = Corrupt(f"the position of {source!r} cannot be read", str(error), remedy)
    return found
