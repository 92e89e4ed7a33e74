"""What is said of a document beside its content is on every chunk of it, and a change of that alone embeds nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.documents.embedding import StaticProvider
from penstock.indexing.job.writer import IndexWriter
from penstock.testing.shelf import IndexShelf, prose


def own(shelf: IndexShelf, key: str = "a.txt") -> list[dict[str, Any]]:
    """What is said of each chunk of a document, by name."""
    return [
        {name.removeprefix("meta."): value for name, value in row.items() if name.startswith("meta.")}
        for row in shelf.attributes()
        if row["key"] == key
    ]


def said(shelf: IndexShelf, key: str = "a.txt") -> list[Any]:
    return [
        json.loads(row["metadata"]) if "metadata" in row else None for row in shelf.attributes() if row["key"] == key
    ]


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each request to the model had."""
    counts: list[int] = []
    embed = StaticProvider.embed_now

    def counted(self: StaticProvider, texts: Any) -> Any:
        counts.append(len(texts))
        return embed(self, texts)

    monkeypatch.setattr(StaticProvider, "embed_now", counted)
    return counts


TEXT = prose("rivers and mills", 12)


@pytest.mark.cases(quick=2)
@pytest.mark.parametrize("order", ["before", "after", "together"])
def test_a_side_car_is_on_every_chunk_whenever_it_comes(shelf: IndexShelf, order: str) -> None:
    document, sidecar = shelf.write("a.txt", TEXT), shelf.write("a.txt.meta.json", '{"team": "sales", "year": 2024}')
    if order == "together":
        shelf.run(document, sidecar)
    else:
        shelf.run(*((sidecar,) if order == "before" else (document,)))
        shelf.run(*((document,) if order == "before" else (sidecar,)))
    rows = own(shelf)
    assert len(rows) > 2
    assert rows == [{"team": "sales", "year": 2024}] * len(rows)
    assert said(shelf) == [{"team": "sales", "year": 2024}] * len(rows)
    assert shelf.entries()["a.txt.meta.json"].report.status == "metadata"  # type: ignore[union-attr]


def test_a_change_of_a_side_car_alone_embeds_nothing_and_writes_no_chunk(
    shelf: IndexShelf, embedded: list[int]
) -> None:
    shelf.run(shelf.write("a.txt", TEXT), shelf.write("a.txt.meta.json", '{"team": "sales", "old": 1}'))
    before, chunks = sum(embedded), shelf.chunks()
    assert before == len(chunks)
    shelf.run(shelf.write("a.txt.meta.json", '{"team": "legal", "new": true}'))
    assert sum(embedded) == before
    assert shelf.chunks() == chunks
    assert own(shelf) == [{"team": "legal", "new": True}] * len(chunks)


def test_metadata_of_a_side_car_goes_with_it_and_that_of_the_notification_comes_back(shelf: IndexShelf) -> None:
    shelf.write("a.txt", "Otters swim in the river.")
    shelf.run(shelf.upload("a.txt", metadata={"team": "told", "kept": 1, "dropped": "x"}))
    assert own(shelf) == [{"team": "told", "kept": 1, "dropped": "x"}]
    shelf.run(shelf.write("a.txt.meta.json", '{"team": "sales", "dropped": null}'))
    assert own(shelf) == [{"team": "sales", "kept": 1}]
    shelf.run(shelf.delete("a.txt.meta.json"))
    assert own(shelf) == [{"team": "told", "kept": 1, "dropped": "x"}]
    assert shelf.entries()["a.txt.meta.json"].state.tombstone


def test_a_notification_of_the_same_version_changes_what_it_says_and_embeds_nothing(
    shelf: IndexShelf, embedded: list[int]
) -> None:
    shelf.write("a.txt", "Otters swim in the river.")
    shelf.run(shelf.upload("a.txt", metadata={"team": "sales", "gone": 1}))
    shelf.run(shelf.upload("a.txt", metadata={"team": "legal"}))
    assert own(shelf) == [{"team": "legal"}]
    # Whoever says nothing takes nothing back.
    shelf.run(shelf.upload("a.txt"))
    assert own(shelf) == [{"team": "legal"}]
    assert sum(embedded) == 1


def test_a_new_version_has_what_is_said_of_it_and_the_side_car_stays(shelf: IndexShelf) -> None:
    shelf.write("a.txt", "Otters swim in the river.")
    shelf.run(shelf.upload("a.txt", metadata={"draft": True}), shelf.write("a.txt.meta.json", '{"team": "sales"}'))
    shelf.run(shelf.write("a.txt", "Herons stand in the reeds."))
    assert own(shelf) == [{"team": "sales"}]


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{broken", "not JSON"),
        ("[1, 2]", "it holds a list"),
        ('{"a": "' + "x" * 70_000 + '"}', "65,536"),
        ("[" * 60_000, "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
    ],
)
def test_a_damaged_side_car_is_set_aside_and_what_was_said_before_holds(
    shelf: IndexShelf, content: str | bytes, reason: str
) -> None:
    shelf.run(shelf.write("a.txt", "Otters swim."), shelf.write("a.txt.meta.json", '{"team": "sales"}'))
    summary = shelf.run(shelf.write("a.txt.meta.json", content))
    ((key, status, why),) = summary.set_aside
    assert (key, status) == ("a.txt.meta.json", "quarantined")
    assert reason in why
    assert own(shelf) == [{"team": "sales"}]
    shelf.run(shelf.write("a.txt", "Herons stand."))
    assert own(shelf) == [{"team": "sales"}]


