"""The vector store's format: its families, what each of their blocks holds, and the envelope. docs/format/vector.md."""

from __future__ import annotations

from typing import Final

from penstock.blocks import Envelope, RecordKind, StoreFormat
from penstock.vector.format.content import ColumnBlock, IdBlock, PostingBlock, RowBlock, VectorBlock
from penstock.vector.format.document_log import DocumentBlock
from penstock.vector.format.identity import DictionaryBlock
from penstock.vector.format.keys import Family
from penstock.vector.format.terms import TermBlock

__all__ = ["COLLECTION_RECORD", "FORMAT", "FORMAT_VERSION", "ROW_BLOCKS"]

FORMAT_VERSION: Final = 1
COLLECTION_RECORD: Final = RecordKind.NAMED

ROW_BLOCKS: Final[dict[Family, type[RowBlock]]] = {
    Family.VECTORS: VectorBlock,
    Family.NAMES: ColumnBlock,
    Family.TEXTS: ColumnBlock,
    Family.COLUMN: ColumnBlock,
    Family.DICTIONARY: DictionaryBlock,
    Family.POSTINGS: PostingBlock,
    Family.TERMS: TermBlock,
    Family.DOCUMENTS: DocumentBlock,
    Family.CENTROIDS: VectorBlock,
    Family.DELETED: IdBlock,
    Family.HIDDEN: IdBlock,
}

FORMAT: Final = StoreFormat(
    Envelope("the vector store", b"PSVB", FORMAT_VERSION),
    Family,
    ROW_BLOCKS,
    label="vector",
    repair="penstock vector repair",
)
