"""A bundle: the unit of ingest, a few Arrow record batches that arrive together.

Each batch has a slot of its own (logs, log attributes, …). Schemas may differ from bundle to bundle and change over
time. Whatever the log could not hold is refused when a bundle is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.quiver.bundles.schemas import KnownSchema, known_schema, stream_of

__all__ = ["Ack", "Bundle", "BundleSummary"]

# Arrow messages carry their own length in 31 bits; so do frames.
_BATCH_BYTES_MAX: Final = (1 << 31) - (1 << 20)
_TIME_END: Final = 1 << 63
# Its only slot and that one's schema, if it has rows and no dictionaries: the usual case. Then its first batch, signal,
# identity, event times, rows and bytes.
BundleSummary = tuple[tuple[str, bytes] | None, pa.RecordBatch, str, str, tuple[int, int] | None, int, int]


@dataclass(frozen=True, slots=True)
class Bundle:
    """`slots` by name. `event_time_ns` is the first and last event time in it, where the caller knows them."""

    slots: Mapping[str, pa.RecordBatch]
    signal: str = ""
    identity: str = ""
    event_time_ns: tuple[int, int] | None = None
    # Asked for several times on the way, and each costs microseconds.
    rows: int = field(init=False, repr=False, compare=False)
    nbytes: int = field(init=False, repr=False, compare=False)
    # Of each slot.
    sizes: Sequence[int] = field(init=False, repr=False, compare=False)
    schemas: Sequence[KnownSchema] = field(init=False, repr=False, compare=False)
    # What is asked of many bundles together, so that it is looked up once for all of it.
    summary: BundleSummary = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Whatever the log could not hold is refused here: behind this point it would fail for others as well."""
        slots: Any = self.slots
        if not (isinstance(slots, Mapping) and slots):
            raise InvalidInput("a bundle has no slots", "it must have at least one record batch, keyed by slot name")
        # The caller's own may change while the bundle is on its way.
        object.__setattr__(self, "slots", dict(slots))
        for slot, batch in self.slots.items():
            if not slot or not isinstance(batch, pa.RecordBatch):
                raise InvalidInput(
                    f"slot {slot!r} of a bundle cannot be stored", "it must be a name and an Arrow record batch"
                )
            if batch.num_rows and not batch.num_columns:
                raise InvalidInput(
                    f"slot {slot!r} has {batch.num_rows} rows and no columns",
                    "Arrow files do not keep the row count of such batches",
                )
            _check_text("slot", slot)
        _check_text("signal", self.signal)
        _check_text("identity", self.identity)
        if self.event_time_ns is not None:
            _check_times(self.event_time_ns)
        batches = self.slots.values()
        object.__setattr__(self, "rows", sum([batch.num_rows for batch in batches]))
        sizes = [_batch_bytes(slot, batch) for slot, batch in self.slots.items()]
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "nbytes", sum(sizes))
        schemas = [known_schema(batch.schema) for batch in batches]
        object.__setattr__(self, "schemas", schemas)
        is_usual = len(schemas) == 1 and self.rows and not schemas[0].has_dictionaries
        stream = stream_of(next(iter(self.slots)), schemas[0].body) if is_usual else None
        only = next(iter(batches))
        summary = stream, only, self.signal, self.identity, self.event_time_ns, self.rows, self.nbytes
        object.__setattr__(self, "summary", summary)


class Ack(msgspec.Struct, frozen=True, gc=False):
    """A bundle's place in the log, when it arrived, and whether it would survive a power loss now."""

    bundle_seq: int
    ingestion_ms: int
    durable: bool


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidInput(f"the {what} of a bundle cannot be {text!r}", "it must be valid UTF-8 text") from error


def _check_times(times: Any) -> None:
    if not (isinstance(times, tuple) and len(times) == 2 and all(type(time) is int for time in times)):
        raise InvalidInput(f"the event times {times!r} are not a range", "two whole numbers of nanoseconds are needed")
    if not -_TIME_END <= times[0] <= times[1] < _TIME_END:
        raise InvalidInput(
            f"the event times {times} are not a range", "the first must not be above the second, and both have 64 bits"
        )


def _batch_bytes(slot: str, batch: pa.RecordBatch) -> int:
    # Without rows there is nothing to count, and Arrow's own count fails on an empty union that was read back.
    size = batch.nbytes if batch.num_rows else 0
    if size > _BATCH_BYTES_MAX:
        raise InvalidInput(f"slot {slot!r} has {size} bytes", f"a batch has {_BATCH_BYTES_MAX} at most", "split it")
    return size
