"""The store at the edge: subscribers, caps and segments."""

from __future__ import annotations

from typing import Final

from penstock.cli.serving.house_view.units import byte_text, time_text
from penstock.gateway import Fact, Section, TableView
from penstock.quiver import Quiver

__all__ = ["edge_sections"]

_ROWS_MAX: Final = 100


def edge_sections(edge: Quiver | None) -> list[Section]:
    if edge is None:
        return [Section("Edge", table=TableView((), (), empty="No store at the edge runs in this process."))]
    return [_subscribers(edge), _caps(edge), _segments(edge)]


def _subscribers(edge: Quiver) -> Section:
    state = edge.state
    rows = [
        (
            name,
            "active" if one.is_active else "paused",
            f"{state.lag(name):,}",
            f"{len(one.rejected):,}",
            time_text(one.seen_ms) if one.seen_ms else "–",
        )
        for name, one in state.subscriptions.items()
    ]
    columns = ("subscriber", "state", "segments waiting", "refused", "last seen (UTC)")
    return Section("Subscribers", table=TableView(columns, rows, frozenset({2, 3}), "Nobody subscribes."))


def _caps(edge: Quiver) -> Section:
    kept = edge.config.retention
    count_cap = "no cap" if kept.segment_count_cap is None else f"of {kept.segment_count_cap:,}"
    share = edge.stored_bytes / kept.size_cap
    return Section(
        "Caps",
        [
            Fact("on disk", f"{byte_text(edge.stored_bytes)} of {byte_text(kept.size_cap)} ({share:.1%})"),
            Fact("segments", f"{len(edge.segments):,} ({count_cap})"),
            Fact("in memory", byte_text(edge.open_bytes)),
            Fact("at the cap", str(kept.size_cap_policy.value).replace("_", " ")),
        ],
    )


def _segments(edge: Quiver) -> Section:
    found = edge.segments
    outstanding = edge.state.outstanding
    rows = [
        (
            str(meta.segment_seq),
            ", ".join(meta.signals),
            f"{meta.rows:,}",
            byte_text(meta.bytes),
            ", ".join(sorted(outstanding.get(meta.segment_seq, ()))) or "nobody",
        )
        for meta in reversed(found[-_ROWS_MAX:])
    ]
    note = f"The newest {_ROWS_MAX} of {len(found):,}." if len(found) > _ROWS_MAX else ""
    columns = ("segment", "signals", "rows", "size", "waits for")
    empty = "No segments are on the disk: everything was handed on."
    return Section("Segments", table=TableView(columns, rows, frozenset({0, 2, 3}), empty), note=note)
