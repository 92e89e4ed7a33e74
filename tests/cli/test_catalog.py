"""`penstock catalog`: what an operator sees, in text and in JSON, and that looking changes nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.catalog.samples import HOUR, data_file

from penstock.catalog import Catalog, CatalogConfig
from penstock.catalog.format.data_file import file_json
from penstock.cli.main import penstock
from penstock.errors import NotFound
from penstock.objects import ObjectStore, open_store


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Twenty files, half of them in a segment, one deleted."""
    url = f"file://{tmp_path}"

    async def fill(store: ObjectStore) -> None:
        async with await Catalog.open(store, "lake", CatalogConfig()) as catalog:
            await catalog.register([data_file(number) for number in range(10)])
            await catalog.spill()
            await catalog.register([data_file(number) for number in range(10, 20)])
            await catalog.delete([data_file(4).path])

    on(url, fill)
    return url


def on(url: str, work: Any) -> Any:
    async def session() -> Any:
        store = await open_store(url)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(session())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(penstock, ["catalog", *arguments])


def told(*arguments: str, code: int = 0) -> Any:
    answer = run(*arguments, "--prefix", "lake", "--json")
    assert answer.exit_code == code, answer.output
    return json.loads(answer.output)


def contents(url: str) -> dict[str, bytes]:
    root = Path(url.removeprefix("file://"))
    return {
        str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and ".penstock" not in path.parts
    }


def test_looking_changes_nothing(lake: str) -> None:
    before = contents(lake)
    for command in (["stats"], ["files"], ["plan"], ["verify"], ["vacuum", "--dry-run", "--grace", "0"]):
        assert run(command[0], lake, *command[1:], "--prefix", "lake").exit_code == 0
    assert contents(lake) == before


