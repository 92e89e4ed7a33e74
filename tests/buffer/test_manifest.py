"""The manifest: every rule of its format, and splices that never touch the entries that stay."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.buffer.format.manifest import FOOTER_BYTES, Descriptor, DescriptorDraft, Manifest, MetadataRange
from penstock.errors import AtCapacity, Corrupt, InvalidInput, Unsupported

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
ranges = st.builds(MetadataRange, u32, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=12))
locations = st.text(st.characters(codec="utf-8"), max_size=20)
contents = st.lists(st.tuples(locations, st.lists(ranges, max_size=3)), max_size=8)


def built(entries: list[tuple[str, list[MetadataRange]]], first: int = 0, fence: int = 0) -> Manifest:
    head = Manifest(struct.pack("<IQQH", 0, first, fence, 1))
    return head.append([DescriptorDraft(location, metadata) for location, metadata in entries])


def entry(sequence: int, location: bytes, metadata: bytes = struct.pack("<I", 0)) -> bytes:
    tail = struct.pack("<QH", sequence, len(location)) + location + metadata
    return struct.pack("<I", len(tail)) + tail


def footer(count: int, next_sequence: int = 0, fence: int = 0, version: int = 1) -> bytes:
    return struct.pack("<IQQH", count, next_sequence, fence, version)


@pytest.mark.slow
@given(contents, st.integers(0, 2**63), u64)
def test_entries_come_back_in_order_with_their_numbers_and_metadata(
    entries: list[tuple[str, list[MetadataRange]]], first: int, fence: int
) -> None:
    manifest = Manifest.decode(built(entries, first, fence).body)
    assert list(manifest) == [
        Descriptor(first + index, location, tuple(metadata)) for index, (location, metadata) in enumerate(entries)
    ]
    assert len(manifest) == len(entries)
    assert manifest.first_sequence == first
    assert manifest.next_sequence == first + len(entries)
    assert manifest.fence == fence


@given(contents.filter(bool), st.data())
def test_a_manifest_cut_anywhere_is_refused(
    entries: list[tuple[str, list[MetadataRange]]], data: st.DataObject
) -> None:
    body = built(entries).body
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises((Corrupt, Unsupported)):
        Manifest.decode(body[:cut])


@given(contents.filter(bool), st.data())
def test_entries_cut_in_front_of_a_whole_footer_are_refused(
    entries: list[tuple[str, list[MetadataRange]]], data: st.DataObject
) -> None:
    body = built(entries).body
    cut = data.draw(st.integers(0, len(body) - FOOTER_BYTES - 1))
    with pytest.raises(Corrupt):
        Manifest.decode(body[:cut] + body[-FOOTER_BYTES:])


@given(contents, st.binary(min_size=1, max_size=12))
def test_bytes_left_over_before_the_footer_are_refused(
    entries: list[tuple[str, list[MetadataRange]]], extra: bytes
) -> None:
    body = built(entries).body
    with pytest.raises(Corrupt):
        Manifest.decode(body[:-FOOTER_BYTES] + extra + body[-FOOTER_BYTES:])


@pytest.mark.parametrize("size", range(FOOTER_BYTES))
def test_fewer_bytes_than_a_footer_are_refused(size: int) -> None:
    with pytest.raises(Corrupt):
        Manifest(Manifest.empty().body[:size])


@pytest.mark.parametrize("version", [0, 2, 65535])
def test_another_version_is_refused_by_its_number(version: int) -> None:
    with pytest.raises(Unsupported, match=f"version {version}"):
        Manifest(footer(0, version=version))


@pytest.mark.parametrize(
    "damaged",
    [
        struct.pack("<I", 4) + b"abcd",  # no room for a sequence
        entry(0, b"a", b""),  # no metadata count
        entry(0, b"a", struct.pack("<I", 1)),  # a range is missing
        entry(0, b"a", struct.pack("<IIqI", 1, 0, 0, 5) + b"abcd"),  # its payload is cut
        entry(0, b"a", struct.pack("<I", 0) + b"x"),  # bytes left over inside the entry
        entry(0, b"\xff\xfe"),  # a location that is not UTF-8
        struct.pack("<IQH", 15, 0, 999) + b"abcde",  # a location longer than its entry
    ],
)
def test_an_entry_that_does_not_add_up_is_refused(damaged: bytes) -> None:
    with pytest.raises(Corrupt):
        Manifest.decode(damaged + footer(1, 1))


def test_a_location_longer_than_its_length_field_is_refused() -> None:
    DescriptorDraft("x" * 65_535)
    with pytest.raises(InvalidInput, match="65535"):
        DescriptorDraft("x" * 65_536)


@given(contents, contents, st.integers(0, 2**63), u64)
def test_append_keeps_the_entries_before_it_byte_for_byte(
    old: list[tuple[str, list[MetadataRange]]], new: list[tuple[str, list[MetadataRange]]], first: int, fence: int
) -> None:
    before = built(old, first, fence)
    after = before.append([DescriptorDraft(location, metadata) for location, metadata in new])
    kept = before.body[:-FOOTER_BYTES]
    assert after.body.startswith(kept)
    assert [found.sequence for found in after] == list(range(first, first + len(old) + len(new)))
    assert after.fence == fence
    assert Manifest.decode(after.body).body == built(old + new, first, fence).body


@given(contents, st.integers(0, 2**63), st.integers(-2, 12))
def test_dequeue_drops_everything_through_a_sequence_and_keeps_the_rest_byte_for_byte(
    entries: list[tuple[str, list[MetadataRange]]], first: int, dropped: int
) -> None:
    before = built(entries, first, 7)
    through = max(0, first + dropped - 1)
    after = before.dequeue_through(through)
    expected = [found for found in before if found.sequence > through]
    assert list(after) == expected
    assert before.body[:-FOOTER_BYTES].endswith(after.body[:-FOOTER_BYTES])
    assert (after.next_sequence, after.fence) == (before.next_sequence, 7)


def test_dequeue_of_nothing_is_the_same_object_so_that_nothing_is_written() -> None:
    manifest = built([("a", []), ("b", [])], first=5)
    assert manifest.dequeue_through(4) is manifest
    assert manifest.dequeue_through(6) is not manifest


def test_the_next_sequence_survives_an_empty_queue_so_that_numbers_never_return() -> None:
    emptied = built([("a", []), ("b", [])]).dequeue_through(1)
    assert len(emptied) == 0
    assert emptied.first_sequence == 2
    assert [found.sequence for found in emptied.append([DescriptorDraft("c")])] == [2]


@given(contents, u64)
def test_a_fence_changes_the_footer_alone(entries: list[tuple[str, list[MetadataRange]]], fence: int) -> None:
    before = built(entries)
    after = before.with_fence(fence)
    assert after.fence == fence
    assert list(after) == list(before)
    assert after.body[:-FOOTER_BYTES] == before.body[:-FOOTER_BYTES]


@given(contents, st.integers(0, 2**63), st.integers(0, 2**63 + 20), st.integers(0, 10))
def test_entries_are_found_by_their_sequence(
    entries: list[tuple[str, list[MetadataRange]]], first: int, after: int, limit: int
) -> None:
    manifest = Manifest(built(entries, first).body)
    for behind in (after, first + min(after, 5)):
        expected = [one for one in range(first, first + len(entries)) if one > behind]
        assert [found.sequence for found in manifest.after(behind, limit)] == expected[:limit]
        assert manifest.count_after(behind) == len(expected)
        here = behind - first
        assert manifest.location_of(behind) == (entries[here][0] if 0 <= here < len(entries) else None)


@pytest.mark.parametrize(
    ("sequences", "next_sequence"),
    [([3, 4, 6], 7), ([3, 4, 5], 7), ([4, 3, 5], 6), ([3, 3, 4], 5), ([3, 4, 5], 5), ([0, 1], 0), ([5], 2**63)],
)
def test_entries_that_do_not_count_up_by_one_to_the_next_sequence_are_refused_by_everybody(
    sequences: list[int], next_sequence: int
) -> None:
    """Read as they stand, batches behind such a jump are passed over, or dequeued unread."""
    body = b"".join(entry(sequence, b"x") for sequence in sequences) + footer(len(sequences), next_sequence)
    touches: list[Callable[[Manifest], object]] = [
        lambda m: m.first_sequence,
        lambda m: m.after(None, 1),
        lambda m: m.count_after(0),
        lambda m: m.location_of(3),
        lambda m: m.append([DescriptorDraft("b")]),
        lambda m: m.dequeue_through(3),
        lambda m: m.with_fence(9),
        list,
    ]
    for touch in touches:
        with pytest.raises(Corrupt, match="sequences jump"):
            touch(Manifest(body))


def test_no_single_flipped_bit_changes_which_batches_are_queued_in_silence() -> None:
    """All that a flip can do unseen is to change what only the producer knows: a location, a metadata range."""
    sound = built([("ingest/a.batch", [MetadataRange(0, 5, b"m")]), ("ingest/b.batch", []), ("ingest/c.batch", [])], 7)
    for bit in range(8 * len(sound.body)):
        body = bytearray(sound.body)
        body[bit // 8] ^= 1 << bit % 8
        try:
            found = Manifest.decode(bytes(body))
        except (Corrupt, Unsupported):
            continue
        assert [one.sequence for one in found] == [7, 8, 9]
        assert found.next_sequence == 10


def test_append_refuses_to_write_onto_damaged_entries() -> None:
    damaged = Manifest(b"12345" + footer(1, 1))
    with pytest.raises(Corrupt):
        damaged.append([DescriptorDraft("a")])


def test_a_full_queue_refuses_another_batch_and_says_how_many_wait() -> None:
    manifest = built([("a" * 50, [])] * 10)
    with pytest.raises(AtCapacity, match="10 batches are queued"):
        manifest.append([DescriptorDraft("b")], bytes_max=len(manifest.body))


def test_sequences_end_where_their_field_ends() -> None:
    with pytest.raises(AtCapacity):
        built([("a", [])], first=2**64 - 1)


def test_a_record_has_the_metadata_of_the_last_range_that_starts_at_or_before_it() -> None:
    first, second = MetadataRange(2, 10, b"one"), MetadataRange(5, 20, b"two")
    descriptor = Descriptor(0, "a", (first, second))
    assert [descriptor.metadata_of(record) for record in (0, 2, 4, 5, 99)] == [None, first, first, second, second]
