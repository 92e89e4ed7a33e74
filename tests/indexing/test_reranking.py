import asyncio

import pytest

from penstock.documents.embedding import Later, Scores
from penstock.errors import Unavailable
from penstock.indexing.search.reranking import RERANKED, reranked


class LongestFirst:
    """Judges by length, and remembers what it was asked."""

    def __init__(self):
        self.seen = []

    async def rerank(self, question, passages):
        self.seen.append((question, list(passages)))
        return Scores(tuple(float(len(passage)) for passage in passages))

    async def close(self):
        """Nothing is open."""


class AwayReranker:
    async def rerank(self, question, passages):
        return Later("503: busy")

    async def close(self):
        """Nothing is open."""


def hit(text, section=""):
    return {"key": text, "section": section, "text": text, "score": 1.0}


def order(hits, reranker=None):
    return asyncio.run(reranked(hits, "why?", reranker or LongestFirst()))


def test_passages_come_in_the_order_of_the_reranker_with_its_scores():
    found = order([hit("a"), hit("ccc"), hit("bb")])
    assert [(each["key"], each["rerank_score"]) for each in found] == [("ccc", 3.0), ("bb", 2.0), ("a", 1.0)]
    assert all(each["score"] == 1.0 for each in found)


def test_of_equals_the_one_before_stays_before():
    assert [each["key"] for each in order([hit("b"), hit("a"), hit("c")])] == ["b", "a", "c"]


def test_passages_behind_those_that_are_judged_follow_in_their_order():
    hits = [hit("x" * (1 + place)) for place in range(RERANKED + 3)]
    found = order(hits)
    assert [len(each["key"]) for each in found] == [*range(RERANKED, 0, -1), RERANKED + 1, RERANKED + 2, RERANKED + 3]


def test_a_passage_is_judged_below_its_headings():
    reranker = LongestFirst()
    order([hit("text", "Title › Part"), hit("other")], reranker)
    assert reranker.seen == [("why?", ["Title › Part\n\ntext", "other"])]


def test_a_reranker_that_is_away_is_named_and_the_way_around_it():
    with pytest.raises(Unavailable, match="503: busy") as caught:
        order([hit("a")], AwayReranker())
    assert "--rerank" in caught.value.remedy
