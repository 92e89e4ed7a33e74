"""Small batches of one slot and schema put together: their costs are shared then. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import pyarrow as pa

from penstock.quiver.bundles.bundle import Bundle
from penstock.quiver.bundles.schemas import KnownSchema

__all__ = ["SHARED_BYTES_MAX", "BundleColumns", "SharedBatches", "combined"]

# Putting batches together copies them: worth it for small ones.
SHARED_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class BundleColumns:
    """What each of several bundles has, column by column: looked up once, for the log and for the open segment."""

    # See `BundleSummary`.
    streams: Sequence[tuple[str, bytes] | None]
    batches: Sequence[pa.RecordBatch]
    signals: Sequence[str]
    identities: Sequence[str]
    event_times_ns: Sequence[tuple[int, int] | None]
    rows: Sequence[int]
    sizes: Sequence[int]

    @staticmethod
    def of(bundles: Sequence[Bundle]) -> BundleColumns:
        return BundleColumns(*zip(*[bundle.summary for bundle in bundles], strict=True))

    @property
    def bytes(self) -> int:
        return sum(self.sizes)


@dataclass(slots=True)
class SharedBatches:
    """Batches of one slot and schema put together, of which each bundle has some rows: small ones cost little then.

    Made once, for the log and for the open segment; a start takes them from the log as they are.
    """

    # By slot and schema.
    whole: dict[tuple[str, bytes], pa.RecordBatch] = field(default_factory=dict)
    # The one slot and schema that all bundles have, each with rows: the usual case, and worth a short way.
    single: tuple[str, KnownSchema] | None = None
    # Of the bundles of `single`.
    columns: BundleColumns | None = None

    @staticmethod
    def of(bundles: Sequence[Bundle]) -> SharedBatches:
        columns = BundleColumns.of(bundles)
        first = columns.streams[0]
        if first is not None and columns.streams.count(first) == len(bundles):
            whole = combined(columns.batches, columns.bytes)
            if whole is None:
                return SharedBatches()
            return SharedBatches({first: whole}, (first[0], bundles[0].schemas[0]), columns)
        groups: dict[tuple[str, bytes], list[pa.RecordBatch]] = {}
        sizes: dict[tuple[str, bytes], int] = {}
        for bundle in bundles:
            for (name, batch), schema, size in zip(bundle.slots.items(), bundle.schemas, bundle.sizes, strict=True):
                if batch.num_rows and not schema.has_dictionaries:
                    key = name, schema.body
                    groups.setdefault(key, []).append(batch)
                    sizes[key] = sizes.get(key, 0) + size
        found = {key: combined(group, sizes[key]) for key, group in groups.items()}
        return SharedBatches({key: whole for key, whole in found.items() if whole is not None})


def combined(batches: Sequence[pa.RecordBatch], size: int) -> pa.RecordBatch | None:
    """The rows of batches that all have some, of this size together, in one; None where they do not fit one."""
    if len(batches) < 2 or not batches[0].num_columns or size > SHARED_BYTES_MAX:
        return None
    try:
        return cast("pa.RecordBatch", pa.concat_batches(batches))  # type: ignore[attr-defined]
    except pa.ArrowException:
        # A type that Arrow cannot put together: its batches stay apart.
        return None
