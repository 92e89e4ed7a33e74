"""A round does not wait for a document that takes long: it is put aside, and finished in a round of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.indexing.desk import Desk
from tests.indexing.test_backlog import waiting
from tests.indexing.test_reading import read, upload

from penstock.documents import DocumentStatus
from penstock.documents.parsers import ParserLimits
from penstock.indexing.planning.apart import OVERTAKEN_MAX, in_turn, is_apart, put_aside
from penstock.indexing.planning.backlog import Backlog, Share
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.rounds.rounds import postponed
from penstock.indexing.stages.reading import Reading
from penstock.indexing.stages.readings import DocumentReading, ReadOutcome

# Some ten seconds of a Markdown parser.
SLOW = b"# Slow\n\n" + b"*a **a " * 400_000
HASTY = ParserLimits(round_cpu_seconds=1, cpu_seconds=3)


def turned(entry: DocumentEntry, **changes: Any) -> DocumentEntry:
    assert entry.pending is not None
    return msgspec.structs.replace(entry, pending=msgspec.structs.replace(entry.pending, **changes))


def test_those_that_were_put_aside_are_not_in_the_round_of_the_others_and_alone_in_their_own() -> None:
    (name, slow), (_, other), (_, slower) = waiting("acme", 10, 20, 30)
    slow, slower = turned(slow, apart=True), turned(slower, apart=True)
    assert in_turn([(name, slow), (name, other), (name, slower)]) == [(name, other)]
    assert in_turn([(name, slow), (name, slower)]) == [(name, slow)]
    assert in_turn([(name, other)]) == [(name, other)]
    assert in_turn([]) == []


def test_a_stream_without_a_pause_does_not_starve_one_that_was_put_aside() -> None:
    (name, slow), (_, other) = waiting("acme", 10, 20)
    slow = turned(slow, apart=True, turn=5)
    assert in_turn([(name, slow), (name, turned(other, turn=5 + OVERTAKEN_MAX))])[0][1].key == other.key
    assert in_turn([(name, slow), (name, turned(other, turn=6 + OVERTAKEN_MAX))]) == [(name, slow)]


def test_once_its_text_is_known_it_is_read_like_any_other() -> None:
    ((_, entry),) = waiting("acme", 10)
    assert entry.pending is not None
    assert not is_apart(entry.pending)
    assert is_apart(msgspec.structs.replace(entry.pending, apart=True))
    assert not is_apart(msgspec.structs.replace(entry.pending, apart=True, text_bytes=7))
    assert msgspec.structs.replace(entry.pending, apart=True).anew(fingerprint="rule", turn=3).apart


def test_putting_aside_is_written_down_behind_everybody_and_its_bucket_counts_as_there() -> None:
    (name, slow), (_, other), (_, away) = waiting("acme", 10, 20, 30)
    shares = [Share(name, entry, 1) for entry in (slow, other, away)]
    readings = [DocumentReading(outcome=outcome) for outcome in (ReadOutcome.APART, ReadOutcome.END, ReadOutcome.AWAY)]
    ((_, aside),) = put_aside(shares, readings, 9)
    assert aside == turned(slow, apart=True, turn=9)
    ((_, waits),) = postponed([shares[0], shares[2]], [readings[0], readings[2]], 0, 9)
    assert waits.pending
    assert waits.pending.wait
    assert not waits.pending.wait.whole
    backlog = Backlog(RoundLimits())
    for entry in (aside, other):
        backlog.put(name, entry)
    assert [share.entry.key for share in backlog.round(1000)] == [other.key]
    backlog.put(name, msgspec.structs.replace(other, pending=None))
    assert [share.entry.key for share in backlog.round(1000)] == [aside.key]
    assert backlog.ready


@pytest.mark.processes
def test_a_document_that_takes_longer_than_others_wait_is_told_and_apart_it_gets_all_its_time(tmp_path: Path) -> None:
    (tmp_path / "slow.md").write_bytes(SLOW)
    (ending,) = read(Reading(limits=HASTY), upload(tmp_path, "slow.md"))
    assert ending.outcome == ReadOutcome.APART
    (ending,) = read(Reading(limits=HASTY), upload(tmp_path, "slow.md"), apart=True)
    assert (ending.outcome, "processor time: more than 3 s" in ending.detail[0]) == (ReadOutcome.QUARANTINED, True)


@pytest.mark.integration
def test_small_documents_are_searchable_before_the_slow_ones_beside_them_are_finished(
    engine: None, tmp_path: Path
) -> None:
    desk = Desk(engine, tmp_path)
    seen: list[tuple[int, int]] = []
    desk.run(
        desk.write("slow.md", SLOW),
        desk.write("slower.md", SLOW + b" again"),
        desk.write("small.txt", "Thirty-two bytes of plain words."),
        reading=Reading(limits=HASTY),
        progress=lambda summary: seen.append((summary.documents, len(summary.set_aside))),
    )
    assert (1, 0) in seen
    assert seen[-1] == (1, 2)
    assert desk.report("slow.md").status is DocumentStatus.QUARANTINED
    assert "more than 3 s" in str(desk.report("slower.md").reason)
