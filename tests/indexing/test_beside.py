"""What was put aside is read beside the rounds of others: nobody waits for it, and nothing is read otherwise for that."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.indexing.office import Office, PlayedStages

from penstock.documents import DocumentStatus
from penstock.indexing.job.background import ReadingBeside
from penstock.indexing.job.indexer import Indexer
from penstock.indexing.stages.readings import DocumentReading, ReadRequest


class HeldStages(PlayedStages):
    """Stages that answer when the test lets them."""

    def __init__(self, *, beside_others: bool = True) -> None:
        super().__init__()
        self.go, self.begun = threading.Event(), threading.Event()
        self.failure: Exception | None = None
        self._beside_others = beside_others
        self.cancelled = 0

    @property
    def answers_beside(self) -> bool:
        return self._beside_others

    def read(self, asked: Sequence[ReadRequest]) -> list[DocumentReading]:
        self.begun.set()
        assert self.go.wait(60)
        if self.failure is not None:
            raise self.failure
        return super().read(asked)

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def held() -> Iterator[HeldStages]:
    stages = HeldStages()
    yield stages
    stages.go.set()


def office_with(folder: Path, stages: HeldStages, *slow: str) -> Office:
    office = Office(folder)
    office.stages.slow, office.beside = {*slow}, ReadingBeside(stages)
    return office


def done(office: Office, indexer: Indexer) -> set[str]:
    reports = office.reports(indexer)
    return {key for key, report in reports.items() if report and report.status is DocumentStatus.INDEXED}


def finish(indexer: Indexer) -> None:
    while not indexer.idle:
        indexer.work()


def test_new_documents_are_done_while_one_that_takes_long_is_still_being_read(tmp_path: Path, held: HeldStages) -> None:
    office = office_with(tmp_path, held, "slow")
    with office.indexer() as indexer:
        indexer.take(office.rows("slow", "small"))
        indexer.round()
        # The round after it is of the slow one alone: it is being read, and others may come first.
        indexer.work()
        assert held.begun.is_set()
        assert (done(office, indexer), indexer.due, indexer.idle) == ({"small"}, False, False)
        indexer.take(office.rows("later"))
        assert indexer.due
        indexer.round()
        assert (done(office, indexer), indexer.due) == ({"small", "later"}, False)
        held.go.set()
        finish(indexer)
        assert done(office, indexer) == {"small", "later", "slow"}
    # Each was read once, the slow one a second time beside the others.
    assert office.stages.reads == [["slow", "small"], ["later"]]
    assert held.reads == [["slow"]]


def test_several_that_take_long_are_read_one_after_the_other(tmp_path: Path, held: HeldStages) -> None:
    office = office_with(tmp_path, held, "slow", "slower")
    held.go.set()
    with office.indexer() as indexer:
        indexer.take(office.rows("slow", "slower", "small"))
        finish(indexer)
        assert done(office, indexer) == {"slow", "slower", "small"}
    assert held.reads == [["slow"], ["slower"]]


def test_after_a_crash_the_round_in_doubt_reads_for_itself_and_sends_the_same(tmp_path: Path, held: HeldStages) -> None:
    office = office_with(tmp_path, held, "slow")
    with office.indexer() as indexer:
        indexer.take(office.rows("slow", "small"))
        indexer.round()
        indexer.work()
    office.beside = ReadingBeside(HeldStages())
    with office.indexer() as indexer:
        finish(indexer)
        assert done(office, indexer) == {"slow", "small"}
    assert office.stages.reads == [["slow", "small"], ["slow"]]


def test_what_was_read_of_a_version_that_was_replaced_is_forgotten(tmp_path: Path, held: HeldStages) -> None:
    office = office_with(tmp_path, held, "slow")
    with office.indexer() as indexer:
        indexer.take(office.rows("slow"))
        indexer.round()
        indexer.work()
        assert held.begun.is_set()
        indexer.take(office.rows("slow"))
        held.go.set()
        finish(indexer)
        assert done(office, indexer) == {"slow"}
    assert len(held.reads) == 2


def test_what_reading_raised_ends_the_round_that_needs_it(tmp_path: Path, held: HeldStages) -> None:
    office = office_with(tmp_path, held, "slow")
    held.failure = MemoryError("no room")
    held.go.set()
    with office.indexer() as indexer:
        indexer.take(office.rows("slow", "small"))
        with pytest.raises(MemoryError, match="no room"):
            finish(indexer)
        assert done(office, indexer) == {"small"}


def test_an_engine_of_one_slot_reads_what_was_put_aside_when_nobody_else_waits(tmp_path: Path) -> None:
    narrow = HeldStages(beside_others=False)
    office = office_with(tmp_path, narrow, "slow")
    with office.indexer() as indexer:
        indexer.take(office.rows("slow", "small"))
        indexer.round()
        indexer.take(office.rows("later"))
        indexer.round()
        assert not narrow.begun.is_set()
        indexer.work()
        assert narrow.begun.is_set()
        narrow.go.set()
        finish(indexer)
        assert done(office, indexer) == {"slow", "small", "later"}


def test_only_what_is_being_read_is_given_up(tmp_path: Path, held: HeldStages) -> None:
    office = office_with(tmp_path, held, "slow")
    assert office.beside is not None
    office.beside.cancel()
    assert held.cancelled == 0
    with office.indexer() as indexer:
        indexer.take(office.rows("slow"))
        indexer.round()
        indexer.work()
        office.beside.cancel()
    assert held.cancelled == 1
