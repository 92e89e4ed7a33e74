import asyncio
import json

import httpx
import pytest

from penstock.documents.embedding import Later, Refused, RemoteReranker, Scores
from penstock.errors import Corrupt, InvalidInput, NotFound, PermissionDenied
from penstock.testing import ManualClock


def ask(answer, passages=("first", "second"), **more):
    seen = []

    def respond(request):
        seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main():
        transport = httpx.MockTransport(respond)
        reranker = RemoteReranker("http://127.0.0.1:9/v1/rerank", transport=transport, clock=ManualClock(), **more)
        try:
            return await reranker.rerank("why?", passages)
        finally:
            await reranker.close()

    return asyncio.run(main()), seen


def results(*pairs):
    return httpx.Response(200, json={"results": [{"index": place, "relevance_score": score} for place, score in pairs]})


def test_scores_come_in_the_order_of_the_passages_whatever_order_the_answer_has():
    answer, (request,) = ask(results((1, 0.9), (0, 0.2)), model="jina-reranker-v2", api_key="secret")
    assert answer == Scores((0.2, 0.9))
    assert str(request.url) == "http://127.0.0.1:9/v1/rerank"
    assert request.headers["authorization"] == "Bearer secret"
    assert json.loads(request.content) == {
        "model": "jina-reranker-v2",
        "query": "why?",
        "documents": ["first", "second"],
        "top_n": 2,
        "return_documents": False,
    }


def test_no_passages_are_judged_without_a_request():
    assert ask(results(), passages=()) == (Scores(()), [])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"results": null}',
        b'{"results": []}',
        b'{"results": [{"index": 0, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 0, "relevance_score": 2}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 7, "relevance_score": 2}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": -1, "relevance_score": 2}]}',
        b'{"results": [{"index": 0, "relevance_score": 1e999}, {"index": 1, "relevance_score": 2}]}',
        b"\xff\xfe",
        b"[" * 5000,
    ],
)
def test_an_answer_that_is_no_ranking_is_corrupt(content):
    with pytest.raises(Corrupt):
        ask(httpx.Response(200, content=content))


def test_limits_and_faults_mean_later_and_what_is_not_accepted_is_refused():
    late, _ = ask(httpx.Response(429, text="slow down", headers={"retry-after": "3"}))
    assert isinstance(late, Later)
    assert late.after_seconds == 3
    assert isinstance(ask(httpx.ConnectError("no route"))[0], Later)
    assert isinstance(ask(httpx.Response(422, text="too long"))[0], Refused)


@pytest.mark.parametrize(("status", "error"), [(401, PermissionDenied), (403, PermissionDenied), (404, NotFound)])
def test_what_no_repeat_heals_is_raised(status, error):
    with pytest.raises(error):
        ask(httpx.Response(status))


@pytest.mark.parametrize("url", ["ftp://somewhere", "http://[::1", "http://x:port"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InvalidInput):
        RemoteReranker(url)
