"""The JSON Schemas of the contracts, made from the structs that the code itself decodes with.

`python -m penstock.documents.schemas docs/schemas` writes them; a test compares the published files with the code, so
that neither can change alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.documents.answers import SearchAnswer
from penstock.documents.contracts import (
    BatchRequest,
    ChunkEnvelope,
    Contract,
    DeleteNotification,
    DocumentReport,
    EndDocument,
    UploadNotification,
    schema_name,
)

__all__ = ["PUBLISHED", "schema", "schema_text", "write_schemas"]

PUBLISHED: Final[tuple[type[Contract], ...]] = (
    UploadNotification,
    DeleteNotification,
    ChunkEnvelope,
    EndDocument,
    BatchRequest,
    DocumentReport,
    SearchAnswer,
)


def schema(kind: type[Contract]) -> dict[str, Any]:
    """A self-contained JSON Schema (draft 2020-12) of one contract."""
    (reference,), components = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    root = components.pop(reference["$ref"].rpartition("/")[2])
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **root}
    return {**described, "$defs": components} if components else described


def schema_text(kind: type[Contract]) -> str:
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> list[Path]:
    """Write every published schema into `folder`, and say which files they are."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / schema_name(kind) for kind in PUBLISHED]
    for kind, path in zip(PUBLISHED, paths, strict=True):
        path.write_text(schema_text(kind), encoding="utf-8")
    return paths


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
