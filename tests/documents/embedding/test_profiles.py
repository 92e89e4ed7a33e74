import pytest

from penstock.documents.chunker import ChunkingConfig
from penstock.documents.embedding.profiles import PROFILES, profile_of
from penstock.errors import InvalidInput


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_chunks_and_batches_made_for_a_model_stay_under_its_limits(name):
    profile = profile_of(name)
    limits, chunking = profile.batcher_limits(), profile.chunking()
    assert limits.max_tokens_per_batch < profile.tokens_per_request
    assert limits.max_items_per_batch <= profile.items_per_request
    assert chunking.max_tokens <= limits.max_tokens_per_input < profile.tokens_per_input


def test_a_model_that_takes_little_gets_smaller_chunks_in_proportion():
    chunking = profile_of("embed-english-v3.0").chunking()
    assert (chunking.target_tokens, chunking.max_tokens, chunking.overlap_tokens) == (306, 460, 38)


def test_a_model_that_takes_much_gets_the_chunks_that_were_asked_for():
    wanted = ChunkingConfig(target_tokens=500, max_tokens=700, overlap_tokens=50)
    assert profile_of("text-embedding-3-small").chunking(wanted) is wanted


def test_a_provider_may_be_named_before_the_model():
    assert profile_of("openai:text-embedding-3-large").dimensions == 3072


def test_a_model_without_a_profile_is_refused_rather_than_guessed():
    with pytest.raises(InvalidInput, match="word2vec"):
        profile_of("word2vec")


def test_a_million_tokens_cost_the_price():
    assert profile_of("text-embedding-3-large").cost_usd(1_000_000) == pytest.approx(0.13)


PUBLISHED = {
    # Tokens a request, inputs a request, tokens an input; None is a limit that the provider does not publish.
    "text-embedding-3-small": (300_000, 2048, 8192),
    "text-embedding-3-large": (300_000, 2048, 8192),
    "embed-english-v3.0": (None, 96, 512),
    "embed-multilingual-v3.0": (None, 96, 512),
    "embed-v4.0": (128_000, 96, 128_000),
    "voyage-3.5": (320_000, 128, 32_000),
    "voyage-3.5-lite": (1_000_000, 128, 32_000),
    "text-embedding-005": (20_000, 250, 2048),
    "gemini-embedding-001": (20_000, 1, 2048),
    "amazon.titan-embed-text-v2:0": (8192, 1, 8192),
    "mistral-embed": (16_384, 512, 8192),
    "BAAI/bge-small-en-v1.5": (16_384, 32, 512),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_limits_are_those_that_the_provider_publishes(name):
    profile = profile_of(name)
    tokens, items, tokens_per_input = PUBLISHED[name]
    assert (profile.items_per_request, profile.tokens_per_input) == (items, tokens_per_input)
    assert tokens is None or profile.tokens_per_request == tokens
    assert profile.headroom == 0.9


def test_openai_also_counts_a_quarter_of_the_bytes():
    assert profile_of("text-embedding-3-small").bytes_per_request == 4 * 300_000
