"""What the writer of an object said of it (`x-amz-meta-*`) is metadata of its document where that is wanted."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.indexing.desk import Desk, prose
from tests.objects.bucket_server import BucketServer, bucket_server

from penstock.indexing.stages.fetching import FetchLimits
from penstock.indexing.stages.reading import Reading
from penstock.objects.cloud.said import said_of
from penstock.testing.servers.object_stores import S3Server

WANTED = FetchLimits(object_metadata=True)
TEXT = prose("rivers and mills", 12)


def said_in(desk: Desk, key: str = "a.txt") -> list[Any]:
    """What is said of each chunk of a document."""
    return [
        json.loads(row["metadata"]) if row.get("metadata") else None for row in desk.attributes() if row["key"] == key
    ]


def desk_of(tmp_path: Path, server: BucketServer) -> Desk:
    (tmp_path / "documents").mkdir(parents=True)
    return Desk(None, tmp_path, server=server)


@pytest.mark.parametrize("size", [None, 3 << 20], ids=["small", "large by its notification"])
def test_what_is_said_of_an_object_is_on_every_chunk_and_costs_no_request(tmp_path: Path, size: int | None) -> None:
    asked = []
    for wanted in (FetchLimits(), WANTED):
        with bucket_server() as server:
            desk = desk_of(tmp_path / str(wanted.object_metadata), server)
            server.said = {"a.txt": {"team": "sales", "year": "2024"}}
            desk.write("a.txt", TEXT)
            event = desk.upload("a.txt", etag=hashlib.md5(TEXT.encode()).hexdigest(), size=size or len(TEXT.encode()))
            desk.run(event, reading=Reading(options=server.s3_options, fetching=wanted))
            asked.append([method for method, _ in server.requests])
            said = said_in(desk)
            assert len(said) > 2
            expected = {"team": "sales", "year": "2024"} if wanted.object_metadata else None
            assert said == [expected] * len(said)
    assert len(asked[1]) == len(asked[0])


def test_the_notification_and_the_side_car_have_the_last_word(tmp_path: Path) -> None:
    with bucket_server() as server:
        desk = desk_of(tmp_path, server)
        server.said = {"a.txt": {"team": "sales", "year": "2024", "place": "here"}}
        reading = Reading(options=server.s3_options, fetching=WANTED)
        desk.run(desk.write("a.txt", TEXT, metadata={"team": "law"}), reading=reading)
        assert said_in(desk)[0] == {"team": "law", "year": "2024", "place": "here"}
        desk.run(desk.write("a.txt.meta.json", '{"year": 2025, "place": null}'), reading=reading)
        assert said_in(desk)[0] == {"team": "law", "year": 2025}
        # The same version is told of again, by somebody who says nothing.
        desk.run(desk.upload("a.txt"), reading=reading)
        assert said_in(desk)[0] == {"team": "law", "year": 2025}


def test_a_new_version_has_what_is_said_of_it_alone(tmp_path: Path) -> None:
    with bucket_server() as server:
        desk = desk_of(tmp_path, server)
        reading = Reading(options=server.s3_options, fetching=WANTED)
        server.said = {"a.txt": {"team": "sales", "old": "yes"}}
        desk.run(desk.write("a.txt", TEXT), reading=reading)
        server.said = {"a.txt": {"team": "law"}}
        desk.run(desk.write("a.txt", TEXT + "\n\nAnd more."), reading=reading)
        assert {json.dumps(one) for one in said_in(desk)} == {'{"team": "law"}'}


def test_names_and_values_are_read_as_services_send_them() -> None:
    sent = {"Content-Type": "text/plain", "Team": "sales", "wer": "=?UTF-8?B?w5xtbGF1dA==?=", "odd": "=?x?=?"}
    assert said_of(sent) == (("odd", "=?x?=?"), ("team", "sales"), ("wer", "Ümlaut"))


@pytest.mark.integration
def test_metadata_of_objects_on_a_real_server_is_read(tmp_path: Path, s3_server: S3Server) -> None:
    import obstore
    from obstore.store import S3Store

    bucket = S3Store(
        "penstock",
        endpoint=s3_server.endpoint,
        region=s3_server.region,
        access_key_id=s3_server.access_key_id,
        secret_access_key=s3_server.secret_access_key,
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )
    attributes = {"Content-Type": "text/plain", "Team": "sales"}
    obstore.put(bucket, "object-metadata/a.txt", TEXT.encode(), attributes=attributes)
    (tmp_path / "documents").mkdir(parents=True)
    desk = Desk(None, tmp_path)
    etag = hashlib.md5(TEXT.encode()).hexdigest()
    event = desk.upload("object-metadata/a.txt", etag=etag, size=len(TEXT.encode()), bucket="penstock")
    desk.run(event, reading=Reading(options=s3_server.options, fetching=WANTED))
    said = said_in(desk, "object-metadata/a.txt")
    assert len(said) > 2
    assert said == [{"team": "sales"}] * len(said)
