"""The indexing job on a standalone cluster of several processes, handed over with spark-submit."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.spark_rpc import rpc_answer

from penstock.buffer import SyncProducer
from penstock.documents import Chunker, UploadNotification, chunk_id, doc_id_of, encode
from penstock.documents.embedding import EMBEDDED_MODEL, StaticProvider
from penstock.objects import open_store
from penstock.testing.servers.spark_cluster import SparkCluster
from penstock.vector import ALL_LISTS, VectorStore

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parents[2] / "examples" / "spark" / "index_job.py"
# A cold session on a busy machine.
SUBMIT_SECONDS_MAX = 600.0


def notified(folder: Path) -> list[UploadNotification]:
    async def listed() -> list[UploadNotification]:
        store = await open_store(f"file://{folder}", read_only=True)
        try:
            return [
                UploadNotification(
                    tenant_id="acme",
                    index_id="handbook",
                    model=EMBEDDED_MODEL,
                    bucket=f"file://{folder}",
                    key=meta.key,
                    etag=meta.version,
                    size_bytes=meta.size,
                    created_at=datetime(2026, 1, 1, tzinfo=UTC),
                )
                async for page in store.list()
                for meta in page
            ]
        finally:
            await store.close()

    return asyncio.run(listed())


def searchable(url: str) -> list[str]:
    async def read() -> list[str]:
        async with await VectorStore.open_reader(url, "vectors") as reader:
            vectors = await reader.collection("acme", "handbook", EMBEDDED_MODEL)
            found = await vectors.search(StaticProvider().embed_now(["a"]).rows, 10_000, probes=ALL_LISTS)
            return sorted(found["id"].to_pylist())

    return asyncio.run(read())


def test_spark_submit_runs_the_whole_job_on_executors_of_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    folder, url = tmp_path / "documents", f"file://{tmp_path}/store"
    folder.mkdir()
    for number in range(12):
        paragraphs = [f"Paragraph {line} of book {number} tells of rivers." for line in range(40 * number + 1)]
        (folder / f"book-{number}.txt").write_text("\n\n".join(paragraphs))
    uploads = notified(folder)
    with SyncProducer(url) as producer:
        producer.produce([encode(upload) for upload in uploads]).durable()

    settings = [part for name, value in cluster.settings.items() for part in ("--conf", f"{name}={value}")]
    spark_submit = str(Path(sys.executable).with_name("spark-submit"))
    answer = subprocess.run(
        [
            spark_submit,
            "--master",
            cluster.master,
            *settings,
            str(PROGRAM),
            url,
            "--checkpoint",
            f"{tmp_path}/progress",
            "--allow",
            f"file://{folder}",
        ],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=SUBMIT_SECONDS_MAX,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert answer.stdout.startswith("12 documents, "), answer.stdout
    expected = [
        chunk_id(doc_id_of(upload), chunk.start, chunk.end)
        for upload in uploads
        for chunk in Chunker().chunk((folder / upload.key).read_bytes())
    ]
    assert searchable(url) == sorted(expected)


def test_a_cluster_with_a_secret_refuses_whoever_does_not_know_it(cluster: SparkCluster) -> None:
    assert b"SaslMessage" in rpc_answer(int(cluster.master.rpartition(":")[2]))


def test_a_cluster_with_a_secret_takes_no_programs_from_whoever_does_not_know_it(cluster: SparkCluster) -> None:
    """Its master would else start whatever is posted to it, by whomever, as the user of the cluster."""
    assert "Started REST server" not in cluster.master_log.read_text()
