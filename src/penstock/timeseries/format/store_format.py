"""The format of a time-series store: its families, what each of their blocks holds, and the envelope."""

from __future__ import annotations

from typing import Final

from penstock.blocks import Block, Envelope, RecordKind, StoreFormat
from penstock.timeseries.format.index_block import IndexBlock
from penstock.timeseries.format.keys import SeriesFamily
from penstock.timeseries.format.metadata_block import MetadataBlock
from penstock.timeseries.format.presence_block import PresenceBlock
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.series_block import FingerprintBlock, LabelBlock

__all__ = ["FORMAT", "FORMAT_VERSION", "TENANT_RECORD"]

# Version 2 files labels and index by day. Stores of version 1 are read, and go on in version 2.
FORMAT_VERSION: Final = 2
TENANT_RECORD: Final = RecordKind.NAMED

_BLOCKS: Final[dict[SeriesFamily, type[Block]]] = {
    SeriesFamily.DICTIONARY: FingerprintBlock,
    SeriesFamily.LABELS: LabelBlock,
    SeriesFamily.INDEX: IndexBlock,
    SeriesFamily.SAMPLES: SampleBlock,
    SeriesFamily.METADATA: MetadataBlock,
    SeriesFamily.PRESENCE: PresenceBlock,
}

FORMAT: Final = StoreFormat(
    Envelope("the time-series store", b"PSTS", FORMAT_VERSION),
    SeriesFamily,
    _BLOCKS,
    label="timeseries",
    repair="penstock timeseries repair",
    # Bytes in memory that one stored byte becomes, about. Blocks of samples are cut to size before they are drafted.
    packing={SeriesFamily.SAMPLES: 12, SeriesFamily.LABELS: 48, SeriesFamily.INDEX: 12, SeriesFamily.METADATA: 4},
)
