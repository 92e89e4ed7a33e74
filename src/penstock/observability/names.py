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

# Seconds: from a warm local read to an object store having a bad day.
LATENCY_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def _counter(name: str, help: str, *labels: str) -> Metric:
    return _metric(Metric(name, Kind.COUNTER, help, labels))


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return _metric(Metric(name, Kind.GAUGE, help, labels))


def _latency(name: str, help: str, *labels: str) -> Metric:
    return _metric(Metric(name, Kind.HISTOGRAM, help, labels, LATENCY_BUCKETS))


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
    "penstock_objects_request_seconds", "Time of one object-store call, retries included.", "verb"
)
OBJECTS_RETRIES = _counter("penstock_objects_retries_total", "Object-store calls sent again after a fault.", "verb")
OBJECTS_BYTES = _counter("penstock_objects_bytes_total", "Bytes moved to and from the object store.", "direction")

# register -----------------------------------------------------------------------------------------
REGISTER_COMMITS = _counter("penstock_register_commits_total", "Conditional writes that landed.", "register")
REGISTER_CONFLICTS = _counter(
    "penstock_register_conflicts_total", "Conditional writes that lost to another writer.", "register"
)
REGISTER_UNKNOWN = _counter(
    "penstock_register_unknown_total", "Writes of unknown outcome, by what re-reading showed.", "register", "resolved"
)
REGISTER_GROUP_SIZE = _metric(
    Metric(
        "penstock_register_group_size",
        Kind.HISTOGRAM,
        "Updates that shared one conditional write.",
        ("register",),
        (1, 2, 4, 8, 16, 32, 64, 128),
    )
)

