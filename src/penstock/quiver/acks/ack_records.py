"""The records of `ack.log` as bytes, and a state from its files. Pure; the bytes are in docs/format/ack-log.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from penstock.quiver.acks.ack_state import (
    AckState,
    Checkpoint,
    OutcomeRecord,
    Reclaimed,
    SealRecord,
    SubscriberRecord,
)
from penstock.quiver.log.frames import BLOCK_BYTES, BadRegion, Frame, FrameKind, read_header, scan_frames
from penstock.undecodable import UNDECODABLE

__all__ = ["AckRecord", "AckReplay", "apply", "encode_record", "replay_ack_files"]

AckRecord: TypeAlias = list[OutcomeRecord] | SubscriberRecord | Reclaimed | SealRecord

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODERS: Final[dict[int, Any]] = {
    FrameKind.CHECKPOINT: msgspec.msgpack.Decoder(Checkpoint),
    FrameKind.OUTCOMES: msgspec.msgpack.Decoder(list[OutcomeRecord]),
    FrameKind.SUBSCRIBER: msgspec.msgpack.Decoder(SubscriberRecord),
    FrameKind.RECLAIMED: msgspec.msgpack.Decoder(Reclaimed),
    FrameKind.SEALED: msgspec.msgpack.Decoder(SealRecord),
}


@dataclass(slots=True)
class AckReplay:
    """What the files of `ack.log` tell."""

    state: AckState = field(default_factory=AckState)
    # Frames read since the checkpoint that was used.
    records: int = 0
    next_record: int = 1
    # (file number, region) that could not be read, torn tails left out.
    bad: list[tuple[int, BadRegion]] = field(default_factory=list)


def encode_record(record: AckRecord | Checkpoint) -> tuple[FrameKind, bytes]:
    body = _ENCODER.encode(record)
    if isinstance(record, Checkpoint):
        return FrameKind.CHECKPOINT, body
    if isinstance(record, SubscriberRecord):
        return FrameKind.SUBSCRIBER, body
    if isinstance(record, SealRecord):
        return FrameKind.SEALED, body
    return (FrameKind.RECLAIMED if isinstance(record, Reclaimed) else FrameKind.OUTCOMES), body


def apply(state: AckState, record: AckRecord) -> None:
    if isinstance(record, SubscriberRecord):
        state.change(record)
    elif isinstance(record, Reclaimed):
        state.reclaim(record)
    elif isinstance(record, SealRecord):
        state.seal(record)
    else:
        for outcome in record:
            state.settle(outcome)


def replay_ack_files(files: Sequence[tuple[int, memoryview]], live: Iterable[tuple[int, int]] = ()) -> AckReplay:
    """The state after the newest checkpoint that can be read and every record behind it.

    `files` are numbers and bytes, oldest first; `live` the segments that have files, with their last bundles.
    """
    replay = AckReplay()
    frames = [(number, entry) for number, data in files for entry in _entries(number, data)]
    sound = [(at, entry) for at, (_, entry) in enumerate(frames) if isinstance(entry, Frame)]
    start = max((at for at, entry in sound if entry.kind == FrameKind.CHECKPOINT and _decode(entry)), default=-1)
    if start >= 0:
        replay.state.restore(_decode(frames[start][1]))
    # Before their outcomes are applied, so that each settles what it settled.
    for segment_seq, last_bundle in live:
        # Files whose removal a crash undid are no segment: nothing that follows can bring it back.
        if segment_seq not in replay.state.reclaimed:
            replay.state.publish(segment_seq, last_bundle)
    for number, entry in frames[start + 1 :]:
        if isinstance(entry, BadRegion):
            replay.bad.append((number, entry))
        elif entry.kind != FrameKind.CHECKPOINT and (record := _decode(entry)) is not None:
            apply(replay.state, record)
            replay.records += 1
    replay.next_record = max((entry.sequence + entry.count for _, entry in sound), default=1)
    return replay


def _entries(number: int, data: memoryview) -> list[Frame | BadRegion]:
    header = read_header(data)
    if header is None or header[1].sequence != number:
        return [BadRegion(0, len(data))] if any(data[:BLOCK_BYTES]) else []
    return list(scan_frames(data, header[0]))


def _decode(entry: Any) -> Any:
    """None for a frame that some other release wrote: it is left out, as its kind is not known here."""
    decoder = _DECODERS.get(entry.kind)
    try:
        return decoder.decode(entry.payload) if decoder else None
    except UNDECODABLE:
        return None
