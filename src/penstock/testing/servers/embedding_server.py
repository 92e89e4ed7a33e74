"""A real HTTP server that speaks the OpenAI embeddings protocol, counts what it is asked, and fails by a seeded plan.

Equal texts get equal vectors on every machine, so that two runs can be compared row by row. What happens to a request
follows from the seed, its idempotency key and how often that key was seen, never from the order of arrival: a plan is
the same under any scheduling, and a client that repeats gets through. Every request is logged before it is answered.
`EmbeddingServer` runs on threads of this process; `embedding_process` runs one in a process of its own, whose log on
disk outlives whatever the test kills.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = [
    "Ask",
    "AskFate",
    "EmbeddingProcess",
    "EmbeddingServer",
    "ProviderFaults",
    "contents_by_place",
    "embedding_process",
    "read_asks",
    "vector_of",
]

_PATH: Final = "/v1"
# A server on this machine answers its first line within moments; a busy machine needs more to start Python.
_START_SECONDS_MAX: Final = 60.0


class AskFate(StrEnum):
    """What became of a request."""

    ANSWERED = "answered"
    BUSY = "busy"  # 429, with a Retry-After
    FAILING = "failing"  # 500
    SILENT = "silent"  # no answer until the client's patience ends
    HUNG_UP = "hung-up"  # half an answer, and then the connection is closed
    REFUSED = "refused"  # 400: a text that the model does not take


class ProviderFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests fail. The shares are of requests; the first `in_a_row_max` of a key may fail, and none after."""

    seed: int = 0
    busy: float = 0.0
    failing: float = 0.0
    silent: float = 0.0
    hung_up: float = 0.0
    in_a_row_max: int = 3
    retry_after_seconds: float = 0.05
    # Longer than the patience of any client that is tested; a silent request costs the client its own timeout.
    silent_seconds: float = 120.0
    # A text with this word in it is refused, and with it the request that holds it.
    poison: str | None = None
    # Every request is refused, as by a server that does not have the model.
    refusing: bool = False
    # Whoever does not send this key is answered 401.
    key: str | None = None

    def fate(self, key: str, before: int, texts: Iterable[str]) -> AskFate:
        """Of the request with this key that comes after `before` others of the same key."""
        if before < self.in_a_row_max:
            draw = _share(f"{self.seed}|{key}|{before}")
            for share, fate in (
                (self.busy, AskFate.BUSY),
                (self.failing, AskFate.FAILING),
                (self.silent, AskFate.SILENT),
                (self.hung_up, AskFate.HUNG_UP),
            ):
                if draw < share:
                    return fate
                draw -= share
        poisoned = self.poison is not None and any(self.poison in text for text in texts)
        return AskFate.REFUSED if self.refusing or poisoned else AskFate.ANSWERED


class Ask(msgspec.Struct, frozen=True):
    """One request: its idempotency key, the digest of its texts in their order, and what became of it."""

    key: str
    content: str
    texts: int
    fate: AskFate

    @property
    def place(self) -> str:
        """The batch's place, without what the client appends for the content."""
        return self.key.rpartition("#")[0] or self.key


def vector_of(text: str, dimensions: int) -> npt.NDArray[np.float32]:
    """The vector of a text: of length one, and as good as random."""
    seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    row = np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)
    unit: npt.NDArray[np.float32] = row / np.linalg.norm(row)
    return unit


def contents_by_place(asks: Iterable[Ask]) -> dict[str, set[str]]:
    """The contents that were sent for each batch. Without poison to search for, each has exactly one."""
    found: dict[str, set[str]] = {}
    for ask in asks:
        found.setdefault(ask.place, set()).add(ask.content)
    return found


def read_asks(log: Path) -> list[Ask]:
    """What a server has logged; a line that is still being written is left out."""
    if not log.exists():
        return []
    lines = log.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=Ask) for line in lines]


