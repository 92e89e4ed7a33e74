"""Heads as bytes: hostile ones are refused, unknown members are kept, and no flipped byte goes unnoticed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.catalog.samples import DAY, data_file, run, small_catalog

from penstock.catalog import Catalog, CatalogConfig
from penstock.catalog.format.head import CatalogHead, inline_file, with_inline
from penstock.catalog.format.head_json import HeadFormat, decode_head, encode_head
from penstock.catalog.format.legacy import decode_pair
from penstock.catalog.format.members import sealed
from penstock.errors import Corrupt, InvalidInput, PenstockError, Unsupported
from penstock.objects import MemoryStore, Token

EXAMPLE: dict[str, Any] = {
    "version": 2,
    "chunks": {
        "t/a.parquet": {
            "path": "t/a.parquet",
            "min_timestamp": 1738839600000000000,
            "max_timestamp": 1738843200000000000,
            "row_count": 500000,
            "size_bytes": 52428800,
            "level": 0,
            "shard_id": "shard-7a3f",
            "column_stats": {"status_code": {"min": 200, "max": 503, "has_nulls": False}},
        }
    },
    "time_index": {"1738839600000000000": ["t/a.parquet"], "1738843200000000000": ["t/a.parquet"]},
}


def stamped(version: int) -> bytes:
    form = HeadFormat(version)
    head = with_inline(CatalogHead(version=version, uuid="u"), [inline_file(data_file(n), 1) for n in range(2)])
    return form.encode(form.stamp(head, Token("w", 1)))


@pytest.mark.parametrize("version", [2, 3])
def test_every_flipped_byte_of_what_we_write_is_noticed(version: int) -> None:
    body = stamped(version)
    for at in range(len(body)):
        for bit in (1, 128):
            flipped = bytearray(body)
            flipped[at] ^= bit
            with pytest.raises((Corrupt, Unsupported)):
                decode_head(bytes(flipped))


def test_every_flipped_byte_of_a_file_without_a_checksum_gives_files_or_an_error_of_ours() -> None:
    body = json.dumps(EXAMPLE).encode()
    refused = 0
    for at in range(len(body)):
        for bit in range(8):
            flipped = bytearray(body)
            flipped[at] ^= 1 << bit
            try:
                head = decode_head(bytes(flipped))
            except PenstockError:
                refused += 1
            else:
                assert all(path == inline.file.path for path, inline in head.chunks.items())
                assert encode_head(head)
    assert refused > len(body)


@pytest.mark.parametrize("version", [2, 3])
def test_every_truncation_is_refused(version: int) -> None:
    body = stamped(version)
    for end in range(len(body)):
        with pytest.raises((Corrupt, Unsupported)):
            decode_head(body[:end])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"version":"2"}',
        b'{"version":true}',
        b'{"version":2,"chunks":[]}',
        b'{"version":2,"chunks":{"a":null}}',
        b'{"version":2,"chunks":{"a":{"path":"b","min_timestamp":0,"max_timestamp":0,"row_count":0,"size_bytes":0}}}',
        b'{"version":2,"segments":[]}',
        b'{"version":2,"penstock":{"seq":"x"}}',
        b'{"version":3}',
        b"[" * 200_000,
        b'{"version":2,"chunks":' + b"[" * 200_000,
        b'{"version":2,"chunks":{"\xff":1}}',
    ],
)
def test_a_hostile_body_is_refused_with_an_error_of_ours(body: bytes) -> None:
    with pytest.raises((Corrupt, Unsupported)):
        decode_head(body)


def test_a_body_of_200_megabytes_is_refused_before_it_is_parsed() -> None:
    body = b'{"version":2,"chunks":{' + b" " * (200 * 1024 * 1024) + b"}}"
    with pytest.raises(Corrupt, match="too large"):
        decode_head(body)


@pytest.mark.parametrize("name", ["chunks", "t/a.parquet", "row_count"])
def test_a_name_that_another_program_wrote_twice_is_refused_and_its_files_are_not_lost(name: str) -> None:
    member = b'"%b"' % name.encode()
    body = json.dumps(EXAMPLE).encode()
    decode_head(body)
    at = body.index(member + b":")
    body = body[:at] + member + b": null, " + body[at:]
    with pytest.raises(Corrupt, match=f"'{name}' is there twice"):
        decode_head(body)


def test_a_path_that_is_twice_in_the_legacy_pair_is_refused() -> None:
    entry = json.dumps(EXAMPLE["chunks"]["t/a.parquet"]).encode()
    decode_pair(b'{"t/a.parquet":%b}' % entry, None, 3)
    with pytest.raises(Corrupt, match="twice"):
        decode_pair(b'{"t/a.parquet":%b,"t/a.parquet":%b}' % (entry, entry), None, 3)


def test_an_unknown_version_is_refused_and_left_alone() -> None:
    async def session() -> None:
        store = MemoryStore()
        await store.put("lake/metadata/catalog.json", b'{"version":4,"new":"things"}')
        catalog = await small_catalog(store)
        for call in (catalog.plan(), catalog.register([data_file(0)])):
            with pytest.raises(Unsupported, match="version 4"):
                await call
        assert (await store.get("lake/metadata/catalog.json")).data == b'{"version":4,"new":"things"}'

    run(session())


def with_strange_members() -> dict[str, Any]:
    strange = json.loads(json.dumps(EXAMPLE))
    strange["comment"] = {"by": ["another", "program"]}
    entry = strange["chunks"]["t/a.parquet"]
    entry["etag"] = "abc"
    entry["column_stats"]["status_code"]["distinct"] = 17
    entry["column_stats"]["huge"] = {"min": 0, "max": 2**70, "has_nulls": True}
    return strange


@pytest.mark.parametrize("version", [2, 3])
def test_members_that_are_not_known_are_kept_when_the_catalog_is_written_again(version: int) -> None:
    async def session() -> None:
        store = MemoryStore()
        await store.put("metadata/catalog.json", json.dumps(with_strange_members()).encode())
        catalog = await Catalog.open(store, "", CatalogConfig(format=version))
        await catalog.register([data_file(0)])
        written = json.loads((await store.get("metadata/catalog.json")).data)
        assert written["version"] == version
        assert written["comment"] == {"by": ["another", "program"]}
        assert written["chunks"]["t/a.parquet"] == with_strange_members()["chunks"]["t/a.parquet"]

    run(session())


def test_members_that_are_not_known_survive_a_segment_and_the_way_back() -> None:
    async def session() -> None:
        from penstock.catalog.migration import downgrade

        store = MemoryStore()
        await store.put("metadata/catalog.json", json.dumps(with_strange_members()).encode())
        catalog = await Catalog.open(store, "")
        await catalog.register([data_file(0)])
        await catalog.spill()
        assert (await catalog.shard("").fresh()).chunks == {}
        await downgrade(catalog)
        written = json.loads((await store.get("metadata/catalog.json")).data)
        assert written["version"] == 2
        assert written["chunks"]["t/a.parquet"] == with_strange_members()["chunks"]["t/a.parquet"]
        assert written["comment"] == {"by": ["another", "program"]}

    run(session())


@pytest.mark.parametrize("version", [2, 3])
def test_members_of_a_later_release_stay_where_they_were_in_every_object_of_a_head(version: int) -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store, format=version)
        files = [data_file(number) for number in range(4)]
        await catalog.register(files)
        await catalog.lease([files[3].path], "c")
        await catalog.pin(1, seconds=1000, name="p")
        await catalog.delete([files[0].path])
        if version == 3:
            await catalog.spill()
            await catalog.expire(DAY)
            await catalog.register([data_file(9)])
            await catalog.spill()
            await catalog.register([data_file(10)])
            await catalog.lease([data_file(10).path], "c")
        key = "lake/metadata/catalog.json"
        body = json.loads((await store.get(key)).data)
        del body["crc32c"]
        body["theirs"] = 1
        own = body["penstock"] if version == 2 else body
        own["ours"] = [1, {"deep": None}]
        places = [*own["leases"].values(), *own["pins"].values(), *own["tombstones"]]
        places += [*own["segments"], *own["dropped"], *(one["entry"] for one in own["dropped"])]
        assert len(places) >= (3 if version == 2 else 6)
        for number, place in enumerate(places):
            place["later"] = {"n": number}
        await store.put(key, sealed(json.dumps(body).encode()[:-1]))
        again = await small_catalog(store, format=version)
        await again.register([data_file(20)])
        after = json.loads((await store.get(key)).data)
        assert after["theirs"] == 1
        theirs = after["penstock"] if version == 2 else after
        assert theirs["ours"] == [1, {"deep": None}]
        kept = [*theirs["leases"].values(), *theirs["pins"].values(), *theirs["tombstones"]]
        kept += [*theirs["segments"], *theirs["dropped"], *(one["entry"] for one in theirs["dropped"])]
        assert [place["later"]["n"] for place in kept] == list(range(len(places)))

    run(session())


def test_a_version_2_file_opens_as_it_is_and_format_2_keeps_its_form() -> None:
    async def session() -> None:
        store = MemoryStore()
        body = json.dumps(EXAMPLE, indent=2).encode()
        await store.put("metadata/catalog.json", body)
        catalog = await Catalog.open(store, "", CatalogConfig(format=2, inline_files_max=3))
        assert (await catalog.plan()).paths == ["t/a.parquet"]
        assert (await store.get("metadata/catalog.json")).data == body
        for number in range(20):
            await catalog.register([data_file(number)])
        written = json.loads((await store.get("metadata/catalog.json")).data)
        assert set(written) == {"version", "chunks", "time_index", "penstock", "crc32c"}
        assert len(written["chunks"]) == 21
        assert written["chunks"]["t/a.parquet"] == EXAMPLE["chunks"]["t/a.parquet"]
        assert written["time_index"]["1738843200000000000"] == ["t/a.parquet"]
        assert [int(hour) for hour in written["time_index"]] == sorted(int(hour) for hour in written["time_index"])
        with pytest.raises(Unsupported):
            await catalog.spill()

    run(session())


def test_a_process_for_version_2_reads_version_3_and_refuses_to_write_it() -> None:
    async def session() -> None:
        store = MemoryStore()
        newer = await small_catalog(store)
        await newer.register([data_file(0)])
        older = await small_catalog(store, format=2)
        assert len(await older.plan()) == 1
        with pytest.raises(Unsupported, match="configured for 2"):
            await older.register([data_file(1)])

    run(session())


def test_a_head_that_would_grow_beyond_its_bound_is_refused_to_the_caller_whose_change_it_is() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), head_bytes_max=20_000, inline_files_max=10_000)
        await catalog.register([data_file(number) for number in range(30)])
        with pytest.raises(InvalidInput, match="grows too large"):
            await catalog.register([data_file(number) for number in range(30, 100)])
        await catalog.register([data_file(200)])

    run(session())


def test_no_two_bodies_of_a_catalog_are_the_same() -> None:
    form = HeadFormat(3)
    head = CatalogHead(version=3, uuid="u")
    bodies = {form.encode(form.stamp(head, Token(f"w{writer}", number))) for writer in range(5) for number in range(5)}
    assert len(bodies) == 25


def test_the_proof_of_a_commit_is_kept_for_128_writers() -> None:
    form = HeadFormat(3)
    head = form.stamp(CatalogHead(version=3), Token("first", 7))
    assert [form.landed(head, Token("first", number)) for number in (6, 7, 8)] == [None, True, False]
    assert form.landed(head, Token("other", 1)) is False
    for number in range(128):
        head = form.stamp(head, Token(f"w{number}", 1))
    assert form.landed(head, Token("first", 7)) is None
    assert len(msgspec.json.decode(form.encode(head))["commits"]) == 128
