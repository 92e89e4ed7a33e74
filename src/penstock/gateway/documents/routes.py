"""Documents over HTTP: search, uploads, and what became of each document.

An upload is stored under a key that the gateway chooses, by tenant and index, and only then told to the queue; it is
acknowledged when both are durable. Whoever waits is answered once the document is searchable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import Notification, UploadNotification, doc_id_of, object_key
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.documents.notifications import NotificationMessage
from penstock.errors import DeadlineExceeded, InvalidInput, NotFound
from penstock.gateway.access.naming import check_index, check_key
from penstock.gateway.access.tokens import Scope
from penstock.gateway.config import GatewayConfig
from penstock.gateway.documents.services import DocumentServices
from penstock.gateway.documents.upload_place import UploadPlace
from penstock.gateway.http.bodies import read_body
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, json_answer
from penstock.gateway.http.inputs import body_schema, decoded, one, unpacked, whole_body
from penstock.gateway.http.routing import Route
from penstock.indexing import (
    Asked,
    DocumentEntry,
    FoundPassages,
    Question,
    answer_in,
    by_document,
    deletion,
    deletion_at,
    entries_of,
    find_entries,
    list_entries,
    no_index,
    parse_filter,
    registry_name,
    upload_of,
)
from penstock.objects import ObjectMeta
from penstock.vector import CollectionName

__all__ = ["DocumentRoutes"]

_MODES: Final = ("hybrid", "text", "vector")
_COUNT_MAX: Final = 1_000
_WORDS_MAX: Final = 10_000
_CONTEXT_MAX: Final = 20
# Of a listing.
_ENTRIES_MAX: Final = 1_000
# Between two looks at a document that somebody waits for.
_LOOK_SECONDS: Final = 0.1
_TAG: Final = "documents"


class SearchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a search."""

    query: str
    index: str = "default"
    count: int = 10
    mode: str = "hybrid"
    filter: str | None = None
    min_score: float | None = None
    # Chunks of text before and behind each passage.
    context: int = 0
    # Passages of one document at most.
    per_document: int | None = None
    # Whether passages come under their documents.
    by_document: bool = False
    # Attributes whose values are counted among the best 1,000 passages.
    facets: tuple[str, ...] = ()


