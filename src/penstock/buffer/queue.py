"""The manifest as a register, and the two changes that are ever made to it: enqueue and dequeue.

The manifest has no room for a proof of its own, so each change brings its own. A dequeue is visible
for ever. An enqueue is visible until the consumer has dequeued it: sequences are handed out once, so
either the place it would have taken is still free, or the entry there names its batch or another's.
Once the whole group is gone from the head of the queue, nobody can tell, and nothing is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.buffer.format.manifest import DescriptorDraft, Manifest
from penstock.clock import Clock
from penstock.ids import Entropy
from penstock.objects import ObjectStore, Register, RegisterPolicy, Token
from penstock.observability import Observer

__all__ = ["Dequeue", "Enqueue", "GrownTooOld", "ManifestFormat", "manifest_register"]

# 2^64 - 1 stands for "no fence" in the format, so counting leaves it out.
_FENCE_MAX: Final = (1 << 64) - 2


class ManifestFormat:
    """How a register reads and writes a manifest. Bytes never repeat, so no nonce is needed."""

    def empty(self) -> Manifest:
        return Manifest.empty()

    def decode(self, body: bytes) -> Manifest:
        return Manifest(body)

    def encode(self, value: Manifest) -> bytes:
        return value.body

    def fence(self, value: Manifest) -> int:
        return value.fence

    def with_fence(self, value: Manifest, fence: int) -> Manifest:
        return value.with_fence(fence)

    def next_fence(self, fence: int) -> int:
        return fence + 1 if fence < _FENCE_MAX else 0

    def stamp(self, value: Manifest, token: Token) -> Manifest:
        return value

    def landed(self, value: Manifest, token: Token) -> bool | None:
        return None


def manifest_register(
    store: ObjectStore,
    path: str,
    *,
    role: str,
    deadline_seconds: float,
    clock: Clock,
    entropy: Entropy,
    observer: Observer,
) -> Register[Manifest]:
    """The register of one role, which names its metrics: conflicts are counted by role."""
    policy = RegisterPolicy(deadline_seconds=deadline_seconds, attempt_seconds=min(10.0, deadline_seconds / 2))
    return Register(
        store,
        path,
        ManifestFormat(),
        name=f"buffer.{role}",
        policy=policy,
        clock=clock,
        entropy=entropy,
        observer=observer,
    )


class GrownTooOld(Exception):
    """A batch may have been collected while its enqueue waited for its turn. Nothing was written."""


class Enqueue:
    """Appends a group of batches in one write, and can tell afterwards whether it did."""

    def __init__(
        self, drafts: Sequence[DescriptorDraft], *, bytes_max: int, too_old: Callable[[Manifest], bool]
    ) -> None:
        self._drafts = drafts
        self._bytes_max = bytes_max
        self._too_old = too_old
        # The sequence of the group's first batch, as of the last attempt.
        self.first = -1
        # Whether re-reading came too late to tell.
        self.unproved = False

    def __call__(self, manifest: Manifest) -> Manifest:
        # Asked at every attempt: conflicts and pauses lie between them.
        if self._too_old(manifest):
            raise GrownTooOld
        self.first = manifest.next_sequence
        return manifest.append(self._drafts, bytes_max=self._bytes_max)

    def landed(self, manifest: Manifest) -> bool | None:
        """Whether the last attempt is in this manifest's past."""
        verdict = self._verdict(manifest)
        self.unproved = verdict is None
        return verdict

    def _verdict(self, manifest: Manifest) -> bool | None:
        if manifest.next_sequence < self.first + len(self._drafts):
            return False
        # The group landed whole or not at all: the last entry is the last to leave the queue, so it decides.
        found = manifest.location_of(self.first + len(self._drafts) - 1)
        return None if found is None else found == self._drafts[-1].location


class Dequeue:
    """Removes everything through a sequence. It shows in the manifest for ever, since entries never return."""

    def __init__(self, through: int) -> None:
        self.through = through

    def __call__(self, manifest: Manifest) -> Manifest:
        return manifest.dequeue_through(self.through)

    def landed(self, manifest: Manifest) -> bool | None:
        return manifest.first_sequence > self.through
