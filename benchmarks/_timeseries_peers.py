"""The peers of the time-series benchmark: VictoriaMetrics and Prometheus by remote write and HTTP, DuckDB in process."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import cramjam
import numpy as np

__all__ = ["PEERS", "DuckDbPeer", "HttpPeer", "PeerMissing", "remote_write_bodies"]

_START_SECONDS_MAX = 60.0
# VictoriaMetrics keeps what is new in memory for about 8 s. When it stops, it writes its caches as well.
_FLUSH_SECONDS = 15.0


class PeerMissing(Exception):
    """The peer's program is not installed."""


def remote_write_bodies(labels: list[dict[str, str]], times: Any, values: Any) -> list[bytes]:
    """Batches of Prometheus' remote write, a scrape after the other: `times` by step, `values` by series and step."""
    heads = [_labels(own) for own in labels]
    steps = values.shape[1]
    samples = np.empty((len(labels), 18), np.uint8)
    samples[:, 0], samples[:, 1], samples[:, 2], samples[:, 11] = 0x12, 16, 0x09, 0x10
    bodies = []
    for step in range(steps):
        samples[:, 3:11] = np.ascontiguousarray(values[:, step]).view(np.uint8).reshape(-1, 8)
        samples[:, 12:18] = np.frombuffer(_varint(int(times[step])), np.uint8)
        raw = samples.tobytes()
        rows = [head + raw[18 * place : 18 * place + 18] for place, head in enumerate(heads)]
        bodies.append(bytes(cramjam.snappy.compress_raw(b"".join(b"\x0a" + _varint(len(row)) + row for row in rows))))
    return bodies


def _labels(labels: dict[str, str]) -> bytes:
    found = b""
    for name, value in sorted(labels.items()):
        pair = b"\x0a" + _sized(name.encode()) + b"\x12" + _sized(value.encode())
        found += b"\x0a" + _sized(pair)
    return found


def _sized(text: bytes) -> bytes:
    return _varint(len(text)) + text


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


class HttpPeer:
    """A server that takes remote write and answers Prometheus' HTTP API."""

    def __init__(self, program: str, folder: Path) -> None:
        self.name = program
        self.folder = folder / program
        path = shutil.which(program)
        if path is None:
            raise PeerMissing(f"{program} is not installed (Debian has a package of that name)")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.folder.mkdir(parents=True)
        self._process = subprocess.Popen(
            [path, *self._arguments()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._await()

    def _arguments(self) -> list[str]:
        address = self.url.removeprefix("http://")
        if self.name == "prometheus":
            (self.folder / "prometheus.yml").write_text("global: {}\nstorage: {tsdb: {out_of_order_time_window: 0s}}\n")
            return [
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address={address}",
                "--web.enable-remote-write-receiver",
                "--query.max-samples=500000000",
            ]
        return [f"-storageDataPath={self.folder / 'data'}", f"-httpListenAddr={address}", "-retentionPeriod=100y"]

    def _await(self) -> None:
        end = time.monotonic() + _START_SECONDS_MAX
        while True:
            try:
                # Prometheus serves its metrics before it takes samples.
                ready = "/-/ready" if self.name == "prometheus" else "/health"
                urllib.request.urlopen(f"{self.url}{ready}", timeout=2).read()
                return
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise PeerMissing(f"{self.name} did not start") from None
                time.sleep(0.1)

    def write(self, body: bytes) -> None:
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        request = urllib.request.Request(f"{self.url}/api/v1/write", body, headers)
        urllib.request.urlopen(request, timeout=120).read()

    def settle(self) -> None:
        """Wait until everything is on disk and merged, as far as the server does that when it is asked."""
        if self.name != "prometheus":
            time.sleep(_FLUSH_SECONDS)
            urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=60).read()
            urllib.request.urlopen(f"{self.url}/internal/force_merge", timeout=120).read()

    def range(self, expression: str, start_ms: int, end_ms: int, step_ms: int) -> int:
        asked = {"query": expression, "start": start_ms / 1000, "end": end_ms / 1000, "step": step_ms / 1000}
        url = f"{self.url}/api/v1/query_range?{urllib.parse.urlencode({**asked, 'nocache': 1})}"
        with urllib.request.urlopen(url, timeout=300) as answer:
            return len(json.load(answer)["data"]["result"])

    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "data").rglob("*") if path.is_file())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


class DuckDbPeer:
    """A table of (series, time, value), a transaction for each batch."""

    name = "duckdb"

    def __init__(self, folder: Path) -> None:
        try:
            import duckdb
        except ImportError:
            raise PeerMissing("duckdb is not installed") from None
        self._path = folder / "series.duckdb"
        self._connection = duckdb.connect(str(self._path))
        self._connection.execute("CREATE TABLE samples (series UINTEGER, time BIGINT, value DOUBLE)")

    def write(self, table: Any) -> None:
        self._connection.register("batch", table)
        self._connection.execute("INSERT INTO samples SELECT * FROM batch")

    def size_bytes(self) -> int:
        self._connection.execute("CHECKPOINT")
        return self._path.stat().st_size

    def close(self) -> None:
        self._connection.close()


PEERS = ("victoria-metrics", "prometheus")
