"""The table of routes: which handler answers a method and a path, and which scope it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

from penstock.errors import InvalidInput, NotFound, PenstockError
from penstock.gateway.access.tokens import Scope
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, json_answer
from penstock.gateway.http.refusals import Refusal

__all__ = ["Handler", "MethodNotAllowed", "Refuse", "Route", "Routes", "json_refusal"]

Handler: TypeAlias = Callable[[HttpExchange], Awaitable[HttpAnswer]]
Refuse: TypeAlias = Callable[[HttpExchange, Refusal], HttpAnswer]

# The last parameter of a path may hold slashes.
_REST: Final = ":path"


def json_refusal(_exchange: HttpExchange, refusal: Refusal) -> HttpAnswer:
    return json_answer(refusal.body(), refusal.status, refusal.headers)


class MethodNotAllowed(PenstockError):
    """The path exists, for other methods."""

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allowed = tuple(sorted(allowed))
        super().__init__(f"{method} is not allowed here", "", f"use {', '.join(self.allowed)}")


@dataclass(frozen=True, slots=True)
class Route:
    """One route. `scope` None is open to everybody; `refuse` lays out errors as its clients expect them."""

    method: str
    # Parts in braces are parameters; a last one `{name:path}` takes the rest.
    path: str
    scope: Scope | None
    handler: Handler
    summary: str
    refuse: Refuse = json_refusal
    # Media types of the body, for the description of the API; empty when it has none.
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ("application/json",)
    # The schema of a JSON body.
    body: Mapping[str, Any] = field(default_factory=dict)
    # The schema of its errors in the description: `Error`, `OtlpStatus` or `PrometheusError`.
    errors: str = "Error"
    # Names of query parameters.
    query: tuple[str, ...] = ()
    tag: str = "api"
    # Whether it adds to what its tenant keeps.
    stores: bool = False
    # Whether every answer of it is noted, though it is not for administrators alone.
    audited: bool = False
    # Whether it tells a supervisor that the process works: no quota is asked, so that nobody can use up the answers.
    probe: bool = False
    # Whether a request proves who sent it in another way than by a token; its handler then finds out.
    proves_itself: Callable[[HttpExchange], bool] | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(part[1:-1].removesuffix(_REST) for part in self.path.split("/") if part.startswith("{"))


class Routes:
    """Finds the endpoint of a request; paths without parameters by one look-up."""

    def __init__(self, endpoints: Iterable[Route]) -> None:
        self.endpoints = tuple(endpoints)
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[list[str], Route]] = []
        for endpoint in self.endpoints:
            if endpoint.parameters:
                self._patterns.append((endpoint.path.split("/"), endpoint))
            else:
                methods = self._fixed.setdefault(endpoint.path, {})
                assert endpoint.method not in methods, f"{endpoint.method} {endpoint.path} is there twice"
                methods[endpoint.method] = endpoint

    def find(self, exchange: HttpExchange) -> Route:
        """The endpoint, with the path's parameters noted in the exchange."""
        method = "GET" if exchange.method == "HEAD" else exchange.method
        by_method = self._fixed.get(exchange.path) or self._matched(exchange)
        if not by_method:
            raise NotFound(f"there is nothing at {exchange.path[:200]}", "", "see /openapi.json for all routes")
        if method not in by_method:
            raise MethodNotAllowed(method, by_method)
        return by_method[method]

    def _matched(self, exchange: HttpExchange) -> dict[str, Route]:
        # Before percent-decoding, so that an encoded slash stays inside its part.
        raw = exchange.scope.get("raw_path") or exchange.path.encode()
        parts = raw.partition(b"?")[0].decode("latin-1").split("/")
        found: dict[str, Route] = {}
        for pattern, endpoint in self._patterns:
            values = _match(pattern, parts)
            if values is not None:
                exchange.parameters.update(values)
                found[endpoint.method] = endpoint
        return found


def _match(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    takes_rest = pattern[-1].endswith(f"{_REST}}}")
    if len(parts) < len(pattern) or (len(parts) > len(pattern) and not takes_rest):
        return None
    values: dict[str, str] = {}
    for number, expected in enumerate(pattern):
        if not expected.startswith("{"):
            if parts[number] != expected:
                return None
            continue
        name = expected[1:-1].removesuffix(_REST)
        last = takes_rest and number == len(pattern) - 1
        values[name] = _decoded("/".join(parts[number:]) if last else parts[number])
    return values if all(values.values()) else None


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"the path segment {text[:80]!r} is not UTF-8") from None
