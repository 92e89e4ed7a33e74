"""Names of batch objects: which of them tell a time, and what a bucket calls them."""

from __future__ import annotations

import pytest

from penstock.buffer.location import batch_location, batch_time_ms, bucket_prefix, key_of
from penstock.errors import Corrupt, InvalidInput

ULID = "01J5T4R3KXBMZ7QV9N2WG8YDHP"


def test_a_batch_object_tells_when_it_was_named() -> None:
    location = batch_location("ingest", ULID)
    assert location == f"ingest/{ULID}.batch"
    assert batch_time_ms(location) == batch_time_ms(location, "ingest") == 1724233027197


@pytest.mark.parametrize(
    "other",
    [
        f"ingest/{ULID}",
        f"ingest/{ULID}.BATCH",
        f"ingest/{ULID.lower()}.batch",
        f"ingest/{ULID}x.batch",
        "ingest/manifest",
        "ingest/somefile.batch",
        f"ingest/deeper/{ULID}.batch",
        f"elsewhere/{ULID}.batch",
        f"{ULID}.batch",
        ".batch",
        "",
    ],
)
def test_every_other_name_tells_nothing(other: str) -> None:
    assert batch_time_ms(other, "ingest") is None


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("s3://bucket", ""),
        ("s3://bucket/a/b", "a/b/"),
        ("az://container/a%20b", "a b/"),
        ("gs://bucket/a", "a/"),
        ("file:///a/b", ""),
        ("memory://a", ""),
        ("unreachable://", ""),
    ],
)
def test_only_the_prefix_of_a_bucket_stands_before_its_keys(url: str, prefix: str) -> None:
    assert bucket_prefix(url) == prefix
    assert key_of(f"{prefix}ingest/x.batch", url) == "ingest/x.batch"


def test_a_sound_location_out_of_reach_is_the_readers_fault_and_a_bad_one_the_entrys() -> None:
    """A dead letter is only what is damaged: what lies elsewhere in the bucket is not."""
    with pytest.raises(InvalidInput, match="it is outside s3://bucket/a"):
        key_of("ab/x.batch", "s3://bucket/a")
    with pytest.raises(Corrupt, match="cannot be a key"):
        key_of("../x.batch", "s3://bucket/a")
