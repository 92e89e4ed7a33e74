"""The Prometheus HTTP API over the series of the token's tenant: what Grafana and `promtool` ask.

Answers have Prometheus' own shape, errors included: `status`, `errorType` and `error`. Times are seconds or RFC 3339,
steps seconds or durations. Queries run in threads, so that a slow one keeps nobody from ingesting.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput, Unsupported
from penstock.gateway.access.tokens import Scope
from penstock.gateway.config import GatewayConfig
from penstock.gateway.http.bodies import read_body
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, form_of, json_answer
from penstock.gateway.http.refusals import Refusal
from penstock.gateway.http.routing import Handler, Route
from penstock.timeseries import Matcher
from penstock.timeseries.promql import (
    QueryResult,
    SyntaxProblem,
    parse_duration_text,
    parse_selector_text,
    syntax_json,
)

__all__ = ["PromSource", "PrometheusRoutes", "prometheus_refusal"]

_FORM: Final = "application/x-www-form-urlencoded"
_FORM_BYTES_MAX: Final = 1 << 20
_TIME_SECONDS_MAX: Final = 2**53 / 1000
_LIMIT_MAX: Final = 1_000_000
# Rows of each table of `status/tsdb` unless a limit is given.
_CARDINALITY_ROWS: Final = 10
_TAG: Final = "prometheus"
# Quoted text, which is kept as it is, or what is between words: spaces, and comments until the end of their line.
_BETWEEN_WORDS: Final = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)|(?:\s|\#[^\n]*)+""", re.DOTALL)
_ERROR_TYPES: Final = {
    400: "bad_data",
    404: "not_found",
    408: "timeout",
    422: "execution",
    429: "too_many_requests",
    503: "unavailable",
}
# What a Prometheus that scrapes and alerts has besides. Clients that ask for it hear that there is none of it here.
_NOTHING: Final[tuple[tuple[str, Any, str], ...]] = (
    ("rules", {"groups": []}, "List rules: there are none."),
    ("alerts", {"alerts": []}, "List alerts: there are none."),
    ("targets", {"activeTargets": [], "droppedTargets": []}, "List scraped targets: there are none."),
    ("targets/metadata", [], "List metadata of scraped targets: there are none."),
    (
        "alertmanagers",
        {"activeAlertmanagers": [], "droppedAlertmanagers": []},
        "List Alertmanagers: there are none.",
    ),
    ("status/flags", {}, "List flags of the command line: none are shown."),
    ("status/config", {"yaml": ""}, "Show the configuration: none is shown."),
)


class PromSource(Protocol):
    """The series that are asked, by tenant. Times are milliseconds, both ends included."""

    async def query(self, tenant: str, expression: str, time_ms: int) -> QueryResult: ...

    async def query_range(
        self, tenant: str, expression: str, start_ms: int, end_ms: int, step_ms: int
    ) -> QueryResult: ...

    async def series(
        self, tenant: str, selectors: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int, limit: int
    ) -> Sequence[Mapping[str, str]]: ...

    async def label_names(
        self, tenant: str, selectors: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int
    ) -> list[str]: ...

    async def label_values(
        self, tenant: str, name: str, selectors: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int
    ) -> list[str]: ...

    async def metadata(self, tenant: str, metric: str | None) -> Mapping[str, Sequence[Mapping[str, str]]]: ...

    async def cardinality(self, tenant: str, rows: int) -> Mapping[str, Any]:
        """The `data` of `status/tsdb`, with so many rows a table."""
        ...


