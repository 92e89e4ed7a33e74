"""The store against a plain dictionary and exact search, whatever is done to it and in which order."""

from __future__ import annotations

import asyncio
import copy
import math
import random
import re
from collections import Counter
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.campaigns import examples

from penstock.blocks.write import layout
from penstock.coordinator import CoordinatorConfig
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.testing import ManualClock
from penstock.vector import ALL_LISTS, DistanceMetric, VectorConfig, VectorStore, attribute, partial_blocks
from penstock.vector.format.keys import COLLECTION_DATA, Family
from penstock.vector.format.languages import Language
from penstock.vector.format.stems import stem
from penstock.vector.operations import Change
from penstock.vector.upkeep.repair import Statements, repair_keyvalue

_DIMENSIONS = 3
_WORDS = ("river", "stone", "lamp", "Ärger", "水")
# A grid with few points: equal vectors, ties and zero components are common.
_NUMBERS = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 1.5, 3.0])
_VECTORS = st.lists(_NUMBERS, min_size=_DIMENSIONS, max_size=_DIMENSIONS).filter(any)
_TEXTS = st.none() | st.lists(st.sampled_from(_WORDS), max_size=4).map(" ".join)
_IDS = st.sampled_from([f"id-{n}" for n in range(14)])
_DOCUMENTS = st.sampled_from(["doc-a", "doc-b"])
_VERSIONS = st.sampled_from(["v1", "v2", "v3"])
# A row has a vector, a text or both.
_CONTENTS = st.tuples(st.none() | _VECTORS, _TEXTS).filter(lambda content: content != (None, None))
_ROW = st.tuples(_CONTENTS, st.none() | st.integers(0, 5)).map(lambda row: (*row[0], row[1]))
_STARS = st.none() | st.integers(0, 5)
_ROWS = st.dictionaries(_IDS, _ROW, min_size=1, max_size=10)


# What follows from names, vectors, texts and the log of documents.
_TOLD_BY_OTHERS = {Family.DICTIONARY, Family.POSTINGS, Family.TERMS, Family.CENTROIDS, Family.HIDDEN}


@dataclass(frozen=True)
class Row:
    vector: tuple[float, ...] | None
    text: str | None
    stars: int | None
    version: tuple[str, str] | None = None


def rows_of(rows: dict[str, Any], version: tuple[str, str] | None) -> dict[str, Row]:
    return {name: Row(tuple(v) if v else None, t, s, version) for name, (v, t, s) in rows.items()}


@dataclass
class Plain:
    """What the store should hold."""

    visible: dict[str, Row] = field(default_factory=dict)
    hidden: dict[tuple[str, str], dict[str, Row]] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)

    def upsert(self, rows: dict[str, Row], version: tuple[str, str] | None) -> None:
        if version is None or self.current.get(version[0]) == version[1]:
            self.visible.update(rows)
        else:
            self.hidden.setdefault(version, {}).update(rows)

    def delete(self, ids: list[str]) -> None:
        for name in ids:
            self.visible.pop(name, None)

    def update(self, ids: list[str], stars: int | None) -> None:
        for name in ids:
            if name in self.visible:
                self.visible[name] = replace(self.visible[name], stars=stars)

    def update_document(self, document: str, version: str | None, stars: int | None) -> None:
        version = version or self.current.get(document)
        if version is not None and version == self.current.get(document):
            self.update([name for name, row in self.visible.items() if row.version == (document, version)], stars)
        elif version is not None:
            hidden = self.hidden.get((document, version), {})
            hidden.update({name: replace(row, stars=stars) for name, row in hidden.items()})

    def flip(self, document: str, version: str) -> None:
        before = self.current.get(document)
        if before == version:
            return
        self._drop((document, before) if before else None)
        self.visible.update(self.hidden.pop((document, version), {}))
        self.current[document] = version

    def discard(self, document: str, version: str) -> None:
        self.hidden.pop((document, version), None)

    def remove(self, document: str) -> None:
        before = self.current.pop(document, None)
        self._drop((document, before) if before else None)
        for version in [key for key in self.hidden if key[0] == document]:
            del self.hidden[version]

    def _drop(self, version: tuple[str, str] | None) -> None:
        if version is not None:
            self.visible = {name: row for name, row in self.visible.items() if row.version != version}


def table_of(rows: dict[str, Any]) -> pa.Table:
    return pa.table(
        {
            "id": list(rows),
            "vector": pa.array([vector for vector, _, _ in rows.values()], pa.list_(pa.float32())),
            "text": pa.array([text for _, text, _ in rows.values()], pa.string()),
            "attributes": pa.array([{"stars": stars} for *_, stars in rows.values()], pa.struct({"stars": pa.int64()})),  # type: ignore[arg-type]
        }
    )


