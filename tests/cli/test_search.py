"""`penstock search` answers with passages and where they stand, and keeps to a filter."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import penstock
from penstock.cli.settings.options import VECTOR_PATH
from penstock.documents.embedding import EMBEDDED_MODEL, StaticProvider
from penstock.indexing.sending.places import url_of
from penstock.vector import VectorStore

PASSAGES = {
    "otters.txt": "Otters swim in the river and eat fish.",
    "bread.md": "The loaf is baked in a hot oven.",
    "law.md": "The court heard the appeal of the tenant.",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of three passages, each of a document of its own."""
    folder = tmp_path_factory.mktemp("search")
    vectors = StaticProvider().embed_now(list(PASSAGES.values())).rows
    places = [
        {"bucket": "b", "key": key, "seq": 0, "start": 10 * n, "end": 10 * n + 9} for n, key in enumerate(PASSAGES)
    ]
    table = pa.table(
        {
            "id": list(PASSAGES),
            "vector": pa.array(list(vectors), pa.list_(pa.float32())),
            "text": list(PASSAGES.values()),
            "attributes": pa.array(places),
        }
    )

    async def write() -> None:
        async with await VectorStore.open(url_of(str(folder)), VECTOR_PATH) as opened:
            collection = await opened.collection("default", "default", EMBEDDED_MODEL, dimensions=vectors.shape[1])
            await collection.upsert(table, durable=True)

    asyncio.run(write())
    return folder


def ask(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(penstock, ["search", *arguments, "--store", str(store)])


def test_an_answer_names_the_document_the_place_the_score_and_the_passage(store: Path) -> None:
    answer = ask(store, "fish in a river", "-n", "1")
    assert answer.exit_code == 0, answer.output
    heading, passage = answer.output.strip().splitlines()
    assert heading.startswith("1. otters.txt  bytes 0–9  score ")
    assert passage.strip() == PASSAGES["otters.txt"]


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("key = 'bread.md'", {"bread.md"}),
        ("key in ('law.md', 'otters.txt')", {"law.md", "otters.txt"}),
        ("start >= 10 and not key = 'law.md'", {"bread.md"}),
        ("bucket = 'elsewhere'", set()),
    ],
)
def test_a_filter_holds_for_every_answer(store: Path, where: str, keys: set[str]) -> None:
    answer = ask(store, "fish in a river", "--filter", where, "--json")
    assert answer.exit_code == 0, answer.output
    assert {json.loads(line)["key"] for line in answer.output.splitlines()} == keys


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("key = ", "at character 6"),
        ("colour = 'red'", "attributes are: bucket, end, key, seq, start"),
        ("start = 'ten'", "the attribute is"),
    ],
)
def test_a_filter_that_means_nothing_is_refused_in_words(store: Path, where: str, says: str) -> None:
    answer = ask(store, "fish", "--filter", where)
    assert answer.exit_code == 1
    assert says in answer.output.replace("\n", " ")
    assert "Traceback" not in answer.output


def test_words_that_the_model_does_not_know_are_still_looked_up_as_words(store: Path) -> None:
    assert ask(store, "€€€").exit_code == 0


def test_asking_for_more_changes_only_the_length(store: Path) -> None:
    answers = [
        ask(store, "the hot appeal of fish", "--json", "-n", str(count)).output.splitlines() for count in (1, 2, 3)
    ]
    assert answers[0] == answers[2][:1]
    assert answers[1] == answers[2][:2]


def test_a_word_is_found_in_its_other_forms(store: Path) -> None:
    assert json.loads(ask(store, "baking loaves", "--json", "-n", "1").output)["key"] == "bread.md"


def test_an_index_that_is_not_there_is_named(store: Path) -> None:
    answer = ask(store, "fish", "--index", "nowhere")
    assert (answer.exit_code, "nowhere" in answer.output) == (1, True)


@pytest.mark.parametrize("arguments", [["--json"], []])
def test_a_reader_that_has_read_enough_is_no_failure(store: Path, arguments: list[str]) -> None:
    """As in `penstock search rivers | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "penstock.cli", "search", "rivers", "--store", str(store), *arguments]
    try:
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["--tenant", "penstock", "--index", "indexes", "--model", "settings"], "own records"),
        (["--tenant", "penstock", "--index", "notifications"], "own records"),
        (["--model", f"{EMBEDDED_MODEL}#documents"], "registry"),
    ],
)
def test_names_that_meet_the_projects_own_collections_are_refused(store: Path, names: list[str], says: str) -> None:
    answer = ask(store, "rivers", *names)
    assert answer.exit_code == 1
    assert says in answer.output


def test_a_question_that_is_no_text_is_refused_in_words(store: Path) -> None:
    answer = ask(store, "otters \udcff")
    assert answer.exit_code == 1
    assert "not UTF-8 text" in answer.output


@pytest.mark.parametrize(
    "number", ["9" * 400, "-" + "9" * 400, "9" * 5000, "1e999", "-1e999", str(1 << 63), "0" * 5000]
)
@pytest.mark.parametrize("name", ["start", "key", "nothing"])
def test_a_filter_with_a_number_of_any_size_is_answered_or_refused_in_words(
    store: Path, name: str, number: str
) -> None:
    for where in (f"{name} < {number}", f"{name} = {number}", f"not {name} in (1, {number})"):
        answer = ask(store, "river", "--filter", where)
        assert answer.exit_code == 0 or "why:" in answer.output


def keys_of(answer: Result) -> list[str]:
    assert answer.exit_code == 0, answer.output
    return [json.loads(line)["key"] for line in answer.output.splitlines()]


def test_a_mode_ranks_by_words_alone_or_by_vector_alone(store: Path) -> None:
    """A word that no passage has finds nothing by words, and by vector whatever is nearest."""
    assert keys_of(ask(store, "judge", "--mode", "text", "--json")) == []
    assert keys_of(ask(store, "judge", "--mode", "vector", "--json"))[0] == "law.md"
    assert keys_of(ask(store, "oven", "--mode", "text", "--json")) == ["bread.md"]


def test_words_that_the_model_does_not_know_have_no_nearest_vector(store: Path) -> None:
    assert ask(store, "ꙮ", "--mode", "vector").output == "Nothing was found.\n"


def test_searching_by_words_alone_asks_no_endpoint(store: Path) -> None:
    nobody = ["--embedding-url", "http://127.0.0.1:1/v1"]
    assert keys_of(ask(store, "oven", "--mode", "text", "--json", *nobody)) == ["bread.md"]
    assert ask(store, "oven", "--json", *nobody).exit_code == 1


@pytest.mark.parametrize("mode", ["hybrid", "text", "vector"])
def test_no_answer_has_less_than_the_minimum_score(store: Path, mode: str) -> None:
    every = [json.loads(line)["score"] for line in ask(store, "hot oven", "--mode", mode, "--json").output.splitlines()]
    assert every
    least = max(every)
    answer = ask(store, "hot oven", "--mode", mode, "--json", "--min-score", str(least))
    assert [json.loads(line)["score"] for line in answer.output.splitlines()] == [s for s in every if s >= least]
    assert "Nothing was found" in ask(store, "hot oven", "--mode", mode, "--min-score", "1e9").output


def test_a_passage_that_is_piped_is_one_line_and_shows_the_match(store: Path) -> None:
    assert "  The loaf is baked" in ask(store, "oven", "-n", "1").output
