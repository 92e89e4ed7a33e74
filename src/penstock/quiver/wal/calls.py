"""Calls of one group as frames of the log: small ones share a frame, and with it one Arrow batch and one checksum.

A frame holds whole calls, one behind the other. What one call brings cannot fail another: where calls that were put
together cannot be encoded, each is encoded alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.quiver.bundles.bundle import Bundle
from penstock.quiver.bundles.payload import encode_bundles
from penstock.quiver.bundles.shared import SharedBatches

__all__ = ["CallFrame", "GroupCalls", "WalCall"]

# Up to here a copy of a bundle's rows costs less than an Arrow message and a frame of its own.
_SMALL_BUNDLE_BYTES: Final = 16 << 10
# Of a frame that calls share: damage to any of its bytes loses all of it.
_SHARED_FRAME_BYTES_MAX: Final = 256 << 10


@dataclass(slots=True)
class WalCall:
    """What one call brings: stored together, or not at all."""

    bundles: Sequence[Bundle]
    size: int
    ingestion_ms: int

    @property
    def is_small(self) -> bool:
        return self.size <= _SMALL_BUNDLE_BYTES * len(self.bundles)


@dataclass(slots=True)
class CallFrame:
    """Calls that one frame holds."""

    calls: Sequence[WalCall]
    bundles: Sequence[Bundle]
    # When the last of its calls came in.
    ingestion_ms: int
    # What was put together for the log, for the open segment to use as well.
    shared: SharedBatches | None = None
    # The payload, until it is written.
    parts: Sequence[Any] = ()

    @staticmethod
    def of(calls: Sequence[WalCall]) -> CallFrame:
        if len(calls) == 1:
            return CallFrame(calls, calls[0].bundles, calls[0].ingestion_ms)
        bundles = [bundle for call in calls for bundle in call.bundles]
        return CallFrame(calls, bundles, max([call.ingestion_ms for call in calls]))

    def encode(self) -> None:
        if len(self.bundles) > 1:
            self.shared = SharedBatches.of(self.bundles)
        self.parts = encode_bundles(self.bundles, self.ingestion_ms, self.shared)


@dataclass(slots=True)
class GroupCalls:
    """The calls of one group. Encoded once, in any thread, however often the group is written."""

    calls: Sequence[WalCall]
    frames: list[CallFrame] = field(default_factory=list)
    # By the call's place in the group: those that cannot be stored, and why.
    refused: dict[int, Exception] = field(default_factory=dict)
    _is_encoded: bool = False

    def encode(self) -> None:
        if self._is_encoded:
            return
        for start, calls in _frames(self.calls):
            frame = CallFrame.of(calls)
            try:
                frame.encode()
            except Exception as error:  # noqa: BLE001  whatever it is, it is one caller's, and nobody else's
                self._encode_alone(start, calls, error)
            else:
                self.frames.append(frame)
        self._is_encoded = True

    def forget_parts(self) -> None:
        """They are written: the memory that they lie in may go."""
        for frame in self.frames:
            frame.parts = ()

    def in_memory(self) -> None:
        """For a store without a log: a frame for each call, and nothing encoded."""
        self.frames = [CallFrame.of([call]) for call in self.calls]

    def _encode_alone(self, start: int, calls: Sequence[WalCall], failure: Exception) -> None:
        for number, call in enumerate(calls, start):
            frame = CallFrame.of([call])
            try:
                if len(calls) == 1:
                    raise failure
                frame.encode()
            except Exception as error:  # noqa: BLE001  see above
                self.refused[number] = error
            else:
                self.frames.append(frame)


def _frames(calls: Sequence[WalCall]) -> Iterator[tuple[int, Sequence[WalCall]]]:
    """Which calls share a frame: small ones that follow each other. With the place of the first."""
    start = 0
    while start < len(calls):
        end, size = start + 1, calls[start].size
        while (
            calls[start].is_small
            and end < len(calls)
            and calls[end].is_small
            and size + calls[end].size <= _SHARED_FRAME_BYTES_MAX
        ):
            size += calls[end].size
            end += 1
        yield start, calls[start:end]
        start = end