def update_of(ids: list[str], stars: int | None) -> pa.Table:
    values = pa.array([{"stars": stars}] * len(ids), pa.struct({"stars": pa.int64()}))  # type: ignore[arg-type]
    return pa.table({"id": pa.array(ids, pa.string()), "attributes": values})


class StoreMachine(RuleBasedStateMachine):
    """Runs the store and the dictionary side by side; every change carries its number as source position."""

    metric = DistanceMetric.L2

    @initialize(metric=st.sampled_from(list(DistanceMetric)))
    def begin(self, metric: DistanceMetric) -> None:
        self.metric = metric
        # Buckets of a few rows, so that they are cut, emptied and merged all the time.
        self.sizes = pytest.MonkeyPatch()
        self.sizes.setattr(layout, "BUCKET_BYTES", 96)
        self.sizes.setattr(layout, "_BUCKET_BYTES_MAX", 192)
        self.loop = asyncio.new_event_loop()
        self.volume = MemoryVolume()
        self.plain = Plain()
        self.history: list[Plain] = []
        self.durable = 0
        self.run(self.open())

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.store.close())
            self.loop.close()
            self.sizes.undo()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def open(self) -> None:
        config = VectorConfig(
            list_rows=3,
            threads=1,
            upkeep_bytes=2000,
            upkeep_pause_seconds=math.inf,
            cache_bytes=20_000,
            coordinator=CoordinatorConfig(flush_interval_seconds=900),
        )
        self.keyvalue = MemoryKeyValue(self.volume)
        self.store = await VectorStore.over(self.keyvalue, config)
        self.collection = await self.store.collection("t", "i", "m", dimensions=_DIMENSIONS, metric=self.metric)

    def write(self, change: Any) -> None:
        gathered = self.store.changes("queue", len(self.history))
        change(gathered)
        self.run(self.store.write(gathered))
        self.history.append(copy.deepcopy(self.plain))

    # what is done ---------------------------------------------------------------------------------

    @rule(rows=_ROWS, version=st.none() | st.tuples(_DOCUMENTS, _VERSIONS))
    def upsert(self, rows: dict[str, Any], version: tuple[str, str] | None) -> None:
        table = table_of(rows)
        self.plain.upsert(rows_of(rows, version), version)
        document, number = version or (None, None)
        self.write(lambda changes: changes.upsert(self.collection, table, document=document, version=number))

    @rule(rows=_ROWS, versions=st.tuples(*[st.tuples(_DOCUMENTS, _VERSIONS)] * 2), share=st.integers(0, 10))
    def upsert_versions(self, rows: dict[str, Any], versions: tuple[tuple[str, str], ...], share: int) -> None:
        names = list(rows)
        parts = [{name: rows[name] for name in part} for part in (names[:share], names[share:])]
        for version, part in zip(versions, parts, strict=True):
            self.plain.upsert(rows_of(part, version), version)
        told = [(*version, len(part)) for version, part in zip(versions, parts, strict=True)]
        self.write(lambda changes: changes.upsert_versions(self.collection, table_of(rows), told))

    @rule(ids=st.lists(_IDS, max_size=6))
    def delete(self, ids: list[str]) -> None:
        self.plain.delete(ids)
        self.write(lambda changes: changes.delete(self.collection, ids))

    @rule(ids=st.lists(_IDS, max_size=6, unique=True), stars=_STARS)
    def update(self, ids: list[str], stars: int | None) -> None:
        self.plain.update(ids, stars)
        self.write(lambda changes: changes.update(self.collection, update_of(ids, stars)))

    @rule(document=_DOCUMENTS, version=st.none() | _VERSIONS, stars=_STARS)
    def update_document(self, document: str, version: str | None, stars: int | None) -> None:
        self.plain.update_document(document, version, stars)
        self.write(
            lambda changes: changes.update_document(self.collection, document, {"stars": stars}, version=version)
        )

    @rule(
        rows=_ROWS, version=st.tuples(_DOCUMENTS, _VERSIONS), ids=st.lists(_IDS, max_size=6, unique=True), stars=_STARS
    )
    def update_in_the_same_change(
        self, rows: dict[str, Any], version: tuple[str, str], ids: list[str], stars: int | None
    ) -> None:
        self.plain.upsert(rows_of(rows, version), version)
        self.plain.update(ids, stars)
        self.plain.update_document(*version, 5)
        self.plain.flip(*version)
        self.plain.update(ids[:2], stars)

        def change(changes: Any) -> None:
            changes.upsert(self.collection, table_of(rows), document=version[0], version=version[1])
            changes.update(self.collection, update_of(ids, stars))
            changes.update_document(self.collection, version[0], {"stars": 5}, version=version[1])
            changes.flip(self.collection, *version)
            changes.update(self.collection, update_of(ids[:2], stars))

        self.write(change)

    @rule()
    def delete_where(self) -> None:
        self.flush()
        if not any(row.stars is not None for row in self.plain.visible.values()):
            return
        gone = [name for name, row in self.plain.visible.items() if row.stars in (0, 4)]
        assert self.run(self.collection.delete_where(attribute("stars").is_in([0, 4]), durable=True)) == len(gone)
        self.plain.delete(gone)
        self.history[-1] = copy.deepcopy(self.plain)
        self.check()

    @rule(document=_DOCUMENTS, version=_VERSIONS)
    def flip(self, document: str, version: str) -> None:
        self.plain.flip(document, version)
        self.write(lambda changes: changes.flip(self.collection, document, version))

    @rule(document=_DOCUMENTS, version=_VERSIONS)
    def begin_version(self, document: str, version: str) -> None:
        self.plain.discard(document, version)
        self.write(lambda changes: changes.begin_version(self.collection, document, version))

    @rule(document=_DOCUMENTS)
    def remove_document(self, document: str) -> None:
        self.plain.remove(document)
        self.write(lambda changes: changes.remove_document(self.collection, document))

    @rule()
    def compact(self) -> None:
        self.run(self.store.flush())
        self.run(self.store.compact())
        self.durable = len(self.history)
        self.check()

    @rule()
    def tend(self) -> None:
        self.run(self.store.flush())
        self.run(self.store.tend())
        self.durable = len(self.history)
        self.check()

    @rule()
    def drop(self) -> None:
        self.run(self.store.flush())
        self.run(self.store.drop(self.collection.name))
        self.collection = self.run(self.store.collection("t", "i", "m", dimensions=_DIMENSIONS, metric=self.metric))
        self.plain = Plain()
        self.history = [Plain() for _ in self.history]
        self.durable = len(self.history)
        self.check()

    @rule()
    def replay_the_last_change(self) -> None:
        """A source that did not hear of its success sends again: the position says that it is old."""
        if self.history:
            stale = Change((), "queue", len(self.history) - 1)
            self.run(self.store.write(stale))

    @rule()
    def flush(self) -> None:
        self.run(self.store.flush())
        self.durable = len(self.history)
        self.check()

    @rule()
    def flush_until_visible(self) -> None:
        self.run(self.store.flush(durable=False))
        self.check()

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.durable = len(self.history)
        self.run(self.open())
        self.check()

    @rule()
    def crash(self) -> None:
        """What was reported durable is there; of the rest a beginning may be, and the position tells how much."""
        self.keyvalue.crash()
        self.store._coordinator.abort()
        self.run(self.open())
        position = self.store.position("queue")
        kept = 0 if position is None else position + 1
        assert self.durable <= kept <= len(self.history)
        del self.history[kept:]
        self.plain = copy.deepcopy(self.history[-1]) if self.history else Plain()
        self.durable = kept
        self.check()

    @rule(copies=st.integers(20, 60), vector=_VECTORS)
    def many_equal_rows(self, copies: int, vector: list[float]) -> None:
        """Written, tended and deleted again: boilerplate comes and goes."""
        ids = [f"copy-{n}" for n in range(copies)]
        equal = table_of(dict.fromkeys(ids, (vector, None, None)))
        self.write(lambda changes: changes.upsert(self.collection, equal))
        self.run(self.store.flush())
        self.run(self.store.tend())
        assert self.run(self.collection.stats()).rows == len(self.plain.visible) + copies
        self.write(lambda changes: changes.delete(self.collection, ids))
        self.flush()

    @rule(chance=st.randoms(use_true_random=False))
    def damage_and_repair(self, chance: random.Random) -> None:
        """A few values that others tell, damaged at once: nothing is lost."""
        self.run(self.store.close())
        self.durable = len(self.history)
        for key, value in list(self.volume.table("keyvalue").entries(COLLECTION_DATA, None, reverse=False)):
            page, fragment = key[5] == 1, key[5] == 2 and Family(key[6]) in _TOLD_BY_OTHERS
            if (page or fragment) and chance.random() < 0.2:
                self.volume.land("keyvalue", [(key, value[:-1] + bytes([value[-1] ^ 1]))])
        keyvalue = MemoryKeyValue(self.volume)
        reports = self.run(repair_keyvalue(keyvalue, Statements(), ManualClock()))
        assert [report.losses for report in reports if report.losses] == []
        assert all(report.repaired for report in reports)
        self.run(keyvalue.close())
        self.run(self.open())
        self.check()

    # what must hold -------------------------------------------------------------------------------

    def check(self) -> None:
        self.run(self._check())

    async def _check(self) -> None:
        await self._holds_the_rows()
        await self._finds_the_nearest(None, self.plain.visible)
        starred = {name: row for name, row in self.plain.visible.items() if row.stars is not None and row.stars >= 3}
        if any(row.stars is not None for row in self.plain.visible.values()):
            await self._finds_the_nearest(attribute("stars") >= 3, starred)
            others = {name: row for name, row in self.plain.visible.items() if name not in starred}
            await self._finds_the_nearest(~(attribute("stars") >= 3), others)
            await self._counts_the_stars()
        await self._finds_by_text()
        report = await self.collection.verify()
        assert report.problems == []
        for document in ("doc-a", "doc-b"):
            assert await self.collection.current_version(document) == self.plain.current.get(document)

    async def _counts_the_stars(self) -> None:
        rows = self.plain.visible
        bare = {name: row for name, row in rows.items() if row.stars is None}
        await self._finds_the_nearest(attribute("stars").is_null(), bare)
        await self._finds_the_nearest(
            attribute("stars").is_not_null(), {n: r for n, r in rows.items() if n not in bare}
        )
        assert await self.collection.count(attribute("stars").is_null()) == len(bare)
        assert await self.collection.count() == len(rows)
        facet = await self.collection.facet("stars", limit=2)
        counts = Counter(row.stars for row in rows.values() if row.stars is not None)
        best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:2]
        assert list(facet.values) == best
        assert facet.missing == len(bare)
        assert facet.other == sum(counts.values()) - sum(count for _, count in best)

    async def _holds_the_rows(self) -> None:
        found = await self.collection.get([f"id-{n}" for n in range(14)])
        held = {
            row["id"]: (
                tuple(row["vector"]) if row["vector"] else None,
                row["text"],
                (row["attributes"] or {}).get("stars"),
            )
            for row in found.to_pylist()
        }
        assert held == {name: (row.vector, row.text, row.stars) for name, row in self.plain.visible.items()}

    async def _finds_the_nearest(self, where: Any, rows: dict[str, Row]) -> None:
        query = np.array([0.3, -1.2, 0.7], np.float32)
        found = await self.collection.search(query, 5, probes=ALL_LISTS, filter=where)
        assert partial_blocks(found) == []
        scores = {name: similarity(self.metric, query, row.vector) for name, row in rows.items() if row.vector}
        best = sorted(scores.values(), reverse=True)[:5]
        assert np.allclose(found["score"].to_numpy(), best, rtol=1e-5, atol=1e-5)
        assert len(set(found["id"].to_pylist())) == len(best)
        for name, score in zip(found["id"].to_pylist(), found["score"].to_pylist(), strict=True):
            assert math.isclose(scores[name], score, rel_tol=1e-5, abs_tol=1e-5)

    async def _finds_by_text(self) -> None:
        found = await self.collection.search(text="stone 水", k=20)
        expected = bm25(
            "stone 水", {name: row.text for name, row in self.plain.visible.items() if row.text is not None}
        )
        assert set(found["id"].to_pylist()) == set(expected)
        for name, score in zip(found["id"].to_pylist(), found["score"].to_pylist(), strict=True):
            assert math.isclose(expected[name], score, rel_tol=1e-4)


