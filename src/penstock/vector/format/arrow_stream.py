"""A record batch as an Arrow stream: the schema's message, the batch's, and the end.

The bytes are those of Arrow's own stream writer. That one is made for streams of many batches: for one of a few rows,
what it sets up costs several times what it writes, and a flush of many small collections writes thousands of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa

__all__ = ["stream_parts"]

# The mark of a message that goes on, and a length of zero.
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
# Schemas that are kept as they are written: a store has one for each type that an attribute can have.
_SCHEMAS_MAX: Final = 64


def stream_parts(batch: pa.RecordBatch) -> tuple[bytes, bytes, bytes]:
    """What a stream of one batch consists of. Columns of the batch are of plain types: dictionaries have messages too."""
    return _schema_message(batch.schema), batch.serialize().to_pybytes(), _END


@lru_cache(_SCHEMAS_MAX)
def _schema_message(schema: pa.Schema) -> bytes:
    return schema.serialize().to_pybytes()
