"""The page of documents: one index or hundreds of them, and never more rows than a person reads."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.serving.house_view import documents_page
from penstock.cli.serving.house_view.documents_page import DocumentsView, IndexEntries
from penstock.gateway import Viewer
from penstock.indexing import Reading
from penstock.vector import CollectionName

OWNER = Viewer("acme", may_write=True)


class Indexes(DocumentsView):
    """Indexes of as many documents as are asked for, every other one of which could not be read."""

    services: Any

    async def indexes(self, tenant):
        return [
            IndexEntries(
                CollectionName(tenant, f"i-{index:03d}", "m"),
                [
                    SimpleNamespace(
                        key=f"k{number}", object_key=f"o{number}", status=("indexed", "quarantined")[number % 2]
                    )
                    for number in range(self.services.documents)
                ],
            )
            for index in range(self.services.indexes)
        ]


@pytest.fixture
def shown(monkeypatch):
    """The sections of a page with so many indexes and documents."""
    row = {"reason": "", "chunks": 1, "tokens": 1}
    monkeypatch.setattr(documents_page, "status_of", lambda entry: entry.status)
    monkeypatch.setattr(documents_page, "row_of", lambda entry: {**row, "status": entry.status})
    monkeypatch.setattr(documents_page, "warning_of", lambda _row: "")

    def sections(indexes, documents, **choice):
        counts: Any = SimpleNamespace(indexes=indexes, documents=documents)
        view = Indexes(counts, Reading())
        return asyncio.run(view.sections(OWNER, choice))

    return sections


def test_one_index_is_the_whole_page(shown):
    (section,) = shown(1, 300)
    assert len(section.table.rows) == 200
    assert section.note == "The first 200 of 300."
    assert section.links[1:] == [
        ("indexed 150", "status=indexed", False),
        ("quarantined 150", "status=quarantined", False),
    ]


def test_hundreds_of_indexes_have_few_rows_each_and_a_link_to_every_one(shown):
    links, *sections = shown(300, 250)
    assert len(sections) == 50
    assert sum(len(section.table.rows) for section in sections) <= 400
    assert links.note == "Below are 50 of 300: choose one to see its documents."
    assert [text for text, _, _ in links.links] == ["all 300", *(f"i-{number:03d}" for number in range(300))]


def test_a_chosen_index_is_shown_alone_and_stays_chosen_with_a_status(shown):
    links, section = shown(300, 250, index="i-299", status="quarantined")
    assert section.title == "Index i-299"
    assert len(section.table.rows) == 125
    assert [chosen for _, chosen, _ in section.links] == [
        "index=i-299",
        "index=i-299&status=indexed",
        "index=i-299&status=quarantined",
    ]
    assert [text for text, _, chosen in links.links if chosen] == ["i-299"]


def test_an_index_that_is_not_there_is_told(shown):
    (links,) = shown(2, 1, index="<x>")
    assert links.error == "There is no index '<x>'."
