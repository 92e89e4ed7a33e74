"""Stems: what a collection is made with stays, and every language in it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest
from tests.vector.stores import collection_of, opened, with_store

from penstock.errors import InvalidInput
from penstock.keyvalue import MemoryVolume
from penstock.vector import Collection, TextAnalysis, VectorStore

Rows = Callable[..., pa.Table]

ENGLISH = "The houses of the town are old and some of them were sold."
GERMAN = "Die Verbindungen sind nicht in der Stadt, und das ist ein Fehler."


async def by_text(collection: Collection, text: str) -> list[str]:
    return (await collection.search(k=10, text=text))["id"].to_pylist()


def test_texts_of_two_languages_are_found_by_other_forms_of_their_words_after_a_restart(rows: Rows) -> None:
    volume = MemoryVolume()

    async def run() -> None:
        async with await opened(volume) as store:
            collection = await collection_of(store)
            await collection.upsert(rows(["en"], [[1, 2]], [ENGLISH]))
            await collection.upsert(rows(["de"], [[2, 1]], [GERMAN]), durable=True)
        async with await opened(volume) as store:
            collection = await collection_of(store)
            assert await by_text(collection, "house selling") == ["en"]
            assert await by_text(collection, "verbindung") == ["de"]
            assert (await collection.verify()).problems == []

    asyncio.run(run())


def test_a_collection_of_plain_words_stays_one_of_plain_words(rows: Rows) -> None:
    volume = MemoryVolume()

    async def run() -> None:
        async with await opened(volume) as store:
            collection = await collection_of(store, analysis="words")
            await collection.upsert(rows(["en"], [[1, 2]], [ENGLISH]), durable=True)
        async with await opened(volume) as store:
            collection = await collection_of(store)
            assert collection.spec.analysis is TextAnalysis.WORDS
            assert await by_text(collection, "house") == []
            assert await by_text(collection, "houses") == ["en"]
            assert (await collection.verify()).problems == []
            with pytest.raises(InvalidInput, match="analysis words"):
                await collection_of(store, analysis=TextAnalysis.STEMS)

    asyncio.run(run())


def test_an_analysis_that_is_not_known_is_refused() -> None:
    async def work(store: VectorStore, _: Collection) -> None:
        with pytest.raises(InvalidInput, match="words, stems, leads"):
            await store.collection("tenant", "other", "model", dimensions=2, analysis="syllables")

    with_store(work)


def test_a_larger_k_makes_a_hybrid_answer_longer_and_changes_nothing_else(rows: Rows) -> None:
    async def work(_: VectorStore, collection: Collection) -> None:
        names = [f"r{number}" for number in range(40)]
        texts = ["fish " * (number % 5) + "river" for number in range(40)]
        await collection.upsert(rows(names, [[number % 7, number % 3] for number in range(40)], texts), durable=True)
        answers = [(await collection.search([[1.0, 1.0]], k, text="fish river"))["id"].to_pylist() for k in (1, 5, 40)]
        assert answers[0] == answers[2][:1]
        assert answers[1] == answers[2][:5]

    with_store(work)


def test_a_common_word_is_not_rare_because_a_few_texts_are_of_another_language(rows: Rows) -> None:
    """A word of all English texts stands in one German one too: there it must not outweigh what was asked for."""

    async def work(_: VectorStore, collection: Collection) -> None:
        names = [f"en{number}" for number in range(30)]
        english = ["It is in the box, and that is for the server." for _ in names]
        english[7] = "It is in the box, and that is for the harbour."
        german = "Der Hafen ist nicht in der Stadt, und das ist ein Server."
        await collection.upsert(rows([*names, "de"], [[1, 2]] * 31, [*english, german]), durable=True)
        assert (await by_text(collection, "is it in the harbour"))[0] == "en7"

    with_store(work)


def led(section: str, about: str, text: str) -> str:
    return f"{section}\n{about}\n\n{text}"


def test_a_passage_under_the_heading_that_is_asked_for_comes_before_one_that_mentions_it(rows: Rows) -> None:
    volume = MemoryVolume()
    texts = [
        led("Manual › Networks", "Manual", "The rudder is one of many words here, and a rudder is named again."),
        led("Manual › Rudder", "Manual", "It is one of many parts here, and it is turned by hand again."),
    ]

    async def run() -> None:
        async with await opened(volume) as store:
            collection = await collection_of(store, analysis="leads")
            await collection.upsert(rows(["mention", "section"], [[1, 2], [2, 1]], texts), durable=True)
            assert await by_text(collection, "rudders") == ["section", "mention"]
            assert (await collection.verify()).problems == []

    asyncio.run(run())


def test_a_passage_of_the_document_that_is_about_it_comes_first_and_answers_do_not_change_by_a_restart(
    rows: Rows,
) -> None:
    volume = MemoryVolume()
    passage = "Call open with the name of the file and the mode."
    texts = [
        led("lzma", "lzma Support for xz archives, with an interface as gzip has", f"As in gzip. {passage}"),
        led("gzip", "gzip Support for gzip files: compress and decompress them", passage),
        *(led("other", f"other page {number}", f"Some page. {passage}") for number in range(8)),
    ]
    names = ["lzma", "gzip", *(f"other{number}" for number in range(8))]

    async def run() -> None:
        async with await opened(volume) as store:
            collection = await collection_of(store, analysis="leads")
            await collection.upsert(rows(names, [[1, 2]] * 10, texts), durable=True)
        async with await opened(volume) as store:
            collection = await collection_of(store)
            assert collection.spec.analysis is TextAnalysis.LEADS
            assert (await by_text(collection, "how do I compress a file with gzip"))[:2] == ["gzip", "lzma"]
            # What a document is about is no text of the passage: it does not make it long.
            assert (await collection.verify()).problems == []

    asyncio.run(run())


@pytest.mark.parametrize("text", [None, "", "\n\n", "\n\nwords", "no lead at all", "lead only\n\n", "a\nb\n\n\n\nc"])
def test_texts_with_odd_leads_are_counted_and_found(rows: Rows, text: str | None) -> None:
    async def run() -> None:
        async with await opened(MemoryVolume()) as store:
            collection = await collection_of(store, analysis="leads")
            await collection.upsert(rows(["odd", "other"], [[1, 2], [2, 1]], [text, "fish\n\nriver"]), durable=True)
            assert (await collection.verify()).problems == []
            for word in (text or "").split():
                assert "odd" in await by_text(collection, word)

    asyncio.run(run())


def test_a_document_with_two_good_passages_comes_before_one_with_a_single_one(rows: Rows) -> None:
    """Its second passage stays where it is: a document does not fill the answer."""

    async def work(_: VectorStore, collection: Collection) -> None:
        texts = ["fish river", "fish river", "fish river stone", "stone"]
        table = rows(["alone", "first", "second", "other"], [[1, 2]] * 4, texts)
        keys = pa.StructArray.from_arrays([pa.array(["x", "y", "y", None])], names=["key"])
        await collection.upsert(table.append_column("attributes", keys), durable=True)
        assert (await by_text(collection, "fish river"))[0] == "alone"
        for vectors in (None, [[1.0, 2.0]]):
            answers = [
                (await collection.search(vectors, k, text="fish river", group="key"))["id"].to_pylist()
                for k in (1, 2, 10)
            ]
            assert answers[2][:3] == ["first", "alone", "second"]
            assert answers[:2] == [answers[2][:1], answers[2][:2]]
        assert (await collection.search(k=1, text="fish", group="nobody's"))["id"].to_pylist() == ["alone"]
        with pytest.raises(InvalidInput, match="without a text"):
            await collection.search([[1.0, 2.0]], group="key")

    with_store(work)
