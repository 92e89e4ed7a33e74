"""Bytes of every released version of the queue's formats. They lie in shared buckets, so they never change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.buffer import Routing, ShardKey, ShardLayout, read_routing
from penstock.buffer.format.batch import Compression, decode_batch, encode_batch
from penstock.buffer.format.manifest import Descriptor, DescriptorDraft, Manifest, MetadataRange
from penstock.objects import MemoryStore
from penstock.records import Signal, TelemetryEnvelope, VectorEnvelope, VectorOperation

GOLDEN = Path(__file__).parent / "golden" / "buffer"
# What release 0.3.0 of the public crate wrote: two producers' batches, then a consumer's fence.
PUBLIC = GOLDEN / "opendata-0.3.0"

RECORDS = {
    "batch-v1-empty.bin": [],
    "batch-v1-none.bin": [b"hello", b""],
    "batch-v1-zstd.bin": [b"hello", b"", b"penstock" * 4],
    "batch-v1-zstd-unsized.bin": [b"hello", b"", b"penstock" * 4],
    "batch-v1-zstd-checksum.bin": [b"hello", b"", b"penstock" * 4],
}
ONE = MetadataRange(0, 0x018EAFC180B0, bytes.fromhex("01010100"))
TWO = (
    Descriptor(41, "ingest/01J5T4R3KXBMZ7QV9N2WG8YDHP.batch"),
    Descriptor(
        42,
        "ingest/größe.batch",
        (
            MetadataRange(0, -1),
            MetadataRange(3, 1712345678901, b"\x01\x02\x01"),
            MetadataRange(7, 1712345678999, bytes(range(16))),
        ),
    ),
)


@pytest.mark.parametrize("name", RECORDS)
def test_a_released_batch_object_is_still_read(name: str) -> None:
    assert [bytes(record) for record in decode_batch((GOLDEN / name).read_bytes())] == RECORDS[name]


@pytest.mark.parametrize("name", ["batch-v1-empty.bin", "batch-v1-none.bin"])
def test_a_batch_object_is_still_written_to_the_byte(name: str) -> None:
    assert encode_batch(RECORDS[name]) == (GOLDEN / name).read_bytes()


def test_a_compressed_batch_keeps_its_footer_uncompressed() -> None:
    body = bytes(encode_batch(RECORDS["batch-v1-zstd.bin"], Compression.ZSTD))
    assert body[-7:] == (GOLDEN / "batch-v1-zstd.bin").read_bytes()[-7:] == bytes.fromhex("01030000000100")


def test_a_released_manifest_is_still_read() -> None:
    one = Manifest.decode((GOLDEN / "manifest-v1-one.bin").read_bytes())
    assert list(one) == [Descriptor(0, "a.batch", (ONE,))]
    assert (one.next_sequence, one.fence) == (1, 1)
    two = Manifest.decode((GOLDEN / "manifest-v1-two.bin").read_bytes())
    assert tuple(two) == TWO
    assert (two.next_sequence, two.fence) == (43, 2**64 - 2)


def test_a_manifest_is_still_written_to_the_byte() -> None:
    assert Manifest.empty().body == (GOLDEN / "manifest-v1-empty.bin").read_bytes()
    one = Manifest.empty().append([DescriptorDraft("a.batch", [ONE])]).with_fence(1)
    assert one.body == (GOLDEN / "manifest-v1-one.bin").read_bytes()
    assert len(one.body) == 67


@pytest.mark.parametrize("name", ["batch-none.bin", "batch-zstd.bin"])
def test_a_batch_of_the_public_implementation_is_read_and_written_alike(name: str) -> None:
    records = [b"peer-0-0", b"peer-0-1", b"peer-0-2", b""]
    body = (PUBLIC / name).read_bytes()
    assert [bytes(record) for record in decode_batch(body)] == records
    if name == "batch-none.bin":
        assert encode_batch(records) == body


def test_a_manifest_of_the_public_implementation_is_read_and_written_alike() -> None:
    body = (PUBLIC / "manifest.bin").read_bytes()
    found = Manifest.decode(body)
    assert (len(found), found.next_sequence, found.fence) == (3, 3, 1)
    assert [one.metadata[0].payload for one in found] == [b"m0"] * 3
    again = Manifest.empty().append([DescriptorDraft(one.location, one.metadata) for one in found])
    assert again.with_fence(1).body == body


def test_splices_of_a_released_manifest_are_still_written_to_the_byte() -> None:
    golden = (GOLDEN / "manifest-v1-two.bin").read_bytes()
    head = Manifest(golden).dequeue_through(42)
    rebuilt = Manifest(head.body).append([DescriptorDraft("gone")]).dequeue_through(43)
    assert rebuilt.body == bytes.fromhex("00000000" + "2c00000000000000" + "feffffffffffffff" + "0100")
    assert Manifest(golden).dequeue_through(41).body == golden[4 + 53 :][:-22] + bytes.fromhex(
        "01000000" + "2b00000000000000" + "feffffffffffffff" + "0100"
    )


@pytest.mark.parametrize(
    ("envelope", "golden"),
    [
        (TelemetryEnvelope(Signal.METRICS), "01010100"),
        (TelemetryEnvelope(Signal.LOGS), "01020100"),
        (TelemetryEnvelope(Signal.TRACES), "01030100"),
        (VectorEnvelope(VectorOperation.UPSERT), "010101"),
        (VectorEnvelope(VectorOperation.DELETE), "010201"),
    ],
)
def test_an_envelope_is_still_written_and_read_to_the_byte(
    envelope: TelemetryEnvelope | VectorEnvelope, golden: str
) -> None:
    assert envelope.encode().hex() == golden
    assert type(envelope).decode(bytes.fromhex(golden)) == envelope


def test_a_released_routing_is_still_read() -> None:
    async def read() -> Routing:
        store = MemoryStore()
        await store.put("routing", (GOLDEN / "routing-v1.bin").read_bytes())
        return await read_routing(store)

    one, two, four = ShardLayout(1), ShardLayout(2, ShardKey.TENANT_AND_TABLE), ShardLayout(4)
    assert asyncio.run(read()) == Routing(2, (one, two, four))
