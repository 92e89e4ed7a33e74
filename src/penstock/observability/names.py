"""Every metric, span and event that Penstock emits, in one table.

Rooms refer to these constants and never spell a name in place, so that `docs/operating.md` can be
checked against this module and a dashboard cannot drift from the code. Units come last in a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["EVENTS", "METRICS", "SPANS", "Event", "Kind", "Metric", "Span"]


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name as Prometheus shows it, what it counts, and the labels it carries."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    help: str


@dataclass(frozen=True, slots=True)
class Event:
    """A structured log line: `name` is its stable key, `level` its severity."""

    name: str
    level: str
    help: str


METRICS: Final[dict[str, Metric]] = {}
SPANS: Final[dict[str, Span]] = {}
EVENTS: Final[dict[str, Event]] = {}

# Of an embedding batch: from a short text alone to more than any provider takes in one request.
_BATCH_TOKEN_BUCKETS: Final = (100.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6)
_BATCH_ITEM_BUCKETS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)
# Seconds: from a warm local read to an object store having a bad day.
LATENCY_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def _counter(name: str, help: str, *labels: str) -> Metric:
    return _metric(Metric(name, Kind.COUNTER, help, labels))


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return _metric(Metric(name, Kind.GAUGE, help, labels))


def _latency(name: str, help: str, *labels: str) -> Metric:
    return _metric(Metric(name, Kind.HISTOGRAM, help, labels, LATENCY_BUCKETS))


def _histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return _metric(Metric(name, Kind.HISTOGRAM, help, labels, buckets))


def _metric(metric: Metric) -> Metric:
    return METRICS.setdefault(metric.name, metric)


def _span(name: str, help: str) -> Span:
    return SPANS.setdefault(name, Span(name, help))


def _event(name: str, level: str, help: str) -> Event:
    return EVENTS.setdefault(name, Event(name, level, help))


# objects ------------------------------------------------------------------------------------------
OBJECTS_REQUESTS = _counter(
    "penstock_objects_requests_total", "Object-store calls by verb and outcome.", "verb", "outcome"
)
OBJECTS_REQUEST_SECONDS = _latency(
    "penstock_objects_request_seconds", "Time of one object-store call with its retries.", "verb"
)
OBJECTS_RETRIES = _counter("penstock_objects_retries_total", "Retried object-store calls.", "verb")
OBJECTS_BYTES = _counter("penstock_objects_bytes_total", "Bytes moved to and from the object store.", "direction")

# register -----------------------------------------------------------------------------------------
REGISTER_COMMITS = _counter("penstock_register_commits_total", "Conditional writes that landed.", "register")
REGISTER_CONFLICTS = _counter(
    "penstock_register_conflicts_total", "Conditional writes that lost to another writer.", "register"
)
REGISTER_UNKNOWN = _counter(
    "penstock_register_unknown_total", "Writes of unknown outcome, by what re-reading showed.", "register", "resolved"
)
REGISTER_GROUP_SIZE = _histogram(
    "penstock_register_group_size",
    "Updates that share one conditional write.",
    (1, 2, 4, 8, 16, 32, 64, 128),
    "register",
)

# keyvalue -----------------------------------------------------------------------------------------
KEYVALUE_WRITE_BYTES = _counter("penstock_keyvalue_write_bytes_total", "Bytes of keys and values written.")
KEYVALUE_DURABLE_SECONDS = _latency(
    "penstock_keyvalue_durable_seconds", "Time from a write until it is durable in the object store."
)
KEYVALUE_SYNC_SECONDS = _latency("penstock_keyvalue_sync_seconds", "Time of one file-system sync of a directory store.")
KEYVALUE_FENCED = _event(
    "keyvalue_fenced", "warning", "A newer writer opened the store; this one has stopped acknowledging."
)
KEYVALUE_UNORDERED = _event(
    "keyvalue_unordered", "warning", "The file system under a store cannot write files synchronously by directory."
)
KEYVALUE_SHIM_OFF = _event(
    "keyvalue_shim_off", "warning", "The faster copy into SlateDB does not fit the installed release; writes are slow."
)

# coordinator --------------------------------------------------------------------------------------
COORDINATOR_WRITES = _counter("penstock_coordinator_writes_total", "Writes handed to a flush.", "coordinator")
COORDINATOR_REJECTED = _counter(
    "penstock_coordinator_rejected_total", "Writes rejected because a limit was reached.", "coordinator"
)
COORDINATOR_WAIT_SECONDS = _latency(
    "penstock_coordinator_wait_seconds", "Time that writes waited for room, if they had to.", "coordinator"
)
COORDINATOR_WRITE_SECONDS = _latency(
    "penstock_coordinator_write_seconds", "Time from a flush's oldest write until it is durable.", "coordinator"
)
COORDINATOR_FLUSH_SECONDS = _latency(
    "penstock_coordinator_flush_seconds", "Time from a flush's start to each mark.", "coordinator", "mark"
)
COORDINATOR_FLUSHES = _counter("penstock_coordinator_flushes_total", "Flushes by reason.", "coordinator", "reason")
COORDINATOR_FAILURES = _counter(
    "penstock_coordinator_failures_total", "Failed flush attempts, by what followed.", "coordinator", "outcome"
)
COORDINATOR_PENDING_BYTES = _gauge(
    "penstock_coordinator_pending_bytes", "Bytes accepted and not yet taken by a flush.", "coordinator"
)
COORDINATOR_BUFFERED_BYTES = _gauge(
    "penstock_coordinator_buffered_bytes", "Bytes accepted and not yet durable.", "coordinator"
)
COORDINATOR_WAITERS = _gauge(
    "penstock_coordinator_waiters", "Callers waiting for room or for a mark.", "coordinator", "mark"
)
COORDINATOR_EPOCH = _gauge("penstock_coordinator_epoch", "Epoch that each mark has reached.", "coordinator", "mark")
COORDINATOR_FLUSH = _span("coordinator.flush", "One attempt to flush, until its writes are visible.")
COORDINATOR_RETRYING = _event("coordinator.retrying", "warning", "A flush failed and is retried.")
COORDINATOR_FAILED = _event(
    "coordinator.failed", "error", "A flush failed permanently: writes are refused until a retry."
)

# buffer -------------------------------------------------------------------------------------------
# Writes and conflicts of the manifest by role: the register metrics, labelled buffer.producer and buffer.consumer.
BUFFER_INPUTS = _counter("penstock_buffer_inputs_total", "Calls of produce, by whether they had to wait.", "admission")
BUFFER_FLUSHES = _counter("penstock_buffer_flushes_total", "Batches closed, by reason.", "reason")
BUFFER_BATCHES = _counter("penstock_buffer_batches_total", "Batches produced, by outcome.", "outcome")
BUFFER_FAILED_INPUTS = _counter(
    "penstock_buffer_failed_inputs_total", "Calls of produce that failed, by outcome.", "outcome"
)
BUFFER_RECORDS = _counter("penstock_buffer_records_total", "Records made durable in the queue.")
BUFFER_RECORD_BYTES = _counter("penstock_buffer_record_bytes_total", "Bytes of closed batches before compression.")
BUFFER_UPLOAD_BYTES = _counter("penstock_buffer_upload_bytes_total", "Bytes of batch objects uploaded.")
BUFFER_UPLOAD_RETRIES = _counter("penstock_buffer_upload_retries_total", "Retries of batch uploads.")
BUFFER_REUPLOADS = _counter(
    "penstock_buffer_reuploads_total", "Batches uploaded again because a collector may have deleted them."
)
BUFFER_DURABLE_SECONDS = _latency(
    "penstock_buffer_durable_seconds", "Time from a batch's first input until it is durable."
)
BUFFER_IN_FLIGHT_BYTES = _gauge("penstock_buffer_in_flight_bytes", "Bytes accepted and not yet durable.")
BUFFER_IN_FLIGHT_BATCHES = _gauge("penstock_buffer_in_flight_batches", "Batches closed and not yet durable.")
BUFFER_FETCHES = _counter("penstock_buffer_fetches_total", "Batch objects fetched, by outcome.", "outcome")
BUFFER_FETCH_SECONDS = _latency("penstock_buffer_fetch_seconds", "Time to fetch and decode one batch object.")
BUFFER_FETCH_BYTES = _counter("penstock_buffer_fetch_bytes_total", "Bytes of batch objects fetched.")
BUFFER_FETCH_RECORDS = _counter("penstock_buffer_fetch_records_total", "Records of batch objects fetched.")
BUFFER_ACKS = _counter("penstock_buffer_acks_total", "Batches acknowledged.")
BUFFER_QUEUE_BATCHES = _gauge("penstock_buffer_queue_batches", "Entries in the manifest when it was last read.")
BUFFER_LAG_BATCHES = _gauge("penstock_buffer_lag_batches", "Batches queued and not acknowledged.")
BUFFER_LAG_SECONDS = _gauge("penstock_buffer_lag_seconds", "Age of the oldest input that is not acknowledged.")
BUFFER_DEAD_LETTERS = _counter("penstock_buffer_dead_letters_total", "Batches set aside, by reason.", "reason")
BUFFER_COLLECTED = _counter("penstock_buffer_collected_total", "Batch objects deleted as garbage.")
BUFFER_COLLECT_FAILURES = _counter("penstock_buffer_collect_failures_total", "Collections that failed.")
BUFFER_COLLECT_SECONDS = _latency("penstock_buffer_collect_seconds", "Time of one collection.")
BUFFER_UPLOAD = _span("buffer.upload", "One batch: encode and upload.")
BUFFER_ENQUEUE = _span("buffer.enqueue", "One write of the manifest that appends batches.")
BUFFER_FETCH = _span("buffer.fetch", "One batch: fetch and decode.")
BUFFER_DEQUEUE = _span("buffer.dequeue", "One write of the manifest that removes what was acknowledged.")
BUFFER_HALTED = _event("buffer.halted", "error", "A write of the manifest was given up: the producer stops.")
BUFFER_GIVEN_UP = _event("buffer.given_up", "error", "A batch could not be uploaded: its callers get the error.")
BUFFER_UNPROVED = _event("buffer.unproved", "error", "It is no longer known whether batches were enqueued.")
BUFFER_FENCED = _event("buffer.fenced", "warning", "Another consumer took over: this one stops.")
BUFFER_STARTED = _event("buffer.started", "info", "A consumer took the fence.")
BUFFER_DEAD_LETTER = _event("buffer.dead_letter", "error", "A batch object is missing or unreadable and was set aside.")
BUFFER_REPLAYED = _event("buffer.replayed", "info", "A dead letter was put back into the queue.")
BUFFER_COLLECT_FAILED = _event("buffer.collect_failed", "warning", "A collection failed; the next one continues.")

# catalog ------------------------------------------------------------------------------------------
# Commits, conflicts and lost answers: the register metrics, labelled catalog and catalog.shards.
CATALOG_HEAD_BYTES = _gauge("penstock_catalog_head_bytes", "Size of a shard's head when it was last written.", "shard")
CATALOG_INLINE_FILES = _gauge("penstock_catalog_inline_files", "Files that a shard's head carries inline.", "shard")
CATALOG_COMMIT_SECONDS = _latency("penstock_catalog_commit_seconds", "Time of one commit with its retries.", "change")
CATALOG_PLAN_SECONDS = _latency("penstock_catalog_plan_seconds", "Time of one plan with its reads.")
CATALOG_RETRIES = _counter("penstock_catalog_retries_total", "Changes retried after a segment was fetched.")
CATALOG_VACUUMED = _counter("penstock_catalog_vacuumed_total", "Objects deleted by vacuum, by kind.", "kind")
COMPACTION_TASKS = _counter("penstock_compaction_tasks_total", "Merges of data files, by outcome.", "outcome")
COMPACTION_BYTES = _counter("penstock_compaction_bytes_total", "Bytes of files that merges read and wrote.", "kind")
COMPACTION_ROWS = _counter("penstock_compaction_rows_total", "Rows of merged files.")
COMPACTION_SECONDS = _latency("penstock_compaction_merge_seconds", "Time of one merge.", "level")
COMPACTION_FAILED = _event("compaction.failed", "warning", "A merge or an upkeep came to nothing; it is tried again.")
SQL_QUERIES = _counter("penstock_sql_queries_total", "SQL queries, by outcome.", "outcome")
SQL_SECONDS = _latency("penstock_sql_query_seconds", "Time of one SQL query, from its text to its rows.")
SQL_PLAN_SECONDS = _latency("penstock_sql_plan_seconds", "Time to plan the files of a SQL query.")
CATALOG_GROWING = _event("catalog.growing", "warning", "A head has grown large; the event says what to do.")
CATALOG_UPKEEP_FAILED = _event(
    "catalog.upkeep_failed", "warning", "Files were not spilled or archived; the next commit tries again."
)

# quiver -------------------------------------------------------------------------------------------
QUIVER_INGESTED_BUNDLES = _counter("penstock_quiver_ingest_bundles_total", "Bundles acknowledged.", "instance")
QUIVER_INGESTED_BYTES = _counter("penstock_quiver_ingest_bytes_total", "Bytes of bundles acknowledged.", "instance")
QUIVER_THROTTLED = _counter(
    "penstock_quiver_ingest_throttle_total",
    "Calls of ingest that waited or were refused at the size limit.",
    "instance",
)
QUIVER_BACKPRESSURE_SECONDS = _counter(
    "penstock_quiver_backpressure_seconds_total", "Time that callers of ingest waited for room.", "instance"
)
QUIVER_WAL_SYNC_SECONDS = _latency("penstock_quiver_wal_sync_seconds", "Time of one group commit of the log.")
QUIVER_SEGMENTS_FINALISED = _counter(
    "penstock_quiver_segments_finalised_total", "Open segments finalised, by reason.", "reason"
)
QUIVER_OPEN_SEGMENT_BYTES = _gauge(
    "penstock_quiver_open_segment_bytes", "Bytes of bundles in memory, not yet in a segment file.", "instance"
)
QUIVER_BYTES = _gauge("penstock_quiver_bytes", "Bytes on disk, by kind: wal, segments, ack_log.", "instance", "kind")
QUIVER_CORE_BYTES = _gauge("penstock_quiver_core_bytes", "Bytes on disk of one instance.", "core_id")
QUIVER_CORE_CAP_FRACTION = _gauge(
    "penstock_quiver_core_cap_fraction", "Fraction of the size limit that one instance uses.", "core_id"
)
QUIVER_OUTSTANDING_SEGMENTS = _gauge(
    "penstock_quiver_outstanding_segments", "Segments waiting for a subscriber.", "instance", "subscriber"
)
QUIVER_GAP_SET_SIZE = _gauge(
    "penstock_quiver_gap_set_size", "Acknowledgements above a subscriber's mark.", "instance", "subscriber"
)
QUIVER_ACK_LOG_DEPTH = _gauge(
    "penstock_quiver_ack_log_depth", "Records of ack.log since its last checkpoint.", "instance"
)
QUIVER_OUTCOMES = _counter(
    "penstock_quiver_outcomes_total", "Outcomes of deliveries, by subscriber.", "subscriber", "outcome"
)
QUIVER_GC_EVICTIONS = _counter("penstock_quiver_gc_evictions_total", "Segments removed, by reason.", "reason")
QUIVER_SIZE_EMERGENCIES = _counter(
    "penstock_quiver_retention_size_emergency_total", "Sweeps that removed segments because of a limit."
)
QUIVER_SUBSCRIBER_DROPPED = _counter(
    "penstock_quiver_subscriber_dropped_segments_total",
    "Segments dropped unprocessed, by subscriber.",
    "subscriber",
)
QUIVER_SEGMENTS_DROPPED = _counter(
    "penstock_quiver_segment_dropped_total",
    "Segments lost before every subscriber had processed them, by reason.",
    "reason",
)
QUIVER_BUNDLES_LOST = _counter("penstock_quiver_lost_bundles_total", "Bundles lost unprocessed, by reason.", "reason")
QUIVER_ROWS_LOST = _counter("penstock_quiver_lost_rows_total", "Rows lost unprocessed, by reason.", "reason")
QUIVER_BYTES_LOST = _counter("penstock_quiver_lost_bytes_total", "Bytes lost unprocessed, by reason.", "reason")
QUIVER_OPENED = _event("quiver.opened", "info", "A store was opened, with what its start found.")
QUIVER_DAMAGE = _event("quiver.damage", "error", "Something cannot be read; it was set aside, and its data is lost.")
QUIVER_WAL_FAILED = _event(
    "quiver.wal_failed", "warning", "A write of the log failed; the log continues in a new file."
)
QUIVER_SEGMENT_FAILED = _event(
    "quiver.segment_failed", "warning", "A segment could not be written; it stays in memory and is retried."
)
QUIVER_REMOVAL_FAILED = _event(
    "quiver.removal_failed", "warning", "Files of removed segments could not be deleted; the next start deletes them."
)
QUIVER_DEAD_LETTER = _event("quiver.dead_letter", "error", "A subscriber refused a segment permanently.")
QUIVER_ORPHAN_RELEASED = _event("quiver.orphan_released", "warning", "A subscriber without any calls was unregistered.")

# landing ------------------------------------------------------------------------------------------
LANDING_BATCHES = _counter(
    "penstock_landing_batches_total",
    "Batches that the telemetry job processed: landed, repeated, set-aside.",
    "outcome",
)
LANDING_ROWS = _counter("penstock_landing_rows_total", "Rows in registered data files.")
LANDING_FILES = _counter("penstock_landing_files_total", "Registered data files.")
LANDING_FILE_BYTES = _counter("penstock_landing_file_bytes_total", "Bytes of registered data files.")
LANDING_SAMPLES = _counter("penstock_landing_samples_total", "Samples written to the time series.")
LANDING_REFUSED_POINTS = _counter(
    "penstock_landing_refused_points_total", "Points without a series, by reason.", "reason"
)
LANDING_QUARANTINED_ROWS = _counter(
    "penstock_landing_quarantined_rows_total", "Rows set aside because they do not fit their table."
)
LANDING_POSITION = _gauge(
    "penstock_landing_position", "Last sequence of the queue that both stores have, by shard.", "shard"
)
LANDING_ROUND_SECONDS = _latency(
    "penstock_landing_round_seconds", "Time from the start of a round to its acknowledgement."
)
LANDING_SET_ASIDE = _event(
    "landing.set_aside", "warning", "A batch cannot be read; it is a dead letter, and the job goes on."
)
LANDING_QUARANTINED = _event("landing.quarantined", "warning", "Rows do not fit their table, and were put aside.")
LANDING_SAMPLES_REFUSED = _event(
    "landing.samples_refused",
    "warning",
    "The time series refused the samples of a tenant's batch; its rows are in the catalog.",
)
LANDING_GAP = _event(
    "landing.gap", "warning", "Batches that a store lacks have left the queue; the store continues after them."
)

# relay --------------------------------------------------------------------------------------------
RELAY_SEGMENTS = _counter(
    "penstock_relay_segments_total",
    "Segments processed: sent, found (sent by an earlier attempt), refused, lost.",
    "subscriber",
    "outcome",
)
RELAY_ROWS = _counter("penstock_relay_rows_total", "Rows of processed segments.", "subscriber", "outcome")
RELAY_BYTES = _counter("penstock_relay_bytes_total", "Bytes of processed segments.", "subscriber", "outcome")
RELAY_SEGMENT_SECONDS = _latency(
    "penstock_relay_segment_seconds", "Time from a segment's delivery to its acknowledgement.", "subscriber"
)
RELAY_RETRIES = _counter("penstock_relay_retries_total", "Attempts that failed with a transient error.", "subscriber")
RELAY_STALLED_SECONDS = _gauge(
    "penstock_relay_stalled_seconds",
    "Time for which a relay's target has been unreachable, in seconds; 0 while it answers.",
    "subscriber",
)
RELAY_UNPROVED_SEGMENTS = _counter(
    "penstock_relay_unproved_segments_total",
    "Segments for which it was unknown after a crash whether they were consumed, by policy.",
    "policy",
)
RELAY_OTLP_REQUESTS = _counter(
    "penstock_relay_otlp_requests_total", "Requests to a collector: success, retryable, permanent, none.", "answer"
)
RELAY_OTLP_REJECTED = _counter(
    "penstock_relay_otlp_rejected_items_total", "Items that a collector rejected in a partial success.", "signal"
)
RELAY_CONSUMED_BATCHES = _counter(
    "penstock_relay_consumed_batches_total", "Batches of a queue stored together with their sequence.", "consumer"
)
RELAY_CONSUMED_RECORDS = _counter(
    "penstock_relay_consumed_records_total",
    "Records read from a queue: taken (all of them), and rejected (a part of those).",
    "consumer",
    "outcome",
)
RELAY_RECORD_REJECTED = _event(
    "relay.record_rejected", "warning", "A store cannot accept a record of its queue; it was set aside."
)
RELAY_STALLED = _event("relay.stalled", "warning", "A relay's target is unreachable; it is retried until it answers.")
RELAY_RESUMED = _event("relay.resumed", "info", "A relay's target is back.")
RELAY_UNPROVED = _event(
    "relay.unproved",
    "warning",
    "A segment may have been consumed before a crash; the policy decides whether it is sent again.",
)
RELAY_JOURNAL_LOST = _event(
    "relay.journal_lost", "error", "A relay's journal cannot be read; what it was sending may arrive twice."
)
RELAY_LAYOUT = _event("relay.layout", "info", "A relay uses another layout of the queues from this segment on.")
RELAY_OTLP_PARTIAL = _event(
    "relay.otlp_partial", "warning", "A collector accepted a request in part, or with a warning."
)

# blocks -------------------------------------------------------------------------------------------
BLOCKS_CACHE_BYTES = _gauge("penstock_blocks_cache_bytes", "Decoded blocks held in memory.", "store")
BLOCKS_CACHE_READS = _counter(
    "penstock_blocks_cache_reads_total", "Blocks read, by whether they were in memory.", "store", "outcome"
)
BLOCKS_CORRUPT = _event("blocks.corrupt", "error", "A block cannot be read; answers without it are partial.")

# timeseries ---------------------------------------------------------------------------------------
TIMESERIES_SAMPLES = _counter("penstock_timeseries_samples_total", "Samples in accepted writes.")
TIMESERIES_SERIES_CREATED = _counter(
    "penstock_timeseries_series_created_total", "Series new to a day: churn, and each known series once a day."
)
TIMESERIES_CHANGES_SKIPPED = _counter(
    "penstock_timeseries_changes_skipped_total",
    "Changes skipped because their source position was already stored.",
)
TIMESERIES_SAMPLES_EXPIRED = _counter(
    "penstock_timeseries_samples_expired_total", "Samples skipped because they were older than the retention."
)
TIMESERIES_HOURS_FOLDED = _counter("penstock_timeseries_hours_folded_total", "Closed hours that were folded.")
TIMESERIES_HOURS_EXPIRED = _counter("penstock_timeseries_hours_expired_total", "Hours removed by retention.")
TIMESERIES_QUERY_SECONDS = _latency("penstock_timeseries_query_seconds", "Time of one PromQL query with its reads.")
TIMESERIES_UPKEEP_FAILED = _event(
    "timeseries.upkeep_failed",
    "warning",
    "An hour was not merged or removed; the data is not affected. It is retried after the next write.",
)
TIMESERIES_ASIDE = _event(
    "timeseries.aside", "error", "A damaged tenant or hour accepts no writes until it is restored or removed."
)
TIMESERIES_RECORD_CORRUPT = _event(
    "timeseries.record_corrupt", "error", "The store's record or a source's position cannot be read; the rest is open."
)

# vector -------------------------------------------------------------------------------------------
VECTOR_ROWS = _counter("penstock_vector_rows_total", "Rows written and ids deleted in accepted writes.", "operation")
VECTOR_CHANGES_SKIPPED = _counter(
    "penstock_vector_changes_skipped_total", "Changes skipped because their source position was already stored."
)
VECTOR_SEARCH_SECONDS = _latency("penstock_vector_search_seconds", "Time of one search with all its queries.")
VECTOR_SEARCHES_PARTIAL = _counter(
    "penstock_vector_searches_partial_total", "Searches answered without an unreadable block."
)
VECTOR_LISTS_RESHAPED = _counter(
    "penstock_vector_lists_reshaped_total", "Posting lists that were split or dissolved.", "how"
)
VECTOR_UPKEEP_FAILED = _event(
    "vector.upkeep_failed",
    "warning",
    "Lists or dead rows were not cleaned up; the data is not affected. It is retried after the next write.",
)
VECTOR_COLLECTION_ASIDE = _event(
    "vector.collection_aside", "error", "A damaged collection accepts no writes until it is repaired or dropped."
)
VECTOR_COLLECTION_MENDED = _event(
    "vector.collection_mended", "warning", "Unreadable blocks of a collection were rebuilt from others."
)
VECTOR_RECORD_CORRUPT = _event(
    "vector.record_corrupt", "error", "The store's record or a source's position cannot be read; the rest is open."
)

# indexing -----------------------------------------------------------------------------------------
INDEXING_EVENTS = _counter("penstock_indexing_events_total", "Events taken from the queue, by outcome.", "outcome")
INDEXING_DOCUMENTS = _counter("penstock_indexing_documents_total", "Finished documents, by status.", "status")
INDEXING_CHUNKS = _counter(
    "penstock_indexing_chunks_total",
    "Chunks written, by origin of their vector: embedded, reused, or none (found by words only).",
    "origin",
)
INDEXING_TOKENS = _counter("penstock_indexing_tokens_total", "Tokens of chunks written.")
INDEXING_COST_USD = _counter(
    "penstock_indexing_cost_usd_total", "Price of embeddings in US dollars, by the models' profiles."
)
INDEXING_PARSES = _counter("penstock_indexing_parses_total", "Documents parsed into text.")
INDEXING_ROUND_SECONDS = _latency("penstock_indexing_round_seconds", "Time of one stage of a round.", "stage")
INDEXING_LATENCY_SECONDS = _latency(
    "penstock_indexing_latency_seconds", "Time from an event's arrival in the queue until its document is done."
)
INDEXING_LAG_SECONDS = _gauge("penstock_indexing_lag_seconds", "Age of the oldest event whose document is not done.")
INDEXING_BACKLOG_DOCUMENTS = _gauge("penstock_indexing_backlog_documents", "Documents planned and not yet done.")
INDEXING_BACKLOG_BYTES = _gauge("penstock_indexing_backlog_bytes", "Bytes of planned documents not yet read.")
INDEXING_PROVIDER_RETRIES = _counter(
    "penstock_indexing_provider_retries_total", "Retried requests to an embedding provider."
)
INDEXING_PROVIDER_AWAY = _gauge(
    "penstock_indexing_provider_away", "1 while the job waits for an embedding provider that is down."
)
INDEXING_WAITING_DOCUMENTS = _gauge(
    "penstock_indexing_waiting_documents", "Documents that wait for buckets that do not answer."
)
INDEXING_READ_BYTES = _counter("penstock_indexing_read_bytes_total", "Bytes of documents read from their buckets.")
INDEXING_READ_SECONDS = _latency("penstock_indexing_read_seconds", "Time of one read from a document's bucket.")
INDEXING_RESUMES = _counter(
    "penstock_indexing_resumes_total", "Documents that a job resumed where an earlier job stopped."
)
INDEXING_BATCHES = _counter("penstock_indexing_batches_total", "Embedding batches sent, by what closed them.", "reason")
INDEXING_BATCH_TOKENS = _histogram(
    "penstock_indexing_batch_tokens", "Tokens of one embedding batch.", _BATCH_TOKEN_BUCKETS
)
INDEXING_BATCH_ITEMS = _histogram(
    "penstock_indexing_batch_items", "Chunks of one embedding batch.", _BATCH_ITEM_BUCKETS
)
INDEXING_DUPLICATES = _counter("penstock_indexing_duplicates_total", "Events and chunks dropped as duplicates.", "what")
INDEXING_WARNINGS = _counter("penstock_indexing_warnings_total", "Warnings in the reports of finished documents.")
INDEXING_RECEIVE = _span("indexing.receive", "One delivery of notifications: checked, read and queued.")
INDEXING_NOTIFY = _span("indexing.notify", "Notifications put on the queue; in the trace of each event that has one.")
INDEXING_READ = _span(
    "indexing.read", "One document: its part of a round read, parsed and chunked; in the trace of its event."
)
INDEXING_EMBED = _span("indexing.embed", "One embedding batch; linked to the traces of its documents' events.")
INDEXING_DOCUMENT = _span(
    "indexing.document", "One document, from its event's arrival in the queue to its end; in the trace of its event."
)
INDEXING_PLAN = _span("indexing.plan", "One micro-batch: its events decided on and the decisions written.")
INDEXING_ROUND = _span("indexing.round", "One round: read, batch, embed and write.")
INDEXING_OUTAGE = _event("indexing.outage", "warning", "An embedding provider is down; the job retries later.")
INDEXING_BUDGET = _event("indexing.budget", "warning", "A run has spent its budget; the rest waits for the next run.")
INDEXING_POSTPONED = _event("indexing.postponed", "warning", "A bucket does not answer; its documents wait.")
INDEXING_RESUMED = _event("indexing.resumed", "info", "A job resumed documents that an earlier one had not finished.")
INDEXING_NOTIFIED = _event("indexing.notified", "info", "Notifications were put on the queue.")
INDEXING_PLANNED = _event("indexing.planned", "debug", "A version of a document waits to be read.")
INDEXING_BATCHED = _event("indexing.batched", "debug", "An embedding batch was made.")
INDEXING_DONE = _event("indexing.done", "info", "A version of a document is searchable.")
INDEXING_SET_ASIDE = _event("indexing.set_aside", "warning", "A version of a document could not be made searchable.")

# gateway ---------------------------------------------------------------------------------------------------

GATEWAY_REQUESTS = _counter("penstock_gateway_requests_total", "Requests answered.", "route", "status")
GATEWAY_REQUEST_SECONDS = _latency("penstock_gateway_request_seconds", "Time from a request to its answer.", "route")
GATEWAY_ROWS = _counter("penstock_gateway_rows_total", "Rows of telemetry acknowledged.", "signal")
GATEWAY_REJECTED_ROWS = _counter(
    "penstock_gateway_rejected_rows_total", "Rows of telemetry rejected in accepted requests.", "signal"
)
GATEWAY_FAILED = _event("gateway.failed", "error", "A request failed with an unexpected error.")
GATEWAY_TOKENS_REFUSED = _gauge(
    "penstock_gateway_token_file_refused", "1 while the token file cannot be used; revocations in it do not count."
)
GATEWAY_TOKENS_UNUSABLE = _event(
    "gateway.tokens_unusable", "error", "The token file cannot be used; the event says which tokens are valid."
)
GATEWAY_TOKENS_READ = _event("gateway.tokens_read", "info", "The token file can be used again, and was read.")
GATEWAY_AUDIT = _event(
    "gateway.audit", "info", "An administrative request, a login or a change of documents was answered."
)

# serve -----------------------------------------------------------------------------------------------------

SERVE_RUNNING = _gauge("penstock_serve_job_running", "1 while a supervised job runs.", "job")
SERVE_RESTARTS = _counter("penstock_serve_job_restarts_total", "Restarts of supervised jobs.", "job")
SERVE_JOB_ENDED = _event("serve.job_ended", "warning", "A supervised job ended; it is restarted.")
