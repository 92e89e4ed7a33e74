"""The vector store beside faiss IVF, hnswlib and LanceDB: one run, the same vectors, the same threads.

Two sets of 384 dimensions: texts of this machine's Python library through the embedded model, and synthetic
clusters. Reported: inserts a second (ours durable on a directory, synced), bytes on disk, recall@10 against exact
search, queries a second at the first setting that reaches 0.95 (in batches and one at a time), the same with a
filter that keeps one row in a hundred, replacing a tenth of the rows and the recall after it, and the time from
opening to the first answer. Then what the store costs at several sizes, up to a million rows, and what a cache that is
too small for them costs. Searches use one thread, or as many as the environment variable SEARCH_THREADS says; loading
uses all.
Upkeep that writing leaves for the next pause is done before searches, and its time told.
Ratios are given by the clock, which decides, and by processor time, which other work on the machine distorts less.

`python benchmarks/vector.py` takes about twenty minutes on a quiet machine; `--quick` three, without the million rows.
The cost table ends in bounded time on a slow machine too: no further row is written after LOADING_SECONDS, and the line
is then of the rows that were; upkeep is left after TENDING_SECONDS, and no further round of searches begins after
MEASURED_SECONDS.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

# Read by LanceDB when it is loaded: everyone searches with as many threads, and it warns of every query otherwise.
os.environ["LANCE_CPU_THREADS"] = os.environ["RAYON_NUM_THREADS"] = os.environ.get("SEARCH_THREADS", "1")
os.environ["LANCE_LOG"] = os.environ["RUST_LOG"] = "error"

import faiss
import numpy as np
import pyarrow as pa

from _vector_data import (
    CALL_ROWS,
    DIMENSIONS,
    NEIGHBOURS,
    QUERIES,
    RECALL,
    ROUNDS,
    SEARCH_THREADS,
    SINGLES,
    Data,
    Matrix,
    Rate,
    Result,
    clustered_vectors,
    disk_mb,
    is_rare,
    recall_of,
    replacement,
    text_vectors,
    timed,
)
from _vector_peers import PEERS
from penstock.vector import ALL_LISTS, Collection, CollectionReader, VectorConfig, VectorStore, attribute

TARGETS = {"inserts": 20_000, "of faiss": 0.5, "of LanceDB": 10.0}
# The key-value store merges its own files for a while after a load, which is not what a warm search costs.
SETTLE_SECONDS = 15
CONFIG = VectorConfig(threads=SEARCH_THREADS, cache_bytes=1 << 30)
LOADING = replace(CONFIG, threads=os.cpu_count() or 1)
# A cache that holds a million rows, their codes and their names; and one that holds about a third of that.
LARGE = replace(CONFIG, cache_bytes=4 << 30)
# What a line of the cost table may take: for rows, for the upkeep that they leave, and for rounds of each kind of search.
LOADING_SECONDS = 240
TENDING_SECONDS = 180
MEASURED_SECONDS = 30
SINGLE_QUERIES = 500
SINGLE_ROUNDS = 10
RARE = attribute("rare") == True  # noqa: E712 a filter, not a comparison
PROBES = (*range(1, 17), 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, ALL_LISTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows")
    parser.add_argument("--only", choices=["text", "clustered", "single", "cost"], help="one part alone")
    parser.add_argument("--sizes", nargs="*", type=int, help="rows of the cost table, instead of the usual ones")
    parser.add_argument("--skip", nargs="*", default=[], help="peers to leave out, by the beginning of their names")
    chosen = parser.parse_args()
    count = 20_000 if chosen.quick else 100_000
    faiss.omp_set_num_threads(SEARCH_THREADS)
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; best of {ROUNDS}")
    for name, make in (("text", text_vectors), ("clustered", clustered_vectors)):
        if chosen.only in (None, name):
            compare(Data(name, *make(count)), chosen.skip)
    if chosen.only in (None, "single"):
        asyncio.run(report_single(Data("clustered", *clustered_vectors(count))))
    if chosen.only in (None, "cost"):
        report_cost(chosen.sizes or ([2_000, 20_000] if chosen.quick else [10_000, 100_000, 1_000_000]))


# the comparison -----------------------------------------------------------------------------------


def compare(data: Data, skipped: list[str]) -> None:
    print(f"\n== {data.name}: {len(data.rows):,} × {DIMENSIONS}, {QUERIES} queries, {NEIGHBOURS} neighbours")
    results = []
    for name, engine in {"penstock": run_penstock, **PEERS}.items():
        if any(name.lower().startswith(each.lower()) for each in skipped):
            continue
        with tempfile.TemporaryDirectory(prefix="penstock-vector-") as folder:
            try:
                results.append(engine(data, Path(folder)))
            except ImportError as error:
                print(f"{name:<20}is not installed and left out: {error}")
                continue
        print_result(results[-1], first=len(results) == 1)
    judge(results[0], results[1:])


def judge(ours: Result, peers: list[Result]) -> None:
    print(f"{'':<20}  {'by clock':>10} {'by processor':>13}")
    show("durable inserts a second", ours.inserts.wall, ours.inserts.processor, TARGETS["inserts"])
    for peer in peers:
        target = next((TARGETS[f"of {name}"] for name in ("faiss", "LanceDB") if peer.engine.startswith(name)), 0.0)
        for how in ("batched", "single"):
            mine, theirs = getattr(ours, how), getattr(peer, how)
            ratios = mine.wall / theirs.wall, mine.processor / theirs.processor
            show(f"of {peer.engine}'s queries a second, {how}", *ratios, target)
    change = ours.recall_after - ours.recall
    # A thousand queries tell recall to about two thousandths.
    show("recall after replacing a tenth, less before", change, change, -0.002)


def show(what: str, wall: float, processor: float, target: float) -> None:
    verdict = "ok" if wall >= target else "LOW"
    aim = f"(target {target:g})" if target else ""
    print(f"  {verdict if target else '':<18}  {wall:>10,.2f} {processor:>13,.2f}  {what} {aim}", flush=True)


def print_result(result: Result, *, first: bool) -> None:
    figures = {
        "inserts/s": f"{result.inserts.wall:,.0f}",
        "disk MB": f"{result.disk_mb:,.0f}",
        "recall": f"{result.recall:.4f}",
        "batch q/s": f"{result.batched.wall:,.0f}",
        "single q/s": f"{result.single.wall:,.0f}",
        "1% q/s": f"{result.filtered.wall:,.0f}",
        "1% recall": f"{result.filtered_recall:.4f}",
        "replace/s": f"{result.replaced.wall:,.0f}",
        "after": f"{result.recall_after:.4f}",
        "cold ms": f"{result.cold_ms:,.0f}",
    }
    if first:
        print(f"{'':<20}" + "".join(f"{head:>11}" for head in figures) + "  setting")
    print(f"{result.engine:<20}" + "".join(f"{value:>11}" for value in figures.values()) + f"  {result.setting}")
    for note in result.notes:
        print(f"{'':<22}{note}", flush=True)


# ours ---------------------------------------------------------------------------------------------


def run_penstock(data: Data, folder: Path) -> Result:
    return asyncio.run(_run_penstock(data, folder))


async def _run_penstock(data: Data, folder: Path) -> Result:
    result = Result("penstock")
    url = f"file://{folder}"
    async with await VectorStore.open(url, "vectors", LOADING) as store:
        collection = await store.collection("tenant", "index", "model", dimensions=DIMENSIONS, metric="cosine")
        tables = [table(data, first) for first in range(0, len(data.rows), CALL_ROWS)]
        with timed(result.inserts, len(data.rows)):
            for each in tables:
                await collection.upsert(each)
            await store.flush()
        result.disk_mb = disk_mb(folder)
        seconds = await tend(store)
        result.notes.append(f"upkeep that the load left for later: {seconds:.1f} s")
    async with await VectorStore.open(url, "vectors", CONFIG) as store:
        collection = await store.collection("tenant", "index", "model", dimensions=DIMENSIONS, metric="cosine")
        await asyncio.sleep(SETTLE_SECONDS)
        probes = await search_penstock(data, collection, result)
        await replace_penstock(data, store, collection, result, probes)
        began = time.perf_counter()
        await store.compact()
        seconds = time.perf_counter() - began
        await asyncio.sleep(SETTLE_SECONDS)
        again = Result("compacted")
        await search_penstock(data, collection, again, true=replacement(data)[2])
        stats = await collection.stats()
        result.notes.append(
            f"compacted in {seconds:.1f} s: {again.batched.wall:,.0f} q/s in batches, {again.single.wall:,.0f} singly, "
            f"recall {again.recall:.4f} ({again.setting}); {stats.stored_bytes / 1e6:,.0f} MB live"
        )
    began = time.perf_counter()
    async with await VectorStore.open_reader(url, "vectors", CONFIG) as reader:
        cold = await reader.collection("tenant", "index", "model")
        await cold.search(data.queries[0], NEIGHBOURS, probes=probes)
        result.cold_ms = 1000 * (time.perf_counter() - began)
    return result


async def search_penstock(data: Data, collection: Collection, result: Result, true: Matrix = None) -> int:
    true = data.true if true is None else true

    async def best(queries: Matrix, **options: Any) -> tuple[Rate, Matrix]:
        rate, answer = Rate(), None
        for _ in range(ROUNDS):
            with timed(rate, len(queries)):
                answer = await collection.search(queries, NEIGHBOURS, **options)
        return rate, ids_of(answer, len(queries))

    for probes in PROBES:
        answer = await collection.search(data.queries, NEIGHBOURS, probes=probes)
        result.recall = recall_of(ids_of(answer, QUERIES), true)
        if result.recall >= RECALL:
            break
    result.setting = f"probes={probes}"
    result.batched, _ = await best(data.queries, probes=probes)
    for _ in range(ROUNDS):
        with timed(result.single, SINGLES):
            for each in data.queries[:SINGLES]:
                await collection.search(each, NEIGHBOURS, probes=probes)
    result.filtered, found = await best(data.queries, filter=RARE)
    result.filtered_recall = recall_of(found, data.true_rare)
    asked, found = await best(data.queries, recall_target=RECALL)
    result.notes.append(f"asked for recall {RECALL}: {asked.wall:,.0f} q/s, recall {recall_of(found, true):.4f}")
    return probes


async def replace_penstock(data: Data, store: VectorStore, collection: Collection, result: Result, probes: int) -> None:
    places, vectors, true = replacement(data)
    tables = []
    for first in range(0, len(places), CALL_ROWS):
        part = slice(first, first + CALL_ROWS)
        tables.append(rows_table(places[part], vectors[part], data.rare[places[part]]))
    with timed(result.replaced, len(places)):
        for each in tables:
            await collection.upsert(each)
        await store.flush()
    answer = await collection.search(data.queries, NEIGHBOURS, probes=probes)
    at_once = recall_of(ids_of(answer, QUERIES), true)
    answer = await collection.search(data.queries, NEIGHBOURS, recall_target=RECALL)
    asked = recall_of(ids_of(answer, QUERIES), true)
    seconds = await tend(store)
    answer = await collection.search(data.queries, NEIGHBOURS, probes=probes)
    result.recall_after = recall_of(ids_of(answer, QUERIES), true)
    result.notes.append(
        f"at once after replacing a tenth: recall {at_once:.4f}, asked for {RECALL}: {asked:.4f}; "
        f"the upkeep after it: {seconds:.1f} s"
    )


async def tend(store: VectorStore) -> float:
    """Do the upkeep that a store would do in the next pause; how long it took."""
    began = time.perf_counter()
    await store.tend()
    return time.perf_counter() - began


def table(data: Data, first: int) -> pa.Table:
    places = np.arange(first, min(first + CALL_ROWS, len(data.rows)))
    return rows_table(places, data.rows[places], data.rare[places])


def rows_table(places: Matrix, vectors: Matrix, rare: Matrix) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([f"row-{place}" for place in places.tolist()]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSIONS),
            "attributes": pa.StructArray.from_arrays([pa.array(rare)], names=["rare"]),
        }
    )


def ids_of(answer: pa.Table, queries: int) -> Matrix:
    found = np.full((queries, NEIGHBOURS), -1)
    numbers = np.array([int(name[4:]) for name in answer["id"].to_pylist()], np.int64)
    query = answer["query"].to_numpy()
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    found[query, rank] = numbers
    return found


# one query at a time ------------------------------------------------------------------------------


async def report_single(data: Data) -> None:
    """Processor time of warm queries: for each the best of some rounds, and the mean of those."""
    print(
        f"\n== one query at a time: {len(data.rows):,} × {DIMENSIONS}, {SINGLE_QUERIES} queries, best of {SINGLE_ROUNDS}"
    )
    with tempfile.TemporaryDirectory(prefix="penstock-vector-") as folder:
        async with await VectorStore.open(f"file://{folder}", "vectors", LOADING) as store:
            collection = await store.collection("tenant", "index", "model", dimensions=DIMENSIONS, metric="cosine")
            for first in range(0, len(data.rows), CALL_ROWS):
                await collection.upsert(table(data, first))
            await store.flush()
            await store.tend()
        async with await VectorStore.open(f"file://{folder}", "vectors", CONFIG) as store:
            collection = await store.collection("tenant", "index", "model", dimensions=DIMENSIONS, metric="cosine")
            for options in ({"probes": 7}, {"recall_target": RECALL}, {"filter": RARE}):
                answer = await collection.search(data.queries, NEIGHBOURS, **options)
                recall = recall_of(ids_of(answer, QUERIES), data.true_rare if "filter" in options else data.true)
                best = np.full(SINGLE_QUERIES, np.inf)
                for _ in range(SINGLE_ROUNDS):
                    for place in range(SINGLE_QUERIES):
                        began = time.thread_time_ns()
                        await collection.search(data.queries[place], NEIGHBOURS, **options)
                        best[place] = min(best[place], time.thread_time_ns() - began)
                told = f"{next(iter(options))} {'' if 'filter' in options else next(iter(options.values()))}"
                print(
                    f"{told:<20} recall {recall:.4f}  {best.mean() / 1e3:6.1f} µs  quickest {best.min() / 1e3:6.1f} µs"
                )


# cost ---------------------------------------------------------------------------------------------


def report_cost(sizes: list[int]) -> None:
    print("\n== what it costs, on clustered vectors; searches ask for a recall of 0.95")
    for place, size in enumerate(sizes):
        with tempfile.TemporaryDirectory(prefix="penstock-vector-") as folder:
            loaded, figures = asyncio.run(_cost(size, Path(folder)))
        if not place:
            print(f"{'rows':<12}" + "".join(f"{head:>12}" for head in figures))
        print(f"{loaded:<12,}" + "".join(f"{figure:>12}" for figure in figures.values()), flush=True)
        if loaded < size:
            print(f"{'':<12}{size:,} were meant: the time for loading was up")


async def _cost(size: int, folder: Path) -> tuple[int, dict[str, str]]:
    rows, queries = clustered_vectors(size)
    url, upkeep, batched = f"file://{folder}", Rate(), Rate()
    async with await VectorStore.open(url, "vectors", LOADING) as store:
        collection = await store.collection("tenant", "index", "model", dimensions=DIMENSIONS, metric="cosine")
        loaded, load = await load_rows(store, collection, rows)
        tended = True
        with timed(upkeep, 1):
            try:
                await asyncio.wait_for(store.tend(), TENDING_SECONDS)
            except TimeoutError:
                tended = False
        stats = await collection.stats()
    data = Data("clustered", rows[:loaded], queries)
    async with await VectorStore.open_reader(url, "vectors", LARGE) as reader:
        warm = await reader.collection("tenant", "index", "model")
        began = time.perf_counter()
        await warm.search(data.queries[0], NEIGHBOURS)
        cold = time.perf_counter() - began
        answer = await warm.search(data.queries, NEIGHBOURS)
        await bounded(batched, QUERIES, lambda: warm.search(data.queries, NEIGHBOURS), ROUNDS)
        single, filtered = await singles(data, warm), await singles(data, warm, filter=RARE)
    third = replace(CONFIG, cache_bytes=max(stats.stored_bytes // 3, 1 << 20))
    async with await VectorStore.open_reader(url, "vectors", third) as reader:
        small = await singles(data, await reader.collection("tenant", "index", "model"))
    return loaded, {
        "inserts/s": f"{load.wall:,.0f}",
        "CPU µs/row": f"{1e6 / load.processor:,.0f}",
        "live MB": f"{stats.stored_bytes / 1e6:,.0f}",
        "resident MB": f"{stats.resident_bytes / 1e6:,.1f}",
        "lists": f"{stats.lists:,}",
        "upkeep s": f"{'' if tended else '>'}{1 / upkeep.wall:.1f}",
        "recall": f"{recall_of(ids_of(answer, QUERIES), data.true):.4f}",
        "batch q/s": f"{batched.wall:,.0f}",
        "single q/s": f"{single.wall:,.0f}",
        "1% q/s": f"{filtered.wall:,.0f}",
        "small cache": f"{small.wall:,.0f}",
        "cold ms": f"{1000 * cold:,.0f}",
        "peak MB": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:,.0f}",
    }


async def load_rows(store: VectorStore, collection: Collection, rows: Matrix) -> tuple[int, Rate]:
    """Write rows for as long as there is time; how many were, and how fast, the last of them durable."""
    rate, loaded, end = Rate(), 0, time.perf_counter() + LOADING_SECONDS
    began, used = time.perf_counter(), time.process_time()
    while loaded < len(rows) and time.perf_counter() < end:
        places = np.arange(loaded, min(loaded + CALL_ROWS, len(rows)))
        await collection.upsert(rows_table(places, rows[places], is_rare(places)))
        loaded += len(places)
    await store.flush()
    rate.wall = loaded / (time.perf_counter() - began)
    rate.processor = loaded / (time.process_time() - used)
    return loaded, rate


async def singles(data: Data, collection: CollectionReader, **options: Any) -> Rate:
    """Queries a second, one at a time, once each of them has been asked before."""
    rate = Rate()

    async def ask(count: int) -> None:
        for each in data.queries[:count]:
            await collection.search(each, NEIGHBOURS, **options)

    await bounded(Rate(), SINGLES, lambda: ask(SINGLES), 2)
    await bounded(rate, SINGLES, lambda: ask(SINGLES), ROUNDS)
    return rate


async def bounded(rate: Rate, count: int, work: Callable[[], Awaitable[object]], rounds: int) -> None:
    """The best of some rounds; no further one begins when the time is up."""
    end = time.perf_counter() + MEASURED_SECONDS
    for _ in range(rounds):
        with timed(rate, count):
            await work()
        if time.perf_counter() > end:
            break


if __name__ == "__main__":
    main()
