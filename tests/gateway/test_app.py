"""The application: whatever is asked, somebody is answered, and nobody is answered what is not theirs."""

import asyncio
from pathlib import Path

import httpx
import pytest

import penstock
from penstock.errors import (
    AtCapacity,
    Closed,
    Conflict,
    Corrupt,
    DeadlineExceeded,
    Fenced,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    StorageFull,
    Unavailable,
)
from penstock.gateway import Gateway, GatewayConfig, Scope, TenantLimits, TokenBook
from penstock.gateway.access.tokens import Forbidden
from penstock.gateway.http.exchange import HttpAnswer, json_answer
from penstock.gateway.http.inputs import whole_body
from penstock.gateway.http.refusals import TOLD
from penstock.gateway.http.routing import Route
from penstock.observability import names
from penstock.testing import ManualClock, RecordingObserver

NOW = 1_700_000_000_000


def endpoint(path="/v1/thing", method="GET", scope=Scope.READ, handler=None):
    async def tenant(exchange):
        return json_answer({"tenant": exchange.principal.tenant, **exchange.parameters})

    return Route(method, path, scope, handler or tenant, "A thing.")


def asked(app, method="GET", path="/v1/thing", **given):
    async def ask():
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **given)

    return asyncio.run(ask())


@pytest.fixture
def book_and_tokens():
    book, tokens = TokenBook.new(), {}
    for tenant in ("a", "b"):
        for scope in Scope:
            book, tokens[tenant, scope] = book.issue(tenant, [scope], NOW)
    return book, tokens


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_the_tenant_comes_from_the_token_alone(book_and_tokens):
    book, tokens = book_and_tokens
    app = Gateway([endpoint()], GatewayConfig(tokens="x"), lambda: book)
    for tenant in ("a", "b"):
        headers = {**bearer(tokens[tenant, Scope.READ]), "x-scope-orgid": "other", "x-tenant": "other"}
        assert asked(app, headers=headers, params={"tenant": "other"}).json() == {"tenant": tenant}


def test_every_route_needs_its_own_scope(book_and_tokens):
    book, tokens = book_and_tokens
    routes = [endpoint(f"/{scope}", scope=scope) for scope in Scope]
    app = Gateway(routes, GatewayConfig(tokens="x"), lambda: book)
    for needed in Scope:
        assert asked(app, path=f"/{needed}").status_code == 401
        for held in Scope:
            answer = asked(app, path=f"/{needed}", headers=bearer(tokens["a", held]))
            assert answer.status_code == (200 if held == needed else 403)


def test_guesses_are_bounded(book_and_tokens):
    book, _ = book_and_tokens
    app = Gateway(
        [endpoint()], GatewayConfig(tokens="x", failed_logins_per_minute=5), lambda: book, clock=ManualClock()
    )
    statuses = [asked(app, headers=bearer("pst_wrong")).status_code for _ in range(7)]
    assert statuses == [401] * 5 + [429] * 2
    assert asked(app, headers=bearer("pst_wrong")).headers["retry-after"]


def test_a_neighbour_that_guesses_stops_nobody_who_was_let_in_before(book_and_tokens):
    book, tokens = book_and_tokens
    config = GatewayConfig(tokens="x", failed_logins_per_minute=5)
    app = Gateway([endpoint()], config, lambda: book, clock=ManualClock())
    mine = bearer(tokens["a", Scope.READ])
    assert asked(app, headers=mine).status_code == 200
    assert [asked(app, headers=bearer("pst_wrong")).status_code for _ in range(7)] == [401] * 5 + [429] * 2
    assert asked(app, headers=mine).status_code == 200
    # One that was never seen here is not looked at, though it is right.
    assert asked(app, headers=bearer(tokens["b", Scope.READ])).status_code == 429


def test_every_administrative_request_is_noted_with_who_sent_it_and_what_became_of_it(book_and_tokens):
    book, tokens = book_and_tokens
    observer = RecordingObserver()
    audited = Route("POST", "/change", Scope.WRITE, endpoint().handler, "Change.", audited=True)
    app = Gateway([endpoint(scope=Scope.ADMIN), audited], GatewayConfig(tokens="x"), lambda: book, observer=observer)
    for method, path, held in (("GET", "/v1/thing", Scope.ADMIN), ("GET", "/v1/thing", Scope.READ)):
        asked(app, method, path, headers=bearer(tokens["a", held]))
    asked(app, "POST", "/change", headers=bearer(tokens["b", Scope.WRITE]))
    asked(app)
    noted = observer.events(names.GATEWAY_AUDIT)
    assert [(one["method"], one["route"], one["status"], one["tenant"]) for one in noted] == [
        ("GET", "/v1/thing", 200, "a"),
        ("GET", "/v1/thing", 403, "a"),
        ("POST", "/change", 200, "b"),
        ("GET", "/v1/thing", 401, ""),
    ]
    assert all(one["address"] for one in noted)
    assert not any(token in str(noted) for token in tokens.values())


