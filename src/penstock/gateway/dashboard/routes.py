"""The pages of the dashboard as endpoints. Everything is rendered here; scripts only refresh and plot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.errors import InvalidInput, NotFound, PenstockError
from penstock.gateway.access.tokens import Principal, Scope
from penstock.gateway.config import GatewayConfig
from penstock.gateway.dashboard.pages import html_page, static_file
from penstock.gateway.dashboard.sessions import Sessions
from penstock.gateway.dashboard.views import HouseView, Section, Stage, StageState, verdict
from penstock.gateway.http.bodies import read_body
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, form_of
from penstock.gateway.http.refusals import Refusal
from penstock.gateway.http.routing import Route

__all__ = ["DashboardRoutes"]

_TAG: Final = "dashboard"
_FORM_BYTES_MAX: Final = 256 * 1024
_HTML: Final = ("text/html",)

# A search of the dashboard: the words, the index, and the tenant, to hits as `POST /v1/search` gives them.
SearchPassages = Callable[[str, str, str], Awaitable[list[dict[str, Any]]]]
# A query of SQL: the text and the tenant, to columns and rows of text.
AskSql = Callable[[str, str], Awaitable[tuple[list[str], list[list[str]]]]]


class DashboardRoutes:
    """`authenticate` tells whose token it is; without tokens there is nobody to log in."""

    def __init__(
        self,
        view: HouseView,
        config: GatewayConfig,
        sessions: Sessions,
        *,
        authenticate: Callable[[HttpExchange, str], Principal],
        search: SearchPassages | None = None,
        sql: AskSql | None = None,
        has_series: bool = False,
    ) -> None:
        self._view, self._config, self._sessions = view, config, sessions
        self._authenticate, self._search, self._sql = authenticate, search, sql
        optional = [("search", "Search", search), ("metrics", "Metrics", has_series), ("sql", "SQL", sql)]
        self._pages = [("", "Overview"), *view.pages, *[(name, title) for name, title, there in optional if there]]

    def endpoints(self) -> list[Route]:
        def page(path: str, handler: Any, summary: str, method: str = "GET") -> Route:
            return Route(method, path, Scope.READ, handler, summary, self._refused, gives=_HTML, tag=_TAG)

        found = [
            page("/", self.overview, "Show whether anything is lost or late."),
            page("/ui/path", self.path, "Show the stages alone."),
            page("/ui/page/{name}", self.page, "Show a part."),
            Route("GET", "/ui/static/{name}", None, self.static, "Get a file.", gives=("text/css",), tag=_TAG),
        ]
        if self._search:
            found.append(page("/ui/search", self.search, "Search passages."))
        if any(name == "metrics" for name, _ in self._pages):
            found.append(page("/ui/metrics", self.metrics, "Explore metrics."))
        if self._sql:
            found += [page("/ui/sql", self.sql, "Ask SQL."), page("/ui/sql", self.ask_sql, "Ask SQL.", "POST")]
        if self._config.tokens is not None:
            found += [
                Route("GET", "/login", None, self.login_page, "Show the login form.", gives=_HTML, tag=_TAG),
                Route("POST", "/login", None, self.login, "Begin a session.", gives=_HTML, tag=_TAG),
                Route("POST", "/logout", Scope.READ, self.logout, "End a session.", gives=_HTML, tag=_TAG),
            ]
        return found

    # Overview and parts ------------------------------------------------------------------------------

    async def overview(self, exchange: HttpExchange) -> HttpAnswer:
        return self._page(exchange, "overview.html", "", "Overview", **await self._stages(exchange))

    async def path(self, exchange: HttpExchange) -> HttpAnswer:
        return html_page("path.html", **await self._stages(exchange))

    async def page(self, exchange: HttpExchange) -> HttpAnswer:
        name = exchange.parameters["name"]
        title = dict(self._view.pages).get(name)
        if title is None:
            raise NotFound(f"there is no page {name[:80]!r}")
        try:
            sections = await self._view.page(name, exchange.principal.tenant)
        except NotFound:
            raise
        except PenstockError as error:
            sections = [Section(title, error=str(error))]
        return self._page(exchange, "page.html", name, title, sections=sections)

    async def _stages(self, exchange: HttpExchange) -> dict[str, Any]:
        try:
            stages = await self._view.stages(exchange.principal.tenant)
        except PenstockError as error:
            stages = [Stage("Penstock", StageState.DOWN, error=str(error))]
        state, line = verdict(stages)
        return {"stages": stages, "state": state, "verdict": line}

    # Asking ------------------------------------------------------------------------------------------

    async def search(self, exchange: HttpExchange) -> HttpAnswer:
        query = exchange.query()
        words, index = query.get("q", [""])[0], query.get("index", ["default"])[0]
        hits: list[dict[str, Any]] = []
        problem = ""
        if words.strip():
            assert self._search is not None
            try:
                hits = await self._search(words, index, exchange.principal.tenant)
            except PenstockError as error:
                problem = str(error)
        given: dict[str, Any] = {"words": words, "index": index, "hits": hits, "problem": problem}
        return self._page(exchange, "search.html", "search", "Search", **given)

    async def metrics(self, exchange: HttpExchange) -> HttpAnswer:
        query = exchange.query()
        hours = query.get("hours", ["1"])[0]
        given: dict[str, Any] = {
            "query": query.get("query", [""])[0],
            "hours": hours if hours in ("1", "6", "24", "168") else "1",
        }
        return self._page(exchange, "metrics.html", "metrics", "Metrics", **given)

    async def sql(self, exchange: HttpExchange) -> HttpAnswer:
        return self._page(exchange, "sql.html", "sql", "SQL", statement="", columns=[], rows=[], problem="")

    async def ask_sql(self, exchange: HttpExchange) -> HttpAnswer:
        form = await self._form(exchange)
        self._check_form(exchange, form)
        statement = form.get("statement", "")
        columns: list[str] = []
        rows: list[list[str]] = []
        problem = ""
        assert self._sql is not None
        try:
            columns, rows = await self._sql(statement, exchange.principal.tenant)
        except PenstockError as error:
            problem = str(error)
        given: dict[str, Any] = {"statement": statement, "columns": columns, "rows": rows, "problem": problem}
        return self._page(exchange, "sql.html", "sql", "SQL", **given)

    # Sessions ----------------------------------------------------------------------------------------

    async def login_page(self, exchange: HttpExchange) -> HttpAnswer:
        return self._page(exchange, "login.html", "login", "Log in", problem="")

    async def login(self, exchange: HttpExchange) -> HttpAnswer:
        token = (await self._form(exchange)).get("token", "").strip()
        try:
            principal = self._authenticate(exchange, token)
        except PenstockError as error:
            return self._page(exchange, "login.html", "login", "Log in", status=401, problem=str(error))
        return HttpAnswer(status=303, headers={"location": "/", "set-cookie": self._sessions.begin(principal)})

    async def logout(self, exchange: HttpExchange) -> HttpAnswer:
        self._check_form(exchange, await self._form(exchange))
        return HttpAnswer(status=303, headers={"location": "/login", "set-cookie": self._sessions.end()})

    # Shared ------------------------------------------------------------------------------------------

    async def static(self, exchange: HttpExchange) -> HttpAnswer:
        found = static_file(exchange.parameters["name"])
        if found is None:
            raise NotFound("there is no such file")
        return found

    def _page(
        self, exchange: HttpExchange, template: str, name: str, title: str, status: int = 200, **given: Any
    ) -> HttpAnswer:
        session = exchange.headers.get("cookie")
        frame = {
            "title": title,
            "current": name,
            "pages": self._pages if template != "login.html" else [],
            "tenant": exchange.principal.tenant,
            "form_secret": self._sessions.form_secret(session),
        }
        return html_page(template, status, **frame, **given)

    async def _form(self, exchange: HttpExchange) -> dict[str, str]:
        body = await read_body(
            exchange.receive, exchange.announced_bytes, _FORM_BYTES_MAX, self._config.body_seconds_max
        )
        return {name: values[-1] for name, values in form_of(body).items()}

    def _check_form(self, exchange: HttpExchange, form: dict[str, str]) -> None:
        """A form of a session must carry the session's second secret."""
        cookie = exchange.headers.get("cookie")
        by_session = self._config.tokens is not None and "authorization" not in exchange.headers
        if by_session and not self._sessions.is_own_form(cookie, form.get("form_secret", "")):
            raise InvalidInput("the form cannot be taken", "it was not made by this session", "load the page again")

    def _refused(self, exchange: HttpExchange, refusal: Refusal) -> HttpAnswer:
        """An error as a page; whoever is not known is sent to the login."""
        if refusal.status == 401:
            return HttpAnswer(status=303, headers={"location": "/login"})
        return self._page(exchange, "error.html", "", "Not possible", status=refusal.status, refusal=refusal)
