"""The dashboard: one look, pages that escape what they show, sessions that end with their token."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from penstock.errors import Unavailable
from penstock.gateway import (
    DashboardRoutes,
    Fact,
    Gateway,
    GatewayConfig,
    Guard,
    Scope,
    Section,
    Sessions,
    Stage,
    StageState,
    TableView,
    TokenBook,
)
from penstock.gateway.dashboard.pages import highlighted
from penstock.gateway.dashboard.views import verdict
from penstock.testing import ManualClock

HOSTILE = "<script>alert('x')</script>"
STATIC = Path(__file__).parents[2] / "src/penstock/gateway/dashboard/static"


class View:
    """A house in which everything is named by somebody hostile."""

    pages = (("edge", "Edge"),)

    async def stages(self, tenant):
        return [Stage(f"Queue {HOSTILE}", StageState.LATE, [Fact("lag", HOSTILE)], HOSTILE, "edge")]

    async def page(self, name, tenant):
        return [
            Section(HOSTILE, [Fact("tenant", tenant)], TableView(("a",), [(HOSTILE,)])),
            Section("Nothing", table=TableView(("a",), [])),
        ]


class BrokenView(View):
    async def stages(self, tenant):
        raise Unavailable("the store does not answer", "it is down")

    async def page(self, name, tenant):
        return await self.stages(tenant)


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
        has_series=True,
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


PAGES = ["/", "/ui/path", "/ui/page/edge", "/ui/search?q=a", "/ui/metrics?query=up", "/ui/sql"]


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