def test_a_revoked_token_is_refused_at_once(book_and_tokens):
    book, tokens = book_and_tokens
    books = [book]
    app = Gateway([endpoint()], GatewayConfig(tokens="x"), lambda: books[0])
    token = tokens["a", Scope.READ]
    assert asked(app, headers=bearer(token)).status_code == 200
    books[0] = book.without(token.split("_")[1])
    assert asked(app, headers=bearer(token)).status_code == 401


def test_another_address_without_tokens_is_refused_at_configuration():
    with pytest.raises(InvalidInput, match="without tokens"):
        GatewayConfig(host="0.0.0.0")


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "", "localhost.", "evil.example:80", "127.0.0.1:80.evil.example"),
        *("[::1].evil.example", "[::1]:80.evil.example", "localhost:80:80"),
    ],
)
def test_a_name_that_points_here_is_not_this_host(host):
    app = Gateway([endpoint()])
    assert asked(app, headers={"host": host}).status_code == 403


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:4318", "127.0.0.1:1", "127.0.0.1:", "[::1]:4318", "[::1]", "penstock.example"]
)
def test_this_host_has_these_names(host):
    app = Gateway([endpoint()], GatewayConfig(hosts=("penstock.example",)))
    assert asked(app, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]
)
def test_a_page_of_another_site_changes_nothing(headers):
    app = Gateway([endpoint(method="POST")])
    assert asked(app, "POST", headers=headers).status_code == 403
    assert asked(app, "POST", headers={"origin": "http://localhost"}).status_code == 200


ERRORS = [
    (InvalidInput("x"), 400),
    (Forbidden("x"), 403),
    # Of a store: whoever asks has the right to, and may try again.
    (PermissionDenied("s3://secret refuses the credentials"), 503),
    (NotFound("x"), 404),
    (Conflict("x"), 409),
    (AtCapacity("x"), 429),
    (Unavailable("s3://secret does not answer", "https://secret:9000 refused", "check /secret"), 503),
    (DeadlineExceeded("put of 'a' in s3://secret did not succeed"), 503),
    (StorageFull("/secret/wal cannot be written", "the disk of /secret is full"), 503),
    (OutcomeUnknown("/secret/wal cannot be synced"), 503),
    (Closed("the store file:///secret is closed"), 503),
    (Fenced("s3://secret has another writer"), 503),
    (TimeoutError(), 503),
    (Corrupt("/secret/path is damaged"), 500),
    (RuntimeError("a secret"), 500),
    (RecursionError("a secret"), 500),
]


