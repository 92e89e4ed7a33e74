"""`penstock mcp` answers the public client of the Model Context Protocol, and only reads."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters

from penstock.cli.main import penstock

RIVERS = "# Otters\n\n" + "\n\n".join(
    f"Paragraph {number} tells how otters swim in river {number}." for number in range(60)
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of two documents, made by the command itself."""
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "shelf" / "animals").mkdir(parents=True)
    (folder / "shelf" / "animals" / "otters.md").write_text(RIVERS)
    (folder / "shelf" / "bread.txt").write_text("The loaf is baked in a hot oven.")
    options = ["--store", str(folder / "store"), "--engine", "local", "--chunk-tokens", "60", "--max-tokens", "90"]
    made = CliRunner().invoke(penstock, ["index", str(folder / "shelf"), "--overlap-tokens", "20", *options])
    assert made.exit_code == 0, made.output
    return folder / "store"


def asking(store: Path, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    """What `ask` gets from the command, started as a client starts it."""
    # A client hands on little of its environment, and the command must find the same Penstock as this test does.
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "penstock.cli", "mcp", "--store", str(store)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    async def talk() -> Any:
        async with Client(command, read_timeout_seconds=120) as client:
            return await ask(client)

    return asyncio.run(talk())


def test_a_model_finds_reads_and_lists_documents(store: Path) -> None:
    async def ask(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"search", "fetch", "list_documents"}
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
        found = await client.call_tool("search", {"query": "hot oven", "count": 1})
        assert found.structured_content is not None
        (passage,) = found.structured_content["passages"]
        assert (passage["key"], passage["text"]) == ("bread.txt", "The loaf is baked in a hot oven.")
        fetched = await client.call_tool("fetch", {"key": "animals/otters.md"})
        assert fetched.structured_content is not None
        assert fetched.structured_content["text"] == RIVERS
        listed = await client.call_tool("list_documents", {"prefix": "animals/"})
        assert listed.structured_content is not None
        assert [each["key"] for each in listed.structured_content["documents"]] == ["animals/otters.md"]

    asking(store, ask)


def test_a_long_document_is_read_in_parts_and_what_is_refused_is_told_with_its_remedy(store: Path) -> None:
    async def ask(client: Client) -> None:
        text, offset = "", 0
        while offset is not None:
            part = await client.call_tool("fetch", {"key": "animals/otters.md", "offset": offset, "length": 1000})
            assert part.structured_content is not None
            text += part.structured_content["text"]
            offset = part.structured_content["next_offset"]
        assert text == RIVERS
        for name, arguments, said in (
            ("fetch", {"key": "nowhere.md"}, "the index has no text of nowhere.md"),
            ("search", {"query": " "}, "the query is empty"),
            ("search", {"query": "x", "filter": "key ="}, "cannot be read"),
            ("search", {"query": "x", "count": 1_000_000}, "count"),
        ):
            refused = await client.call_tool(name, arguments)
            assert refused.is_error
            assert said in str(refused.content[0])

    asking(store, ask)


def test_passages_come_with_their_context_and_a_document_has_no_more_than_its_share(store: Path) -> None:
    import json

    def found(*arguments: str) -> list[dict[str, Any]]:
        answer = CliRunner().invoke(
            penstock, ["search", "otters in river 30", "--json", "--store", str(store), *arguments]
        )
        assert answer.exit_code == 0, answer.output
        return [json.loads(line) for line in answer.output.splitlines()]

    for hit in found("-n", "3", "--context", "2", "--filter", "key startswith 'animals/'"):
        around = hit["before"] + hit["text"] + hit["after"]
        assert around in RIVERS
        assert len(around) > len(hit["text"])
    keys = [hit["key"] for hit in found("-n", "5", "--per-document", "1", "--mode", "vector")]
    assert len(keys) == len(set(keys)) == 2
    assert not found("--filter", "key startswith 'other/'")


def test_a_model_counts_filters_and_groups(store: Path) -> None:
    async def ask(client: Client) -> None:
        asked = {"query": "otters", "count": 3, "facets": ["key", "language"], "by_document": True}
        found = (await client.call_tool("search", asked)).structured_content
        assert found is not None
        assert found["documents"][0]["key"] == "animals/otters.md"
        assert found["documents"][0]["title"] == "Otters"
        assert found["facets"]["key"]["values"][0]["value"] == "animals/otters.md"
        only = {"query": "otters", "filter": "headings is null"}
        (passage,) = (await client.call_tool("search", only)).structured_content["passages"]  # type: ignore[index]
        assert passage["key"] == "bread.txt"

    asking(store, ask)


def test_a_store_that_goes_away_is_told_and_answers_again_when_it_is_back(store: Path, tmp_path: Path) -> None:
    place = tmp_path / "store"
    shutil.copytree(store, place)

    async def ask(client: Client) -> None:
        place.rename(tmp_path / "away")
        for name, arguments in (
            ("list_documents", {}),
            ("search", {"query": "otters"}),
            ("fetch", {"key": "bread.txt"}),
        ):
            refused = await client.call_tool(name, arguments)
            assert refused.is_error
            assert "does not exist" in str(refused.content[0])
        (tmp_path / "away").rename(place)
        listed = await client.call_tool("list_documents", {})
        assert listed.structured_content is not None
        assert listed.structured_content["total"] == 2

    asking(place, ask)
