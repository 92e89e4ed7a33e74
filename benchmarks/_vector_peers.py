"""The engines that the vector benchmark runs beside ours. One that is not installed is left out, by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa

from _vector_data import (
    CALL_ROWS,
    DIMENSIONS,
    NEIGHBOURS,
    SEARCH_THREADS,
    SINGLES,
    Data,
    Matrix,
    Result,
    best,
    disk_mb,
    ladder,
    recall_of,
    replacement,
    threads,
    timed,
)


def run_faiss(data: Data, folder: Path, lists: int) -> Result:
    result = Result(f"faiss IVF{lists},SQ8")
    index = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(DIMENSIONS),
        DIMENSIONS,
        lists,
        faiss.ScalarQuantizer.QT_8bit,
        faiss.METRIC_INNER_PRODUCT,
        False,
    )
    with threads(os.cpu_count() or 1), timed(result.inserts, len(data.rows)):
        index.train(data.rows)
        index.add(data.rows)
    result.notes.append("inserts in memory, training included; nothing is durable")

    def search(probes: int, queries: Matrix = data.queries, selector: Any = None) -> Matrix:
        options = {"nprobe": probes} | ({"sel": selector} if selector is not None else {})
        return index.search(queries, NEIGHBOURS, params=faiss.SearchParametersIVF(**options))[1]

    probes, result.recall = ladder(search, [*range(1, 32), *range(32, 129, 4), 160, 192, 256, lists], data.true)
    result.setting = f"nprobe={probes}"
    result.batched, _ = best(lambda: search(probes), len(data.queries))
    result.single, _ = best(lambda: [search(probes, each[None]) for each in data.queries[:SINGLES]], SINGLES)
    bits = np.packbits(data.rare, bitorder="little")
    rare = faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits))
    widest, result.filtered_recall = ladder(
        lambda wide: search(wide, selector=rare), [min(probes * 2**n, lists) for n in range(9)], data.true_rare
    )
    result.filtered, _ = best(lambda: search(widest, selector=rare), len(data.queries))
    places, vectors, true = replacement(data)
    with timed(result.replaced, len(places)):
        index.remove_ids(places.astype(np.int64))
        index.add_with_ids(vectors, places.astype(np.int64))
    result.recall_after = recall_of(search(probes), true)
    faiss.write_index(index, str(folder / "index"))
    result.disk_mb = disk_mb(folder)
    began = time.perf_counter()
    faiss.read_index(str(folder / "index")).search(data.queries[:1], NEIGHBOURS)
    result.cold_ms = 1000 * (time.perf_counter() - began)
    return result


def run_hnswlib(data: Data, folder: Path) -> Result:
    import hnswlib

    result = Result("hnswlib")
    index = hnswlib.Index(space="ip", dim=DIMENSIONS)
    index.init_index(max_elements=len(data.rows), M=16, ef_construction=100, allow_replace_deleted=True)
    index.set_num_threads(os.cpu_count() or 1)
    with timed(result.inserts, len(data.rows)):
        index.add_items(data.rows, np.arange(len(data.rows)))
    index.set_num_threads(SEARCH_THREADS)

    def search(width: int, queries: Matrix = data.queries) -> Matrix:
        index.set_ef(width)
        return index.knn_query(queries, NEIGHBOURS)[0]

    width, result.recall = ladder(search, [10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 400, 800], data.true)
    result.setting = f"M=16 ef={width}"
    result.batched, _ = best(lambda: search(width), len(data.queries))
    result.single, _ = best(lambda: [search(width, each[None]) for each in data.queries[:SINGLES]], SINGLES)
    some, keep = data.queries[:50], (lambda place: bool(data.rare[place]))
    index.set_ef(max(width, 400))
    result.filtered, found = best(lambda: index.knn_query(some, NEIGHBOURS, filter=keep)[0], len(some))
    result.filtered_recall = recall_of(found, data.true_rare[:50])
    places, vectors, true = replacement(data)
    index.set_num_threads(os.cpu_count() or 1)
    with timed(result.replaced, len(places)):
        index.add_items(vectors, places)
    index.set_num_threads(SEARCH_THREADS)
    result.recall_after = recall_of(search(width), true)
    index.save_index(str(folder / "index"))
    result.disk_mb = disk_mb(folder)
    began = time.perf_counter()
    loaded = hnswlib.Index(space="ip", dim=DIMENSIONS)
    loaded.load_index(str(folder / "index"))
    loaded.knn_query(data.queries[:1], NEIGHBOURS)
    result.cold_ms = 1000 * (time.perf_counter() - began)
    return result


def run_lancedb(data: Data, folder: Path) -> Result:
    import lancedb

    result = Result("LanceDB")
    database, held = lancedb.connect(str(folder)), None
    numbers = np.arange(len(data.rows))
    with timed(result.inserts, len(data.rows)):
        for first in range(0, len(data.rows), CALL_ROWS):
            part = lance_rows(numbers[first : first + CALL_ROWS], data.rows, data.rare)
            if held is None:
                held = database.create_table("rows", part)
            else:
                held.add(part)
        partitions = max(16, int(len(data.rows) ** 0.5))
        held.create_index(metric="cosine", index_type="IVF_PQ", num_partitions=partitions, num_sub_vectors=48)
    result.notes.append("IVF_PQ, its building included in the inserts; one query at a time")
    result.disk_mb = disk_mb(folder)
    refine = 10

    def one(query: Matrix, probes: int, where: str | None = None) -> list[int]:
        asked = (
            held.search(query)
            .distance_type("cosine")
            .nprobes(probes)
            .refine_factor(refine)
            .select(["number", "_distance"])
        )
        if where:
            asked = asked.where(where, prefilter=True)
        return asked.limit(NEIGHBOURS).to_arrow()["number"].to_pylist()

    some, true = data.queries[:SINGLES], data.true[:SINGLES]

    def search(probes: int) -> Matrix:
        return [one(query, probes) for query in some]

    probes, result.recall = ladder(search, [4, 8, 16, 32, 64, 128, 256, 400], true)
    result.setting = f"nprobes={probes} refine={refine}"
    result.single, _ = best(lambda: search(probes), len(some))
    result.batched = result.single
    few = some[:50]
    result.filtered, found = best(lambda: [one(query, probes, "rare") for query in few], len(few))
    result.filtered_recall = recall_of([line + [-1] * (NEIGHBOURS - len(line)) for line in found], data.true_rare[:50])
    places, vectors, true_after = replacement(data)
    whole = data.rows.copy()
    whole[places] = vectors
    fresh = lance_rows(places, whole, data.rare)
    with timed(result.replaced, len(places)):
        held.merge_insert("number").when_matched_update_all().when_not_matched_insert_all().execute(fresh)
    result.recall_after = recall_of(search(probes), true_after[:SINGLES])
    began = time.perf_counter()
    held = lancedb.connect(str(folder)).open_table("rows")
    one(data.queries[0], probes)
    result.cold_ms = 1000 * (time.perf_counter() - began)
    return result


def lance_rows(numbers: Matrix, rows: Matrix, rare: Matrix) -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows[numbers].reshape(-1)), DIMENSIONS)
    return pa.table({"number": pa.array(numbers), "vector": vectors, "rare": pa.array(rare[numbers])})


PEERS: dict[str, Callable[[Data, Path], Result]] = {
    "faiss IVF512": lambda data, folder: run_faiss(data, folder, 512),
    "faiss IVF1024": lambda data, folder: run_faiss(data, folder, 1024),
    "hnswlib": run_hnswlib,
    "LanceDB": run_lancedb,
}
