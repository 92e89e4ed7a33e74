"""The reading stage, called as an executor calls it: the same chunks from any restart, and an outcome for every fault."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.objects.bucket_server import bucket_server

from penstock.documents import Chunk, Chunker, ChunkingConfig, Progress, UploadNotification, decode, encode
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.documents.parsers import ParserLimits
from penstock.indexing.stages.fetching import FetchLimits
from penstock.indexing.stages.parsed_texts import PARSED_PREFIX
from penstock.indexing.stages.reading import Reading, read_documents
from penstock.indexing.stages.readings import Ending, ReadOutcome, ReadRequest
from penstock.indexing.stages.wire import pack_pieces
from penstock.objects import RetryPolicy, StoreSpec, open_store

# Whatever folder a test uses.
EVERYWHERE = "file:///"
CHUNKING = ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=10, cell_bytes=1024)
TEXT = "\n\n".join(f"Paragraph {number} tells of rivers and mills." for number in range(200)).encode()


def upload(folder: Path, key: str, etag: str | None = None) -> bytes:
    async def version() -> str:
        store = await open_store(f"file://{folder}", read_only=True)
        try:
            return (await store.head(key)).version
        finally:
            await store.close()

    return encode(
        UploadNotification(
            tenant_id="acme",
            index_id="handbook",
            model=EMBEDDED_MODEL,
            bucket=f"file://{folder}",
            key=key,
            etag=etag or asyncio.run(version()),
            size_bytes=1,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
    )


def request(
    notification: bytes,
    cell: int = 0,
    cells: int = 8,
    start: int = 0,
    *,
    chunking: ChunkingConfig = CHUNKING,
    **known: Any,
) -> ReadRequest:
    return ReadRequest(
        upload=decode(notification, UploadNotification),
        progress=Progress(0, start),
        first_cell=cell,
        cells=cells,
        chunking=chunking,
        **known,
    )


def read(reading: Reading, notification: bytes, *where: int, **known: Any) -> list[Any]:
    """The chunks of one document and its ending."""
    reading = replace(reading, places=reading.places or (EVERYWHERE,))
    asked = request(notification, *where, chunking=reading.chunking, **known)
    return [piece for _, piece in read_documents(reading, [(0, asked)])]


@pytest.mark.parametrize("cells", [1, 3, 100])
def test_rounds_of_any_size_give_the_chunks_of_one_reading(tmp_path: Path, cells: int) -> None:
    (tmp_path / "note.txt").write_bytes(TEXT)
    notification = upload(tmp_path, "note.txt")
    chunks: list[tuple[int, int, int]] = []
    cell = start = 0
    for _ in range(100):
        *found, ending = read(Reading(CHUNKING), notification, cell, cells, start)
        chunks += [(row.start, row.core_start, row.end) for row in found]
        cell, start = ending.next_byte_start // CHUNKING.cell_bytes, ending.next_byte_start
        assert ending.text_bytes == len(TEXT)
        if ending.outcome == ReadOutcome.END:
            break
    assert chunks == [(chunk.start, chunk.core_start, chunk.end) for chunk in Chunker(CHUNKING).chunk(TEXT)]


def test_cells_read_in_any_order_and_without_a_look_at_those_before_give_the_same_chunks(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(TEXT)
    notification = upload(tmp_path, "note.txt")
    _, *_, ending = read(Reading(CHUNKING), notification, cells=1)
    start = ending.next_byte_start
    # Nothing that was read before is looked at again, but for the look-back before the first core.
    lost = start - CHUNKING.lookback_bytes
    (tmp_path / "note.txt").write_bytes(b"~" * lost + TEXT[lost:])
    notification = upload(tmp_path, "note.txt")
    found = []
    for cell in (5, 1, 3, 7):
        *rows, ending = read(Reading(CHUNKING), notification, cell, 2, start, text_bytes=len(TEXT))
        found += [(row.core_start, row.end, row.text) for row in rows]
        assert ending.outcome == (ReadOutcome.END if cell == 7 else ReadOutcome.MORE)
    whole = Chunker(CHUNKING).chunk(TEXT)
    assert sorted(found) == [(c.core_start, c.end, c.text) for c in whole if c.core_start >= start]


def test_many_small_documents_are_handed_over_together_each_whole_and_in_its_turn(tmp_path: Path) -> None:
    """Spark pays for every batch it is given."""
    names = [f"{number}.txt" for number in range(40)]
    for name in names:
        (tmp_path / name).write_text(f"The note {name} tells of rivers and mills.")
    asked = [(place, request(upload(tmp_path, name))) for place, name in enumerate(names)]
    batches = list(pack_pieces(read_documents(Reading(CHUNKING, places=(EVERYWHERE,)), asked)))
    assert len(batches) == 1
    found = [(row["place"], row["outcome"], row["text"]) for row in batches[0].to_pylist()]
    ended = [(place, ReadOutcome.END, None) for place in range(len(names))]
    chunks = [(place, None, (tmp_path / name).read_text()) for place, name in enumerate(names)]
    assert found == [row for pair in zip(chunks, ended, strict=True) for row in pair]


def test_an_object_fetched_ahead_reads_like_any_other_and_a_notified_size_that_is_wrong_costs_no_text(
    tmp_path: Path,
) -> None:
    bodies = {"a.txt": b"The note a tells of rivers.", "b.md": b"# The note b\n\ntells of mills."}
    for name, body in bodies.items():
        (tmp_path / name).write_bytes(body)
    sizes = [len(body) + wrong for body in bodies.values() for wrong in (0, -3, 3)]
    uploads = [upload(tmp_path, name) for name in bodies for _ in range(3)]
    sized = [
        encode(msgspec.structs.replace(decode(told, UploadNotification), size_bytes=size))
        for told, size in zip(uploads, sizes, strict=True)
    ]
    asked = [(place, request(told)) for place, told in enumerate(sized)]
    found = [piece for _, piece in read_documents(Reading(CHUNKING, places=(EVERYWHERE,)), asked)]
    texts = [piece.text for piece in found if isinstance(piece, Chunk)]
    assert texts == ["The note a tells of rivers."] * 3 + ["# The note b\n\ntells of mills."] * 3
    endings = [piece for piece in found if isinstance(piece, Ending)]
    assert {row.outcome for row in endings} == {ReadOutcome.END}
    assert [row.version for row in endings] == [decode(told, UploadNotification).etag for told in uploads]


def test_a_task_with_much_text_hands_it_over_in_parts(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_bytes(b"Rivers and mills, and what they tell. " * 300_000)
    asked = request(upload(tmp_path, "large.txt"), cells=20, chunking=ChunkingConfig())
    handed = pack_pieces(read_documents(Reading(places=(EVERYWHERE,)), [(0, asked)]))
    sizes = [batch.nbytes for batch in handed]
    assert len(sizes) > 2
    assert max(sizes) < 6 << 20


def page(paragraphs: int) -> bytes:
    body = "".join(f"<p>Paragraph {number} tells of rivers and mills.</p>" for number in range(paragraphs))
    return f"<html><body>{body}</body></html>".encode()


@pytest.mark.processes
def test_a_parsed_text_that_is_too_large_for_a_round_is_parsed_once_and_kept_for_the_others(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(page(200))
    notification = upload(tmp_path, "page.html")
    kept = StoreSpec(f"file://{tmp_path}/store")
    *first, ending = read(Reading(CHUNKING, parsed=kept), notification, cells=2)
    assert (ending.outcome, ending.parses) == (ReadOutcome.MORE, 1)
    text = (tmp_path / "store" / ending.parsed).read_bytes()
    assert ending.text_bytes == len(text)
    # Nothing can be parsed from here on.
    forbidden = Reading(CHUNKING, parsed=kept, limits=ParserLimits(document_bytes=1))
    known = {"text_bytes": len(text), "parsed": ending.parsed}
    *others, ending = read(forbidden, notification, 2, 100, ending.next_byte_start, **known)
    assert (ending.outcome, ending.parses) == (ReadOutcome.END, 0)
    found = [(row.start, row.end, row.text) for row in [*first, *others]]
    assert found == [(chunk.start, chunk.end, chunk.text) for chunk in Chunker(CHUNKING).chunk(text)]


def test_a_text_that_was_lost_is_made_again_and_one_of_other_parsers_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(page(200))
    notification = upload(tmp_path, "page.html")
    reading = Reading(CHUNKING, parsed=StoreSpec(f"file://{tmp_path}/store"))
    *_, ending = read(reading, notification, cells=2)
    lost = tmp_path / "store" / ending.parsed
    lost.unlink()
    known = {"text_bytes": ending.text_bytes, "parsed": ending.parsed}
    *_, again = read(reading, notification, 2, 2, ending.next_byte_start, **known)
    assert (again.outcome, again.parses, lost.exists()) == (ReadOutcome.MORE, 1, True)
    (only,) = read(reading, notification, 2, 2, ending.next_byte_start, **known | {"parsed": "parsed/of-others"})
    assert only.outcome == ReadOutcome.RESTART


@pytest.mark.processes
@pytest.mark.parametrize("first", ["page", "secret"])
def test_no_name_of_a_bucket_leads_into_the_store_of_the_index(tmp_path: Path, first: str) -> None:
    """A task opens both, each once: a bucket that is called like the place of parsed texts is still another one."""
    docs, store = tmp_path / "docs", tmp_path / "store"
    docs.mkdir()
    (docs / "page.html").write_bytes(page(200))
    (store / "vectors").mkdir(parents=True)
    (store / "vectors" / "secret.txt").write_bytes(TEXT)
    reading = Reading(
        CHUNKING,
        parsed=StoreSpec(f"file://{store}"),
        places=(EVERYWHERE,),
        buckets={PARSED_PREFIX: f"file://{docs}"},
        # One after the other, so that the first has opened what it needs.
        fetching=FetchLimits(objects_at_once=1),
    )
    secret = decode(upload(store, "vectors/secret.txt"), UploadNotification)
    asked = {
        "page": request(upload(docs, "page.html"), cells=2),
        "secret": request(encode(msgspec.structs.replace(secret, bucket=PARSED_PREFIX)), cells=2),
    }
    order = sorted(asked, key=lambda name: name != first)
    pieces = read_documents(reading, [(place, asked[name]) for place, name in enumerate(order)])
    endings = {order[place]: piece for place, piece in pieces if isinstance(piece, Ending)}
    assert endings["secret"].outcome is ReadOutcome.QUARANTINED
    assert endings["page"].outcome is ReadOutcome.MORE
    assert (store / str(endings["page"].parsed)).exists()


def test_a_parsed_text_that_one_round_reads_is_kept_nowhere(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(page(20))
    reading = Reading(CHUNKING, parsed=StoreSpec(f"file://{tmp_path}/store"))
    *_, ending = read(reading, upload(tmp_path, "page.html"))
    assert (ending.outcome, ending.parsed, (tmp_path / "store").exists()) == (ReadOutcome.END, None, False)


def test_an_object_of_which_neither_size_nor_version_was_told_is_read_as_it_is(tmp_path: Path) -> None:
    """So are blobs that were renamed."""
    (tmp_path / "note.txt").write_bytes(TEXT)
    told = msgspec.structs.replace(decode(upload(tmp_path, "note.txt"), UploadNotification), etag=None, size_bytes=0)
    *chunks, ending = read(Reading(CHUNKING), encode(told), 0, 100)
    assert ending.outcome is ReadOutcome.END
    assert [chunk.text for chunk in chunks] == [chunk.text for chunk in Chunker(CHUNKING).chunk(TEXT)]


def test_an_object_that_is_not_what_was_notified_is_superseded(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(TEXT)
    assert [row.outcome for row in read(Reading(), upload(tmp_path, "note.txt", etag="older"))] == ["superseded"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("key", "content", "reason"),
    [
        ("missing.txt", None, "missing.txt"),
        ("image.txt", b"\x89PNG and more", "an image"),
        ("bomb.html", b"<html>" + b"x" * 2000, "2006 bytes"),
        ("broken.docx", b"PK\x03\x04 and nothing else", "zip archive"),
    ],
)
def test_a_document_that_cannot_be_read_is_quarantined_with_its_reason(
    tmp_path: Path, key: str, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / key).write_bytes(content)
    reading = Reading(limits=ParserLimits(document_bytes=1000))
    (ending,) = read(reading, upload(tmp_path, key, etag=None if content else "any"))
    assert ending.outcome == ReadOutcome.QUARANTINED
    assert reason in ending.detail[0]


DAMAGED = "Drei Fl\u00fc\u00dfe, ".encode() + b"\xff Otters swim."


@pytest.mark.processes
def test_bytes_that_are_not_utf_8_are_told_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(DAMAGED)
    chunk, ending = read(Reading(), upload(tmp_path, "note.txt"))
    assert (chunk.text, ending.outcome) == ("Drei Fl\u00fc\u00dfe, ? Otters swim.", ReadOutcome.END)
    assert ending.detail == (f"1 bytes of [0, {len(DAMAGED)}) are not UTF-8",)


@pytest.mark.parametrize(("encoding", "told"), [("latin-1", ["guessed"]), ("utf-16", []), ("utf-32", [])])
def test_a_text_in_another_encoding_is_read_as_what_it_says(tmp_path: Path, encoding: str, told: list[str]) -> None:
    text = "Les loutres nagent pr\u00e8s de la fen\u00eatre, o\u00f9 l'\u00e9t\u00e9 passe."
    (tmp_path / "note.txt").write_bytes(text.encode(encoding))
    chunk, ending = read(Reading(), upload(tmp_path, "note.txt"))
    assert (chunk.text, ending.outcome) == (text, ReadOutcome.END)
    assert [word in detail for word, detail in zip(told, ending.detail, strict=True)] == [True] * len(told)


@pytest.mark.processes
def test_a_text_in_another_encoding_that_is_too_large_to_parse_is_read_by_ranges(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes("caf\u00e9".encode("latin-1"))
    chunk, ending = read(Reading(limits=ParserLimits(document_bytes=2)), upload(tmp_path, "note.txt"))
    assert chunk.text == "caf?"
    assert ending.detail == ("1 bytes of [0, 4) are not UTF-8",)


def together(reading: Reading, *notifications: bytes) -> list[str]:
    """How each of some documents ended that one task reads."""
    asked = [(place, request(found, cells=100)) for place, found in enumerate(notifications)]
    pieces = read_documents(replace(reading, places=(EVERYWHERE,)), asked)
    endings = {place: piece.outcome for place, piece in pieces if isinstance(piece, Ending)}
    return [endings[place] for place in range(len(notifications))]


def elsewhere(notification: bytes, bucket: str, **changed: Any) -> bytes:
    return encode(msgspec.structs.replace(decode(notification, UploadNotification), bucket=bucket, **changed))


@pytest.mark.slow
def test_a_bucket_that_does_not_answer_is_asked_by_a_task_for_one_window_and_documents_of_others_are_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "note.txt").write_bytes(TEXT)
    far = elsewhere(upload(tmp_path, "far.txt", etag="e"), "far")
    options = {
        # Nobody listens there.
        "endpoint": "http://127.0.0.1:9",
        "region": "r",
        "access_key_id": "id",
        "secret_access_key": "key",
        "retry": RetryPolicy(deadline_seconds=0.2),
    }
    *silent, near = together(Reading(CHUNKING, options=options), *[far] * 40, upload(tmp_path, "note.txt"))
    assert silent == [ReadOutcome.AWAY] * 32 + [ReadOutcome.UNASKED] * 8
    assert near == ReadOutcome.END


@pytest.mark.slow
def test_objects_that_do_not_answer_cost_a_task_the_patience_for_one_and_the_others_of_their_bucket_are_read(
    tmp_path: Path,
) -> None:
    """Whatever their number and size. A patience for each, one after the other, would make this test run for a minute."""
    (tmp_path / "note.txt").write_bytes(b"Otters.")
    with bucket_server() as server:
        server.objects = {f"{number}.txt": (b"Otters swim in the river.", 1) for number in range(200)}
        etag = hashlib.md5(b"Otters swim in the river.").hexdigest()
        silent = {f"{number}.txt" for number in range(0, 200, 7)}
        server.silent = silent
        reading = Reading(CHUNKING, options={**server.s3_options, "retry": RetryPolicy(deadline_seconds=2.0)})
        blank = upload(tmp_path, "note.txt")
        # Every other one says of itself that it is large, and is looked at first.
        notified = [
            elsewhere(blank, "bucket", key=key, etag=etag, size_bytes=25 if place % 2 else 3 << 20)
            for place, key in enumerate(server.objects)
        ]
        began = time.monotonic()
        ended = together(reading, *notified)
        seconds = time.monotonic() - began
    assert [key for key, outcome in zip(server.objects, ended, strict=True) if outcome == ReadOutcome.AWAY] == [
        key for key in server.objects if key in silent
    ]
    assert set(ended) == {ReadOutcome.AWAY, ReadOutcome.END}
    assert seconds < len(silent)


# Only a test that fails waits so long.
MEETING_SECONDS = 20.0


class MeetingPlace:
    """Lets nobody through before all who are awaited are there."""

    def __init__(self, awaited: int) -> None:
        self._awaited = awaited
        self._there: set[str] = set()
        self._mutex, self._all_there = threading.Lock(), threading.Event()
        self.is_missed = False

    def come(self, who: str) -> None:
        with self._mutex:
            self._there.add(who)
            if len(self._there) == self._awaited:
                self._all_there.set()
        # Only where they come one after the other.
        self.is_missed |= not self._all_there.wait(MEETING_SECONDS)


def test_buckets_that_are_slow_to_open_are_opened_at_once_and_each_once(tmp_path: Path) -> None:
    """One after the other, each would cost everybody in the round a patience of its own."""
    (tmp_path / "note.txt").write_bytes(b"Otters.")
    with bucket_server() as server:
        server.objects = {f"-{number}/a.txt": (b"Otters swim.", 1) for number in range(6)}
        meeting = MeetingPlace(awaited=6)
        server.on_get = meeting.come
        reading = Reading(
            CHUNKING, options={**server.s3_options, "retry": RetryPolicy(deadline_seconds=2 * MEETING_SECONDS)}
        )
        blank = upload(tmp_path, "note.txt")
        etag = hashlib.md5(b"Otters swim.").hexdigest()
        notified = [
            elsewhere(blank, f"bucket-{number % 6}", key="a.txt", etag=etag, size_bytes=12) for number in range(30)
        ]
        assert together(reading, *notified) == [ReadOutcome.END] * 30
        assert not meeting.is_missed
        assert server.count("GET") == 6 + 30


def test_a_bucket_that_cannot_be_opened_is_tried_once_by_a_task(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(b"Otters.")
    with bucket_server(is_away=True) as server:
        patience = RetryPolicy(deadline_seconds=0.2, pause_seconds_first=1.0)
        reading = Reading(CHUNKING, options={**server.s3_options, "retry": patience})
        far = elsewhere(upload(tmp_path, "note.txt"), "bucket", etag="e")
        assert together(reading, *[far] * 20, upload(tmp_path, "note.txt"))[-1] == ReadOutcome.END
        # Of its repetitions there are none in so short a patience, or few.
        assert len(server.headers) < 5


def test_objects_that_are_told_of_and_never_given_are_found_out_together(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(b"Otters.")
    with bucket_server() as server:
        server.objects = {f"{number}.txt": (TEXT, 1) for number in range(8)}
        meeting = MeetingPlace(awaited=8)
        server.on_range = lambda key, *_: meeting.come(key)
        reading = Reading(
            CHUNKING, options={**server.s3_options, "retry": RetryPolicy(deadline_seconds=2 * MEETING_SECONDS)}
        )
        blank, etag = upload(tmp_path, "note.txt"), hashlib.md5(TEXT).hexdigest()
        large = [elsewhere(blank, "bucket", key=key, etag=etag, size_bytes=3 << 20) for key in server.objects]
        assert together(reading, *large) == [ReadOutcome.END] * 8
        assert not meeting.is_missed


def test_a_bucket_whose_objects_break_off_after_their_beginning_is_left_alone_after_two(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(b"Otters.")
    with bucket_server() as server:
        server.objects = {f"{number}.txt": (TEXT, 1) for number in range(8)}

        def held(_: str, start: int, end: int) -> None:
            server.released.wait(10 if end - start > 1 else 0)

        server.on_range = held
        reading = Reading(CHUNKING, options={**server.s3_options, "retry": RetryPolicy(deadline_seconds=0.5)})
        blank, etag = upload(tmp_path, "note.txt"), hashlib.md5(TEXT).hexdigest()
        large = [elsewhere(blank, "bucket", key=key, etag=etag, size_bytes=3 << 20) for key in server.objects]
        assert together(reading, *large) == [ReadOutcome.AWAY] * 2 + [ReadOutcome.UNASKED] * 6
        server.released.set()


@pytest.mark.processes
def test_a_worker_that_reads_and_embeds_imports_no_vector_store() -> None:
    """It would take as long to start as all else together, and holds none."""
    asked = "import sys, penstock.pipelines.indexing.stages; print('penstock.vector' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout.strip() == "False"


def test_a_folder_that_nobody_named_is_not_read_whoever_wrote_the_event(tmp_path: Path) -> None:
    """Not by its own name, nor by a way that leads out of a folder that was named."""
    for folder in ("docs", "docs-private"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "note.txt").write_bytes(TEXT)
    (tmp_path / "docs" / "link").symlink_to(tmp_path / "docs-private")
    named = Reading(CHUNKING, places=(f"file://{tmp_path}/docs",))
    assert isinstance(read(named, upload(tmp_path / "docs", "note.txt"))[0], Chunk)
    secret = upload(tmp_path / "docs-private", "note.txt")
    for bucket, key in [
        (f"file://{tmp_path}/docs-private", "note.txt"),
        (f"file://{tmp_path}/docs/link", "note.txt"),
        (f"file://{tmp_path}/docs/../docs-private", "note.txt"),
        (f"file://{tmp_path}/docs", "link/note.txt"),
        (f"file://{tmp_path}/docs", "../docs-private/note.txt"),
        (f"file://{tmp_path}", "docs-private/note.txt"),
        ("file:///etc", "hostname"),
        ("memory://other", "note.txt"),
    ]:
        (ending,) = read(named, elsewhere(secret, bucket, key=key))
        assert ending.outcome == ReadOutcome.QUARANTINED, bucket
        refusal = "could leave its folder" if ".." in key else "may not be read"
        assert refusal in ending.detail[0]
