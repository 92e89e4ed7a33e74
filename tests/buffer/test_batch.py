"""Batch objects: what is encoded is decoded, without copies, and nothing else is."""

from __future__ import annotations

import struct
import time

import pyarrow as pa
import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.buffer.format.batch import (
    RECORDS_MAX,
    Compression,
    RecordBlock,
    checked_records,
    decode_batch,
    encode_batch,
    takes_long,
)
from penstock.errors import AtCapacity, Corrupt, InvalidInput, Unsupported

records = st.lists(st.binary(max_size=50), max_size=30)
compressions = st.sampled_from(Compression)


def footer(compression: int, count: int, version: int = 1) -> bytes:
    return struct.pack("<BIH", compression, count, version)


@given(records, compressions)
def test_records_come_back_as_they_were(parts: list[bytes], compression: Compression) -> None:
    found = decode_batch(encode_batch(parts, compression))
    assert [bytes(record) for record in found] == parts
    assert len(found) == len(parts)
    assert found.nbytes == sum(map(len, parts))


@given(records.filter(bool), compressions, st.data())
def test_a_record_is_found_by_its_place_from_either_end(
    parts: list[bytes], compression: Compression, data: st.DataObject
) -> None:
    found = decode_batch(encode_batch(parts, compression))
    place = data.draw(st.integers(-len(parts), len(parts) - 1))
    assert found[place] == parts[place]
    assert found[place:] == parts[place:]
    with pytest.raises(IndexError):
        found[len(parts)]


@given(records, compressions, st.data())
def test_an_object_cut_anywhere_is_refused(parts: list[bytes], compression: Compression, data: st.DataObject) -> None:
    body = bytes(encode_batch(parts, compression))
    cut = data.draw(st.integers(0, len(body) - 1))
    # The one cut that nobody can tell: an empty record and one of 256 bytes begin like a whole batch of no records.
    assume(body[:cut] != bytes(encode_batch([])))
    # Without checksums a cut may end in bytes that look like a footer; it must then fail on its structure.
    with pytest.raises((Corrupt, Unsupported)):
        decode_batch(body[:cut])


@given(records.filter(bool), compressions, st.data())
def test_a_block_cut_in_front_of_a_whole_footer_is_refused(
    parts: list[bytes], compression: Compression, data: st.DataObject
) -> None:
    body = bytes(encode_batch(parts, compression))
    cut = data.draw(st.integers(0, len(body) - 8))
    with pytest.raises(Corrupt):
        decode_batch(body[:cut] + body[-7:])


@given(records, compressions, st.binary(min_size=1, max_size=9))
def test_bytes_left_over_before_the_footer_are_refused(
    parts: list[bytes], compression: Compression, extra: bytes
) -> None:
    body = bytes(encode_batch(parts, compression))
    with pytest.raises(Corrupt):
        decode_batch(body[:-7] + extra + body[-7:])


@given(records)
def test_a_zstd_frame_without_a_content_size_is_streamed(parts: list[bytes]) -> None:
    block = bytes(encode_batch(parts))[:-7]
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(block)
    assert [bytes(record) for record in decode_batch(packed + footer(1, len(parts)))] == parts


def test_no_single_flipped_bit_of_a_compressed_batch_changes_a_record_in_silence() -> None:
    """The checksum of the zstd frame sees what framing and lengths do not."""
    sound = [b"penstock" * 20, bytes(range(256)), b"", b"short"]
    body = encode_batch(sound, Compression.ZSTD)
    for bit in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = decode_batch(bytes(flipped))
        except (Corrupt, Unsupported, AtCapacity):
            continue
        assert [bytes(record) for record in found] == sound, f"bit {bit}"


def test_a_compressed_batch_is_a_plain_zstd_frame_with_its_checksum_to_any_other_decoder() -> None:
    """Of another binding of zstd, which streams: readers of the public format know the frame alone."""
    body = encode_batch([b"hello", b"penstock" * 100], Compression.ZSTD)
    frame, block = body[:-7], encode_batch([b"hello", b"penstock" * 100])[:-7]
    assert zstandard.get_frame_parameters(frame).has_checksum
    assert pa.input_stream(pa.BufferReader(frame), compression="zstd").read() == block  # type: ignore[arg-type]
    with pytest.raises(OSError, match="checksum"):
        pa.input_stream(pa.BufferReader(frame[:-1] + b"!"), compression="zstd").read()  # type: ignore[arg-type]


def test_decoding_does_not_copy_the_records() -> None:
    body = encode_batch([b"a" * 1000, b"b" * 1000])
    assert all(record.obj is body for record in decode_batch(body))


def test_a_record_that_was_decoded_cannot_be_written_to() -> None:
    with pytest.raises(TypeError):
        decode_batch(encode_batch([b"abc"]))[0][0] = 1


