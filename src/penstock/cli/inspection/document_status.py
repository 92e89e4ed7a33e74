"""What is known of a document, for `penstock documents`: one row of the list, and everything beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.indexing import DocumentEntry, Pending

__all__ = ["details_of", "lines_of", "row_of", "status_of", "warning_of"]


def status_of(entry: DocumentEntry) -> str:
    return "pending" if entry.pending or entry.report is None else entry.report.status.value


def row_of(entry: DocumentEntry) -> dict[str, Any]:
    report = entry.report
    return {
        "bucket": entry.bucket,
        "key": entry.key,
        "status": status_of(entry),
        "chunks": report.chunks if report else 0,
        "tokens": report.tokens if report else 0,
        "reason": _reason(entry),
        "warnings": list(report.warnings) if report else [],
    }


def warning_of(row: Mapping[str, Any]) -> str:
    """The first warning of a document, and how many more there are."""
    first, *more = row["warnings"] or [""]
    return f"warning: {first}" + (f" (and {len(more)} more)" if more else "") if first else ""


def _reason(entry: DocumentEntry) -> str | None:
    """Why a document waits, or what its last report says."""
    if entry.pending is None:
        return entry.report.reason if entry.report else None
    return f"waits: {entry.pending.wait.reason}" if entry.pending.wait else None


def details_of(entry: DocumentEntry) -> dict[str, Any]:
    """Beyond a row of the list."""
    report, upload = entry.report, entry.upload
    return {
        "cost_usd": report.cost_usd if report else 0.0,
        "missing_seqs": list(report.missing_seqs) if report else [],
        "current": entry.current,
        "chunking": entry.fingerprint,
        "revision": entry.state.revision,
        "told_at": entry.state.at.isoformat(),
        "sequencer": entry.state.sequencer,
        "source_id": upload.source_id if upload else None,
        "upload": msgspec.to_builtins(upload) if upload else None,
        "pending": _progress(entry.pending) if entry.pending else None,
    }


def _progress(pending: Pending) -> dict[str, Any]:
    return {
        "document": pending.doc_id,
        "chunks": pending.chunks,
        "tokens": pending.tokens,
        "next_byte_start": pending.progress.next_byte_start,
        "text_bytes": pending.upload.size_bytes if pending.text_bytes is None else pending.text_bytes,
        "warnings": list(pending.warnings),
        "tries": pending.wait.tries if pending.wait else 0,
        "next_try": _time(pending.wait.until_ms) if pending.wait and pending.wait.until_ms else None,
    }


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def lines_of(entry: DocumentEntry) -> list[tuple[str, str]]:
    """The same for a person; what says nothing is left out."""
    row, more = row_of(entry), details_of(entry)
    upload, pending = entry.upload, more["pending"]
    size = f"{upload.size_bytes:,} bytes" if upload else "gone"
    lines = [
        ("bucket", entry.bucket),
        ("status", row["status"] + (f": {row['reason']}" if row["reason"] else "")),
        ("searchable", f"version {entry.current[:12]}" if entry.current else "no version"),
        ("object", size + (f", etag {upload.etag}" if upload and upload.etag else "")),
        ("told", f"{more['told_at']}, event {more['revision']}, order {more['sequencer'] or 'by time'}"),
        ("chunks", f"{row['chunks']:,}"),
        ("tokens", f"{row['tokens']:,}"),
        ("cost", f"${more['cost_usd']:.6f}"),
    ]
    if upload and upload.version_id:
        lines.append(("version", upload.version_id))
    if upload and upload.source_id:
        lines.append(("source", upload.source_id))
    if pending:
        reached = f"up to byte {pending['next_byte_start']:,} of {pending['text_bytes']:,}"
        done = f"{pending['chunks']:,} chunks, {pending['tokens']:,} tokens, {reached}"
        lines.append(("being built", f"version {pending['document'][:12]}: {done}"))
    if pending and pending["tries"]:
        lines.append(("tried", f"{pending['tries']} times, next {pending['next_try'] or 'at once'}"))
    return [*lines, *(("warning", warning) for warning in row["warnings"])]
