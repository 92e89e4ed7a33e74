"""A bucket or a model that does not answer holds back its own documents, and a model on trial all but its scout."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from penstock.documents import UploadNotification
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.planning.readiness import Readiness
from penstock.indexing.registry.entries import Pending, Wait

SILENT = Wait("no answer", 1, 5_000, whole=True)
ABSENT = Wait("401", 1, 5_000, whole=True, model=True)


def pending(key: str, *, bucket: str = "b", wait: Wait | None = None) -> Pending:
    upload = UploadNotification(
        tenant_id="acme",
        index_id="handbook",
        bucket=bucket,
        key=key,
        etag="e",
        size_bytes=10,
        model="m",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    (entry,) = plan_events({}, [upload], "rule").entries.values()
    assert entry.pending is not None
    return msgspec.structs.replace(entry.pending, wait=wait)


def awake(wait: Wait) -> Wait:
    return msgspec.structs.replace(wait, until_ms=0, whole=False)


def counted(*waiting: tuple[str, Pending]) -> Readiness:
    readiness = Readiness()
    for model, each in waiting:
        readiness.count(model, each, 10, 1)
    return readiness


def test_a_silent_bucket_holds_back_its_documents_of_every_model_and_no_others() -> None:
    readiness = counted(("m", pending("a", wait=SILENT)), ("n", pending("b")), ("m", pending("c", bucket="other")))
    assert [readiness.of("n", pending("b")), readiness.of("m", pending("c", bucket="other"))] == [False, True]
    assert (readiness.any, readiness.documents, readiness.bytes) == (True, 1, 10)


def test_an_absent_model_holds_back_its_documents_of_every_bucket_and_no_others() -> None:
    readiness = counted(("m", pending("a", wait=ABSENT)), ("m", pending("b", bucket="other")), ("n", pending("c")))
    assert [readiness.of("m", pending("b", bucket="other")), readiness.of("n", pending("c"))] == [False, True]
    assert (readiness.any, readiness.documents, readiness.trials) == (True, 1, frozenset())


def test_on_trial_a_model_is_tried_with_its_scout_alone_and_is_free_once_that_is_done() -> None:
    scout = pending("a", wait=awake(ABSENT))
    readiness = counted(("m", scout), ("m", pending("b")))
    assert [readiness.of("m", scout), readiness.of("m", pending("b"))] == [True, False]
    # The others are not counted among those that could be worked on: they would hold up the queue.
    assert (readiness.any, readiness.documents, readiness.trials) == (True, 0, {"m"})
    readiness.count("m", scout, 10, -1)
    assert readiness.of("m", pending("b"))
    assert (readiness.documents, readiness.trials) == (1, frozenset())


def test_an_object_that_alone_cannot_be_had_holds_back_nobody() -> None:
    alone = msgspec.structs.replace(SILENT, whole=False)
    readiness = counted(("m", pending("a", wait=alone)), ("m", pending("b")))
    assert [readiness.of("m", pending("a", wait=alone)), readiness.of("m", pending("b"))] == [False, True]
