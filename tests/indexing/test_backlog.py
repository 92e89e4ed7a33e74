"""A round is shared out fairly among tenants, collections and documents, and the same after any restart."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents import Progress, UploadNotification
from penstock.indexing.planning.backlog import Backlog, share_out, wakes_ms
from penstock.indexing.planning.plan import RoundLimits, plan_events
from penstock.indexing.registry.entries import DocumentEntry, Wait
from penstock.vector import CollectionName

CELL = 1000
AT = datetime(2026, 1, 1, tzinfo=UTC)


def waiting(
    tenant: str, *sizes: int, index: str = "handbook", turn: int = 0
) -> list[tuple[CollectionName, DocumentEntry]]:
    """Documents of these sizes, named after them and in their order."""
    events = [
        UploadNotification(
            tenant_id=tenant,
            index_id=index,
            bucket="b",
            key=f"{place}-{size}",
            etag="e",
            size_bytes=size,
            model="m",
            created_at=AT,
        )
        for place, size in enumerate(sizes)
    ]
    plan = plan_events({}, events, "rule", turn)
    return [(CollectionName(tenant, index, "m"), entry) for entry in plan.entries.values()]


def cells(found: list[tuple[CollectionName, DocumentEntry]], **limits: int) -> dict[str, int]:
    """What a round gives to each document, by tenant and key."""
    shares = share_out(found, RoundLimits(**limits), CELL)
    return {f"{share.name.tenant}/{share.entry.key}": share.cells for share in shares}


def test_a_large_document_takes_its_share_and_small_ones_behind_it_are_read_whole() -> None:
    found = waiting("acme", 900_000, 10, 10, 2500)
    assert cells(found, bytes_max=6_000, cells_max=4) == {
        "acme/0-900000": 3,
        "acme/1-10": 1,
        "acme/2-10": 1,
        "acme/3-2500": 3,
    }


def test_alone_a_large_document_takes_what_a_document_may() -> None:
    assert cells(waiting("acme", 900_000), cells_max=4) == {"acme/0-900000": 4}


def test_a_tenant_with_one_document_has_as_much_of_a_round_as_one_with_many() -> None:
    found = [*waiting("many", *[50_000] * 9), *waiting("one", 50_000)]
    given_out = cells(found, bytes_max=8_000)
    assert given_out.pop("one/0-50000") == 4
    assert sum(given_out.values()) == 4


def test_collections_of_one_tenant_share_what_the_tenant_has() -> None:
    found = [*waiting("acme", *[50_000] * 9), *waiting("acme", 50_000, index="other")]
    shares = share_out(found, RoundLimits(bytes_max=8_000), CELL)
    assert sum(share.cells for share in shares if share.name.index == "other") == 4


def test_a_round_keeps_its_bounds_and_is_never_empty_while_somebody_waits() -> None:
    found = waiting("acme", *[600] * 5)
    assert len(cells(found, documents_max=2)) == 2
    assert len(cells(found, bytes_max=1300)) == 2
    assert len(cells(found, bytes_max=1)) == 1
    assert cells([]) == {}
    # An object that says it is empty is looked at nevertheless.
    assert cells(waiting("acme", 0)) == {"acme/0-0": 1}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20_000)), min_size=1, max_size=40),
    st.integers(1, 30_000),
    st.integers(1, 10),
    st.integers(1, 20),
)
def test_no_share_passes_a_bound_and_nobody_gets_less_than_another_who_got_a_second_cell(
    sizes: list[tuple[str, int]], bytes_max: int, cells_max: int, documents_max: int
) -> None:
    found = [item for tenant in "abc" for item in waiting(tenant, *[size for name, size in sizes if name == tenant])]
    limits = RoundLimits(bytes_max=bytes_max, cells_max=cells_max, documents_max=documents_max)
    shares = share_out(found, limits, CELL)
    assert 1 <= len(shares) <= documents_max
    assert all(1 <= share.cells <= cells_max for share in shares)
    read = [min(share.cells * CELL, max(1, share.pending.upload.size_bytes)) for share in shares]
    assert sum(read) <= max(bytes_max, CELL)
    if any(share.cells > 1 for share in shares):
        tenants = {share.name.tenant for share in shares if share.cells > 1}
        for tenant in tenants:
            assert sum(s.name.tenant == tenant for s in shares) == sum(name.tenant == tenant for name, _ in found)


def test_turns_decide_and_whoever_had_one_waits_behind_all_others() -> None:
    backlog = Backlog(RoundLimits(documents_max=1))
    for name, entry in reversed(waiting("acme", 5_000, 10)):
        backlog.put(name, entry)
    (share,) = backlog.round(CELL)
    assert share.entry.key == "0-5000"
    later = msgspec.structs.replace(share.pending, turn=backlog.next_turn, progress=Progress(1, 4_000))
    backlog.put(share.name, msgspec.structs.replace(share.entry, pending=later))
    assert (len(backlog), backlog.bytes) == (2, 1_010)
    (share,) = backlog.round(CELL)
    assert share.entry.key == "1-10"
    backlog.put(share.name, msgspec.structs.replace(share.entry, pending=None))
    assert (len(backlog), backlog.bytes) == (1, 1_000)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.booleans()), max_size=40), st.data())
def test_whoever_waits_is_told_in_the_order_of_turns_however_they_came(
    puts: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    documents, backlog = waiting("acme", *range(1, 8)), Backlog(RoundLimits())
    known: dict[str, int] = {}
    for place, turn, done in puts:
        name, entry = documents[place]
        assert entry.pending is not None
        pending = None if done else msgspec.structs.replace(entry.pending, turn=turn)
        backlog.put(name, msgspec.structs.replace(entry, pending=pending))
        known.pop(entry.object_key, None)
        if not done:
            known[entry.object_key] = turn
        if data.draw(st.booleans()):
            told = [found.object_key for _, found in backlog]
            assert told == sorted(known, key=lambda key: (known[key], key))


@given(st.integers(1, 5), st.integers(1, 8), st.integers(0, 3_000), st.integers(1, 4))
def test_documents_that_a_round_has_no_room_for_change_nothing_of_it(
    documents_max: int, more: int, size: int, cells_max: int
) -> None:
    limits = {"documents_max": documents_max, "cells_max": cells_max, "bytes_max": 10_000}
    many = waiting("acme", *([size] * (documents_max + 1 + more)))
    other = waiting("zeta", 2_500, turn=100)
    assert cells([*many, *other], **limits) == cells([*many[:-more], *other], **limits)


def test_a_newer_version_replaces_the_one_that_waits() -> None:
    backlog = Backlog(RoundLimits())
    ((name, entry),) = waiting("acme", 5_000)
    backlog.put(name, entry)
    assert entry.pending is not None
    upload = msgspec.structs.replace(entry.pending.upload, size_bytes=10, etag="newer")
    backlog.put(name, msgspec.structs.replace(entry, pending=msgspec.structs.replace(entry.pending, upload=upload)))
    assert (len(backlog), backlog.bytes) == (1, 10)


def test_a_backlog_is_over_its_bounds_by_documents_or_by_bytes() -> None:
    for limits in (RoundLimits(backlog_documents_max=1), RoundLimits(backlog_bytes_max=15)):
        backlog = Backlog(limits)
        first, second = waiting("acme", 10, 10)
        backlog.put(*first)
        assert not backlog.over
        backlog.put(*second)
        assert backlog.over


def asleep(
    found: list[tuple[CollectionName, DocumentEntry]], *, until_ms: int = 500, whole: bool = False
) -> list[tuple[CollectionName, DocumentEntry]]:
    """The same documents, whose bucket has not answered."""
    made = []
    for name, entry in found:
        assert entry.pending is not None
        pending = msgspec.structs.replace(entry.pending, wait=Wait("no answer", 1, until_ms, whole))
        made.append((name, msgspec.structs.replace(entry, pending=pending)))
    return made


def backlog_of(*found: list[tuple[CollectionName, DocumentEntry]], **limits: int) -> Backlog:
    backlog = Backlog(RoundLimits(**limits))
    for name, entry in (each for group in found for each in group):
        backlog.put(name, entry)
    return backlog


def round_of(backlog: Backlog) -> list[str]:
    return [f"{share.name.tenant}/{share.entry.key}" for share in backlog.round(CELL)]


def test_a_document_that_sleeps_is_left_out_of_rounds_and_the_others_of_its_bucket_are_read() -> None:
    backlog = backlog_of(asleep(waiting("acme", 10)), waiting("beta", 20))
    assert round_of(backlog) == ["beta/0-20"]
    assert (len(backlog), len(backlog.asleep), backlog.ready) == (2, 1, True)


def test_a_bucket_that_answers_nobody_is_left_alone_for_everybody() -> None:
    backlog = backlog_of(asleep(waiting("acme", 10), whole=True), waiting("beta", 20))
    assert (round_of(backlog), backlog.ready) == ([], False)
    for name, entry in asleep(waiting("acme", 10), until_ms=0):
        backlog.put(name, entry)
    assert sorted(round_of(backlog)) == ["acme/0-10", "beta/0-20"]


def test_sleepers_are_tried_again_when_their_time_has_come() -> None:
    backlog = backlog_of(asleep(waiting("acme", 10), until_ms=500), asleep(waiting("beta", 10), until_ms=700))
    assert [name.tenant for name, entry in backlog.asleep if wakes_ms(entry) <= 600] == ["acme"]


def test_sleepers_do_not_stop_the_queue_until_more_are_held_than_may_be() -> None:
    sleeping = asleep(waiting("acme", 10, 20, 30), whole=True)
    backlog = backlog_of(sleeping, backlog_documents_max=1, backlog_bytes_max=1, held_documents_max=3)
    assert (backlog.over, backlog.overheld) == (False, False)
    for name, entry in waiting("beta", 40):
        backlog.put(name, entry)
    assert (backlog.over, backlog.overheld) == (False, True)
