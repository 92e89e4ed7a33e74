"""The gateway as an ASGI application: a guard, a table of routes, and errors turned into answers.

A handler gets an `HttpExchange` with its principal set and gives an `HttpAnswer`. Nothing that a request holds can raise past
this module: an error of the house becomes its status, anything else a 500 whose text stays in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import PenstockError
from penstock.gateway.access.tokens import Scope, TokenBook
from penstock.gateway.config import GatewayConfig
from penstock.gateway.http.bodies import Disconnected, Receive
from penstock.gateway.http.exchange import AsgiScope, HttpAnswer, HttpExchange, Send
from penstock.gateway.http.guard import Guard
from penstock.gateway.http.refusals import Refusal, refusal_of
from penstock.gateway.http.routing import MethodNotAllowed, Refuse, Route, Routes, json_refusal
from penstock.observability import SILENT, Observer, names

__all__ = ["Gateway"]

_SECURITY_HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
]
_NO_ROUTE: Final = "none"


class Gateway:
    """`endpoints` are its routes; `book` returns the current tokens, or None to trust this machine."""

    def __init__(
        self,
        endpoints: Iterable[Route],
        config: GatewayConfig | None = None,
        book: Callable[[], TokenBook | None] = lambda: None,
        *,
        guard: Guard | None = None,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self.config = config or GatewayConfig()
        self.routes = Routes(endpoints)
        self.guard = guard or Guard(self.config, book, clock)
        self._clock, self._observer = clock, observer

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _http(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        exchange = HttpExchange(scope, receive)
        # A request is under way until its answer is read: until then the answer is held.
        with ExitStack() as under_way:
            answer = await self._answer(exchange, under_way)
            if answer is not None:
                await answer.send(_with_headers(send, exchange.method == "HEAD"))

    async def _answer(self, exchange: HttpExchange, under_way: ExitStack) -> HttpAnswer | None:
        """None for a client that went away."""
        began = self._clock.monotonic()
        route = _NO_ROUTE
        refuse: Refuse = json_refusal
        is_audited = False
        try:
            endpoint = self.routes.find(exchange)
            # Supervisors ask an address for its health, whatever the hosts are called.
            if not endpoint.probe:
                self.guard.check_site(exchange)
            route, refuse = endpoint.path, endpoint.refuse
            is_audited = endpoint.audited or endpoint.scope is Scope.ADMIN
            proves = endpoint.proves_itself is not None and endpoint.proves_itself(exchange)
            exchange.principal = self.guard.principal(exchange, None if proves else endpoint.scope)
            if endpoint.probe:
                answer = await endpoint.handler(exchange)
            else:
                lease = under_way.enter_context(self.guard.admitted(exchange, stores=endpoint.stores))
                answer = await endpoint.handler(exchange)
                lease.give_back()
                lease.take(len(answer.body))
        except Disconnected:
            return None
        except MethodNotAllowed as error:
            refusal = Refusal(405, "MethodNotAllowed", error.what, error.why, error.remedy)
            answer = json_refusal(exchange, refusal)
            answer = HttpAnswer(answer.body, 405, headers={"allow": ", ".join(error.allowed)})
        except Exception as error:  # noqa: BLE001 - every request is answered, whatever is raised
            answer = refuse(exchange, self._refusal(error, route))
        seconds = self._clock.monotonic() - began
        self._observer.observe(names.GATEWAY_REQUEST_SECONDS, seconds, route=route)
        self._observer.count(names.GATEWAY_REQUESTS, route=route, status=str(answer.status))
        if is_audited:
            whose = {"tenant": exchange.principal.tenant, "token": exchange.principal.token_id or "none"}
            asked = {"method": exchange.method, "route": route, "address": self.guard.address(exchange)}
            self._observer.event(names.GATEWAY_AUDIT, status=answer.status, **asked, **whose)
        return answer

    def _refusal(self, error: Exception, route: str) -> Refusal:
        refusal = refusal_of(error)
        if refusal.is_hidden or (refusal.status >= 500 and not refusal.is_transient):
            told = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
            self._observer.event(names.GATEWAY_FAILED, route=route, error=told)
        return refusal


def _with_headers(send: Send, head: bool) -> Send:
    """Adds what every answer carries; the answer to HEAD has no body."""

    async def sending(message: AsgiScope) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message["headers"]}
            message["headers"] += [pair for pair in _SECURITY_HEADERS if pair[0] not in present]
        elif head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return sending


async def _live(receive: Receive, send: Send) -> None:
    """Whoever runs the gateway opens and closes what it stands on: the server's own life has nothing to do."""
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
