"""Leads: what stands above a chunk, the same however many rounds read its document."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from penstock.documents import Chunker, ChunkingConfig, UploadNotification
from penstock.pipelines.leads import give_leads, stored_text, without_lead
from penstock.pipelines.registry import Pending

MANUAL = "# Manual\n\nIntro words here.\n\n" + "".join(
    f"## Part {number}\n\n{'Some words of this part. ' * 40}\n\n### Detail {number}\n\n{'More words. ' * 80}\n\n"
    for number in range(4)
)


def pending(key: str = "docs/user-manual_v2.html") -> Pending:
    upload = UploadNotification(
        tenant_id="t",
        index_id="i",
        model="m",
        bucket="b",
        key=key,
        size_bytes=1,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return Pending(upload=upload, doc_id="d", version="d:1", fingerprint="rule")


def rows_of(text: str) -> list[dict[str, Any]]:
    chunks = Chunker(ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=20)).chunk(text.encode())
    return [{"start": c.start, "core_start": c.core_start, "end": c.end, "text": c.text} for c in chunks]


def test_a_chunk_is_led_by_the_title_and_the_headings_it_stands_under() -> None:
    rows = rows_of(MANUAL)
    give_leads(pending(), rows, has_headings=True)
    leads = [row["lead"] for row in rows]
    assert leads[0] == "user manual v2"
    assert {f"Manual › Part {n} › Detail {n}" for n in range(4)} <= set(leads)
    assert all(lead.startswith("Manual › Part") for lead in leads[1:])


@pytest.mark.parametrize("cut", range(1, 12))
def test_rounds_that_end_anywhere_give_the_same_leads(cut: int) -> None:
    whole, first, second = rows_of(MANUAL), rows_of(MANUAL)[:cut], rows_of(MANUAL)[cut:]
    give_leads(pending(), whole, has_headings=True)
    outline = give_leads(pending(), first, has_headings=True)
    stored = msgspec.json.decode(msgspec.json.encode(outline), type=type(outline))
    give_leads(msgspec.structs.replace(pending(), outline=stored), second, has_headings=True)
    assert [row["lead"] for row in (*first, *second)] == [row["lead"] for row in whole]


def test_a_text_as_it_was_uploaded_has_no_headings_but_a_name() -> None:
    rows = rows_of("# a comment\nvalue = 1\n" * 100)
    give_leads(pending("etc/my.config-file.txt"), rows, has_headings=False)
    assert {row["lead"] for row in rows} == {"my config file"}


@pytest.mark.parametrize("lead", ["", "Manual › Part 1", "猫"])
def test_what_is_stored_is_taken_apart_again(lead: str) -> None:
    stored = stored_text({"lead": lead, "text": "words\n\nmore"})
    assert without_lead(*stored) == (lead, "words\n\nmore")


def test_a_row_of_before_has_no_lead() -> None:
    assert without_lead("words", None) == ("", "words")
