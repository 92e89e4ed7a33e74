"""The settings of an index decide which collections an event is for, how texts are cut, and which one answers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.documents import ChunkingConfig
from penstock.documents.embedding import ModelProfile
from penstock.errors import InvalidInput
from penstock.indexing.registry.entries import REGISTRY_DIMENSIONS, REGISTRY_METRIC
from penstock.indexing.registry.settings import (
    SETTINGS,
    Build,
    Cut,
    IndexSettings,
    list_settings,
    read_settings,
    remembered,
    settings_rows,
)
from penstock.indexing.stages.embedding import Embedding, Endpoint, OwnModel
from penstock.vector import CollectionName, VectorStore

CUT = Cut(80, 120, 10, "cl100k")
FINER = Cut(40, 60, 5, "cl100k")
OLD = Build(model="old", cut=CUT)
NEW = Build(model="new", cut=FINER, endpoint="http://127.0.0.1:1/v1")
PLAIN = IndexSettings(tenant="acme", index="handbook", current=OLD)
BUILDING = IndexSettings(tenant="acme", index="handbook", current=OLD, building=NEW)


def test_events_are_for_the_collection_they_name_and_for_the_one_that_is_being_built() -> None:
    assert PLAIN.models_for("old") == ("old",)
    assert BUILDING.models_for("old") == ("old", "new")
    assert BUILDING.models_for("new") == ("new",)
    assert BUILDING.models_for("a third") == ("a third",)


def test_after_the_flip_events_that_name_the_old_model_are_for_the_new_one() -> None:
    flipped = BUILDING.flipped()
    assert flipped.name == CollectionName("acme", "handbook", "new")
    assert flipped.models_for("old") == flipped.models_for("new") == ("new",)
    assert flipped.building_name is None
    assert (flipped.emptying, BUILDING.flipped(keep=True).emptying) == (("old",), ())


def test_what_is_given_up_is_emptied_and_the_index_stays_as_it_was() -> None:
    given_up = BUILDING.given_up()
    assert (given_up.current, given_up.building, given_up.emptying) == (OLD, None, ("new",))
    assert PLAIN.given_up() == PLAIN


def test_a_model_that_returns_is_no_longer_one_that_was_replaced() -> None:
    back = IndexSettings(tenant="acme", index="handbook", current=NEW, building=OLD, replaced=("old", "older"))
    assert back.models_for("old") == ("new", "old")
    assert back.flipped().replaced == ("older", "new")


def test_each_model_has_its_own_cut_and_the_cells_are_the_jobs() -> None:
    assert (BUILDING.cut_of("old"), BUILDING.cut_of("new"), BUILDING.cut_of("a third")) == (CUT, FINER, CUT)
    like = ChunkingConfig(cell_bytes=2048)
    assert FINER.chunking(like) == ChunkingConfig(40, 60, 5, "cl100k", 2048)
    assert Cut.of(FINER.chunking(like)) == FINER


def test_settings_are_found_by_tenant_and_index_beside_the_vectors(tmp_path: Path) -> None:
    other = IndexSettings(tenant="acme", index="other", current=NEW)

    async def stored() -> None:
        url = f"file://{tmp_path}"
        async with await VectorStore.open(url, "vectors") as store:
            collection = await store.collection(
                SETTINGS.tenant, SETTINGS.index, SETTINGS.model, dimensions=REGISTRY_DIMENSIONS, metric=REGISTRY_METRIC
            )
            assert await list_settings(collection) == {}
            for settings in (PLAIN, other, BUILDING):
                await collection.upsert(settings_rows(settings), durable=True)
            assert await list_settings(collection) == {("acme", "handbook"): BUILDING, ("acme", "other"): other}
        async with await VectorStore.open_reader(url, "vectors") as reader:
            assert await read_settings(reader, "acme", "handbook") == BUILDING
            assert await read_settings(reader, "acme", "nothing") is None

    asyncio.run(stored())


@pytest.mark.parametrize(("address", "kept"), [("https://h/v1", "https://h/v1"), ("https://me:secret@h/v1", None)])
def test_an_address_with_a_password_is_not_stored(address: str, kept: str | None) -> None:
    assert remembered(address) == kept


def test_a_key_goes_to_the_address_it_was_given_for_and_to_no_other() -> None:
    urls = {"old": "https://old/v1", "newer": "https://new/v1", "new": "https://elsewhere"}
    remembered = {("acme", "notes", model): OwnModel(Endpoint(url)) for model, url in urls.items()}
    for embedding in (
        Embedding(endpoints={"new": Endpoint("https://new/v1", "key of new")}),
        Embedding(own={("acme", "notes", "new"): OwnModel(Endpoint("https://new/v1", "key of new"))}),
    ):
        known = embedding.knowing(remembered)
        assert [known.endpoint_of(model, ("acme", "notes")) for model in urls] == [
            Endpoint("https://old/v1", None),
            Endpoint("https://new/v1", "key of new"),
            Endpoint("https://new/v1", "key of new"),
        ]
    everywhere = Embedding("https://all/v1", "key").knowing(remembered)
    assert everywhere.endpoint_of("old", ("acme", "notes")) == Endpoint("https://all/v1", "key")


def test_indexes_with_one_model_name_each_have_their_own_endpoint_and_profile() -> None:
    here, there = OwnModel(Endpoint("https://here/v1"), _described(8)), OwnModel(Endpoint("https://there/v1/"))
    said = OwnModel(Endpoint("https://said/v1", "key"), _described(32))
    embedding = Embedding(own={("acme", "said", "m"): said}, profiles={"m": _described(16)})
    known = embedding.knowing({("acme", "here", "m"): here, ("acme", "there", "m"): there, ("acme", "said", "m"): here})
    indexes = [("acme", index) for index in ("here", "there", "said")]
    assert [known.source_of("m", index) for index in indexes] == [
        "m at https://here/v1",
        "m at https://there/v1",
        "m at https://said/v1",
    ]
    # What is given for the whole store goes before what an index remembers, and after what is given for that index.
    assert [known.profile_of("m", index).dimensions for index in indexes] == [16, 16, 32]
    assert Embedding().knowing({("acme", "here", "m"): here}).profile_of("m", ("acme", "here")).dimensions == 8
    # What is given for one index says nothing of another.
    for index in (("acme", "other"), ("globex", "said"), None):
        assert known.endpoint_of("m", index) is None
        with pytest.raises(InvalidInput, match="no endpoint"):
            known.profile_of("m", index)


def _described(dimensions: int) -> ModelProfile:
    return ModelProfile(
        name="m", tokens_per_request=100, items_per_request=1, tokens_per_input=50, dimensions=dimensions
    )


FIRST_OF_MANY = """
import threading
import msgspec
from penstock.documents import UploadNotification
from penstock.indexing.registry.settings import IndexSettings
from penstock.indexing.registry.entries import DocumentEntry

barrier = threading.Barrier(8)

def decode():
    barrier.wait()
    for kind in (IndexSettings, DocumentEntry, UploadNotification):
        try:
            msgspec.json.decode(b"{}", type=kind)
        except msgspec.ValidationError:
            pass

threads = [threading.Thread(target=decode) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("alive")
"""


@pytest.mark.processes
def test_threads_that_are_the_first_to_read_what_is_stored_do_not_crash_the_process() -> None:
    """Whoever follows reads entries and settings on several threads."""
    ended = subprocess.run(
        [sys.executable, "-c", FIRST_OF_MANY], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr
