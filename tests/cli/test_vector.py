"""`penstock vector`: what an operator sees of a vector store, and that looking changes nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from penstock.blocks import fragments_prefix
from penstock.blocks.format.keys import head_key
from penstock.cli.commands.stores.vector import vector
from penstock.errors import NotFound
from penstock.keyvalue import WriteBatch, open_keyvalue
from penstock.vector import VectorStore
from penstock.vector.format.keys import Family, collection_prefix
from penstock.vector.format.store_format import FORMAT


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A collection of 300 rows, of which 30 were deleted, and a version that is not current."""

    async def fill() -> None:
        random = np.random.default_rng(1)
        async with await VectorStore.open(f"file://{tmp_path}", "vectors") as opened:
            collection = await opened.collection("acme", "manual", "org/model", dimensions=8)
            for start in range(0, 300, 100):
                table = pa.table(
                    {
                        "id": [f"r{n}" for n in range(start, start + 100)],
                        "vector": pa.array(
                            list(random.standard_normal((100, 8)).astype(np.float32)), pa.list_(pa.float32())
                        ),
                        "text": [f"text number {n}" for n in range(start, start + 100)],
                        "attributes": [{"page": n} for n in range(start, start + 100)],
                    }
                )
                await collection.upsert(table, durable=True)
            hidden = table.slice(0, 5).drop_columns(["text", "attributes"])
            await collection.upsert(hidden, document="d", version="v", durable=True)
            await collection.delete([f"r{n}" for n in range(30)], durable=True)

    asyncio.run(fill())
    return str(tmp_path)


def run(*arguments: str, **options: object) -> Result:
    return CliRunner().invoke(vector, arguments, **options)  # type: ignore[arg-type]


def test_stats_tell_rows_sizes_and_shape_in_words(store: str) -> None:
    answer = run("stats", store)
    assert answer.exit_code == 0, answer.output
    for text in (
        "acme/manual/org/model",
        "8 dimensions",
        "270, of which 270 with text",
        "5 rows of versions",
        "30 rows",
        "page (integer)",
    ):
        assert text in answer.output


def test_stats_as_json_have_every_figure(store: str) -> None:
    (line,) = run("stats", store, "--json").output.splitlines()
    stats = json.loads(line)
    assert (stats["name"], stats["rows"], stats["dead_rows"], stats["hidden_rows"]) == (
        "acme/manual/org/model",
        270,
        30,
        5,
    )


def test_verify_says_that_a_store_is_sound(store: str) -> None:
    answer = run("verify", store)
    assert answer.exit_code == 0, answer.output
    assert "acme/manual/org/model: sound (270 rows" in answer.output


def test_verify_names_what_is_wrong_and_fails(store: str) -> None:
    async def damage() -> None:
        keyvalue = await open_keyvalue(f"file://{store}", "vectors")
        async for entries in keyvalue.scan_prefix(fragments_prefix(collection_prefix(0))):
            for key, value in entries:
                if FORMAT.address(key).shelf.family is Family.VECTORS:
                    await (await keyvalue.write(WriteBatch().put(key, value[:-1]))).durable()
        await keyvalue.close()

    asyncio.run(damage())
    answer = run("verify", store)
    assert answer.exit_code == 1
    assert "vectors, bucket 0" in answer.output
    assert "cannot be read" in answer.output


def test_compact_asks_first_and_then_says_what_became_of_what(store: str) -> None:
    refused = run("compact", store, input="n\n")
    assert refused.exit_code == 1
    assert "will be stopped" in refused.output
    answer = run("compact", store, "--yes")
    assert answer.exit_code == 0, answer.output
    assert "acme/manual/org/model:" in answer.output
    assert "became" in answer.output
    assert json.loads(run("stats", store, "--json").output)["dead_rows"] == 0
    assert run("verify", store).exit_code == 0


def test_get_shows_rows_and_fails_for_one_that_is_not_there(store: str) -> None:
    answer = run("get", store, "acme/manual/org/model", "r40", "r1")
    assert isinstance(answer.exception, NotFound)
    assert "no row r1" in str(answer.exception)
    for text in ("r40", "page        40", "text number 40", "8 in all"):
        assert text in answer.output


def test_get_as_json_gives_the_whole_row(store: str) -> None:
    row = json.loads(run("get", store, "acme/manual/org/model", "r40", "--json").output)
    assert (row["id"], len(row["vector"]), row["attributes"]) == ("r40", 8, {"page": 40})


def test_a_row_without_a_vector_is_shown_and_counted(store: str) -> None:
    async def write() -> None:
        async with await VectorStore.open(f"file://{store}", "vectors") as opened:
            other = await opened.collection("acme", "manual", "words", dimensions=1)
            await other.upsert(pa.table({"id": ["a"], "vector": pa.nulls(1), "text": ["alone"]}), durable=True)

    asyncio.run(write())
    assert "none: only its words find it" in run("get", store, "acme/manual/words", "a").output
    assert json.loads(run("get", store, "acme/manual/words", "a", "--json").output)["vector"] is None
    assert "1 rows have no vector" in run("stats", store).output


