"""The order of the events of one object, whatever store they come from.

Every store orders the events of a key in its own way. A sequencer is written once, by the parser that knows its store,
as `family:order`, where `order` is text whose byte order is the order of events; an event without one is ordered by its
time. What we see or do ourselves (a listing, a retry, a person's removal) has a family of its own, `seen`. Within a
family the order decides, also when something of another family was accepted in between. Between families the times do,
and because these are of two clocks, an event may be older by `SKEW_SECONDS_MAX` and still counts: to drop what is newer
would lose it for good, while to take what is older costs one conditional read. Orders of different objects are never
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.errors import InvalidInput

__all__ = [
    "SKEW_SECONDS_MAX",
    "azure",
    "ceph",
    "check_sequencer",
    "gcs",
    "implied",
    "is_newer",
    "last_seen_ns",
    "minio",
    "remembered",
    "s3",
    "same_event",
    "seen",
    "stamped",
]

# Machines that keep time differ by far less; one that differs by more must set its clock.
SKEW_SECONDS_MAX: Final = 60
_SKEW: Final = timedelta(seconds=SKEW_SECONDS_MAX)
_SEEN: Final = "seen"
_TIME: Final = "time"
_GOOGLE: Final = "gcs"
_HEX: Final = frozenset("0123456789abcdef")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Nanoseconds as text of one length, so that the order of the text is theirs.
_DIGITS: Final = 20
_HEX_OF_64_BITS: Final = 16
# Of a sequencer in hex: those of S3 have 18. It is written with every event and every entry of its object.
_HEX_MAX: Final = 256


def s3(raw: str) -> str:
    """S3 and EventBridge: hex, the shorter padded on the right with zeros; so zeros at the end say nothing."""
    return f"s3:{_hex(raw).rstrip('0')}"


def minio(raw: str) -> str:
    """MinIO: a number of nanoseconds in hex, without leading zeros."""
    return f"ns:{int(_hex(raw, _HEX_OF_64_BITS), 16):020d}"


def ceph(raw: str) -> str:
    """Ceph: seconds and nanoseconds, each as 32 bits with the lowest byte first, in hex."""
    digits = _hex(raw)
    if len(digits) != _HEX_OF_64_BITS:
        raise InvalidInput(f"not a sequencer of Ceph: {raw[:80]!r}", "it must have 16 hexadecimal digits")
    packed = bytes.fromhex(digits)
    seconds, nanoseconds = int.from_bytes(packed[:4], "little"), int.from_bytes(packed[4:], "little")
    return f"ns:{seconds * 1_000_000_000 + nanoseconds:020d}"


def gcs(generation: str, *, deleted: bool) -> str:
    """Google: the generation; its deletion comes after its creation and before the next generation."""
    if not _is_number(generation):
        raise InvalidInput(
            f"not a generation of Google storage: {generation[:80]!r}",
            f"it must be a number of {_DIGITS} digits at most",
        )
    return f"{_GOOGLE}:{int(generation):020d}.{int(deleted)}"


def implied(sequencer: str | None, bucket: str, etag: str | None) -> str | None:
    """The order that Google gave to what somebody else tells of: its etag is the generation.

    So the deletion of a generation that was replaced long ago does not remove the live one that a listing has seen.
    """
    is_google = bucket.startswith("gs://") and etag is not None and _is_number(etag)
    if not is_google or (sequencer is not None and _family(sequencer) == _GOOGLE):
        return None
    return gcs(str(etag), deleted=False)


def azure(raw: str) -> str:
    """Azure: text that is compared as it is."""
    return f"azure:{raw}"


def stamped(nanoseconds: int) -> str:
    """A store that orders by the time of a write, in nanoseconds since 1970."""
    return f"ns:{nanoseconds:020d}"


def seen(nanoseconds: int) -> str:
    """Our own look at an object, or a person's act on it, at this time of our own clock."""
    return f"{_SEEN}:{nanoseconds:020d}"


def check_sequencer(sequencer: str) -> None:
    """Refuse an order that whoever looks next could not go on from: our own looks are counted, and not only compared."""
    family, _, order = sequencer.partition(":")
    # Behind the last order of that length nothing can come.
    if family == _SEEN and not (_is_number(order) and len(order) == _DIGITS and order < "9"):
        raise InvalidInput(
            f"not a sequencer: {sequencer[:80]!r}",
            f"of the family {_SEEN} it is nanoseconds in {_DIGITS} digits",
            "leave it out: the event is then ordered by its time",
        )


def is_newer(
    sequencer: str | None, at: datetime, than: str | None, than_at: datetime, earlier: Sequence[str] = ()
) -> bool:
    """Whether an event comes after the last one accepted; `earlier` are the last ones of other families."""
    named, last = _named(sequencer, at), _named(than, than_at)
    if _family(named) == _family(last):
        return named > last
    if any(_family(other) == _family(named) and other >= named for other in earlier):
        return False
    # A difference, because neither end of the calendar has room for another minute.
    return at - than_at > -_SKEW


def same_event(sequencer: str | None, at: datetime, other: str | None, other_at: datetime) -> bool:
    """Whether two events of an object are one event, told twice."""
    return _named(sequencer, at) == _named(other, other_at)


def remembered(sequencer: str | None, last: str | None, last_at: datetime, earlier: Sequence[str]) -> tuple[str, ...]:
    """What `earlier` becomes when an event is accepted after `last`: the last orders of all families but its own."""
    family = _family(sequencer) if sequencer else _TIME
    kept = {_family(order): order for order in (*earlier, _named(last, last_at))}
    return tuple(order for name, order in sorted(kept.items()) if name != family)


def last_seen_ns(last: str | None, earlier: Sequence[str]) -> int:
    """The time of our own last look among these orders, or -1."""
    looks = [order.partition(":")[2] for order in (*earlier, last or "") if _family(order) == _SEEN]
    return max((int(look) for look in looks if _is_number(look)), default=-1)


def nanoseconds_of(at: datetime) -> int:
    """Exactly, where a float would lose the microseconds."""
    gone = at - _EPOCH
    return (gone.days * 86_400 + gone.seconds) * 1_000_000_000 + gone.microseconds * 1000


def _named(sequencer: str | None, at: datetime) -> str:
    """An event without a sequencer is ordered by its time, in a family of such events."""
    return sequencer or f"{_TIME}:{_ordered(nanoseconds_of(at))}"


def _ordered(nanoseconds: int) -> str:
    """As text whose order is that of the numbers, also before 1970 and where they have a digit more, from 5138 on."""
    if nanoseconds < 0:
        return f"-{nanoseconds + 10**_DIGITS:020d}"
    return f"{nanoseconds:020d}" if nanoseconds < 10**_DIGITS else f"~{nanoseconds}"


def _family(sequencer: str) -> str:
    return sequencer.partition(":")[0]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def _hex(raw: str, digits_max: int = _HEX_MAX) -> str:
    digits = raw.casefold()
    if not digits or not _HEX.issuperset(digits) or len(digits) > digits_max:
        raise InvalidInput(f"not a sequencer: {raw[:80]!r}", f"it must be hexadecimal digits, at most {digits_max}")
    return digits
