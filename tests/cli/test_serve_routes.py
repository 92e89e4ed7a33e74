"""Every route of a real `penstock serve`: scopes and tenants, generated and broken requests. Only our own 4xx answer."""

import gzip
import random
import socket
import zlib

import httpx
import pytest
import schemathesis
import zstandard
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks as conformance
from tests.cli.served import Served

from penstock.gateway import Scope, TokenBook

pytestmark = pytest.mark.integration

# Open by design: what they tell is the same for everybody.
OPEN = {"/healthz", "/readyz", "/openapi.json", "/login", "/ui/static/{name}"}
PARAMETERS = {"table": "t", "source": "s3", "index": "i", "key": "k", "name": "job"}
EXAMPLES = 6


@schemathesis.serializer("application/x-protobuf", "application/vnd.apache.arrow.stream", "application/x-ndjson")
def as_bytes(_context, value):
    """Bodies that the description knows only by their type: any bytes."""
    return value if isinstance(value, bytes) else repr(value).encode(errors="replace")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A gateway with two tenants and a token of each scope; jobs do not run."""
    folder = tmp_path_factory.mktemp("served")
    book, tokens = TokenBook.new(), {}
    for tenant in ("a", "b"):
        for scope in Scope:
            book, tokens[tenant, scope] = book.issue(tenant, [scope], 0)
    book.save(folder / "tokens.json", replaces=None)
    environment = {
        "PENSTOCK_GATEWAY_FAILED_LOGINS_PER_MINUTE": "100000",
        "PENSTOCK_GATEWAY_TENANT_REQUESTS_PER_SECOND": "100000",
        "PENSTOCK_GATEWAY_TENANT_REQUEST_BURST": "100000",
        "PENSTOCK_GATEWAY_BODY_BYTES_MAX": "1000000",
        "PENSTOCK_GATEWAY_DECOMPRESSED_BYTES_MAX": "2000000",
        "PENSTOCK_GATEWAY_UPLOAD_BYTES_MAX": "1000000",
    }
    options = ("--tokens", "tokens.json", "--roles", "gateway,query", "--log-level", "debug")
    with Served(folder, *options, environment=environment) as served:
        yield served, tokens
        log = (folder / "serve.log").read_text()
        assert "gateway.failed" not in log, log[-3000:]
        assert served.end() == 0
        # With everything that all of these tests did at level debug.
        kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
        assert not [one for one in tokens.values() for data in kept if one.split("_", 2)[2].encode() in data]


def operations(served):
    """Every method and path, with the scope that it needs."""
    described = served.client.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            needed = operation.get("security", [{"token": [None]}])[0]["token"][0]
            yield method.upper(), path, needed, [*operation.get("requestBody", {}).get("content", {})]


def filled(path):
    for name, value in PARAMETERS.items():
        path = path.replace("{" + name + "}", value)
    assert "{" not in path, path
    return path


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_every_route_that_is_not_open_refuses_strangers_and_other_scopes(world):
    served, tokens = world
    found = list(operations(served))
    assert len(found) > 30
    for method, path, needed, _ in found:
        if path in OPEN:
            continue
        assert needed in set(Scope), path
        # A page sends strangers to the login.
        stranger = served.client.request(method, filled(path), follow_redirects=False)
        assert stranger.status_code == 401 or stranger.headers.get("location") == "/login", (method, path)
        for scope in Scope:
            if scope != needed:
                answer = served.client.request(method, filled(path), headers=bearer(tokens["a", scope]))
                assert answer.status_code == 403, (method, path, scope, answer.text)


def test_what_another_tenant_has_is_as_little_there_as_what_nobody_has(world):
    served, tokens = world
    writing, reading = tokens["b", Scope.WRITE], tokens["a", Scope.READ]
    put = served.client.put("/v1/documents/secret/paper.txt", content=b"hidden words", headers=bearer(writing))
    assert put.status_code == 202
    sent = served.client.post("/v1/rows/secret", content=b'{"n": 1}', headers=bearer(writing))
    assert sent.status_code == 200
    for theirs, nobodys in (
        ("/v1/documents/secret/paper.txt", "/v1/documents/nobody/paper.txt"),
        ("/v1/documents/secret", "/v1/documents/nobody"),
    ):
        one, other = (served.client.get(path, headers=bearer(reading)) for path in (theirs, nobodys))
        assert (one.status_code, one.text.replace("secret", "nobody")) == (other.status_code, other.text)
    for body in ({"query": "hidden", "index": "secret"}, {"query": "hidden", "index": "nobody"}):
        answer = served.client.post("/v1/search", json=body, headers=bearer(reading))
        assert (answer.status_code, "hidden words" in answer.text) in ((404, False), (200, False)), answer.text
    tables = [
        served.client.post("/v1/sql", json={"query": f"select * from {name}"}, headers=bearer(reading))
        for name in ("secret", "nobody")
    ]
    assert tables[0].status_code == tables[1].status_code == 404
    assert tables[0].text.replace("secret", "nobody") == tables[1].text
    removing = served.client.delete("/v1/documents/secret/paper.txt", headers=bearer(tokens["a", Scope.WRITE]))
    assert removing.status_code == 404


def hostile_bodies():
    """Bodies and their encodings: empty, garbage, deep, endless, cut off, and bombs."""
    zeros = bytes(8 << 20)
    deep = b"[" * 100_000 + b"]" * 100_000
    nested = b"\x0a" * 50_000
    cut = gzip.compress(random.Random(1).randbytes(10_000))[:5_000]
    return [
        (b"", ""),
        (b"\x00", ""),
        (b"\xff" * 1_000, ""),
        (b"{", ""),
        (b"null", ""),
        (b"[]", ""),
        (b'{"query": 1e400}', ""),
        (b'{"query": "\\ud800"}', ""),
        (b'{"a":' * 50_000, ""),
        (deep, ""),
        (nested, ""),
        (gzip.compress(zeros), "gzip"),
        (zstandard.compress(zeros), "zstd"),
        (zlib.compress(zeros), "deflate"),
        (b"not packed", "gzip"),
        (b"x", "br"),
        (b"x", "gzip, gzip"),
        (cut, "gzip"),
        (b"\xff\xff\xff\xff\x0f" + b"x" * 10, "snappy"),
        (b"x" * 1_100_000, ""),
    ]


def test_hostile_bodies_are_answered_with_our_own_4xx_on_every_route(world):
    served, tokens = world
    for method, path, needed, kinds in operations(served):
        if method not in ("POST", "PUT") or path in OPEN:
            continue
        token = bearer(tokens["a", needed])
        for body, encoding in hostile_bodies():
            for kind in kinds or ["application/octet-stream"]:
                headers = {**token, "content-type": kind, **({"content-encoding": encoding} if encoding else {})}
                answer = served.client.request(method, filled(path), content=body, headers=headers)
                told = (method, path, kind, encoding, body[:20], answer.status_code, answer.text[:300])
                assert answer.status_code < 500, told
                if answer.status_code >= 400:
                    assert answer.content, told


HEAD = "host: localhost\r\nconnection: close\r\n"


def raw(served, data):
    """What the gateway answers to these bytes, until it closes."""
    url = httpx.URL(served.url)
    with socket.create_connection((url.host, url.port), 60) as connection:
        connection.sendall(data.encode("latin-1"))
        found = b""
        while part := connection.recv(65_536):
            found += part
    return found


@pytest.mark.parametrize(
    "path",
    [
        "/v1/documents/i/%2e%2e/%2e%2e/etc/passwd",
        "/v1/documents/i/..%2f..%2fpasswd",
        "/v1/documents/i/..",
        "/v1/documents/../i/k",
        "/v1/documents/i/a%00b",
        "/v1/documents/i/%ff",
        "/v1/documents/i/%C0%AE%C0%AE",
        "/v1/documents/%E2%80%AEi/k",
        "/v1/documents/i/" + "k" * 60_000,
        "/v1/documents/i/" + "k/" * 20_000,
        "//v1/rows/t",
        "/v1//rows/t",
        "/v1/rows/t/",
        "/V1/rows/t",
        "/v1/rows/penstock-own",
        "/ui/static/..%2f..%2fconfig.py",
        "*",
        "",
    ],
)
def test_a_path_that_plays_tricks_stores_nothing(world, path):
    served, tokens = world
    for method in ("PUT", "POST"):
        token = f"authorization: Bearer {tokens['a', Scope.WRITE]}\r\n"
        answer = raw(served, f"{method} {path} HTTP/1.1\r\n{HEAD}{token}content-length: 8\r\n\r\n" + '{"n":1}\n')
        assert answer.startswith(b"HTTP/1.1 4"), answer[:300]


ROWS = "POST /v1/rows/t HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize(
    "rest",
    [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
        "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        "content-length: +2\r\n\r\n{}",
        "content-length: 0x2\r\n\r\n{}",
        "content-length: 2, 2\r\n\r\n{}",
        "content-length: -1\r\n\r\n{}",
        "content-length: 99999999999999999999999999\r\n\r\n{}",
        "transfer-encoding: chunked\r\n\r\nfffffffffffffffffffff\r\nabc",
        "transfer-encoding: chunked\r\n\r\n-1\r\nabc",
        "transfer-encoding: chunked\r\n\r\n2\n{}\n0\n\n",
        "x: a\r\n b\r\n\r\n",
        "x: a\0b\r\n\r\n",
    ],
)
def test_a_request_whose_end_could_be_read_in_two_ways_is_refused_and_its_connection_closed(world, rest):
    served, tokens = world
    answer = raw(served, f"{ROWS}authorization: Bearer {tokens['a', Scope.WRITE]}\r\n{rest}")
    assert answer.startswith(b"HTTP/1.1 400"), answer[:300]
    assert answer.count(b"HTTP/1.1") == 1, answer


@pytest.mark.parametrize(
    "asked",
    ["wait=true&timeout=nan", "wait=true&timeout=inf", "timeout=-1", "wait=true&wait=false", "wait=TRUE", "wait=1"],
)
def test_an_upload_that_says_unclearly_whether_it_waits_is_refused(world, asked):
    served, tokens = world
    answer = served.client.put(f"/v1/documents/i/w?{asked}", content=b"x", headers=bearer(tokens["a", Scope.WRITE]))
    assert answer.status_code == 400, answer.text


def test_whoever_waits_in_vain_is_told_that_the_document_is_queued(world):
    served, tokens = world
    headers = bearer(tokens["a", Scope.WRITE])
    answer = served.client.put("/v1/documents/i/w?wait=true&timeout=0.1", content=b"x", headers=headers)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "it is queued" in answer.text


def test_a_search_where_nothing_was_indexed_does_not_tell_where_the_store_is(world):
    served, tokens = world
    for index in ("i", "nobody"):
        asked = {"query": "words", "index": index}
        answer = served.client.post("/v1/search", json=asked, headers=bearer(tokens["a", Scope.READ]))
        assert answer.status_code == 404
        assert answer.json()["what"] == f"there is no index {index}"
        assert "file:" not in answer.text


@pytest.mark.parametrize("key", ["a%5Cb", "k" * 900, "taken/below"])
def test_a_key_that_the_store_cannot_have_is_refused_without_telling_where_uploads_lie(world, key):
    served, tokens = world
    write = bearer(tokens["a", Scope.WRITE])
    assert served.client.put("/v1/documents/i/taken", content=b"x", headers=write).status_code == 202
    answer = served.client.put(f"/v1/documents/i/{key}", content=b"x", headers=write)
    assert answer.status_code == 400
    assert answer.json()["what"].startswith("the key ")
    assert "file:" not in answer.text


def test_an_upload_that_no_job_has_seen_is_shown_as_queued_and_can_be_removed(world):
    served, tokens = world
    write, read = bearer(tokens["a", Scope.WRITE]), bearer(tokens["a", Scope.READ])
    path = "/v1/documents/i/early.txt"
    assert served.client.put(path, content=b"x", headers=write).status_code == 202
    shown = served.client.get(path, headers=read)
    assert (shown.status_code, shown.json()["status"]) == (200, "queued")
    # Another tenant's is as little there as one that nobody has.
    assert served.client.get(path, headers=bearer(tokens["b", Scope.READ])).status_code == 404
    assert served.client.delete(path, headers=bearer(tokens["b", Scope.WRITE])).status_code == 404
    assert served.client.delete(path, headers=write).status_code == 202
    assert served.client.get(path, headers=read).status_code == 404
    assert served.client.delete(path, headers=write).status_code == 404


def test_requests_that_are_made_from_the_description_are_answered_as_it_says(world):
    """Generated by schemathesis for every operation: no 5xx, and every status, type and body is a documented one."""
    served, tokens = world
    described = served.client.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(described)
    wanted = [
        not_a_server_error,
        conformance.status_code_conformance,
        conformance.content_type_conformance,
        conformance.response_schema_conformance,
    ]
    operations_found = [found.ok() for found in schema.get_all_operations()]
    assert len(operations_found) > 30
    for operation in operations_found:
        needed = (operation.definition.raw.get("security") or [{"token": [Scope.READ]}])[0]["token"][0]
        _asked(operation, served.url, bearer(tokens["a", Scope(needed)]), wanted)


def _asked(operation, url, headers, wanted):
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case):
        case.call_and_validate(base_url=url, headers=headers, checks=wanted, timeout=60)

    ask()
