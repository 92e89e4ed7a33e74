"""`penstock buffer`: what an operator sees of a queue, and that looking changes nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.buffer import Consumer, ConsumerConfig, Manifest, Producer, ProducerConfig
from penstock.cli.buffer import buffer
from penstock.errors import NotFound
from penstock.ids import ulid
from penstock.objects import open_store


@pytest.fixture
def queue(tmp_path: Path) -> str:
    """Three batches, of which the first is consumed."""
    url = f"file://{tmp_path}"

    async def fill() -> None:
        store = await open_store(url)
        async with Producer(store, ProducerConfig(max_buffered_inputs=1)) as producer:
            for number in range(3):
                await producer.produce([b"record %d" % number, b"\x00\xff"], b"[meta]")
        async with Consumer(store, ConsumerConfig(collect=False)) as consumer:
            await consumer.next_descriptors(1)
            await consumer.ack_through(0)
        await store.close()

    asyncio.run(fill())
    return url


def run(*arguments: str) -> Result:
    return CliRunner().invoke(buffer, arguments)


def manifest_of(url: str) -> Manifest:
    return Manifest.decode((Path(url.removeprefix("file://")) / "ingest" / "manifest").read_bytes())


def batches_of(url: str) -> list[Path]:
    return sorted((Path(url.removeprefix("file://")) / "ingest").glob("*.batch"))


def test_inspect_shows_the_manifest_the_lag_and_the_batches(queue: str) -> None:
    answer = run("inspect", queue)
    assert answer.exit_code == 0, answer.output
    for text in ("2 batches", "1 to 3 (next)", "[meta]", manifest_of(queue)[0].location):
        assert text in answer.output


def test_inspect_lists_no_more_than_asked(queue: str) -> None:
    answer = run("inspect", queue, "--limit", "1")
    assert "... and 1 more" in answer.output
    assert manifest_of(queue)[1].location not in answer.output


def test_tail_prints_what_is_queued_and_takes_nothing_off(queue: str) -> None:
    before = manifest_of(queue).body
    answer = run("tail", queue)
    assert answer.exit_code == 0, answer.output
    assert "record 0" not in answer.output
    assert "record 1" in answer.output
    assert "record 2" in answer.output
    assert "00ff" in answer.output
    assert manifest_of(queue).body == before


def test_tail_begins_where_it_is_told_and_shows_so_many_records(queue: str) -> None:
    answer = run("tail", queue, "--from", "2", "--records", "1")
    assert "record 1" not in answer.output
    assert "record 2" in answer.output
    assert "... and 1 more" in answer.output


def test_verify_is_content_with_a_sound_queue(queue: str) -> None:
    answer = run("verify", queue)
    assert answer.exit_code == 0, answer.output
    assert "2 batches, 4 records, 20 bytes, 0 problems" in answer.output


def test_verify_names_every_object_that_is_missing_or_damaged(queue: str) -> None:
    batches_of(queue)[1].unlink()
    batches_of(queue)[1].write_bytes(b"damaged")
    answer = run("verify", queue)
    assert answer.exit_code == 1
    assert "batch 1:" in answer.output
    assert "batch 2:" in answer.output
    assert "2 problems" in answer.output


def test_verify_finds_a_gap(queue: str) -> None:
    manifest = manifest_of(queue)
    jumped = manifest.body[:-18] + (9).to_bytes(8, "little") + manifest.body[-10:]
    (Path(queue.removeprefix("file://")) / "ingest" / "manifest").write_bytes(jumped)
    answer = run("verify", queue)
    assert answer.exit_code == 1
    assert "sequences jump from 2 to 9" in answer.output


def test_collect_says_first_what_it_would_delete_and_then_deletes_it(queue: str) -> None:
    orphan = batches_of(queue)[0].with_name(f"{ulid(1_000_000)}.batch")
    orphan.write_bytes(b"never enqueued")
    os.utime(orphan, (1000, 1000))
    for _ in range(2):
        dry = run("collect", queue, "--dry-run")
        assert dry.exit_code == 0, dry.output
        assert orphan.name in dry.output
        assert "1 objects, 14 bytes would be deleted" in dry.output
    assert orphan.exists()
    done = run("collect", queue)
    assert "1 objects, 14 bytes deleted" in done.output
    assert not orphan.exists()
    assert len(batches_of(queue)) == 3


def test_collect_leaves_what_is_within_the_grace(queue: str) -> None:
    assert "0 objects" in run("collect", queue).output
    assert len(batches_of(queue)) == 3


@pytest.mark.parametrize("command", ["inspect", "tail", "verify", "collect"])
def test_a_place_without_a_queue_is_named(command: str, tmp_path: Path) -> None:
    answer = run(command, f"file://{tmp_path}")
    assert isinstance(answer.exception, NotFound)
    assert "no queue at 'ingest/manifest'" in str(answer.exception)
