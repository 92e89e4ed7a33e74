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
        with pytest.raises(InvalidInput, match="words, stems"):
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
