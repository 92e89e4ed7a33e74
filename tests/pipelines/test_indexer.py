"""Rounds on a real store, with stages that the test plays: who is held back, what is kept, and what a repetition sends."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipelines.office import Office

from penstock.documents import DocumentStatus
from penstock.pipelines.planning import RoundLimits

GOOD = [f"good {number}.txt" for number in range(40)]
BAD = [f"bad {number}.txt" for number in range(10)]


class Killed(Exception):
    """The process is gone."""


def test_objects_that_do_not_answer_cost_the_others_nothing_that_was_read(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.stages.silent = set(BAD)
    with office.indexer() as indexer:
        indexer.take(office.rows(*GOOD[:20], *BAD, *GOOD[20:]))
        indexer.round()
        told = office.reports(indexer)
        # In one round, and each of them read once.
        assert {key for key, report in told.items() if report} == set(GOOD)
        assert [len(keys) for keys in office.stages.reads] == [len(GOOD) + len(BAD)]
        assert (indexer.summary.documents, indexer.summary.held) == (len(GOOD), len(BAD))
        assert indexer.idle


def test_places_that_become_free_in_a_round_are_filled_and_only_those_are_read(tmp_path: Path) -> None:
    office = Office(tmp_path, limits=RoundLimits(documents_max=10))
    office.stages.silent = set(BAD[:3])
    with office.indexer() as indexer:
        indexer.take(office.rows(*BAD[:3], *GOOD))
        indexer.round()
        assert office.stages.reads == [[*BAD[:3], *GOOD[:7]], GOOD[7:10]]
        assert indexer.summary.documents == 10


@pytest.mark.parametrize("documents_max", [10, 100])
def test_a_round_that_went_on_without_some_sends_the_same_batches_when_it_is_repeated(
    tmp_path: Path, documents_max: int
) -> None:
    office = Office(tmp_path, limits=RoundLimits(documents_max=documents_max))
    office.stages.silent = set(BAD)
    office.stages.on_embed = _die
    with pytest.raises(Killed), office.indexer() as indexer:
        indexer.take(office.rows(*GOOD[:5], *BAD, *GOOD[5:]))
        indexer.round()
    sent = list(office.stages.sent)
    # By then all of them answer again: the repetition must not take them in.
    office.stages.silent, office.stages.on_embed = set(), lambda: None
    with office.indexer() as indexer:
        indexer.round()
        assert office.stages.sent[len(sent) :] == sent
        for _ in range(20):
            indexer.round()
        told = office.reports(indexer)
    assert {key for key, report in told.items() if report and report.status is DocumentStatus.INDEXED} == {*GOOD, *BAD}
    contents: dict[str, set[tuple[str, ...]]] = {}
    for batch, texts in office.stages.sent:
        contents.setdefault(batch, set()).add(texts)
    assert all(len(found) == 1 for found in contents.values())


def _die() -> None:
    raise Killed
