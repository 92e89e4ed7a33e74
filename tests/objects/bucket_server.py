"""A bucket over HTTP that can misbehave: one double for what no well-behaved server does on request.

It speaks as much of S3 and of Google's XML dialect as the client uses, keeps byte order in listings,
and takes a script of fates, one for each write to come. Real servers stay the judges of the rest.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Fate(Enum):
    """What becomes of one write."""

    DONE = "carried out and answered"
    CUT_BEFORE = "connection cut, nothing done"
    CUT_AFTER = "carried out, connection cut"
    ERROR_BEFORE = "answered 500, nothing done"
    ERROR_AFTER = "carried out, answered 500"
    SLOW_DOWN = "answered 503 SlowDown, nothing done"
    THROTTLED = "answered 429, nothing done"
    FULL = "answered 507, nothing done"
    UNKNOWN_PLACE = "answered 404, nothing done"
    SILENT_AFTER = "carried out, never answered"
    NO_ETAG = "carried out, answered without a version"


# Longer than the patience of any client that is tested.
_SILENT_SECONDS = 60
_PAGE = b"<html><head><title>Log in</title></head><body><p>Log in first</p></body></html>"
REFUSALS = {Fate.ERROR_BEFORE: 500, Fate.SLOW_DOWN: 503, Fate.THROTTLED: 429, Fate.FULL: 507, Fate.UNKNOWN_PLACE: 404}


@dataclass
class BucketServer:
    """What the test sets and sees. `is_lenient` ignores every condition; `listing_faults` cut so many listings."""

    port: int = 0
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    fates: deque[Fate] = field(default_factory=deque)
    is_lenient: bool = False
    listing_faults: int = 0
    # Says that there is no such bucket.
    is_gone: bool = False
    # Answers every read with a page, as a proxy does that wants somebody to log in.
    is_page: bool = False
    # Answers 416 to every read, as if each asked for what lies behind the end.
    refuses_ranges: bool = False
    page_size: int = 1000
    # Lists as a server does that keeps folders: by segments instead of bytes.
    lists_by_folder: bool = False
    # Bytes that every answered range lacks, although its headers announce them.
    range_bytes_withheld: int = 0
    # (method, path and query) of every request.
    requests: list[tuple[str, str]] = field(default_factory=list)
    # (method, headers by their lower-case names) of every request.
    headers: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    # (key, start, end) of every range that was asked for, and what is called with it before the answer.
    ranges: list[tuple[str, int, int]] = field(default_factory=list)
    on_range: Callable[[str, int, int], object] = lambda *_: None
    # Called with the path of every read before its answer.
    on_get: Callable[[str], None] = lambda *_: None
    # What is said of objects, `x-amz-meta-*`, by key and name.
    said: dict[str, dict[str, str]] = field(default_factory=dict)
    # Keys that may be neither read nor looked at.
    denied: set[str] = field(default_factory=set)
    # Whether every read is put off.
    is_away: bool = False
    # Keys that are never answered for.
    silent: set[str] = field(default_factory=set)
    # Set when a write has been carried out, and by the end of the test for handlers that never answer.
    landed: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    generation: int = 1000
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def s3_options(self) -> dict[str, Any]:
        return {"endpoint": self.endpoint, "region": "r", "access_key_id": "id", "secret_access_key": "key"}

    @property
    def google_options(self) -> dict[str, Any]:
        return {"endpoint": self.endpoint, "bearer_token": "token"}

    def count(self, method: str) -> int:
        return sum(sent == method for sent, _ in self.requests)


@contextmanager
def bucket_server(**settings: Any) -> Iterator[BucketServer]:
    """A server with one bucket, `bucket`."""
    state = BucketServer(**settings)

    class Handler(_Handler):
        bucket = state

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield state
        finally:
            state.released.set()
            server.shutdown()
            thread.join()


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    bucket: BucketServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Tests read `requests` instead."""

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        if parsed:
            named = {name.lower(): value for name, value in self.headers.items()}
            self.bucket.headers.append((self.command, named))
        return parsed

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = self._key()
        with self.bucket.mutex:
            fate = self.bucket.fates.popleft() if self.bucket.fates else Fate.DONE
            if fate in REFUSALS:
                return self._refuse(REFUSALS[fate], "SlowDown" if fate is Fate.SLOW_DOWN else "Fault")
            if fate is Fate.CUT_BEFORE:
                return self._cut()
            if not self._condition_holds(key):
                return self._refuse(412, "PreconditionFailed")
            self.bucket.generation += 1
            self.bucket.objects[key] = (body, self.bucket.generation)
            self.bucket.landed.set()
        if fate is Fate.CUT_AFTER:
            return self._cut()
        if fate is Fate.SILENT_AFTER:
            self.bucket.released.wait(10)
            return self._cut()
        if fate is Fate.ERROR_AFTER:
            return self._refuse(500, "InternalError")
        if fate is Fate.NO_ETAG:
            return self._answer(200)
        return self._answer(200, headers=self._stamps(key))

    def do_GET(self) -> None:
        if self.bucket.is_away:
            return self._refuse(503, "SlowDown")
        if self.bucket.is_gone:
            return self._refuse(404, "NoSuchBucket")
        if self.bucket.is_page:
            return self._answer(200, _PAGE, {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT", "ETag": etag(_PAGE)})
        if self.bucket.refuses_ranges:
            return self._refuse(416, "InvalidRange")
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            return self._list(query)
        return self._get(query)

    def _get(self, query: dict[str, list[str]]) -> None:
        key = self._key()
        self.bucket.on_get(urlsplit(self.path).path)
        if key in self.bucket.silent:
            return self._hang_up_late()
        wanted = self.headers.get("Range")
        if wanted:
            first, last = map(int, wanted.removeprefix("bytes=").split("-"))
            self.bucket.ranges.append((key, first, last + 1))
            self.bucket.on_range(key, first, last + 1)
        if key in self.bucket.denied:
            return self._refuse(403, "AccessDenied")
        found = self.bucket.objects.get(key)
        if found is None or query.get("generation", [str(found[1])]) != [str(found[1])]:
            return self._refuse(404, "NoSuchKey")
        if not self._condition_holds(key):
            return self._refuse(412, "PreconditionFailed")
        body = found[0]
        if not wanted:
            return self._answer(200, body, self._stamps(key))
        if first >= len(body):
            return self._refuse(416, "InvalidRange")
        piece = body[first : last + 1]
        span = f"bytes {first}-{first + len(piece) - 1}/{len(body)}"
        sent = piece[: len(piece) - self.bucket.range_bytes_withheld]
        return self._answer(206, sent, {**self._stamps(key), "Content-Range": span})

    def do_HEAD(self) -> None:
        if self.bucket.is_away:
            return self._answer(503)
        key = self._key()
        if key in self.bucket.silent:
            return self._hang_up_late()
        found = self.bucket.objects.get(key)
        if key in self.bucket.denied:
            return self._answer(403)
        if found is None:
            return self._answer(404)
        return self._answer(200, found[0], self._stamps(key))

    def do_DELETE(self) -> None:
        if self.bucket.objects.pop(self._key(), None) is None:
            return self._refuse(404, "NoSuchKey")
        return self._answer(204)

    def do_POST(self) -> None:
        self._key()
        text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        keys = [piece.split("</Key>")[0] for piece in text.split("<Key>")[1:]]
        for key in keys:
            self.bucket.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _list(self, query: dict[str, list[str]]) -> None:
        self._key()
        with self.bucket.mutex:
            if self.bucket.listing_faults:
                self.bucket.listing_faults -= 1
                return self._refuse(500, "InternalError")
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        order = (lambda key: key.split("/")) if self.bucket.lists_by_folder else str.encode
        keys = sorted((key for key in self.bucket.objects if key.startswith(prefix)), key=order)
        keys = [key for key in keys if order(key) > order(after)] if after else keys
        page, rest = keys[: self.bucket.page_size], keys[self.bucket.page_size :]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2024-01-01T00:00:00Z</LastModified>"
            f"<ETag>{escape(etag(self.bucket.objects[key][0]))}</ETag><Size>{len(self.bucket.objects[key][0])}</Size>"
            "</Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        return self._answer(200, f"<ListBucketResult>{contents}{token}</ListBucketResult>".encode())

    def _key(self) -> str:
        self.bucket.requests.append((self.command, unquote(self.path)))
        return unquote(urlsplit(self.path).path).removeprefix("/bucket").removeprefix("/")

    def _condition_holds(self, key: str) -> bool:
        found = self.bucket.objects.get(key)
        if self.bucket.is_lenient:
            return True
        if self.headers.get("If-None-Match") == "*" or self.headers.get("x-goog-if-generation-match") == "0":
            return found is None
        wanted = self.headers.get("If-Match") or self.headers.get("x-goog-if-generation-match")
        return wanted is None or (found is not None and wanted in (etag(found[0]), str(found[1])))

    def _stamps(self, key: str) -> dict[str, str]:
        body, generation = self.bucket.objects[key]
        modified = "Mon, 01 Jan 2024 00:00:00 GMT"
        said = {f"x-amz-meta-{name}": value for name, value in self.bucket.said.get(key, {}).items()}
        return {"ETag": etag(body), "x-goog-generation": str(generation), "Last-Modified": modified, **said}

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode())

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _hang_up_late(self) -> None:
        self.bucket.released.wait(_SILENT_SECONDS)
        self._cut()

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.close()
