"""An answer says where each passage stands, what is said of its document, and how many passages have which values."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.documents.answers import SearchAnswer
from penstock.errors import InvalidInput
from penstock.indexing import (
    Asked,
    FoundPassages,
    Question,
    by_document,
    count_where,
    documents_where,
    find_answer,
    parse_filter,
)
from penstock.indexing import highlights as highlighted
from penstock.testing.shelf import IndexShelf, prose
from penstock.vector import guess_language

GERMAN = "Der Fischotter ist ein Tier, das in den Flüssen und Seen lebt und sich von Fischen ernährt."
ENGLISH = "# Animals\n\n## Otters\n\nThe otter is an animal that lives in the rivers and eats fish.\n"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> IndexShelf:
    """Three documents in two languages, one with a side-car, read once for all tests here."""
    return IndexShelf.holding(
        tmp_path_factory.mktemp("answers"),
        {
            "otters.md": ENGLISH,
            "otters.md.meta.json": '{"team": "zoo", "tags": ["water"], "year": 2024}',
            "fischotter.txt": GERMAN,
            "mills.md": "# Mills\n\n" + prose("otters, rivers and mills", 12),
        },
    )


def ask(shelf: IndexShelf, words: str, count: int = 10, where: str | None = None, **options: Any) -> FoundPassages:
    question = Question(words, count, parse_filter(where) if where else None, **options)
    return asyncio.run(find_answer(shelf.url, Asked("acme", "handbook"), question))


def test_a_passage_tells_its_title_headings_language_and_metadata(shelf: IndexShelf) -> None:
    (hit,) = ask(shelf, "otter fish", where="key = 'otters.md'").passages
    assert (hit["title"], hit["headings"], hit["language"]) == ("Animals", "Animals › Otters", "en")
    assert hit["metadata"] == {"team": "zoo", "tags": ["water"], "year": 2024}
    assert [hit["text"][start:end] for start, end in hit["highlights"]] == ["Otters", "otter", "fish"]
    (german,) = ask(shelf, "Fischotter", where="language = 'de'").passages
    assert (german["key"], german["metadata"], german["headings"]) == ("fischotter.txt", {}, None)


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("meta.team = 'zoo'", {"otters.md"}),
        ("meta.year between 2020 and 2030 and language = 'en'", {"otters.md"}),
        ("meta.team is null and key startswith 'fisch'", {"fischotter.txt"}),
        ("headings startswith 'Mills'", {"mills.md"}),
        ("title is not null", {"otters.md", "mills.md"}),
        # No document here has pages: an attribute of the job is never unknown.
        ("page >= 1", set()),
        ("page is null and title = 'Animals'", {"otters.md"}),
        ("not page = 3 and title = 'Animals'", {"otters.md"}),
    ],
)
def test_passages_are_filtered_by_what_they_tell(shelf: IndexShelf, where: str, keys: set[str]) -> None:
    assert {hit["key"] for hit in ask(shelf, "otters", where=where).passages} == keys


def test_a_name_that_is_nobodys_is_refused_with_those_that_there_are(shelf: IndexShelf) -> None:
    with pytest.raises(InvalidInput, match=r"meta\.teem.*meta\.team"):
        ask(shelf, "otters", where="meta.teem = 'zoo'")
    with pytest.raises(InvalidInput, match=r"langauge.*language"):
        ask(shelf, "otters", facets=("langauge",))
    with pytest.raises(InvalidInput, match="at most 8"):
        ask(shelf, "otters", facets=tuple("abcdefghi"))


def test_facets_count_the_values_of_the_best_passages(shelf: IndexShelf) -> None:
    found = ask(shelf, "otters", count=1, facets=("language", "meta.team", "page"))
    assert len(found.passages) == 1
    chunks = len(shelf.attributes())
    languages = {value["value"]: value["count"] for value in found.facets["language"]["values"]}
    assert languages["de"] == 1
    assert sum(languages.values()) + found.facets["language"]["missing"] == chunks
    zoo = [{"value": "zoo", "count": 1}]
    assert found.facets["meta.team"] == {"values": zoo, "other": 0, "missing": chunks - 1, "exact": True}
    assert found.facets["page"] == {"values": [], "other": 0, "missing": chunks, "exact": True}
    only = ask(shelf, "otters", where="language = 'de'", facets=("key",))
    assert only.facets["key"]["values"] == [{"value": "fischotter.txt", "count": 1}]


def test_facets_say_when_they_do_not_count_all(shelf: IndexShelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.indexing.search.passages._DEPTH_MAX", 3)
    cut = ask(shelf, "otters", count=1, facets=("language", "page"))
    assert [facet["exact"] for facet in cut.facets.values()] == [False, False]
    # All that are good enough are among those that were counted.
    best = ask(shelf, "otters", count=1).passages[0]["score"]
    good = ask(shelf, "otters", count=1, facets=("language",), score_min=best)
    assert good.facets["language"]["exact"]


@pytest.mark.parametrize(
    "words", ["otters", "mills rivers otters", "otter animal fish", "Fischotter", "Animals Otters"]
)
def test_a_hybrid_score_is_a_share_of_the_best_possible(shelf: IndexShelf, words: str) -> None:
    scores = [hit["score"] for hit in ask(shelf, words).passages]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_passages_come_under_their_documents_in_the_order_of_the_best(shelf: IndexShelf) -> None:
    passages = ask(shelf, "mills", count=20).passages
    documents = by_document(passages)
    assert documents[0]["key"] == "mills.md"
    assert [hit["key"] for hit in documents[0]["passages"]] == ["mills.md"] * len(documents[0]["passages"])
    assert sum(len(document["passages"]) for document in documents) == len(passages)
    assert len({document["key"] for document in documents}) == len(documents)


def test_an_answer_fits_the_published_schema(shelf: IndexShelf) -> None:
    found = ask(shelf, "otters", context=1, facets=("language",))
    whole = {"passages": found.passages, "documents": by_document(found.passages), "facets": found.facets}
    answer = msgspec.convert(msgspec.json.decode(msgspec.json.encode(whole)), SearchAnswer)
    assert answer.passages[0].key == found.passages[0]["key"]


def test_documents_are_counted_and_named_by_filter(shelf: IndexShelf) -> None:
    def counted(where: str | None, by: str | None = None) -> Any:
        return asyncio.run(count_where(shelf.url, shelf.name, parse_filter(where) if where else None, by=by))

    whole = counted(None, "language")
    assert (whole.documents, whole.passages) == (3, len(shelf.attributes()))
    assert dict(whole.facet.values)["de"] == 1
    assert (counted("meta.team = 'zoo'").documents, counted("page = 1").passages) == (1, 0)
    named = asyncio.run(documents_where(shelf.url, shelf.name, parse_filter("title is not null")))
    assert [key for _, key in named] == ["mills.md", "otters.md"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (GERMAN, "de"),
        (ENGLISH, "en"),
        ("カワウソは川に住み、魚を食べる動物です。", "ja"),
        ("水獭生活在河流中，以鱼为食，是一种动物。", "zh"),
        ("1 2 3 | 4 5 6", None),
        ("", None),
        ("def f(x): return x", None),
    ],
)
def test_the_language_of_a_text_is_told_where_it_is_clear(text: str, language: str | None) -> None:
    assert guess_language(text) == language


def test_highlights_leave_out_words_that_only_hold_a_question_together() -> None:
    text = "What is baked in the oven? The baker bakes bread."
    assert [text[a:b] for a, b in highlighted(text, "what is a baking oven")] == ["baked", "oven", "baker", "bakes"]
    assert highlighted(text, "what is the") != []
    assert highlighted("", "bread") == []
    assert len(highlighted("bread " * 1_000, "bread")) == 200


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_a_least_score_that_is_no_number_is_refused(score: float) -> None:
    with pytest.raises(InvalidInput, match="minimum score"):
        Question("words", 1, score_min=score)


def test_words_that_the_model_does_not_know_score_a_share_of_the_best_too(tmp_path: Path) -> None:
    shelf = IndexShelf.holding(tmp_path, {"twice.txt": "ภาษาไทย ภาษาไทย", "once.txt": "ภาษาไทย และคำอื่นอีกหลายคำ"})
    found = ask(shelf, "ภาษาไทย", facets=("key",))
    scores = [hit["score"] for hit in found.passages]
    assert scores[0] == 1
    assert 0 < scores[1] < 1
    assert [hit["key"] for hit in ask(shelf, "ภาษาไทย", score_min=0.99).passages] == [found.passages[0]["key"]]
    assert ask(shelf, "ภาษาไทย", mode="text").passages[0]["score"] != 1


@pytest.mark.parametrize("words", ["", "  \n", "\x00", "\u200b"])
def test_a_question_without_a_word_is_refused(shelf: IndexShelf, words: str) -> None:
    with pytest.raises(InvalidInput, match="the query is empty"):
        ask(shelf, words)
