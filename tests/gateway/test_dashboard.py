"""The dashboard: one look, pages that escape what they show, sessions that end with their token."""

import asyncio
import gzip
import re
from pathlib import Path

import httpx
import pytest

from penstock.errors import Unavailable
from penstock.gateway import (
    DashboardRoutes,
    DocumentChange,
    Fact,
    Gateway,
    GatewayConfig,
    Guard,
    PageLink,
    Scope,
    Section,
    Sessions,
    ShownEvent,
    Stage,
    StageState,
    TableView,
    TokenBook,
)
from penstock.gateway.dashboard.pages import curve_points, excerpt, highlighted
from penstock.gateway.dashboard.views import verdict
from penstock.testing import ManualClock

HOSTILE = "<script>alert('x')</script>"
STATIC = Path(__file__).parents[2] / "src/penstock/gateway/dashboard/static"


class View:
    """A house in which everything is named by somebody hostile."""

    pages = (PageLink("edge", "Edge"), PageLink("jobs", "Jobs", for_admin=True), PageLink("documents", "Documents"))

    def __init__(self):
        self.changed = []

    async def stages(self, viewer):
        return [
            Stage(
                f"Queue {HOSTILE}", StageState.LATE, [Fact("lag", HOSTILE)], HOSTILE, "edge", HOSTILE, HOSTILE, [1, 2]
            )
        ]

    async def page(self, name, viewer, choice):
        keys = [HOSTILE] if viewer.may_write else ()
        return [
            Section(HOSTILE, [Fact("tenant", viewer.tenant)], TableView(("a",), [(HOSTILE,)])),
            Section("Nothing", table=TableView(("a",), [])),
            Section(
                "Index", table=TableView(("key",), [(HOSTILE,)], row_keys=keys), links=[(HOSTILE, "", True)], index="i"
            ),
        ]

    async def events(self, viewer, after):
        found = [ShownEvent(number, "now", "error", "serve", HOSTILE, HOSTILE) for number in (2, 1)]
        return [event for event in found if event.number > after]

    async def change_documents(self, change, index, keys, viewer):
        self.changed.append((change, index, list(keys), viewer.tenant))
        return len(keys)


class BrokenView(View):
    async def stages(self, viewer):
        raise Unavailable("the store does not answer", "it is down")

    async def page(self, name, viewer, choice):
        return await self.stages(viewer)


class Series:
    """Metrics that are named by somebody hostile."""

    async def query(self, tenant, expression, time_ms):
        return self

    def to_json(self):
        return {"data": {"resultType": "vector", "result": [{"metric": {"a": HOSTILE}, "value": [0, HOSTILE]}]}}

    async def label_values(self, tenant, name, selectors, start_ms, end_ms):
        return [HOSTILE, "up"]

    async def metadata(self, tenant, metric):
        return {HOSTILE: [{"type": "gauge", "help": HOSTILE}]}


async def hits(words, index, tenant):
    return [{"key": HOSTILE, "section": "", "score": 0.5, "start": 0, "end": 9, "text": f"{words} {HOSTILE}"}]


def app_of(view=None, book=None, clock=None):
    config = GatewayConfig(tokens="x" if book else None)
    sessions = Sessions(secure=False, clock=clock or ManualClock())
    books = [book]
    guard = Guard(config, lambda: books[0], clock or ManualClock(), sessions.principal)
    routes = DashboardRoutes(
        view or View(),
        config,
        sessions,
        authenticate=lambda exchange, token: guard.authenticate(exchange, f"Bearer {token}"),
        search=hits,
        sql=lambda statement, tenant: hits_as_rows(statement),
        series=Series(),
    )
    return Gateway(routes.endpoints(), config, guard=guard), books


async def hits_as_rows(statement):
    return ["answer"], [[statement]]


def visited(app, *steps):
    """The answers to requests of one browser, which keeps its cookies."""

    async def visit():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return [await client.request(method, path, **given) for method, path, given in steps]

    return asyncio.run(visit())


def got(app, path):
    return visited(app, ("GET", path, {}))[0]


PAGES = [
    "/",
    "/ui/path",
    "/ui/page/edge",
    "/ui/page/documents?done=retry&count=1",
    "/ui/events",
    "/ui/events/new?after=1",
    "/ui/search?q=a",
    "/ui/metrics",
    "/ui/metrics?query=up",
    "/ui/metrics?find=script",
    "/ui/sql",
]


@pytest.mark.parametrize("path", PAGES)
def test_what_is_shown_is_escaped_and_nothing_of_it_can_run(path):
    app, _ = app_of()
    answer = got(app, path)
    assert answer.status_code == 200
    assert HOSTILE not in answer.text
    assert "style=" not in answer.text
    assert not re.findall(r"<[^>]*\son\w+=", answer.text)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", PAGES)
def test_no_page_asks_anybody_else_for_anything(path):
    app, _ = app_of()
    text = got(app, path).text
    for address in re.findall(r"""(?:src|href|action|hx-get)=["']([^"']*)""", text):
        assert address.startswith(("/", "#", "data:")), address
        if address.startswith("/ui/static/"):
            assert got(app, address).status_code == 200


