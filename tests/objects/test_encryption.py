"""Encryption at rest: what the service is asked for, by both clients, and what a real server then keeps from others."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest
from tests.objects.bucket_server import bucket_server

from penstock.errors import InvalidInput, PenstockError
from penstock.keyvalue import WriteBatch, open_keyvalue
from penstock.objects import check_encryption, open_store, without_encryption
from penstock.objects.cloud.services import S3Options
from penstock.testing.servers.object_stores import S3Server

KEY = base64.b64encode(bytes(range(32))).decode()
PREFIX = "x-amz-server-side-encryption"
KMS = {"encryption": "aws:kms", "kms_key_id": "arn:aws:kms:eu-central-1:1:key/abc", "kms_bucket_key": True}
ASKED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "sse-s3": ({"encryption": "AES256"}, {PREFIX: "AES256"}),
    "sse-kms": (
        KMS,
        {
            PREFIX: "aws:kms",
            f"{PREFIX}-aws-kms-key-id": "arn:aws:kms:eu-central-1:1:key/abc",
            f"{PREFIX}-bucket-key-enabled": "true",
        },
    ),
    "sse-c": (
        {"encryption": "sse-c", "customer_key": KEY},
        {f"{PREFIX}-customer-algorithm": "AES256", f"{PREFIX}-customer-key": KEY},
    ),
}


async def put_object(options: dict[str, Any]) -> None:
    store = await open_store("s3://bucket/store", **options)
    await store.put("parsed/text", b"staged words")
    await store.close()


async def put_row(options: dict[str, Any]) -> None:
    rows = await open_keyvalue("s3://bucket/store", "rows", **options)
    await (await rows.write(WriteBatch().put(b"key", b"value"))).durable()
    await rows.close()


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("write", [put_object, put_row], ids=["objects", "keyvalue"])
@pytest.mark.parametrize("kind", ASKED)
def test_every_write_asks_for_the_encryption_that_is_configured(kind: str, write: Callable[..., Any]) -> None:
    given, headers = ASKED[kind]
    with bucket_server() as server:
        asyncio.run(write({**server.s3_options, **given}))
        puts = [found for method, found in server.headers if method == "PUT"]
    assert puts
    for found in puts:
        assert {name: found.get(name) for name in headers} == headers


def test_nothing_is_asked_for_where_the_bucket_decides() -> None:
    with bucket_server() as server:
        asyncio.run(put_object(server.s3_options))
        assert not [name for _, found in server.headers for name in found if name.startswith(PREFIX)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"encryption": "rot13"}, "no such encryption"),
        ({"kms_key_id": "k"}, "key in KMS"),
        ({"encryption": "AES256", "kms_bucket_key": True}, "key in KMS"),
        ({"customer_key": KEY}, "one kind of encryption"),
        ({"encryption": "sse-c"}, "one kind of encryption"),
        ({"encryption": "sse-c", "customer_key": "c2hvcnQ="}, "32 bytes"),
        ({"encryption": "sse-c", "customer_key": "not base64 at all!"}, "32 bytes"),
    ],
)
@pytest.mark.parametrize("write", [put_object, put_row], ids=["objects", "keyvalue"])
def test_options_that_do_not_go_together_are_refused_before_anything_is_sent(
    given: dict[str, Any], says: str, write: Callable[..., Any]
) -> None:
    with bucket_server() as server:
        with pytest.raises(InvalidInput, match=says) as refused:
            asyncio.run(write({**server.s3_options, **given}))
        assert not server.requests
    assert str(given.get("customer_key", "?")) not in str(refused.value)


def test_a_customer_key_is_never_shown_and_does_not_go_to_buckets_that_are_only_read() -> None:
    options: dict[str, Any] = {"encryption": "sse-c", "customer_key": KEY, "region": "r"}
    assert KEY not in repr(S3Options(**options))
    assert without_encryption(options) == {"region": "r"}
    check_encryption("sse-c", None, None, KEY)


@pytest.mark.integration
def test_a_server_keeps_what_is_written_with_a_customer_key_from_whoever_has_not_got_it(
    s3_server: S3Server,
) -> None:
    url = s3_server.create_bucket("kept-from-others")
    mine = {**s3_server.options, "encryption": "sse-c", "customer_key": KEY}

    async def work() -> None:
        store = await open_store(url, **mine)
        await store.put("note", b"staged words")
        assert (await store.get("note")).data == b"staged words"
        await store.close()
        other = await open_store(url, **s3_server.options)
        with pytest.raises(PenstockError):
            await other.get("note")
        await other.close()

    asyncio.run(work())
