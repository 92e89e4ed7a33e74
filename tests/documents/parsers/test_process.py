"""The parent trusts nothing that a parser answers."""

import pytest

from penstock.documents.parsers import Format, ParserLimits
from penstock.documents.parsers.processes.messages import ParserSetup, Request
from penstock.documents.parsers.processes.process import ParserProcess
from penstock.errors import AtCapacity, InvalidInput, Unsupported

pytestmark = pytest.mark.processes

LIMITS = ParserLimits(wall_seconds=60.0, text_bytes=1 << 20)
HASTY = ParserLimits(wall_seconds=1.5, text_bytes=1 << 20)
REQUEST = Request(Format.HTML, b"a document")
LIAR = """
import os, signal, msgspec
from penstock.documents.parsers.isolation.confinement import own_pipes
from penstock.documents.parsers.processes.exchange import receive, send
from penstock.documents.parsers.formats import Format, ParsedDocument
from penstock.documents.parsers.processes.messages import Answer, Hello
inbound, outbound = own_pipes()
pack = msgspec.msgpack.encode
send(outbound, pack(Hello(())))
{}
signal.pause()
"""


def asked(code: str, request: Request = REQUEST, limits: ParserLimits = LIMITS):
    process = ParserProcess(ParserSetup(limits), LIAR.format(code))
    try:
        return process.parse(request), process.usable
    finally:
        process.stop()


@pytest.mark.parametrize(
    "code",
    ["receive(inbound); os.write(outbound, b'x')", "receive(inbound); os.write(outbound, bytes(8)[:7] + b'9x')", ""],
    ids=["one byte", "a length and one byte", "nothing"],
)
def test_a_parser_that_goes_silent_is_ended_at_the_deadline(code):
    with pytest.raises(AtCapacity, match="too long"):
        asked(code, limits=HASTY)


def test_a_parser_that_never_reads_its_document_is_ended_at_the_deadline():
    with pytest.raises(AtCapacity, match="too long"):
        asked("", Request(Format.HTML, bytes(8 << 20)), HASTY)


def test_a_parser_that_drips_is_ended_at_the_deadline_of_the_whole_exchange():
    code = """
import select
os.write(outbound, (1000).to_bytes(8, 'big'))
while True:
    select.select([], [], [], 0.05)
    os.write(outbound, b'x')
"""
    with pytest.raises(AtCapacity, match="too long"):
        asked(code, limits=HASTY)


def test_an_answer_of_600_mb_is_refused_by_its_length_and_never_kept():
    with pytest.raises(AtCapacity, match="629145600"):
        asked("os.write(outbound, (600 << 20).to_bytes(8, 'big') + bytes(100))")


def test_a_text_over_the_limit_is_refused():
    with pytest.raises(AtCapacity, match="too large"):
        asked("send(outbound, pack(Answer(ParsedDocument(bytes((1 << 20) + 1), Format.HTML))))")


@pytest.mark.parametrize(
    "name", ["Fenced", "Conflict", "Unavailable", "NoSuchError", "PenstockError", "Any", "annotations", "__doc__", ""]
)
def test_errors_that_parsers_do_not_raise_are_an_outcome_of_the_document(name):
    with pytest.raises(InvalidInput, match="crashed its parser") as raised:
        asked(f"send(outbound, pack(Answer(None, {name!r}, ('a', 'b', 'c'))))")
    assert type(raised.value) is InvalidInput


@pytest.mark.parametrize(
    "message",
    [
        "b''",
        "b'nonsense'",
        "bytes([0x91] * 100_000)",
        "pack([None, 'InvalidInput', ['one part']])",
        "pack([None, 7])",
        "pack([[b'text', 'no such format']])",
        "bytes([0x94, 0xC0, 0xA2, 0xFF, 0xFF])",
    ],
)
def test_an_answer_that_is_none_is_an_outcome_of_the_document(message):
    with pytest.raises(InvalidInput, match="crashed its parser"):
        asked(f"send(outbound, {message})")


def test_errors_of_parsers_pass_without_control_characters_and_at_a_bounded_length():
    with pytest.raises(Unsupported) as raised:
        asked("send(outbound, pack(Answer(None, 'Unsupported', ('what\\x1b[2J', 'w' * 5000, ''))))")
    assert raised.value.what == "what [2J"
    assert len(raised.value.why) == 1000


def test_warnings_and_titles_are_bounded():
    document, _ = asked(
        "send(outbound, pack(Answer(ParsedDocument(b'', Format.HTML, 't' * 9999, ('w' * 9999,) * 150))))",
    )
    assert len(document.title) == 1000
    assert len(document.warnings) == 100
    assert {len(warning) for warning in document.warnings} == {1000}


def test_a_parser_that_says_more_than_it_was_asked_is_not_used_again():
    good = "send(outbound, pack(Answer(ParsedDocument(b'x', Format.HTML))))"
    assert asked(good)[1]
    twice = """
document = pack(Answer(ParsedDocument(b'x', Format.HTML)))
frame = len(document).to_bytes(8, 'big') + document
os.write(outbound, frame + frame)
"""
    assert not asked(twice)[1]


def test_a_parser_that_only_closes_its_pipe_is_ended_at_once():
    with pytest.raises(AtCapacity, match="ended with -9"):
        asked("os.close(outbound)")


def test_a_process_that_has_used_a_documents_time_is_given_no_other():
    code = "send(outbound, pack(Answer(ParsedDocument(b'x', Format.HTML), cpu_seconds=61.0)))"
    assert not asked(code)[1]


def parsed_by_one(count: int, limits: ParserLimits = LIMITS) -> int:
    """How many of so many documents the first process takes."""
    answer = "send(outbound, pack(Answer(ParsedDocument(b'x', Format.HTML))))"
    many = f"for _ in range({count}): receive(inbound), {answer}"
    process = ParserProcess(ParserSetup(limits), LIAR.format(many))
    try:
        for number in range(1, count + 1):
            process.parse(REQUEST)
            if not process.usable:
                return number
        return count
    finally:
        process.stop()


def test_a_process_that_stays_lean_parses_two_thousand_documents_and_no_more():
    assert parsed_by_one(2_100) == 2_000


def test_a_process_that_holds_a_quarter_of_a_documents_memory_is_given_no_other():
    """The least that Python itself takes is more than a quarter of this."""
    assert parsed_by_one(250, ParserLimits(wall_seconds=60.0, memory_bytes=8 << 20)) == 200


def test_a_process_whose_memory_cannot_be_told_is_given_200_documents(monkeypatch):
    monkeypatch.setattr("penstock.documents.parsers.processes.process.resident_bytes", lambda _: None)
    assert parsed_by_one(250) == 200


def test_a_process_whose_first_words_are_nonsense_is_confined_by_nothing_that_is_known():
    program = LIAR.replace("send(outbound, pack(Hello(())))", "send(outbound, b'nonsense')")
    process = ParserProcess(
        ParserSetup(LIMITS), program.format("send(outbound, pack(Answer(ParsedDocument(b'x', Format.HTML))))")
    )
    try:
        assert process.parse(REQUEST).text == b"x"
        assert process.layers == ()
    finally:
        process.stop()
        process.stop()