@pytest.mark.parametrize(
    "command", [["stats"], ["verify"], ["compact", "--yes"], ["drop", "a/b/c", "--yes"], ["get", "a/b/c", "id"]]
)
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, command: list[str]) -> None:
    answer = run(command[0], str(tmp_path / "nothing"), *command[1:])
    assert isinstance(answer.exception, NotFound)
    assert not (tmp_path / "nothing").exists()


def test_a_collection_is_named_by_three_parts(store: str) -> None:
    assert run("get", store, "acme/manual", "r40").exit_code == 2


def test_a_collection_that_cannot_be_read_is_named_and_the_others_are_shown(store: str) -> None:
    async def damage() -> None:
        async with await VectorStore.open(f"file://{store}", "vectors") as opened:
            other = await opened.collection("acme", "manual", "other", dimensions=1)
            await other.upsert(pa.table({"id": ["a"], "vector": [[1.0]]}), durable=True)
        keyvalue = await open_keyvalue(f"file://{store}", "vectors")
        await (await keyvalue.write(WriteBatch().put(head_key(collection_prefix(0)), b"damaged"))).durable()
        await keyvalue.close()

    asyncio.run(damage())
    stats, verify = run("stats", store, "--json"), run("verify", store)
    assert (stats.exit_code, verify.exit_code) == (1, 1)
    assert '"name": "acme/manual/other"' in stats.output
    assert "acme/manual/other: sound (1 rows" in verify.output
    for answer in (stats, verify):
        assert "the head of acme/manual/org/model cannot be read" in answer.output


def test_drop_asks_first_and_then_removes_a_collection_for_good(store: str) -> None:
    refused = run("drop", store, "acme/manual/org/model", input="n\n")
    assert refused.exit_code == 1
    assert "rows of acme/manual/org/model will be lost" in refused.output
    assert run("stats", store, "--json").output
    answer = run("drop", store, "acme/manual/org/model", "--yes")
    assert answer.exit_code == 0, answer.output
    assert "removed acme" in answer.output
    assert "There is no collection yet." in run("verify", store).output
    again = run("drop", store, "acme/manual/org/model", "--yes")
    assert isinstance(again.exception, NotFound)


def break_blocks(store: str, *families: Family) -> None:
    """Flip a bit in a block of each family."""

    async def work() -> None:
        keyvalue = await open_keyvalue(f"file://{store}", "vectors")
        left, batch = set(families), WriteBatch()
        async for entries in keyvalue.scan_prefix(fragments_prefix(collection_prefix(0))):
            for key, value in entries:
                if (family := FORMAT.address(key).shelf.family) in left:
                    left.remove(family)  # type: ignore[arg-type]
                    batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
        await (await keyvalue.write(batch)).durable()
        await keyvalue.close()

    asyncio.run(work())


def test_repair_says_what_it_would_do_asks_does_it_and_says_what_is_lost(store: str) -> None:
    break_blocks(store, Family.DICTIONARY, Family.CENTROIDS, Family.TEXTS)
    dry = run("repair", store, "--dry-run")
    assert dry.exit_code == 0, dry.output
    for text in (
        "acme/manual/org/model: can be repaired",
        "damaged: dictionary, bucket 0",
        "damaged: centroids, bucket 0",
        "lost: some texts",
    ):
        assert text in dry.output
    assert run("verify", store).exit_code == 1
    assert run("repair", store, input="n\n").exit_code == 1
    assert run("verify", store).exit_code == 1
    done = run("repair", store, "--yes")
    assert "acme/manual/org/model: repaired" in done.output
    assert run("verify", store).exit_code == 0
    assert run("repair", store, "--yes").output == "Nothing is damaged.\n"


def test_repair_leaves_what_somebody_has_to_decide_and_fails(store: str) -> None:
    break_blocks(store, Family.DELETED)
    answer = run("repair", store, "--yes")
    assert answer.exit_code == 1
    assert "acme/manual/org/model: left as it is" in answer.output
    assert "300 rows may live, and how many do is 270" in answer.output
    assert "--keep-doubtful" in answer.output
    assert run("repair", store, "--yes", "--keep-doubtful").exit_code == 0
    assert run("verify", store).exit_code == 0


def test_repair_takes_positions_by_source(store: str) -> None:
    for wrong in ("41", "queue=", "queue=-1", "queue=soon"):
        assert run("repair", store, "--yes", "--position", wrong).exit_code == 2
    assert run("repair", store, "--yes", "--position", "a=b=41", "--position", "queue=none").exit_code == 0
