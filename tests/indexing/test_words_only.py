"""A chunk that the model knows nothing of, or refuses, is found by its words, and the report says so; without Spark."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from tests.indexing.office import NOTES, Office, PlayedStages

from penstock.documents import BatchRequest, Chunk, DocumentStatus
from penstock.documents.embedding import StaticProvider
from penstock.indexing.job.indexer import Indexer
from penstock.indexing.stages.embedding import Embedding, embed_requests
from penstock.indexing.stages.port import EmbeddingReply
from penstock.indexing.stages.readings import DocumentReading, ReadOutcome

LANGUAGES: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "documents" / "languages.json").read_text(encoding="utf-8")
)
# Those of which the embedded model knows not even a full stop.
UNKNOWN = ("Amharic", "Burmese", "Khmer", "Thai")


class ModelStages(PlayedStages):
    """Documents of one sentence a chunk, embedded by the embedded model; some texts are refused for good."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__()
        self.texts = dict(texts)
        self.refused: set[str] = set()

    def embed(
        self, requests: Mapping[int, BatchRequest], *, brisk: bool = False, trials: frozenset[str] = frozenset()
    ) -> EmbeddingReply:
        self.sent += [(one.batch_id, tuple(item.text for item in one.inputs)) for one in requests.values()]
        answered = asyncio.run(embed_requests(Embedding(), 1, requests))
        refused = {item.chunk_id for one in requests.values() for item in one.inputs if item.text in self.refused}
        told = [
            row | ({"vector": None, "reason": "too strange"} if row["chunk_id"] in refused else {})
            for row in answered.to_pylist()
            if row["chunk_id"] is not None
        ]
        return EmbeddingReply(pa.Table.from_pylist(told, answered.schema), {}, 0)

    def _reading(self, key: str) -> DocumentReading:
        sentences = self.texts[key].split("\n")
        chunks: list[Chunk] = []
        start = 0
        for seq, text in enumerate(sentences):
            end = start + len(text.encode())
            chunks.append(Chunk(seq, start, start, end, 3, text))
            start = end
        return DocumentReading(chunks, ReadOutcome.END, next_byte_start=start, text_bytes=start, version="e")


def office_of(folder: Path, texts: Mapping[str, str]) -> tuple[Office, ModelStages]:
    office = Office(folder)
    office.stages = stages = ModelStages(texts)
    return office, stages


def found(indexer: Indexer, words: str) -> list[str]:
    """The keys that a search for words gives, best first, as `penstock search` asks for them."""
    writer = indexer._writer
    (query,) = StaticProvider().embed_now([words]).rows
    vectors = [query.tolist()] if query.any() else None
    answer = writer._door.run(writer._vectors(NOTES).search(vectors, 100, text=words, columns=["attributes"]))
    return [row["attributes"]["key"] for row in answer.to_pylist()]


def indexed(office: Office, indexer: Indexer) -> None:
    indexer.take(office.rows(*office.stages.texts))  # type: ignore[attr-defined]
    indexer.work()


def longest_word(text: str) -> str:
    return max(re.findall(r"[^\s.,;:!?।۔።།]+", text), key=lambda word: sum(map(str.isalpha, word)))


def test_every_language_is_found_by_a_word_of_its_own(tmp_path: Path) -> None:
    office, _ = office_of(tmp_path, LANGUAGES)
    with office.indexer() as indexer:
        indexed(office, indexer)
        reports = office.reports(indexer)
        assert {report and report.status for report in reports.values()} == {DocumentStatus.INDEXED}
        missed = [key for key, text in LANGUAGES.items() if key not in found(indexer, longest_word(text))]
        assert missed == []


def test_a_document_in_a_language_that_the_model_does_not_know_is_indexed_by_its_words_and_that_is_told(
    tmp_path: Path,
) -> None:
    office, _ = office_of(tmp_path, {key: LANGUAGES[key] for key in (*UNKNOWN, "English")})
    with office.indexer() as indexer:
        indexed(office, indexer)
        reports = office.reports(indexer)
        for key in UNKNOWN:
            report = reports[key]
            assert report is not None
            assert (report.status, report.chunks, report.words_only) == (DocumentStatus.INDEXED, 1, 1)
            assert report.warnings[0] == "1 of 1 chunks have no vector: only their words find them"
            assert found(indexer, longest_word(LANGUAGES[key]))[0] == key
        english = reports["English"]
        assert english is not None
        assert (english.words_only, english.warnings) == (0, ())
        summary = indexer._job_progress.summary
        assert (summary.words_only, summary.with_warnings) == (len(UNKNOWN), len(UNKNOWN))
        door = indexer._writer._door
        assert all(report.sound for report in door.run(door.store.verify()))


def test_one_chunk_that_the_model_refused_is_found_by_its_words_beside_the_others(tmp_path: Path) -> None:
    office, stages = office_of(tmp_path, {"a.txt": "Otters live in rivers.\nHerons stand in reeds."})
    stages.refused = {"Herons stand in reeds."}
    with office.indexer() as indexer:
        indexed(office, indexer)
        report = office.reports(indexer)["a.txt"]
        assert report is not None
        assert (report.status, report.chunks, report.words_only) == (DocumentStatus.INDEXED, 2, 1)
        assert found(indexer, "herons")


@pytest.mark.parametrize("known", [True, False])
def test_a_version_that_the_model_refused_whole_leaves_the_one_before_and_one_it_does_not_know_takes_over(
    tmp_path: Path, known: bool
) -> None:
    office, stages = office_of(tmp_path, {"a.txt": "Otters live in rivers."})
    with office.indexer() as indexer:
        indexed(office, indexer)
        stages.texts["a.txt"] = "Herons stand in reeds." if known else LANGUAGES["Thai"]
        stages.refused = {"Herons stand in reeds."}
        indexed(office, indexer)
        report = office.reports(indexer)["a.txt"]
        assert report is not None
        assert report.status is (DocumentStatus.QUARANTINED if known else DocumentStatus.INDEXED)
        assert bool(found(indexer, "otters")) is known
        assert bool(found(indexer, longest_word(LANGUAGES["Thai"]))) is not known


def test_a_text_without_a_vector_is_sent_again_with_the_next_version(tmp_path: Path) -> None:
    """A provider may take tomorrow what it refused today: only a vector is taken over."""
    office, stages = office_of(tmp_path, {"a.txt": "Otters live in rivers.\nHerons stand in reeds."})
    stages.refused = {"Herons stand in reeds."}
    with office.indexer() as indexer:
        indexed(office, indexer)
        stages.refused, stages.sent = set(), []
        indexed(office, indexer)
        assert [texts for _, texts in stages.sent] == [("Herons stand in reeds.",)]
        report = office.reports(indexer)["a.txt"]
        assert report is not None
        assert (report.reused, report.words_only, report.warnings) == (1, 0, ())