# keyvalue -----------------------------------------------------------------------------------------
KEYVALUE_WRITE_BYTES = _counter("penstock_keyvalue_write_bytes_total", "Bytes of keys and values written.")
KEYVALUE_DURABLE_SECONDS = _latency(
    "penstock_keyvalue_durable_seconds", "Time from a write to its being durable in the object store."
)
KEYVALUE_SYNC_SECONDS = _latency(
    "penstock_keyvalue_sync_seconds", "Time of one sync of the file system under a store in a directory."
)
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
    "penstock_coordinator_rejected_total", "Writes given back because a bound was reached.", "coordinator"
)
COORDINATOR_WAIT_SECONDS = _latency(
    "penstock_coordinator_wait_seconds", "Time a write waited for room, for those that had to.", "coordinator"
)
COORDINATOR_WRITE_SECONDS = _latency(
    "penstock_coordinator_write_seconds", "Time from a flush's oldest write to its being durable.", "coordinator"
)
COORDINATOR_FLUSH_SECONDS = _latency(
    "penstock_coordinator_flush_seconds", "Time from a flush's start to each mark.", "coordinator", "mark"
)
COORDINATOR_FLUSHES = _counter("penstock_coordinator_flushes_total", "Flushes by reason.", "coordinator", "reason")
COORDINATOR_FAILURES = _counter(
    "penstock_coordinator_failures_total", "Attempts to flush that failed, by what followed.", "coordinator", "outcome"
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
COORDINATOR_EPOCH = _gauge("penstock_coordinator_epoch", "The epoch each mark has reached.", "coordinator", "mark")
COORDINATOR_FLUSH = _span("coordinator.flush", "One attempt to flush, until its writes are visible.")
COORDINATOR_RETRYING = _event("coordinator.retrying", "warning", "A flush failed and is going to be made again.")
COORDINATOR_FAILED = _event("coordinator.failed", "error", "A flush failed for good: writes are refused until a retry.")

# buffer -------------------------------------------------------------------------------------------
# Writes and conflicts of the manifest by role: the register metrics, labelled buffer.producer and buffer.consumer.
BUFFER_INPUTS = _counter("penstock_buffer_inputs_total", "Calls of produce, by whether they had to wait.", "admission")
BUFFER_FLUSHES = _counter("penstock_buffer_flushes_total", "Batches closed, by reason.", "reason")
BUFFER_BATCHES = _counter("penstock_buffer_batches_total", "Batches produced, by what became of them.", "outcome")
BUFFER_FAILED_INPUTS = _counter(
    "penstock_buffer_failed_inputs_total", "Calls of produce whose handle fails, by outcome.", "outcome"
)
BUFFER_RECORDS = _counter("penstock_buffer_records_total", "Records made durable in the queue.")
BUFFER_RECORD_BYTES = _counter("penstock_buffer_record_bytes_total", "Bytes of closed batches before compression.")
BUFFER_UPLOAD_BYTES = _counter("penstock_buffer_upload_bytes_total", "Bytes of batch objects uploaded.")
BUFFER_UPLOAD_RETRIES = _counter("penstock_buffer_upload_retries_total", "Uploads of a batch tried once more.")
BUFFER_REUPLOADS = _counter(
    "penstock_buffer_reuploads_total", "Batches uploaded anew because a collector may have them."
)
BUFFER_DURABLE_SECONDS = _latency("penstock_buffer_durable_seconds", "Time from a batch's first input to durable.")
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
BUFFER_COLLECT_FAILURES = _counter("penstock_buffer_collect_failures_total", "Collections that ended in an error.")
BUFFER_COLLECT_SECONDS = _latency("penstock_buffer_collect_seconds", "Time of one collection.")
BUFFER_UPLOAD = _span("buffer.upload", "One batch: encode and upload.")
BUFFER_ENQUEUE = _span("buffer.enqueue", "One write of the manifest that appends batches.")
BUFFER_FETCH = _span("buffer.fetch", "One batch: fetch and decode.")
BUFFER_DEQUEUE = _span("buffer.dequeue", "One write of the manifest that removes what was acknowledged.")
BUFFER_HALTED = _event("buffer.halted", "error", "A write of the manifest was given up: the producer stops.")
BUFFER_GIVEN_UP = _event("buffer.given_up", "error", "A batch could not be uploaded: its callers get the error.")
BUFFER_UNPROVED = _event("buffer.unproved", "error", "Whether batches were enqueued can no longer be known.")
BUFFER_FENCED = _event("buffer.fenced", "warning", "Another consumer took over: this one stops.")
BUFFER_STARTED = _event("buffer.started", "info", "A consumer took the fence.")
BUFFER_DEAD_LETTER = _event("buffer.dead_letter", "error", "A batch object is missing or unreadable and was set aside.")
BUFFER_REPLAYED = _event("buffer.replayed", "info", "A dead letter was put back into the queue.")
BUFFER_COLLECT_FAILED = _event("buffer.collect_failed", "warning", "A collection failed; the next one goes on.")

# vector -------------------------------------------------------------------------------------------
VECTOR_CACHE_BYTES = _gauge("penstock_vector_cache_bytes", "Decoded blocks held in memory.")
VECTOR_CACHE_READS = _counter(
    "penstock_vector_cache_reads_total", "Blocks asked for, by whether they were in memory.", "outcome"
)
VECTOR_ROWS = _counter("penstock_vector_rows_total", "Rows written and ids deleted, as asked for.", "operation")
VECTOR_CHANGES_SKIPPED = _counter(
    "penstock_vector_changes_skipped_total", "Changes left out because their source position had been stored before."
)
VECTOR_SEARCH_SECONDS = _latency("penstock_vector_search_seconds", "Time of one search, however many queries it has.")
VECTOR_SEARCHES_PARTIAL = _counter(
    "penstock_vector_searches_partial_total", "Searches answered without a block that cannot be read."
)
VECTOR_LISTS_RESHAPED = _counter(
    "penstock_vector_lists_reshaped_total", "Posting lists that were split or dissolved.", "how"
)
VECTOR_UPKEEP_FAILED = _event(
    "vector.upkeep_failed",
    "warning",
    "Lists or dead rows were not tidied; the data is not affected. It is tried again after the next write.",
)
VECTOR_BLOCK_CORRUPT = _event(
    "vector.block_corrupt", "error", "A block cannot be read; answers without it are partial."
)
VECTOR_COLLECTION_ASIDE = _event(
    "vector.collection_aside", "error", "A damaged collection takes no writes until it is repaired or dropped."
)
VECTOR_COLLECTION_MENDED = _event(
    "vector.collection_mended", "warning", "Blocks of a collection that could not be read were made again from others."
)
VECTOR_RECORD_CORRUPT = _event(
    "vector.record_corrupt", "error", "The store's record or a source's position cannot be read; the rest is open."
)

# indexing -----------------------------------------------------------------------------------------
INDEXING_EVENTS = _counter("penstock_indexing_events_total", "Events taken from the queue, by outcome.", "outcome")
INDEXING_DOCUMENTS = _counter("penstock_indexing_documents_total", "Documents that are done, by status.", "status")
INDEXING_CHUNKS = _counter(
    "penstock_indexing_chunks_total",
    "Chunks written, by their vector: embedded, reused, or none, so that only their words find them.",
    "origin",
)
INDEXING_TOKENS = _counter("penstock_indexing_tokens_total", "Tokens of chunks written.")
INDEXING_COST_USD = _counter("penstock_indexing_cost_usd_total", "Dollars of embedding, by the prices of the profiles.")
INDEXING_PARSES = _counter("penstock_indexing_parses_total", "Documents parsed into text.")
INDEXING_ROUND_SECONDS = _latency("penstock_indexing_round_seconds", "Time of one stage of a round.", "stage")
INDEXING_LATENCY_SECONDS = _latency(
    "penstock_indexing_latency_seconds", "Time from an event's arrival in the queue to its document being done."
)
INDEXING_LAG_SECONDS = _gauge("penstock_indexing_lag_seconds", "Age of the oldest event whose document is not done.")
INDEXING_BACKLOG_DOCUMENTS = _gauge("penstock_indexing_backlog_documents", "Documents planned and not done.")
INDEXING_BACKLOG_BYTES = _gauge("penstock_indexing_backlog_bytes", "Bytes of those that are still to be read.")
INDEXING_PROVIDER_RETRIES = _counter(
    "penstock_indexing_provider_retries_total", "Requests to an embedding provider that were sent again."
)
INDEXING_PROVIDER_AWAY = _gauge(
    "penstock_indexing_provider_away", "1 while the job waits for an embedding provider that stays away."
)
INDEXING_WAITING_DOCUMENTS = _gauge(
    "penstock_indexing_waiting_documents", "Documents that wait because their buckets do not answer."
)
INDEXING_PLAN = _span("indexing.plan", "One micro-batch: its events decided on and the decisions written.")
INDEXING_ROUND = _span("indexing.round", "One round: read, batch, embed and write.")
INDEXING_OUTAGE = _event("indexing.outage", "warning", "An embedding provider stays away; the job asks again later.")
INDEXING_POSTPONED = _event("indexing.postponed", "warning", "A bucket does not answer; its documents wait.")
INDEXING_RESUMED = _event("indexing.resumed", "info", "A job took up documents that an earlier one had not finished.")
