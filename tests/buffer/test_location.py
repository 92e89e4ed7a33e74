"""Names of batch objects: only a ULID and `.batch`, right under the prefix, tells a time."""

from __future__ import annotations

import pytest

from penstock.buffer.location import batch_location, batch_time_ms

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
