"""Bytes of every released version of the vector store's formats. They lie in shared buckets, so they never change."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa
import pytest

from penstock.blocks import FRAGMENT, STORE, Address, RecordKind, Shelf, fragment_key, read_positions
from penstock.blocks.format.keys import head_key, page_key, position_key, shelf_prefix
from penstock.blocks.read.pages import decode_page, encode_page
from penstock.errors import Unsupported
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.testing import ManualClock
from penstock.vector import ALL_LISTS, VectorConfig, VectorStore, attribute
from penstock.vector.attributes import AttributeType
from penstock.vector.format.analysis import StoredAnalysis
from penstock.vector.format.codes import decode, encode
from penstock.vector.format.content import ColumnBlock, IdBlock, PostingBlock, RowBlock, VectorBlock
from penstock.vector.format.document_log import DocumentBlock
from penstock.vector.format.identity import DictionaryBlock, Identities
from penstock.vector.format.keys import CollectionName, Family, collection_key, collection_prefix
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import AttributeRecord, CollectionRecord, Head, StoreRecord, Sweep, SweepKind
from penstock.vector.format.store_format import FORMAT, FORMAT_VERSION
from penstock.vector.format.terms import TermBlock, count_words
from penstock.vector.upkeep.repair import Statements, repair_keyvalue

GOLDEN = Path(__file__).parent / "golden" / "vector"

_IDS = np.array([3, 5, 9], np.int64)
_PLAIN: dict[str, tuple[Family, RowBlock]] = {
    "vectors-v1.bin": (Family.VECTORS, VectorBlock(_IDS, np.arange(6, dtype=np.float32).reshape(3, 2) / 4)),  # type: ignore[arg-type]
    "postings-v1.bin": (Family.POSTINGS, PostingBlock(_IDS, np.arange(12, dtype=np.uint8).reshape(3, 4))),
    "dictionary-v1.bin": (
        Family.DICTIONARY,
        DictionaryBlock(
            Identities(np.array([1, 1, 2**63], np.uint64), np.array([4, 5, 2**64 - 1], np.uint64)),
            np.array([3, -1, 9], np.int64),
        ),
    ),
    "centroids-v1.bin": (Family.CENTROIDS, VectorBlock(_IDS, np.eye(3, 2, dtype=np.float32))),
    "deleted-v1.bin": (Family.DELETED, IdBlock(_IDS + (1 << 40))),
    "hidden-v1.bin": (Family.HIDDEN, IdBlock(_IDS)),
}
_COMPRESSED: dict[str, tuple[Family, RowBlock]] = {
    "names-v1.bin": (Family.NAMES, ColumnBlock(_IDS, pa.array(["a", "größe", ""]))),
    "texts-v1.bin": (Family.TEXTS, ColumnBlock(_IDS, pa.array(["one text", "", "水"]))),
    "column-v1.bin": (
        Family.COLUMN,
        ColumnBlock(_IDS, pa.array([1_700_000_000_000_000] * 3, pa.timestamp("us", "UTC"))),
    ),
    "terms-v1.bin": (
        Family.TERMS,
        TermBlock(
            np.array([7, 2**64 - 1], np.uint64), np.array([2, 3]), np.array([3, 9, 5]), np.array([1, 2, 300], np.uint16)
        ),
    ),
    "documents-v1.bin": (
        Family.DOCUMENTS,
        DocumentBlock.of(
            np.array([8, 8], np.uint64), ["doc", "doc"], ["v1", "v1"], np.array([0, 1], np.uint8), np.array([3, -1])
        ),
    ),
}


_RECORDS: dict[str, tuple[int, msgspec.Struct]] = {
    "store-record-v1.bin": (RecordKind.STORE, StoreRecord(format=1, next_collection=3, commit=17)),
    "collection-record-v1.bin": (RecordKind.NAMED, CollectionRecord(2, 384, DistanceMetric.COSINE, 1_700_000_000_000)),
    "head-v1.bin": (
        RecordKind.HEAD,
        Head(
            commit=9,
            next_id=1 << 40,
            next_serial=77,
            next_list=12,
            rows=1000,
            hidden=3,
            dead=40,
            texts=900,
            words=12_345,
            norm_max=1.5,
            shaped=512,
            attributes=tuple(AttributeRecord(n, f"a{n}", kind) for n, kind in enumerate(AttributeType, start=1)),
            sweep=Sweep(int(Family.POSTINGS), 0, 5, 40, SweepKind.WHOLE),
        ),
    ),
}


def shown(content: Any) -> list[Any]:
    """A content as plain values."""
    fields = [getattr(content, field.name) for field in dataclasses.fields(content)]
    return [
        shown(f) if isinstance(f, Identities) else (f.to_pylist() if hasattr(f, "to_pylist") else f.tolist())
        for f in fields
    ]


@pytest.mark.parametrize("name", _PLAIN)
def test_a_block_is_still_written_to_the_byte(name: str) -> None:
    family, content = _PLAIN[name]
    assert FORMAT.encode(family, content) == (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", [*_PLAIN, *_COMPRESSED])
def test_a_released_block_is_still_read(name: str) -> None:
    family, content = (_PLAIN | _COMPRESSED)[name]
    assert shown(FORMAT.decode(family, (GOLDEN / name).read_bytes(), type(content))) == shown(content)


def test_every_family_has_its_golden_block() -> None:
    assert {family for family, _ in (_PLAIN | _COMPRESSED).values()} == set(Family)


@pytest.mark.parametrize("name", _RECORDS)
def test_a_record_is_still_written_and_read_to_the_byte(name: str) -> None:
    kind, record = _RECORDS[name]
    assert FORMAT.encode_record(kind, record) == (GOLDEN / name).read_bytes()
    assert FORMAT.decode_record(kind, (GOLDEN / name).read_bytes(), type(record)) == record


def test_a_position_is_still_written_and_read_to_the_byte() -> None:
    golden = (GOLDEN / "position-v1.bin").read_bytes()
    assert FORMAT.envelope.seal(RecordKind.POSITION, (1 << 40).to_bytes(8, "little")) == golden
    volume = MemoryVolume()
    volume.land("keyvalue", [(position_key("queue"), golden)])
    assert asyncio.run(read_positions(MemoryKeyValue(volume), FORMAT)).known == {"queue": 1 << 40}


@pytest.mark.parametrize("name", [*_PLAIN, *_COMPRESSED, *_RECORDS, "page-v1.bin", "position-v1.bin"])
def test_a_block_of_an_unknown_version_is_refused_by_its_number(name: str) -> None:
    value = bytearray((GOLDEN / name).read_bytes())
    for version in (0, FORMAT_VERSION + 1):
        value[4] = version
        checksum = google_crc32c.extend(google_crc32c.value(bytes(value[:12])), bytes(value[16:]))
        value[12:16] = checksum.to_bytes(4, "little")
        with pytest.raises(Unsupported, match=f"format {version}"):
            FORMAT.envelope.unseal(value[5], bytes(value))


def test_a_page_is_still_written_and_read_to_the_byte() -> None:
    fragments = np.array([(5, 1, 2, 3), (2**64 - 1, 2**63, 2**32 - 1, 9)], FRAGMENT)
    assert encode_page(FORMAT, fragments) == (GOLDEN / "page-v1.bin").read_bytes()
    assert decode_page(FORMAT, (GOLDEN / "page-v1.bin").read_bytes()).tolist() == fragments.tolist()


def test_the_envelope_is_drawn_as_it_is() -> None:
    value = FORMAT.envelope.seal(RecordKind.HEAD, b"{}")
    assert value[:12] == b"PSVB" + bytes([1, 102, 0, 0]) + struct.pack("<I", 2)
    assert value[16:] == b"{}"


def test_keys_are_drawn_as_they_are() -> None:
    address = Address(Shelf(Family.COLUMN, 258), 5, 6)
    assert head_key(collection_prefix(1)).hex() == "100000000100"
    assert page_key(collection_prefix(1), address.shelf, 5).hex() == "100000000101" + "04" + "0102" + "0000000000000005"
    assert (
        fragment_key(collection_prefix(1), address).hex()
        == "100000000102" + "04" + "0102" + "0000000000000005" + "0000000000000006"
    )
    assert STORE == b"\x00"
    assert position_key("queue") == b"\x01queue"
    assert collection_key(CollectionName("t", "in", "m")) == b"\x02\x00\x01t\x00\x02in\x00\x01m"


def test_codes_are_the_upper_halves_of_floats() -> None:
    vectors = np.array([[1.0, -2.5, 0.0, 3.14159274]], np.float32)
    assert encode(vectors).tobytes().hex() == "803f20c000004940"
    assert decode(np.frombuffer(bytes.fromhex("803f20c000004940"), np.uint8)[None]).tolist() == [
        [1.0, -2.5, 0.0, 3.140625]
    ]


def volume_of(dump: bytes) -> MemoryVolume:
    """A key-value store from a file of keys and values, each with its length before it."""
    volume, at, parts = MemoryVolume(), 0, []
    while at < len(dump):
        (size,) = struct.unpack_from("<I", dump, at)
        parts.append(dump[at + 4 : at + 4 + size])
        at += 4 + size
    volume.land("keyvalue", list(zip(parts[::2], parts[1::2], strict=True)))
    return volume


def dump_of(volume: MemoryVolume) -> bytes:
    entries = volume.table("keyvalue").entries(b"", None, reverse=False)
    return b"".join(struct.pack("<I", len(part)) + part for entry in entries for part in entry)


async def write_example(volume: MemoryVolume) -> None:
    """The store whose dump is kept: lists that split, dead and hidden rows, words, attributes, a position."""
    random = np.random.default_rng(42)
    async with await VectorStore.over(MemoryKeyValue(volume), VectorConfig(list_rows=8)) as store:
        collection = await store.collection("tenant", "index", "model", dimensions=4, metric="cosine")
        for start in (0, 30):
            table = pa.table(
                {
                    "id": [f"row-{n}" for n in range(start, start + 40)],
                    "vector": pa.array(
                        list(random.standard_normal((40, 4)).astype(np.float32)), pa.list_(pa.float32())
                    ),
                    "text": [f"word{n % 5} common" for n in range(start, start + 40)],
                    "attributes": [{"n": n, "lang": "de" if n % 2 else "en"} for n in range(start, start + 40)],
                }
            )
            await collection.upsert(table, source="queue", position=start, durable=True)
        await collection.delete(["row-1", "row-2"], durable=True)
        for version in ("v1", "v2", "v3"):
            rows = pa.table({"id": ["chunk"], "vector": pa.array([[1.0, 2.0, 3.0, 4.0]], pa.list_(pa.float32()))})
            await collection.upsert(rows, document="doc", version=version, durable=True)
            if version != "v3":
                await collection.flip("doc", version, durable=True)


def test_a_store_of_a_newer_format_is_refused_by_its_number_and_left_alone() -> None:
    async def run() -> None:
        volume = volume_of((GOLDEN / "store-v1.bin").read_bytes())
        newer = StoreRecord(format=FORMAT_VERSION + 1, next_collection=1)
        volume.land("keyvalue", [(STORE, FORMAT.encode_record(RecordKind.STORE, newer))])
        before = dump_of(volume)
        with pytest.raises(Unsupported, match=f"format {FORMAT_VERSION + 1}"):
            await VectorStore.over(MemoryKeyValue(volume))
        assert dump_of(volume) == before

    asyncio.run(run())


def test_a_store_of_version_1_is_still_read_searched_and_written_to() -> None:
    async def run() -> None:
        volume = volume_of((GOLDEN / "store-v1.bin").read_bytes())
        async with await VectorStore.over(MemoryKeyValue(volume)) as store:
            collection = await store.collection("tenant", "index", "model")
            assert store.position("queue") == 30
            assert (await collection.verify()).problems == []
            stats = await collection.stats()
            assert (stats.rows, stats.hidden_rows, stats.attributes) == (69, 1, {"lang": "string", "n": "integer"})
            assert await collection.current_version("doc") == "v2"
            found = await collection.search([[1.0, 2.0, 3.0, 4.0]], 1, probes=ALL_LISTS)
            assert found["id"].to_pylist() == ["chunk"]
            by_text = await collection.search(text="word3", k=50, filter=attribute("lang") == "de")
            assert {int(name.split("-")[1]) % 10 for name in by_text["id"].to_pylist()} == {3}
            await collection.flip("doc", "v3", durable=True)
            await store.compact()
            assert (await collection.verify()).problems == []

    asyncio.run(run())


# Sections, what documents are about, two languages, a text without a lead.
LEADS = {
    "gzip": "Compressing files\nThe module gzip reads and writes compressed files\n\nOpen a file as you would any other.",
    "lzma": "Filters\nThe module lzma\n\nThis mentions gzip beside the compressed files of others.",
    "rezept": "Kuchen\nDas Buch der Rezepte\n\nDer Teig wird mit den Äpfeln auf ein Blech gelegt und ist fertig.",
    "plain": "A text without a lead that mentions gzip.",
}
# What the folded rule adds: case, accents, points, emoji, identifiers, pairs of characters.
FOLDED = {
    **LEADS,
    "street": "Straßen\nWege in İstanbul\n\nDie Straße ist nicht weit von der U-Bahn und dem Café. 🚀",
    "code": "HTTPServer\nThe class getElementById\n\nRelease v3.11.2 fixes CVE-2024-3094 in C++ with --dry-run, don't panic.",
    "scripts": "東京都の天気 데이터베이스를 مَدْرَسَة שָׁלוֹם หนังสือ ١٢٣",
}


async def write_folded(volume: MemoryVolume) -> None:
    """The store with the folded rule for words whose dump is kept."""
    async with await VectorStore.over(MemoryKeyValue(volume)) as store:
        collection = await store.collection("tenant", "index", "model", dimensions=2, analysis="leads")
        vectors = pa.array([[1.0, float(n)] for n in range(len(FOLDED))], pa.list_(pa.float32()))
        table = pa.table({"id": list(FOLDED), "vector": vectors, "text": list(FOLDED.values())})
        await collection.upsert(table, durable=True)


def test_a_store_with_leads_is_still_read_searched_and_written_to() -> None:
    async def run() -> None:
        volume = volume_of((GOLDEN / "store-leads-v1.bin").read_bytes())
        async with await VectorStore.over(MemoryKeyValue(volume)) as store:
            collection = await store.collection("tenant", "index", "model", analysis="leads")
            assert (await collection.verify()).problems == []
            about = await collection.search(text="compressed file with gzip", k=4)
            assert about["id"].to_pylist()[0] == "gzip"
            stems = await collection.search(text="Apfel Rezept", k=4)
            assert stems["id"].to_pylist() == ["rezept"]
            row = pa.table({"id": ["new"], "vector": [[0.5, 0.5]], "text": ["Tar\nArchives\n\nAn archive of files."]})
            await collection.upsert(row, durable=True)
            assert (await collection.search(text="archives", k=1))["id"].to_pylist() == ["new"]
            assert (await collection.verify()).problems == []

    asyncio.run(run())


def test_words_of_an_older_rule_are_indexed_by_the_present_one_when_asked_for() -> None:
    async def run() -> None:
        volume = volume_of((GOLDEN / "store-leads-v1.bin").read_bytes())
        for statements, expected in ((Statements(), 0), (Statements(reindex_words=True), 1)):
            keyvalue = MemoryKeyValue(volume)
            reports = await repair_keyvalue(keyvalue, statements, ManualClock())
            await keyvalue.close()
            assert [report.losses for report in reports] == [()] * expected
        async with await VectorStore.over(MemoryKeyValue(volume)) as store:
            collection = await store.collection("tenant", "index", "model", analysis="leads")
            assert (await collection.verify()).problems == []
            for question, name in {"keines": [], "apfeln": ["rezept"], "compressed file with gzip": ["gzip"]}.items():
                assert (await collection.search(text=question, k=1))["id"].to_pylist() == name
            near = await collection.search([[1.0, 2.0]], 1, probes=ALL_LISTS)
            assert near["id"].to_pylist() == ["rezept"]
        keyvalue = MemoryKeyValue(volume)
        assert await repair_keyvalue(keyvalue, Statements(reindex_words=True), ManualClock()) == []
        await keyvalue.close()

    asyncio.run(run())


def test_a_store_with_folded_words_is_still_read_searched_and_written_to() -> None:
    async def run() -> None:
        volume = volume_of((GOLDEN / "store-folded-v1.bin").read_bytes())
        async with await VectorStore.over(MemoryKeyValue(volume)) as store:
            collection = await store.collection("tenant", "index", "model", analysis="leads")
            assert (await collection.verify()).problems == []
            questions = {"STRASSE": "street", "3.11.2": "code", "東京": "scripts", "compressed file with gzip": "gzip"}
            for question, name in questions.items():
                assert (await collection.search(text=question, k=1))["id"].to_pylist() == [name]
            row = pa.table({"id": ["new"], "vector": [[0.5, 0.5]], "text": ["Tar\nArchives\n\nAn archive of résumés."]})
            await collection.upsert(row, durable=True)
            assert (await collection.search(text="RESUMES", k=1))["id"].to_pylist() == ["new"]
            assert (await collection.verify()).problems == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("dump", "texts", "analysis"),
    [
        ("store-leads-v1.bin", LEADS, StoredAnalysis.PLAIN_LEADS),
        ("store-folded-v1.bin", FOLDED, StoredAnalysis.FOLDED_LEADS),
    ],
)
def test_words_of_texts_are_still_counted_under_the_same_hashes(
    dump: str, texts: dict[str, str], analysis: StoredAnalysis
) -> None:
    entries = volume_of((GOLDEN / dump).read_bytes()).table("keyvalue").entries(b"", None, reverse=False)
    prefix = shelf_prefix(collection_prefix(0), Shelf(Family.TERMS))
    blocks = [FORMAT.decode(Family.TERMS, value, TermBlock) for key, value in entries if key.startswith(prefix)]
    kept = TermBlock.merge(blocks)
    counted = count_words(pa.array(list(texts.values())), analysis)
    assert kept.keys.tolist() == counted.hashes.tolist() != []
    assert (kept.ids.tolist(), kept.counts.tolist()) == (counted.texts.tolist(), counted.counts.tolist())
