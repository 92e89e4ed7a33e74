"""A command is about an index as it is when the work begins, whatever it was when the command was given."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from penstock.cli.jobs.shelf import Order
from penstock.cli.settings.options import allow_option
from penstock.documents import ChunkingConfig, UploadNotification
from penstock.documents.contracts import Chunking
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.indexing.job.writer import IndexWriter
from penstock.indexing.registry.entries import VECTOR_PATH
from penstock.indexing.registry.reindexing import Wish
from penstock.indexing.registry.settings import Build, Cut, IndexSettings
from penstock.indexing.search.providers import Provider
from penstock.indexing.sending.places import url_of
from penstock.indexing.stages.embedding import Embedding, Endpoint
from penstock.indexing.stages.reading import Reading

OTHER_MODEL = "BAAI/bge-small-en-v1.5"
PLAIN = IndexSettings(tenant="t", index="i", current=Build(model=EMBEDDED_MODEL, cut=Cut.of(ChunkingConfig())))
OTHER = Build(model=OTHER_MODEL, cut=PLAIN.current.cut, endpoint="http://127.0.0.1:9/v1")
BUILDING = msgspec.structs.replace(PLAIN, building=OTHER)


def settle(order: Order, settings: IndexSettings) -> None:
    writer = IndexWriter(order.url, VECTOR_PATH, {}, Embedding())
    writer.write_settings(settings)
    writer.close()


def order_of(folder: Path, *places: str) -> Order:
    return Order(places, url_of(str(folder / "store")), "t", "i", {}, "local[1]")


def test_a_job_that_waited_for_a_rebuild_looks_at_the_collection_that_answers_afterwards(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    order = order_of(tmp_path, str(tmp_path / "a.md"))
    settle(order, BUILDING)
    before = order.laid_out(Wish(), Provider(key="secret of the old endpoint"))
    assert before.target.name.model == EMBEDDED_MODEL
    assert order.as_left(before) is before
    settle(order, BUILDING.flipped())
    # Gone meanwhile: that is for the next look to tell.
    (tmp_path / "a.md").unlink()
    after = order.as_left(before)
    assert after.target.name.model == OTHER_MODEL
    assert after.plan.embedding.endpoint_of(OTHER_MODEL, ("t", "i")) == Endpoint("http://127.0.0.1:9/v1", None)
    assert after.places == before.places


def test_an_index_that_is_still_to_be_made_keeps_what_was_wished_for(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    wished = order.laid_out(Wish(target_tokens=400), Provider())
    assert order.as_left(wished) is wished


def test_what_is_notified_of_a_new_index_says_how_it_is_to_be_cut_whichever_job_takes_it(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    order = order_of(tmp_path, str(tmp_path / "a.md"))
    wished = order.laid_out(Wish(target_tokens=400), Provider())
    (event,) = asyncio.run(wished.look()).events
    assert isinstance(event, UploadNotification)
    assert event.chunking == Chunking(target_tokens=400, max_tokens=600, overlap_tokens=100)
    assert wished.plan.chunking_by_index == {("t", "i"): wished.chunking}
    assert wished.plan.chunking == ChunkingConfig()
    settle(order, PLAIN)
    (event,) = asyncio.run(order.laid_out(Wish(), Provider()).look()).events
    assert isinstance(event, UploadNotification)
    assert event.chunking is None


def test_a_job_may_read_the_places_it_was_given_and_what_was_allowed_besides(tmp_path: Path) -> None:
    for folder in ("docs", "more"):
        (tmp_path / folder).mkdir()
    (tmp_path / "docs" / "a.md").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "more")
    base = f"file://{tmp_path}"

    def reading(places: list[str], *options: str) -> Reading:
        command = click.Command("x", params=[])
        context = allow_option(command).make_context("x", list(options))
        order = Order(places, url_of(str(tmp_path / "store")), "t", "i", {"shelf": base}, "local[1]")
        return replace(order, allowed=context.params["allowed"]).laid_out(Wish(), Provider()).plan.reading

    assert reading([str(tmp_path / "docs" / "a.md")]).places == (f"{base}/docs/a.md",)
    folders = reading([str(tmp_path / "docs"), str(tmp_path)], "--allow", str(tmp_path / "link"))
    # What has a name by --bucket is allowed by it.
    assert folders.places == (f"{base}/docs", f"{base}/more")
    assert not folders.places_only
    buckets = reading(["s3://docs/hand", "gs://papers"], "--allow", "s3://other")
    assert buckets.places == ("s3://docs/hand", "gs://papers", "s3://other")
    assert buckets.places_only
