"""What the kill tests of the indexing job share: a small library of documents, drivers to kill, and what a store holds."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.documents.parsers import made
from tests.integration import index_driver

from penstock.buffer import ProducerConfig, SyncProducer
from penstock.documents import DeleteNotification, Notification, UploadNotification, encode
from penstock.documents.sequencers import stamped
from penstock.indexing.registry.entries import SOURCE, DocumentEntry, list_entries, registry_name
from penstock.objects import open_store
from penstock.vector import ALL_LISTS, CollectionName, VectorReader, VectorStore

TENANTS = ("acme", "globex", "initech")
INDEX = "handbook"
ROOT = Path(__file__).parents[2]
# For whatever a driver may take for one job on a busy machine.
JOB_SECONDS_MAX = 600.0
POLL_SECONDS = 0.01
ROWS_MAX = 10_000


@dataclass(frozen=True)
class Library:
    """Documents of three tenants, some of them large, and the events that tell of them, a list a batch of the queue."""

    folder: Path
    events: list[list[Notification]]

    def send(self, url: str, start: int = 0, end: int | None = None) -> None:
        """These batches of the queue, or all."""
        with SyncProducer(url, ProducerConfig(flush_interval_seconds=0.0)) as producer:
            for batch in self.events[start:end]:
                producer.produce([encode(event) for event in batch]).durable()


@dataclass
class Holdings:
    """All that a store holds for readers: every row, every document's entry, and the position in the queue."""

    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    entries: dict[str, list[DocumentEntry]] = field(default_factory=dict)
    position: int | None = None

    def without_costs(self) -> Holdings:
        """A document's share of what its batches cost depends on who shared them."""
        entries = {tenant: [_without_cost(entry) for entry in found] for tenant, found in self.entries.items()}
        return replace(self, entries=entries)


def build_library(folder: Path) -> Library:
    """The same keys for every tenant; the first one has by far the most to read."""
    folder.mkdir(parents=True)
    large = prose("rivers, locks and weirs", 260)
    texts = {"large.txt": large, "page.html": f"<html><body><p>{prose('ferries', 12)}</p></body></html>"}
    texts |= {f"note-{number}.txt": prose(f"mill number {number}", 6 + 5 * number) for number in range(5)}
    # What is said of some beside their content: of the large one while it is read, and of one no longer at the end.
    texts |= {f"{key}.meta.json": f'{{"about": "{key}", "size": {len(key)}}}' for key in ("large.txt", "note-1.txt")}
    packed = every_format()
    first = [texts.keys(), ["note-0.txt", "note-1.txt", "page.html"], ["note-2.txt", *packed]]
    moment = 0

    def event(kind: type[Any], tenant: str, key: str, **more: Any) -> Any:
        nonlocal moment
        moment += 1
        return kind(
            tenant_id=tenant,
            index_id=INDEX,
            model=index_driver.MODEL,
            bucket=f"file://{folder}/{tenant}",
            key=key,
            created_at=datetime.fromtimestamp(moment, UTC),
            sequencer=stamped(moment),
            **more,
        )

    uploads: list[list[Notification]] = []
    for tenant, keys in zip(TENANTS, first, strict=True):
        (folder / tenant).mkdir()
        for key in keys:
            said = texts.get(key, "")
            written = said if key.endswith(".meta.json") else f"{tenant} writes:\n\n{said}"
            (folder / tenant / key).write_bytes(packed.get(key) or written.encode())
        versions = asyncio.run(_versions(f"file://{folder}/{tenant}"))
        uploads.append(
            [
                event(
                    UploadNotification,
                    tenant,
                    key,
                    etag=versions[key][0],
                    size_bytes=versions[key][1],
                    metadata={"told": key, "about": "nothing yet"} if key.startswith("note") else None,
                )
                for key in keys
            ]
        )
    greedy, modest, small = uploads
    gone = event(DeleteNotification, TENANTS[0], "note-4.txt")
    unsaid = event(DeleteNotification, TENANTS[0], "note-1.txt.meta.json")
    # One is told twice, one is gone before the end, and the small ones come last.
    return Library(folder, [greedy[:4], greedy[4:] + modest[:1], [greedy[0], *modest[1:]], [*small, gone, unsaid]])