@pytest.mark.parametrize(("error", "status"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
def test_every_error_has_its_status_and_unforeseen_ones_tell_no_secret(error, status):
    async def failing(_exchange):
        raise error

    answer = asked(Gateway([endpoint(handler=failing)]))
    assert answer.status_code == status
    assert answer.json()["error"]
    assert "secret" not in answer.text
    if status in (429, 503):
        assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize(("error", "status"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
def test_what_a_client_is_not_told_is_in_the_log(error, status):
    async def failing(_exchange):
        raise error

    observer = RecordingObserver()
    asked(Gateway([endpoint(handler=failing)], observer=observer))
    told = [str(one["error"]) for one in observer.events(names.GATEWAY_FAILED)]
    assert ["secret" in text for text in told] == ([True] if "secret" in str(error) else [])


@pytest.mark.parametrize(
    "error",
    [
        DeadlineExceeded("the query was interrupted", "it took longer than 30 s", "narrow its time range"),
        DeadlineExceeded("the query took too long", "it was given 30 s"),
        Unavailable("the gateway holds too many bytes", "requests under way hold 2 of 1"),
        DeadlineExceeded("the document is not searchable yet", "it is queued as a.pdf, and 5 s have passed"),
    ],
    ids=lambda error: error.what,
)
def test_whoever_asked_for_too_much_is_told_so(error):
    async def failing(_exchange):
        raise error

    answer = asked(Gateway([endpoint(handler=failing)]))
    assert (answer.status_code, answer.json()["what"], answer.json()["why"]) == (503, error.what, error.why)


@pytest.mark.parametrize("what", sorted(TOLD))
def test_every_text_that_clients_may_read_is_one_that_is_raised(what):
    """Else a rewording would hide it."""
    source = Path(penstock.__file__).parent
    assert any(f'"{what}"' in path.read_text() for path in source.rglob("*.py") if path.name != "refusals.py")


def test_what_is_not_there_and_what_another_method_has_are_told_apart():
    app = Gateway([endpoint(), endpoint(method="PUT")])
    assert asked(app, path="/v1/other").status_code == 404
    refused = asked(app, "DELETE")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, PUT")


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/d/i/k", {"index": "i", "key": "k"}),
        ("/d/i/a/b%20c", {"index": "i", "key": "a/b c"}),
        ("/d/a%2Fb/k", {"index": "a/b", "key": "k"}),
        ("/d/i/%C3%A4", {"index": "i", "key": "ä"}),
    ],
)
def test_parameters_of_a_path_are_decoded_once(path, parameters):
    found = asked(Gateway([endpoint("/d/{index}/{key:path}")]), path=path).json()
    assert {name: found[name] for name in parameters} == parameters


def test_a_path_that_is_no_text_is_refused():
    assert asked(Gateway([endpoint("/d/{index}/{key:path}")]), path="/d/i/%FF").status_code == 400


def test_head_answers_like_get_without_a_body():
    answer = asked(Gateway([endpoint()]), "HEAD")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


def test_every_answer_forbids_guessing_its_type():
    app = Gateway([endpoint()])
    for path in ("/v1/thing", "/nowhere"):
        assert asked(app, path=path).headers["x-content-type-options"] == "nosniff"


def test_a_tenant_over_its_quota_is_told_when_to_come_back():
    config = GatewayConfig(tenant=TenantLimits(requests_per_second=0.1, request_burst=1))
    app = Gateway([endpoint()], config, clock=ManualClock())
    assert asked(app).status_code == 200
    refused = asked(app)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")


def test_bytes_that_were_announced_and_never_came_are_not_counted_against_the_quota():
    config = GatewayConfig(tenant=TenantLimits(bytes_per_second=1, byte_burst=1_000))

    async def refusing(exchange):
        raise InvalidInput(f"{exchange.announced_bytes} bytes are not read")

    routes = [endpoint(method="POST", handler=refusing), endpoint()]
    app = Gateway(routes, config, clock=ManualClock())
    for length in ("900", "900", "999999999999999"):
        assert asked(app, "POST", headers={"content-length": length}).status_code == 400
    assert asked(app).status_code == 200


def test_bytes_that_came_are_counted_whether_they_were_announced_or_not():
    config = GatewayConfig(tenant=TenantLimits(bytes_per_second=1, byte_burst=1_000))

    async def reading(exchange):
        return json_answer({"bytes": len(await whole_body(exchange, config))})

    async def chunks():
        yield b"x" * 600

    for body in (b"x" * 600, chunks()):
        app = Gateway([endpoint(method="POST", handler=reading)], config, clock=ManualClock())
        assert asked(app, "POST", content=body).status_code == 200
        assert asked(app, "POST", content=b"x" * 600).status_code == 429


@pytest.mark.parametrize("length", ["-1", "1e3", "٣", "9" * 40, "1,2"])
def test_a_length_that_is_no_number_is_refused(length):
    async def reading(exchange):
        return HttpAnswer(str(exchange.announced_bytes).encode())

    app = Gateway([endpoint(method="POST", handler=reading)])
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/thing",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-length", length.encode("latin-1", "replace"))],
        "client": ("127.0.0.1", 1),
    }
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 400


@pytest.mark.parametrize(
    "name", ["host", "authorization", "content-length", "content-type", "content-encoding", "origin"]
)
def test_a_header_that_could_mean_two_things_is_refused(name):
    """A proxy may have believed the first, and we the last."""
    headers = [("host", "localhost"), ("authorization", "x"), ("content-length", "0"), ("content-type", "a/b")]
    headers += [("content-encoding", "gzip"), ("origin", "http://localhost"), (name, "localhost")]
    answer = asked(Gateway([endpoint(method="POST")]), "POST", headers=headers)
    assert answer.status_code == 400, answer.text
    assert name in answer.json()["what"]


def test_a_header_that_is_a_list_may_come_in_parts():
    async def told(exchange):
        return json_answer({name: exchange.headers[name] for name in ("x-forwarded-for", "cookie")})

    headers = [("x-forwarded-for", "a"), ("x-forwarded-for", "b"), ("cookie", "c=1"), ("cookie", "d=2")]
    answer = asked(Gateway([endpoint(handler=told)]), headers=headers)
    assert answer.json() == {"x-forwarded-for": "a, b", "cookie": "c=1; d=2"}


def test_of_twice_what_it_takes_one_half_is_answered_and_the_other_told_when_to_come_back():
    """No queue grows: what is over capacity is refused at once, and capacity is back once work is done."""
    config = GatewayConfig(tenant=TenantLimits(concurrent_requests=8))

    async def offer():
        done, working = asyncio.Event(), 0

        async def work(_exchange):
            nonlocal working
            working += 1
            await done.wait()
            return HttpAnswer(status=204)

        app = Gateway([endpoint(method="POST", scope=Scope.WRITE, handler=work)], config)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            offered = [asyncio.ensure_future(client.post("/v1/thing", content=b"x")) for _ in range(16)]
            refused: list[asyncio.Future[httpx.Response]] = []
            while len(refused) < 8:
                await asyncio.sleep(0)
                refused = [one for one in offered if one.done()]
            begun = working
            done.set()
            answers = await asyncio.gather(*offered)
            after = await client.post("/v1/thing", content=b"x")
        return begun, [one.result() for one in refused], answers, after

    begun, refused, answers, after = asyncio.run(offer())
    assert begun == 8
    assert [answer.status_code for answer in refused] == [429] * 8
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
    assert sorted(answer.status_code for answer in answers) == [204] * 8 + [429] * 8
    assert after.status_code == 204
