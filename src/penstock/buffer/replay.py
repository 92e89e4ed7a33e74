"""Replaying dead letters: a batch that can be read again goes to the end of the queue, under a new sequence, once.

```
intent in the letter ──▶ object under a new name ──▶ entry in the manifest ──▶ the letter says: replayed
  (name, and the next sequence by then)
```
Killed anywhere, the next attempt reads the letter and then the manifest. The entry can only have landed at
or behind the sequence in the intent: as long as nothing from there on has left the queue, the manifest
proves whether it did. Once the consumer has gone past, an entry that is not there may have been consumed:
that is `OutcomeUnknown`, and only a person can say `again`. A letter that was replayed stays as it is, and
replaying it once more does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.buffer.config import ProducerConfig
from penstock.buffer.consuming.cursor import whole_number
from penstock.buffer.consuming.dead_letter import DeadLetter, DeadLetters, Replay
from penstock.buffer.consuming.fetch import UNREADABLE
from penstock.buffer.format.batch import decode_batch
from penstock.buffer.format.manifest import DescriptorDraft, Manifest
from penstock.buffer.location import batch_location, bucket_prefix, key_of
from penstock.buffer.queue import Enqueue, GrownTooOld, manifest_register
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corrupt, DeadlineExceeded, InvalidInput, OutcomeUnknown
from penstock.ids import SYSTEM_ENTROPY, Entropy, ulid
from penstock.objects import ObjectStore
from penstock.observability import SILENT, Observer, names

__all__ = ["Replayed", "Replayer"]

# Objects of one letter that may each outlive their fence or half the grace before it is given up.
_RENEWALS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Replayed:
    """Where a dead letter's batch is queued, or was; `is_new` when this very call put it there."""

    sequence: int
    queued_as: int
    is_new: bool


