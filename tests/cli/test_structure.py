"""What passages tell of their documents is shown, filtered and counted by the commands, from side-car to answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from penstock.cli.main import penstock

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "search-answer.json"
OTTERS = "# Animals\n\n## Otters\n\nThe otter is an animal that lives in the rivers and eats fish.\n"
GERMAN = "Der Fischotter ist ein Tier, das in den Flüssen lebt und sich von Fischen ernährt.\n"


def command(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(penstock, [*arguments, "--store", str(store)])


def lines(store: Path, *arguments: str) -> list[dict[str, Any]]:
    answer = command(store, *arguments, "--json")
    assert answer.exit_code == 0, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two documents in two languages, one with a side-car."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "otters.md").write_text(OTTERS)
    (shelf / "otters.md.meta.json").write_text('{"team": "zoo", "tags": ["water"]}')
    (shelf / "fischotter.txt").write_text(GERMAN)
    made = command(tmp_path / "store", "index", str(shelf), "--engine", "local")
    assert made.exit_code == 0, made.output
    return tmp_path / "store"


def test_search_shows_where_a_passage_stands_and_what_is_said_of_it(store: Path) -> None:
    answer = command(store, "search", "otter", "--filter", "meta.team = 'zoo'", "--facet", "language")
    assert answer.exit_code == 0, answer.output
    for shown in ("1. otters.md", "en  score", 'tags: ["water"], team: zoo', "Animals · Otters", "language: en (1)"):
        assert shown in answer.stdout
    grouped = command(store, "search", "Otter", "--by-document")
    assert "otters.md: Animals\n1.  bytes" in grouped.stdout
    assert (
        "language: no passages" in command(store, "search", "x", "--filter", "page = 7", "--facet", "language").stdout
    )


def test_the_json_of_a_search_fits_the_published_schema(store: Path) -> None:
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    *passages, facets = lines(store, "search", "otter", "fish", "--facet", "meta.team", "--context", "1")
    validator.validate({"passages": passages, **facets})
    zoo = [{"value": "zoo", "count": 1}]
    assert facets["facets"]["meta.team"] == {"values": zoo, "other": 0, "missing": 1, "exact": True}
    documents = lines(store, "search", "otter", "fish", "--by-document")
    validator.validate({"documents": documents})
    assert documents[0]["passages"][0]["metadata"] == {"team": "zoo", "tags": ["water"]}


def test_documents_are_counted_and_forgotten_by_filter(store: Path, tmp_path: Path) -> None:
    assert lines(store, "documents", "count") == [{"documents": 2, "passages": 2}]
    (counted,) = lines(store, "documents", "count", "--by", "language", "--filter", "meta.team is null")
    assert counted == {
        "documents": 1,
        "passages": 1,
        "values": [{"value": "de", "passages": 1}],
        "other": 0,
        "missing": 0,
    }
    shown = command(store, "documents", "count", "--by", "meta.team")
    assert "2 documents, 2 passages" in shown.stdout
    assert "(none)" in shown.stdout
    tried = command(store, "documents", "forget", "--filter", "language = 'de'", "--dry-run")
    assert "fischotter.txt" in tried.stdout
    assert "1 found, nothing was queued" in tried.stdout
    assert command(store, "documents", "forget", "--filter", "language = 'de'").exit_code == 0
    run = command(store, "index", str(tmp_path / "shelf"), "--engine", "local")
    assert run.exit_code == 0, run.output
    assert lines(store, "documents", "count") == [{"documents": 1, "passages": 1}]
    for wrong in (("forget",), ("forget", "a.md", "--filter", "page = 1")):
        assert command(store, "documents", *wrong).exit_code == 2
    refused = command(store, "documents", "count", "--filter", "meta.teem = 'zoo'")
    assert refused.exit_code == 1
    assert "meta.team" in refused.output


def test_a_change_of_a_side_car_is_seen_by_the_next_listing_and_sends_no_text(store: Path, tmp_path: Path) -> None:
    sidecar = tmp_path / "shelf" / "otters.md.meta.json"
    sidecar.write_text('{"team": "museum"}')
    run = command(store, "index", str(tmp_path / "shelf"), "--engine", "local", "--json")
    assert run.exit_code == 0, run.output
    assert '"chunks": 0' in run.stdout
    (hit,) = lines(store, "search", "otter", "--filter", "meta.team = 'museum'")
    assert hit["metadata"] == {"team": "museum"}
    sidecar.unlink()
    assert command(store, "index", str(tmp_path / "shelf"), "--engine", "local").exit_code == 0
    assert {hit["key"] for hit in lines(store, "search", "otter", "--filter", "meta.team is null")} == {
        "otters.md",
        "fischotter.txt",
    }
    status = {row["key"]: row["status"] for row in lines(store, "documents", "list")}
    assert status["otters.md.meta.json"] == "deleted"
