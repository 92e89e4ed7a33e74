from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest

from penstock.documents import Batcher, Chunker, ChunkingConfig
from penstock.documents.contracts import BatchInput, BatchRequest, ChunkEnvelope, ChunkMetadata
from penstock.documents.embedding import Dispatcher, DispatchPolicy, MemoryCache, NoCache, profile_of
from penstock.documents.embedding.dispatch import PROBE
from penstock.documents.embedding.provider import Later, Refused, Vectors
from penstock.documents.tokens import EstimatedTokens
from penstock.errors import Corrupt, InvalidInput, PermissionDenied, Unavailable
from penstock.testing import SeededEntropy, SimulatedClock, SimulatedLoop

PROFILE = msgspec.structs.replace(
    profile_of("text-embedding-3-small"), name="m", items_per_request=4, tokens_per_input=50, tokens_per_request=100
)


def batch(*texts, number=0):
    doc = "ab" * 32
    inputs = tuple(BatchInput(doc_id=doc, chunk_id=f"c{n}", seq=n, text=text) for n, text in enumerate(texts))
    return BatchRequest(
        batch_id=f"t:i:m:{number}:1000",
        tenant_id="t",
        index_id="i",
        model="m",
        inputs=inputs,
        tokens_total=len(texts),
        created_at=datetime(2025, 1, 1, tzinfo=UTC),
    )


class ScriptedProvider:
    """Answers from a script, then with vectors; texts with "poison" are refused. Remembers everything it was sent."""

    profile = PROFILE

    def __init__(self, *script):
        self.script = list(script)
        self.sent: list[tuple[str, ...]] = []
        self.contents: dict[str, set[tuple[str, ...]]] = {}

    async def embed(self, texts, *, idempotency_key):
        self.sent.append(tuple(texts))
        self.contents.setdefault(idempotency_key, set()).add(tuple(texts))
        answer = self.script.pop(0) if self.script else None
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        if any("poison" in text for text in texts):
            return Refused("400: not accepted")
        return Vectors(np.array([[float(len(text)), 1.0] for text in texts], dtype=np.float32), 10 * len(texts))

    async def close(self):
        pass


def embed(provider, *requests, **more):
    loop = SimulatedLoop(7)  # type: ignore[abstract]
    clock = SimulatedClock()

    async def main():
        dispatcher = Dispatcher(provider, clock=clock, entropy=SeededEntropy(3), **more)
        started = clock.monotonic()
        return [await dispatcher.embed(request) for request in requests], clock.monotonic() - started

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def test_every_chunk_gets_its_own_vector_and_the_batch_its_cost():
    (result,), _ = embed(ScriptedProvider(), batch("a", "bb", "ccc"))
    assert {name: row[0] for name, row in result.vectors.items()} == {"c0": 1, "c1": 2, "c2": 3}
    assert (result.requests, result.tokens, result.cost_usd) == (1, 30, pytest.approx(30 * 0.02 / 1e6))


def test_a_text_that_was_embedded_is_never_paid_for_again():
    provider = ScriptedProvider()
    (first, second), _ = embed(provider, batch("a", "b"), batch("b", "c", number=1))
    assert provider.sent == [("a", "b"), ("c",)]
    assert (first.cached, second.cached, second.tokens) == (0, 1, 10)
    assert second.vectors.keys() == {"c0", "c1"}


def test_the_same_text_twice_in_a_batch_is_sent_once():
    provider = ScriptedProvider()
    (result,), _ = embed(provider, batch("a", "a"))
    assert provider.sent == [("a",)]
    assert result.vectors.keys() == {"c0", "c1"}


def test_a_poisonous_text_is_found_by_halving_and_the_others_get_their_vectors():
    provider = ScriptedProvider()
    (result,), _ = embed(provider, batch("a", "b", "poison", "d"))
    assert result.vectors.keys() == {"c0", "c1", "c3"}
    (letter,) = result.dead_letters
    assert (letter.chunk_id, letter.reason) == ("c2", "400: not accepted")


def test_a_batch_of_nothing_but_poison_is_nothing_but_dead_letters():
    (result,), _ = embed(ScriptedProvider(), batch("poison", "poison 2"))
    assert [letter.chunk_id for letter in result.dead_letters] == ["c0", "c1"]


class RefusingProvider(ScriptedProvider):
    """Answers 400 to everything: it does not have the model, or wants a setting that it is not given."""

    async def embed(self, texts, *, idempotency_key):
        self.sent.append(tuple(texts))
        return Refused("400: no such model")