class Replayer:
    """Puts dead letters of one queue back into it. Takes no fence: it is a producer, and safe beside a consumer."""

    def __init__(
        self,
        store: ObjectStore,
        config: ProducerConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._store = store
        self._config = config or ProducerConfig()
        self._letters = DeadLetters(store, self._config.data_path_prefix)
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._register = manifest_register(
            store,
            self._config.manifest_path,
            role="replayer",
            deadline_seconds=self._config.manifest_deadline_seconds,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )

    async def replay(self, sequence: int, *, again: bool = False) -> Replayed:
        """Enqueue the batch of one dead letter, unless that was done before; with `again`, in any case.

        `NotFound`: there is no such letter. `Corrupt`: its batch still cannot be read. `Conflict`: somebody
        else replays it now. `OutcomeUnknown`: it may have been replayed and consumed.
        """
        sequence = whole_number(sequence, "no dead letter can be replayed")
        letter, version = await self._letters.read_version(sequence)
        manifest = await self._register.read()
        self._check_left(letter, manifest)
        earlier = None if again else letter.replay
        if earlier is not None and (found := _place_of(earlier, manifest)) is not None:
            await self._mark(letter, version, earlier, found)
            return Replayed(sequence, found, is_new=False)
        body, intent = await self._readable(letter), earlier
        for _ in range(_RENEWALS_MAX):
            if intent is None or self._is_too_old(intent, manifest):
                intent = self._intent(manifest)
                version = await self._letters.amend(letter, intent, version)
            try:
                replayed = await self._enqueue(letter, intent, body)
            except GrownTooOld:
                manifest = await self._register.read()
                continue
            await self._mark(letter, version, intent, replayed.queued_as)
            self._observer.event(names.BUFFER_REPLAYED, sequence=sequence, queued_as=replayed.queued_as)
            return replayed
        why = "consumers started, or half the collector's grace passed, during each attempt"
        raise DeadlineExceeded(f"dead letter {sequence} was not replayed", why, "check the store, then replay it again")

    async def close(self) -> None:
        await self._register.close()

    def _check_left(self, letter: DeadLetter, manifest: Manifest) -> None:
        if manifest.location_of(letter.sequence) == letter.location:
            raise InvalidInput(
                f"dead letter {letter.sequence} cannot be replayed yet",
                "its entry is still queued, and a consumer that starts again would deliver it as well",
                "let the consumer take it off: it does so with its next acknowledgements, and when it closes",
            )

    def _intent(self, manifest: Manifest) -> Replay:
        now_ms = self._clock.now_ms()
        key = batch_location(self._config.data_path_prefix, ulid(now_ms, self._entropy))
        location = bucket_prefix(self._store.url) + key
        return Replay(location=location, not_before=manifest.next_sequence, fence=manifest.fence, started_ms=now_ms)

    def _is_too_old(self, intent: Replay, manifest: Manifest) -> bool:
        """Whether its object may be collected as garbage. A write of it that is still under way has failed by then."""
        age_ms = self._clock.now_ms() - intent.started_ms
        return manifest.fence != intent.fence or age_ms >= 1000 * self._config.enqueue_age_seconds_max

    async def _readable(self, letter: DeadLetter) -> bytes:
        """The batch object's bytes, from its own place if somebody put it back, else from beside the letter."""
        failures = []
        for find in (self._at_location, self._beside):
            try:
                body = await find(letter)
                decode_batch(body)
            except UNREADABLE as error:
                failures.append(str(error))
            else:
                return body
        what = f"dead letter {letter.sequence} cannot be replayed"
        raise Corrupt(what, "; ".join(failures), f"put a sound object at {letter.location!r}, or upgrade this reader")

    async def _at_location(self, letter: DeadLetter) -> bytes:
        return (await self._store.get(key_of(letter.location, self._store.url))).data

    async def _beside(self, letter: DeadLetter) -> bytes:
        if letter.body_key is None:
            raise Corrupt("no bytes were kept with the dead letter")
        return (await self._store.get(letter.body_key)).data

    async def _enqueue(self, letter: DeadLetter, intent: Replay, body: bytes) -> Replayed:
        await self._store.put(key_of(intent.location, self._store.url), body)
        enqueue = Enqueue(
            [DescriptorDraft(intent.location, letter.metadata)],
            bytes_max=self._config.manifest_bytes_max,
            too_old=lambda *_: False,
        )

        def once(manifest: Manifest) -> Manifest:
            """Looks for its own entry at every attempt: one of a command that was killed may have landed late."""
            found = _place_of(intent, manifest)
            if found is not None:
                raise _Enqueued(found)
            if self._is_too_old(intent, manifest):
                raise GrownTooOld
            return enqueue(manifest)

        try:
            await self._register.update(once, landed=enqueue.landed)
        except _Enqueued as earlier:
            return Replayed(letter.sequence, earlier.sequence, is_new=False)
        return Replayed(letter.sequence, enqueue.first, is_new=True)

    async def _mark(self, letter: DeadLetter, version: str, replay: Replay, queued_as: int) -> None:
        if replay.queued_as is None:
            await self._letters.amend(letter, msgspec.structs.replace(replay, queued_as=queued_as), version)


class _Enqueued(Exception):
    """It is in the queue already."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence


def _place_of(replay: Replay, manifest: Manifest) -> int | None:
    """Where an attempt put its batch; None when it certainly put it nowhere, `OutcomeUnknown` when nobody can tell."""
    if replay.queued_as is not None:
        return replay.queued_as
    for entry in manifest.after(replay.not_before - 1, len(manifest)):
        if entry.location == replay.location:
            return entry.sequence
    if manifest.first_sequence > replay.not_before:
        why = f"an attempt was cut off, and the consumer has gone past {replay.not_before} since"
        remedy = f"look for its records in the sink ({replay.location}); if they are not there, replay it again"
        raise OutcomeUnknown("it is not known whether a dead letter was replayed", why, remedy)
    return None
