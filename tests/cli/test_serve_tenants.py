"""Two tenants of a real `penstock serve` with its jobs: what one has, no route tells the other."""

import re
import time

import pytest
from tests.cli.served import Served, waited_for
from tests.cli.test_serve_routes import OPEN, bearer, operations

from penstock.gateway import Scope, TokenBook

pytestmark = pytest.mark.integration

# A word that only the first tenant has ever sent: in a text, in a key, in a row, in a label and in a name.
WORD = "zanzibar"
THEIRS = {"table": "ledger", "source": "s3", "index": "papers", "key": f"{WORD}.txt", "name": "job"}
NOBODYS = {**THEIRS, "table": "nothing", "index": "empty", "key": "absent.txt", "name": "none"}


def filled(path, names):
    return re.sub(r"\{(\w+)(?::path)?\}", lambda found: names[found[1]], path)


def questions(path, names):
    """Parameters and bodies with which a route is asked, besides none at all."""
    yield {}
    if path == "/v1/search":
        yield {"json": {"query": "secret harbour", "index": names["index"], "mode": "text"}}
    if path == "/v1/sql":
        yield {"json": {"query": f"select * from {names['table']}"}}
        yield {"json": {"query": "select * from metrics"}}
    if path.startswith("/api/v1/"):
        yield {
            "params": {"query": '{__name__=~".+"}', "match[]": '{__name__=~".+"}', "start": "0", "end": "9999999999"}
        }
    if path == "/ui/search":
        yield {"params": {"q": "secret harbour", "index": names["index"]}}
    if path == "/ui/metrics":
        yield {"params": {"query": '{__name__=~".+"}', "find": "z"}}
    if path == "/ui/page/{name}":
        for page in ("documents", "queue", "edge", "stores", "catalog", "jobs", "cost"):
            yield {"page": page}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The first tenant's data, found by itself everywhere; and a token of every scope for each tenant."""
    folder = tmp_path_factory.mktemp("tenants")
    book, tokens = TokenBook.new(), {}
    for tenant in ("a", "b"):
        for scope in Scope:
            book, tokens[tenant, scope] = book.issue(tenant, [scope], 0)
    book.save(folder / "tokens.json", replaces=None)
    with Served(folder, "--tokens", "tokens.json") as served:
        writing, reading = bearer(tokens["a", Scope.WRITE]), bearer(tokens["a", Scope.READ])
        client, now = served.client, int(time.time())
        put = client.put(f"/v1/documents/papers/{WORD}.txt", content=f"The secret harbour of {WORD}.", headers=writing)
        assert put.status_code == 202
        rows = client.post("/v1/rows/ledger", content=f'{{"town": "{WORD}"}}\n', headers=writing)
        assert rows.status_code == 200
        point = {"timeUnixNano": f"{now}000000000", "asDouble": 1, "attributes": [_attribute("town", WORD)]}
        metric = {"name": f"{WORD}_level", "gauge": {"dataPoints": [point]}}
        sent = client.post(
            "/v1/metrics", json={"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}, headers=writing
        )
        assert sent.status_code == 200

        def asked(method, path, **given):
            return WORD in client.request(method, path, headers=reading, **given).text

        assert waited_for(lambda: asked("POST", "/v1/sql", json={"query": "select town from ledger"}))
        assert waited_for(lambda: asked("GET", "/api/v1/label/town/values"))
        search = {"query": "secret harbour", "index": "papers", "mode": "text"}
        assert waited_for(lambda: asked("POST", "/v1/search", json=search))
        yield served, tokens


def _attribute(name, value):
    return {"key": name, "value": {"stringValue": value}}


def test_no_route_tells_one_tenant_what_another_has(world):
    """Every route of the table, so that a new one cannot be forgotten; a name that is theirs is one that nobody has."""
    served, tokens = world
    found = [one for one in operations(served) if one[1] not in OPEN]
    assert len(found) > 30
    # What it uploads itself is its own, and there from then on: that comes last.
    found.sort(key=lambda one: (one[2] == Scope.WRITE, one[0] == "PUT"))
    told = 0
    for method, path, needed, _ in found:
        headers = bearer(tokens["b", needed])
        for theirs, nobodys in zip(questions(path, THEIRS), questions(path, NOBODYS), strict=True):
            answers = []
            for names, given in ((THEIRS, theirs), (NOBODYS, nobodys)):
                asked = dict(given)
                place = filled(path, {**names, "name": asked.pop("page", names["name"])})
                answers.append(served.client.request(method, place, headers=headers, follow_redirects=False, **asked))
            one, other = answers
            about = (method, path, theirs, one.status_code, one.text[:500])
            # What was asked for may be repeated: the key holds the word, too.
            assert WORD not in one.text.replace(THEIRS["key"], ""), about
            assert one.status_code == other.status_code, (*about, other.status_code)
            told += one.status_code < 400
    assert told > 10


def test_what_the_other_tenant_tried_changed_nothing(world):
    served, tokens = world
    reading = bearer(tokens["a", Scope.READ])
    shown = served.client.get(f"/v1/documents/papers/{WORD}.txt", headers=reading).json()
    assert shown["status"] == "indexed"
    rows = served.client.post("/v1/sql", json={"query": "select count(*) from ledger"}, headers=reading).json()["rows"]
    assert rows == [[1]]