def every_format() -> dict[str, bytes]:
    """A small file of every other format that is read, each with text for some chunks."""
    lines = prose("barges", 8).split("\n\n")
    rows = "".join(f"<p>{line}</p>" for line in lines)
    return {
        "report.docx": made.word("".join(map(made.paragraph, lines))),
        "prices.xlsx": made.workbook(
            f'<row r="1">{made.text_cell("A1", "Ware")}{made.text_cell("B1", "Price")}</row>',
            *(
                f'<row r="{n}">{made.text_cell(f"A{n}", line)}{made.number_cell(f"B{n}", str(n))}</row>'
                for n, line in enumerate(lines, 2)
            ),
        ),
        "talk.pptx": made.presentation(*map(made.shape, lines)),
        "letter.odt": made.open_document("".join(f"<text:p>{line}</text:p>" for line in lines)),
        "novel.epub": made.book({"one.xhtml": rows}, order=("one.xhtml",)),
        "memo.rtf": ("{\\rtf1\\ansi " + "\\par ".join(lines) + "}").encode(),
        "table.csv": ("ware,price\n" + "\n".join(f'"{line}",{n}' for n, line in enumerate(lines))).encode(),
        "facts.json": json.dumps([{"fact": line} for line in lines]).encode(),
        "events.jsonl": "\n".join(json.dumps({"event": line}) for line in lines).encode(),
        "mail.eml": ("Subject: barges\r\nFrom: a@b.example\r\n\r\n" + "\r\n\r\n".join(lines)).encode(),
        "tool.py": "\n\n".join(f'def part_{n}():\n    """{line}"""' for n, line in enumerate(lines)).encode(),
        "guide.md": ("# Barges\n\n" + "\n\n".join(lines)).encode(),
    }


def prose(words: str, paragraphs: int) -> str:
    return "\n\n".join(f"Paragraph {number} tells of {words}, and of {number * 37}." for number in range(paragraphs))


def holdings(url: str) -> Holdings:
    async def read() -> Holdings:
        found = Holdings()
        async with await VectorStore.open_reader(url, "vectors") as reader:
            found.position = await reader.position(SOURCE)
            for tenant in TENANTS:
                name = CollectionName(tenant, INDEX, index_driver.MODEL)
                found.rows[tenant] = await _rows(reader, name)
                registry = registry_name(name)
                found.entries[tenant] = await list_entries(
                    await reader.collection(registry.tenant, registry.index, registry.model)
                )
        return found

    return asyncio.run(read())


class Driver:
    """A process with a session of its own."""

    def __init__(self, master: str, settings: dict[str, str], log: Path, environment: dict[str, str] | None = None):
        self._log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", index_driver.__name__, master, json.dumps(settings)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._next() == "ready", self.story

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def story(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def begin(self, url: str, checkpoint: Path, embedding: str, through: int | None = None) -> None:
        """Take what is there; with `through`, follow the queue until all up to it is done."""
        assert self.process.stdin is not None
        job = {"url": url, "checkpoint": str(checkpoint), "embedding": embedding, "through": through}
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """What the job came to: `done`, or `failed` and why."""
        while (line := self._next()) == "round":
            pass
        return line

    def until(self, moment: Callable[[], bool]) -> bool:
        """Wait for a moment in the job that runs; False when the job ended before it."""
        while not moment():
            try:
                if (line := self._lines.get(timeout=POLL_SECONDS)) != "round":
                    self._lines.put(line)
                    return False
            except queue.Empty:
                continue
        return True

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _next(self) -> str:
        return self._lines.get(timeout=JOB_SECONDS_MAX)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.decode().strip())
        self._lines.put("gone")


def _without_cost(entry: DocumentEntry) -> DocumentEntry:
    report = entry.report and msgspec.structs.replace(entry.report, cost_usd=0.0)
    return msgspec.structs.replace(entry, report=report)


async def _versions(url: str) -> dict[str, tuple[str, int]]:
    store = await open_store(url, read_only=True)
    try:
        return {meta.key: (meta.version, meta.size) async for page in store.list() for meta in page}
    finally:
        await store.close()


async def _rows(reader: VectorReader, name: CollectionName) -> list[tuple[Any, ...]]:
    vectors = await reader.collection(name.tenant, name.index, name.model)
    anywhere = np.ones((1, index_driver.PROFILE.dimensions), np.float32)
    found = await vectors.search(anywhere, ROWS_MAX, probes=ALL_LISTS, columns=["text", "attributes", "vector"])
    rows = [
        (row["id"], row["text"], tuple(sorted(row["attributes"].items())), tuple(row["vector"]))
        for row in found.to_pylist()
    ]
    return sorted(rows)
