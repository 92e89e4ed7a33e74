"""`penstock buffer`: what an operator sees of a queue, and that looking changes nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.buffer import (
    Consumer,
    ConsumerConfig,
    DeadLetterPolicy,
    DescriptorDraft,
    Manifest,
    MetadataRange,
    Producer,
    ProducerConfig,
)
from penstock.cli.commands.stores.buffer import buffer
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


def test_tail_names_a_batch_that_cannot_be_read_and_prints_those_behind_it(queue: str) -> None:
    batches_of(queue)[1].unlink()
    answer = run("tail", queue)
    assert answer.exit_code == 1
    assert answer.output.index("batch 1 at") < answer.output.index("record 2")


def test_a_hostile_entry_is_shown_and_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Any 64 bits may stand for the time, and any text for the location."""
    ranges = [(-(2**63), b"a"), (2**63 - 1, b"b"), (0, b"c")]
    drafts = [
        DescriptorDraft(f"\x1b[31m{time_ms}", [MetadataRange(0, time_ms, payload)]) for time_ms, payload in ranges
    ]
    (tmp_path / "ingest").mkdir()
    (tmp_path / "ingest" / "manifest").write_bytes(Manifest.empty().append(drafts).body)
    shown = run("inspect", f"file://{tmp_path}")
    assert shown.exit_code == 0, shown.output
    for text in ("-9223372036854775808 ms", "9223372036854775807 ms", "1970-01-01T00:00:00.000+00:00"):
        assert text in shown.output
    for command in ("inspect", "tail", "verify"):
        assert "\x1b" not in run(command, f"file://{tmp_path}").output


@pytest.mark.parametrize("option", [("inspect", "--limit"), ("tail", "--from"), ("tail", "--records")])
def test_a_count_below_zero_is_refused(queue: str, option: tuple[str, str]) -> None:
    command, name = option
    answer = run(command, queue, name, "-1")
    assert answer.exit_code == 2
    assert name in answer.output


def test_verify_is_content_with_a_sound_queue(queue: str) -> None:
    answer = run("verify", queue)
    assert answer.exit_code == 0, answer.output
    assert "2 batches, 4 records, 20 bytes, 0 problems" in answer.output


def test_verify_names_every_object_that_is_missing_or_damaged(queue: str) -> None:
    batches_of(queue)[1].unlink()
    batches_of(queue)[1].write_bytes(b"damaged")
    answer = run("verify", queue)
    assert answer.exit_code == 1
    assert "batch 1 at" in answer.output
    assert "batch 2 at" in answer.output
    assert "2 problems" in answer.output


def test_verify_finds_a_gap(queue: str) -> None:
    manifest = manifest_of(queue)
    jumped = manifest.body[:-18] + (9).to_bytes(8, "little") + manifest.body[-10:]
    (Path(queue.removeprefix("file://")) / "ingest" / "manifest").write_bytes(jumped)
    answer = run("verify", queue)
    assert answer.exit_code == 1
    assert "sequences jump from 2 to 9" in answer.output


def test_replay_puts_dead_letters_back_once_and_says_what_it_did(queue: str) -> None:
    first = batches_of(queue)[1]
    sound = first.read_bytes()
    first.write_bytes(b"damaged")

    async def set_aside() -> None:
        store = await open_store(queue)
        config = ConsumerConfig(collect=False, dead_letter=DeadLetterPolicy.SET_ASIDE)
        async with Consumer(store, config) as consumer:
            while batch := await consumer.next_batch():
                await consumer.ack(batch.sequence)
        await store.close()

    asyncio.run(set_aside())
    answer = run("replay", queue)
    assert answer.exit_code == 1
    assert "dead letter 1 cannot be replayed" in answer.output
    first.write_bytes(sound)
    answer = run("replay", queue)
    assert answer.exit_code == 0, answer.output
    assert "1 replayed, as 3" in answer.output
    answer = run("replay", queue, "1")
    assert answer.exit_code == 0, answer.output
    assert "1 was replayed before, as 3" in answer.output
    assert [entry.sequence for entry in manifest_of(queue)] == [3]
    assert run("replay", queue, "9").exit_code == 1


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
def test_a_place_without_a_queue_is_named_and_stays_as_it_is(command: str, tmp_path: Path) -> None:
    answer = run(command, f"file://{tmp_path}")
    assert isinstance(answer.exception, NotFound)
    assert "no queue at 'ingest/manifest'" in str(answer.exception)
    assert list(tmp_path.iterdir()) == []
    assert isinstance(run(command, f"file://{tmp_path}/mistyped").exception, NotFound)
    assert not (tmp_path / "mistyped").exists()


def test_a_queue_is_named_by_its_path_as_well_as_by_its_url(queue: str) -> None:
    by_path, by_url = run("inspect", queue.removeprefix("file://")), run("inspect", queue)
    assert by_path.exit_code == 0, by_path.output
    assert by_path.output.splitlines()[2:] == by_url.output.splitlines()[2:]
