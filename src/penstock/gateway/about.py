"""What the gateway tells of itself: whether it lives, whether it is ready, its metrics, and its routes as OpenAPI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.gateway.access.tokens import Scope
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, json_answer
from penstock.gateway.http.routing import Route

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["AboutRoutes", "Probe", "openapi"]

# Raises what keeps a part from working.
Probe = Callable[[], Awaitable[None]]

_BEARER: Final = {"type": "http", "scheme": "bearer", "bearerFormat": "pst_<id>_<secret>"}
_ERROR: Final = {
    "type": "object",
    "required": ["error", "what"],
    "properties": {name: {"type": "string"} for name in ("error", "what", "why", "remedy")},
}
_PROMETHEUS_ERROR: Final = {
    "type": "object",
    "required": ["status", "errorType", "error"],
    "properties": {name: {"type": "string"} for name in ("status", "errorType", "error")},
}
_OTLP_STATUS: Final = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
}
_PAGE: Final = ("text/html",)
_PROBE_SECONDS_MAX: Final = 5.0
# For so long an answer about readiness is good.
_LOOK_SECONDS: Final = 1.0


class AboutRoutes:
    """`probes` check readiness, by the name of their part."""

    def __init__(
        self,
        version: str,
        probes: Mapping[str, Probe] | None = None,
        registry: CollectorRegistry | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._version, self._probes, self._registry = version, dict(probes or {}), registry
        self._described: dict[str, Any] = {}
        self._clock = clock
        # The last look at the parts, and when it began.
        self._look: tuple[float, asyncio.Task[list[bool]]] | None = None

    def endpoints(self, others: Iterable[Route]) -> list[Route]:
        own = [
            Route("GET", "/healthz", None, self.health, "Tell that the process lives.", tag="about", probe=True),
            Route("GET", "/readyz", None, self.ready, "Tell whether every part works.", tag="about", probe=True),
            Route("GET", "/openapi.json", None, self.openapi, "Describe the routes.", tag="about"),
        ]
        if self._registry is not None:
            text = ("text/plain",)
            own.append(Route("GET", "/metrics", Scope.ADMIN, self.metrics, "Show metrics.", gives=text, tag="about"))
        self._described = openapi([*others, *own], self._version)
        return own

    async def health(self, _exchange: HttpExchange) -> HttpAnswer:
        return json_answer({"status": "ok", "version": self._version})

    async def ready(self, _exchange: HttpExchange) -> HttpAnswer:
        """Names the parts that do not work, and not why: anybody may ask."""
        works = await asyncio.shield(self._looking())
        parts = dict(zip(self._probes, works, strict=True))
        status = 200 if all(parts.values()) else 503
        words = {name: "ok" if works else "not ready" for name, works in parts.items()}
        return json_answer({"status": "ok" if status == 200 else "not ready", "parts": words}, status)

    def _looking(self) -> asyncio.Task[list[bool]]:
        """Everybody who asks within a second shares one look: nobody is counted here, and stores cost requests."""
        now = self._clock.monotonic()
        if self._look is None or (self._look[1].done() and now - self._look[0] >= _LOOK_SECONDS):
            self._look = now, asyncio.ensure_future(self._looked())
        return self._look[1]

    async def _looked(self) -> list[bool]:
        return await asyncio.gather(*[_works(probe) for probe in self._probes.values()])

    async def openapi(self, _exchange: HttpExchange) -> HttpAnswer:
        return json_answer(self._described)

    async def metrics(self, _exchange: HttpExchange) -> HttpAnswer:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        assert self._registry is not None
        return HttpAnswer(generate_latest(self._registry), content_type=CONTENT_TYPE_LATEST)


async def _works(probe: Probe) -> bool:
    """Whoever asks must hear something soon: a part that hangs does not work."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS_MAX):
            await probe()
    except Exception:  # noqa: BLE001 - whatever it is, the part does not work
        return False
    return True


def openapi(endpoints: Sequence[Route], version: str) -> dict[str, Any]:
    """The routes as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = endpoint.path.replace(":path}", "}")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": _BEARER},
            "schemas": {"Error": _ERROR, "PrometheusError": _PROMETHEUS_ERROR, "OtlpStatus": _OTLP_STATUS},
        },
    }


def _operation(endpoint: Route) -> dict[str, Any]:
    text = {"type": "string"}
    parameters = [{"name": name, "in": "path", "required": True, "schema": text} for name in endpoint.parameters]
    parameters += [{"name": name, "in": "query", "schema": text} for name in endpoint.query]
    answered = {"description": "Success.", "content": {kind: {} for kind in endpoint.gives}}
    refused = _refused(endpoint)
    name = f"{endpoint.method} {endpoint.path}".lower()
    operation: dict[str, Any] = {
        "operationId": "".join(letter if letter.isalnum() else "_" for letter in name).strip("_"),
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "responses": {"2XX": answered, "4XX": refused, "5XX": refused},
    }
    if endpoint.gives == _PAGE:
        operation["responses"]["303"] = {"description": "The page to go to."}
    if parameters:
        operation["parameters"] = parameters
    if endpoint.takes:
        content = {kind: {"schema": dict(endpoint.body)} if endpoint.body else {} for kind in endpoint.takes}
        operation["requestBody"] = {"required": True, "content": content}
    if endpoint.scope is not None:
        operation["security"] = [{"token": [str(endpoint.scope)]}]
    return operation


def _refused(endpoint: Route) -> dict[str, Any]:
    error: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{endpoint.errors}"}}}
    if endpoint.errors == "OtlpStatus":
        error["application/x-protobuf"] = {}
    if endpoint.gives == _PAGE:
        # Before a page is found, errors are JSON.
        error = {"text/html": {}, "application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": "An error.", "content": error}
