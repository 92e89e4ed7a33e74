"""A job opens what those who run it have named, and nothing that only an event names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.errors import Corrupt, InvalidInput, PermissionDenied
from penstock.indexing.stages.access import Access, remembered_places
from penstock.indexing.stages.reading import Reading
from penstock.objects import StoreSpec, open_store
from penstock.testing.servers.object_stores import AzureServer


def may(access: Access, url: str, key: str = "a.md") -> bool:
    try:
        access.check(url, key)
    except PermissionDenied:
        return False
    return True


def test_a_folder_is_read_with_all_below_it_and_a_file_alone() -> None:
    access = Access(["file:///srv/docs", "file:///srv/one/a.md"])
    assert may(access, "file:///srv/docs")
    assert may(access, "file:///srv/docs/deep/er")
    # A folder above, under which an earlier command had named the file.
    assert may(access, "file:///srv", "docs/a.md")
    assert may(access, "file:///srv/one")
    assert not may(access, "file:///srv/one", "b.md")
    assert not may(access, "file:///srv/docs-private")
    assert not may(access, "file:///srv")
    assert not may(access, "file:///srv/docs", "../../etc/passwd")
    assert not may(access, "file:///srv/docs", "/../../../etc/passwd")
    assert may(access, "file:///srv/docs", "/etc/passwd"), "a file below the folder"


def test_nothing_local_is_read_that_nobody_named() -> None:
    assert not may(Access([]), "file:///etc", "passwd")
    assert not may(Access([]), "memory://x")
    assert may(Access(["memory://x"]), "memory://x")
    with pytest.raises(InvalidInput):
        Access([]).check("http://169.254.169.254/latest", "meta-data")


def test_buckets_are_read_as_credentials_allow_unless_there_is_a_list() -> None:
    assert may(Access([]), "s3://any")
    assert may(Access(["file:///srv"]), "gs://any")
    listed = Access(["s3://docs/public", "gs://papers"], only=True)
    assert may(listed, "s3://docs", "public/a.md")
    assert may(listed, "s3://docs/public")
    assert not may(listed, "s3://docs", "private/a.md")
    assert not may(listed, "s3://docs", "publicity.md")
    assert may(listed, "gs://papers")
    assert not may(listed, "s3://papers")


def test_the_store_of_the_index_is_no_document_wherever_it_lies(tmp_path: Path) -> None:
    local = Access([f"file://{tmp_path}"], own=f"file://{tmp_path}/store")
    assert may(local, f"file://{tmp_path}")
    assert not may(local, f"file://{tmp_path}", "store/vectors/manifest")
    far = Access([], own="s3://docs/penstock")
    assert may(far, "s3://docs")
    assert not may(far, "s3://docs", "penstock/vectors/manifest")
    assert may(Access([], own="s3://docs"), "s3://docs")


@pytest.mark.parametrize("folder", ["vectors", "parsed", "ingest", "telemetry", "indexing", "notifications"])
def test_in_a_bucket_that_is_the_store_itself_only_what_is_not_the_stores_is_a_document(folder: str) -> None:
    """Whoever may send events of the bucket could else have texts of other tenants read into an index of theirs."""
    access = Access(["s3://docs"], own="s3://docs", only=True)
    assert not may(access, "s3://docs", f"{folder}/of-another-tenant")
    assert not may(access, f"s3://docs/{folder}", "of-another-tenant")
    assert may(access, "s3://docs", f"reports/{folder}/a.md")
    assert may(access, "s3://docs", f"{folder}.md")
    assert may(Access([], own="s3://docs"), "s3://other", f"{folder}/a.md")


def test_the_container_of_the_store_is_the_stores_own_whether_its_account_is_told_or_not() -> None:
    """Events of Azure name the account, and the URL of a store does not."""
    whole, below = Access([], own="az://docs"), Access([], own="az://docs/penstock")
    assert not may(whole, "az://acme.docs", "vectors/of-another-tenant")
    assert not may(below, "az://acme.docs", "penstock/vectors/of-another-tenant")
    assert may(whole, "az://acme.docs", "reports/a.md")
    assert may(below, "az://acme.docs", "reports/a.md")
    told = Access([], own="az://acme.docs")
    assert not may(told, "az://acme.docs", "vectors/of-another-tenant")
    assert may(told, "az://bravo.docs", "vectors/a.md")
    assert not may(
        Reading(parsed=StoreSpec("az://docs", {"account_name": "acme"})).access, "az://acme.docs", "parsed/a"
    )
    assert may(Reading(parsed=StoreSpec("az://docs", {"account_name": "acme"})).access, "az://bravo.docs", "parsed/a")


def test_a_bucket_that_is_given_a_name_may_be_read_under_it() -> None:
    reading = Reading(buckets={"shelf": "file:///srv/shelf"}, places_only=True)
    assert may(reading.access, reading.spec_of("shelf").url)
    assert not may(reading.access, reading.spec_of("other").url)


def test_what_an_earlier_job_was_given_is_remembered_as_far_as_it_is_local(tmp_path: Path) -> None:
    spec = StoreSpec(f"file://{tmp_path}")
    assert asyncio.run(remembered_places(spec, [])) == ()
    assert not (tmp_path / "indexing").exists()
    assert asyncio.run(remembered_places(spec, ["file:///b", "s3://bucket"])) == ("file:///b",)
    assert asyncio.run(remembered_places(spec, ["file:///a"])) == ("file:///a", "file:///b")
    assert asyncio.run(remembered_places(spec, [])) == ("file:///a", "file:///b")
    (tmp_path / "indexing" / "places").write_text("[")
    with pytest.raises(Corrupt, match="indexing/places"):
        asyncio.run(remembered_places(spec, []))


def test_a_container_of_a_named_account_is_opened_there_and_not_with_the_key_of_another() -> None:
    reading = Reading(options={"account_name": "acme", "account_key": "key"})
    own, other = reading.spec_of("az://acme.docs"), reading.spec_of("az://bravo.docs")
    assert (own.url, own.options) == ("az://docs", {"read_only": True, "account_name": "acme", "account_key": "key"})
    assert (other.url, other.options) == ("az://docs", {"read_only": True, "account_name": "bravo"})
    assert reading.spec_of("az://docs").options["account_key"] == "key"
    assert Reading().spec_of("az://acme.docs").options == {"read_only": True, "account_name": "acme"}
    assert may(Access(["az://acme.docs"], only=True), "az://acme.docs")
    assert not may(Access(["az://acme.docs"], only=True), "az://bravo.docs")


@pytest.mark.integration
def test_an_object_is_read_from_the_account_that_its_event_names(azure_server: AzureServer) -> None:
    reading = Reading(options=azure_server.options)

    async def size() -> int:
        store = await open_store("az://penstock", **azure_server.options)
        await store.put("access/a.md", b"Otters swim.")
        await store.close()
        named = await reading.spec_of(f"az://{azure_server.account_name}.penstock").open()
        try:
            return (await named.head("access/a.md")).size
        finally:
            await named.close()

    assert asyncio.run(size()) == len(b"Otters swim.")
