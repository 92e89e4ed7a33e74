"""Bytes that cannot be decoded are met by the same three errors everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from penstock.buffer.ownership import _MarkerFormat
from penstock.buffer.routing_register import _RoutingCodec
from penstock.documents.parsers.plain.json_text import parse_json_lines
from penstock.errors import Corrupt, InvalidInput, PenstockError
from penstock.gateway.query.sql_frames import read_header
from penstock.relay.sinks.payloads import _words
from penstock.timeseries.format.metadata_block import MetadataBlock
from penstock.undecodable import UNDECODABLE

SOURCE = Path(__file__).parents[1] / "src" / "penstock"
# Its words are in no document from outside: it names the settings that TOML has decoded already.
KNOWN = {"cli/settings/configuration.py"}
NO_UTF8 = b'{"format": 1, "version": 1, "path": "\xff\xfe"}'
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("data", [b"{", b'"\xff"', DEEP], ids=["half", "no UTF-8", "deep"])
def test_the_decoder_raises_nothing_else(data: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        msgspec.json.decode(data)


def test_nobody_catches_the_decoders_own_errors_alone() -> None:
    alone = re.compile(r"except [^:]*msgspec\.")
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if alone.search(path.read_text())}
    assert found == KNOWN, "catch penstock.undecodable.UNDECODABLE"


@pytest.mark.parametrize("data", [NO_UTF8, DEEP], ids=["no UTF-8", "deep"])
@pytest.mark.parametrize(
    ("decode", "error"),
    [
        (_MarkerFormat().decode, Corrupt),
        (_RoutingCodec().decode, Corrupt),
        (lambda data: MetadataBlock.decode(memoryview(b"[" + data + b"]")), Corrupt),
        (lambda data: read_header(b"\xd9\x02\xff\xfe", str), Corrupt),
        (lambda data: _words(data, dict), InvalidInput),
        (parse_json_lines, InvalidInput),
    ],
    ids=["marker of a queue", "routing", "metadata", "frame of SQL", "record of a queue", "lines of JSON"],
)
def test_damage_is_told_in_the_houses_words(
    decode: Callable[[bytes], object], error: type[PenstockError], data: bytes
) -> None:
    if decode is parse_json_lines and data is NO_UTF8:
        # Text is decoded before its lines are: what is no UTF-8 is Latin-1 there.
        assert parse_json_lines(data).text
    else:
        with pytest.raises(error):
            decode(data)
