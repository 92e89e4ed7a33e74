"""A parser of your own: declared by data, run in the sandbox, named when it cannot be loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.documents.parsers import Format, ParserOptions, Sandbox
from penstock.errors import InvalidInput

SOURCE = """
import os
from penstock.documents.parsers import DocumentParser, Format, ParsedDocument

class Subtitles(DocumentParser):
    suffixes = (".srt",)
    content_types = ("text/x-subtitles",)
    magic = (b"SUBS",)

    def parse(self, data: bytes, name: str) -> str:
        return f"{name}: " + " ".join(line for line in data.decode().splitlines() if not line[:1].isdigit())

class Curious(DocumentParser):
    suffixes = (".spy",)

    def parse(self, data: bytes, name: str) -> ParsedDocument:
        found = []
        for attempt in (lambda: open("/etc/passwd").read(), lambda: os.environ["HOME"], lambda: os.fork()):
            try:
                found.append(str(attempt()))
            except BaseException as error:
                found.append(type(error).__name__)
        return ParsedDocument(" ".join(found).encode(), Format.PLUGIN, "spied")

class Careless(DocumentParser):
    suffixes = (".bad",)

    def parse(self, data: bytes, name: str):
        return 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "subtitle_parsers.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "subtitle_parsers", raising=False)
    return "subtitle_parsers"


@pytest.mark.processes
def test_a_parser_of_the_configuration_takes_what_it_declares(module):
    with Sandbox(options=ParserOptions(plugins=(f"{module}:Subtitles",))) as sandbox:
        for name, kind in (("film.SRT", None), ("film", "text/x-subtitles; charset=utf-8")):
            parsed = sandbox.parse(b"1\n00:01\nHello\nthere", tenant="t", name=name, content_type=kind)
            assert (parsed.format, parsed.text.decode()) == (Format.PLUGIN, f"{name}: Hello there")
        assert sandbox.format_of(b"SUBS and more") is Format.PLUGIN
        assert sandbox.format_of(b"text", name="a.txt") is Format.TEXT


@pytest.mark.processes
def test_it_is_confined_like_every_other(module):
    with Sandbox(options=ParserOptions(plugins=(f"{module}:Curious",))) as sandbox:
        missing = {layer.name for layer in sandbox.layers() if layer.missing}
        if missing & {"landlock", "seccomp"}:
            pytest.skip(f"this kernel has no {missing}")
        parsed = sandbox.parse(b"x", tenant="t", name="a.spy")
        assert (parsed.title, parsed.text) == ("spied", b"PermissionError KeyError PermissionError")


@pytest.mark.processes
def test_what_it_gives_wrongly_costs_the_document(module):
    with Sandbox(options=ParserOptions(plugins=(f"{module}:Careless",))) as sandbox:
        with pytest.raises(InvalidInput, match="parser Careless gave int"):
            sandbox.parse(b"x", tenant="t", name="a.bad")
        assert sandbox.parse(b"<p>next</p>", tenant="t").text == b"next"


@pytest.mark.parametrize("spec", ["nowhere:Parser", "subtitle_parsers:Missing", "subtitle_parsers", "os:path", ":", ""])
def test_a_parser_that_cannot_be_loaded_is_named_at_once(module, spec):
    with pytest.raises(InvalidInput, match="parser"):
        Sandbox(options=ParserOptions(plugins=(spec,)))


@pytest.mark.processes
def test_an_installed_package_brings_its_parser_by_an_entry_point(module, tmp_path):
    info = tmp_path / "subtitle_parsers-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: subtitle-parsers\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[penstock.parsers]\nsrt = subtitle_parsers:Subtitles\n")
    with Sandbox() as sandbox:
        assert sandbox.parse(b"Hello", tenant="t", name="a.srt").text == b"a.srt: Hello"


@pytest.mark.processes
def test_the_example_in_the_repository_reads_subtitles(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples" / "own_parser"))
    subtitles = b"1\r\n00:00:01,000 --> 00:00:02,000\r\nThe otter\r\ndives.\r\n\r\n2\r\n00:00:03 --> 00:00:04\r\nIt is back.\r\n"
    with Sandbox(options=ParserOptions(plugins=("subtitle_parser:SubtitleParser",))) as sandbox:
        assert sandbox.parse(subtitles, tenant="t", name="film.srt").text == b"The otter dives.\n\nIt is back."
