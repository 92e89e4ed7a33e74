"""Documents: contracts, notifications, parsers, tokens, chunking, batching and embedding. Pure logic, no Spark.

`penstock.documents.notifications`, `.parsers` and `.embedding` have public lists of their own: each brings libraries
that not every process needs.

Names are imported on first use: a search neither parses nor chunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.documents.anchors import cell_count
    from penstock.documents.batcher import Batcher, ChunkRefused, DocumentEnded, Flush, FlushReason, Output
    from penstock.documents.batcher_state import BatcherLimits, BatcherState, DocumentState
    from penstock.documents.chunker import START, CellChunks, Chunk, Chunker, ChunkingConfig, Progress
    from penstock.documents.contracts import (
        BatchInput,
        BatchRequest,
        ChunkEnvelope,
        Chunking,
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
    from penstock.documents.identity import (
        BatchIdentity,
        chunk_id,
        content_key,
        doc_id,
        doc_id_of,
        object_key,
        object_key_of,
        vo_key,
    )
    from penstock.documents.metadata import (
        SIDECAR_BYTES_MAX,
        Metadata,
        is_sidecar,
        merged_metadata,
        parse_sidecar,
        sidecar_key,
        sidecar_subject,
    )
    from penstock.documents.outline import NO_OUTLINE, Outline
    from penstock.documents.sequencers import last_seen_ns, stamped
    from penstock.documents.sources import BLOCK_BYTES, BlockSource, ByteSource, BytesSource
    from penstock.documents.tokens import TokenCounter, token_counter
    from penstock.documents.versions import Decision, ObjectState, Verdict, decide, observed

__all__ = [
    "BLOCK_BYTES",
    "NO_OUTLINE",
    "SIDECAR_BYTES_MAX",
    "START",
    "BatchIdentity",
    "BatchInput",
    "BatchRequest",
    "Batcher",
    "BatcherLimits",
    "BatcherState",
    "BlockSource",
    "ByteSource",
    "BytesSource",
    "CellChunks",
    "Chunk",
    "ChunkEnvelope",
    "ChunkMetadata",
    "ChunkRefused",
    "Chunker",
    "Chunking",
    "ChunkingConfig",
    "Decision",
    "DeleteNotification",
    "DocumentEnded",
    "DocumentReport",
    "DocumentState",
    "DocumentStatus",
    "EndDocument",
    "Flush",
    "FlushReason",
    "Metadata",
    "Notification",
    "ObjectState",
    "Outline",
    "Output",
    "Progress",
    "TokenCounter",
    "UploadNotification",
    "Verdict",
    "cell_count",
    "chunk_id",
    "content_key",
    "decide",
    "decode",
    "decode_notification",
    "doc_id",
    "doc_id_of",
    "encode",
    "is_sidecar",
    "last_seen_ns",
    "merged_metadata",
    "object_key",
    "object_key_of",
    "observed",
    "parse_sidecar",
    "sidecar_key",
    "sidecar_subject",
    "stamped",
    "token_counter",
    "vo_key",
]

__getattr__ = lazy_names(
    __name__,
    {
        "anchors": ("cell_count",),
        "batcher": (
            "Batcher",
            "ChunkRefused",
            "DocumentEnded",
            "Flush",
            "FlushReason",
            "Output",
        ),
        "batcher_state": (
            "BatcherLimits",
            "BatcherState",
            "DocumentState",
        ),
        "chunker": (
            "START",
            "CellChunks",
            "Chunk",
            "Chunker",
            "ChunkingConfig",
            "Progress",
        ),
        "contracts": (
            "BatchInput",
            "BatchRequest",
            "ChunkEnvelope",
            "Chunking",
            "ChunkMetadata",
            "DeleteNotification",
            "DocumentReport",
            "DocumentStatus",
            "EndDocument",
            "Notification",
            "UploadNotification",
            "decode",
            "decode_notification",
            "encode",
        ),
        "identity": (
            "BatchIdentity",
            "chunk_id",
            "content_key",
            "doc_id",
            "doc_id_of",
            "object_key",
            "object_key_of",
            "vo_key",
        ),
        "metadata": (
            "SIDECAR_BYTES_MAX",
            "Metadata",
            "is_sidecar",
            "merged_metadata",
            "parse_sidecar",
            "sidecar_key",
            "sidecar_subject",
        ),
        "outline": (
            "NO_OUTLINE",
            "Outline",
        ),
        "sequencers": (
            "last_seen_ns",
            "stamped",
        ),
        "sources": (
            "BLOCK_BYTES",
            "BlockSource",
            "ByteSource",
            "BytesSource",
        ),
        "tokens": (
            "TokenCounter",
            "token_counter",
        ),
        "versions": (
            "Decision",
            "ObjectState",
            "Verdict",
            "decide",
            "observed",
        ),
    },
)
