"""Packed requests unpack within their bound, or not at all."""

from __future__ import annotations

import gzip
import zlib

import cramjam
import pytest
import zstandard

from penstock.errors import InvalidInput, Unsupported
from penstock.telemetry import DecodeLimits, unpack

BODY = b"telemetry" * 1000
PACKED = {
    "identity": BODY,
    "": BODY,
    "gzip": gzip.compress(BODY),
    "deflate": zlib.compress(BODY),
    "zstd": zstandard.compress(BODY),
    "snappy": bytes(cramjam.snappy.compress_raw(BODY)),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_each_encoding_unpacks(encoding: str) -> None:
    assert unpack(PACKED[encoding], encoding.upper(), DecodeLimits()) == BODY


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "snappy"])
def test_a_bomb_is_refused_before_it_is_unpacked(encoding: str) -> None:
    with pytest.raises(InvalidInput, match="unpacked request"):
        unpack(PACKED[encoding], encoding, DecodeLimits(unpacked_bytes_max=len(BODY) - 1))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "snappy"])
def test_what_is_cut_off_or_followed_by_more_is_refused(encoding: str) -> None:
    for body in (PACKED[encoding][:-3], PACKED[encoding] + b"more", b"", b"\0\0"):
        with pytest.raises(InvalidInput):
            unpack(body, encoding, DecodeLimits())


def test_an_encoding_that_is_not_known_is_not_supported() -> None:
    with pytest.raises(Unsupported, match="brotli"):
        unpack(BODY, "brotli", DecodeLimits())
