"""The whole product on an object store, any process of it killed at random: what was acknowledged is there, once.

Telemetry and documents flow into a real `penstock serve` on SeaweedFS. Every request is sent once, and its outcome is
noted: acknowledged, or not known. At the end everything acknowledged is found exactly once by SQL, by PromQL and by
search; what is not known is found once or not at all; and nothing else is there.

In `make test` the jobs run without Spark and the object store is stopped for a while. In `make chaos` they run on
Spark: a job's Python driver, its JVM and its Python workers are killed as well, and so is the object store.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.campaigns import IS_LONG
from tests.cli.served import Served, waited_for

from penstock.testing.servers.object_stores import S3Server, ServerMissing, seaweedfs

# Spark takes its time to start: the longer pauses let it get to work before the next kill.
PAUSE_SECONDS = (2.0, 25.0) if IS_LONG else (2.0, 4.0)
DRAIN_SECONDS = 300.0
ENGINE = "spark" if IS_LONG else "local"
POINTS = 5
# What the command line of a process below the gateway holds, and the kind of process that it is.
_KINDS = (
    (b"java", "jvm"),
    (b"pyspark", "worker"),
    (b"sql_worker", "sql"),
    (b"spawn_main", "sql"),
    (b"penstock", "job"),
)


@dataclass
class Ledger:
    """What was sent, by its outcome. Names are unique; each is sent once."""

    acknowledged: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def note(self, name: str, answer: httpx.Response | None) -> None:
        if answer is not None and answer.is_success:
            self.acknowledged.add(name)
        elif answer is None or answer.status_code >= 500:
            self.unknown.add(name)
        else:
            # Over a quota: told in time that nothing was stored.
            assert answer.status_code == 429, answer.text


class Product:
    """The store and the served process, each of which may be killed and comes back."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        self._folder, self._server = folder, server
        config = str(folder / "penstock.toml")
        self._options = ("--store", "s3://penstock/chaos", "--config", config, "--engine", ENGINE)
        settings = [f"{name} = {value!r}" for name, value in server.options.items()]
        edge = f"[serve]\nedge = {str(folder / 'edge')!r}\n"
        quick = "[landing]\nbatches_per_round = 20\n[retry]\ndeadline_seconds = 20.0\n"
        (folder / "penstock.toml").write_text("[s3]\n" + "\n".join(settings).replace("'", '"') + "\n" + edge + quick)
        self.served = Served(folder, *self._options)
        self.kills: Counter[str] = Counter()
        self.stopping = threading.Event()

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response | None:
        """The answer; None when nothing is known of it."""
        try:
            return httpx.request(method, self.served.url + path, timeout=30.0, trust_env=False, **given)
        except httpx.HTTPError:
            return None

    def hit(self, name: str, chance: random.Random) -> None:
        """Kill something, and bring back what nobody else does."""
        if name == "gateway":
            self.kills[name] += 1
            self.served.kill()
            self.served.__exit__()
            self.served = Served(self._folder, *self._options)
        elif name == "job":
            self._hit_job(chance)
        else:
            self.kills[name] += 1
            self._hit_store(chance)

    def _hit_job(self, chance: random.Random) -> None:
        """Any process below the gateway: a driver, its JVM, a worker of Spark, a process for SQL."""
        below = _processes_below(self.served.process.pid)
        if not below:
            return
        # By kind first: there are many workers and few drivers.
        kind = chance.choice(sorted(set(below.values())))
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice([pid for pid, name in below.items() if name == kind]), signal.SIGKILL)
            self.kills[kind] += 1

    def _hit_store(self, chance: random.Random) -> None:
        process = self._server.process
        if not IS_LONG:
            # It comes back with what it had, as a server behind a broken network does.
            process.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.5, 2.0))
            process.send_signal(signal.SIGCONT)
            return
        process.kill()
        time.sleep(chance.uniform(0.5, 2.0))
        process.start_again()

    def end(self) -> int:
        code = self.served.end()
        self.served.__exit__()
        return code


def _processes_below(pid: int) -> dict[int, str]:
    """All descendants of a process, each with its kind."""
    found: dict[int, str] = {}
    try:
        # A child belongs to the thread that started it, which in a JVM is never the first.
        threads = Path(f"/proc/{pid}/task").iterdir()
        for child in (int(child) for thread in threads for child in (thread / "children").read_text().split()):
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            found[child] = next((name for mark, name in _KINDS if mark in command), "job")
            found |= _processes_below(child)
    except OSError:
        # It has ended meanwhile.
        pass
    return found


