"""The pages of the dashboard as endpoints. Everything is rendered here; scripts only refresh and plot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from penstock.errors import InvalidInput, NotFound, PenstockError
from penstock.gateway.access.tokens import Principal, Scope
from penstock.gateway.config import GatewayConfig
from penstock.gateway.dashboard.metrics_page import ExploredSeries, MetricExplorer
from penstock.gateway.dashboard.pages import html_page, static_file
from penstock.gateway.dashboard.sessions import Sessions
from penstock.gateway.dashboard.views import DocumentChange, HouseView, Section, Stage, StageState, Viewer, verdict
from penstock.gateway.http.bodies import read_body
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, form_of
from penstock.gateway.http.refusals import Refusal, refusal_of
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
    """`authenticate` returns the owner of a token; without tokens there is no login."""

    def __init__(
        self,
        view: HouseView,
        config: GatewayConfig,
        sessions: Sessions,
        *,
        authenticate: Callable[[HttpExchange, str], Principal],
        search: SearchPassages | None = None,
        sql: AskSql | None = None,
        series: ExploredSeries | None = None,
    ) -> None:
        self._view, self._config, self._sessions = view, config, sessions
        self._authenticate, self._search, self._sql = authenticate, search, sql
        self._explorer = MetricExplorer(series, config.query_seconds_max) if series is not None else None

    def endpoints(self) -> list[Route]:
        def page(path: str, handler: Any, summary: str, method: str = "GET", scope: Scope = Scope.READ) -> Route:
            return Route(method, path, scope, handler, summary, self._refused, gives=_HTML, tag=_TAG)

        found = [
            page("/", self.overview, "Show whether anything is lost or late."),
            page("/ui/path", self.path, "Show the stages alone."),
            page("/ui/page/{name}", self.page, "Show a part."),
            page("/ui/events", self.events, "Show events."),
            page("/ui/events/new", self.new_events, "Show the events after a number."),
            replace(
                page("/ui/documents", self.change, "Retry or forget documents.", "POST", Scope.WRITE), audited=True
            ),
            Route("GET", "/ui/static/{name}", None, self.static, "Get a file.", gives=("text/css",), tag=_TAG),
        ]
        if self._search:
            found.append(page("/ui/search", self.search, "Search passages."))
        if self._explorer:
            found.append(page("/ui/metrics", self.metrics, "Explore metrics."))
        if self._sql:
            found += [page("/ui/sql", self.sql, "Ask SQL."), page("/ui/sql", self.ask_sql, "Ask SQL.", "POST")]
        if self._config.tokens is not None:
            found += [
                Route("GET", "/login", None, self.login_page, "Show the login form.", gives=_HTML, tag=_TAG),
                Route("POST", "/login", None, self.login, "Begin a session.", gives=_HTML, tag=_TAG, audited=True),
                Route(
                    "POST", "/logout", Scope.READ, self.logout, "End a session.", gives=_HTML, tag=_TAG, audited=True
                ),
            ]
        return found

    # Overview and parts ------------------------------------------------------------------------------

    async def overview(self, exchange: HttpExchange) -> HttpAnswer:
        return self._page(exchange, "overview.html", "/", "Overview", **await self._stages(exchange))

    async def path(self, exchange: HttpExchange) -> HttpAnswer:
        return html_page("path.html", **await self._stages(exchange))

    async def page(self, exchange: HttpExchange) -> HttpAnswer:
        name, viewer = exchange.parameters["name"], _viewer(exchange)
        link = next((one for one in self._view.pages if one.name == name), None)
        if link is None or (link.for_admin and not viewer.is_admin):
            raise NotFound(f"there is no page {name[:80]!r}")
        choice = {key: values[-1] for key, values in exchange.query().items()}
        try:
            sections = await self._view.page(name, viewer, choice)
        except PenstockError as error:
            sections = [Section(link.title, error=_problem(error, viewer))]
        notice = _notice(choice)
        return self._page(exchange, "page.html", f"/ui/page/{name}", link.title, sections=sections, notice=notice)

    async def _stages(self, exchange: HttpExchange) -> dict[str, Any]:
        try:
            stages = await self._view.stages(_viewer(exchange))
        except PenstockError as error:
            stages = [Stage("Penstock", StageState.DOWN, error=_problem(error, _viewer(exchange)))]
        state, line = verdict(stages)
        lanes: dict[str, list[Stage]] = {}
        for stage in stages:
            lanes.setdefault(stage.lane, []).append(stage)
        return {"lanes": lanes, "state": state, "verdict": line}

    # Events ------------------------------------------------------------------------------------------

    async def events(self, exchange: HttpExchange) -> HttpAnswer:
        found = await self._view.events(_viewer(exchange), 0)
        return self._page(exchange, "events.html", "/ui/events", "Events", events=found, last=_last(found, 0))

    async def new_events(self, exchange: HttpExchange) -> HttpAnswer:
        text = exchange.query().get("after", ["0"])[0]
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise InvalidInput(f"after {text[:40]!r}", "it is the number of an event")
        found = await self._view.events(_viewer(exchange), int(text))
        return html_page("event_rows.html", events=found, last=_last(found, int(text)))

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
                problem = _problem(error, _viewer(exchange))
        given: dict[str, Any] = {"words": words, "index": index, "hits": hits, "problem": problem}
        return self._page(exchange, "search.html", "/ui/search", "Search", **given)

    async def metrics(self, exchange: HttpExchange) -> HttpAnswer:
        assert self._explorer is not None
        asked = {name: values[0] for name, values in exchange.query().items()}
        given = await self._explorer.page(
            exchange.principal.tenant, asked.get("query", ""), asked.get("hours", "1"), asked.get("find", "")
        )
        return self._page(exchange, "metrics.html", "/ui/metrics", "Metrics", **given)

    async def sql(self, exchange: HttpExchange) -> HttpAnswer:
        return self._page(exchange, "sql.html", "/ui/sql", "SQL", statement="", columns=[], rows=[], problem="")

    async def ask_sql(self, exchange: HttpExchange) -> HttpAnswer:
        form = await self._form(exchange)
        self._check_form(exchange, form)
        statement = _one(form, "statement")
        columns: list[str] = []
        rows: list[list[str]] = []
        problem = ""
        assert self._sql is not None
        try:
            columns, rows = await self._sql(statement, exchange.principal.tenant)
        except PenstockError as error:
            problem = _problem(error, _viewer(exchange))
        given: dict[str, Any] = {"statement": statement, "columns": columns, "rows": rows, "problem": problem}
        return self._page(exchange, "sql.html", "/ui/sql", "SQL", **given)

    # Changing ----------------------------------------------------------------------------------------

    async def change(self, exchange: HttpExchange) -> HttpAnswer:
        """Retry at once; forget only after a second click."""
        form = await self._form(exchange)
        self._check_form(exchange, form)
        change = DocumentChange.FORGET if "forget" in form else DocumentChange.RETRY
        index, keys = _one(form, "index"), form.get(change, [])
        if not keys:
            raise InvalidInput("no documents are named", "", "load the page again and press a document's button")
        if change is DocumentChange.FORGET and _one(form, "confirmed") != "yes":
            given: dict[str, Any] = {"index": index, "keys": keys, "shown": form.get("name", [])[:1]}
            return self._page(exchange, "forget.html", "/ui/page/documents", "Forget a document?", **given)
        count = await self._view.change_documents(change, index, keys, _viewer(exchange))
        return HttpAnswer(status=303, headers={"location": f"/ui/page/documents?done={change}&count={count}"})

    # Sessions ----------------------------------------------------------------------------------------

    async def login_page(self, exchange: HttpExchange) -> HttpAnswer:
        return self._page(exchange, "login.html", "/login", "Log in", problem="")

    async def login(self, exchange: HttpExchange) -> HttpAnswer:
        token = _one(await self._form(exchange), "token").strip()
        try:
            principal = self._authenticate(exchange, token)
        except PenstockError as error:
            return self._page(exchange, "login.html", "/login", "Log in", status=401, problem=str(error))
        # For the audit.
        exchange.principal = principal
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
        self, exchange: HttpExchange, template: str, path: str, title: str, status: int = 200, **given: Any
    ) -> HttpAnswer:
        has_session = bool(self._sessions.form_secret(exchange.headers.get("cookie")))
        frame = {
            "title": title,
            "current": path,
            "pages": self._links(_viewer(exchange)) if template != "login.html" else [],
            "tenant": exchange.principal.tenant,
            "has_session": has_session,
            "form_secret": self._form_secret(exchange),
        }
        return html_page(template, status, **frame, **given)

    def _links(self, viewer: Viewer) -> list[tuple[str, str]]:
        """Address and title of every page that the viewer can open."""
        own = [(f"/ui/page/{one.name}", one.title) for one in self._view.pages if viewer.is_admin or not one.for_admin]
        optional = [
            ("search", "Search", self._search),
            ("metrics", "Metrics", self._explorer),
            ("sql", "SQL", self._sql),
        ]
        asking = [(f"/ui/{name}", title) for name, title, there in optional if there]
        return [("/", "Overview"), *own, *asking, ("/ui/events", "Events")]

    async def _form(self, exchange: HttpExchange) -> dict[str, list[str]]:
        body = await read_body(
            exchange.receive, exchange.announced_bytes, _FORM_BYTES_MAX, self._config.body_seconds_max
        )
        return form_of(body)

    def _form_secret(self, exchange: HttpExchange) -> str:
        """Of the session; on a gateway without tokens, of the process: no other site can read it from a page."""
        if self._config.tokens is None:
            return self._sessions.open_form_secret
        return self._sessions.form_secret(exchange.headers.get("cookie"))

    def _check_form(self, exchange: HttpExchange, form: dict[str, list[str]]) -> None:
        """A form must carry the second secret, unless the request shows a token, which no browser adds by itself."""
        if self._config.tokens is not None and "authorization" in exchange.headers:
            return
        if not self._sessions.is_same(self._form_secret(exchange), _one(form, "form_secret")):
            raise InvalidInput(
                "the form was not accepted", "it was not made by this session", "load the page again and repeat"
            )

    def _refused(self, exchange: HttpExchange, refusal: Refusal) -> HttpAnswer:
        """An error as a page; whoever is not known is sent to the login."""
        if refusal.status == 401:
            return HttpAnswer(status=303, headers={"location": "/login"})
        return self._page(exchange, "error.html", "", "That did not work", status=refusal.status, refusal=refusal)


def _viewer(exchange: HttpExchange) -> Viewer:
    principal = exchange.principal
    return Viewer(principal.tenant, Scope.ADMIN in principal.scopes, Scope.WRITE in principal.scopes)


def _problem(error: PenstockError, viewer: Viewer) -> str:
    """What a page says of an error. What a tenant may not read is raised: the answer hides it, and the log has it."""
    if not viewer.is_admin and refusal_of(error).is_hidden:
        raise error
    return str(error)


def _one(form: dict[str, list[str]], name: str) -> str:
    return form.get(name, [""])[-1]


def _last(events: list[Any], before: int) -> int:
    return events[0].number if events else before


def _notice(choice: dict[str, str]) -> str:
    """What a change that was just made did; only numbers come from the address."""
    count = choice.get("count", "")
    if not (count.isascii() and count.isdigit() and len(count) < 8):
        return ""
    what = "1 document is" if int(count) == 1 else f"{int(count):,} documents are"
    done = {"retry": "queued to be read again", "forget": "queued to be removed from the index"}.get(
        choice.get("done", "")
    )
    return f"{what} {done}. The indexing job does it next." if done else ""
