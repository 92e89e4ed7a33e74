"""Whose folder it is: one folder of batch objects belongs to one manifest, and a marker in it says to which.

A collector deletes what its own manifest does not name, so two queues in one folder would delete each
other's batches. Producers and consumers write the marker when they open an unmarked folder and refuse a
folder that is marked for another manifest; a collector deletes nothing without its own marker. The
public format collects `ULID.batch` alone, so it never touches the marker. Format page:
docs/format/buffer.md.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.buffer.location import bucket_prefix, owner_location
from penstock.clock import Clock
from penstock.errors import Corrupt, InvalidInput, NotFound, Unsupported
from penstock.ids import Entropy
from penstock.objects import ObjectStore, Register, RegisterPolicy, Token
from penstock.observability import Observer
from penstock.undecodable import UNDECODABLE

__all__ = ["Ownership"]

VERSION: Final = 1


class _Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The marker's JSON: the manifest that owns the folder, by its key in the whole bucket."""

    version: int = VERSION
    manifest: str


class Ownership:
    """What one manifest has to say about one folder."""

    def __init__(self, store: ObjectStore, data_path_prefix: str, manifest_path: str) -> None:
        self._store = store
        self._folder = data_path_prefix
        self._key = owner_location(data_path_prefix)
        self._mine = _Marker(manifest=f"{bucket_prefix(store.url)}{manifest_path}")
        self.claimed = False

    async def claim(self, *, deadline_seconds: float, clock: Clock, entropy: Entropy, observer: Observer) -> None:
        """Mark the folder unless it is marked already; `InvalidInput` when it is another's. Done once."""
        if self.claimed:
            return
        policy = RegisterPolicy(deadline_seconds=deadline_seconds, attempt_seconds=min(10.0, deadline_seconds / 2))
        register = Register(
            self._store,
            self._key,
            _MarkerFormat(),
            name="buffer.owner",
            policy=policy,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        try:
            await register.update(self._marked, landed=lambda found: found == self._mine)
        finally:
            await register.close()
        self.claimed = True

    async def check(self) -> None:
        """Raise `InvalidInput` unless the folder is marked for this manifest. Writes nothing."""
        try:
            found = _MarkerFormat().decode((await self._store.get(self._key)).data)
        except NotFound as error:
            raise InvalidInput(
                f"nothing is collected in {self._folder!r}",
                f"it has no marker {self._key!r}, so it may belong to another manifest than {self._mine.manifest!r}",
                "open a producer or consumer of the queue once: it marks the folder",
            ) from error
        self._marked(found)

    def _marked(self, found: _Marker | None) -> _Marker:
        if found is None or found == self._mine:
            return found or self._mine
        raise InvalidInput(
            f"data_path_prefix = {self._folder!r} belongs to another queue",
            f"{self._key!r} names the manifest {found.manifest!r}, and this one is {self._mine.manifest!r}: "
            "in one folder their collectors would delete each other's batches",
            "give each manifest its own data_path_prefix; if the other queue is gone, delete the marker",
        )


class _MarkerFormat:
    """How a register reads and writes the marker. It is written once, so it needs no nonce, and it has no fence."""

    def empty(self) -> _Marker | None:
        return None

    def decode(self, body: bytes) -> _Marker:
        try:
            found = msgspec.json.decode(body, type=_Marker)
        except UNDECODABLE as error:
            raise Corrupt("the marker of a queue's folder is damaged", str(error)) from error
        if found.version != VERSION:
            raise Unsupported(f"marker of version {found.version}", f"this release reads version {VERSION}")
        return found

    def encode(self, value: _Marker | None) -> bytes:
        return msgspec.json.encode(value)

    def fence(self, value: _Marker | None) -> int:
        return 0

    def with_fence(self, value: _Marker | None, fence: int) -> _Marker | None:
        return value

    def next_fence(self, fence: int) -> int:
        return fence

    def stamp(self, value: _Marker | None, token: Token) -> _Marker | None:
        return value

    def landed(self, value: _Marker | None, token: Token) -> bool | None:
        return None
