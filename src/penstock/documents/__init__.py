"""Documents: contracts, notifications, parsers, tokens, chunking, batching and embedding. Pure logic, no Spark.

`penstock.documents.notifications`, `.parsers` and `.embedding` have public lists of their own: each brings libraries
that not every process needs.
"""

from penstock.documents.batcher import Batcher, DocumentEnded, Flush, FlushReason, Output, Refused
from penstock.documents.batcher_state import BatcherLimits
from penstock.documents.chunker import START, CellChunks, Chunk, Chunker, ChunkingConfig, Progress
from penstock.documents.contracts import (
    BatchInput,
    BatchRequest,
    ChunkEnvelope,
    ChunkMetadata,
    DeleteNotification,
    DocumentReport,
    DocumentStatus,
    EndDocument,
    Notification,
    UploadNotification,
    decode,
    decode_notification,
    encode,
)
from penstock.documents.identity import BatchIdentity, chunk_id, content_key, doc_id, doc_id_of, object_key, vo_key
from penstock.documents.release import CellRelease
from penstock.documents.sources import BlockSource, ByteSource, MemorySource
from penstock.documents.tokens import TokenCounter, token_counter
from penstock.documents.versions import Decision, ObjectState, Verdict

__all__ = [
    "START",
    "BatchIdentity",
    "BatchInput",
    "BatchRequest",
    "Batcher",
    "BatcherLimits",
    "BlockSource",
    "ByteSource",
    "CellChunks",
    "CellRelease",
    "Chunk",
    "ChunkEnvelope",
    "ChunkMetadata",
    "Chunker",
    "ChunkingConfig",
    "Decision",
    "DeleteNotification",
    "DocumentEnded",
    "DocumentReport",
    "DocumentStatus",
    "EndDocument",
    "Flush",
    "FlushReason",
    "MemorySource",
    "Notification",
    "ObjectState",
    "Output",
    "Progress",
    "Refused",
    "TokenCounter",
    "UploadNotification",
    "Verdict",
    "chunk_id",
    "content_key",
    "decode",
    "decode_notification",
    "doc_id",
    "doc_id_of",
    "encode",
    "object_key",
    "token_counter",
    "vo_key",
]