@pytest.mark.parametrize("version", [0, 2, 65535])
def test_another_version_is_refused_by_its_number(version: int) -> None:
    with pytest.raises(Unsupported, match=str(version)):
        decode_batch(footer(0, 0, version))


def test_another_compression_is_refused_by_its_number() -> None:
    with pytest.raises(Unsupported, match="compression 2"):
        decode_batch(footer(2, 0))


@pytest.mark.parametrize("sized", [True, False])
def test_a_bomb_is_refused_at_the_bound_and_not_unpacked_to_its_end(sized: bool) -> None:
    packed = zstandard.ZstdCompressor(write_content_size=sized).compress(bytes(50_000_000))
    with pytest.raises(AtCapacity, match="1000000"):
        decode_batch(packed + footer(1, 1), bytes_max=1_000_000)


@pytest.mark.parametrize("sized", [True, False])
def test_a_batch_of_more_records_than_the_bound_is_refused_before_it_is_unpacked(sized: bool) -> None:
    """Two kilobytes can hold 16 million empty records, and each costs time."""
    count = 16 * 1024 * 1024
    packed = zstandard.ZstdCompressor(write_content_size=sized).compress(bytes(4 * count))
    assert len(packed) < 7000
    began = time.process_time()
    with pytest.raises(AtCapacity, match=r"16777216 records .* decoded_records_max"):
        decode_batch(packed + footer(1, count))
    assert time.process_time() - began < 0.1
    few = zstandard.ZstdCompressor(write_content_size=sized).compress(bytes(4 * 5))
    assert len(decode_batch(few + footer(1, 5), records_max=5)) == 5
    with pytest.raises(AtCapacity):
        decode_batch(few + footer(1, 5), records_max=4)


@pytest.mark.parametrize("compression", Compression)
def test_a_count_that_cannot_be_is_damage_and_not_merely_too_many(compression: Compression) -> None:
    body = encode_batch([b"abc"] * 3, compression)
    with pytest.raises(Corrupt, match="footer counts"):
        decode_batch(body[:-7] + footer(compression, (1 << 32) - 1))


def test_what_takes_long_to_decode_is_told_by_its_footer_and_its_frame() -> None:
    assert takes_long(encode_batch([b""] * 5000))
    assert takes_long(encode_batch([bytes(1_000_000)], Compression.ZSTD))
    assert takes_long(zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000)) + footer(1, 1))
    assert not takes_long(encode_batch([bytes(1_000_000)])), "nothing is unpacked, and one length is read"
    assert not takes_long(encode_batch([b"x"] * 100, Compression.ZSTD))
    assert not takes_long(b"")
    assert not takes_long(footer(9, 1))


@pytest.mark.parametrize("claim", [10**6 * 128, 1 << 40, (1 << 64) - 3])
def test_a_frame_that_claims_more_than_its_length_can_hold_is_damaged_and_not_merely_large(claim: int) -> None:
    """Told apart, because what is damaged may be set aside, and what is large must wait for a higher bound."""
    frame = bytes.fromhex("28b52ffd e0") + claim.to_bytes(8, "little") + bytes.fromhex("010000")
    with pytest.raises(Corrupt, match=f"claims to hold {claim}"):
        decode_batch(frame + footer(1, 1))


@given(st.lists(records | st.just([bytes(5000), b"small"]) | st.just([bytes(9000)]), max_size=5), compressions)
def test_a_block_grown_in_steps_is_the_block_made_at_once(steps: list[list[bytes]], compression: Compression) -> None:
    block = RecordBlock()
    for step in steps:
        block.extend(step)
    flat = [record for step in steps for record in step]
    assert block.count == len(flat)
    assert len(block) == sum(len(record) + 4 for record in flat)
    assert block.seal(compression) == encode_batch(flat, compression)


def test_every_kind_of_buffer_is_framed_by_its_bytes() -> None:
    wide = memoryview(bytearray(8)).cast("I")
    strided = memoryview(b"abcdef")[::2]
    given_records = checked_records([b"x", bytearray(b"y"), memoryview(b"z"), wide, strided])
    assert given_records == (b"x", b"y", b"z", bytes(8), b"ace")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"abc", "got one bytes"),
        ("abc", "got one str"),
        ([], "empty"),
        ([b"a", "b"], "record 1 is str"),
        ([7], "int"),
        (None, "NoneType"),
        (7, "got one int"),
    ],
)
def test_what_is_no_sequence_of_records_is_refused_with_its_place(bad: object, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        checked_records(bad)  # type: ignore[arg-type]
    if bad != []:
        with pytest.raises(InvalidInput, match=why):
            encode_batch(bad)  # type: ignore[arg-type]


def test_a_call_of_more_records_than_a_consumer_takes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="split them"):
        checked_records([b""] * (RECORDS_MAX + 1))
