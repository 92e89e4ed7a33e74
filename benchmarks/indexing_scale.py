"""A folder of real documents, or one large text, through `penstock index`: what a second core gives, and how much memory.

Each run is the command itself in a new store, with all its processes pinned to one core or to two: time on the clock,
processor time of all processes, and the highest memory of the driver (`VmHWM`). On a machine that does other things the
clock says little. A folder is indexed as it is; without one, a text of `--text-bytes` is made.

    python benchmarks/indexing_scale.py FOLDER --engine local --engine spark
    python benchmarks/indexing_scale.py --text-bytes 1000000000 --engine local --cores 2
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SPEED_UP_TARGET = 1.6
MEMORY_TARGET_MB = 600
RUN_SECONDS_MAX = 7200.0
LOOK_SECONDS = 0.05
# Of prctl(2).
PR_SET_CHILD_SUBREAPER = 36
ORPHAN_SECONDS_MAX = 20.0
TEXT_BYTES = 20_000_000
SENTENCE_WORDS = 14
PARAGRAPH_SENTENCES = 6
VOCABULARY = 40_000
PART_BYTES = 1 << 20


@dataclass(frozen=True)
class Spent:
    """What one run took."""

    seconds: float
    processor_seconds: float
    memory_mb: int


def indexed(folder: Path, engine: str, cores: int, place: Path) -> Spent:
    command = [sys.executable, "-m", "penstock.cli", "index", str(folder), "--store", str(place / "store")]
    command += ["--engine", engine, "--json", *(["--master", f"local[{cores}]"] if engine == "spark" else [])]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    pinned = sorted(os.sched_getaffinity(0))[:cores]
    with (place / "said").open("w") as said:
        running = subprocess.Popen(["taskset", "-c", ",".join(map(str, pinned)), *command], stdout=said)
        memory_mb = 0
        while running.poll() is None:
            memory_mb = max(memory_mb, highest_mb(running.pid))
            if time.perf_counter() - began > RUN_SECONDS_MAX:
                running.terminate()
            time.sleep(LOOK_SECONDS)
    seconds = time.perf_counter() - began
    await_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if running.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {running.returncode}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(seconds, spent, memory_mb)


def adopt_orphans() -> None:
    """Processes that outlive their starter become ours, so that their time is counted: parsers of a process that reads."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def await_orphans() -> None:
    end = time.perf_counter() + ORPHAN_SECONDS_MAX
    with suppress(ChildProcessError):
        while time.perf_counter() < end:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(LOOK_SECONDS)


def highest_mb(pid: int) -> int:
    """The highest memory of a process so far; nothing once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)


def write_text(folder: Path, size: int) -> None:
    """Prose of so many bytes, in words that are as frequent as words are, the same in every run."""
    folder.mkdir()
    chance = random.Random(16)
    words = ["".join(chance.choices("etaoinshrdlucm", k=chance.randint(2, 9))) for _ in range(VOCABULARY)]
    weights = [1 / rank for rank in range(1, VOCABULARY + 1)]
    with (folder / "large.txt").open("w") as file:
        written = 0
        while written < size:
            drawn = iter(chance.choices(words, weights, k=PART_BYTES // 6))
            sentences = [" ".join(part).capitalize() + "." for part in zip(*[drawn] * SENTENCE_WORDS, strict=False)]
            rows = range(0, len(sentences), PARAGRAPH_SENTENCES)
            part = "\n\n".join(" ".join(sentences[row : row + PARAGRAPH_SENTENCES]) for row in rows) + "\n\n"
            written += file.write(part[: size - written])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder of documents")
    parser.add_argument(
        "--text-bytes",
        type=int,
        help=f"size of one text to make and index where no folder is named, {TEXT_BYTES} by default",
    )
    parser.add_argument("--engine", action="append", choices=["local", "spark"], help="local by default")
    parser.add_argument("--cores", action="append", type=int, help="1 and then 2 by default")
    arguments = parser.parse_args()
    if arguments.folder is not None and arguments.text_bytes is not None:
        parser.error("name a folder or give --text-bytes")
    text_bytes = arguments.text_bytes or TEXT_BYTES
    adopt_orphans()
    # Not under /tmp where that is memory: say so with this variable.
    with tempfile.TemporaryDirectory(prefix="scale-bench-", dir=os.environ.get("PENSTOCK_BENCH_DIR")) as place:
        folder = arguments.folder or Path(place) / "text"
        if arguments.folder is None:
            write_text(folder, text_bytes)
        for engine in arguments.engine or ["local"]:
            compare(folder, engine, arguments.cores or [1, 2], Path(place))


def compare(folder: Path, engine: str, cores: list[int], place: Path) -> None:
    found: dict[int, Spent] = {}
    for count in cores:
        own = place / f"{engine}-{count}"
        own.mkdir()
        found[count] = spent = indexed(folder, engine, count, own)
        verdict = "met" if spent.memory_mb <= MEMORY_TARGET_MB else "MISSED"
        print(
            f"{engine}, {count} core{'s' * (count > 1)}: {spent.seconds:.1f} s, processor {spent.processor_seconds:.1f} s, "
            f"driver {spent.memory_mb} MB (mark {MEMORY_TARGET_MB}: {verdict}), load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    if {1, 2} <= found.keys():
        gain = found[1].seconds / found[2].seconds
        print(f"{engine}: a second core gives {gain:.2f} x (mark {SPEED_UP_TARGET:g})")


if __name__ == "__main__":
    main()
