"""A bucket of SeaweedFS that tells the gateway of its objects: put with boto3, announced by its webhook, found by search."""

from __future__ import annotations

import json
from pathlib import Path

import boto3  # type: ignore[import-untyped, unused-ignore]
import pytest
from tests.cli.served import Served, waited_for

from penstock.gateway import Scope, TokenBook
from penstock.testing.servers.object_stores import ServerMissing, seaweedfs


@pytest.mark.integration
def test_an_object_that_a_bucket_announces_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, token = TokenBook.new().issue("acme", [Scope.WRITE, Scope.READ], 0)
    book.save(tmp_path / "tokens.json", replaces=None)
    try:
        # It reads its configuration where it is started; the gateway must be there before it can be named.
        (tmp_path / "seaweedfs").mkdir()
        monkeypatch.chdir(tmp_path / "seaweedfs")
        _announce(tmp_path, token)
    except ServerMissing as missing:
        pytest.skip(f"no S3 server here: {missing}")


def _announce(folder: Path, token: str) -> None:
    settings = folder / "penstock.toml"
    settings.write_text('[gateway.notifications]\nbuckets = {acme = ["books"]}\n')
    serve = ("--tokens", "tokens.json", "--config", str(settings))
    with Served(folder, *serve, "--roles", "gateway,query", token=token) as served:
        webhook = {
            "enabled": True,
            "endpoint": f"{served.url}/v1/notifications/seaweedfs?index=shelf",
            "bearer_token": token,
            "path_prefixes": ["/buckets/books"],
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in webhook.items()]
        (folder / "seaweedfs" / "notification.toml").write_text("[notification.webhook]\n" + "\n".join(lines) + "\n")
        with seaweedfs(folder / "seaweedfs", "books") as server:
            settings.write_text(
                settings.read_text()
                + "[s3]\n"
                + "\n".join(f"{name} = {json.dumps(value)}" for name, value in server.options.items())
                + "\n"
            )
            client = boto3.client(
                "s3",
                endpoint_url=server.endpoint,
                region_name=server.region,
                aws_access_key_id=server.access_key_id,
                aws_secret_access_key=server.secret_access_key,
            )
            client.put_object(Bucket="books", Key="whale.txt", Body=b"The whale is white.")
            # The job that reads the bucket knows where it is only now.
            with Served(folder, *serve, "--store", str(folder / "penstock-data"), "--roles", "jobs,query", token=token):

                def hits() -> list[str]:
                    asked = {"query": "whale", "index": "shelf", "mode": "text"}
                    answer = served.client.post("/v1/search", json=asked)
                    return [hit["key"] for hit in answer.json()["hits"]] if answer.status_code == 200 else []

                assert waited_for(hits) == ["whale.txt"], (folder / "serve.log").read_text()[-2000:]
