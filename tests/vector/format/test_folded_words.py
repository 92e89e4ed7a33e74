"""What the folded rule finds: every way to write a word, emoji, identifiers, and words of scripts without spaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest
from tests.vector.stores import collection_of, opened

from penstock.keyvalue import MemoryVolume
from penstock.vector import TextAnalysis
from penstock.vector.format import running_words
from penstock.vector.format.analysis import StoredAnalysis
from penstock.vector.format.terms import count_words, query_words

Rows = Callable[..., pa.Table]

# A text, another one that shares what a coarser rule would look at, and questions that the first one answers.
CASES = [
    ("a launch 🚀 today", "a launch ⛵ today", ["🚀"]),
    ("thanks ❤️ all", "thanks all", ["❤", "❤️"]),
    ("approved 👍🏽 now", "approved now", ["👍", "👍🏿"]),
    ("to 🇩🇪 now", "to 🇪🇩 now", ["🇩🇪"]),
    ("costs 50 €", "costs 50 £", ["€"]),
    ("Die Straße hier", "Die Gasse hier", ["STRASSE"]),
    ("IŞIK var", "başka var", ["ışık", "isik"]),
    ("die Hauptstra\u00adße", "die Neben", ["hauptstrasse"]),
    ("we write C++ code", "we write C code", ["C++"]),
    ("we write C# code", "we write C++ code", ["c#"]),
    ("runs on .NET here", "the net net here", [".net"]),
    ("version 3.11.2 is", "version 2.11.3 is", ["3.11.2", "v3.11.2"]),
    ("host 10.0.3.1 is", "host 10.3.0.1 is", ["10.0.3.1"]),
    ("push --force now", "the force force now", ["--force"]),
    ("max_retry_count is", "max count is", ["maxRetryCount", "max-retry-count"]),
    ("call parseHTTPHeader then", "call nothing then", ["http header", "parsehttpheader"]),
    ("over Wi-Fi here", "over wires here", ["wifi", "WiFi"]),
    ("私は東京都に住む", "私は京東都に住む", ["東京"]),
    ("แมวนอนบนเสื่อ", "อื่สเ นบ นอน วมแ", ["เสื่อ"]),
    ("데이터베이스를 관리한다", "관리를 한다", ["데이터베이스"]),
    ("مَدْرَسَةٌ", "بيت", ["مدرسة"]),
]


@pytest.mark.parametrize(("text", "other", "questions"), CASES)
def test_a_text_is_found_before_one_that_only_looks_alike(
    rows: Rows, text: str, other: str, questions: list[str]
) -> None:
    async def run() -> None:
        async with await opened(MemoryVolume()) as store:
            collection = await collection_of(store, analysis="leads")
            await collection.upsert(rows(["other", "right"], [[1, 2], [2, 1]], [other, text]), durable=True)
            for question in questions:
                found = await collection.search(k=2, text=question)
                assert found["id"].to_pylist()[:1] == ["right"], question
                scores = found["score"].to_pylist()
                assert len(scores) == 1 or scores[0] > scores[1]
            assert (await collection.verify()).problems == []

    asyncio.run(run())


@pytest.mark.parametrize("analysis", [StoredAnalysis.newest(each) for each in TextAnalysis])
def test_few_texts_are_counted_as_many_are(analysis: StoredAnalysis, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.array(["parseHTTPHeader of C++ 3.11.2, don't --dry-run", None, "", "snake_case, snake_case e-mail"])
    few = count_words(texts, analysis)
    asked = query_words(texts, analysis, few.languages)
    monkeypatch.setattr(running_words, "_FEW_BYTES", 0)
    many = count_words(texts, analysis)
    for one, other in ((few.hashes, many.hashes), (few.texts, many.texts), (few.counts, many.counts)):
        assert one.tolist() == other.tolist()
    assert few.lengths.tolist() == many.lengths.tolist()
    assert [set(query.words) for query in query_words(texts, analysis, few.languages)] == [
        set(query.words) for query in asked
    ]


def test_parts_compounds_and_pairs_make_no_text_longer() -> None:
    texts = pa.array(["parseHTTPHeader snake_case", "東京都", "데이터베이스"])
    assert count_words(texts, StoredAnalysis.FOLDED_LEADS).lengths.tolist() == [3, 3, 1]


@pytest.mark.parametrize("analysis", list(StoredAnalysis))
def test_a_stored_analysis_names_what_was_chosen(analysis: StoredAnalysis) -> None:
    assert StoredAnalysis.newest(analysis.analysis).analysis is analysis.analysis