def test_plan_lists_what_a_query_has_to_read(lake: str) -> None:
    found = told("plan", lake, "--from", "1970-01-01T00:00:00", "--to", "1970-01-01T00:03:00Z", "--column", "none")
    assert [file["path"] for file in found["files"]] == [data_file(number).path for number in range(3)]
    assert found["total_files"] == 19
    pruned = told("plan", lake, "--where", "host=h0000007", "--where", "host is not null", "--tenant", "acme")
    assert len(pruned["files"]) == 2
    assert told("plan", lake, "--to", "0")["files"] == []
    text = run("plan", lake, "--prefix", "lake", "--from", str(HOUR // 60 * 18))
    assert "2 of 19 files, 2,000 rows, 2,000,000 bytes" in text.output
    assert run("plan", lake, "--from", "yesterday").exit_code == 1


def test_files_of_a_level_and_of_an_earlier_state(lake: str) -> None:
    assert len(told("files", lake)["files"]) == 19
    assert len(told("files", lake, "--level", "0")["files"]) == 19
    assert told("files", lake, "--level", "1")["files"] == []
    assert len(told("files", lake, "--as-of", "1")["files"]) == 10
    assert "19 files" in run("files", lake, "--prefix", "lake").output


def test_stats_show_each_shard(lake: str) -> None:
    [shard] = told("stats", lake)["shards"]
    assert (shard["files"], shard["inline_files"], shard["segments"], shard["tombstones"]) == (19, 10, 1, 1)
    assert "19, 10 of them inline" in run("stats", lake, "--prefix", "lake").output


def test_verify_names_problems_and_ends_with_1(lake: str) -> None:
    assert told("verify", lake) == {"problems": []}
    found = told("verify", lake, "--data", code=1)["problems"]
    assert len(found) == 19
    segment = next(Path(lake.removeprefix("file://")).glob("lake/metadata/seg/*.arrow"))
    segment.unlink()
    answer = run("verify", lake, "--prefix", "lake")
    assert answer.exit_code == 1
    assert segment.name in answer.output


def test_vacuum_deletes_what_was_removed(lake: str) -> None:
    on(lake, lambda store: store.put(f"lake/{data_file(4).path}", b"x"))
    assert told("vacuum", lake)["files"] == []
    found = told("vacuum", lake, "--grace", "0")
    assert found["files"] == [data_file(4).path]
    assert not (Path(lake.removeprefix("file://")) / "lake" / data_file(4).path).exists()
    assert "0 objects deleted" in run("vacuum", lake, "--prefix", "lake", "--grace", "0", "--orphans", "acme/").output


def test_index_and_split(lake: str) -> None:
    assert list(told("index", lake)["shards"]) == [""]
    assert told("split", lake, ".", "s1", "s2")["shards"] == ["s1", "s2"]
    assert len(told("files", lake)["files"]) == 19
    assert "s1, s2" in run("split", lake, ".", "--prefix", "lake").output
    assert "s1" in run("index", lake, "--prefix", "lake").output
    assert run("split", lake, "nowhere", "a", "b", "--prefix", "lake").exit_code == 1


def test_downgrade_writes_version_2(lake: str) -> None:
    assert told("downgrade", lake, "--to", "2")["files"] == 19
    written = json.loads((Path(lake.removeprefix("file://")) / "lake/metadata/catalog.json").read_text())
    assert (written["version"], len(written["chunks"])) == (2, 19)
    assert told("rebuild-index", lake, "--format", "2")["files"] == 19
    assert told("verify", lake) == {"problems": []}


def test_the_pair_is_migrated_and_written_back(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    chunks = {data_file(number).path: file_json(data_file(number)) for number in range(3)}
    folder = tmp_path / "lake" / "metadata" / "chunks"
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps(chunks))
    (folder.parent / "time-index.json").write_text(json.dumps({"0": [data_file(0).path, "ghost"]}))
    dry = told("migrate", url, "--dry-run", code=1)
    assert dry["missing_from_metadata"] == ["ghost"]
    assert len(dry["missing_from_index"]) == 2
    refused = run("migrate", url, "--prefix", "lake")
    assert refused.exit_code == 1
    assert "--repair" in refused.output
    assert not (folder.parent / "catalog.json").exists()
    done = told("migrate", url, "--repair", "--backup", "--format", "2")
    assert done["files"] == 3
    assert len(done["backups"]) == 2
    assert run("migrate", url, "--prefix", "lake").exit_code == 0
    # An old writer comes back.
    (folder / "metadata.json").write_text(json.dumps({}))
    late = run("migrate", url, "--prefix", "lake")
    assert late.exit_code == 1
    assert "still running" in late.output
    back = told("split-catalog", url)
    assert back["files"] == 3
    assert json.loads((folder / "metadata.json").read_text()) == chunks


def test_settings_reach_the_catalog(lake: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[catalog]\nhead_bytes_warn = 10\n[catalog.compaction]\nhour_files = 3\n")
    answer = run("stats", lake, "--prefix", "lake", "--config", str(settings))
    assert "archive closed days, or split the shard" in answer.output


@pytest.mark.parametrize(
    "command", [("index",), ("rebuild-index",), ("split-catalog",), ("vacuum",), ("vacuum", "--dry-run")]
)
@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
def test_a_mistyped_name_is_no_empty_catalog(tmp_path: Path, command: tuple[str, ...], is_there: bool) -> None:
    """Upkeep of nothing says so and leaves nothing behind, no folder either."""
    folder = tmp_path / "mistyped"
    if is_there:
        folder.mkdir()
    answer = run(command[0], f"file://{folder}", *command[1:], "--json")
    assert answer.exit_code == 1
    assert isinstance(answer.exception, NotFound) or "there is no" in answer.output
    assert folder.exists() == is_there
    assert not is_there or not [path for path in folder.rglob("*") if path.is_file()]


def test_the_upkeep_of_a_pair_that_was_never_migrated_goes_on(lake: str) -> None:
    root = Path(lake.removeprefix("file://")) / "lake" / "metadata"
    told("split-catalog", lake)
    for path in [*root.glob("catalog.json"), *root.rglob("*.arrow")]:
        path.unlink()
    assert told("vacuum", lake, "--dry-run")["orphans"] == []
    assert told("rebuild-index", lake)["files"] == 19
