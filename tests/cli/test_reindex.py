"""`penstock reindex` changes the model and the chunks of an index that answers all the time, through a kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import penstock
from penstock.cli.settings.options import VECTOR_PATH
from penstock.documents.embedding import EMBEDDED_MODEL, profile_of
from penstock.errors import NotFound
from penstock.indexing.search.passages import Asked, Question, find_passages
from penstock.indexing.sending.places import url_of
from penstock.testing.servers.embedding_server import Ask, EmbeddingServer
from penstock.vector import VectorStore

OTHER_MODEL = "BAAI/bge-small-en-v1.5"
SECONDS_MAX = 300
# No Spark, where a test needs none.
LOCAL = ("--engine", "local")
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
        if "there is no store" in answer.output:
            # The job has only begun.
            return []
        return [json.loads(line) for line in answer.output.splitlines()]

    def indexed(self, follower: subprocess.Popen[str], count: int) -> dict[str, int]:
        """Wait until so many documents are searchable; the chunks of each."""
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            assert follower.poll() is None, follower.communicate()
            found = {row["key"]: row["chunks"] for row in self.documents() if row["status"] == "indexed"}
            if len(found) == count:
                return found
            time.sleep(0.5)
        raise AssertionError(f"{count} documents are not indexed after {SECONDS_MAX} s")

    def say(self, *arguments: str) -> Result:
        """A command that starts no Spark."""
        return CliRunner().invoke(penstock, [*arguments, "--store", str(self.folder / "penstock-data")])

    def rows(self, model: str) -> int:
        async def count() -> int:
            url = url_of(str(self.folder / "penstock-data"))
            async with await VectorStore.open_reader(url, VECTOR_PATH) as reader:
                try:
                    return (await (await reader.collection("default", "default", model)).stats()).rows
                except NotFound:
                    # Taken away with its last row.
                    return 0

        return asyncio.run(count())


@pytest.mark.integration
def test_a_new_model_takes_over_after_a_kill_while_searches_always_answer(tmp_path: Path) -> None:
    library = Library(tmp_path)
    # One engine makes it, the other is killed, and the first goes on.
    library.run("index", "shelf", *LOCAL)
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
        assert library.say("index", str(tmp_path / "shelf"), "--queue-only").exit_code == 0
        out = library.run("reindex", "--json", *LOCAL)
        assert json.loads(out)["model"] == OTHER_MODEL
        assert len(answers) > 1
        assert min(answers) > 0

        # The same text has the same vector with the new model, and the index remembers where to ask it.
        assert library.passages(text_of("herons"))[0]["key"] == "herons.txt"
        assert library.passages(text_of("voles"))[0]["key"] == "voles.txt"
        assert [ask for ask in server.asks if ask.key.startswith("search:")]
        assert {row["status"] for row in library.documents()} == {"indexed"}
        assert len(library.documents()) == len(ANIMALS) + 1
        assert library.rows(EMBEDDED_MODEL) == 0

        # From now on the other model is refused by name, and a plain run finds nothing to do.
        assert library.say("index", str(tmp_path / "shelf")).output.startswith("0 to index, 0 to remove, 7 unchanged")
        refused = library.say("index", "--model", EMBEDDED_MODEL)
        assert refused.exit_code == 1
        assert "reindex" in refused.output


@pytest.mark.integration
def test_other_chunks_replace_the_old_ones_while_a_job_that_follows_makes_way_and_comes_back(tmp_path: Path) -> None:
    library = Library(tmp_path)
    follower = library.start("index", "shelf", "--follow", "--interval", "0.5")
    try:
        before = library.indexed(follower, len(ANIMALS))
        library.run("reindex", "--chunk-tokens", "60", "--overlap-tokens", "10", *LOCAL)
        after = library.indexed(follower, len(ANIMALS))
        assert set(after) == set(before)
        assert all(after[key] > before[key] for key in before)
        assert library.rows(EMBEDDED_MODEL) == sum(after.values())
        # What comes now is taken by the same process as before, and cut like the others.
        library.write("voles")
        assert library.indexed(follower, len(ANIMALS) + 1)["voles.txt"] == after["herons.txt"]
    finally:
        # As a supervisor ends it: its Spark gets the signal too.
        os.killpg(follower.pid, signal.SIGTERM)
        out, err = follower.communicate(timeout=SECONDS_MAX)
    assert (follower.returncode, err) == (0, "")
    # It may have found the rebuild over already: those of a few documents are quick.
    assert "continuing with index default" in out
    # A plain run cuts as the index is cut, and finds nothing to do.
    again = library.say("index", str(tmp_path / "shelf"))
    assert again.output.startswith("0 to index, 0 to remove, 7 unchanged")


def test_an_index_that_is_not_there_cannot_be_made_anew(tmp_path: Path) -> None:
    answer = Library(tmp_path).say("reindex", "--chunk-tokens", "100")
    assert answer.exit_code == 1
    assert "there is no index default" in answer.output
