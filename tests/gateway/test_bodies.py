"""Bodies: bounded before, while and after they are read."""

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import Callable
from random import Random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, PenstockError, Unsupported
from penstock.gateway.http.bodies import BodyTooLarge, BodyTooSlow, Disconnected, decompress, read_body

MIB = 1 << 20


def parts(*given, end=True):
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in given]
    if end and waiting:
        waiting[-1]["more_body"] = False

    async def receive():
        if waiting:
            return waiting.pop(0)
        if end:
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()
        raise AssertionError

    return receive


def read(receive, announced=None, limit=100, seconds=5.0):
    return asyncio.run(read_body(receive, announced, limit, seconds))


def test_a_body_in_parts_is_whole():
    assert read(parts(b"ab", b"", b"cd"), 4) == b"abcd"


def test_a_body_that_announces_too_much_is_refused_before_a_byte_is_read():
    async def never():
        raise AssertionError("read")

    with pytest.raises(BodyTooLarge):
        read(never, announced=101)


def test_a_body_that_grows_too_large_is_cut_off():
    with pytest.raises(BodyTooLarge):
        read(parts(b"x" * 60, b"x" * 60))


def test_a_body_that_does_not_come_is_not_waited_for_for_ever():
    with pytest.raises(BodyTooSlow):
        read(parts(b"x", end=False), seconds=0.01)


def test_a_client_that_went_away_did_not_send_less():
    with pytest.raises(Disconnected):
        read(parts())
    with pytest.raises(InvalidInput, match="incomplete"):
        read(parts(b"abc"), announced=5)


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    "identity": bytes,
}


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_every_encoding_gives_the_body_back(encoding):
    data = b"penstock " * 100
    assert decompress(COMPRESSED[encoding](data), encoding, MIB) == data
    assert decompress(COMPRESSED[encoding](b""), encoding, MIB) == b""


def test_members_one_after_the_other_are_one_body():
    assert decompress(gzip.compress(b"a") + gzip.compress(b"b"), "gzip", MIB) == b"ab"
    assert decompress(zstandard.compress(b"a") + zstandard.compress(b"b"), "zstd", MIB) == b"ab"


@pytest.mark.cases(quick=2)
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_body_has_thousands_of_members_but_not_a_million(encoding):
    """Each takes a decompressor of its own; 16 MB of them took minutes."""
    one = COMPRESSED[encoding](b"a")
    assert decompress(one * 4_096, encoding, MIB) == b"a" * 4_096
    with pytest.raises(InvalidInput, match="too many parts"):
        decompress(one * 1_000_000, encoding, 16 * MIB)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_members_may_begin_and_end_anywhere(encoding):
    random = Random(7)
    parts = [random.randbytes(random.choice([0, 1, 5_000, 16 * 1024, 40_000])) for _ in range(40)]
    packed = b"".join(COMPRESSED[encoding](part) for part in parts)
    assert decompress(packed, encoding, 4 * MIB) == b"".join(parts)
    with pytest.raises(InvalidInput):
        decompress(packed[:-1], encoding, 4 * MIB)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_bomb_goes_off_at_the_limit(encoding):
    bomb = COMPRESSED[encoding](bytes(64 * MIB))
    with pytest.raises(BodyTooLarge):
        decompress(bomb, encoding, MIB)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_body_that_ends_too_early_is_refused_at_every_length(encoding):
    data = COMPRESSED[encoding](b"some text that is long enough" * 3)
    for size in range(1, len(data)):
        with pytest.raises(InvalidInput):
            decompress(data[:size], encoding, MIB)


def test_a_stream_of_zstd_without_a_length_that_ends_too_early_is_refused():
    writer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    data = writer.compress(b"text " * 50) + writer.flush()
    assert decompress(data, "zstd", MIB) == b"text " * 50
    with pytest.raises(InvalidInput):
        decompress(data[:-4], "zstd", MIB)


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "zstd"]))
def test_any_bytes_give_our_errors_only(data, encoding):
    with contextlib.suppress(PenstockError):
        decompress(data, encoding, 1000)


def test_an_unknown_encoding_is_named():
    with pytest.raises(Unsupported, match="br"):
        decompress(b"", "br", MIB)
