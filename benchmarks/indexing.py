"""From a notification on the queue to a passage that can be found, beside LlamaIndex and LangChain, in one run.

Everybody gets the same documents, chunks of 800 tokens with 100 of overlap, and an embedding function that only hashes,
so that no provider's time is in a figure. Penstock runs on Spark and without it, once on one core (all its processes
pinned to it) and once on two, after a warm-up, because a job runs for long; its time ends when everything is durable. Then what Spark
itself costs, where the time goes, and how long one small document takes while the job streams. A peer that is not
installed is named. Takes some five minutes, with `--quick` less than two.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from _indexing_peers import PEERS, measure_peer
from _indexing_work import Figures, vector_of, write_documents

LATENCY_TARGET_SECONDS = 1.5
SETS = ("small", "large")
SPARK, LOCAL = "penstock", "penstock local"
SHARE_SHOWN_MIN = 0.01
RUN_SECONDS_MAX = 900.0


@dataclass(frozen=True)
class Size:
    """How much is measured: megabytes of documents, on which cores, and how many documents one by one."""

    megabytes: float
    cores: tuple[int, ...]
    latencies: int


FULL = Size(4.0, (1, 2), 24)
QUICK = Size(1.0, (2,), 12)


# A process for each contender and number of cores ------------------------------------------------


def in_own_process(contender: str, cores: int, latencies: int, place: Path) -> dict[str, Any]:
    """What a contender measured; a peer that is not installed answers with the reason under `absent`."""
    folder = place / f"{contender}-{cores}"
    for name in SETS:
        shutil.copytree(place / name, folder / name)
    command = [sys.executable, __file__, "--contender", contender, str(cores), str(latencies), str(folder)]
    # Spark's workers import what stands beside this file.
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "RAYON_NUM_THREADS": "1"}
    answer = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, text=True, env=environment, timeout=RUN_SECONDS_MAX
    )
    return json.loads(answer.stdout.splitlines()[-1])


def contend(contender: str, cores: int, latencies: int, folder: Path) -> dict[str, Any]:
    if contender in PEERS:
        return {name: asdict(measure_peer(contender, folder / name, folder / f"{name}-kept")) for name in SETS}
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    return penstock(cores, latencies, folder) if contender == SPARK else local(folder)


def local(folder: Path) -> dict[str, Any]:
    """The engine without Spark."""
    from _indexing_shelf import measure_engine, warm_up
    from penstock.indexing import LocalIndexingJob

    warm_up(LocalIndexingJob, folder / "warm")
    return {name: asdict(measure_engine(LocalIndexingJob, folder / f"{name}-kept", folder / name)) for name in SETS}


def penstock(cores: int, latencies: int, folder: Path) -> dict[str, Any]:
    from _indexing_ours import Stages, engine_of, measure_jobs, measure_latency, measure_ours
    from _indexing_shelf import warm_up
    from penstock.pipelines import open_session, prepare_environment

    began = time.perf_counter()
    prepare_environment(os.environ, Path(sys.prefix) / "share" / "penstock" / "java")
    spark = open_session(f"local[{cores}]")
    found: dict[str, Any] = {"session": time.perf_counter() - began}
    found["cold"] = warm_up(engine_of(spark), folder / "warm")
    for name in SETS:
        stages = Stages()
        found[name] = asdict(measure_ours(spark, folder / f"{name}-kept", folder / name, stages))
        found[f"{name} stages"] = stages.table()
        found[f"{name} processors"] = stages.processors
    found["job"] = measure_jobs(spark)
    if latencies:
        found["latency"] = asyncio.run(measure_latency(spark, folder / "latency", latencies))
    spark.stop()
    return found


# The report --------------------------------------------------------------------------------------


def report_rates(
    ours: dict[int, dict[str, Any]], local: dict[int, dict[str, Any]], peers: dict[str, dict[str, Any]]
) -> None:
    for name in SETS:
        rows = {
            f"{engine}, {cores} core{'s' * (cores > 1)}": found[name]
            for engine, runs in ((SPARK, ours), (LOCAL, local))
            for cores, found in runs.items()
        }
        rows |= {peer: found[name] for peer, found in peers.items()}
        figures = {row: Figures(**found) for row, found in rows.items()}
        one = next(iter(figures.values()))
        print(f"\n{one.documents:,} {name} documents, {one.megabytes:.1f} MB")
        print(f"  {'':24}{'docs/s':>9}{'chunks/s':>10}{'MB/s':>8}{'first':>9}{'again':>9}{'5 % new':>9}{'CPU':>9}")
        for row, found in figures.items():
            rates = (amount / found.first_seconds for amount in (found.documents, found.chunks, found.megabytes))
            seconds = (found.first_seconds, found.again_seconds, found.change_seconds, found.processor_seconds)
            print("  {:24}{:9.1f}{:10.1f}{:8.2f}{:7.2f} s{:7.2f} s{:7.2f} s{:7.2f} s".format(row, *rates, *seconds))
        report_ratios(figures, list(peers))


def report_ratios(figures: dict[str, Figures], peers: Sequence[str]) -> None:
    for row, found in figures.items():
        if row in peers:
            continue
        for peer in peers:
            other = figures[peer]
            pairs = (
                ("first", other.first_seconds / found.first_seconds),
                ("again", other.again_seconds / found.again_seconds),
                ("5 % new", other.change_seconds / found.change_seconds),
                ("CPU", other.processor_seconds / found.processor_seconds),
            )
            print(f"  {row} is " + ", ".join(f"{ratio:.2f} x {peer} ({what})" for what, ratio in pairs))


def report_spark(ours: dict[int, dict[str, Any]]) -> None:
    print("\nwhat Spark itself costs")
    for cores, found in ours.items():
        print(f"  local[{cores}]: the session starts in {found['session']:.1f} s,", end=" ")
        print(f"its first job of a few documents takes {found['cold']:.1f} s;", end=" ")
        print(f"once warm, a job of one row takes {1000 * found['job']:.0f} ms")
        whole = {name: found["session"] + found["cold"] + found[name]["first_seconds"] for name in SETS}
        print("  a first run with all of that in it: " + ", ".join(f"{name} {whole[name]:.1f} s" for name in SETS))
        if latency := found.get("latency"):
            idle, busy = (medians(latency[part]) for part in ("idle_ms", "busy_ms"))
            print(f"  a micro-batch with nothing to do: {idle['triggerExecution']:.0f} ms;", end=" ")
            own = busy["triggerExecution"] - busy["addBatch"]
            print(f"with one document: {busy['triggerExecution']:.0f} ms, of which {own:.0f} ms are Spark's streaming")


def medians(durations: Sequence[dict[str, float]]) -> dict[str, float]:
    return {part: statistics.median(found.get(part, 0.0) for found in durations) for part in durations[-1]}


def report_stages(found: dict[str, Any], cores: int) -> None:
    print(f"\nwhere the time of the first run goes, {cores} cores, seen from the driver")
    tables = {name: dict(found[f"{name} stages"]) for name in SETS}
    print(f"  {'':32}" + "".join(f"{name:>9}" for name in SETS))
    for stage in tables["small"]:
        if max(tables[name].get(stage, 0.0) for name in SETS) < SHARE_SHOWN_MIN:
            continue
        print(f"  {stage:32}" + "".join(f"{100 * tables[name].get(stage, 0.0):7.0f} %" for name in SETS))
    for kind in found["small processors"]:
        print(f"  {'processor: ' + kind:32}" + "".join(f"{found[f'{name} processors'][kind]:7.2f} s" for name in SETS))


def report_latency(seconds: dict[str, list[float]]) -> None:
    print("\none small document, from its notification to a search that finds it, while the job streams")
    for follower, seen in seconds.items():
        p50, p90 = statistics.median(seen), statistics.quantiles(seen, n=10)[-1]
        verdict = "met" if p50 <= LATENCY_TARGET_SECONDS else "MISSED"
        print(f"  {follower:24} p50 {p50:.2f} s   p90 {p90:.2f} s   of {len(seen)}", end="   ")
        print(f"target p50 {LATENCY_TARGET_SECONDS:g} s: {verdict}")


def report_embedding() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 70
    began = time.perf_counter()
    for _ in range(1000):
        vector_of(text)
    print(
        f"the embedding function takes {1000 * (time.perf_counter() - began):.0f} µs a chunk, the same for all",
        flush=True,
    )


def report_load(when: str) -> None:
    print(f"load {when}: {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the documents, on two cores only")
    parser.add_argument("--contender", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        contender, cores, latencies, folder = arguments.contender
        try:
            print(json.dumps(contend(contender, int(cores), int(latencies), Path(folder))))
        except ImportError as missing:
            print(json.dumps({"absent": str(missing)}))
        return
    # Not under /tmp where that is memory: say so with this variable.
    with tempfile.TemporaryDirectory(prefix="indexing-bench-", dir=os.environ.get("PENSTOCK_BENCH_DIR")) as place:
        compare(QUICK if arguments.quick else FULL, Path(place))


def compare(size: Size, place: Path) -> None:
    write_documents(place, size.megabytes)
    report_load("before")
    report_embedding()
    peers: dict[str, dict[str, Any]] = {}
    for peer in PEERS:
        found = in_own_process(peer, 1, 0, place)
        if "absent" in found:
            print(f"{peer} is absent: {found['absent']}")
        else:
            peers[peer] = found
    widest = max(size.cores)
    ours = {
        cores: in_own_process(SPARK, cores, size.latencies if cores == widest else 0, place) for cores in size.cores
    }
    without_spark = {cores: in_own_process(LOCAL, cores, 0, place) for cores in size.cores}
    report_load("after")
    report_rates(ours, without_spark, peers)
    report_spark(ours)
    report_stages(ours[widest], widest)
    report_latency(ours[widest]["latency"]["seconds"])


if __name__ == "__main__":
    main()