def test_a_provider_that_refuses_everything_is_misconfigured_and_no_text_is_lost_to_it():
    provider = RefusingProvider()
    result = attempt(provider, batch(*[f"text {number}" for number in range(128)]))
    assert provider.sent == [tuple(f"text {number}" for number in range(4)), (PROBE,)]
    assert (result.vectors, result.dead_letters) == ({}, [])
    assert result.away is not None
    assert "rejects every text" in result.away.reason
    assert "400: no such model" in result.away.reason
    with pytest.raises(InvalidInput, match="rejects every text"):
        embed(provider, batch("a"))


def test_a_provider_that_begins_to_refuse_everything_is_noticed_before_many_texts_are_blamed():
    provider = ScriptedProvider(None, *[Refused("400: quota")] * 100)
    result = attempt(provider, batch(*[f"text {number}" for number in range(64)]))
    assert len(provider.sent) <= 11
    assert result.away is not None
    assert result.dead_letters == []


def zeros(count):
    return Vectors(np.zeros((count, 2), np.float32))


def test_a_provider_that_answers_zeros_to_everything_is_misconfigured_and_its_zeros_are_not_kept():
    provider = ScriptedProvider(zeros(4), zeros(1))
    result = attempt(provider, batch("a", "b", "c", "d"))
    assert provider.sent == [("a", "b", "c", "d"), (PROBE,)]
    assert result.vectors == {}
    assert "zeros for every text" in result.away.reason


def beyond(count):
    return Vectors(np.full((count, 2), 1e30, np.float32))


def test_a_provider_whose_numbers_no_store_compares_is_misconfigured_and_costs_no_document():
    provider = ScriptedProvider(beyond(2), beyond(1))
    result = attempt(provider, batch("a", "b"))
    assert provider.sent == [("a", "b"), (PROBE,)]
    assert result.vectors == {}
    assert "numbers beyond 1e+15 for every text" in result.away.reason


def test_texts_that_a_model_does_not_know_have_zeros_for_vectors():
    provider = ScriptedProvider(zeros(2))
    result = attempt(provider, batch("a", "b"))
    assert provider.sent == [("a", "b"), (PROBE,)]
    assert not np.any(list(result.vectors.values()))
    assert (len(result.vectors), result.away) == (2, None)


def test_a_wrong_key_and_an_answer_that_is_none_are_told_by_an_attempt_and_raised_by_embed():
    for error in (PermissionDenied("no"), Corrupt("a row is missing")):
        result = attempt(ScriptedProvider(error), batch("a"))
        assert (result.failure, result.away) == (error, Later(str(error)))


def test_one_key_always_means_one_content_through_halving_repeats_and_replays():
    provider, cache = ScriptedProvider(Later("500"), None, Later("503")), MemoryCache()
    request = batch("a", "b", "poison", "d")
    embed(provider, request, cache=cache)
    embed(provider, request, cache=cache)  # a replay finds some of it cached, and sends less
    assert all(len(contents) == 1 for contents in provider.contents.values())


def test_later_is_repeated_and_never_sooner_than_asked():
    provider = ScriptedProvider(Later("429", 20.0), Later("503"))
    (result,), seconds = embed(provider, batch("a"))
    assert result.vectors.keys() == {"c0"}
    assert (result.requests, result.retries) == (3, 2)
    assert 20 <= seconds <= 22


def test_pauses_grow_and_end_in_an_error_that_says_the_last_reason():
    provider = ScriptedProvider(*[Later(f"try {n}") for n in range(8)])
    with pytest.raises(Unavailable, match="try 7"):
        embed(provider, batch("a"))
    assert len(provider.sent) == 8


def test_a_pause_too_long_to_wait_for_gives_the_batch_back():
    with pytest.raises(Unavailable, match="pause of 3600"):
        embed(ScriptedProvider(Later("429", 3600.0)), batch("a"))


def test_what_was_paid_for_survives_a_fault_later_in_the_batch():
    cache = MemoryCache()
    texts = [f"text {n}" for n in range(6)]  # two requests of at most four
    failing = ScriptedProvider(None, *[Later("503")] * 2)
    with pytest.raises(Unavailable):
        embed(failing, batch(*texts), cache=cache, retry=DispatchPolicy(attempts_max=2))
    healthy = ScriptedProvider()
    (result,), _ = embed(healthy, batch(*texts), cache=cache)
    assert healthy.sent == [("text 4", "text 5")]
    assert len(result.vectors) == 6


def test_a_text_over_the_models_limit_is_never_sent_and_never_cut():
    provider = ScriptedProvider()
    (result,), _ = embed(provider, batch("short", "word " * 200, " "))
    assert provider.sent == [("short",)]
    assert [letter.chunk_id for letter in result.dead_letters] == ["c1", "c2"]
    assert "over the model's 50" in result.dead_letters[0].reason


SHOUTED = "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG AND RUNS AWAY FROM ALL OF THEM. "
TABLE = "+--------+--------+--------+--------+\n| ------ | ====== | ****** | ...... |\n"
HEADINGS = "INTRODUCTION AND OVERVIEW\n=========================\n\nINSTALLATION\n------------\n\n"