def similarity(metric: DistanceMetric, query: Any, vector: tuple[float, ...]) -> float:
    q, v = np.asarray(query, np.float64), np.asarray(vector, np.float64)
    if metric is DistanceMetric.L2:
        return -float(np.linalg.norm(q - v))
    product = float(q @ v)
    return product if metric is DistanceMetric.DOT else product / float(np.linalg.norm(q) * np.linalg.norm(v))


def bm25(query: str, texts: dict[str, str]) -> dict[str, float]:
    """Okapi BM25 as the textbook has it, over words and their stems."""
    said = {name: Counter(re.findall(r"[^\W\d_]+", text.lower())) for name, text in texts.items()}
    average = max(sum(sum(count.values()) for count in said.values()) / max(len(said), 1), 1.0)
    scores: dict[str, float] = {}
    asked = re.findall(r"[^\W\d_]+", query.lower())
    for form in (str, english_stem):
        words = {name: Counter(form(word) for word in count.elements()) for name, count in said.items()}
        add_scores(scores, map(form, asked), words, average)
    return scores


def english_stem(word: str) -> str:
    return stem([word.encode()], Language.ENGLISH)[0].decode()


def add_scores(scores: dict[str, float], asked: Iterable[str], words: dict[str, Counter[str]], average: float) -> None:
    for word in asked:
        holding = sum(1 for count in words.values() if count[word])
        rarity = math.log1p((len(words) - holding + 0.5) / (holding + 0.5))
        for name, count in words.items():
            if count[word]:
                norm = 2.0 * (0.25 + 0.75 * sum(count.values()) / average)
                scores[name] = scores.get(name, 0.0) + rarity * count[word] * 3.0 / (count[word] + norm)


TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
TestStoreMachine.settings = settings(
    max_examples=examples(30), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
