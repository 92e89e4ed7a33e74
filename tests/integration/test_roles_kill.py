"""The roles of `penstock serve` on machines of their own around one bucket, each killed in turn: nothing lost or doubled.

Three processes in three folders share nothing but a bucket. Telemetry and documents go in through the gateway, the jobs
carry them, and whatever was acknowledged is asked of the process for queries.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.served import Served, waited_for
from tests.integration.acknowledged import Ledger, check_documents, check_points, send_documents, send_points

from penstock.testing.servers.object_stores import S3Server, ServerMissing, seaweedfs

ROLES = ("gateway", "jobs", "query")
# Acknowledged before each kill, so that every role is killed while data flows.
ACKNOWLEDGED_BETWEEN = 10


class Machines:
    """One process a role, each in a folder of its own; a request goes to the role that its route belongs to."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        self.stopping = threading.Event()
        settings = "".join(f'{name} = "{value}"\n' for name, value in server.options.items())
        quick = "[landing]\nbatches_per_round = 20\n"
        self._folders = {role: folder / role for role in ROLES}
        for place in self._folders.values():
            place.mkdir()
            (place / "penstock.toml").write_text(f"[s3]\n{settings}{quick}")
        self._served = {role: self._started(role) for role in ROLES}

    def _started(self, role: str) -> Served:
        options = ("--store", "s3://penstock/roles", "--config", "penstock.toml", "--roles", role)
        return Served(self._folders[role], *options)

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response | None:
        role = "gateway" if method == "PUT" or path == "/v1/metrics" else "query"
        try:
            return httpx.request(method, self._served[role].url + path, timeout=30.0, trust_env=False, **given)
        except httpx.HTTPError:
            return None

    def kill(self, role: str) -> None:
        """As a power cut does; then the machine comes back with its disk."""
        self._served[role].__exit__()
        self._served[role] = self._started(role)

    def end(self) -> list[int]:
        return [served.end() for served in self._served.values()]

    def close(self) -> None:
        for served in self._served.values():
            served.__exit__()


@contextlib.contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    try:
        with seaweedfs(folder / "seaweedfs") as server:
            running = Machines(folder, server)
            try:
                yield running
            finally:
                running.stopping.set()
                running.close()
    except ServerMissing as missing:
        pytest.skip(f"no S3 server here: {missing}")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.integration
def test_roles_around_one_bucket_lose_and_double_nothing_when_each_is_killed_in_turn(tmp_path: Path) -> None:
    metrics, documents = Ledger(), Ledger()
    with machines(tmp_path) as running:
        base_ns = int(time.time()) * 1_000_000_000
        senders = [
            threading.Thread(target=send_points, args=(running, metrics, base_ns)),
            threading.Thread(target=send_documents, args=(running, documents)),
        ]
        for sender in senders:
            sender.start()
        for role in ROLES:
            known = len(metrics.acknowledged) + ACKNOWLEDGED_BETWEEN
            assert waited_for(lambda known=known: len(metrics.acknowledged) >= known), f"nothing flows before {role}"
            running.kill(role)
        known = len(documents.acknowledged)
        assert waited_for(lambda: len(documents.acknowledged) > known), "nothing flows after the last kill"
        running.stopping.set()
        for sender in senders:
            sender.join()
        check_points(running, metrics)
        check_documents(running, documents)
        assert running.end() == [0, 0, 0]
