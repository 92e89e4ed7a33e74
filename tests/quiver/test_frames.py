"""Frames come back as they were written, and whatever is not a sound frame of this generation is no frame."""

from __future__ import annotations

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.quiver.log.frames import (
    BLOCK_BYTES,
    BadRegion,
    Frame,
    FrameKind,
    checksum,
    decode_frame,
    encode_frame,
    frame_bytes,
    read_header,
    scan_frames,
)

GENERATION = 0x1122334455667788


def written(payloads: list[bytes], generation: int = GENERATION, *, size: int = 0, blocks: bool = False) -> bytearray:
    """A file with one group for each payload; the first record is 1."""
    total = BLOCK_BYTES + sum(frame_bytes(len(payload)) + BLOCK_BYTES for payload in payloads)
    file = memoryview(bytearray(max(size, total)))
    encode_frame(file, 0, FrameKind.HEADER, [b"v1"], generation=generation, sequence=7, count=1, durable_before=0)
    at = BLOCK_BYTES
    for number, payload in enumerate(payloads, 1):
        at = encode_frame(
            file,
            at,
            FrameKind.BUNDLES,
            [payload[:3], payload[3:]],
            generation=generation,
            sequence=number,
            count=1,
            durable_before=number,
        )
        at += -at % BLOCK_BYTES if blocks else 0
    return bytearray(file)


def frames(data: bytes | bytearray, generation: int = GENERATION) -> list[Frame]:
    return [one for one in scan_frames(memoryview(bytes(data)), generation) if isinstance(one, Frame)]


def regions(data: bytes | bytearray) -> list[BadRegion]:
    return [one for one in scan_frames(memoryview(bytes(data)), GENERATION) if isinstance(one, BadRegion)]


@given(st.lists(st.binary(max_size=300), max_size=6), st.booleans())
def test_what_was_written_is_read(payloads: list[bytes], blocks: bool) -> None:
    data = written(payloads, blocks=blocks)
    assert [bytes(frame.payload) for frame in frames(data)] == payloads
    assert regions(data) == []
    header = read_header(memoryview(data))
    assert header is not None
    assert (header[0], header[1].sequence) == (GENERATION, 7)


def test_stale_frames_of_an_earlier_life_are_never_replayed() -> None:
    old = written([b"old" * 50] * 6, generation=1)
    new = written([b"new"], size=len(old))
    new[BLOCK_BYTES + frame_bytes(3) :] = old[BLOCK_BYTES + frame_bytes(3) :]
    assert [bytes(frame.payload) for frame in frames(new)] == [b"new"]
    assert regions(new) == []


@pytest.mark.parametrize("blocks", [False, True])
def test_a_flipped_bit_at_every_byte_of_a_record_loses_that_record_alone(blocks: bool) -> None:
    payloads = [b"first record", b"second record", b"third record"]
    sound = written(payloads, blocks=blocks)
    second = frames(sound)[1]
    for at in range(second.offset, second.end):
        data = bytearray(sound)
        data[at] ^= 0x10
        left = [bytes(frame.payload) for frame in frames(data)]
        # Behind the payload come zeros that no checksum covers.
        is_padding = at >= second.offset + 48 + len(payloads[1])
        assert left == (payloads if is_padding else [payloads[0], payloads[2]]), at


def test_a_tail_cut_at_every_byte_leaves_the_whole_records_before_it() -> None:
    data = written([b"first record", b"second record"])
    ends = [frame.end for frame in frames(data)]
    for size in range(BLOCK_BYTES, ends[-1]):
        left = frames(data[:size])
        # The zeros behind a payload may be cut without harm.
        assert len(left) == sum(end - 4 <= size for end in ends) or len(left) == sum(end <= size for end in ends)


def test_a_search_for_the_next_frame_crosses_any_distance() -> None:
    data = written([b"first", b"x" * 3_000_000, b"last"])
    data[frames(data)[1].offset] ^= 1
    assert [bytes(frame.payload) for frame in frames(data)] == [b"first", b"last"]
    (region,) = regions(data)
    assert not region.is_tail


def test_an_unreadable_tail_is_told_from_nothing() -> None:
    data = written([b"first", b"last"])
    assert regions(data) == []
    data[frames(data)[1].offset + 50] ^= 1
    (region,) = regions(data)
    assert region.is_tail


@given(st.binary(max_size=9000))
def test_rubbish_is_no_file_and_raises_nothing(rubbish: bytes) -> None:
    view = memoryview(rubbish)
    assert read_header(view) is None
    assert [one for one in scan_frames(view, GENERATION) if isinstance(one, Frame)] == []
    assert decode_frame(view, 0, GENERATION) is None


def test_an_empty_payload_and_a_length_beyond_the_file() -> None:
    data = written([b""])
    assert bytes(frames(data)[0].payload) == b""
    data[BLOCK_BYTES + 32 : BLOCK_BYTES + 36] = b"\xff\xff\xff\xff"
    assert frames(data) == []


def test_a_large_payload_is_laid_and_checked_in_pieces_as_if_it_were_whole() -> None:
    payload = bytes(range(251)) * 14_000
    assert len(payload) > 3 << 20
    (found,) = frames(written([payload]))
    assert found.payload == payload
    assert checksum(payload) == google_crc32c.value(payload)