def _send_points(product: Product, ledger: Ledger, base_ns: int) -> None:
    number = 0
    while not product.stopping.is_set():
        name = f"m{number}"
        times = [base_ns + (number * POINTS + place) * 1_000_000 for place in range(POINTS)]
        points = [{"timeUnixNano": str(at), "asInt": str(number)} for at in times]
        attributes = [{"key": "batch", "value": {"stringValue": name}}]
        metric = {"name": "chaos", "gauge": {"dataPoints": [{**one, "attributes": attributes} for one in points]}}
        body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
        ledger.note(name, product.ask("POST", "/v1/metrics", json=body))
        number += 1
        product.stopping.wait(0.05)


def _send_documents(product: Product, ledger: Ledger) -> None:
    number = 0
    while not product.stopping.is_set():
        name = f"word{number}x"
        ledger.note(
            name, product.ask("PUT", f"/v1/documents/chaos/{name}.txt", content=f"The {name} is here.".encode())
        )
        number += 1
        product.stopping.wait(0.5)


@pytest.mark.chaos(seeds=1, weight=8)
@pytest.mark.slow
@pytest.mark.integration
def test_what_was_acknowledged_is_found_once_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    try:
        with seaweedfs(tmp_path / "seaweedfs") as server:
            _campaign(tmp_path, server, random.Random(seed))
    except ServerMissing as missing:
        pytest.skip(f"no S3 server here: {missing}")


def _targets(chance: random.Random) -> list[str]:
    """Each kind at least once, in any order."""
    found = ["gateway", "job", "job", "store"] * (4 if IS_LONG else 1)
    chance.shuffle(found)
    return found


def _campaign(folder: Path, server: S3Server, chance: random.Random) -> None:
    product, metrics, documents = Product(folder, server), Ledger(), Ledger()
    base_ns = int(time.time()) * 1_000_000_000
    senders = [
        threading.Thread(target=_send_points, args=(product, metrics, base_ns)),
        threading.Thread(target=_send_documents, args=(product, documents)),
    ]
    try:
        for sender in senders:
            sender.start()
        for name in _targets(chance):
            time.sleep(chance.uniform(*PAUSE_SECONDS))
            product.hit(name, chance)
        product.stopping.set()
        for sender in senders:
            sender.join()
        assert metrics.acknowledged, "nothing was acknowledged"
        assert documents.acknowledged, "nothing was acknowledged"
        _check_points(product, metrics)
        _check_documents(product, documents)
        assert product.end() == 0
    finally:
        product.stopping.set()
        product.served.kill()
    told = {"metrics": len(metrics.acknowledged), "documents": len(documents.acknowledged)}
    print(
        f"killed {dict(product.kills)}; acknowledged {told}; not known {len(metrics.unknown)}, {len(documents.unknown)}"
    )


def _check_points(product: Product, ledger: Ledger) -> None:
    # One label is looked for in a map of the row.
    query = "select labels['batch'] as batch, count(*) as n from metrics where metric = 'chaos' group by 1"

    def counted() -> dict[str, int] | None:
        answer = product.ask("POST", "/v1/sql", json={"query": query})
        if answer is None or not answer.is_success:
            return None
        found = {str(batch): n for batch, n in answer.json()["rows"]}
        return found if ledger.acknowledged <= set(found) else None

    found = waited_for(counted, DRAIN_SECONDS)
    assert found, "acknowledged points are missing"
    assert set(found) <= ledger.acknowledged | ledger.unknown
    assert {batch: n for batch, n in found.items() if n != POINTS} == {}
    instant = {"query": "count by (batch) (count_over_time(chaos[1h])) * sum by (batch) (count_over_time(chaos[1h]))"}

    def series() -> dict[str, int] | None:
        answer = product.ask("POST", "/api/v1/query", data=instant)
        if answer is None or not answer.is_success:
            return None
        counts = {one["metric"]["batch"]: int(one["value"][1]) for one in answer.json()["data"]["result"]}
        return counts if set(counts) >= set(found) else None

    assert waited_for(series, DRAIN_SECONDS) == found


def _check_documents(product: Product, ledger: Ledger) -> None:
    def hits(word: str) -> list[str] | None:
        body = {"query": word, "index": "chaos", "mode": "text", "count": 5}
        answer = product.ask("POST", "/v1/search", json=body)
        if answer is None or not answer.is_success:
            return None
        return [hit["key"] for hit in answer.json()["hits"] if word in hit["text"]]

    for word in sorted(ledger.acknowledged):
        found = waited_for(lambda word=word: hits(word), DRAIN_SECONDS)
        assert [Path(key).name for key in found or []] == [f"{word}.txt"], word
    for word in sorted(ledger.unknown):
        assert len(hits(word) or []) <= 1
