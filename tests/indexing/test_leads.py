"""Leads: what stands above a chunk, the same however many rounds read its document."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from penstock.documents import Chunk, Chunker, ChunkingConfig, UploadNotification
from penstock.indexing.registry.entries import Pending
from penstock.indexing.rounds.leads import LedChunk, with_leads, without_lead

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


def chunks_of(text: str) -> list[Chunk]:
    return Chunker(ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=20)).chunk(text.encode())


def test_a_chunk_is_led_by_the_title_and_the_headings_it_stands_under() -> None:
    led, _ = with_leads(pending(), chunks_of(MANUAL), has_headings=True)
    sections = [one.lead.partition("\n")[0] for one in led]
    assert sections[0] == "Manual · Part 0"
    assert {f"Manual › Part {n} › Detail {n}" for n in range(4)} <= set(sections)
    assert all(section.startswith("Manual › Part") for section in sections[1:])


def test_a_lead_tells_what_the_whole_document_is_about_in_every_chunk() -> None:
    led, _ = with_leads(pending(), chunks_of(MANUAL), has_headings=True)
    about = [one.lead.partition("\n")[2] for one in led]
    assert all(each.startswith("user manual v2 Manual Intro words here.") for each in about)
    assert len(set(about[1:])) == 1


def test_a_chunk_that_is_all_headings_has_a_short_lead() -> None:
    contents = "".join(f"## Heading number {number}\n\n" for number in range(500))
    led, _ = with_leads(pending(), chunks_of(contents), has_headings=True)
    assert max(len(one.lead) for one in led) < 1000


@pytest.mark.parametrize("cut", range(1, 12))
def test_rounds_that_end_anywhere_give_the_same_leads(cut: int) -> None:
    chunks = chunks_of(MANUAL)
    whole, _ = with_leads(pending(), chunks, has_headings=True)
    first, outline = with_leads(pending(), chunks[:cut], has_headings=True)
    stored = msgspec.json.decode(msgspec.json.encode(outline), type=type(outline))
    second, _ = with_leads(msgspec.structs.replace(pending(), outline=stored), chunks[cut:], has_headings=True)
    assert [*first, *second] == whole


def test_a_text_as_it_was_uploaded_has_no_headings_but_a_name() -> None:
    chunks = chunks_of("# a comment\nvalue = 1\n" * 100)
    led, _ = with_leads(pending("etc/my.config-file.txt"), chunks, has_headings=False)
    assert {one.lead.partition("\n")[0] for one in led} == {"my config file"}
    assert all("\nmy config file # a comment value = 1" in one.lead for one in led)


@pytest.mark.parametrize("section", ["", "Manual › Part 1", "猫"])
def test_what_is_stored_is_taken_apart_again(section: str) -> None:
    lead = f"{section}\nabout it" if section else ""
    stored = LedChunk(Chunk(0, 0, 0, 11, 3, "words\n\nmore"), lead).stored
    assert without_lead(*stored) == (section, "words\n\nmore")


def test_a_row_with_a_lead_of_one_line_is_taken_apart_too() -> None:
    assert without_lead("Manual › Part 1\n\nwords", 17) == ("Manual › Part 1", "words")


def test_a_row_of_before_has_no_lead() -> None:
    assert without_lead("words", None) == ("", "words")
