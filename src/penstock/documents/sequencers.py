"""The order of the events of one object, whatever store they come from.

Every store orders the events of a key in its own way. A sequencer is written once, by the parser that knows its store,
as `family:order`, where `order` is text whose byte order is the order of events. Within a family it decides; between
families, or where a store gives none, the time of the event does. Orders of different objects are never compared.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from penstock.errors import InvalidInput

__all__ = ["azure", "ceph", "gcs", "is_newer", "minio", "s3", "same_event", "stamped"]

_HEX: Final = frozenset("0123456789abcdef")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def s3(raw: str) -> str:
    """S3 and EventBridge: hex, the shorter padded on the right with zeros; so zeros at the end say nothing."""
    return f"s3:{_hex(raw).rstrip('0')}"


def minio(raw: str) -> str:
    """MinIO: a number of nanoseconds in hex, without leading zeros."""
    return f"ns:{int(_hex(raw), 16):020d}"


def ceph(raw: str) -> str:
    """Ceph: seconds and nanoseconds, each as 32 bits with the lowest byte first, in hex."""
    digits = _hex(raw)
    if len(digits) != 16:
        raise InvalidInput(f"not a sequencer of Ceph: {raw!r}", "it must have 16 hexadecimal digits")
    packed = bytes.fromhex(digits)
    seconds, nanoseconds = int.from_bytes(packed[:4], "little"), int.from_bytes(packed[4:], "little")
    return f"ns:{seconds * 1_000_000_000 + nanoseconds:020d}"


def gcs(generation: str, *, deleted: bool) -> str:
    """Google: the generation; its deletion comes after its creation and before the next generation."""
    if not generation.isdecimal():
        raise InvalidInput(f"not a generation of Google storage: {generation!r}", "it must be a number")
    return f"gcs:{int(generation):020d}.{int(deleted)}"


def azure(raw: str) -> str:
    """Azure: text that is compared as it is."""
    return f"azure:{raw}"


def stamped(nanoseconds: int) -> str:
    """A store that orders by the time of a write, in nanoseconds since 1970."""
    return f"ns:{nanoseconds:020d}"


def is_newer(sequencer: str | None, at: datetime, than: str | None, than_at: datetime) -> bool:
    """Whether an event comes after the last one accepted."""
    if sequencer and than and _family(sequencer) == _family(than):
        return sequencer > than
    return at > than_at


def same_event(sequencer: str | None, at: datetime, other: str | None, other_at: datetime) -> bool:
    """Whether two events of an object are one event, told twice."""
    if sequencer and other and _family(sequencer) == _family(other):
        return sequencer == other
    return at == other_at


def nanoseconds_of(at: datetime) -> int:
    """Exactly, where a float would lose the microseconds."""
    gone = at - _EPOCH
    return (gone.days * 86_400 + gone.seconds) * 1_000_000_000 + gone.microseconds * 1000


def _family(sequencer: str) -> str:
    return sequencer.partition(":")[0]


def _hex(raw: str) -> str:
    digits = raw.casefold()
    if not digits or not _HEX.issuperset(digits):
        raise InvalidInput(f"not a sequencer: {raw[:80]!r}", "it must be hexadecimal digits")
    return digits
