"""`penstock reindex` changes the model and the chunks of an index that answers all the time, through a kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import penstock
from penstock.cli.places import VECTOR_PATH, url_of
from penstock.cli.search import Asked, Question, find_passages
from penstock.documents.embedding import EMBEDDED_MODEL, profile_of
from penstock.testing.embedding_server import Ask, EmbeddingServer
from penstock.vector import VectorStore

OTHER_MODEL = "BAAI/bge-small-en-v1.5"
SECONDS_MAX = 300
ANIMALS = ("otters", "penguins", "badgers", "herons", "lynxes", "newts")


def text_of(animal: str) -> str:
    return "\n\n".join(f"Paragraph {number} tells how {animal} live, and what they eat." for number in range(20))


class Library:
    """A folder, its index, and what a person does with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shelf").mkdir()
        for animal in ANIMALS:
            self.write(animal)

    def write(self, animal: str) -> None:
        (self.folder / "shelf" / f"{animal}.txt").write_text(text_of(animal))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The real command in a process group of its own: it starts a Spark, and may be killed with it."""
        command = [sys.executable, "-m", "penstock.cli", *arguments]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> str:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0, err
        return out

    def passages(self, words: str) -> list[dict[str, Any]]:
        """What a search answers that names no model."""
        url = url_of(str(self.folder / "penstock-data"))
        return asyncio.run(find_passages(url, Asked(), Question(words, 3)))

    def documents(self) -> list[dict[str, Any]]:
        answer = self.say("documents", "list", "--json")
        return [json.loads(line) for line in answer.output.splitlines()]

    def say(self, *arguments: str) -> Result:
        """A command that starts no Spark."""
        return CliRunner().invoke(penstock, [*arguments, "--store", str(self.folder / "penstock-data")])

    def rows(self, model: str) -> int:
        async def count() -> int:
            url = url_of(str(self.folder / "penstock-data"))
            async with await VectorStore.open_reader(url, VECTOR_PATH) as reader:
                return (await (await reader.collection("default", "default", model)).stats()).rows

        return asyncio.run(count())


@pytest.mark.integration
def test_a_new_model_takes_over_after_a_kill_while_searches_always_answer(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.run("index", "shelf")
    running: list[subprocess.Popen[str]] = []
    answers: list[int] = []

    def on_ask(ask: Ask) -> None:
        """Every request to the new model, but those of searches: the first one kills whoever sent it."""
        if ask.key.startswith("search:"):
            return
        if running:
            os.killpg(running.pop().pid, signal.SIGKILL)
        answers.append(len(library.passages("what otters eat")))

    with EmbeddingServer(dimensions=profile_of(OTHER_MODEL).dimensions, on_ask=on_ask) as server:
        killed = library.start("reindex", "--model", OTHER_MODEL, "--embedding-url", server.url)
        running.append(killed)
        killed.communicate(timeout=SECONDS_MAX)
        assert killed.returncode == -signal.SIGKILL
        assert library.passages("what otters eat")[0]["key"] == "otters.txt"
        assert not [ask for ask in server.asks if ask.key.startswith("search:")]

        # Without options it goes on; what has come meanwhile is in both.
        library.write("voles")
        out = library.run("reindex", "--json")
        assert json.loads(out)["model"] == OTHER_MODEL
        assert len(answers) > 1
        assert min(answers) > 0

        # The same text has the same vector with the new model, and the index remembers where to ask it.
        assert library.passages(text_of("herons"))[0]["key"] == "herons.txt"
        assert [ask for ask in server.asks if ask.key.startswith("search:")]
        assert {row["status"] for row in library.documents()} == {"indexed"}
        assert len(library.documents()) == len(ANIMALS)
        assert library.rows(EMBEDDED_MODEL) == 0

        # What is indexed from now on is for the new model, and the other one is refused by name.
        asked = len(server.asks)
        library.run("index", "shelf")
        assert len(library.documents()) == len(ANIMALS) + 1
        assert len(server.asks) > asked
        assert library.rows(EMBEDDED_MODEL) == 0
        refused = CliRunner().invoke(
            penstock, ["index", "--model", EMBEDDED_MODEL, "--store", str(tmp_path / "penstock-data")]
        )
        assert refused.exit_code == 1
        assert "reindex" in refused.output


@pytest.mark.integration
def test_other_chunks_replace_the_old_ones_document_by_document_and_are_remembered(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.run("index", "shelf")
    before = {row["key"]: row["chunks"] for row in library.documents()}
    library.run("reindex", "--chunk-tokens", "60", "--overlap-tokens", "10")
    after = {row["key"]: row["chunks"] for row in library.documents()}
    assert set(after) == set(before)
    assert all(after[key] > before[key] for key in before)
    assert library.rows(EMBEDDED_MODEL) == sum(after.values())
    # A plain run cuts as the index is cut, and finds nothing to do.
    assert library.run("index", "shelf").startswith("0 to index, 0 to remove, 6 unchanged")
    assert "already" in library.run("reindex")


def test_an_index_that_is_not_there_cannot_be_made_anew(tmp_path: Path) -> None:
    answer = Library(tmp_path).say("reindex", "--chunk-tokens", "100")
    assert answer.exit_code == 1
    assert "there is no index default" in answer.output