class PrometheusRoutes:
    """The handlers, as endpoints."""

    def __init__(self, queries: PromSource, config: GatewayConfig, version: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._queries, self._config, self._version, self._clock = queries, config, version, clock

    def endpoints(self) -> list[Route]:
        routes = (
            (
                "query",
                self.query,
                "Evaluate an expression at one time.",
                ("query", "time", "timeout", "limit", "stats"),
            ),
            (
                "query_range",
                self.query_range,
                "Evaluate an expression over a range.",
                ("query", "start", "end", "step", "timeout", "limit", "stats"),
            ),
            ("series", self.series, "List series.", ("match[]", "start", "end", "limit")),
            ("labels", self.labels, "List label names.", ("match[]", "start", "end", "limit")),
            ("parse_query", self.parse_query, "Show the syntax tree of an expression.", ("query",)),
            ("format_query", self.format_query, "Check an expression.", ("query",)),
            ("query_exemplars", self.exemplars, "List exemplars.", ("query", "start", "end")),
        )
        found = [
            Route(
                method,
                f"/api/v1/{name}",
                Scope.READ,
                handler,
                summary,
                prometheus_refusal,
                takes=(_FORM,) if method == "POST" else (),
                query=query,
                tag=_TAG,
                errors="PrometheusError",
            )
            for name, handler, summary, query in routes
            for method in ("GET", "POST")
        ]
        fixed = (
            ("label/{name}/values", self.label_values, "List the values of a label.", ("match[]", "start", "end")),
            ("metadata", self.metadata, "List types, help and units of metrics.", ("metric", "limit")),
            ("status/buildinfo", self.buildinfo, "Show the version.", ()),
            ("status/tsdb", self.cardinality, "Show cardinality.", ("limit",)),
            *((name, _always(data), summary, ()) for name, data, summary in _NOTHING),
        )
        return found + [
            Route(
                "GET",
                f"/api/v1/{name}",
                Scope.READ,
                handler,
                summary,
                prometheus_refusal,
                query=query,
                tag=_TAG,
                errors="PrometheusError",
            )
            for name, handler, summary, query in fixed
        ]

    # Queries -----------------------------------------------------------------------------------------

    async def query(self, exchange: HttpExchange) -> HttpAnswer:
        form = await self._form(exchange)
        expression = _needed(form, "query")
        time_ms = _time(form, "time", self._clock.now_ms())
        seconds = self._seconds(form)
        began = self._clock.monotonic()
        with _evaluating():
            async with asyncio.timeout(seconds):
                result = await self._queries.query(exchange.principal.tenant, expression, time_ms)
        return _result(result, form, self._clock.monotonic() - began)

    async def query_range(self, exchange: HttpExchange) -> HttpAnswer:
        form = await self._form(exchange)
        expression = _needed(form, "query")
        start_ms, end_ms = _time(form, "start", None), _time(form, "end", None)
        step_ms = _duration("step", _needed(form, "step"))
        _check_order(start_ms, end_ms)
        seconds = self._seconds(form)
        began = self._clock.monotonic()
        with _evaluating():
            async with asyncio.timeout(seconds):
                result = await self._queries.query_range(
                    exchange.principal.tenant, expression, start_ms, end_ms, step_ms
                )
        return _result(result, form, self._clock.monotonic() - began)

    async def parse_query(self, exchange: HttpExchange) -> HttpAnswer:
        return _success(syntax_json(_needed(await self._form(exchange), "query")))

    async def format_query(self, exchange: HttpExchange) -> HttpAnswer:
        expression = _needed(await self._form(exchange), "query")
        syntax_json(expression)
        return _success(_BETWEEN_WORDS.sub(lambda found: found[1] or " ", expression).strip())

    # Series and labels -------------------------------------------------------------------------------

    async def series(self, exchange: HttpExchange) -> HttpAnswer:
        form = await self._form(exchange)
        selectors = _selectors(form)
        if not selectors:
            raise InvalidInput("no match[] parameter provided", "", "give at least one selector")
        limit = _limit(form)
        start_ms, end_ms = self._times(form)
        async with self._in_time():
            found = await self._queries.series(exchange.principal.tenant, selectors, start_ms, end_ms, limit)
        return _limited([dict(labels) for labels in found], limit)

    async def labels(self, exchange: HttpExchange) -> HttpAnswer:
        form = await self._form(exchange)
        start_ms, end_ms = self._times(form)
        selectors = _selectors(form)
        async with self._in_time():
            found = await self._queries.label_names(exchange.principal.tenant, selectors, start_ms, end_ms)
        return _limited(found, _limit(form))

    async def label_values(self, exchange: HttpExchange) -> HttpAnswer:
        form = exchange.query()
        start_ms, end_ms = self._times(form)
        name = _label_name(exchange.parameters["name"])
        tenant, selectors = exchange.principal.tenant, _selectors(form)
        async with self._in_time():
            found = await self._queries.label_values(tenant, name, selectors, start_ms, end_ms)
        return _limited(found, _limit(form))

    async def metadata(self, exchange: HttpExchange) -> HttpAnswer:
        form = exchange.query()
        limit = _limit(form)
        async with self._in_time():
            found = await self._queries.metadata(exchange.principal.tenant, form.get("metric", [None])[0])
        return _success({name: list(found[name]) for name in list(found)[:limit]})

    # About this server -------------------------------------------------------------------------------

    async def buildinfo(self, _exchange: HttpExchange) -> HttpAnswer:
        # Grafana chooses what it asks by the version of the Prometheus that it believes to talk to.
        return _success(
            {
                "version": "3.0.0",
                "revision": self._version,
                "branch": "penstock",
                "buildUser": "",
                "buildDate": "",
                "goVersion": "",
            }
        )

    async def cardinality(self, exchange: HttpExchange) -> HttpAnswer:
        rows = _limit(exchange.query(), _CARDINALITY_ROWS)
        async with self._in_time():
            return _success(dict(await self._queries.cardinality(exchange.principal.tenant, rows)))

    async def exemplars(self, exchange: HttpExchange) -> HttpAnswer:
        """None are kept in series; those of metrics are in the table of that name."""
        form = await self._form(exchange)
        syntax_json(_needed(form, "query"))
        _check_order(*self._times(form))
        return _success([])

    # Parameters --------------------------------------------------------------------------------------

    async def _form(self, exchange: HttpExchange) -> dict[str, list[str]]:
        """Of the URL, and of the body of a POST."""
        form = exchange.query()
        if exchange.method == "POST":
            if exchange.content_type not in ("", _FORM):
                raise InvalidInput(
                    f"the content type {exchange.content_type[:80]!r} cannot be read", "", f"use {_FORM}"
                )
            limit = min(_FORM_BYTES_MAX, self._config.body_bytes_max)
            body = await read_body(exchange.receive, exchange.announced_bytes, limit, self._config.body_seconds_max)
            for name, values in form_of(body).items():
                form.setdefault(name, []).extend(values)
        return form

    def _times(self, form: Mapping[str, Sequence[str]]) -> tuple[int, int]:
        """Without a start or an end, everything up to now or from the beginning."""
        low, high = -(2**53), 2**53
        return _time(form, "start", low), _time(form, "end", high)

    def _in_time(self) -> asyncio.Timeout:
        return asyncio.timeout(self._config.query_seconds_max)

    def _seconds(self, form: Mapping[str, Sequence[str]]) -> float:
        longest = self._config.query_seconds_max
        if not form.get("timeout"):
            return longest
        return min(longest, _duration("timeout", form["timeout"][0]) / 1000)


def prometheus_refusal(_exchange: HttpExchange, refusal: Refusal) -> HttpAnswer:
    """An error as Prometheus words it. What a query cannot do is 422, a parameter that cannot be read 400."""
    status = 422 if refusal.error in ("AtCapacity", "Unsupported") else refusal.status
    kind = _ERROR_TYPES.get(status, "internal" if status >= 500 else "bad_data")
    body = {"status": "error", "errorType": kind, "error": str(refusal)}
    return json_answer(body, status, refusal.headers)


@contextmanager
def _evaluating() -> Iterator[None]:
    """An expression that can be read, and asks for what cannot be done, is told apart from one that cannot be read."""
    try:
        yield
    except SyntaxProblem:
        raise
    except InvalidInput as error:
        raise Unsupported(error.what, error.why, error.remedy) from error


def _result(result: QueryResult, form: Mapping[str, Sequence[str]], seconds: float) -> HttpAnswer:
    answer = result.to_json()
    limit = _limit(form)
    found = answer["data"]["result"]
    if answer["data"]["resultType"] in ("vector", "matrix") and len(found) > limit:
        answer["data"]["result"] = found[:limit]
        answer.setdefault("warnings", []).append("results truncated due to limit")
    if asked := form.get("stats", [""])[0]:
        answer["data"]["stats"] = _statistics(result, asked, seconds)
    return json_answer(answer)


def _statistics(result: QueryResult, asked: str, seconds: float) -> dict[str, Any]:
    """With the counts of each step for `all`, as Prometheus with its feature of that name.

    Samples are loaded before the evaluation, and a query waits for nothing else first; the result is sorted within it.
    """
    stats = result.stats
    inner = min(stats.evaluation_seconds, seconds) if stats else 0.0
    found: dict[str, Any] = {
        "timings": {
            "evalTotalTime": seconds,
            "resultSortTime": 0,
            "queryPreparationTime": seconds - inner,
            "innerEvalTime": inner,
            "execQueueTime": 0,
            "execTotalTime": seconds,
        }
    }
    if stats:
        found["samples"] = stats.json_samples(per_step=asked == "all")
    return found


def _success(data: Any) -> HttpAnswer:
    return json_answer({"status": "success", "data": data})


def _always(data: Any) -> Handler:
    async def answer(_exchange: HttpExchange) -> HttpAnswer:
        return _success(data)

    return answer


def _limited(found: Sequence[Any], limit: int) -> HttpAnswer:
    answer: dict[str, Any] = {"status": "success", "data": list(found[:limit])}
    if len(found) > limit:
        answer["warnings"] = ["results truncated due to limit"]
    return json_answer(answer)


def _needed(form: Mapping[str, Sequence[str]], name: str) -> str:
    values = form.get(name)
    if not values or not values[0]:
        raise InvalidInput(f'invalid parameter "{name}"', "it is missing")
    return values[0]


def _time(form: Mapping[str, Sequence[str]], name: str, default: int | None) -> int:
    """A time in milliseconds, of seconds or of RFC 3339."""
    text = form.get(name, [""])[0]
    if not text:
        if default is None:
            raise InvalidInput(f'invalid parameter "{name}"', "it is missing")
        return default
    try:
        seconds = float(text)
    except ValueError:
        return _instant(name, text)
    if not math.isfinite(seconds) or abs(seconds) > _TIME_SECONDS_MAX:
        raise InvalidInput(f'invalid parameter "{name}"', f"cannot parse {text[:40]!r} to a valid timestamp")
    return round(seconds * 1000)


def _instant(name: str, text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return round(at.timestamp() * 1000)
    except (ValueError, OverflowError):
        why = f"cannot parse {text[:40]!r} to a valid timestamp"
        raise InvalidInput(f'invalid parameter "{name}"', why) from None


def _check_order(start_ms: int, end_ms: int) -> None:
    if end_ms < start_ms:
        raise InvalidInput('invalid parameter "end"', "end timestamp must not be before start time")


def _duration(name: str, text: str) -> int:
    """A duration in milliseconds, of seconds or as PromQL writes it."""
    try:
        seconds: float | None = float(text)
    except ValueError:
        seconds = parse_duration_text(text)
    if seconds is None or not math.isfinite(seconds) or not 0 < seconds * 1000 <= 2**53:
        raise InvalidInput(f'invalid parameter "{name}"', f"{text[:40]!r} is not a duration above zero")
    return max(1, round(seconds * 1000))


def _limit(form: Mapping[str, Sequence[str]], default: int = _LIMIT_MAX) -> int:
    text = form.get("limit", ["0"])[0]
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise InvalidInput('invalid parameter "limit"', f"{text[:40]!r} is not a whole number")
    return int(text) or default


def _selectors(form: Mapping[str, Sequence[str]]) -> list[Sequence[Matcher]]:
    return [parse_selector_text(text) for text in form.get("match[]", [])]


def _label_name(text: str) -> str:
    """Names beyond ASCII come as `U__`, with an underscore and the code for every other character."""
    if not text.startswith("U__"):
        return text
    out: list[str] = []
    rest = text.removeprefix("U__")
    while rest:
        head, mark, tail = rest.partition("_")
        out.append(head)
        if not mark:
            break
        if tail.startswith("_"):
            out.append("_")
            rest = tail[1:]
            continue
        code, closed, rest = tail.partition("_")
        try:
            out.append(chr(int(code, 16)) if closed and len(code) <= 6 else "")
        except (ValueError, OverflowError):
            raise InvalidInput(f"the label name {text[:80]!r} cannot be read", "an escape is broken") from None
    return "".join(out)
