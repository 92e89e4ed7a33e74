"""What the job knows at a position: the marks of relays, and the columns of tables. One small object a round.

It is written before the round is committed, under the position that the commit will have. Which one counts is decided
by that commit, so it needs no commit of its own; the ones before are removed behind it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.errors import Corrupt, NotFound, Unsupported
from penstock.objects import ObjectStore
from penstock.undecodable import UNDECODABLE

__all__ = ["LandingState", "StateShelf"]

_VERSION: Final = 1
FOLDER: Final = "landing"


def plain_name(name: str) -> str:
    """A name as one segment of a path."""
    return "".join(one if (one.isalnum() and one.isascii()) or one in "-_" else f"%{ord(one):X}" for one in name)


class LandingState(msgspec.Struct, frozen=True):
    """Of everything up to and including `position`."""

    position: int = -1
    # The highest ordinal and part of each relay.
    marks: dict[str, tuple[int, int]] = {}
    # Tenant, table, and the types of its columns.
    tables: list[tuple[str, str, dict[str, str]]] = []
    # Totals of series whose points are differences, by a hash of tenant and labels.
    totals: dict[str, float] = {}
    version: int = _VERSION

    @property
    def known(self) -> dict[tuple[str, str], dict[str, str]]:
        return {(tenant, table): dict(columns) for tenant, table, columns in self.tables}


class StateShelf:
    """The states of one source, below a prefix."""

    def __init__(self, store: ObjectStore, source: str) -> None:
        self._store = store
        # Beside the catalog and not below it: who cleans up data files does not meet these.
        self._folder = f"{FOLDER}/{plain_name(source)}"

    async def read(self, position: int) -> LandingState:
        """The state at a position; an empty one before the first."""
        if position < 0:
            return LandingState()
        try:
            found = msgspec.json.decode((await self._store.get(self._key(position))).data, type=LandingState)
        except NotFound as error:
            raise Corrupt(
                f"the state of the telemetry job at {position} is missing", "it was deleted", "restore it"
            ) from error
        except UNDECODABLE as error:
            raise Corrupt(f"the state of the telemetry job at {position} cannot be read", str(error)) from error
        if found.version != _VERSION:
            raise Unsupported(f"version {found.version} of a job's state cannot be read", f"this is {_VERSION}")
        return found

    async def newest(self) -> LandingState:
        """The last state that was written, committed or not; an empty one before the first."""
        seen = ""
        while keys := [meta.key async for page in self._store.list(f"{self._folder}/") for meta in page]:
            last = max(keys)
            try:
                return await self.read(int(last.rpartition("/")[2].removesuffix(".json")))
            except Corrupt:
                # The job that writes them may have gone on and removed this one.
                if last == seen:
                    raise
                seen = last
        return LandingState()

    async def write(self, state: LandingState) -> None:
        await self._store.put(self._key(state.position), msgspec.json.encode(state))

    async def remove_before(self, position: int) -> None:
        """Nobody goes back behind what both stores have."""
        keep = self._key(position)
        gone = [meta.key async for page in self._store.list(f"{self._folder}/") for meta in page if meta.key < keep]
        if gone:
            await self._store.delete_many(gone)

    def _key(self, position: int) -> str:
        return f"{self._folder}/{position:020}.json"
