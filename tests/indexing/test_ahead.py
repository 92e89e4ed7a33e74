"""The next round is read while the one before it is embedded and written: sooner, and never otherwise."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.indexing.office import Office, PlayedStages

from penstock.errors import Closed
from penstock.indexing.job import indexer as indexer_module
from penstock.indexing.job.background import ReadingAhead
from penstock.indexing.job.indexer import Indexer
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.stages.readings import DocumentReading, ReadRequest

PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def small_rounds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer_module, "AHEAD_BYTES_MIN", 1)


class StagesAhead(PlayedStages):
    """Stages that say when they were asked, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: BaseException | None = None
        self.asked = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def read(self, asked: Sequence[ReadRequest]) -> list[DocumentReading]:
        self.asked.set()
        assert self.go.wait(PATIENCE_SECONDS)
        if self.failure is not None:
            raise self.failure
        return super().read(asked)

    def cancel(self) -> None:
        self.failure = Closed("given up", "", "")
        self.go.set()


def office_with(folder: Path, ahead: StagesAhead) -> Office:
    office = Office(folder, limits=RoundLimits(documents_max=2))
    office.ahead = ReadingAhead(ahead)
    return office


def finish(office: Office, indexer: Indexer) -> set[str]:
    while not indexer.idle:
        indexer.work()
    return {key for key, report in office.reports(indexer).items() if report is not None}


def test_the_next_round_is_read_while_the_one_before_it_is_embedded(tmp_path: Path) -> None:
    ahead = StagesAhead()
    office = office_with(tmp_path, ahead)
    office.stages.on_embed = lambda: None if ahead.asked.wait(PATIENCE_SECONDS) else pytest.fail("nothing was read")
    with office.indexer() as indexer:
        indexer.take(office.rows("a", "b", "c", "d"))
        indexer.round()
        office.stages.on_embed = lambda: None
        assert finish(office, indexer) == {"a", "b", "c", "d"}
    assert office.stages.reads == [["a", "b"]]
    assert ahead.reads == [["c", "d"]]


def test_batches_are_the_same_whether_a_round_was_read_ahead_or_not(tmp_path: Path) -> None:
    sent = []
    for folder, ahead in (("with", StagesAhead()), ("without", None)):
        office = Office(tmp_path / folder, limits=RoundLimits(documents_max=2))
        office.ahead = ReadingAhead(ahead) if ahead else None
        with office.indexer() as indexer:
            indexer.take(office.rows("a", "b", "c", "d", "e"))
            finish(office, indexer)
        sent.append(office.stages.sent)
    assert sent[0] == sent[1]


def test_a_reading_that_failed_is_made_again_by_its_round(tmp_path: Path) -> None:
    ahead = StagesAhead()
    ahead.failure = RuntimeError("a task was lost")
    office = office_with(tmp_path, ahead)
    with office.indexer() as indexer:
        indexer.take(office.rows("a", "b", "c"))
        assert finish(office, indexer) == {"a", "b", "c"}
    assert office.stages.reads == [["a", "b"], ["c"]]


def test_a_bucket_that_did_not_answer_ahead_is_asked_again_by_the_round(tmp_path: Path) -> None:
    ahead = StagesAhead()
    ahead.silent = {"c"}
    office = office_with(tmp_path, ahead)
    with office.indexer() as indexer:
        indexer.take(office.rows("a", "b", "c", "d"))
        assert finish(office, indexer) == {"a", "b", "c", "d"}
    assert office.stages.reads == [["a", "b"], ["c"]]


def test_a_newer_version_is_read_though_the_one_before_it_was_read_ahead(tmp_path: Path) -> None:
    ahead = StagesAhead()
    office = office_with(tmp_path, ahead)
    with office.indexer() as indexer:
        indexer.take(office.rows("a", "b", "c"))
        indexer.round()
        assert ahead.asked.wait(PATIENCE_SECONDS)
        indexer.take(office.rows("c"))
        assert finish(office, indexer) == {"a", "b", "c"}
    assert [key for keys in office.stages.reads for key in keys].count("c") == 1


def test_nobody_waits_for_what_others_have_read_ahead() -> None:
    stages = StagesAhead()
    stages.go.clear()
    ahead = ReadingAhead(stages)
    request = object()
    ahead.begin({"one": request})  # type: ignore[dict-item] # never looked at
    assert ahead.take(["another"]) == {}
    ahead.begin({"another": request})  # type: ignore[dict-item]
    ahead.cancel()
    assert ahead.take(["one"]) == {}
    assert stages.reads == []