def test_the_files_are_those_that_were_vendored():
    import hashlib

    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in STATIC.glob("*.min.*")}
    assert digests == {
        "htmx-2.0.11.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
        "uplot-1.6.32.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        "uplot-1.6.32.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    }


def test_all_that_a_page_loads_is_small():
    files = [path for path in STATIC.iterdir() if path.suffix in (".js", ".css")]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) < 60_000
    licences = (STATIC / "LICENSES.txt").read_text()
    for path in STATIC.glob("*.min.*"):
        assert path.name in licences


@pytest.mark.parametrize("name", ["..%2Fpages.py", "LICENSES.txt", "none.js", "%2Fetc%2Fpasswd"])
def test_no_other_file_is_given_out(name):
    app, _ = app_of()
    assert got(app, f"/ui/static/{name}").status_code == 404


def test_one_line_says_whether_anything_is_lost_or_late():
    assert verdict([Stage("a", StageState.OK), Stage("b", StageState.IDLE)])[0] is StageState.OK
    assert verdict([Stage("a", StageState.OK), Stage("b", StageState.LATE)])[0] is StageState.LATE
    state, line = verdict([Stage("a", StageState.LATE), Stage("b", StageState.DOWN)])
    assert state is StageState.DOWN
    assert "b" in line


def test_a_part_that_does_not_answer_is_shown_as_such():
    app, _ = app_of(BrokenView())
    for path in ("/", "/ui/page/edge"):
        answer = got(app, path)
        assert answer.status_code == 200
        assert "the store does not answer" in answer.text


def test_an_empty_part_says_so():
    app, _ = app_of()
    assert "There is nothing here yet." in got(app, "/ui/page/edge").text


def test_events_that_came_since_are_asked_for_by_number():
    app, _ = app_of()
    first, none, wrong = visited(
        app,
        ("GET", "/ui/events/new?after=1", {}),
        ("GET", "/ui/events/new?after=2", {}),
        ("GET", "/ui/events/new?after=x", {}),
    )
    assert "/ui/events/new?after=2" in first.text
    assert first.text.count('class="level error"') == 1
    assert none.text.count("<tr") == 1
    assert wrong.status_code == 400


def test_the_last_rates_are_a_line_in_a_box_and_no_rates_are_none():
    assert curve_points([0, 1, 2], 100, 24) == "0.0,24.0 50.0,12.0 100.0,0.0"
    assert curve_points([]) == curve_points([1]) == curve_points([0, 0]) == ""


def test_of_a_long_passage_the_part_with_the_words_is_shown():
    text = "filler " * 500 + "the turbine turns" + " filler" * 500
    assert "turbine" in excerpt(text, "turbine")
    assert len(excerpt(text, "turbine")) < 1000
    assert excerpt("short", "turbine") == "short"
    assert excerpt(text, "absent").startswith("filler")


def test_a_loss_is_told_before_anything_else():
    lost = Stage("Edge", StageState.LOST, lost="12 rows")
    aside = Stage("Index", StageState.ATTENTION)
    assert verdict([Stage("Job", StageState.DOWN), lost])[1] == "Lost: 12 rows in Edge."
    assert verdict([aside])[0] is StageState.ATTENTION
    assert verdict([aside, Stage("Queue", StageState.LATE)])[0] is StageState.LATE


def test_words_of_the_question_are_marked_and_all_else_is_escaped():
    assert highlighted("The <b>Turbine</b>", "turbine") == "The &lt;b&gt;<mark>Turbine</mark>&lt;/b&gt;"


# Sessions ------------------------------------------------------------------------------------------------


@pytest.fixture
def book_and_token():
    return TokenBook.new().issue("acme", [Scope.READ], 0)


def form_secret(page):
    return re.search(r'name="form_secret" value="([^"]+)"', page.text)[1]


def test_a_person_logs_in_with_a_token_and_sees_their_tenant(book_and_token):
    book, token = book_and_token
    app, _ = app_of(book=book)
    first, refused, done, page = visited(
        app,
        ("GET", "/", {}),
        ("POST", "/login", {"data": {"token": "wrong"}}),
        ("POST", "/login", {"data": {"token": token}}),
        ("GET", "/ui/page/edge", {}),
    )
    assert (first.status_code, first.headers["location"]) == (303, "/login")
    assert refused.status_code == 401
    cookie = done.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert token not in cookie
    assert "acme" in page.text


def test_a_session_ends_with_its_token_its_time_and_its_owners_wish(book_and_token):
    book, token = book_and_token
    clock = ManualClock()
    app, books = app_of(book=book, clock=clock)
    login = ("POST", "/login", {"data": {"token": token}})
    _, page = visited(app, login, ("GET", "/ui/sql", {}))
    secret = form_secret(page)
    assert secret

    async def lives():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            await client.post("/login", data={"token": token})
            statuses = [(await client.get("/ui/sql")).status_code]
            clock.advance(13 * 3600)
            statuses.append((await client.get("/ui/sql")).status_code)
            await client.post("/login", data={"token": token})
            statuses.append((await client.get("/ui/sql")).status_code)
            books[0] = book.without(token.split("_")[1])
            statuses.append((await client.get("/ui/sql")).status_code)
            return statuses

    assert asyncio.run(lives()) == [200, 303, 200, 303]


