"""Tenants share a job and a store, and nothing else: not their documents, and not each other's waiting."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.indexing.desk import Desk, prose

from penstock.documents import DocumentStatus
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.planning.plan import RoundLimits

TENANTS = ("acme", "globex", "initech")
KEYS = ("note.txt", "plans.txt")
CROWD = 1000
ROUND = 100


@pytest.fixture
def desk(engine: None, tmp_path: Path) -> Desk:
    return Desk(engine, tmp_path)


def test_tenants_with_the_same_keys_in_the_same_bucket_do_not_mix(desk: Desk) -> None:
    """What one of them changes or deletes stays as it is for the others."""
    events = [desk.write(key, prose(f"the {key} of all", 5), tenant=TENANTS[0]) for key in KEYS]
    events += [desk.upload(key, tenant=tenant) for tenant in TENANTS[1:] for key in KEYS]
    desk.run(*events)
    everybody = {tenant: desk.rows(tenant) for tenant in TENANTS}
    assert len(everybody["acme"]) > 0
    assert everybody["globex"] == everybody["initech"] == everybody["acme"]
    documents = {desk.entries(tenant)[key].current for tenant in TENANTS for key in KEYS}
    assert len(documents) == len(TENANTS) * len(KEYS)

    summary = desk.run(
        desk.delete("note.txt", tenant="acme"),
        desk.write("plans.txt", prose("what globex has changed", 5), tenant="globex"),
    )
    assert (summary.deleted, summary.documents) == (1, 1)
    assert {row.key for row in desk.rows("acme")} == {"plans.txt"}
    assert all("globex" in text for text in desk.texts("plans.txt", "globex"))
    assert desk.texts("note.txt", "globex") == desk.texts("note.txt", "initech") != []
    assert desk.rows("initech") == everybody["initech"]
    assert desk.report("note.txt", "acme").status is DocumentStatus.DELETED


@pytest.mark.slow
def test_a_crowd_of_one_tenant_does_not_hold_up_the_one_document_of_another(desk: Desk) -> None:
    """The crowd was first in the queue by far; the other's document is done within its next rounds."""
    desk.send(*(desk.write(f"crowd/{number}.txt", f"Document {number} of many.") for number in range(CROWD)))
    desk.send(desk.write("alone.txt", "The only document of its tenant.", tenant="globex"))
    done_before: list[int] = []

    def look(summary: IndexingSummary) -> None:
        alone = desk.entries("globex").get("alone.txt")
        if not done_before and alone is not None and alone.pending is None:
            done_before.append(summary.documents - 1)

    desk.run(progress=look, rounds=RoundLimits(documents_max=ROUND), batches_per_trigger=1)
    assert len(desk.entries()) == CROWD
    assert len(desk.rows()) == CROWD
    assert done_before[0] <= 4 * ROUND
