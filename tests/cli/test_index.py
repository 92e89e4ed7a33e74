"""`penstock index` sends what has changed and nothing else, and `penstock search` finds it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import penstock
from penstock.clock import SYSTEM_CLOCK, Deadline
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.indexing.search.lookup import read_entries
from penstock.indexing.sending.places import Place, place_of, url_of
from penstock.objects import open_store
from penstock.testing.servers.object_stores import S3Server
from penstock.vector import CollectionName

NAME = CollectionName("default", "default", EMBEDDED_MODEL)
SECONDS_MAX = 300


# Most of what the command promises does not depend on what runs its stages.
LOCAL = ("--engine", "local")


def run(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    """The real command in a process of its own: without `LOCAL` it starts and stops a Spark of its own."""
    command = [sys.executable, "-m", "penstock.cli", *arguments]
    answer = subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, timeout=SECONDS_MAX, env=env
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_a_folder_is_a_bucket_and_a_file_is_a_key_in_one(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("text")
    assert place_of(str(tmp_path)) == Place(f"file://{tmp_path}")
    assert place_of(str(tmp_path / "note.txt")) == Place(f"file://{tmp_path}", "note.txt")
    assert place_of("s3://bucket/prefix") == Place("bucket", prefix="prefix")
    assert url_of(str(tmp_path)) == f"file://{tmp_path}"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["index", "nowhere"], "there is no nowhere"),
        (["index", ".", "--model", "somebody's"], "cannot be asked"),
        (["index", ".", "--chunk-tokens", "50"], "is not possible"),
        (["index", "s3:///nothing"], "names no bucket"),
        (["search", "anything"], "NotFound"),
    ],
)
def test_what_cannot_be_done_is_said_before_spark_starts(tmp_path: Path, arguments: list[str], says: str) -> None:
    store = ["--store", str(tmp_path / "store")]
    answer = CliRunner().invoke(penstock, [*arguments, *store])
    assert answer.exit_code == 1
    assert says in answer.output
    assert not (tmp_path / "store").exists()


def test_a_run_that_stops_at_its_budget_says_so_with_a_code_of_its_own_and_the_next_one_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "handbook"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.txt").write_text(f"Otter number {number} swims in the river and eats fish.")
    command = ["index", str(folder), "--store", str(tmp_path / "store"), *LOCAL, "--json"]
    stopped = CliRunner().invoke(penstock, [*command, "--max-total-tokens", "40"])
    assert stopped.exit_code == 3
    assert "BudgetSpent: stopped at the budget for embedding" in stopped.stderr
    told = json.loads(stopped.stdout)["done"]
    assert 0 < told["documents"] < 4
    assert "nothing is lost" in told["stopped"]["remedy"]
    done = CliRunner().invoke(penstock, command)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["done"]["documents"] == 4 - told["documents"]


@pytest.mark.integration
def test_a_folder_is_indexed_searched_and_the_second_time_costs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "handbook"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("not a document")
    (folder / "otters.txt").write_text("Otters swim in the river and eat fish.")
    (folder / "bread.md").write_text("# Bread\n\nThe loaf is baked in a hot oven.")
    # The store lies inside what is indexed, and is left out.
    assert "documents: 2 indexed" in run(folder, "index", ".")
    assert run(folder, "index", ".").startswith("0 to index, 0 to remove, 2 unchanged")
    hits = [json.loads(line) for line in run(folder, "search", "fish in a river", "--json").splitlines()]
    assert (hits[0]["key"], hits[0]["text"]) == ("otters.txt", "Otters swim in the river and eat fish.")
    listed = [json.loads(line) for line in run(folder, "documents", "list", "--json").splitlines()]
    assert [(row["key"], row["status"]) for row in listed] == [("bread.md", "indexed"), ("otters.txt", "indexed")]


@pytest.mark.integration
def test_what_a_bucket_told_is_taken_from_the_queue_without_naming_a_path(tmp_path: Path) -> None:
    """The bucket's name stands for a folder here, and a listing of that folder finds the same document."""
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "otters.txt").write_text("Otters swim in the river and eat fish.")
    event(tmp_path, "ObjectCreated:Put", "0055", "2026-01-02T03:04:05Z")
    bucket = ["--bucket", "shelf=shelf"]
    work = [*bucket, *LOCAL]
    assert "1 uploads" in run(tmp_path, "notify", "event.json", "--source", "s3")
    assert "documents: 1 indexed" in run(tmp_path, "index", *work)
    assert run(tmp_path, "index", *work) == "the queue is empty\n"
    assert json.loads(run(tmp_path, "search", "fish in a river", "--json"))["bucket"] == "shelf"
    # The event named no version: the listing does.
    assert run(tmp_path, "index", "shelf", "--queue-only", *bucket).startswith("1 to index, 0 to remove")
    # A retry comes behind the listing, and what the bucket tells next behind both.
    assert "1 queued" in run(tmp_path, "documents", "retry", "otters.txt", *bucket)
    event(tmp_path, "ObjectRemoved:Delete", "0056", datetime.now(UTC).isoformat())
    assert "1 deletes" in run(tmp_path, "notify", "event.json", "--source", "s3")
    assert "1 removed" in run(tmp_path, "index", *work)
    (row,) = run(tmp_path, "documents", "list", "--json").splitlines()
    assert json.loads(row)["status"] == "deleted"