def issued(*scopes):
    return TokenBook.new().issue("acme", list(scopes), 0)


def logged_in(view, book, token, *steps):
    """The answers of one session; a step's form may ask for the session's own secret."""
    app, _ = app_of(view, book)

    async def visit():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            await client.post("/login", data={"token": token})
            secret = form_secret(await client.get("/ui/sql"))
            answers = []
            for method, path, form in steps:
                data = {name: secret if value == "OWN" else value for name, value in form.items()}
                answers.append(await client.request(method, path, data=data or None))
            return answers

    return asyncio.run(visit())


def test_a_document_is_read_again_at_once_and_forgotten_after_a_second_click():
    view = View()
    form = {"form_secret": "OWN", "index": "manual"}
    retried, asked, forgotten, page = logged_in(
        view,
        *issued(Scope.READ, Scope.WRITE),
        ("POST", "/ui/documents", {**form, "retry": ["a", "b"]}),
        ("POST", "/ui/documents", {**form, "forget": "a"}),
        ("POST", "/ui/documents", {**form, "forget": "a", "confirmed": "yes"}),
        ("GET", "/ui/page/documents?done=retry&count=2", {}),
    )
    assert (retried.status_code, retried.headers["location"]) == (303, "/ui/page/documents?done=retry&count=2")
    assert asked.status_code == 200
    assert 'name="confirmed"' in asked.text
    assert forgotten.status_code == 303
    assert "2 documents are queued to be read again." in page.text
    assert view.changed == [
        (DocumentChange.RETRY, "manual", ["a", "b"], "acme"),
        (DocumentChange.FORGET, "manual", ["a"], "acme"),
    ]


@pytest.mark.parametrize("form", [{}, {"form_secret": "x"}, {"form_secret": ""}])
def test_a_forged_change_changes_nothing(form):
    view = View()
    (answer,) = logged_in(
        view, *issued(Scope.READ, Scope.WRITE), ("POST", "/ui/documents", {**form, "index": "i", "retry": "a"})
    )
    assert answer.status_code == 400
    assert view.changed == []


def test_without_tokens_a_form_must_come_from_a_page_of_this_process():
    view = View()
    app, _ = app_of(view)
    page, forged = visited(
        app, ("GET", "/ui/sql", {}), ("POST", "/ui/documents", {"data": {"index": "i", "retry": "a"}})
    )
    own = {"form_secret": form_secret(page), "index": "i", "retry": "a"}
    (taken,) = visited(app, ("POST", "/ui/documents", {"data": own}))
    assert (forged.status_code, taken.status_code) == (400, 303)
    assert len(view.changed) == 1


def test_a_token_that_may_only_read_is_shown_no_buttons_and_changes_nothing():
    view = View()
    page, change = logged_in(
        view,
        *issued(Scope.READ),
        ("GET", "/ui/page/documents", {}),
        ("POST", "/ui/documents", {"form_secret": "OWN", "index": "i", "retry": "a"}),
    )
    assert 'name="retry"' not in page.text
    assert change.status_code == 403
    assert view.changed == []


def test_a_page_of_all_tenants_is_for_administrators():
    hidden, missing = logged_in(View(), *issued(Scope.READ), ("GET", "/ui/page/jobs", {}), ("GET", "/ui/page/none", {}))
    assert hidden.status_code == missing.status_code == 404
    assert "Jobs" not in hidden.text
    (shown,) = logged_in(View(), *issued(Scope.READ, Scope.ADMIN), ("GET", "/ui/page/jobs", {}))
    assert shown.status_code == 200


def test_what_a_failing_store_says_is_shown_to_administrators_alone():
    steps: list[tuple[str, str, dict[str, str]]] = [("GET", path, {}) for path in ("/", "/ui/page/edge")]
    for answer in logged_in(BrokenView(), *issued(Scope.READ), *steps):
        assert answer.status_code == 503
        assert "the store does not answer" not in answer.text
    for answer in logged_in(BrokenView(), *issued(Scope.READ, Scope.ADMIN), *steps):
        assert "the store does not answer" in answer.text


def test_a_form_of_another_page_is_not_taken(book_and_token):
    book, token = book_and_token
    app, _ = app_of(book=book)

    async def forged():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            await client.post("/login", data={"token": token})
            own = form_secret(await client.get("/ui/sql"))
            return [
                (await client.post("/ui/sql", data={"statement": "select 1", **extra})).status_code
                for extra in ({}, {"form_secret": "x"}, {"form_secret": own})
            ]

    assert asyncio.run(forged()) == [400, 400, 200]


@pytest.mark.parametrize("cookie", ["", "x", "a.b.c", "..", "aaaaaaaaaaaaaaaa.9999999999.AAAA", "\x00", "a.٣.c"])
def test_a_cookie_that_was_made_up_is_nobodys(book_and_token, cookie):
    book, _ = book_and_token
    assert Sessions(secure=True).principal(f"penstock_session={cookie}", book) is None
