"""Dead letters: a record of every batch that could not be read, kept beside the queue for a person to look at.

Records lie in a folder of their own, one JSON object a sequence: `{prefix}-dead-letters/{sequence}.json`,
and beside it the unreadable bytes, if there were any, as `{sequence}.body`. Names come from the
sequence, so recording one twice writes the same object. The collector never touches them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.buffer.format.manifest import Descriptor, MetadataRange
from penstock.buffer.location import key_of
from penstock.errors import AtCapacity, Corrupt, NotFound, PenstockError
from penstock.objects import ObjectStore
from penstock.undecodable import UNDECODABLE

__all__ = ["DeadLetter", "DeadLetters", "Replay"]

# Enough digits for any u64, so that names sort like sequences.
_DIGITS: Final = 20


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """How a dead letter is being put back into the queue, or was: `queued_as` tells when it is certain."""

    location: str
    # The entry can only be at or behind this sequence.
    not_before: int
    # The consumer's by then: under a later one, a collector may have taken the object for garbage.
    fence: int
    started_ms: int
    queued_as: int | None = None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that could not be read, and why."""

    sequence: int
    location: str
    reason: str
    error: str
    recorded_ms: int
    metadata: tuple[MetadataRange, ...]
    body_key: str | None = None
    replay: Replay | None = None


class DeadLetters:
    """The dead letters of one queue."""

    def __init__(self, store: ObjectStore, data_path_prefix: str) -> None:
        self._store = store
        self.folder = f"{data_path_prefix}-dead-letters"

    async def record(self, descriptor: Descriptor, error: PenstockError, now_ms: int) -> DeadLetter:
        """Write down what happened. Durable when this returns; only then may the entry leave the manifest."""
        letter = DeadLetter(
            sequence=descriptor.sequence,
            location=descriptor.location,
            reason="missing" if isinstance(error, NotFound) else "unreadable",
            error=f"{type(error).__name__}: {error}",
            recorded_ms=now_ms,
            metadata=descriptor.metadata,
            body_key=await self._keep_body(descriptor, error),
        )
        await self._store.put(f"{self._stem(descriptor.sequence)}.json", msgspec.json.encode(letter))
        return letter

    async def read(self, sequence: int) -> DeadLetter:
        """The record of one sequence, or `NotFound`."""
        return (await self.read_version(sequence))[0]

    async def read_version(self, sequence: int) -> tuple[DeadLetter, str]:
        """The record, and the version that it has in the store."""
        try:
            found = await self._store.get(f"{self._stem(sequence)}.json")
        except NotFound as error:
            what = f"there is no dead letter {sequence} in {self._store.url}"
            raise NotFound(what, f"nothing is recorded under {self.folder}", "see `penstock buffer inspect`") from error
        try:
            return msgspec.json.decode(found.data, type=DeadLetter), found.meta.version
        except UNDECODABLE as error:
            raise Corrupt(f"dead letter {found.meta.key!r} is damaged", str(error)) from error

    async def amend(self, letter: DeadLetter, replay: Replay, version: str) -> str:
        """Write down how far a replay has come; the new version. `Conflict` when somebody else did meanwhile."""
        amended = msgspec.structs.replace(letter, replay=replay)
        meta = await self._store.put_if(
            f"{self._stem(letter.sequence)}.json", msgspec.json.encode(amended), version=version
        )
        return meta.version

    async def sequences(self, first: int, end: int) -> set[int]:
        """The sequences of `[first, end)` that have a record."""
        found: set[int] = set()
        # The offset is exclusive, and no name of a smaller sequence sorts behind this one.
        async for page in self._store.list(f"{self.folder}/", offset=self._stem(first)):
            for meta in page:
                sequence = self._sequence_of(meta.key)
                if sequence is not None and sequence >= end:
                    return found
                if sequence is not None:
                    found.add(sequence)
        return found

    async def _keep_body(self, descriptor: Descriptor, error: PenstockError) -> str | None:
        if isinstance(error, NotFound):
            return None
        key = f"{self._stem(descriptor.sequence)}.body"
        try:
            found = await self._store.get(key_of(descriptor.location, self._store.url))
        except (NotFound, AtCapacity, Corrupt):
            # Gone, too large to copy, or of a name that nothing can have: the record alone must do.
            return None
        await self._store.put(key, found.data)
        return key

    def _stem(self, sequence: int) -> str:
        return f"{self.folder}/{sequence:0{_DIGITS}d}"

    def _sequence_of(self, key: str) -> int | None:
        name = key.removeprefix(f"{self.folder}/")
        digits = name.removesuffix(".json")
        return int(digits) if digits != name and digits.isdecimal() else None