class DocumentRoutes:
    """The handlers, as endpoints."""

    def __init__(self, services: DocumentServices, config: GatewayConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self._services, self._config, self._clock = services, config, clock

    def endpoints(self) -> list[Route]:
        document = "/v1/documents/{index}/{key:path}"
        json = ("application/json",)
        return [
            Route(
                "POST",
                "/v1/search",
                Scope.READ,
                self.search,
                "Find passages.",
                takes=json,
                tag=_TAG,
                body=body_schema(SearchBody),
            ),
            Route(
                "PUT",
                document,
                Scope.WRITE,
                self.upload,
                "Store a document and index it.",
                takes=("application/octet-stream",),
                query=("wait", "timeout"),
                tag=_TAG,
                stores=True,
            ),
            Route("DELETE", document, Scope.WRITE, self.remove, "Remove an uploaded document.", tag=_TAG),
            Route("GET", document, Scope.READ, self.show, "Show the state of a document.", tag=_TAG),
            Route("GET", "/v1/documents/{index}", Scope.READ, self.list, "List documents.", query=("limit",), tag=_TAG),
        ]

    # Search ----------------------------------------------------------------------------------------

    async def search(self, exchange: HttpExchange) -> HttpAnswer:
        asked = decoded(await whole_body(exchange, self._config), SearchBody)
        found = await self._answer(asked, exchange.principal.tenant)
        # `hits` is what the first release called passages.
        told: dict[str, Any] = {"passages": found.passages, "hits": found.passages}
        if asked.by_document:
            told = {"documents": by_document(found.passages)}
        return json_answer({**told, "facets": found.facets} if asked.facets else told)

    async def passages(self, words: str, index: str, tenant: str) -> list[dict[str, Any]]:
        """The answers to a question as a person asks it."""
        return (await self._answer(SearchBody(query=words, index=index), tenant)).passages

    async def _answer(self, asked: SearchBody, tenant: str) -> FoundPassages:
        question = _question(asked)
        whom = Asked(tenant, check_index(asked.index), None, self._services.provider)
        async with asyncio.timeout(self._config.query_seconds_max):
            try:
                reader = await self._services.index.reader()
            except NotFound as error:
                # Told as in a store that others have filled, and not by where the store is.
                raise no_index(CollectionName(tenant, whom.index, EMBEDDED_MODEL)) from error
            return await answer_in(reader, whom, question)

    # Uploads ---------------------------------------------------------------------------------------

    async def upload(self, exchange: HttpExchange) -> HttpAnswer:
        name = await self._services.collection(exchange, exchange.parameters["index"])
        key = check_key(exchange.parameters["key"])
        limit = self._config.upload_bytes_max
        waits = _truth(one(exchange, "wait", "false"), "wait")
        seconds = _seconds(one(exchange, "timeout", "30"), self._config.query_seconds_max)
        body = await read_body(exchange.receive, exchange.announced_bytes, limit, self._config.body_seconds_max)
        body = await unpacked(exchange, body, limit)
        place = UploadPlace.of(self._services.uploads_url, name, key)
        meta = await self._stored(place, key, body)
        event = await self._told(exchange, name, place, meta)
        await self._services.queue([event])
        doc_id = doc_id_of(event)
        if not waits:
            return json_answer({"docId": doc_id, "key": key, "status": "queued"}, 202)
        return json_answer(await self._searchable(name, event, key, seconds))

    async def _stored(self, place: UploadPlace, key: str, body: bytes) -> ObjectMeta:
        try:
            return await self._services.uploads.put(place.store_key, body)
        except InvalidInput as error:
            # Told by the key that it was given, and not by where uploads lie.
            raise InvalidInput(f"the key {key[:80]!r} cannot be used", error.why, "choose another key") from error

    async def _told(
        self, exchange: HttpExchange, name: CollectionName, place: UploadPlace, meta: ObjectMeta
    ) -> UploadNotification:
        """The notification of an upload: behind everything that the index has heard of the object."""
        seen = replace(meta, key=place.key)
        event = upload_of(name, place.bucket, seen, self._clock.now_ms())
        if (known := await self._entry(name, event)) is not None:
            event = upload_of(
                name,
                place.bucket,
                seen,
                self._clock.now_ms(),
                state=known.state,
                told=known.upload,
                reread=known.forgotten is not None,
            )
        kind = exchange.content_type if exchange.content_type != "application/octet-stream" else ""
        origin = NotificationMessage(b"", exchange.headers).origin
        return msgspec.structs.replace(
            event, content_type=kind or None, traceparent=origin.traceparent, source_id=origin.source_id
        )

    async def remove(self, exchange: HttpExchange) -> HttpAnswer:
        name = await self._services.collection(exchange, exchange.parameters["index"])
        key = check_key(exchange.parameters["key"])
        place = UploadPlace.of(self._services.uploads_url, name, key)
        entry = await self._entry(name, place.event(name))
        if entry is not None and not entry.state.tombstone:
            event = deletion(name, entry, self._clock.now_ms())
        elif await place.holds(key, self._services.uploads):
            # The job has not come to it yet, and finds both in the queue; or somebody had it forgotten.
            state = entry.state if entry else None
            event = deletion_at(name, place.bucket, place.key, self._clock.now_ms(), state)
        else:
            raise _unknown(key)
        await self._services.uploads.delete(place.store_key)
        await self._services.queue([event])
        return json_answer({"key": key, "status": "queued for removal"}, 202)

    async def _searchable(
        self, name: CollectionName, event: UploadNotification, key: str, seconds: float
    ) -> dict[str, Any]:
        """Look until the document is searchable, or set aside."""
        doc_id = doc_id_of(event)
        deadline = self._clock.monotonic() + seconds
        while self._clock.monotonic() < deadline:
            entry = await self._entry(name, event, fresh=True)
            report = entry.report if entry else None
            if entry and report and report.doc_id == doc_id and entry.pending is None:
                return {"docId": doc_id, "key": key, "status": str(report.status), "chunks": report.chunks}
            await self._clock.sleep(_LOOK_SECONDS)
        raise DeadlineExceeded(
            "the document is not searchable yet",
            f"it is queued as {key}, and {seconds:g} s have passed",
            "ask for it with GET on the same address; the page Jobs of the dashboard shows whether the index job runs",
        )

    # What became of them -----------------------------------------------------------------------------

    async def show(self, exchange: HttpExchange) -> HttpAnswer:
        name = await self._services.collection(exchange, exchange.parameters["index"])
        key = exchange.parameters["key"]
        place = UploadPlace.of(self._services.uploads_url, name, key)
        entry = await self._entry(name, place.event(name))
        is_unseen = entry is None or (entry.state.tombstone and entry.forgotten is None)
        if is_unseen and await place.holds(key, self._services.uploads):
            return json_answer({"key": key, "status": "queued", "docId": None})
        if entry is None:
            # One that came from a bucket, by the key that it has there.
            entry = find_entries(await self._entries(name), [key])[0]
        return json_answer(_described(entry, key))

    async def list(self, exchange: HttpExchange) -> HttpAnswer:
        name = await self._services.collection(exchange, exchange.parameters["index"])
        limit = _whole(one(exchange, "limit", "100"), 1, _ENTRIES_MAX, "limit")
        entries = await self._entries(name)
        own = UploadPlace.of(self._services.uploads_url, name, "")
        shown = [_described(entry, own.uploaded_key(entry)) for entry in entries[:limit]]
        return json_answer({"documents": shown, "total": len(entries)})

    # Shared ------------------------------------------------------------------------------------------

    async def _entries(self, name: CollectionName) -> Sequence[DocumentEntry]:
        registry = registry_name(name)
        try:
            reader = await self._services.index.reader()
            return await list_entries(await reader.collection(registry.tenant, registry.index, registry.model))
        except NotFound:
            return []

    async def _entry(self, name: CollectionName, event: Notification, *, fresh: bool = False) -> DocumentEntry | None:
        registry = registry_name(name)
        identity = object_key(event)
        try:
            reader = await self._services.index.reader()
            if fresh:
                reader.refresh()
            found = await reader.collection(registry.tenant, registry.index, registry.model)
            return (await entries_of(found, [identity])).get(identity)
        except NotFound:
            return None


def _question(asked: SearchBody) -> Question:
    words = asked.query.strip()
    if not words or len(words) > _WORDS_MAX:
        raise InvalidInput("the query cannot be used", f"it has {len(words):,} characters", f"send 1 to {_WORDS_MAX:,}")
    if asked.mode not in _MODES:
        raise InvalidInput(f"mode {asked.mode[:40]!r}", "there is no such mode", f"use {', '.join(_MODES)}")
    if not 1 <= asked.count <= _COUNT_MAX:
        raise InvalidInput(f"count {asked.count}", f"it is between 1 and {_COUNT_MAX}")
    if not 0 <= asked.context <= _CONTEXT_MAX:
        raise InvalidInput(f"context {asked.context}", f"it is between 0 and {_CONTEXT_MAX}")
    if asked.per_document is not None and not 1 <= asked.per_document <= _COUNT_MAX:
        raise InvalidInput(f"per_document {asked.per_document}", f"it is between 1 and {_COUNT_MAX}")
    where = parse_filter(asked.filter) if asked.filter is not None else None
    return Question(
        words,
        asked.count,
        where,
        asked.mode,
        asked.min_score,
        asked.context,
        asked.per_document,
        facets=asked.facets,
    )


def _described(entry: DocumentEntry, key: str) -> dict[str, Any]:
    report = entry.report
    status = "removed" if entry.state.tombstone else str(report.status) if report else "queued"
    told: dict[str, Any] = {"key": key, "status": "indexing" if entry.pending else status, "docId": entry.current}
    if report is not None:
        told |= {"chunks": report.chunks, "reason": report.reason, "warnings": list(report.warnings)}
    return told


def _seconds(text: str, longest: float) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= longest:
        raise InvalidInput(f"timeout {text[:40]!r}", f"it is a number of seconds above 0, up to {longest:g}")
    return seconds


def _truth(text: str, name: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidInput(f"{name} {text[:40]!r}", "it is true or false")
    return text == "true"


def _whole(text: str, low: int, high: int, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        raise InvalidInput(f"{name} {text[:40]!r}", f"it is a whole number between {low} and {high}")
    return int(text)


def _unknown(key: str) -> NotFound:
    return NotFound(f"there is no document {key[:200]!r}", "nothing was uploaded under this key")
