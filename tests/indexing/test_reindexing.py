"""What is left of a rebuild is told from what is stored, so that a run that was killed is simply repeated."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from penstock.documents import DocumentReport, DocumentStatus, ObjectState
from penstock.errors import Conflict, InvalidInput
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.registry.reindexing import Wish, changed, cut_wished, rebuilding, recutting
from penstock.indexing.registry.settings import Build, Cut, IndexSettings

CUT = Cut(800, 1200, 100, "cl100k")
SETTINGS = IndexSettings(tenant="t", index="i", current=Build(model="old", cut=CUT, endpoint="http://old"))
DOCUMENT, OTHER = "a" * 64, "b" * 64


def entry(current: str | None = DOCUMENT, rule: str = "new rule", **more: object) -> DocumentEntry:
    made = DocumentEntry(
        object_key="k",
        bucket="b",
        key="a.md",
        state=ObjectState(at=datetime(2026, 1, 1, tzinfo=UTC)),
        current=current,
        fingerprint=rule,
    )
    return msgspec.structs.replace(made, **more)


def report(status: DocumentStatus, document: str = DOCUMENT) -> DocumentReport:
    return DocumentReport(doc_id=document, status=status)


def gone() -> DocumentEntry:
    return entry(None, state=ObjectState(at=datetime(2026, 1, 1, tzinfo=UTC), tombstone=True))


def test_another_model_is_built_beside_and_the_current_one_stays() -> None:
    aim = changed(SETTINGS, Wish(model="new", endpoint="http://new", target_tokens=400))
    assert aim.current == SETTINGS.current
    assert aim.building == Build(model="new", cut=Cut(400, 600, 100, "cl100k"), endpoint="http://new")


def test_another_chunking_changes_the_index_itself() -> None:
    aim = changed(SETTINGS, Wish(overlap_tokens=0))
    assert aim.building is None
    assert aim.current == Build(model="old", cut=Cut(800, 1200, 0, "cl100k"), endpoint="http://old")


def test_no_wish_changes_nothing_and_goes_on_with_what_was_begun() -> None:
    assert changed(SETTINGS, Wish()) == SETTINGS
    building = changed(SETTINGS, Wish(model="new"))
    assert changed(building, Wish()) == building
    assert changed(building, Wish(model="new")) == building


@pytest.mark.parametrize("wish", [Wish(model="a third"), Wish(target_tokens=400), Wish(endpoint="http://other")])
def test_another_wish_while_one_is_being_fulfilled_is_refused(wish: Wish) -> None:
    with pytest.raises(Conflict, match="--cancel"):
        changed(changed(SETTINGS, Wish(model="new")), wish)


@pytest.mark.parametrize(
    ("wish", "cut"),
    [
        (Wish(target_tokens=200, overlap_tokens=20), Cut(200, 300, 20, "cl100k")),
        (Wish(target_tokens=150), Cut(150, 250, 100, "cl100k")),
        (Wish(max_tokens=1000), Cut(800, 1000, 100, "cl100k")),
    ],
)
def test_a_cut_keeps_what_is_not_wished_for_in_proportion(wish: Wish, cut: Cut) -> None:
    assert cut_wished(CUT, wish) == cut


def test_a_cut_that_is_not_possible_is_refused_before_anything_is_written() -> None:
    with pytest.raises(InvalidInput):
        changed(SETTINGS, Wish(target_tokens=100))


@pytest.mark.parametrize(
    ("old", "new", "wanted", "lost"),
    [
        (entry(), None, 1, 0),
        (entry(), entry(), 0, 0),
        (entry(rule="old rule"), entry(), 0, 0),
        (entry(), entry(rule="old rule"), 1, 0),
        (entry(), entry(OTHER), 1, 0),
        (entry(), entry(None, report=report(DocumentStatus.SUPERSEDED)), 1, 0),
        (entry(), entry(None, report=report(DocumentStatus.QUARANTINED)), 0, 1),
        (entry(), entry(None, report=report(DocumentStatus.QUARANTINED, OTHER)), 1, 0),
        (entry(None), None, 1, 0),
        (entry(None), entry(None), 0, 0),
        (gone(), None, 0, 0),
    ],
)
def test_a_document_is_wanted_until_the_new_collection_has_the_same_one(
    old: DocumentEntry, new: DocumentEntry | None, wanted: int, lost: int
) -> None:
    remainder = rebuilding({"k": old}, {"k": new} if new else {}, "new rule")
    assert (len(remainder.wanted), len(remainder.lost), remainder.surplus) == (wanted, lost, [])
    assert remainder.done == (wanted + lost == 0)


@pytest.mark.parametrize("old", [{}, {"k": gone()}])
def test_what_a_collection_kept_from_an_earlier_time_is_surplus_when_the_old_one_has_it_no_more(
    old: dict[str, DocumentEntry],
) -> None:
    assert rebuilding(old, {"k": entry()}, "new rule").surplus == [entry()]
    assert rebuilding(old, {"k": gone()}, "new rule").done


def test_documents_are_cut_again_that_are_searchable_with_another_cut() -> None:
    entries = [entry(rule="old rule"), entry(), entry(None, rule="old rule"), gone()]
    assert recutting(entries, "new rule") == [entries[0]]


def test_what_was_forgotten_is_told_to_the_new_collection_and_taken_out_of_it() -> None:
    forgotten = msgspec.structs.replace(gone(), forgotten="e1")
    for new in ({}, {"k": entry()}, {"k": gone()}):
        remainder = rebuilding({"k": forgotten}, new, "new rule")
        assert (remainder.forgotten, remainder.surplus, remainder.wanted) == ([forgotten], [], [])
    assert rebuilding({"k": forgotten}, {"k": forgotten}, "new rule").done
