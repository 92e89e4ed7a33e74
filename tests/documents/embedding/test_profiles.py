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
