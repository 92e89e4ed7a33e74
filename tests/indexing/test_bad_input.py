"""Bad input whichever engine runs it: each ends in a clear outcome of its own, and the good documents beside it are indexed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docx
import pytest
from tests.indexing.desk import SMALL, Desk, prose
from tests.objects.bucket_server import BucketServer, bucket_server

from penstock.documents import Chunker, ChunkingConfig, DocumentStatus, encode
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.documents.notifications import Destination, NotificationMessage, parser_of
from penstock.documents.notifications.trust import SIGNATURE_HEADER, TIMESTAMP_HEADER, HmacTrust
from penstock.documents.parsers import ParserLimits
from penstock.errors import InvalidInput, PermissionDenied
from penstock.indexing.job.config import IndexingConfig
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.stages.reading import Reading
from penstock.testing import ManualClock

MEBIBYTE = 1 << 20
# A zip bomb is one against any limit; a small one makes the test quick.
LIMITS = ParserLimits(archive_bytes=8 * MEBIBYTE)
BOMB_BYTES = 16 * MEBIBYTE
HTML_DEPTH = 200_000

QUARANTINED, INDEXED, EMPTY = DocumentStatus.QUARANTINED, DocumentStatus.INDEXED, DocumentStatus.EMPTY


# Documents that nobody should send ---------------------------------------------------------------------------


def zip_bomb() -> bytes:
    """A Word document whose text is one letter, very often."""
    plain, made = io.BytesIO(), io.BytesIO()
    document = docx.Document()
    document.add_paragraph("x")
    document.save(plain)
    source = zipfile.ZipFile(plain)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as bomb:
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename == "word/document.xml":
                data = data.replace(b">x<", b">" + b"x" * BOMB_BYTES + b"<")
            bomb.writestr(entry.filename, data)
    return made.getvalue()


def locked_pdf() -> bytes:
    """The oldest encryption of PDF, by hand: whoever opens it is asked for a password."""
    padding = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
    user, identity, allowed = (b"secret" + padding)[:32], b"0123456789abcdef", -4
    owner = rc4(hashlib.md5(user).digest()[:5], user)
    key = hashlib.md5(user + owner + struct.pack("<i", allowed) + identity).digest()[:5]
    lock = b"<</Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P %d>>"
    objects = [
        b"<</Type /Catalog /Pages 2 0 R>>",
        b"<</Type /Pages /Kids [] /Count 0>>",
        lock % (owner.hex().encode(), rc4(key, padding).hex().encode(), allowed),
    ]
    body = b"%PDF-1.4\n" + b"".join(b"%d 0 obj\n%s\nendobj\n" % (n, text) for n, text in enumerate(objects, 1))
    places = [body.index(b"%d 0 obj" % number) for number in range(1, len(objects) + 1)]
    table = b"xref\n0 4\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    name = identity.hex().encode()
    end = b"trailer <</Size 4 /Root 1 0 R /Encrypt 3 0 R /ID [<%s> <%s>]>>\nstartxref\n%d\n%%%%EOF"
    return body + table + end % (name, name, len(body))


def rc4(key: bytes, data: bytes) -> bytes:
    box, j = list(range(256)), 0
    for i in range(256):
        j = (j + box[i] + key[i % len(key)]) % 256
        box[i], box[j] = box[j], box[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + box[i]) % 256
        box[i], box[j] = box[j], box[i]
        out.append(byte ^ box[(box[i] + box[j]) % 256])
    return bytes(out)


BAD: dict[str, tuple[bytes, DocumentStatus, str]] = {
    "bomb.docx": (zip_bomb(), QUARANTINED, "looks like a zip bomb"),
    "deep.html": (
        b"<html><body>" + b"<div>" * HTML_DEPTH + b"deep" + b"</div>" * HTML_DEPTH,
        QUARANTINED,
        "nested deeper than 2000",
    ),
    "locked.pdf": (locked_pdf(), QUARANTINED, "encrypted PDF"),
    "broken.pdf": (b"%PDF-1.7 and nothing that a parser could use", QUARANTINED, "a PDF cannot be opened"),
    "broken.docx": (b"PK\x03\x04 and nothing that could be unpacked", QUARANTINED, "a zip archive cannot be opened"),
    "picture.txt": (b"\x89PNG\r\n\x1a\n" + bytes(64), QUARANTINED, "an image cannot be indexed"),
    "mystery": (b"\x01\x02\x00\x03" * 64, QUARANTINED, "a binary file cannot be indexed"),
    "empty.txt": (b"", EMPTY, ""),
    "blank.txt": (b" \n\t\n  ", EMPTY, ""),
}
LATIN = prose("caf\xe9s", 30).encode("latin-1")
DAMAGED = prose("caf\xe9s", 30).encode() + b" \xff and on it goes."
# Text all the same: zeros beyond what is sniffed, another encoding, one letter, and signs without words.
STRANGE = {
    "zeros.txt": prose("zeros", 120).encode() + bytes(100) + b" and on it goes.",
    "utf16.txt": prose("sixteen bits", 20).encode("utf-16"),
    "letter.txt": b"x",
    "signs.txt": "\u0301\u0301\u200d\u202e \ufeff ??? \U0001f9a6".encode(),
}
NAMES = ["ünï/çødé 🦦.txt", "100%25 off.txt", "a%2Fb?c=d&e#f.txt", "spaced out + more.txt"]


@pytest.fixture(scope="module")
def shop(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """One micro-batch with everything bad that lies in a folder, and good documents around it."""
    desk = Desk(engine, tmp_path_factory.mktemp("bad-input"))
    events = [desk.write("first.txt", prose("good things", 5))]
    events += [desk.write(key, data) for key, (data, _, _) in BAD.items()]
    events += [desk.write("latin.txt", LATIN), desk.write("damaged.txt", DAMAGED)]
    events += [desk.write(key, prose("strange names", 3)) for key in NAMES]
    events += [desk.upload(key, etag="gone") for key in ("never.txt", "line\nbreak.txt", "../outside.txt")]
    events += [b"{not json", b"{}", b'{"tenantId": 7}', b"\xff\xfe", b""]
    good = desk.upload("first.txt")
    events += [good.replace(b"first.txt", b"\xff.txt"), good[:-1] + b',"more":' + b"[" * 20_000 + b"]" * 20_000 + b"}"]
    # The settings of all indexes lie under this name, and are no vectors.
    events += [json.dumps({**json.loads(good), "tenantId": "penstock", "indexId": "indexes"}).encode()]
    events[-1] = events[-1].replace(EMBEDDED_MODEL.encode(), b"settings")
    # The zero time of Go, and then an event that is ordered in another way.
    zero = json.loads(desk.write("zero.txt", "Herons stand in the reeds."))
    del zero["sequencer"]
    events += [json.dumps({**zero, "createdAt": "0001-01-01T00:00:00Z"}).encode(), desk.upload("zero.txt")]
    stranger = desk.write("stranger.txt", "Nobody knows this model.")
    events += [stranger.replace(EMBEDDED_MODEL.encode(), b"some-model-of-somebody")]
    odd = json.loads(desk.upload("first.txt"))
    events += [json.dumps({**odd, name: "x" * 1025}).encode() for name in ("tenantId", "indexId", "model")]
    events += [json.dumps({**odd, "bucket": "nowhere://x", "key": "nowhere.txt"}).encode()]
    events += [desk.write(key, data) for key, data in STRANGE.items()]
    events += [desk.write("last.txt", prose("more good things", 5))]
    desk.run(*events, reading=Reading(limits=LIMITS))
    return desk


def test_good_documents_around_the_bad_ones_are_searchable(shop: Desk) -> None:
    for key, words in (("first.txt", "good things"), ("last.txt", "more good things")):
        assert shop.texts(key) == [chunk.text for chunk in Chunker(SMALL).chunk(prose(words, 5).encode())]


@pytest.mark.parametrize("key", BAD)
def test_a_document_that_cannot_be_read_says_why_in_its_report(shop: Desk, key: str) -> None:
    _, status, reason = BAD[key]
    report = shop.report(key)
    assert (report.status, shop.texts(key)) == (status, [])
    assert reason in str(report.reason)
    assert shop.entries()[key].pending is None


def test_a_key_that_does_not_exist_is_named_in_its_report(shop: Desk) -> None:
    report = shop.report("never.txt")
    assert report.status is QUARANTINED
    assert "never.txt" in str(report.reason)


@pytest.mark.parametrize("key", ["line\nbreak.txt", "../outside.txt"])
def test_a_name_that_no_store_can_hold_is_set_aside_by_name(shop: Desk, key: str) -> None:
    report = shop.report(key)
    assert report.status is QUARANTINED
    assert f"object key {key!r} cannot be used" in str(report.reason)


def test_a_text_in_another_encoding_is_decoded_and_the_guess_is_told(shop: Desk) -> None:
    report = shop.report("latin.txt")
    assert report.status is INDEXED
    assert "read as cp1252, which was guessed" in report.warnings[0]
    assert shop.texts("latin.txt") == [chunk.text for chunk in Chunker(SMALL).chunk(prose("caf\xe9s", 30).encode())]


def test_bytes_that_are_no_utf8_in_a_text_that_is_are_replaced_and_counted(shop: Desk) -> None:
    report = shop.report("damaged.txt")
    assert report.status is INDEXED
    assert sum(int(warning.split()[0]) for warning in report.warnings) >= 1
    # A character for a byte, so that places in the text stay places in the document.
    assert "? and on it goes" in shop.texts("damaged.txt")[-1]


@pytest.mark.processes
@pytest.mark.parametrize("key", STRANGE)
def test_a_strange_text_is_a_text_all_the_same(shop: Desk, key: str) -> None:
    report = shop.report(key)
    assert report.status is INDEXED
    # Also what the model knows nothing of: it is there with its words, and a warning says so.
    assert len(shop.texts(key)) == report.chunks
    assert any("only their words find them" in warning for warning in report.warnings) == (report.words_only > 0)


def test_a_bucket_that_is_nowhere_is_named_in_the_report(shop: Desk) -> None:
    report = shop.report("nowhere.txt")
    assert report.status is QUARANTINED
    assert "nowhere" in str(report.reason)


@pytest.mark.parametrize("key", NAMES)
def test_a_name_with_strange_characters_is_a_name_like_any_other(shop: Desk, key: str) -> None:
    assert shop.report(key).status is INDEXED
    assert len(shop.texts(key)) == 1


def test_records_that_are_no_notifications_are_set_aside_with_the_reason(shop: Desk) -> None:
    reasons = shop.refused()
    assert len(reasons) == 12
    assert sum("not a UploadNotification" in reason for reason in reasons) == 7
    assert sum("can't decode byte 0xff" in reason for reason in reasons) == 1
    assert sum("recursion depth" in reason for reason in reasons) == 1
    assert sum("the store's own records" in reason for reason in reasons) == 1
    assert sum("some-model-of-somebody" in reason for reason in reasons) == 1
    assert sum("a name has at most 1024 bytes" in reason for reason in reasons) == 3


def test_an_object_whose_first_event_has_no_time_is_searchable(shop: Desk) -> None:
    assert shop.texts("zero.txt") == ["Herons stand in the reeds."]


def test_the_stream_goes_on_after_them(shop: Desk) -> None:
    shop.run(shop.write("later.txt", "Otters swim in the river."), reading=Reading(limits=LIMITS))
    assert shop.texts("later.txt") == ["Otters swim in the river."]


# Objects that misbehave --------------------------------------------------------------------------------------


@pytest.fixture
def desk(engine: None, tmp_path: Path) -> Desk:
    return Desk(engine, tmp_path)


@pytest.fixture
def server() -> Iterator[BucketServer]:
    with bucket_server() as found:
        yield found


@pytest.mark.processes
def test_an_object_that_changes_while_it_is_read_is_superseded_and_nothing_of_it_stays(
    desk: Desk, server: BucketServer
) -> None:
    """The version before stays searchable until the event of the new one is taken."""
    desk.server = server
    desk.run(desk.write("moving.txt", prose("the first version", 10)))
    before = desk.texts("moving.txt")
    text = prose("the second version", 3 * MEBIBYTE // 60).encode()
    event, good = desk.write("moving.txt", text), desk.write("good.txt", prose("patience", 3))

    def change(key: str, start: int, _end: int) -> None:
        if key == "moving.txt" and start >= MEBIBYTE:
            server.objects[key] = (prose("the third version", 10).encode(), 3)

    server.on_range = change
    big = ChunkingConfig(target_tokens=6000, max_tokens=8000, overlap_tokens=100)
    desk.run(event, good, chunking=big, rounds=RoundLimits(cells_max=1))
    report = desk.report("moving.txt")
    assert report.status is DocumentStatus.SUPERSEDED
    assert "moving.txt" in str(report.reason)
    assert desk.texts("moving.txt") == before
    assert desk.report("good.txt").status is INDEXED

    desk.run(desk.upload("moving.txt"))
    assert "the third version" in desk.texts("moving.txt")[0]
    assert "the first version" not in " ".join(desk.texts("moving.txt"))


def test_an_object_that_may_not_be_read_is_set_aside_by_name(desk: Desk, server: BucketServer) -> None:
    desk.server = server
    events = [desk.write("secret.txt", prose("secrets", 3)), desk.write("good.txt", prose("patience", 3))]
    server.denied.add("secret.txt")
    desk.run(*events)
    report = desk.report("secret.txt")
    assert report.status is QUARANTINED
    assert "secret.txt" in str(report.reason)
    assert desk.report("good.txt").status is INDEXED


def test_a_folder_that_only_an_event_names_is_set_aside_and_one_of_an_earlier_job_is_read(desk: Desk) -> None:
    outside = desk.folder / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("Nobody has named this.")
    desk.run(
        desk.write("good.txt", prose("patience", 3)),
        desk.upload("secret.txt", etag="e", bucket=f"file://{outside}"),
        desk.upload("passwd", etag="e", bucket="file:///etc"),
    )
    for key in ("secret.txt", "passwd"):
        assert desk.report(key).status is QUARANTINED
        assert "may not be read" in str(desk.report(key).reason)
    assert desk.report("good.txt").status is INDEXED
    # A job that is given no place goes on with what was given to the one before.
    desk.send(
        desk.write("later.txt", prose("rivers", 3)), desk.upload("secret.txt", bucket=f"file://{outside}", etag="f")
    )
    with desk.job(IndexingConfig(desk.url, chunking=desk.chunking)) as job:
        job.run_available()
    assert desk.report("later.txt").status is INDEXED
    assert desk.report("secret.txt").status is QUARANTINED


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file; the test above asks a server instead")
def test_a_file_without_read_permission_is_set_aside_by_name(desk: Desk) -> None:
    event = desk.write("secret.txt", prose("secrets", 3))
    (desk.documents / "secret.txt").chmod(0)
    desk.run(event, desk.write("good.txt", prose("patience", 3)))
    assert desk.report("secret.txt").status is QUARANTINED
    assert desk.report("good.txt").status is INDEXED


# Deliveries that nobody should believe -----------------------------------------------------------------------


def test_a_delivery_that_is_unsigned_stale_or_malformed_never_reaches_the_queue(
    desk: Desk, server: BucketServer
) -> None:
    desk.server = server
    clock = ManualClock()
    trust, now = HmacTrust([b"k" * 32], clock=clock), clock.now_ms() // 1000
    desk.write("good.txt", prose("patience", 3))
    desk.write("evil.txt", prose("mischief", 3))

    def delivery(key: str, at: int = now, **headers: str) -> NotificationMessage:
        record = {
            "eventVersion": "2.1",
            "eventName": "ObjectCreated:Put",
            "eventTime": "2026-01-01T00:00:00Z",
            "s3": {
                "bucket": {"name": "bucket"},
                "object": {"key": key, "size": 5, "eTag": desk._found(key)[0], "sequencer": "0A"},
            },
        }
        body = json.dumps({"Records": [record]}).encode()
        signed = {TIMESTAMP_HEADER: str(at), SIGNATURE_HEADER: trust.sign(body, at, "s3/handbook")}
        return NotificationMessage(body, {**signed, **headers}, clock.now_ms(), target="s3/handbook")

    malformed = delivery("evil.txt")
    malformed = replace(malformed, body=malformed.body[:-2], headers={TIMESTAMP_HEADER: str(now)})
    malformed.headers[SIGNATURE_HEADER] = trust.sign(malformed.body, now, "s3/handbook")  # type: ignore[index]
    outcomes = []
    for found in (
        NotificationMessage(delivery("evil.txt").body, {}, clock.now_ms()),
        delivery("evil.txt", at=now - 301),
        delivery("evil.txt", **{SIGNATURE_HEADER: "sha256=" + "0" * 64}),  # type: ignore[arg-type]
        malformed,
        delivery("good.txt"),
    ):
        try:
            trust.check(found)
            received = parser_of("s3")(found, lambda *_: Destination("acme", "handbook", EMBEDDED_MODEL))
        except (PermissionDenied, InvalidInput) as error:
            outcomes.append(type(error))
            continue
        desk.send(*map(encode, received.notifications))
    assert outcomes == [PermissionDenied, PermissionDenied, PermissionDenied, InvalidInput]
    desk.run()
    assert list(desk.entries()) == ["good.txt"]
    assert desk.report("good.txt").status is INDEXED
    assert desk.refused() == []