def event(folder: Path, name: str, sequencer: str, at: str) -> None:
    """What the bucket `shelf` tells of one object, in a file."""
    thing = {"key": "otters.txt", "size": 38, "sequencer": sequencer}
    record = {"eventName": name, "eventTime": at, "s3": {"bucket": {"name": "shelf"}, "object": thing}}
    (folder / "event.json").write_text(json.dumps({"Records": [record]}))


@pytest.mark.integration
def test_a_bucket_is_indexed_into_a_bucket(tmp_path: Path, s3_server: S3Server) -> None:
    """Documents and store lie on S3; the environment says where that is, as it does for every client of S3."""
    prefix = f"s3://penstock/{tmp_path.name}"

    async def put() -> None:
        store = await open_store(f"{prefix}/documents", **s3_server.options)
        await store.put("guide/otters.txt", b"Otters swim in the river and eat fish.")
        await store.put("bread.md", b"# Bread\n\nThe loaf is baked in a hot oven.")
        await store.close()

    asyncio.run(put())
    environment = os.environ | {
        "AWS_ENDPOINT": s3_server.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": s3_server.region,
        "AWS_ACCESS_KEY_ID": s3_server.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_access_key,
    }
    store = ["--store", f"{prefix}/store"]
    work = [*store, *LOCAL]
    told = json.loads(run(tmp_path, "index", f"{prefix}/documents", *work, "--json", env=environment))
    assert (told["listed"]["to_index"], told["done"]["documents"]) == (2, 2)
    again = run(tmp_path, "index", f"{prefix}/documents", *work, env=environment)
    assert again == "0 to index, 0 to remove, 2 unchanged: nothing to do\n"
    one = run(tmp_path, "index", f"{prefix}/documents/bread.md", *work, env=environment)
    assert one.startswith("0 to index, 0 to remove, 1 unchanged")
    hit = json.loads(run(tmp_path, "search", "fish in a river", "-n", "1", "--json", *store, env=environment))
    assert (hit["bucket"], hit["key"]) == ("penstock", f"{tmp_path.name}/documents/guide/otters.txt")


@pytest.mark.integration
def test_following_picks_up_what_changes_in_a_folder_and_ends_in_good_order(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "otters.txt").write_text("Otters swim in the river and eat fish.")
    command = [
        sys.executable,
        "-m",
        "penstock.cli",
        "index",
        "shelf",
        "--follow",
        "--interval",
        "0.5",
        "--json",
        *LOCAL,
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(tmp_path, {"otters.txt"})
        (tmp_path / "shelf" / "bread.md").write_text("The loaf is baked in a hot oven.")
        wait_for(tmp_path, {"otters.txt", "bread.md"})
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 0
    assert json.loads(out)["done"]["documents"] == 2


def wait_for(folder: Path, keys: set[str]) -> None:
    """Until these documents, and no others, are indexed."""

    async def poll() -> None:
        deadline = Deadline(SYSTEM_CLOCK, SECONDS_MAX)
        while True:
            found = await read_entries(url_of(str(folder / "penstock-data")), NAME)
            if {entry.key for entry in found if entry.current and not entry.pending} == keys:
                return
            deadline.check(f"{keys} were to be indexed")
            await SYSTEM_CLOCK.sleep(0.2)

    asyncio.run(poll())


def test_queue_only_notifies_and_leaves_the_work_to_another_job(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "otters.txt").write_text("Otters swim in the river and eat fish.")
    command = ["index", str(tmp_path / "shelf"), "--store", str(tmp_path / "store"), "--queue-only"]
    answer = CliRunner().invoke(penstock, [*command, "--json"])
    assert json.loads(answer.output) == {
        "listed": {
            "to_index": 1,
            "to_remove": 0,
            "unchanged": 0,
            "under_way": 0,
            "set_aside_before": 0,
            "forgotten_before": 0,
            "left_out": [],
        },
        "done": None,
    }
    assert (tmp_path / "store" / "ingest" / "manifest").exists()
    assert CliRunner().invoke(penstock, [*command, "--follow"]).exit_code == 2
