"""The embedding server answers the same for the same, fails as its seed says, and forgets no request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import numpy as np
import pytest

from penstock.documents.embedding import ModelProfile, OpenAiProvider
from penstock.documents.embedding.provider import Later, Refused, Vectors
from penstock.testing.servers.embedding_server import (
    AskFate,
    EmbeddingServer,
    ProviderFaults,
    contents_by_place,
    embedding_process,
    read_asks,
    vector_of,
)

DIMENSIONS = 16
PROFILE = ModelProfile(
    name="tested", tokens_per_request=1000, items_per_request=10, tokens_per_input=500, dimensions=DIMENSIONS
)
HOSTILE = ProviderFaults(seed=7, busy=0.2, failing=0.2, silent=0.2, hung_up=0.2, poison="arsenic")


def embed(url: str, *texts: str, key: str = "k:0#d", timeout: float = 30.0) -> Vectors | Later | Refused:
    async def ask() -> Vectors | Later | Refused:
        provider = OpenAiProvider(url, PROFILE, timeout=timeout)
        try:
            return await provider.embed(texts, idempotency_key=key)
        finally:
            await provider.close()

    return asyncio.run(ask())


def test_a_text_has_one_vector_whoever_asks() -> None:
    with EmbeddingServer(dimensions=DIMENSIONS) as one, EmbeddingServer(dimensions=DIMENSIONS) as other:
        first, second = embed(one.url, "a", "b"), embed(other.url, "b")
    assert isinstance(first, Vectors)
    assert isinstance(second, Vectors)
    assert np.array_equal(first.rows, [vector_of("a", DIMENSIONS), vector_of("b", DIMENSIONS)])
    assert np.array_equal(second.rows[0], first.rows[1])
    assert not np.array_equal(first.rows[0], first.rows[1])
    assert np.linalg.norm(first.rows, axis=1) == pytest.approx([1, 1])


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        (ProviderFaults(busy=1.0), "429"),
        (ProviderFaults(failing=1.0), "500"),
        # Of two bounds, of silence and of the whole answer, either may be met first.
        (ProviderFaults(silent=1.0), ("ReadTimeout", "no whole answer came")),
        (ProviderFaults(hung_up=1.0), "RemoteProtocolError"),
    ],
)
def test_each_fault_reaches_the_client_as_what_it_is_and_ends(
    faults: ProviderFaults, reason: str | tuple[str, ...]
) -> None:
    with EmbeddingServer(dimensions=DIMENSIONS, faults=faults) as server:
        for _ in range(faults.in_a_row_max):
            # Only silence is noticed by waiting; whatever else takes long on a busy machine is still what it is.
            answer = embed(server.url, "a", timeout=0.5 if faults.silent else 60.0)
            assert isinstance(answer, Later)
            assert answer.reason.startswith(reason)
        assert isinstance(embed(server.url, "a"), Vectors)


def test_a_busy_server_says_when_to_come_again() -> None:
    with EmbeddingServer(faults=ProviderFaults(busy=1.0, retry_after_seconds=0.25)) as server:
        answer = embed(server.url, "a")
    assert isinstance(answer, Later)
    assert answer.after_seconds == 0.25


def test_a_poisonous_text_is_refused_with_all_that_came_along() -> None:
    with EmbeddingServer(dimensions=DIMENSIONS, faults=ProviderFaults(poison="arsenic")) as server:
        assert isinstance(embed(server.url, "milk", "arsenic and lace"), Refused)
        assert isinstance(embed(server.url, "milk"), Vectors)
        assert [ask.fate for ask in server.asks] == [AskFate.REFUSED, AskFate.ANSWERED]


def test_a_plan_follows_from_its_seed_and_not_from_the_order_of_requests() -> None:
    keys = [f"k:{number}#d" for number in range(200)]
    fates = {key: HOSTILE.fate(key, 0, ["milk"]) for key in keys}
    assert {key: HOSTILE.fate(key, 0, ["milk"]) for key in reversed(keys)} == fates
    assert set(fates.values()) == set(AskFate) - {AskFate.REFUSED}
    assert {HOSTILE.fate(key, HOSTILE.in_a_row_max, ["milk"]) for key in keys} == {AskFate.ANSWERED}
    assert HOSTILE.fate("k:0#d", HOSTILE.in_a_row_max, ["arsenic"]) is AskFate.REFUSED


def test_a_batch_that_is_sent_with_another_content_is_found_out() -> None:
    with EmbeddingServer(dimensions=DIMENSIONS) as server:
        embed(server.url, "a", "b", key="k:0#x")
        embed(server.url, "a", "b", key="k:0#x")
        embed(server.url, "c", key="k:1#y")
        assert [len(contents) for contents in contents_by_place(server.asks).values()] == [1, 1]
        embed(server.url, "a", "c", key="k:0#z")
        assert [len(contents) for contents in contents_by_place(server.asks).values()] == [2, 1]


def test_a_path_that_is_no_endpoint_is_not_found_and_not_counted() -> None:
    with EmbeddingServer() as server:
        assert httpx.post(f"{server.url}/completions", json={"input": "a"}).status_code == 404
        assert server.asks == []


@pytest.mark.processes
def test_a_process_of_its_own_leaves_its_log_behind_and_goes_on_with_it(tmp_path: Path) -> None:
    log = tmp_path / "asks.log"
    with embedding_process(log, dimensions=DIMENSIONS, faults=ProviderFaults(failing=1.0, in_a_row_max=2)) as server:
        assert isinstance(embed(server.url, "a"), Later)
    assert server.process.returncode is not None
    with embedding_process(log, dimensions=DIMENSIONS, faults=ProviderFaults(failing=1.0, in_a_row_max=2)) as server:
        assert isinstance(embed(server.url, "a"), Later)
        assert isinstance(embed(server.url, "a"), Vectors)
        assert [ask.fate for ask in server.asks] == [AskFate.FAILING, AskFate.FAILING, AskFate.ANSWERED]
    with log.open("ab") as file:
        file.write(b'{"key": "half a li')
    assert len(read_asks(log)) == 3
