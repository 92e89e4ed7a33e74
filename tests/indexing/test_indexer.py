"""Rounds on a real store, with stages that the test plays: who is held back, what is kept, and what a repetition sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.indexing.office import Office

from penstock.documents import ChunkingConfig, DocumentStatus
from penstock.documents.contracts import Chunking
from penstock.documents.embedding import Later, ModelProfile
from penstock.errors import Unavailable
from penstock.indexing.job.writer import REFUSED
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.registry.settings import Cut
from penstock.indexing.stages.embedding import Embedding, Endpoint
from penstock.observability import names
from penstock.vector import CollectionName

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


@pytest.mark.slow
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


# Several endpoints ----------------------------------------------------------------------------------------------

FAR_PROFILE = ModelProfile(
    name="far-model", tokens_per_request=5_000, items_per_request=8, tokens_per_input=4_000, dimensions=256
)
TWO_PLACES = Embedding(
    endpoints={"far-model": Endpoint("https://models.example/v1")}, profiles={"far-model": FAR_PROFILE}
)
FAR_SOURCE = "far-model at https://models.example/v1"
FAR = CollectionName("globex", "handbook", "far-model")


def far_rows(office: Office, *keys: str) -> list[Any]:
    return office.rows(*keys, tenant="globex", model="far-model")


def test_an_endpoint_that_does_not_answer_holds_back_its_own_documents_alone(tmp_path: Path) -> None:
    office = Office(tmp_path, embedding=TWO_PLACES)
    office.stages.away = {"far-model": Later("401: wrong key")}
    with office.indexer() as indexer:
        indexer.take([*office.rows(*GOOD), *far_rows(office, "far.txt", "farther.txt")])
        indexer.round()
        assert all(office.reports(indexer).values())
        assert office.reports(indexer, FAR) == {"far.txt": None, "farther.txt": None}
        assert indexer.idle
        # New documents of the others go on; those of the model wait, and nobody asks for them.
        indexer.take([*office.rows("new.txt"), *far_rows(office, "third.txt")])
        asked = len(office.stages.sent)
        indexer.round()
        assert office.reports(indexer)["new.txt"]
        assert len(office.stages.sent) == asked + 1
        with pytest.raises(Unavailable, match=r"far-model did not embed 3 documents: 401: wrong key .*nothing is lost"):
            indexer.check_models()
    assert office.observer.gauged(names.INDEXING_PROVIDER_AWAY) == 1
    assert [fields["reason"] for fields in office.observer.events(names.INDEXING_OUTAGE)] == ["401"]


def test_a_model_that_did_not_answer_is_tried_with_one_document_and_then_all_of_them_go_on(tmp_path: Path) -> None:
    office = Office(tmp_path, embedding=TWO_PLACES)
    office.stages.away = {"far-model": Later("down", 40.0)}
    with office.indexer() as indexer:
        indexer.take([*office.rows("near.txt"), *far_rows(office, *GOOD)])
        indexer.round()
        # Not before the time that the provider asked for.
        office.clock.advance(39)
        assert indexer.idle
        office.clock.advance(2)
        assert not indexer.idle
        indexer.round()
        assert (office.stages.reads[-1], office.stages.trials[-1]) == ([GOOD[0]], {FAR_SOURCE})
        office.stages.away = {}
        office.clock.advance(1_000)
        indexer.round()
        assert (office.stages.reads[-1], office.stages.trials[-1]) == ([GOOD[0]], {FAR_SOURCE})
        indexer.round()
        assert (office.stages.reads[-1], office.stages.trials[-1]) == (GOOD[1:], frozenset())
        assert all(office.reports(indexer, FAR).values())
        assert indexer.idle
        indexer.check_models()
    assert office.observer.gauged(names.INDEXING_PROVIDER_AWAY) == 0


def test_a_model_that_its_address_does_not_have_holds_back_no_other_model_of_that_address(tmp_path: Path) -> None:
    profiles = {name: msgspec.structs.replace(FAR_PROFILE, name=name) for name in ("far-model", "near-model")}
    office = Office(tmp_path, embedding=Embedding("https://models.example/v1", profiles=profiles))
    office.stages.away = {"far-model": Later("404: no such model")}
    with office.indexer() as indexer:
        indexer.take([*far_rows(office, "far.txt"), *office.rows("near.txt", model="near-model")])
        indexer.round()
        assert all(office.reports(indexer, CollectionName("acme", "handbook", "near-model")).values())
        assert office.reports(indexer, FAR) == {"far.txt": None}


def test_an_id_that_was_sent_to_a_model_that_did_not_answer_never_gets_another_content(tmp_path: Path) -> None:
    office = Office(tmp_path, embedding=TWO_PLACES)
    office.stages.away = {"far-model": Later("down")}
    with office.indexer() as indexer:
        indexer.take([*office.rows("near.txt"), *far_rows(office, *GOOD[:10])])
        indexer.round()
    office.stages.away = {}
    # Another process, and more documents that would share a batch with the first.
    with office.indexer() as indexer:
        indexer.take(far_rows(office, *GOOD[10:]))
        for _ in range(5):
            indexer.round()
        assert all(office.reports(indexer, FAR).values())
    contents: dict[str, set[tuple[str, ...]]] = {}
    for batch, texts in office.stages.sent:
        contents.setdefault(batch, set()).add(texts)
    assert all(len(found) == 1 for found in contents.values())


def _die() -> None:
    raise Killed


def test_a_new_index_is_cut_as_its_own_event_or_its_own_command_wants_it_and_not_as_another_tenants(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    office.cuts = {("acme", "handbook"): ChunkingConfig(target_tokens=400)}
    wish = Chunking(target_tokens=200, max_tokens=300, overlap_tokens=20)
    with office.indexer() as indexer:
        indexer.take(office.rows("a.md"))
        indexer.take(office.rows("b.md", tenant="bravo"))
        indexer.take(office.rows("c.md", tenant="charlie", chunking=wish))
        # It is made, and keeps to what it is made with.
        indexer.take(office.rows("d.md", tenant="bravo", chunking=wish))
        made = {tenant: settings.current.cut for (tenant, _), settings in indexer._writer.settings.items()}
    assert made["acme"].target_tokens == 400
    assert made["bravo"] == Cut.of(ChunkingConfig())
    assert made["charlie"] == Cut(200, 300, 20, "cl100k")


def test_an_event_that_wants_what_is_not_possible_makes_no_index(tmp_path: Path) -> None:
    office = Office(tmp_path)
    wish = Chunking(target_tokens=200, max_tokens=100, overlap_tokens=20)
    with office.indexer() as indexer:
        indexer.take(office.rows("a.md", chunking=wish))
        assert indexer._writer.settings == {}
        assert office.reports(indexer, REFUSED) != {}


def test_the_first_events_of_many_indexes_are_planned_in_one_write(tmp_path: Path) -> None:
    """Whatever they make: a durable write for each would be most of what a new index costs."""
    office = Office(tmp_path)
    tenants = [f"tenant-{number}" for number in range(12)]
    with office.indexer() as indexer:
        before = office.observer.counted(names.COORDINATOR_WRITES)
        indexer.take([record for tenant in tenants for record in office.rows("a.txt", tenant=tenant)])
        assert office.observer.counted(names.COORDINATOR_WRITES) - before == 1
        indexer.round()
        assert office.observer.counted(names.COORDINATOR_WRITES) - before == 2
    # What they are made with is there for the next job, and for whoever asks.
    with office.indexer() as indexer:
        assert {tenant for tenant, _ in indexer._writer.settings} == set(tenants)
        assert indexer.idle
