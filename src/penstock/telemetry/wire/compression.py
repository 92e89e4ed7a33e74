"""Packed requests, unpacked within a bound: snappy as remote write has it, gzip and zstd as HTTP has them."""

from __future__ import annotations

import zlib
from typing import Final

import zstandard

from penstock.errors import AtCapacity, InvalidInput, Unsupported
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["ENCODINGS", "decompressed", "unpack", "unpack_snappy"]

# What `Content-Encoding` may say.
ENCODINGS: Final = ("identity", "gzip", "deflate", "zstd", "snappy")
_VARINT_BYTES_MAX: Final = 5
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
# A zstd frame may ask for a window of any size before its first byte is read.
_ZSTD_WINDOW_BYTES_MAX: Final = 1 << 27
# The end of a member or frame copies what was handed over behind it.
_PIECE_BYTES: Final = 16 * 1024
# Members or frames of one body. Each takes a decompressor of its own, and could hold nothing in ten bytes.
_MEMBERS_MAX: Final = 4_096


def unpack(body: bytes, encoding: str, limits: DecodeLimits) -> bytes:
    """The body of a request without its `Content-Encoding`; `Unsupported` for one that is not known."""
    limits.check_request(len(body))
    if encoding.strip().lower() == "snappy":
        return unpack_snappy(body, limits)
    try:
        return decompressed(body, encoding, limits.unpacked_bytes_max)
    except AtCapacity as error:
        raise InvalidInput(error.what, error.why, "send less at once, or raise unpacked_bytes_max") from None


def unpack_snappy(body: bytes, limits: DecodeLimits) -> bytes:
    """The block format, which begins with the size of what it holds: that is checked before anything is unpacked."""
    import cramjam

    limits.check_unpacked(_claimed_size(body))
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise InvalidInput("the request is not compressed with snappy", str(error)) from error


def _claimed_size(body: bytes) -> int:
    size = 0
    for at, byte in enumerate(body[:_VARINT_BYTES_MAX]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return size
    raise InvalidInput("the request is not compressed with snappy", "it does not begin with a size")


def decompressed(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """A body without its HTTP `Content-Encoding`; `AtCapacity` once it is larger than `bytes_max`.

    Never more than that is unpacked, however little was sent. Several members or frames, one after the other, are one
    body; one that is cut off is refused.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name in ENCODINGS and not body:
        raise InvalidInput(f"the body is not valid {name}", "it is empty")
    if name in ("gzip", "x-gzip"):
        return _inflated(body, _GZIP_WINDOW, bytes_max, "gzip")
    if name == "deflate":
        return _inflated(body, zlib.MAX_WBITS, bytes_max, "deflate")
    if name == "zstd":
        return _unpacked_zstd(body, bytes_max)
    raise Unsupported(f"content encoding {encoding[:40]!r} cannot be read", f"there are {', '.join(ENCODINGS)}")


def _inflated(body: bytes, window: int, bytes_max: int, name: str) -> bytes:
    parts: list[bytes] = []
    size = at = 0
    members = 1
    view, reader = memoryview(body), zlib.decompressobj(window)
    try:
        while at < len(body):
            if reader.eof:
                members = _next_member(members, name)
                reader = zlib.decompressobj(window)
            piece = view[at : at + _PIECE_BYTES]
            part = reader.decompress(piece, bytes_max + 1 - size)
            size += len(part)
            if size > bytes_max:
                raise _over(bytes_max)
            at += len(piece) - len(reader.unused_data)
            parts.append(part)
    except zlib.error as error:
        raise InvalidInput(f"the body is not valid {name}", str(error)) from error
    if not reader.eof:
        raise InvalidInput(f"the body is not valid {name}", "it is cut off")
    return b"".join(parts)


def _unpacked_zstd(body: bytes, bytes_max: int) -> bytes:
    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    try:
        with reader.stream_reader(body, read_across_frames=True) as opened:
            data = opened.read(bytes_max + 1)
        # A frame that is cut off gives what it has, and says nothing: a length that it declares tells.
        if len(data) <= bytes_max and zstandard.get_frame_parameters(body).content_size != len(data):
            _check_frames(body)
    except zstandard.ZstdError as error:
        raise InvalidInput("the body is not valid zstd", str(error)) from error
    if len(data) > bytes_max:
        raise _over(bytes_max)
    return bytes(data)


def _check_frames(body: bytes) -> None:
    """Refuse a body whose last frame is not complete. What it unpacks to is known to be small enough."""
    at, frames, view = 0, 1, memoryview(body)
    frame = _frame_reader()
    while at < len(body):
        if frame.eof:
            frames = _next_member(frames, "zstd")
            frame = _frame_reader()
        piece = view[at : at + _PIECE_BYTES]
        frame.decompress(piece)
        at += len(piece) - len(frame.unused_data)
    if not frame.eof:
        raise InvalidInput("the body is not valid zstd", "it is cut off")


def _frame_reader() -> zstandard.ZstdDecompressionObj:
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX).decompressobj()


def _next_member(number: int, name: str) -> int:
    if number == _MEMBERS_MAX:
        raise InvalidInput(
            f"the {name} of the body has too many parts", f"the bound is {_MEMBERS_MAX:,}", "compress it as one stream"
        )
    return number + 1


def _over(bytes_max: int) -> AtCapacity:
    return AtCapacity("the unpacked request is too large", f"the bound is {bytes_max:,} bytes", "send less at once")
