"""What of an OTLP request stays bytes until it is known to be needed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.telemetry.columns.building import Ints
from penstock.telemetry.wire.outline import WireOutline, part_columns

__all__ = ["OUTLINE", "opened_parts"]

# Entries of attributes, which repeat, and parts of metrics that most requests lack. The readers of every signal decode all of them.
OUTLINE: Final = WireOutline(
    frozenset(
        {
            "attributes",
            "filtered_attributes",
            "exemplars",
            "gauge",
            "sum",
            "histogram",
            "exponential_histogram",
            "summary",
            # Of arrays and lists of keys in the body of a log record.
            "values",
        }
    ),
    "opentelemetry.proto.common.v1.KeyValue",
)


def opened_parts(parts: Any, message: Any) -> tuple[Any, Ints | None]:
    """Parts decoded, and of each the number that it had; None where they were decoded already, and have the same numbers."""
    if not pa.types.is_binary(parts.type):
        return parts, None
    present = None
    if parts.null_count:
        present = np.flatnonzero(np.asarray(parts.is_valid()))
        parts = parts.drop_null()
    return part_columns(message.DESCRIPTOR, parts, OUTLINE), present
