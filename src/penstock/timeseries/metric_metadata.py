"""What metrics are: type, help and unit, and where a table of samples carries them.

They stand as JSON in the metadata of its Arrow schema, which Parquet and Arrow files keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.undecodable import UNDECODABLE

__all__ = ["MetricMetadata", "described", "description_of"]

_KEY: Final = b"penstock.metrics"


@dataclass(frozen=True, slots=True)
class MetricMetadata:
    """The type, unit and help of a metric."""

    type: str = "unknown"
    help: str = ""
    unit: str = ""


def described(table: pa.Table, metadata: Mapping[str, MetricMetadata]) -> pa.Table:
    """A table of samples that carries what its metrics are; `SampleBatch.from_table` takes it back."""
    if not metadata:
        return table
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: msgspec.json.encode(metadata)})


def description_of(schema: pa.Schema) -> dict[str, MetricMetadata]:
    """What a table says of its metrics; nothing if it was not made here."""
    told = (schema.metadata or {}).get(_KEY)
    if told is None:
        return {}
    try:
        return msgspec.json.decode(told, type=dict[str, MetricMetadata])
    except UNDECODABLE as error:
        raise InvalidInput(
            "a table of samples has metadata that cannot be read", str(error), f"remove {_KEY.decode()} from its schema"
        ) from error