class EmbeddingServer:
    """Listens on a free port of 127.0.0.1 from the moment it is made until it is closed."""

    def __init__(
        self,
        *,
        dimensions: int = 64,
        faults: ProviderFaults | None = None,
        log: Path | None = None,
        on_ask: Callable[[Ask], None] = lambda _: None,
    ) -> None:
        """`on_ask` is called with each request before it is answered: a moment to kill whoever waits for the answer."""
        self._provider = _Provider(dimensions, faults or ProviderFaults(), log, on_ask)
        self._http = _Http(self._provider)
        self._thread = threading.Thread(target=self._http.serve_forever, name="embedding-server", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What an OpenAI-compatible client takes as its base URL."""
        return f"http://127.0.0.1:{self._http.server_address[1]}{_PATH}"

    @property
    def asks(self) -> list[Ask]:
        """All requests so far, in the order in which they came."""
        return self._provider.asks

    def close(self) -> None:
        """Stop listening; requests that are kept waiting are dropped."""
        self._provider.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class EmbeddingProcess:
    """A server in a process of its own."""

    url: str
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def asks(self) -> list[Ask]:
        return read_asks(self.log)


@contextlib.contextmanager
def embedding_process(
    log: Path, *, dimensions: int = 64, faults: ProviderFaults | None = None
) -> Iterator[EmbeddingProcess]:
    """A server whose log is `log`. It lives in a session of its own, and ends when whoever started it is gone."""
    plan = msgspec.json.encode(faults or ProviderFaults()).decode()
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(log), str(dimensions), plan],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        if not url:
            raise RuntimeError(f"the embedding server did not start: code {process.wait(_START_SECONDS_MAX)}")
        yield EmbeddingProcess(url, log, process)
    finally:
        process.kill()
        process.communicate()


class _Provider:
    """Decides on requests and remembers them; called by many threads."""

    def __init__(
        self, dimensions: int, faults: ProviderFaults, log: Path | None, on_ask: Callable[[Ask], None]
    ) -> None:
        self.faults = faults
        self._on_ask = on_ask
        self.closing = threading.Event()
        self._dimensions = dimensions
        self._lock = threading.Lock()
        self._asks: list[Ask] = [] if log is None else read_asks(log)
        self._seen = Counter(ask.key for ask in self._asks)
        self._log = None if log is None else log.open("ab", buffering=0)

    @property
    def asks(self) -> list[Ask]:
        with self._lock:
            return list(self._asks)

    def admit(self, key: str, texts: list[str]) -> AskFate:
        content = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
        with self._lock:
            fate = self.faults.fate(key, self._seen[key], texts)
            ask = Ask(key, content, len(texts), fate)
            self._seen[key] += 1
            self._asks.append(ask)
            if self._log is not None:
                self._log.write(msgspec.json.encode(ask) + b"\n")
        self._on_ask(ask)
        return fate

    def answer(self, texts: list[str], *, in_bytes: bool = False) -> bytes:
        vectors = [vector_of(text, self._dimensions) for text in texts]
        if in_bytes:
            vectors = [np.rint(vector * 127).astype(np.int8) for vector in vectors]
        rows = [
            {"object": "embedding", "index": index, "embedding": vector.tolist()}
            for index, vector in enumerate(vectors)
        ]
        used = sum(len(text.split()) for text in texts)
        body = {"object": "list", "data": rows, "usage": {"prompt_tokens": used, "total_tokens": used}}
        return json.dumps(body).encode()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    # Clients connect from several workers at once.
    request_queue_size = 128

    def __init__(self, provider: _Provider) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed in the middle of its request is what this server is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if not self.path.endswith("/embeddings"):
            self._send(404, _fault("no such path"))
            return
        key = self.server.provider.faults.key
        if key is not None and self.headers.get("authorization") != f"Bearer {key}":
            self._send(401, _fault("wrong key"))
            return
        asked = json.loads(body)
        given = asked["input"]
        texts = [given] if isinstance(given, str) else given
        provider = self.server.provider
        fate = provider.admit(self.headers.get("idempotency-key", ""), texts)
        if fate is AskFate.ANSWERED:
            self._send(200, provider.answer(texts, in_bytes=asked.get("output_dtype") == "int8"))
        elif fate is AskFate.BUSY:
            self._send(429, _fault("too many requests"), {"Retry-After": f"{provider.faults.retry_after_seconds:g}"})
        elif fate is AskFate.FAILING:
            self._send(500, _fault("the model is not well"))
        elif fate is AskFate.REFUSED:
            self._send(400, _fault(f"a text holds {provider.faults.poison!r}"))
        else:
            self._break_off(fate, provider.answer(texts))

    def _break_off(self, fate: AskFate, answer: bytes) -> None:
        if fate is AskFate.SILENT:
            self.server.provider.closing.wait(self.server.provider.faults.silent_seconds)
        else:
            self._send(200, answer[: len(answer) // 2], length=len(answer))
        self.close_connection = True

    def _send(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, *, length: int | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The log of requests is the provider's."""


def _fault(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()


def _share(text: str) -> float:
    """A number in [0, 1) that follows from `text`."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2**56


def _serve(log: str, dimensions: str, plan: str) -> None:
    faults = msgspec.json.decode(plan, type=ProviderFaults)
    with EmbeddingServer(dimensions=int(dimensions), faults=faults, log=Path(log)) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        # Ends with whoever holds the other side, however that one ends.
        sys.stdin.read()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
