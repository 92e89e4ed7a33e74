"""Sniffing runs outside the sandbox: a bounded head, forward only, and into no container."""

import importlib
import io
import pkgutil
import re
import struct
import time
import zipfile
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import pytest

import penstock.documents
import penstock.objects
from penstock.documents.parsers import Format, ParserLimits, Sandbox, sniff
from penstock.errors import AtCapacity, InvalidInput, Unsupported


def seconds(data: bytes) -> float:
    began = time.process_time()
    sniff(data)
    return time.process_time() - began


@pytest.mark.parametrize(
    "data",
    [
        b"<!---->" * 1000,
        b"<!---->" * 24 + b"x",
        b"<!-- " * 1000,
        b"<?xml >" * 1000,
        b"<?xml " * 1000,
        b" " * 5000,
        b"<!-- -->\n<?xml ?>\n" * 300,
        b"<!doctype" + b" " * 5000,
    ],
)
def test_no_head_keeps_the_sniffer_busy(data):
    assert min(seconds(data) for _ in range(3)) < 0.05


@pytest.mark.parametrize(
    "page",
    [
        b"<!-- one --><!-- two -->\n\n<!DOCTYPE html><html>",
        b"\xef\xbb\xbf  <?xml version='1.0'?>\n<!-- x -->\n<html>",
        b" " * 40 + b"\n" * 40 + b"<HTML lang=en>",
        b"<!doctype  HTML>",
    ],
)
def test_a_page_is_found_behind_blanks_comments_and_declarations(page):
    assert sniff(page) is Format.HTML


@pytest.mark.parametrize("text", [b"<!-- only a comment", b"<!-- a --> and words", b"<pretty>", b"<", b"a <html>"])
def test_text_that_only_begins_like_a_page_is_text(text):
    assert sniff(text) is Format.TEXT


def archive(entries: int) -> bytes:
    """A directory of so many entries that share one empty file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out:
        out.writestr("a", b"")
    data = made.getvalue()
    start = data.index(b"PK\x01\x02")
    directory = data[start : data.index(b"PK\x05\x06")] * entries
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), start, 0)
    return data[:start] + directory + end


@pytest.mark.processes
def test_a_directory_of_a_million_entries_is_not_read_here_and_refused_there_at_once():
    data = archive(1_000_000)
    assert seconds(data) < 0.05
    assert sniff(data) is Format.ZIP
    with Sandbox(ParserLimits(cpu_seconds=5)) as sandbox, pytest.raises(AtCapacity, match="1000000 entries"):
        sandbox.parse(data, tenant="t")


@pytest.mark.processes
def test_what_an_archive_holds_is_told_by_the_sandbox():
    with Sandbox() as sandbox:
        with pytest.raises(Unsupported, match="no Word, Excel, PowerPoint, OpenDocument or EPUB"):
            sandbox.parse(archive(2), tenant="t")
        with pytest.raises(InvalidInput):
            sandbox.parse(b"PK\x03\x04 broken", tenant="t")


def patterns():
    for package in (penstock.documents, penstock.objects):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, re.Pattern):
                    yield f"{module.name}.{name}", value


def nests(parsed, inside: bool = False) -> bool:
    """Whether an unbounded repetition has another one in it."""
    for operation, argument in parsed:
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            _, most, body = argument
            unbounded = most is constants.MAXREPEAT
            if unbounded and inside:
                return True
            if nests(body, inside or unbounded):
                return True
        elif operation is constants.BRANCH:
            if any(nests(branch, inside) for branch in argument[1]):
                return True
        elif operation is constants.SUBPATTERN and nests(argument[3], inside):
            return True
    return False


def test_no_pattern_over_bytes_of_others_repeats_a_repetition():
    found = dict(patterns())
    assert len(found) > 10
    assert nests(parser.parse(r"\s*(?:<!--.*?-->\s*)*<")), "the check finds one"
    assert [name for name, pattern in found.items() if nests(parser.parse(pattern.pattern, pattern.flags))] == []
