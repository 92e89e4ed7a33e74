"""The indexing job without Spark: registry, settings, planning, rounds and embedding; its heavy stages are a port.

Names are imported on first use: a worker that reads documents holds no vector store, and a command
that searches reads no documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.indexing.job.budget import EmbeddingBudget
    from penstock.indexing.job.config import IndexingConfig, IntakeLimits
    from penstock.indexing.job.core import JobCore
    from penstock.indexing.job.estimate import CostEstimate, estimate_cost
    from penstock.indexing.job.indexer import PLAN_RECORDS_MAX
    from penstock.indexing.job.local import LocalIndexingJob
    from penstock.indexing.job.memory import settle_allocators
    from penstock.indexing.job.port import IndexingJob
    from penstock.indexing.job.summary import IndexingSummary
    from penstock.indexing.job.turnstile import SpareTimeWorker
    from penstock.indexing.job.writer import IndexWriter
    from penstock.indexing.planning.events import QueueRecord, plan_groups
    from penstock.indexing.planning.plan import RoundLimits
    from penstock.indexing.registry.entries import (
        SOURCE,
        VECTOR_PATH,
        DocumentEntry,
        Pending,
        entries_of,
        list_entries,
        registry_name,
        subject_of,
    )
    from penstock.indexing.registry.rebuild_notice import RENEW_SECONDS, Notice, NoticeBoard, Watch, read_notice
    from penstock.indexing.registry.reindexing import Remainder, Wish, changed, cut_wished, rebuilding, recutting
    from penstock.indexing.registry.settings import Build, IndexSettings
    from penstock.indexing.rounds.leads import own_text
    from penstock.indexing.search.doors import PLAIN_DOORS, StoreDoors
    from penstock.indexing.search.filter_expression import parse_filter
    from penstock.indexing.search.highlights import WordMatch, highlights, word_matches
    from penstock.indexing.search.lookup import find_entries, read_entries, require_store
    from penstock.indexing.search.passages import (
        FACETS_MAX,
        Asked,
        FoundPassages,
        Question,
        answer_in,
        by_document,
        find_answer,
        find_passages,
        no_index,
        passages_in,
    )
    from penstock.indexing.search.providers import Description, Provider
    from penstock.indexing.search.reranking import RerankEndpoint
    from penstock.indexing.search.selection import FilterCount, count_where, documents_where
    from penstock.indexing.search.surroundings import DocumentText, fetch_document
    from penstock.indexing.search.targets import Target, check_endpoint, embedding_for, find_target, target_in
    from penstock.indexing.sending.document_events import forget_events, heads_of, retry_events
    from penstock.indexing.sending.following import Follower
    from penstock.indexing.sending.left_out import LeftOut, files_left_out
    from penstock.indexing.sending.listing import Listing, compare, deletion, deletion_at, upload_of
    from penstock.indexing.sending.looking import list_places
    from penstock.indexing.sending.places import Place, allowed_url, are_exhaustive, place_of, url_of, with_account
    from penstock.indexing.sending.queue import in_trace, is_waiting, send
    from penstock.indexing.sending.receiving import Credentials, receive, take_delivery, target_of
    from penstock.indexing.sending.unreadable import UnreadableFolders
    from penstock.indexing.stages.access import bucket_url, is_own_bucket
    from penstock.indexing.stages.embedding import Embedding, Endpoint, OwnModel, embed_requests
    from penstock.indexing.stages.fetching import FetchLimits
    from penstock.indexing.stages.local import LocalStages
    from penstock.indexing.stages.port import EmbeddingReply, Stages, given_up
    from penstock.indexing.stages.reading import Reading, read_documents
    from penstock.indexing.stages.readings import DocumentReading, ReadRequest, gathered, runs
    from penstock.indexing.stages.spread import parts_of, spread
    from penstock.indexing.stages.wire import (
        ANSWER_SCHEMA,
        PIECE_SCHEMA,
        REQUEST_SCHEMA,
        decode_requests,
        encode_requests,
        pack_pieces,
        pieces_of,
    )

__all__ = [
    "ANSWER_SCHEMA",
    "FACETS_MAX",
    "PIECE_SCHEMA",
    "PLAIN_DOORS",
    "PLAN_RECORDS_MAX",
    "RENEW_SECONDS",
    "REQUEST_SCHEMA",
    "SOURCE",
    "VECTOR_PATH",
    "Asked",
    "Build",
    "CostEstimate",
    "Credentials",
    "Description",
    "DocumentEntry",
    "DocumentReading",
    "DocumentText",
    "Embedding",
    "EmbeddingBudget",
    "EmbeddingReply",
    "Endpoint",
    "FetchLimits",
    "FilterCount",
    "Follower",
    "FoundPassages",
    "IndexSettings",
    "IndexWriter",
    "IndexingConfig",
    "IndexingJob",
    "IndexingSummary",
    "IntakeLimits",
    "JobCore",
    "LeftOut",
    "Listing",
    "LocalIndexingJob",
    "LocalStages",
    "Notice",
    "NoticeBoard",
    "OwnModel",
    "Pending",
    "Place",
    "Provider",
    "Question",
    "QueueRecord",
    "ReadRequest",
    "Reading",
    "Remainder",
    "RerankEndpoint",
    "RoundLimits",
    "SpareTimeWorker",
    "Stages",
    "StoreDoors",
    "Target",
    "UnreadableFolders",
    "Watch",
    "Wish",
    "WordMatch",
    "allowed_url",
    "answer_in",
    "are_exhaustive",
    "bucket_url",
    "by_document",
    "changed",
    "check_endpoint",
    "compare",
    "count_where",
    "cut_wished",
    "decode_requests",
    "deletion",
    "deletion_at",
    "documents_where",
    "embed_requests",
    "embedding_for",
    "encode_requests",
    "entries_of",
    "estimate_cost",
    "fetch_document",
    "files_left_out",
    "find_answer",
    "find_entries",
    "find_passages",
    "find_target",
    "forget_events",
    "gathered",
    "given_up",
    "heads_of",
    "highlights",
    "in_trace",
    "is_own_bucket",
    "is_waiting",
    "list_entries",
    "list_places",
    "no_index",
    "own_text",
    "pack_pieces",
    "parse_filter",
    "parts_of",
    "passages_in",
    "pieces_of",
    "place_of",
    "plan_groups",
    "read_documents",
    "read_entries",
    "read_notice",
    "rebuilding",
    "receive",
    "recutting",
    "registry_name",
    "require_store",
    "retry_events",
    "runs",
    "send",
    "settle_allocators",
    "spread",
    "subject_of",
    "take_delivery",
    "target_in",
    "target_of",
    "upload_of",
    "url_of",
    "with_account",
    "word_matches",
]

__getattr__ = lazy_names(
    __name__,
    {
        "job.estimate": (
            "CostEstimate",
            "estimate_cost",
        ),
        "job.budget": ("EmbeddingBudget",),
        "job.config": (
            "IndexingConfig",
            "IntakeLimits",
        ),
        "job.core": ("JobCore",),
        "job.indexer": ("PLAN_RECORDS_MAX",),
        "job.local": ("LocalIndexingJob",),
        "job.memory": ("settle_allocators",),
        "job.port": ("IndexingJob",),
        "job.summary": ("IndexingSummary",),
        "job.turnstile": ("SpareTimeWorker",),
        "job.writer": ("IndexWriter",),
        "planning.events": (
            "QueueRecord",
            "plan_groups",
        ),
        "planning.plan": ("RoundLimits",),
        "registry.entries": (
            "DocumentEntry",
            "Pending",
            "SOURCE",
            "VECTOR_PATH",
            "entries_of",
            "list_entries",
            "registry_name",
            "subject_of",
        ),
        "registry.rebuild_notice": (
            "Notice",
            "NoticeBoard",
            "RENEW_SECONDS",
            "Watch",
            "read_notice",
        ),
        "registry.reindexing": (
            "Remainder",
            "Wish",
            "changed",
            "cut_wished",
            "rebuilding",
            "recutting",
        ),
        "registry.settings": (
            "Build",
            "IndexSettings",
        ),
        "rounds.leads": ("own_text",),
        "search.doors": (
            "PLAIN_DOORS",
            "StoreDoors",
        ),
        "search.filter_expression": ("parse_filter",),
        "search.highlights": (
            "WordMatch",
            "highlights",
            "word_matches",
        ),
        "search.lookup": (
            "find_entries",
            "read_entries",
            "require_store",
        ),
        "search.passages": (
            "Asked",
            "FACETS_MAX",
            "FoundPassages",
            "Question",
            "answer_in",
            "by_document",
            "find_answer",
            "find_passages",
            "no_index",
            "passages_in",
        ),
        "search.providers": (
            "Description",
            "Provider",
        ),
        "search.selection": (
            "FilterCount",
            "count_where",
            "documents_where",
        ),
        "search.surroundings": (
            "DocumentText",
            "fetch_document",
        ),
        "search.reranking": ("RerankEndpoint",),
        "search.targets": (
            "Target",
            "check_endpoint",
            "embedding_for",
            "find_target",
            "target_in",
        ),
        "sending.document_events": (
            "forget_events",
            "heads_of",
            "retry_events",
        ),
        "sending.following": ("Follower",),
        "sending.left_out": (
            "LeftOut",
            "files_left_out",
        ),
        "sending.listing": (
            "Listing",
            "compare",
            "deletion",
            "deletion_at",
            "upload_of",
        ),
        "sending.looking": ("list_places",),
        "sending.places": (
            "Place",
            "allowed_url",
            "are_exhaustive",
            "place_of",
            "url_of",
            "with_account",
        ),
        "sending.queue": (
            "in_trace",
            "is_waiting",
            "send",
        ),
        "sending.receiving": (
            "Credentials",
            "receive",
            "take_delivery",
            "target_of",
        ),
        "sending.unreadable": ("UnreadableFolders",),
        "stages.access": (
            "bucket_url",
            "is_own_bucket",
        ),
        "stages.embedding": (
            "Embedding",
            "Endpoint",
            "OwnModel",
            "embed_requests",
        ),
        "stages.fetching": ("FetchLimits",),
        "stages.local": ("LocalStages",),
        "stages.port": (
            "EmbeddingReply",
            "Stages",
            "given_up",
        ),
        "stages.reading": (
            "Reading",
            "read_documents",
        ),
        "stages.readings": (
            "DocumentReading",
            "ReadRequest",
            "gathered",
            "runs",
        ),
        "stages.spread": (
            "parts_of",
            "spread",
        ),
        "stages.wire": (
            "ANSWER_SCHEMA",
            "PIECE_SCHEMA",
            "REQUEST_SCHEMA",
            "decode_requests",
            "encode_requests",
            "pack_pieces",
            "pieces_of",
        ),
    },
)