@pytest.mark.parametrize("text", [SHOUTED * 60, TABLE * 60, HEADINGS * 60], ids=["capitals", "tables", "headings"])
@pytest.mark.parametrize("model", ["embed-english-v3.0", "BAAI/bge-small-en-v1.5"])
def test_every_chunk_that_was_cut_for_a_small_model_is_sent_to_it(model, text):
    """An estimate of its tokens may be far above the count that it was cut by."""
    profile = profile_of(model)
    chunker = Chunker(profile.chunking(ChunkingConfig(target_tokens=1100)))
    chunks = list(chunker.chunk(text.encode()))
    assert any(EstimatedTokens().count(chunk.text) > profile.tokens_per_input for chunk in chunks)
    metadata = ChunkMetadata(tenant_id="t", index_id="i", model="m")
    batcher = Batcher("t", "i", "m", profile.batcher_limits())
    outputs = batcher.group(
        [
            ChunkEnvelope(
                doc_id="ab" * 32,
                chunk_id=f"c{chunk.seq}",
                seq=chunk.seq,
                text=chunk.text,
                byte_range=(chunk.start, chunk.end),
                token_count=chunk.tokens,
                metadata=metadata,
            )
            for chunk in chunks
        ],
        now_ms=0,
    )
    outputs += batcher.tick(now_ms=1000)
    provider = ScriptedProvider()
    provider.profile = profile
    results, _ = embed(provider, *[output.request for output in outputs])
    assert [letter for result in results for letter in result.dead_letters] == []
    assert sum(len(result.vectors) for result in results) == len(chunks)


def test_requests_stay_within_the_models_items_and_tokens():
    provider = ScriptedProvider()
    embed(provider, batch(*[f"{n} " + "word " * 30 for n in range(5)], *"abcdef"))
    assert [len(sent) for sent in provider.sent] == [2, 2, 4, 3]


def test_a_wrong_key_stops_at_once():
    provider = ScriptedProvider(PermissionDenied("no"))
    with pytest.raises(PermissionDenied):
        embed(provider, batch("a"))
    assert len(provider.sent) == 1


@pytest.mark.parametrize("rows", [np.zeros((1, 2)), np.full((2, 2), np.nan), np.zeros(2)])
def test_an_answer_that_is_no_vector_for_each_text_is_corrupt(rows):
    with pytest.raises(Corrupt):
        embed(ScriptedProvider(Vectors(rows.astype(np.float32))), batch("a", "b"))


def attempt(provider, request, **more):
    """The same as `embed`, without an error for a provider that stays away."""
    loop = SimulatedLoop(7)  # type: ignore[abstract]

    async def main():
        dispatcher = Dispatcher(provider, clock=SimulatedClock(), entropy=SeededEntropy(3), **more)
        return await dispatcher.attempt(request)

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def test_an_attempt_tells_that_the_provider_stayed_away_and_what_pause_it_asked_for():
    provider = ScriptedProvider(Later("busy", 2.0), Later("busy", 5.0))
    result = attempt(provider, batch("a", "b"), retry=DispatchPolicy(attempts_max=2))
    assert result.away == Later("2 tries, the last: busy", 5.0)
    assert (result.vectors, result.retries, len(provider.sent)) == ({}, 1, 2)


def test_a_provider_that_asks_for_too_long_a_pause_is_away_at_once():
    result = attempt(ScriptedProvider(Later("closed", 7200.0)), batch("a"))
    assert result.away == Later("it asks for a pause of 7200 s: closed", 7200.0)
    assert result.retries == 0


def test_a_provider_that_leaves_in_the_middle_of_a_halving_is_away_for_the_whole_batch():
    provider = ScriptedProvider(Refused("400"), Later("busy"))
    result = attempt(provider, batch("a", "poison"), retry=DispatchPolicy(attempts_max=1))
    assert result.away is not None
    assert (result.vectors, result.dead_letters) == ({}, [])


def test_a_batch_that_goes_in_parts_has_a_place_for_each_of_them():
    provider = ScriptedProvider()
    embed(provider, batch(*"abcdef"))
    assert sorted(key.partition("#")[0] for key in provider.contents) == ["t:i:m:0", "t:i:m:0/1"]


def test_without_a_cache_batches_do_not_depend_on_those_before_them():
    provider = ScriptedProvider()
    embed(provider, batch("a", "b"), batch("b", "c", number=1), cache=NoCache())
    assert provider.sent == [("a", "b"), ("b", "c")]


def test_a_policy_without_a_try_is_refused():
    with pytest.raises(InvalidInput, match="attempts_max=0"):
        DispatchPolicy(attempts_max=0)
