"""The failure scenarios of the pipeline's design, whichever engine runs it: what is killed, repeated or reordered changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.indexing.desk import DIMENSIONS, PROFILE, SMALL, Desk, prose, served
from tests.objects.bucket_server import BucketServer, bucket_server

from penstock.documents import Chunker, DocumentStatus
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.planning.plan import RoundLimits
from penstock.testing.servers.embedding_server import (
    AskFate,
    EmbeddingServer,
    ProviderFaults,
    contents_by_place,
)

MEBIBYTE = 1 << 20


@pytest.fixture
def server() -> Iterator[BucketServer]:
    with bucket_server() as found:
        yield found


@pytest.fixture
def desk(engine: None, tmp_path: Path) -> Desk:
    return Desk(engine, tmp_path)


def test_a_provider_that_fails_often_costs_time_and_nothing_else(desk: Desk) -> None:
    text = prose("sluices", 100)
    desk.model = PROFILE.name
    faults = ProviderFaults(seed=3, busy=0.25, failing=0.25, hung_up=0.2)
    with EmbeddingServer(dimensions=DIMENSIONS, faults=faults) as provider:
        desk.embedding = served(provider.url)
        desk.run(desk.write("sluices.txt", text))
        fates = {ask.fate for ask in provider.asks}
        contents = contents_by_place(provider.asks)
    assert fates == {AskFate.ANSWERED, AskFate.BUSY, AskFate.FAILING, AskFate.HUNG_UP}
    assert {len(found) for found in contents.values()} == {1}
    assert [row.text for row in desk.rows()] == [chunk.text for chunk in Chunker(SMALL).chunk(text.encode())]


def test_tenants_may_be_named_in_any_script(desk: Desk) -> None:
    """Their names are part of what the provider is sent with every request."""
    desk.model = PROFILE.name
    names = ["Müller & Söhne", "製粉所", "a:b|c#d", "line\nbreak"]
    with EmbeddingServer(dimensions=DIMENSIONS) as provider:
        desk.embedding = served(provider.url)
        desk.run(*(desk.write(f"{place}.txt", prose(name, 2), tenant=name) for place, name in enumerate(names)))
        assert len(contents_by_place(provider.asks)) == len(names)
    for place, name in enumerate(names):
        assert desk.texts(f"{place}.txt", name) == [
            chunk.text for chunk in Chunker(SMALL).chunk(prose(name, 2).encode())
        ]


# Events ------------------------------------------------------------------------------------------------------


def test_an_event_that_comes_again_and_again_is_work_once(desk: Desk) -> None:
    desk.model = PROFILE.name
    with EmbeddingServer(dimensions=DIMENSIONS) as provider:
        desk.embedding = served(provider.url)
        event = desk.write("note.txt", prose("otters", 20))
        first = desk.run(event, event, event)
        asked, rows = len(provider.asks), desk.rows()
        again = desk.run(event, event)
        assert (first.documents, again.documents) == (1, 0)
        assert (len(provider.asks), desk.rows()) == (asked, rows)


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False], ids=["in one micro-batch", "in micro-batches of their own"])
def test_events_in_any_order_end_on_the_newest(desk: Desk, server: BucketServer, *, together: bool) -> None:
    """A delete before an older create, a newer version before an older one, and A, B, A on a bucket without versions."""
    desk.server = server
    buried = desk.write("buried.txt", prose("graves", 4), at=10)
    older = desk.write("note.txt", prose("what was", 4), at=20)
    newer = desk.write("note.txt", prose("what is", 4), at=21)
    first = desk.write("turns.txt", prose("the letter A", 4), at=30)
    second = desk.write("turns.txt", prose("the letter B", 4), at=31)
    third = desk.write("turns.txt", prose("the letter A", 4), at=32)
    events = [desk.delete("buried.txt", at=11), buried, newer, older, first, third, second]
    for batch in [events] if together else [[event] for event in events]:
        desk.run(*batch)
    assert {row.key for row in desk.rows()} == {"note.txt", "turns.txt"}
    assert "what is" in desk.texts("note.txt")[0]
    assert "the letter A" in desk.texts("turns.txt")[0]
    assert {key: desk.report(key).status for key in desk.entries()} == {
        "buried.txt": DocumentStatus.DELETED,
        "note.txt": DocumentStatus.INDEXED,
        "turns.txt": DocumentStatus.INDEXED,
    }
    assert {len(desk.texts(key)) for key in ("note.txt", "turns.txt")} == {
        len(Chunker(SMALL).chunk(prose("the letter A", 4).encode()))
    }


def test_a_document_that_goes_from_a_to_b_and_back_is_read_anew_each_time(desk: Desk, server: BucketServer) -> None:
    desk.server = server
    for words in ("the letter A", "the letter B", "the letter A"):
        desk.run(desk.write("turns.txt", prose(words, 4)))
        assert all(words in text for text in desk.texts("turns.txt"))
        assert desk.report("turns.txt").status is DocumentStatus.INDEXED


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["deleted", "replaced"])
def test_an_event_that_comes_while_its_document_is_read_is_not_kept_waiting(
    desk: Desk, server: BucketServer, ending: str
) -> None:
    """The large version is given up where it stands: it never becomes searchable, and nothing of it is left."""
    desk.server = server
    desk.run(desk.write("note.txt", prose("the version before", 5)))
    large = desk.write("note.txt", prose("the large version", 600))
    seen: set[str] = set()

    def look(_: IndexingSummary) -> None:
        seen.update(row.text for row in desk.rows())

    desk.send(large)
    after = prose("the version after", 5)
    desk.send(desk.delete("note.txt") if ending == "deleted" else desk.write("note.txt", after))
    desk.run(progress=look, rounds=RoundLimits(cells_max=1, bytes_max=SMALL.cell_bytes), batches_per_trigger=1)
    assert not [text for text in seen if "the large version" in text]
    expected = [] if ending == "deleted" else [chunk.text for chunk in Chunker(SMALL).chunk(after.encode())]
    assert [row.text for row in desk.rows()] == expected
    assert desk.entries()["note.txt"].pending is None


def test_a_document_without_an_etag_is_read_in_one_version_or_not_at_all(desk: Desk, server: BucketServer) -> None:
    """It changes between two rounds: no text is made of both, and the next event brings the new one."""
    desk.server = server
    old, new = prose("the old words", 200).encode(), prose("the new words", 200).encode()
    event = desk.write("note.txt", old, etag="")

    def change(_: IndexingSummary) -> None:
        pending = desk.entries()["note.txt"].pending
        if pending is not None and pending.progress.next_seq:
            server.objects["note.txt"] = (new, 2)

    desk.run(event, progress=change, rounds=RoundLimits(cells_max=2))
    assert desk.report("note.txt").status is DocumentStatus.SUPERSEDED
    assert desk.rows() == []


def test_every_event_that_names_no_version_brings_the_object_as_it_is_now(desk: Desk, server: BucketServer) -> None:
    desk.server = server
    for words in ("the old words", "the new words"):
        desk.run(desk.write("note.txt", prose(words, 20), etag=""))
        expected = [chunk.text for chunk in Chunker(SMALL).chunk(prose(words, 20).encode())]
        assert desk.texts("note.txt") == expected
    # In one micro-batch: the second takes the place of the first, and is not mistaken for it.
    desk.run(desk.upload("note.txt", etag=""), desk.write("note.txt", prose("the last words", 20), etag=""))
    assert "the last words" in desk.texts("note.txt")[0]


# Partial errors ----------------------------------------------------------------------------------------------


def test_chunks_that_the_model_refuses_keep_their_words_and_cost_a_warning_each_and_not_the_document(
    desk: Desk,
) -> None:
    paragraphs = prose("fishes", 60).split("\n\n")
    paragraphs[30] = "Here somebody has poured arsenic into the river, and 30 fishes have died of it."
    desk.model = PROFILE.name
    with EmbeddingServer(dimensions=DIMENSIONS, faults=ProviderFaults(poison="arsenic")) as provider:
        desk.embedding = served(provider.url)
        desk.run(desk.write("fishes.txt", "\n\n".join(paragraphs)), desk.write("good.txt", prose("birds", 5)))
    expected = [chunk.text for chunk in Chunker(SMALL).chunk("\n\n".join(paragraphs).encode())]
    poisonous = [text for text in expected if "arsenic" in text]
    assert poisonous
    assert desk.texts("fishes.txt") == expected
    report = desk.report("fishes.txt")
    assert report.status is DocumentStatus.INDEXED
    assert report.words_only == len(poisonous)
    assert len(report.warnings) == 1 + len(poisonous)
    assert f"{len(poisonous)} of {len(expected)} chunks have no vector" in report.warnings[0]
    assert all("400" in warning and "arsenic" in warning for warning in report.warnings[1:])
    assert desk.report("good.txt").warnings == ()


def test_bytes_that_are_no_utf8_cost_a_warning_that_says_where(desk: Desk) -> None:
    # Letters that only UTF-8 writes so: else the bytes would be taken for those of a legacy encoding.
    good = prose("bridges", 40).replace("a", "á")
    spoilt = good[:1500].encode() + b"\xff\xfe\xfd" + good[1500:].encode()
    desk.run(desk.write("bridges.txt", spoilt))
    report = desk.report("bridges.txt")
    assert report.status is DocumentStatus.INDEXED
    assert [warning for warning in report.warnings if "3 bytes of [" in warning] == list(report.warnings)
    assert len(report.warnings) == 1
    assert desk.texts("bridges.txt") == [chunk.text for chunk in Chunker(SMALL).chunk(spoilt)]
