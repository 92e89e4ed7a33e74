"""Documents over HTTP: the keys that people see are those under which they uploaded."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.gateway.documents.upload_place import UploadPlace
from penstock.vector import CollectionName

NAME = CollectionName("acme", "manual", "m")


def entry(bucket: str, key: str) -> Any:
    return SimpleNamespace(bucket=bucket, key=key)


@pytest.mark.parametrize(
    "url", ["s3://house", "s3://house/data-uploads", "az://house/uploads", "gs://house", "file:///var/uploads"]
)
def test_an_upload_is_listed_under_the_key_that_it_was_given(url):
    own = UploadPlace.of(url, NAME, "")
    put = UploadPlace.of(url, NAME, "folder/a.txt")
    assert own.uploaded_key(entry(put.bucket, put.key)) == "folder/a.txt"


def test_a_document_of_another_bucket_has_the_key_that_it_has_there():
    own = UploadPlace.of("s3://house/uploads", NAME, "")
    assert own.uploaded_key(entry("theirs", "uploads/acme/manual/x")) == "uploads/acme/manual/x"
