"""Which bundles can be sent to a collector: those whose slots hold serialized OTLP requests.

The slot names the signal (`otlp_logs`, `otlp_metrics`, `otlp_traces`), and its binary column `request` holds one
`Export…ServiceRequest` a row, as protobuf. Anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.quiver import Bundle

__all__ = ["OTLP_SIGNALS", "OtlpRequest", "otlp_bundle", "requests_of"]

OTLP_SIGNALS: Final = ("logs", "metrics", "traces")
_PREFIX: Final = "otlp_"
_COLUMN: Final = "request"


@dataclass(frozen=True, slots=True)
class OtlpRequest:
    """One request; `number` is its place in the segment."""

    number: int
    signal: str
    body: memoryview


def otlp_bundle(signal: str, requests: Sequence[bytes], event_time_ns: tuple[int, int] | None = None) -> Bundle:
    """A bundle that the OTLP relay can send: serialized requests of one signal."""
    if signal not in OTLP_SIGNALS:
        raise InvalidInput(f"there is no OTLP signal {signal!r}", f"there are {', '.join(OTLP_SIGNALS)}")
    batch = pa.record_batch({_COLUMN: pa.array(requests, pa.binary())})
    return Bundle({f"{_PREFIX}{signal}": batch}, signal=signal, event_time_ns=event_time_ns)


def requests_of(
    slots: Mapping[str, Sequence[pa.Table]], *, bytes_max: int, skip_others: bool = False
) -> Iterator[OtlpRequest]:
    """All requests of a segment, in order, as views. `InvalidInput` names what cannot be sent, before the first."""
    tables = [(slot, table) for slot, found in slots.items() for table in found]
    wanted = [(_signal(slot), table) for slot, table in tables if not (skip_others and _signal(slot) is None)]
    for slot, table in tables:
        if _signal(slot) is not None:
            _check(slot, table, bytes_max)
        elif not skip_others:
            known = ", ".join(f"{_PREFIX}{signal}" for signal in OTLP_SIGNALS)
            raise InvalidInput(f"slot {slot!r} holds no OTLP requests", f"slots that do are named {known}")
    number = 0
    for signal, table in wanted:
        assert signal is not None
        for chunk in table.column(_COLUMN).chunks:
            for value in chunk:
                yield OtlpRequest(number, signal, memoryview(value.as_buffer()))
                number += 1


def _signal(slot: str) -> str | None:
    signal = slot.removeprefix(_PREFIX)
    return signal if slot.startswith(_PREFIX) and signal in OTLP_SIGNALS else None


def _check(slot: str, table: pa.Table, bytes_max: int) -> None:
    kind = table.schema.field(_COLUMN).type if table.schema.names.count(_COLUMN) == 1 else None
    if kind is None or not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise InvalidInput(f"slot {slot!r} needs one binary column {_COLUMN!r}", f"it has {table.schema.names}")
    column = table.column(_COLUMN)
    if column.null_count:
        raise InvalidInput(f"slot {slot!r} has {column.null_count} rows without a request")
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest > bytes_max:
        raise InvalidInput(
            f"slot {slot!r} has a request of {longest} bytes", f"the bound is {bytes_max}", "raise request_bytes_max"
        )
