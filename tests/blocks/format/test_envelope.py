"""The envelope: whole or refused."""

from __future__ import annotations

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.blocks.meters import FORMAT

from penstock.blocks import RecordKind
from penstock.errors import Corrupt, Unsupported


@given(st.lists(st.binary(max_size=200), max_size=4), st.booleans())
def test_what_is_sealed_is_unsealed(parts: list[bytes], compress: bool) -> None:
    assert bytes(FORMAT.envelope.unseal(7, FORMAT.envelope.seal(7, *parts, compress=compress))) == b"".join(parts)


def test_arrays_lie_in_the_body_byte_for_byte() -> None:
    numbers = np.arange(10, dtype="<i8").reshape(2, 5)
    assert bytes(FORMAT.envelope.unseal(1, FORMAT.envelope.seal(1, b"\x01", numbers))) == b"\x01" + numbers.tobytes()


@given(st.binary(min_size=1, max_size=100), st.booleans(), st.data())
def test_no_changed_bit_goes_unnoticed(body: bytes, compress: bool, data: st.DataObject) -> None:
    value = bytearray(FORMAT.envelope.seal(3, body, compress=compress))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Corrupt):
        FORMAT.envelope.unseal(3, bytes(value))


@given(st.binary(max_size=100), st.data())
def test_no_missing_end_goes_unnoticed(body: bytes, data: st.DataObject) -> None:
    value = FORMAT.envelope.seal(3, body)
    with pytest.raises(Corrupt):
        FORMAT.envelope.unseal(3, value[: data.draw(st.integers(0, len(value) - 1))])


def test_a_block_of_another_kind_is_refused() -> None:
    with pytest.raises(Corrupt, match="another kind"):
        FORMAT.envelope.unseal(4, FORMAT.envelope.seal(3, b"body"))


def test_a_store_of_a_newer_format_is_refused_before_its_checksum_is_judged() -> None:
    value = bytearray(FORMAT.envelope.seal(RecordKind.STORE, b"body"))
    value[4] = FORMAT.envelope.version + 1
    with pytest.raises(Unsupported, match=f"format {FORMAT.envelope.version + 1}"):
        FORMAT.envelope.unseal(RecordKind.STORE, bytes(value))


def test_a_whole_block_of_a_newer_format_is_refused_by_its_number() -> None:
    header = bytearray(FORMAT.envelope.seal(3, b"body")[:12])
    header[4] = FORMAT.envelope.version + 1
    checksum = google_crc32c.extend(google_crc32c.value(bytes(header)), b"body")
    with pytest.raises(Unsupported, match=f"format {FORMAT.envelope.version + 1}"):
        FORMAT.envelope.unseal(3, bytes(header) + checksum.to_bytes(4, "little") + b"body")
