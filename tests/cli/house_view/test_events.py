"""The board of events: what jobs write, who sees it, and what the terminal shows."""

import json

from penstock.cli.serving.house_view import EventBoard
from penstock.gateway import Viewer
from penstock.observability import names
from penstock.testing import ManualClock

ADMIN = Viewer("ops", is_admin=True)


def line(event, level="info", **fields):
    return json.dumps({"event": event, "level": level, "timestamp": "t", **fields})


def test_events_of_jobs_and_of_the_gateway_are_one_list_with_the_newest_first():
    board = EventBoard(ManualClock())
    board.line("index", line("indexing.done", object="a.txt"))
    board.heard(names.GATEWAY_AUDIT, {"route": "/"})
    found = board.shown(ADMIN)
    assert [(one.number, one.source, one.name, one.text) for one in found] == [
        (2, "serve", "gateway.audit", "route=/"),
        (1, "index", "indexing.done", "object=a.txt"),
    ]
    assert [one.number for one in board.shown(ADMIN, after=1)] == [2]


def test_a_tenant_sees_the_events_that_name_it_and_no_others():
    board = EventBoard(ManualClock())
    board.line("index", line("indexing.done", tenantId="acme"))
    board.line("index", line("indexing.done", tenantId="other"))
    board.heard(names.GATEWAY_AUDIT, {"tenant": "acme"})
    board.heard(names.SERVE_JOB_ENDED, {"job": "index"})
    assert [one.number for one in board.shown(Viewer("acme"))] == [3, 1]


def test_the_terminal_shows_what_is_severe_enough_and_every_line_that_is_no_event():
    board = EventBoard(ManualClock(), show_from="warning")
    assert board.line("index", line("indexing.done")) is None
    assert (
        board.line("index", line("indexing.set_aside", "warning", object="b")) == "warning: indexing.set_aside object=b"
    )
    for text in ("Traceback (most recent call last):", "{not json", '{"a": 1}', '["event"]', "{" * 100_000):
        assert board.line("index", text) == text
    assert len(board.shown(ADMIN)) == 2


def test_the_last_trouble_of_a_stage_is_told_with_its_age_and_forgotten_after_an_hour():
    clock = ManualClock()
    board = EventBoard(clock)
    board.line("index", line("indexing.set_aside", "warning", object="broken.pdf", docId="ad20"))
    board.line("index", line("indexing.done"))
    clock.advance(90)
    told = board.last_bad(("indexing.",), "index")
    assert told == "2 min ago: A version of a document could not be made searchable. object=broken.pdf"
    assert board.last_bad(("indexing.",), "telemetry") == ""
    assert board.last_bad(("quiver.",)) == ""
    clock.advance(3600)
    assert board.last_bad(("indexing.",), "index") == ""


def test_a_flood_of_long_events_keeps_the_last_thousand_and_cuts_each():
    board = EventBoard(ManualClock())
    for number in range(1_500):
        board.line("index", line("indexing.done", object="x" * 5_000, number=number))
    found = board.shown(ADMIN)
    assert len(found) == 1_000
    assert found[0].number == 1_500
    assert max(len(one.text) for one in found) <= 500
