"""The stamped body: what it proves, what it no longer can, and how damage is refused."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.ids import SYSTEM_ENTROPY, ulid
from penstock.objects import BytesCodec, Stamped, StampedFormat, Token
from penstock.objects.register.stamp import FENCE_MAX, MAGIC, STAMPS_MAX

FORMAT = StampedFormat(BytesCodec())
ONE, TWO = "01HV0000000000000000000001", "01HV0000000000000000000002"
# Payload `hi`, fence 3, seq 2, stamped by attempt 7 of ONE and then by attempt 1 of TWO: version 1, for ever.
GOLDEN = bytes.fromhex(
    "504e5247 0100 0200 0300000000000000 0200000000000000"
    "3031485630303030303030303030303030303030303030303031 0700000000000000"
    "3031485630303030303030303030303030303030303030303032 0100000000000000"
    "6869 cc2babff"
)


def stamped(value: Stamped[bytes], *tokens: Token) -> Stamped[bytes]:
    for token in tokens:
        value = FORMAT.stamp(value, token)
    return value


def others(count: int) -> list[Token]:
    return [Token(ulid(number, SYSTEM_ENTROPY), 1) for number in range(count)]


def resealed(body: bytes) -> bytes:
    """With a checksum that fits, so that only the damage under test is met."""
    return body[:-4] + struct.pack("<I", google_crc32c.value(body[:-4]))


def test_the_bytes_of_version_1_never_change() -> None:
    value = stamped(Stamped(b"hi", fence=3), Token(ONE, 7), Token(TWO, 1))
    assert FORMAT.encode(value) == GOLDEN
    assert FORMAT.decode(GOLDEN) == value


def test_the_format_page_draws_these_bytes() -> None:
    page = (Path(__file__).parents[3] / "docs" / "format" / "register.md").read_text()
    drawn = [block for block in page.split("```") if block.strip().startswith(MAGIC.hex())]
    assert [bytes.fromhex(block) for block in drawn] == [GOLDEN]


@given(st.binary(), st.integers(0, FENCE_MAX), st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_what_is_encoded_is_decoded(payload: bytes, fence: int, numbers: list[int]) -> None:
    value = stamped(Stamped(payload, fence), *(Token(ulid(number % 9), number) for number in numbers))
    assert FORMAT.decode(FORMAT.encode(value)) == value


def test_a_stamp_proves_its_own_attempt_and_denies_later_ones() -> None:
    value = stamped(FORMAT.empty(), Token(ONE, 7), Token(TWO, 9))
    assert FORMAT.landed(value, Token(ONE, 7)) is True
    assert FORMAT.landed(value, Token(ONE, 8)) is False
    assert FORMAT.landed(value, Token(TWO, 9)) is True


def test_a_writer_that_never_committed_is_denied() -> None:
    assert FORMAT.landed(stamped(FORMAT.empty(), Token(ONE, 7)), Token(TWO, 1)) is False


def test_an_attempt_older_than_the_last_of_its_writer_can_no_longer_be_told() -> None:
    assert FORMAT.landed(stamped(FORMAT.empty(), Token(ONE, 7)), Token(ONE, 6)) is None


def test_a_writer_keeps_one_stamp_however_often_it_commits() -> None:
    once = stamped(FORMAT.empty(), Token(ONE, 1))
    often = stamped(once, Token(TWO, 1), Token(ONE, 2), Token(ONE, 3))
    assert len(often.stamps) == 2 * len(once.stamps)
    assert often.seq == 4


def test_the_oldest_stamp_is_evicted_and_then_nothing_is_claimed() -> None:
    full = stamped(FORMAT.empty(), Token(ONE, 1), *others(STAMPS_MAX - 1))
    assert FORMAT.landed(full, Token(ONE, 1)) is True
    evicted = stamped(full, Token(TWO, 1))
    assert len(evicted.stamps) == len(full.stamps)
    assert FORMAT.landed(evicted, Token(ONE, 1)) is None


def test_a_writer_that_commits_again_is_not_the_next_to_be_evicted() -> None:
    full = stamped(FORMAT.empty(), Token(ONE, 1), *others(STAMPS_MAX - 1), Token(ONE, 2), Token(TWO, 1))
    assert FORMAT.landed(full, Token(ONE, 2)) is True


def test_a_name_that_straddles_two_stamps_is_not_found() -> None:
    """The end of one stamp and the beginning of the next may spell a third writer."""
    number = int.from_bytes(TWO[:8].encode(), "little")
    follower = TWO[8:] + "00000000"
    value = stamped(FORMAT.empty(), Token(ONE, number), Token("0" * 26, 1))
    table = value.stamps[:34] + follower.encode() + value.stamps[60:]
    assert TWO.encode() in table
    assert FORMAT.landed(Stamped(b"", stamps=table), Token(TWO, 1)) is False


def test_a_change_that_returns_its_payload_leaves_the_value_itself() -> None:
    value = Stamped(b"same")
    assert value.map(lambda payload: payload) is value
    assert value.map(lambda payload: payload + b"!").payload == b"same!"


@pytest.mark.parametrize("size", range(len(GOLDEN)))
def test_a_truncated_body_is_refused(size: int) -> None:
    with pytest.raises(Corrupt):
        FORMAT.decode(GOLDEN[:size])


@pytest.mark.parametrize("place", range(len(GOLDEN)))
def test_a_flipped_bit_is_refused(place: int) -> None:
    damaged = bytearray(GOLDEN)
    damaged[place] ^= 0x10
    with pytest.raises((Corrupt, Unsupported)):
        FORMAT.decode(bytes(damaged))


def test_another_version_is_refused_by_its_number() -> None:
    with pytest.raises(Unsupported, match="version 2"):
        FORMAT.decode(resealed(GOLDEN[:4] + b"\x02\x00" + GOLDEN[6:]))


def test_a_table_larger_than_its_body_is_refused() -> None:
    with pytest.raises(Corrupt, match="9 stamps"):
        FORMAT.decode(resealed(GOLDEN[:6] + b"\x09\x00" + GOLDEN[8:]))


def test_a_fence_at_its_end_is_not_raised() -> None:
    assert FORMAT.next_fence(3) == 4
    with pytest.raises(InvalidInput, match=str(FENCE_MAX)):
        FORMAT.next_fence(FENCE_MAX)


def test_a_writer_without_a_ulid_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'me'"):
        FORMAT.stamp(FORMAT.empty(), Token("me", 1))