def test_a_side_car_without_its_document_waits_for_it_and_outlives_it(shelf: IndexShelf) -> None:
    shelf.run(shelf.write("a.txt.meta.json", '{"team": "sales"}'), shelf.write("b.txt", "Herons stand."))
    assert shelf.attributes()[0]["key"] == "b.txt"
    shelf.run(shelf.write("a.txt", "Otters swim."))
    assert own(shelf) == [{"team": "sales"}]
    shelf.run(shelf.delete("a.txt"))
    assert own(shelf) == []
    shelf.run(shelf.write("a.txt", "Otters swim again."))
    assert own(shelf) == [{"team": "sales"}]
    assert own(shelf, "b.txt") == [{}]


def test_hostile_metadata_is_bounded_and_the_document_is_indexed(shelf: IndexShelf) -> None:
    shelf.write("a.txt", "Otters swim in the river.")
    hostile = {
        "": "no name",
        "bucket": "elsewhere",
        "meta.bucket": "nested prefix",
        "key": "reserved",
        "long": "x" * 5_000,
        "x" * 200: 1,
        "deep": {"a": {"b": [1, {"c": None}]}},
        "abyss": json.loads("[" * 20 + "]" * 20),
        "bell\x07": 1,
        "größe 'ü' 🦦": "unicode",
        "whole": 2**63,
        "null": None,
        "list": ["a", "b"],
    }
    summary = shelf.run(shelf.upload("a.txt", metadata=hostile))
    assert summary.documents == 1
    ((rows,),) = [own(shelf)]
    assert rows == {
        "bucket": "elsewhere",
        "meta.bucket": "nested prefix",
        "key": "reserved",
        "größe 'ü' 🦦": "unicode",
    }
    assert shelf.attributes()[0]["key"] == "a.txt"
    ((shown,),) = [said(shelf)]
    assert shown["deep"] == {"a": {"b": [1, {"c": None}]}}
    assert shown["list"] == ["a", "b"]
    assert "null" not in shown
    warnings = " ".join(shelf.entries()["a.txt"].report.warnings)  # type: ignore[union-attr]
    for named in ("'long'", "'abyss'", "'bell '", "a name is not empty", "64 bits", "at most 100 characters"):
        assert named in warnings


def test_thousands_of_names_are_a_warning_and_one_collection_has_a_bounded_number(shelf: IndexShelf) -> None:
    many = {f"name {number:05}": number for number in range(3_000)}
    shelf.write("a.txt", "Otters swim.")
    shelf.run(shelf.upload("a.txt", metadata=many))
    (row,) = own(shelf)
    assert len(row) == 40
    ((shown,),) = [said(shelf)]
    assert len(shown) == 100
    shelf.write("b.txt", "Herons stand.")
    shelf.run(shelf.upload("b.txt", metadata={"name 00007": 7, "another": 1}))
    assert own(shelf, "b.txt") == [{"name 00007": 7}]
    assert said(shelf, "b.txt") == [{"name 00007": 7, "another": 1}]
    (warning,) = shelf.entries()["b.txt"].report.warnings  # type: ignore[union-attr]
    assert "'another' is shown and cannot be filtered on" in warning


def test_a_value_of_another_type_is_converted_where_nothing_is_lost(shelf: IndexShelf) -> None:
    shelf.write("a.txt", "Otters swim."), shelf.write("b.txt", "Herons stand.")
    shelf.run(shelf.upload("a.txt", metadata={"text": "7", "whole": 1, "part": 0.5, "flag": True}))
    shelf.run(shelf.upload("b.txt", metadata={"text": 8, "whole": 2.0, "part": 3, "flag": "yes"}))
    assert own(shelf, "b.txt") == [{"text": "8", "whole": 2, "part": 3.0}]
    assert said(shelf, "b.txt") == [{"flag": "yes", "part": 3, "text": 8, "whole": 2.0}]


@pytest.mark.slow
def test_a_side_car_reaches_a_document_that_is_read_in_many_rounds(shelf: IndexShelf) -> None:
    from penstock.indexing import RoundLimits

    large = prose("rivers, bridges and mills", 600)
    shelf.send(shelf.write("a.txt", large))
    written: list[int] = []
    write_round = IndexWriter.write_round

    class Stopped(Exception):
        pass

    def stopping(self: IndexWriter, *arguments: Any, **options: Any) -> None:
        write_round(self, *arguments, **options)
        written.append(1)
        if len(written) == 3:
            raise Stopped

    limits = RoundLimits(cells_max=2, bytes_max=1 << 20)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(IndexWriter, "write_round", stopping)
        shelf.run(rounds=limits)
    entry = shelf.entries()["a.txt"]
    assert entry.pending is not None
    assert entry.pending.progress.next_seq > 0
    shelf.run(shelf.write("a.txt.meta.json", '{"team": "sales"}'), rounds=limits)
    rows = own(shelf)
    assert len(rows) > 20
    assert rows == [{"team": "sales"}] * len(rows)
