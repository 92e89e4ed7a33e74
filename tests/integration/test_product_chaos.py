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
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.campaigns import IS_LONG
from tests.cli.served import Served
from tests.integration.acknowledged import Ledger, check_documents, check_points, send_documents, send_points

from penstock.testing.servers.object_stores import S3Server, ServerMissing, seaweedfs

# Spark takes its time to start: the longer pauses let it get to work before the next kill.
PAUSE_SECONDS = (2.0, 25.0) if IS_LONG else (2.0, 4.0)
ENGINE = "spark" if IS_LONG else "local"
# What the command line of a process below the gateway holds, and the kind of process that it is.
_KINDS = (
    (b"java", "jvm"),
    (b"pyspark", "worker"),
    (b"sql_worker", "sql"),
    (b"spawn_main", "sql"),
    (b"penstock", "job"),
)


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
        threading.Thread(target=send_points, args=(product, metrics, base_ns)),
        threading.Thread(target=send_documents, args=(product, documents)),
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
        check_points(product, metrics)
        check_documents(product, documents)
        assert product.end() == 0
    finally:
        product.stopping.set()
        product.served.kill()
    told = {"metrics": len(metrics.acknowledged), "documents": len(documents.acknowledged)}
    print(
        f"killed {dict(product.kills)}; acknowledged {told}; not known {len(metrics.unknown)}, {len(documents.unknown)}"
    )
