import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from penstock.documents.answers import FacetValue, Passage, SearchAnswer, SearchFacet
from penstock.documents.contracts import (
    BatchInput,
    BatchRequest,
    ChunkEnvelope,
    ChunkMetadata,
    DeleteNotification,
    DocumentReport,
    DocumentStatus,
    EndDocument,
    UploadNotification,
    encode,
    schema_name,
)
from penstock.documents.schemas import PUBLISHED, schema, schema_text, write_schemas

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
WHEN = datetime(2025, 8, 28, tzinfo=UTC)
DOC = "0f" * 32
SAMPLES = [
    UploadNotification(tenant_id="t", index_id="i", bucket="b", key="k", size_bytes=0, model="m", created_at=WHEN),
    UploadNotification(
        tenant_id="t",
        index_id="i",
        bucket="b",
        key="ключ/鍵",
        version_id="v",
        etag="e",
        size_bytes=2**53,
        content_type="text/html",
        model="m",
        source_id="s",
        created_at=WHEN,
        sequencer="s3:1",
    ),
    DeleteNotification(tenant_id="t", index_id="i", bucket="b", key="k", model="m", created_at=WHEN, sequencer="s3:2"),
    ChunkEnvelope(
        doc_id=DOC,
        chunk_id="c",
        seq=0,
        text="",
        byte_range=(0, 0),
        token_count=0,
        metadata=ChunkMetadata(tenant_id="t", index_id="i", model="m", source_id="s"),
    ),
    EndDocument(doc_id=DOC, seq_max=-1, warnings=("three bytes were no UTF-8",)),
    BatchRequest(
        batch_id="x:0:0",
        tenant_id="t",
        index_id="i",
        model="m",
        inputs=(BatchInput(doc_id=DOC, chunk_id="c", seq=0, text="x"),),
        tokens_total=1,
        created_at=WHEN,
    ),
    DocumentReport(doc_id=DOC, status=DocumentStatus.INCOMPLETE, chunks=3, missing_seqs=(1, 2)),
    SearchAnswer(
        passages=(Passage(score=1.5, bucket="b", key="k", seq=0, start=0, end=4, text="text", page=1),),
        facets={"language": SearchFacet(values=(FacetValue(value="en", count=1),), missing=2)},
    ),
]


@pytest.mark.parametrize("kind", PUBLISHED, ids=lambda kind: kind.__name__)
def test_the_published_schema_is_the_one_the_code_decodes_with(kind):
    """When this fails: `python -m penstock.documents.schemas docs/schemas`, and tell the readers of the contract."""
    assert (FOLDER / schema_name(kind)).read_text(encoding="utf-8") == schema_text(kind)


@pytest.mark.parametrize("kind", PUBLISHED, ids=lambda kind: kind.__name__)
def test_a_published_schema_is_itself_valid(kind):
    Draft202012Validator.check_schema(schema(kind))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_what_the_code_writes_is_what_the_published_schema_accepts(sample):
    published = json.loads((FOLDER / schema_name(type(sample))).read_text(encoding="utf-8"))
    Draft202012Validator(published).validate(json.loads(encode(sample)))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_the_published_schema_refuses_a_sample_without_one_of_its_required_members(sample):
    validator = Draft202012Validator(schema(type(sample)))
    for member in schema(type(sample))["required"]:
        message = json.loads(encode(sample))
        message.pop(member)
        assert not validator.is_valid(message), member


def test_every_published_contract_has_a_sample():
    assert {type(sample) for sample in SAMPLES} == set(PUBLISHED)


def test_writing_the_schemas_gives_one_file_a_contract(tmp_path):
    assert [path.name for path in write_schemas(tmp_path)] == [schema_name(kind) for kind in PUBLISHED]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(schema_name(kind) for kind in PUBLISHED)
